"""Writing a CAF archive: data as it comes, the index kept aside until the end."""

import struct
from collections.abc import Sequence
from typing import Final

from cafcat.formats.base import FinishedArchive, Sink
from cafcat.formats.index_text import MAX_INDEX_BYTES, entry_text, longest_text_bytes
from cafcat.formats.writing import FileWriter, IndexedWriter
from cafcat.model import Entry, NewFile
from cafcat.support.checksums import crc32c

__all__ = ["MAX_INDEX_BYTES", "CafEntryWriter", "CafWriter"]

_FOOTER: Final = struct.Struct("<I")

_new_tuple: Final = tuple.__new__


class CafWriter(IndexedWriter):
    """Writes one archive. The caller gives each path once: a path given twice makes two entries of that name,
    of which readers take the last.

    After an error of the sink, and after finalize, every call raises.
    """

    _INDEX_IS = "the archive's index"

    def __init__(self, sink: Sink, *, max_index_bytes: int = MAX_INDEX_BYTES) -> None:
        """max_index_bytes: when the archive is full; a smaller value than the format's serves tests."""
        super().__init__(max_index_bytes)
        self._sink = sink
        self._position = 0

    def add_all(self, files: Sequence[NewFile], most_bytes: int) -> Sequence[Entry]:
        """Appends whole files, from the first on, as long as the archive, if it were finalized, has at most so many
        bytes, and its index has room. Raises Refused for one of them, with nothing written; what the sink
        raises."""
        self._check_usable()
        entries: list[Entry] = []
        texts: list[bytes] = []
        end, comma, index_bytes = self._position, self._comma, self._index.size_bytes
        most_bytes -= _FOOTER.size
        for path, content, modified_ns, _ in files:
            start, end = end, end + len(content)
            entry = _new_tuple(Entry, (path, start, end, crc32c(content), modified_ns, None, None))
            text = entry_text(comma, entry)
            index_bytes += len(text)
            if index_bytes > self._max_index_bytes or end + index_bytes > most_bytes:
                break
            entries.append(entry)
            texts.append(text)
            comma = b","
        self._put_all([file.content for file in files[: len(entries)]], texts)
        return entries

    def _put_all(self, contents: Sequence[bytes], texts: Sequence[bytes]) -> None:
        if texts:
            data = b"".join(contents)
            self._put(data)
            self._append(b"".join(texts), len(texts), len(data))

    def open(self, path: str, modified_ns: int | None) -> "CafEntryWriter":
        """Begins a file that is written in blocks. Raises Refused, with nothing written."""
        self._check_can_open(path)
        self._open = entry = CafEntryWriter(self, path, modified_ns)
        return entry

    def size_if_finalized(self, path: str | None = None, size_bytes: int = 0) -> int:
        """Bytes of data, index and footer. Exact for what is written; one more file, and the one being written,
        count with the longest checksum and time, and with all bytes abandoned so far. Raises Refused."""
        self._check_not_ended()
        size = self._position + self._index_bytes() + _FOOTER.size
        return size if path is None else size + size_bytes + longest_text_bytes(path)

    def has_room(self, path: str, size_bytes: int) -> bool:
        """False if the index would outgrow its u32, whatever the file's size. Raises Refused."""
        del size_bytes
        self._check_not_ended()
        return self._index_bytes() + longest_text_bytes(path) <= self._max_index_bytes

    def finalize(self) -> FinishedArchive:
        """Writes index and footer. Raises InvalidInput while a file is open; what the sink raises."""
        self._check_usable()
        data_bytes, index_bytes = self._position, self._index.size_bytes
        checksum = 0
        with self._breaking():
            for block in self._index.blocks():
                checksum = crc32c(block, checksum)
                self._put(block)
        footer = _FOOTER.pack(index_bytes)
        self._put(footer)
        self._finish()
        index_end = data_bytes + index_bytes
        checksum = crc32c(footer, checksum)
        return FinishedArchive(self._position, data_bytes, index_end, self.file_count, data_bytes, checksum)

    def _put(self, data: bytes) -> None:
        with self._breaking():
            self._sink.write(data)
        self._position += len(data)


class CafEntryWriter(FileWriter[CafWriter]):
    """One file being written in blocks. Made by CafWriter.open."""

    def __init__(self, writer: CafWriter, path: str, modified_ns: int | None) -> None:
        super().__init__(writer, path, modified_ns)
        self._start = writer._position

    def write(self, block: bytes) -> None:
        """Appends. What the sink raises breaks the whole archive."""
        self._check_open()
        self._checksum = crc32c(block, self._checksum)
        self._writer._put(block)

    def close(self) -> Entry:
        """Ends the file."""
        self._check_open()
        writer = self._writer
        end = writer._position
        writer._open = None
        entry = Entry(self.path, self._start, end, self._checksum, self._modified_ns)
        text = entry_text(writer._comma, entry)
        if writer._index.size_bytes + len(text) > writer._max_index_bytes:
            raise writer._full(self.path)
        writer._append(text, 1, entry.size_bytes)
        return entry
