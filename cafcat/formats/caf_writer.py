"""Writing a CAF archive: data as it comes, the index kept aside until the end."""

import struct
from collections.abc import Sequence
from typing import Final

from cafcat.checksums import crc32c
from cafcat.errors import InvalidInput, Refused, StoreFailed
from cafcat.formats.base import FinishedArchive, Sink
from cafcat.formats.index_text import MAX_INDEX_BYTES, IndexText, entry_text, longest_text_bytes
from cafcat.model import Entry, NewFile

__all__ = ["MAX_INDEX_BYTES", "CafEntryWriter", "CafWriter"]

_FOOTER: Final = struct.Struct("<I")
_UNLIMITED: Final = 1 << 63

_new_tuple: Final = tuple.__new__


class CafWriter:
    """Writes one archive. The caller gives each path once: a path given twice makes two entries of that name,
    of which readers take the last.

    After an error of the sink, and after finalize, every call raises.
    """

    def __init__(self, sink: Sink, *, max_index_bytes: int = MAX_INDEX_BYTES) -> None:
        """max_index_bytes: when the archive is full; a smaller value than the format's serves tests."""
        self._sink = sink
        self._max_index_bytes = max_index_bytes
        self._index = IndexText()
        self._comma = b""
        self._position = 0
        self._open_path: str | None = None
        self._ended = ""
        self._cause: BaseException | None = None
        self.file_count = 0

    def add(self, path: str, content: bytes, modified_ns: int | None) -> Entry:
        """Appends a whole file. Raises Refused, with nothing written; what the sink raises."""
        added = self.add_all((NewFile(path, content, modified_ns),), _UNLIMITED)
        if not added:
            raise self._index_full(path)
        return added[0]

    def add_all(self, files: Sequence[NewFile], most_bytes: int) -> Sequence[Entry]:
        """Appends whole files, from the first on, as long as the archive, if it were finalized, has at most so many
        bytes, and its index has room. Raises Refused for one of them, with nothing written; what the sink
        raises."""
        if self._ended or self._open_path is not None:
            self._raise_unusable()
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
            self._put(b"".join(contents))
            self._append(b"".join(texts), len(texts))

    def open(self, path: str, modified_ns: int | None) -> "CafEntryWriter":
        """Begins a file that is written in blocks. Raises Refused, with nothing written."""
        if self._ended or self._open_path is not None:
            self._raise_unusable()
        if not self.has_room(path, 0):
            raise self._index_full(path)
        self._open_path = path
        return CafEntryWriter(self, path, modified_ns)

    def size_if_finalized(self, path: str | None = None, size_bytes: int = 0) -> int:
        """Bytes of data, index and footer. Exact for what is written; one more file, and the one being written,
        count with the longest checksum and time, and with all bytes abandoned so far. Raises Refused."""
        if self._ended:
            self._raise_unusable()
        size = self._position + self._index_bytes() + _FOOTER.size
        return size if path is None else size + size_bytes + longest_text_bytes(path)

    def has_room(self, path: str, size_bytes: int) -> bool:
        """False if the index would outgrow its u32, whatever the file's size. Raises Refused."""
        del size_bytes
        if self._ended:
            self._raise_unusable()
        return self._index_bytes() + longest_text_bytes(path) <= self._max_index_bytes

    def finalize(self) -> FinishedArchive:
        """Writes index and footer. Raises InvalidInput while a file is open; what the sink raises."""
        if self._ended or self._open_path is not None:
            self._raise_unusable()
        data_bytes, index_bytes = self._position, self._index.size_bytes
        checksum = 0
        try:
            for block in self._index.blocks():
                checksum = crc32c(block, checksum)
                self._put(block)
        except BaseException as error:
            self._break(error)
            raise
        footer = _FOOTER.pack(index_bytes)
        self._put(footer)
        self._ended = "finished"
        index_end = data_bytes + index_bytes
        checksum = crc32c(footer, checksum)
        return FinishedArchive(self._position, data_bytes, index_end, self.file_count, data_bytes, checksum)

    def _index_bytes(self) -> int:
        """Size of the index in bytes, with a file that is being written."""
        size = self._index.size_bytes
        return size if self._open_path is None else size + longest_text_bytes(self._open_path)

    def _index_full(self, path: str) -> Refused:
        message = f"the archive's index is full: it cannot exceed {self._max_index_bytes:,} bytes"
        return Refused(message, path=path)

    def _put(self, data: bytes) -> None:
        try:
            self._sink.write(data)
        except BaseException as error:
            self._break(error)
            raise
        self._position += len(data)

    def _append(self, text: bytes, count: int = 1) -> None:
        try:
            self._index.append(text)
        except BaseException as error:
            self._break(error)
            raise
        self._comma = b","
        self.file_count += count

    def _break(self, error: BaseException) -> None:
        # How much of the data arrived is not known, so no later offset could be trusted (restic's ErrBroken).
        self._ended = "broken"
        self._cause = error

    def _raise_unusable(self) -> None:
        if self._cause is not None:
            raise StoreFailed(f"the archive is broken by an earlier error: {self._cause}") from self._cause
        if self._ended:
            raise InvalidInput("the archive is finished: nothing can be added")
        raise InvalidInput("another file is being written", path=self._open_path)


class CafEntryWriter:
    """One file being written in blocks. Made by CafWriter.open."""

    def __init__(self, writer: CafWriter, path: str, modified_ns: int | None) -> None:
        self._writer = writer
        self._path = path
        self._modified_ns = modified_ns
        self._start = writer._position
        self._checksum = 0
        self._closed = False

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
        self._end()
        entry = Entry(self._path, self._start, end, self._checksum, self._modified_ns)
        text = entry_text(writer._comma, entry)
        if writer._index.size_bytes + len(text) > writer._max_index_bytes:
            raise writer._index_full(self._path)
        writer._append(text)
        return entry

    def abandon(self) -> None:
        """Gives the file up. Its bytes stay in the archive, and no entry names them. Allowed in a broken
        archive, where it changes nothing."""
        if not self._writer._ended:
            self._check_open()
            self._end()

    def _check_open(self) -> None:
        if self._writer._ended:
            self._writer._raise_unusable()
        if self._closed:
            raise InvalidInput("this file is closed already", path=self._path)

    def _end(self) -> None:
        self._closed = True
        self._writer._open_path = None
