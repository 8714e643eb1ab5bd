"""What the writers of all formats do alike: one file at a time, and nothing after the end or after an error."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, Generic, TypeVar

from cafcat.errors import InvalidInput, Refused, StoreFailed
from cafcat.formats.base import UNLIMITED, Sink
from cafcat.formats.index_text import IndexText, longest_text_bytes
from cafcat.model import Entry, NewFile

__all__ = ["ArchiveWriter", "BufferedBytes", "FileWriter", "IndexedWriter"]

_HELD_BYTES: Final = 4 << 20
WriterT = TypeVar("WriterT", bound="ArchiveWriter")


class ArchiveWriter(ABC):
    """Base of writers. After an error of the sink, and after finalize, every call raises."""

    def __init__(self) -> None:
        self._open: FileWriter[Any] | None = None
        self._ended = ""
        self._cause: BaseException | None = None
        self.file_count = 0

    def add(self, path: str, content: bytes, modified_ns: int | None) -> Entry:
        """Appends a whole file. Raises Refused, with nothing written; what the sink raises."""
        added = self.add_all((NewFile(path, content, modified_ns),), UNLIMITED)
        if not added:
            raise self._full(path)
        return added[0]

    @abstractmethod
    def add_all(self, files: Sequence[NewFile], most_bytes: int) -> Sequence[Entry]:
        """As Writer says."""

    @abstractmethod
    def has_room(self, path: str, size_bytes: int) -> bool:
        """As Writer says."""

    @abstractmethod
    def _full(self, path: str) -> Refused:
        """What is said where has_room is False."""

    def _check_can_open(self, path: str) -> None:
        """Raises Refused if there is no room for a further file."""
        self._check_usable()
        if not self.has_room(path, 0):
            raise self._full(path)

    @contextmanager
    def _breaking(self) -> Iterator[None]:
        """After an error within, the archive is broken."""
        # How much of the data arrived is not known, so no later offset could be trusted (restic's ErrBroken).
        try:
            yield
        except BaseException as error:
            if not self._ended:
                self._ended, self._cause = "broken", error
            raise

    def _finish(self) -> None:
        self._ended = "finished"

    def _check_usable(self) -> None:
        self._check_not_ended()
        if self._open is not None:
            raise InvalidInput("another file is being written", path=self._open.path)

    def _check_not_ended(self) -> None:
        if self._cause is not None:
            raise StoreFailed(f"the archive is broken by an earlier error: {self._cause}") from self._cause
        if self._ended:
            raise InvalidInput("the archive is finished: nothing can be added")


class IndexedWriter(ArchiveWriter):
    """Base of those whose archives have an index as CAF has it."""

    _INDEX_IS: str
    """What messages call it."""

    def __init__(self, max_index_bytes: int) -> None:
        """max_index_bytes: when the archive is full."""
        super().__init__()
        self._max_index_bytes = max_index_bytes
        self._index = IndexText()
        self._comma = b""
        self._content_bytes = 0

    def _index_bytes(self) -> int:
        """Size of the index in bytes, with a file that is being written."""
        size = self._index.size_bytes
        return size if self._open is None else size + longest_text_bytes(self._open.path)

    def _append(self, text: bytes, count: int, content_bytes: int) -> None:
        """Takes the entries of so many files."""
        with self._breaking():
            self._index.append(text)
        self._comma = b","
        self._content_bytes += content_bytes
        self.file_count += count

    def _full(self, path: str) -> Refused:
        message = f"{self._INDEX_IS} is full: it cannot exceed {self._max_index_bytes:,} bytes"
        return Refused(message, path=path)


class FileWriter(Generic[WriterT]):
    """Base of files that are being written in blocks."""

    def __init__(self, writer: WriterT, path: str, modified_ns: int | None) -> None:
        self.path = path
        self._writer = writer
        self._modified_ns = modified_ns
        self._checksum = 0

    def abandon(self) -> None:
        """Gives the file up. What of it is written stays in the archive, and no entry names it. Allowed in a broken
        archive, where it changes nothing."""
        if not self._writer._ended:
            self._check_open()
            self._writer._open = None

    def _check_open(self) -> None:
        self._writer._check_not_ended()
        if self._writer._open is not self:
            raise InvalidInput("this file is closed already", path=self.path)


class BufferedBytes:
    """Many small parts on their way to a sink, which gets them together once they are 4 MiB or more. Memory: less
    than 4 MiB, and what one `put` brings."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._parts: list[bytes] = []
        self._size_bytes = 0

    def put(self, *parts: bytes) -> int:
        """Returns their size in bytes. Raises what the sink raises."""
        size_bytes = sum(map(len, parts))
        self._parts += parts
        self._size_bytes += size_bytes
        if self._size_bytes >= _HELD_BYTES:
            self.flush()
        return size_bytes

    def flush(self) -> None:
        """The sink has all of it afterwards. Raises what the sink raises."""
        data = b"".join(self._parts)
        self._parts.clear()
        self._size_bytes = 0
        self._sink.write(data)
