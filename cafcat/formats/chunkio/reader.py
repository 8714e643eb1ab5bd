"""Reads a ChunkIO archive: by its index if cafcat wrote the archive, otherwise record by record."""

from collections.abc import Iterator
from typing import Final

from cafcat.errors import Corrupt
from cafcat.formats.base import RandomReader
from cafcat.formats.chunkio.decoding import DEFLATE, RECORD, decode
from cafcat.formats.chunkio.deflating import MAX_INFLATED_BYTES
from cafcat.formats.chunkio.index import find_index, index_entries
from cafcat.formats.chunkio.pieces import is_cafcat_record
from cafcat.formats.chunkio.records import Record
from cafcat.formats.chunkio.records_reader import RecordReader
from cafcat.formats.reading import read_span, verified_content
from cafcat.model import MAX_PATH_BYTES, Entry

__all__ = ["ChunkIoReader"]

_SUFFIX_BYTES: Final = 17
"""Size in bytes of the part of a path after the file name: a slash and 16 digits."""


class ChunkIoReader:
    """Reads one ChunkIO archive. Implements `Reader`.

    An archive of cafcat is read by its index. An archive of another program is read record by record. Memory: a few
    MiB, for the largest possible index less than 100 MiB; and 4 bytes for each 64 KiB of a damaged file.
    """

    def __init__(self, archive: RandomReader) -> None:
        """Look for the index at the end of the archive. An empty file is a valid archive without records.

        Raises:
            Corrupt: cafcat wrote the archive, but it does not end with an index. Or the archive has bytes, but no
                readable record.
        """
        self._archive = archive
        self._index = find_index(archive)
        if self._index is None:
            self._check_foreign()

    def _check_foreign(self) -> None:
        first = RecordReader(self._archive).first()
        if first is None and self._archive.size_bytes:
            raise Corrupt("the file has no readable record", chunk=self._archive.name, byte=0)
        if first is not None and is_cafcat_record(first.user_data):
            message = "not a complete chunk of cafcat: there is no index at its end"
            raise Corrupt(message, chunk=self._archive.name, byte=self._archive.size_bytes)

    @property
    def index_span(self) -> tuple[int, int]:
        """The span `[start, end)` of the index in bytes.

        For an empty file, or an archive of another program, the span is empty and lies at the end of the file.
        """
        if self._index is None:
            return self._archive.size_bytes, self._archive.size_bytes
        return self._index.index_begin, self._index.index_end

    def entries(self) -> Iterator[Entry]:
        """Return the entries in the order of the index, or of the records if there is no index.

        In archives of other programs, each complete record is an entry. A record is complete if it ends within the
        file, and not after the start of the next record. A record that is torn, because its writer died, is left
        out. Damaged content is only found by `open`.

        Raises:
            Corrupt: the index is damaged, or no file can have the span of an entry.
            Unsupported: the index has another version than 1.0, or a string or number of more than 1 MiB.
            StoreFailed: the temporary file for the names of a large index failed.
        """
        if self._index is not None:
            return index_entries(self._archive, self._index)
        return (_entry(record, _file_name(self._archive.name)) for record in self._complete_records())

    def inflated_entries(self, max_bytes: int = MAX_INFLATED_BYTES) -> Iterator[Entry]:
        """Yield the entries of an archive that the buffered layer of the original program wrote.

        That layer stores the content of each record as raw DEFLATE. `open` returns the decompressed content of
        these entries. This method reads the whole archive to find their sizes. A record is left out if it is
        damaged, is not a DEFLATE stream, has bytes after the end of the stream, or decompresses to more than
        `max_bytes` bytes.

        Raises the errors of `entries`.
        """
        for entry in self.entries():
            try:
                deflated = entry._replace(decoding=DEFLATE, content_bytes=max_bytes)
                size_bytes = sum(map(len, self._decoded(deflated, exact=False)))
            except Corrupt:
                continue
            yield deflated._replace(content_bytes=size_bytes)

    def _complete_records(self) -> Iterator[Record]:
        previous: Record | None = None
        for record in RecordReader(self._archive).records():
            if previous is not None and previous.end <= record.begin:
                yield previous
            previous = record
        if previous is not None and previous.end <= self._archive.size_bytes:
            yield previous

    def open(self, entry: Entry) -> Iterator[bytes]:
        """Return the content of an entry in blocks of at most 1 MiB.

        Raises:
            Corrupt: a SipHash, the size or the CRC-32C of the content is wrong, or the records do not match the
                entry.
            Unsupported: the entry has an unknown `decoding`.
        """
        yield from verified_content(self._decoded(entry), entry, self._archive, "index")

    def _decoded(self, entry: Entry, *, exact: bool = True) -> Iterator[bytes]:
        return decode(read_span(self._archive, entry), entry, self._archive.name, exact=exact)


def _entry(record: Record, file_name: str) -> Entry:
    path = f"{file_name}/{record.begin:016x}"
    return Entry(path, record.begin, record.end, None, None, record.content_bytes, RECORD)


def _file_name(name: str) -> str:
    """Return the last part of an archive's name, shortened and cleaned for a path; "chunkio" if nothing is left."""
    last = name.rstrip("/").rsplit("/", 1)[-1].replace("\0", "")
    raw = last.encode(errors="replace")[: MAX_PATH_BYTES - _SUFFIX_BYTES]
    return raw.decode(errors="ignore") or "chunkio"
