"""A file of any DataBundle: of a chunk that cafcat wrote, or of a shard of a bundle."""

from collections.abc import Iterator

from cafcat.formats.base import RandomReader
from cafcat.formats.databundle.bundles.record_decoding import decode_records
from cafcat.formats.databundle.decoding import decode
from cafcat.formats.reading import read_span, verified_content
from cafcat.model import Entry

__all__ = ["FileReader", "decoded"]


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
        yield from verified_content(self._content(entry), entry, self._archive, "archive")

    def _content(self, entry: Entry) -> Iterator[bytes]:
        span = read_span(self._archive, entry)
        return span if entry.decoding is None else decoded(span, entry, self._archive.name)
