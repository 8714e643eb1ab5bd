"""Reading a ChunkIO archive: cafcat's own by its index, others record by record."""

from collections.abc import Iterator
from typing import Final

from cafcat.errors import Corrupt
from cafcat.formats.base import RandomReader
from cafcat.formats.chunkio.decoding import DEFLATE, RECORD, decode
from cafcat.formats.chunkio.deflating import MAX_INFLATED_BYTES
from cafcat.formats.chunkio.index import find_index, index_entries
from cafcat.formats.chunkio.pieces import is_own
from cafcat.formats.chunkio.records import Record
from cafcat.formats.chunkio.records_reader import RecordReader
from cafcat.formats.reading import read_span, verified_content
from cafcat.model import MAX_PATH_BYTES, Entry

__all__ = ["ChunkIoReader"]

_POSITION_BYTES: Final = 17
"""Of a name: a slash and 16 digits."""


class ChunkIoReader:
    """Reads one archive. Memory: that of CafReader for an index, or of RecordReader; some blocks of 1 MiB."""

    def __init__(self, archive: RandomReader) -> None:
        """Raises Corrupt for a chunk that cafcat wrote, but without a whole index, and for bytes without a record.
        A file of no bytes has no records, and is whole."""
        self._archive = archive
        self._index = find_index(archive)
        if self._index is None:
            self._check_foreign()

    def _check_foreign(self) -> None:
        first = RecordReader(self._archive).first()
        if first is None and self._archive.size_bytes:
            raise Corrupt("the file has no record that can be read", chunk=self._archive.name, byte=0)
        if first is not None and is_own(first.user_data):
            message = "not a whole chunk of cafcat: its index is not at its end"
            raise Corrupt(message, chunk=self._archive.name, byte=self._archive.size_bytes)

    @property
    def index_span(self) -> tuple[int, int]:
        """Empty, at the end, for an archive that cafcat did not write."""
        if self._index is None:
            return self._archive.size_bytes, self._archive.size_bytes
        return self._index.index_begin, self._index.index_end

    def entries(self) -> Iterator[Entry]:
        """The entries in the order of the index, or of the records. Raises Corrupt; StoreFailed as CafReader does.

        Of another's archive each record is one that begins and ends within the file, and before the next one
        begins: a record that was torn when its writer died is none. Whether content is damaged, `open` says.
        """
        if self._index is not None:
            return index_entries(self._archive, self._index)
        return (_entry(record, _file_name(self._archive.name)) for record in self._whole_records())

    def inflated_entries(self, max_bytes: int = MAX_INFLATED_BYTES) -> Iterator[Entry]:
        """The same of another's archive, written by the original's buffered layer, which keeps each content as raw
        DEFLATE: entries that are inflated when they are read. Reads all of the archive, for their sizes. A record
        that is damaged, no DEFLATE, or inflates to more than `max_bytes`, is left out, as there."""
        for entry in self.entries():
            try:
                deflated = entry._replace(decoding=DEFLATE, content_bytes=max_bytes)
                size_bytes = sum(map(len, self._decoded(deflated, exact=False)))
            except Corrupt:
                continue
            yield deflated._replace(content_bytes=size_bytes)

    def _whole_records(self) -> Iterator[Record]:
        kept: Record | None = None
        for record in RecordReader(self._archive).records():
            if kept is not None and kept.end <= record.begin:
                yield kept
            kept = record
        if kept is not None and kept.end <= self._archive.size_bytes:
            yield kept

    def open(self, entry: Entry) -> Iterator[bytes]:
        """Its content in blocks of at most 1 MiB. Raises Corrupt where SipHash, size or CRC-32C are others."""
        yield from verified_content(self._decoded(entry), entry, self._archive, "index")

    def _decoded(self, entry: Entry, *, exact: bool = True) -> Iterator[bytes]:
        return decode(read_span(self._archive, entry), entry, self._archive.name, exact=exact)


def _entry(record: Record, file_name: str) -> Entry:
    path = f"{file_name}/{record.begin:016x}"
    return Entry(path, record.begin, record.end, None, None, record.content_bytes, RECORD)


def _file_name(name: str) -> str:
    """The last part of the archive's name, as far as a path may have it."""
    last = name.rstrip("/").rsplit("/", 1)[-1].replace("\0", "")
    raw = last.encode(errors="replace")[: MAX_PATH_BYTES - _POSITION_BYTES]
    return raw.decode(errors="ignore") or "chunkio"
