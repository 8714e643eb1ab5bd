"""Opens files over a network ahead of the caller. A file of at most 1 MiB is read when it is opened."""

from collections.abc import Callable, Generator, Iterable, Iterator
from operator import itemgetter
from types import TracebackType
from typing import Final, Self, TypeVar

from cafcat.model import SourceFile
from cafcat.support.in_order import in_order

__all__ = ["SMALL_BYTES", "FetchedFile", "bytes_when_open", "fetched"]

SMALL_BYTES: Final = 1 << 20
"""Largest file that is read whole when it is opened, in bytes."""
_MOST_IN_FLIGHT: Final = 64
"""Most requests at the same time. With 30 ms per answer, this allows some 2,000 answers per second, more than
one process can handle."""
_BUDGET_BYTES: Final = 64 << 20
"""Most bytes of memory for files that are requested and not processed yet. A single larger file is allowed."""

Item = TypeVar("Item")
Result = TypeVar("Result")


def fetched(function: Callable[[Item], Result], items: Iterable[tuple[Item, int]]) -> Generator[Result, None, None]:
    """Yield `function(item)` for each item in order, computed by up to 64 threads ahead of the caller.

    Args:
        function: Sends the request for an item, and returns the result.
        items: The items, each with the number of bytes of memory that its result takes. At most 64 results are
            ahead of the caller, and at most 64 MiB of them, unless a single one is larger.
    """
    return in_order(
        lambda costed: function(costed[0]),
        items,
        most_in_flight=_MOST_IN_FLIGHT,
        cost=itemgetter(1),
        budget=_BUDGET_BYTES,
    )


def bytes_when_open(file: SourceFile) -> int:
    """Return how many bytes of memory a file takes once it is open: its size up to 1 MiB, 0 for a larger file."""
    return file.size_bytes if file.size_bytes <= SMALL_BYTES else 0


class FetchedFile:
    """An opened file from a network or a stream: an OpenFile.

    A small file is in memory. A large one is read from the network or stream by `read` and `blocks`.
    """

    __slots__ = ("_content", "_stream", "etag", "modified_ns", "size_bytes")

    def __init__(
        self,
        file: SourceFile,
        content: bytes | None,
        stream: Iterable[bytes] = (),
        *,
        modified_ns: int | None,
    ) -> None:
        """Describe a file that was requested, or is next in a stream.

        Args:
            file: The file as it was found.
            content: All bytes of the file. None: `stream` yields them.
            stream: The bytes of a large file in blocks of at most 1 MiB. Over a network, each iteration requests
                them again; a stream may allow only one iteration.
            modified_ns: Time of the last modification, in nanoseconds since 1970 UTC. None: it is unknown.
        """
        self._content = content
        self._stream = stream
        self.size_bytes = file.size_bytes if content is None else len(content)
        self.modified_ns = modified_ns
        self.etag = file.etag

    @property
    def is_read(self) -> bool:
        """True if the content was read when the file was opened."""
        return self._content is not None

    def read(self) -> bytes:
        """Return all bytes of the file.

        Raises:
            SourceFailed: The file has changed since it was found, or cannot be read.
        """
        return b"".join(self._stream) if self._content is None else self._content

    def blocks(self) -> Iterator[bytes]:
        """Yield all bytes of the file in blocks of at most 1 MiB.

        Raises:
            SourceFailed: The file has changed since it was found, or cannot be read.
        """
        if self._content is None:
            yield from self._stream
            return
        for start in range(0, self.size_bytes, SMALL_BYTES):
            yield self._content[start : start + SMALL_BYTES]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Do nothing: an answer that is not read to its end is closed with its iterator."""
