"""Base classes for the writers of all formats.

They refuse to write two files at a time, and to write after `finalize` or after an error of the sink.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, Generic, TypeVar

from cafcat.errors import InvalidInput, Refused, StoreFailed
from cafcat.formats.base import UNLIMITED, Sink
from cafcat.formats.index_text import IndexText, longest_text_bytes
from cafcat.model import Entry, NewFile

__all__ = ["ArchiveWriter", "BufferedBytes", "FileWriter", "IndexedWriter"]

_BUFFER_BYTES: Final = 4 << 20
WriterT = TypeVar("WriterT", bound="ArchiveWriter")


class ArchiveWriter(ABC):
    """Base class of the writers of all formats.

    After an error while data was written, every method raises StoreFailed. After `finalize`, every method raises
    InvalidInput.

    Attributes:
        file_count: number of files added so far.
    """

    def __init__(self) -> None:
        self._open: FileWriter[Any] | None = None
        self._ended = ""  # then "broken" or "finished"
        self._cause: BaseException | None = None
        self.file_count = 0

    def add(self, path: str, content: bytes, modified_ns: int | None) -> Entry:
        """Append a whole file and return its entry; see `Writer.add`.

        Raises:
            Refused: the file cannot be stored, or the archive is full. No bytes were written.
        """
        added = self.add_all((NewFile(path, content, modified_ns),), UNLIMITED)
        if not added:
            raise self._full_error(path)
        return added[0]

    @abstractmethod
    def add_all(self, files: Sequence[NewFile], max_bytes: int) -> Sequence[Entry]:
        """Append as many whole files as fit, and return their entries; see `Writer.add_all`."""

    @abstractmethod
    def can_add(self, path: str, size_bytes: int) -> bool:
        """Return False if one more file could exceed a limit of the format; see `Writer.can_add`."""

    @abstractmethod
    def _full_error(self, path: str) -> Refused:
        """Return (not raise) the error for the file `path`, for which the archive has no space."""

    def _check_can_open(self, path: str) -> None:
        """Check that the file `path` can be opened for writing.

        Raises:
            Refused: the name cannot be stored, or the archive is full.
            InvalidInput: another file is still open, or the archive is finished.
            StoreFailed: an earlier call failed.
        """
        self._check_usable()
        if not self.can_add(path, 0):
            raise self._full_error(path)

    @contextmanager
    def _break_on_error(self) -> Iterator[None]:
        """Mark the archive as broken if the `with` block raises. Later calls then raise StoreFailed."""
        # It is unknown how many bytes arrived, so all later offsets would be unreliable (compare restic's
        # ErrBroken).
        try:
            yield
        except BaseException as error:
            if not self._ended:
                self._ended, self._cause = "broken", error
            raise

    def _check_usable(self) -> None:
        self._check_not_ended()
        if self._open is not None:
            raise InvalidInput("another file of this archive is still open for writing", path=self._open.path)

    def _check_not_ended(self) -> None:
        if self._cause is not None:
            raise StoreFailed(f"the archive is broken because of an earlier error: {self._cause}") from self._cause
        if self._ended:
            raise InvalidInput("the archive is finished: no files can be added")


class IndexedWriter(ArchiveWriter):
    """Base class of the writers of CAF, CAR and ChunkIO, whose index contains the same JSON text (`IndexText`)."""

    _INDEX_LABEL: str
    """The name of the index in messages."""

    def __init__(self, max_index_bytes: int) -> None:
        """Prepare to write an archive.

        Args:
            max_index_bytes: largest size of the index in bytes. The archive is full when its index would exceed
                this.
        """
        super().__init__()
        self._max_index_bytes = max_index_bytes
        self._index = IndexText()
        self._comma = b""
        self._content_bytes = 0

    def _index_bytes(self) -> int:
        """Return the size of the index in bytes. A file being written counts with the longest entry it can have."""
        size = self._index.size_bytes
        return size if self._open is None else size + longest_text_bytes(self._open.path)

    def _append(self, text: bytes, count: int, content_bytes: int) -> None:
        """Append the entries of `count` files to the index.

        Args:
            text: the JSON text of the entries.
            count: number of files.
            content_bytes: total size of the files in bytes.

        Raises:
            StoreFailed: the temporary file of the index cannot be written.
        """
        with self._break_on_error():
            self._index.append(text)
        self._comma = b","
        self._content_bytes += content_bytes
        self.file_count += count

    def _full_error(self, path: str) -> Refused:
        message = f"{self._INDEX_LABEL} is full: its limit is {self._max_index_bytes:,} bytes"
        return Refused(message, path=path)


class FileWriter(Generic[WriterT]):
    """Base class of the entry writers of all formats: writes one file of an archive in blocks."""

    def __init__(self, writer: WriterT, path: str, modified_ns: int | None) -> None:
        """Prepare to write a file.

        Args:
            writer: the writer of the archive that gets the file.
            path: name of the entry.
            modified_ns: modification time in nanoseconds since 1970-01-01 UTC, or None.
        """
        self.path = path
        self._writer = writer
        self._modified_ns = modified_ns
        self._checksum = 0

    def abandon(self) -> None:
        """Discard the file. Bytes already written stay in the archive as dead bytes that no entry refers to.

        After an error while the archive was written, or after its `finalize`, this does nothing.

        Raises:
            InvalidInput: this file of the archive is already closed, or was abandoned.
        """
        if not self._writer._ended:
            self._check_open()
            self._writer._open = None

    def _check_open(self) -> None:
        self._writer._check_not_ended()
        if self._writer._open is not self:
            raise InvalidInput("this file of the archive is already closed, or was abandoned", path=self.path)


class BufferedBytes:
    """Collects small pieces of data, and writes them to a sink together once they reach 4 MiB.

    Memory: at most twice the buffered data, which is less than 4 MiB plus the pieces of one `write`.
    """

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._parts: list[bytes] = []
        self._size_bytes = 0

    def write(self, *parts: bytes) -> int:
        """Append the parts to the buffer, and return their total size in bytes. Raises the errors of the sink."""
        size_bytes = sum(map(len, parts))
        self._parts += parts
        self._size_bytes += size_bytes
        if self._size_bytes >= _BUFFER_BYTES:
            self.flush()
        return size_bytes

    def flush(self) -> None:
        """Write all buffered bytes to the sink. Raises the errors of the sink."""
        data = b"".join(self._parts)
        self._parts.clear()
        self._size_bytes = 0
        self._sink.write(data)
