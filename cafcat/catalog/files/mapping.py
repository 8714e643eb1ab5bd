"""The rows of file_locations for one chunk, in the binary format of PostgreSQL's COPY.

A row is encoded once, when its entry is added. If the rows exceed 8 MiB, they are in a temporary file. Memory
therefore does not depend on the number of files, and a commit only has to send blocks.
"""

import zlib
from collections.abc import Iterator, Sequence
from struct import Struct
from typing import Any, Final

from cafcat.catalog.binary_copy import EPOCH_MICROSECONDS, NULL, copy_stream
from cafcat.catalog.files.folder_counts import FolderCounts
from cafcat.model import Entry
from cafcat.native.folder import ListedFiles, numbers
from cafcat.support.quantities import to_microseconds
from cafcat.support.spool import Spool

__all__ = ["ALL_COLUMNS", "COLUMNS", "Mapping"]

COLUMNS: Final = (
    "caf_file_id, start_byte, end_byte, crc32c, modified_at, file_path, source_etag, content_bytes, decoding, "
    "source_id"
)
"""Columns of file_locations, in the order of the encoded rows."""

ALL_COLUMNS: Final = f"{COLUMNS}, ingest_run_id, current_since"
"""All columns of file_locations. The last two are NULL in the rows of a new chunk: the chunk has their values."""

_MEMORY_BYTES: Final = 8 << 20
"""Largest size of rows that are kept in memory."""
_FLUSH_ROWS: Final = 1024
_PICKLE_LEVEL: Final = 1
"""Level of the compression of pickled rows. Higher levels save little: paths of neighbours have common parts."""

# As in binary_copy.py: a field count, then each field with its length before it.
_ROW: Final = Struct(">hiqiqiqiqiqi")
_ROW_NO_TIME: Final = Struct(">hiqiqiqiqii")

_SIZE: Final = Struct(">iq")
_NOT_DECODED: Final = NULL + NULL
_SOURCE: Final = Struct(">ii")
_FURTHER_FIELDS: Final = 4
"""Number of the fields after the path: source_etag, content_bytes, decoding, source_id."""


class Mapping(Spool):
    """The entries of one chunk, encoded as rows of file_locations.

    Attributes:
        file_count: Number of entries.
        size_bytes: Total size of the files.
        last_path: Path of the last entry; "" without entries.
        source_id: sources.id of the files that are added; None if their source is unknown.
        ascending: True if each path sorts bytewise after the path added before it. Then all paths are distinct.
        folders: Number and size of the files in each folder. They are right only if the paths are ascending, and
            are not pickled.
    """

    def __init__(self, chunk_id: int) -> None:
        super().__init__("the locations of a chunk's files", _MEMORY_BYTES)
        self._chunk_id = chunk_id
        self._rows: list[bytes] = []
        self.last_path = ""
        self.file_count = 0
        self.size_bytes = 0
        self.ascending = True
        self.folders = FolderCounts()
        self._folder = self.folders.open("")
        self.source_id: int | None = None
        self._source = NULL

    def __reduce__(self) -> tuple[Any, ...]:
        """Return what pickle needs: all rows, compressed. A worker sends the mapping of a chunk like this."""
        self.flush()
        rows = zlib.compress(b"".join(self.blocks_from(0)), _PICKLE_LEVEL)
        self.seek_end()
        counts = (self.file_count, self.size_bytes, self.last_path, self.ascending)
        return _unpickled, (self._chunk_id, rows, self._source, counts)

    def set_source(self, source_id: int | None) -> None:
        """Set sources.id of the files that are added from now on; None if their source is unknown."""
        self.source_id = source_id
        self._source = NULL if source_id is None else _SOURCE.pack(4, source_id)

    def add(self, entry: Entry, etag: str | None = None) -> None:
        """Append an entry of the chunk, encoded as a row of file_locations.

        Args:
            entry: The entry.
            etag: Entity tag of the file at its source; None if the source has none.

        Raises:
            ValueError: The entry has no checksum.
            TemporaryFileFailed: The temporary file cannot be written.
        """
        self.add_all((entry,), (etag,))

    def add_all(self, entries: Sequence[Entry], etags: Sequence[str | None]) -> None:
        """Append entries of the chunk, encoded as rows of file_locations.

        Args:
            entries: The entries.
            etags: For each entry the entity tag of its file at the source; None if the source has none.

        Raises:
            ValueError: An entry has no checksum.
            TemporaryFileFailed: The temporary file cannot be written.
        """
        last, ascending, rows, source = self.last_path, self.ascending, self._rows, self._source
        # The files of a folder are counted when the next one begins: nothing is added up for each file.
        folder, size_bytes, counted_rows, counted_bytes = self._folder, self.size_bytes, len(rows), self.size_bytes
        for (path, start, end, crc32c, modified_ns, content_bytes, decoding), etag in zip(
            entries, etags, strict=True
        ):
            if crc32c is None:
                raise ValueError("an entry without a checksum cannot be mapped")
            # Python compares code points, which gives the order of the bytes in UTF-8.
            ascending = ascending and path > last
            last = path
            folder_end = path.rfind("/") + 1
            if folder_end != folder.length or not path.startswith(folder.path):
                folder.add(len(rows) - counted_rows, size_bytes - counted_bytes)
                counted_rows, counted_bytes = len(rows), size_bytes
                folder = self.folders.open(path[:folder_end])
            row = self._encode(path.encode(), start, end, crc32c, modified_ns)
            if decoding is None:
                rows.append(row + (NULL if etag is None else _encode_text(etag)) + _NOT_DECODED + source)
                size_bytes += end - start
            else:
                decoded_bytes = end - start if content_bytes is None else content_bytes
                decoded = _SIZE.pack(8, decoded_bytes) + _encode_text(decoding)
                rows.append(row + _encode_text(etag) + decoded + source)
                size_bytes += decoded_bytes
        folder.add(len(rows) - counted_rows, size_bytes - counted_bytes)
        self.last_path, self.ascending, self._folder, self.size_bytes = last, ascending, folder, size_bytes
        self.file_count += len(entries)
        if len(rows) >= _FLUSH_ROWS:
            self.flush()

    def add_rows(self, rows: bytes, files: ListedFiles) -> None:
        """Append files whose rows are encoded already.

        Args:
            rows: Their rows, as `add_all` makes them.
            files: The files; at least one.

        Raises:
            TemporaryFileFailed: The temporary file cannot be written.
        """
        self._rows.append(rows)
        sizes = numbers(files.listed.sizes)
        for folder, begin, end in files.in_folders():
            size_bytes = sum(sizes[begin:end])
            self._folder = self.folders.open(folder)
            self._folder.add(end - begin, size_bytes)
            self.size_bytes += size_bytes
        self.ascending = self.ascending and files.first_path > self.last_path
        self.last_path = files.last_path
        self.file_count += files.file_count
        self.flush()

    def _encode(self, path: bytes, start: int, end: int, crc32c: int, modified_ns: int | None) -> bytes:
        length = len(path)
        if modified_ns is None:
            row = _ROW_NO_TIME.pack(10, 8, self._chunk_id, 8, start, 8, end, 8, crc32c, -1, length)
        else:
            time = to_microseconds(modified_ns) - EPOCH_MICROSECONDS
            row = _ROW.pack(10, 8, self._chunk_id, 8, start, 8, end, 8, crc32c, 8, time, length)
        return row + path

    def flush(self) -> None:
        """Write all buffered rows to the spool, so that a commit needs no more space.

        Rows of more than 8 MiB (`_MEMORY_BYTES`) are in a temporary file on disk.

        Raises:
            TemporaryFileFailed: The temporary file cannot be written.
        """
        self.write(b"".join(self._rows))
        super().flush()
        self._rows.clear()

    def blocks(self) -> Iterator[bytes]:
        """Yield the rows as a COPY stream, in blocks of at most 256 KiB. Each call yields all rows again."""
        if self._rows:
            self.flush()
        return copy_stream(self)

    def paths(self) -> Iterator[str]:
        """Yield the paths of all entries, in the order in which they were added. Add no entry meanwhile."""
        self.flush()
        self.seek(0)
        while head := self.read(_ROW_NO_TIME.size):
            # In a row with a time, the time field has the length 8, not -1, and eight bytes more.
            if head[-8:-4] == b"\x00\x00\x00\x08":
                head += self.read(8)
            yield self.read(int.from_bytes(head[-4:])).decode()
            for _ in range(_FURTHER_FIELDS):
                field_bytes = int.from_bytes(self.read(4), signed=True)
                self.skip(max(0, field_bytes))
        self.seek_end()


def _encode_text(text: str | None) -> bytes:
    """Return a text as a field of a COPY stream: its length, then its bytes in UTF-8; NULL for None."""
    if text is None:
        return NULL
    encoded = text.encode()
    return len(encoded).to_bytes(4) + encoded


def _unpickled(chunk_id: int, rows: bytes, source: bytes, counts: tuple[int, int, str, bool]) -> Mapping:
    mapping = Mapping(chunk_id)
    mapping.write(zlib.decompress(rows))
    mapping._source = source
    mapping.file_count, mapping.size_bytes, mapping.last_path, mapping.ascending = counts
    return mapping
