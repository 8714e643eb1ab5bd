"""Reading a chunk that cafcat wrote. What is refused, and how, is listed in docs/formats/databundle.md."""

from collections.abc import Iterator
from typing import Final

from cafcat.checksums import crc32c
from cafcat.errors import Corrupt, Unsupported
from cafcat.formats.base import RandomReader
from cafcat.formats.databundle.decoding import decode
from cafcat.formats.databundle.layout import TRAILER_BYTES, Trailer, parse_head, parse_trailer
from cafcat.formats.databundle.table import Table
from cafcat.model import Entry

__all__ = ["DataBundleReader"]

_BLOCK_BYTES: Final = 1 << 20


class DataBundleReader:
    """Reads one chunk by the table at its end; nothing before that is read for listing. Memory: that of Table;
    reading a file, a block of 1 MiB and two of 256 KiB."""

    def __init__(self, archive: RandomReader) -> None:
        """Raises Corrupt if the end of it is missing; Unsupported for a shard whose metadata are elsewhere;
        NotInstalled without protobuf."""
        self._archive = archive
        self._end = max(0, archive.size_bytes - TRAILER_BYTES)
        place = parse_trailer(archive.read_at(self._end, archive.size_bytes), archive.size_bytes)
        if place is None:
            raise self._why_not()
        self._place: Trailer = place

    def _why_not(self) -> Corrupt | Unsupported:
        archive = self._archive
        try:
            header = parse_head(archive.read_at(0, min(archive.size_bytes, _BLOCK_BYTES)))
        except ValueError as error:
            return Corrupt(f"not a whole DataBundle shard: {error}", chunk=archive.name, byte=0)
        if header.WhichOneof("metadata") == "metadata_at_eof":
            message = "not a whole DataBundle shard: its metadata should be at its end, and are not"
            return Corrupt(message, chunk=archive.name, byte=archive.size_bytes)
        message = "the metadata of this DataBundle shard are not at its end"
        hint = "cafcat.formats.databundle.bundle reads a bundle as a folder"
        return Unsupported(message, chunk=archive.name, hint=hint)

    @property
    def index_span(self) -> tuple[int, int]:
        """Of the rows of metadata; the trailer is behind them."""
        return self._place.table_start, self._end

    def entries(self) -> Iterator[Entry]:
        """The files in the order in which they were written; see Table.entries."""
        return Table(self._archive, self._place, self._end).entries()

    def open(self, entry: Entry) -> Iterator[bytes]:
        """Its content in blocks of at most 256 KiB. Raises Corrupt where data, size or CRC-32C are others."""
        checksum = 0
        for block in self._content(entry):
            checksum = crc32c(block, checksum)
            yield block
        if entry.crc32c not in (None, checksum):
            message = f"the content has the CRC-32C {checksum:08x}, the table says {entry.crc32c:08x}"
            raise Corrupt(message, path=entry.path, chunk=self._archive.name, byte=entry.start_byte)

    def _content(self, entry: Entry) -> Iterator[bytes]:
        span = self._span(entry)
        return span if entry.decoding is None else decode(span, entry, self._archive.name)

    def _span(self, entry: Entry) -> Iterator[bytes]:
        for start in range(entry.start_byte, entry.end_byte, _BLOCK_BYTES):
            yield self._archive.read_at(start, min(start + _BLOCK_BYTES, entry.end_byte))
