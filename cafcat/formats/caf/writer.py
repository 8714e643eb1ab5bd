"""Writes a CAF archive. The data of files is written as it arrives; the index is collected, and written last."""

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from cafcat.formats.base import FinishedArchive, Sink
from cafcat.formats.index_text import MAX_INDEX_BYTES, entry_text, longest_text_bytes
from cafcat.formats.writing import FileWriter, IndexedWriter
from cafcat.model import Entry, NewFile
from cafcat.support.checksums import crc32c

__all__ = ["MAX_INDEX_BYTES", "CafEntryWriter", "CafWriter", "Room"]

_FOOTER: Final = struct.Struct("<I")

_new_tuple: Final = tuple.__new__


class Room(NamedTuple):
    """Sizes of an archive that is being written, in bytes.

    Attributes:
        position: Size of the data so far.
        has_entries: True if the index has entries.
        index_bytes: Size of the index if it ended now.
        most_index_bytes: Largest size of the index.
        footer_bytes: Size of the footer after the index.
    """

    position: int
    has_entries: bool
    index_bytes: int
    most_index_bytes: int
    footer_bytes: int


class CafWriter(IndexedWriter):
    """Writes one CAF archive.

    The caller must add each path only once. A path that is added twice makes two entries of that name; readers then
    refuse the archive as damaged.

    After an error of the sink, or of the temporary file of the index, every method raises StoreFailed. After
    `finalize`, every method raises InvalidInput.
    """

    _INDEX_LABEL = "the archive's index"

    def __init__(self, sink: Sink, *, max_index_bytes: int = MAX_INDEX_BYTES) -> None:
        """Prepare to write an archive to `sink`.

        Args:
            sink: receives the archive.
            max_index_bytes: largest size of the index in bytes. Tests use smaller values than the limit of the
                format.
        """
        super().__init__(max_index_bytes)
        self._sink = sink
        self._position = 0

    def add_all(self, files: Sequence[NewFile], max_bytes: int) -> Sequence[Entry]:
        """Append as many whole files as fit, from the first on, and return their entries; see `Writer.add_all`.

        Raises:
            Refused: the name of a file cannot be stored; no bytes were written. Errors of the sink pass through.
        """
        self._check_usable()
        entries: list[Entry] = []
        contents: list[bytes] = []
        texts: list[bytes] = []
        end, comma, index_bytes = self._position, self._comma, self._index.size_bytes
        max_bytes -= _FOOTER.size
        for path, content, modified_ns, _ in files:
            start, end = end, end + len(content)
            entry = _new_tuple(Entry, (path, start, end, crc32c(content), modified_ns, None, None))
            text = entry_text(comma, entry)
            index_bytes += len(text)
            if index_bytes > self._max_index_bytes or end + index_bytes > max_bytes:
                break
            entries.append(entry)
            contents.append(content)
            texts.append(text)
            comma = b","
        if entries:
            data = b"".join(contents)
            self._write(data)
            self._append(b"".join(texts), len(texts), len(data))
        return entries

    @property
    def room(self) -> Room:
        """What more the archive can have; see `Room`."""
        self._check_usable()
        return Room(self._position, bool(self._comma), self._index.size_bytes, self._max_index_bytes, _FOOTER.size)

    def add_written(self, text: bytes, files: int, data_bytes: int) -> None:
        """Add files whose bytes the caller has written into the sink, at the end of the archive.

        Args:
            text: Their entries, as `entry_text` makes them.
            files: Number of files.
            data_bytes: Their total size.

        Raises:
            StoreFailed: The temporary file of the index cannot be written. The archive is broken then.
        """
        self._position += data_bytes
        self._append(text, files, data_bytes)

    def open(self, path: str, modified_ns: int | None) -> "CafEntryWriter":
        """Begin a file that is written in blocks, and return its writer.

        Raises:
            Refused: the name cannot be stored, or the index is full. No bytes were written.
            InvalidInput: another file of this archive is still open.
        """
        self._check_can_open(path)
        self._open = entry = CafEntryWriter(self, path, modified_ns)
        return entry

    def size_if_finalized(self, path: str | None = None, size_bytes: int = 0) -> int:
        """Return an upper bound for the size of the archive in bytes if it were finalized now; see `Writer`.

        The result is exact for the files that are finished. One more file, and the file being written, count with
        the longest entry that the index can have for their name. Bytes of abandoned files are included.

        Raises:
            Refused: the name `path` cannot be stored.
        """
        self._check_not_ended()
        size = self._position + self._index_bytes() + _FOOTER.size
        return size if path is None else size + size_bytes + longest_text_bytes(path)

    def can_add(self, path: str, size_bytes: int) -> bool:
        """Return False if one more entry could make the index exceed its limit. The size of the file is ignored.

        Raises:
            Refused: the name `path` cannot be stored.
        """
        del size_bytes
        self._check_not_ended()
        return self._index_bytes() + longest_text_bytes(path) <= self._max_index_bytes

    def finalize(self) -> FinishedArchive:
        """Write the index and the footer, and return the sizes of the archive.

        Raises:
            InvalidInput: a file is still open, or the archive is finished already. Errors of the sink pass through.
            StoreFailed: the temporary file of the index failed.
        """
        self._check_usable()
        data_bytes, index_bytes = self._position, self._index.size_bytes
        checksum = 0
        with self._break_on_error():
            for block in self._index.blocks():
                checksum = crc32c(block, checksum)
                self._write(block)
        footer = _FOOTER.pack(index_bytes)
        self._write(footer)
        self._ended = "finished"
        index_end = data_bytes + index_bytes
        checksum = crc32c(footer, checksum)
        return FinishedArchive(self._position, data_bytes, index_end, self.file_count, data_bytes, checksum)

    def _write(self, data: bytes) -> None:
        with self._break_on_error():
            self._sink.write(data)
        self._position += len(data)


class CafEntryWriter(FileWriter[CafWriter]):
    """Writes one file of a CAF archive in blocks. Created by `CafWriter.open`."""

    def __init__(self, writer: CafWriter, path: str, modified_ns: int | None) -> None:
        """Prepare to write a file at the current end of the archive.

        Args:
            writer: the writer of the archive.
            path: name of the entry.
            modified_ns: modification time in nanoseconds since 1970-01-01 UTC, or None.
        """
        super().__init__(writer, path, modified_ns)
        self._start = writer._position

    def write(self, block: bytes) -> None:
        """Append a block to the file. After an error of the sink, the whole archive is broken; see `CafWriter`."""
        self._check_open()
        self._checksum = crc32c(block, self._checksum)
        self._writer._write(block)

    def close(self) -> Entry:
        """Finish the file and return its entry.

        Raises:
            Refused: the index of the archive has no space for the entry.
        """
        self._check_open()
        writer = self._writer
        end = writer._position
        writer._open = None
        entry = Entry(self.path, self._start, end, self._checksum, self._modified_ns)
        text = entry_text(writer._comma, entry)
        if writer._index.size_bytes + len(text) > writer._max_index_bytes:
            raise writer._full_error(self.path)
        writer._append(text, 1, entry.size_bytes)
        return entry
