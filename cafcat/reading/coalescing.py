"""Combines near files of one object into range reads, so that one request serves several files."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from cafcat.reading.replicas import Replica
from cafcat.stores.base import Store

__all__ = ["Coalescing", "RangeRead", "Span", "coalesce", "coalescing_of"]


class Coalescing(NamedTuple):
    """Rule that decides which files of an object share a request.

    Attributes:
        gap_bytes: Most bytes between two files that share a request.
        read_bytes: Most bytes of a request, gaps included. A single file that is larger is read on its own, in
            blocks.
        read_files: Most files of a request, empty ones included: each needs about a kilobyte of memory.
    """

    gap_bytes: int
    read_bytes: int
    read_files: int


_LOCAL: Final = Coalescing(gap_bytes=64 << 10, read_bytes=8 << 20, read_files=5_000)
"""For local stores: a system call costs as much as copying some 10 KiB, and a disk has read ahead the gap
anyway."""
_REMOTE: Final = Coalescing(gap_bytes=1 << 20, read_bytes=16 << 20, read_files=16_000)
"""For remote stores: a request is answered after some 30 ms, and a connection then carries some 50 MB/s. So reading
a gap of 1 MiB takes less time than another request on the same connection, and for 16 MiB the wait is a tenth of
the transfer. `cafcat.reading.splitting` splits these reads again if more requests can be in flight."""


def coalescing_of(store: Store) -> Coalescing:
    """Return the rule by which files share a request to this store: a remote store gets larger requests."""
    return _REMOTE if store.is_remote else _LOCAL


class ByteSpan(Protocol):
    """Anything with a span `[start_byte, end_byte)` in an object, such as a ReadRequest or an Entry."""

    @property
    def start_byte(self) -> int:
        """Offset of the first byte of the span in the object."""

    @property
    def end_byte(self) -> int:
        """Offset after the last byte of the span in the object."""


Span = TypeVar("Span", bound=ByteSpan)


@dataclass(slots=True)
class RangeRead(Generic[Span]):
    """One request for the bytes `[start_byte, end_byte)` of an object, and the files that it serves.

    Empty files need no bytes: for a read that serves only empty files, no request is sent.

    Attributes:
        store: URL of the store.
        object_key: Key of the object.
        files: The files whose bytes are within the read, in the order in which they were added.
        start_byte: First byte, from the start of the object.
        end_byte: One past the last byte.
        in_blocks: True if the read serves one file that is too large to be held in memory, as it is or decoded. The
            read may also serve empty files.
    """

    store: str
    object_key: str
    files: list[Span] = field(default_factory=list)
    start_byte: int = 0
    end_byte: int = 0
    in_blocks: bool = False

    @property
    def size_bytes(self) -> int:
        """Number of bytes that this read requests from the store."""
        return self.end_byte - self.start_byte

    def of_replica(self, replica: Replica) -> "RangeRead[Span]":
        """Return this read with another object of the same chunk in place of its own."""
        return replace(self, store=replica.store, object_key=replica.object_key)

    def bytes_of(self, file: Span, data: bytes) -> bytes:
        """Return the bytes of one file that this read serves.

        Args:
            file: One of `files`.
            data: All bytes of this read.
        """
        return data[file.start_byte - self.start_byte : file.end_byte - self.start_byte]

    def take(self, file: Span, rule: Coalescing) -> bool:
        """Extend this read, so that it also serves a further file of the object.

        Args:
            file: The file.
            rule: Which files share a read.

        Returns:
            False if the rule does not let the file share this read. Then the read stays as it is.
        """
        if len(self.files) >= rule.read_files:
            return False
        start, end = file.start_byte, file.end_byte
        if start != end:
            if self.start_byte == self.end_byte:
                self.start_byte, self.end_byte = start, end
            elif self.start_byte <= start <= self.end_byte + rule.gap_bytes:
                end = max(self.end_byte, end)
                if end - self.start_byte > rule.read_bytes:
                    return False
                self.end_byte = end
            else:
                return False
        self.files.append(file)
        return True


def coalesce(
    store: str,
    object_key: str,
    files: Iterable[Span],
    rule: Coalescing,
    predicate: Callable[[Span], bool] = lambda _: False,
) -> Iterator[RangeRead[Span]]:
    """Yield the reads that serve files of one object. Only files that follow each other share a read.

    Args:
        store: URL of the store.
        object_key: Key of the object.
        files: The files, each with its span in the object.
        rule: Which files share a read.
        predicate: Returns True for a file that has to be read on its own, in blocks, even if its span is small. By
            default, for no file.
    """
    read: RangeRead[Span] | None = None
    for file in files:
        is_alone = predicate(file)
        if read is None or is_alone or read.in_blocks or not read.take(file, rule):
            if read is not None:
                yield _finished(read, rule)
            read = RangeRead(store, object_key, in_blocks=is_alone)
            read.take(file, rule)
    if read is not None:
        yield _finished(read, rule)


def _finished(read: RangeRead[Span], rule: Coalescing) -> RangeRead[Span]:
    read.in_blocks = read.in_blocks or read.size_bytes > rule.read_bytes
    return read
