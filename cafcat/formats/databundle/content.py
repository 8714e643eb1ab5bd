"""A file of any DataBundle: of a chunk that cafcat wrote, or of a shard of a bundle."""

from collections.abc import Iterator
from typing import Final

from cafcat.checksums import crc32c
from cafcat.errors import Corrupt
from cafcat.formats.base import RandomReader
from cafcat.formats.databundle.decoding import decode
from cafcat.formats.databundle.record_decoding import decode_records
from cafcat.model import Entry

__all__ = ["FileReader", "decoded"]

_BLOCK_BYTES: Final = 1 << 20


def decoded(span: Iterator[bytes], entry: Entry, chunk: str | None = None) -> Iterator[bytes]:
    """The content of an entry with a decoding, in blocks of at most 1 MiB, out of the bytes of its span alone; see
    decode and decode_records. Raises Corrupt, and Unsupported for a decoding of another kind."""
    is_own = (entry.decoding or "").startswith("deflate ")
    return decode(span, entry, chunk) if is_own else decode_records(span, entry, chunk)


class FileReader:
    """Reads files of one archive by their entries."""

    def __init__(self, archive: RandomReader) -> None:
        self._archive = archive

    def open(self, entry: Entry) -> Iterator[bytes]:
        """Its content in blocks of at most 1 MiB. Raises Corrupt where data, size or CRC-32C are others;
        Unsupported for what the format can list, and not read."""
        checksum = 0
        for block in self._content(entry):
            checksum = crc32c(block, checksum)
            yield block
        if entry.crc32c not in (None, checksum):
            message = f"the content has the CRC-32C {checksum:08x}, the archive says {entry.crc32c:08x}"
            raise Corrupt(message, path=entry.path, chunk=self._archive.name, byte=entry.start_byte)

    def _content(self, entry: Entry) -> Iterator[bytes]:
        span = self._span(entry)
        return span if entry.decoding is None else decoded(span, entry, self._archive.name)

    def _span(self, entry: Entry) -> Iterator[bytes]:
        for start in range(entry.start_byte, entry.end_byte, _BLOCK_BYTES):
            yield self._archive.read_at(start, min(start + _BLOCK_BYTES, entry.end_byte))
