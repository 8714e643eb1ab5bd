"""Files that are far away: how far they are asked for ahead, and what one is when it is opened."""

from collections.abc import Callable, Generator, Iterable, Iterator
from types import TracebackType
from typing import Final, Self, TypeVar

from cafcat.model import SourceFile
from cafcat.support.in_order import in_order

__all__ = ["SMALL_BYTES", "FetchedFile", "bytes_when_open", "fetched"]

SMALL_BYTES: Final = 1 << 20
"""Up to this size a file is read by opening it."""
_MOST_IN_FLIGHT: Final = 64
"""Hides an answer time of 30 ms at some 2,000 answers per second, more than one process takes in."""
_BUDGET_BYTES: Final = 64 << 20
"""What is asked for, and not yet taken, is no larger; unless it is a single one."""

Item = TypeVar("Item")
Result = TypeVar("Result")


def fetched(
    function: Callable[[Item], Result], items: Iterable[Item], cost: Callable[[Item], int]
) -> Generator[Result, None, None]:
    """`function` of each item in their order, as `in_order` has it. cost: bytes in memory of a result."""
    return in_order(function, items, most_in_flight=_MOST_IN_FLIGHT, cost=cost, budget=_BUDGET_BYTES)


def bytes_when_open(file: SourceFile) -> int:
    """That are in memory then."""
    return file.size_bytes if file.size_bytes <= SMALL_BYTES else 0


class FetchedFile:
    """An OpenFile. A small one can be read again and again; a large one is asked for when its bytes are."""

    __slots__ = ("_content", "_stream", "etag", "modified_ns", "size_bytes")

    def __init__(
        self,
        file: SourceFile,
        content: bytes | None,
        stream: Callable[[], Iterator[bytes]] = lambda: iter(()),
        *,
        modified_ns: int | None,
    ) -> None:
        """Args: content: all of it, or None: then `stream` gives it, in blocks of at most 1 MiB."""
        self._content = content
        self._stream = stream
        self.size_bytes = file.size_bytes if content is None else len(content)
        self.modified_ns = modified_ns
        self.etag = file.etag

    @property
    def is_read(self) -> bool:
        """Whether opening it has read it."""
        return self._content is not None

    def read(self) -> bytes:
        """All bytes. Raises SourceFailed as blocks does."""
        return b"".join(self._stream()) if self._content is None else self._content

    def blocks(self) -> Iterator[bytes]:
        """The same in blocks of at most 1 MiB. Raises SourceFailed if the file is not what it was when found."""
        if self._content is None:
            yield from self._stream()
            return
        for start in range(0, self.size_bytes, SMALL_BYTES):
            yield self._content[start : start + SMALL_BYTES]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing to close: an answer that is not read to its end ends with its iterator."""
