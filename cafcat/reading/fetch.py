"""Send range reads to a store: several requests in flight, answers in the order of the reads."""

from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from typing import Any, Final, Self

from cafcat.errors import CafcatError, Corrupt, StoreFailed
from cafcat.reading.plan import RangeRead, Span
from cafcat.stores.base import Store
from cafcat.support.in_order import in_order

__all__ = ["Answer", "concerns_single_files", "fetch", "object_blocks"]

_MOST_BYTES: Final = 128 << 20
"""Most bytes of the reads that were begun and whose answers were not handed out yet: eight of the largest reads, or
64 reads of 2 MiB."""
_BEGUN_READS: Final = 4
"""Reads that may be begun and not handed out yet, for each request in flight. Answers that have arrived wait for a
slower one before them, and the next requests are sent meanwhile."""
_PART_BYTES: Final = 8 << 20
"""A whole object is read in parts of this size."""
_BLOCK_BYTES: Final = 1 << 20
_MOST_PART_BYTES: Final = 3 * _PART_BYTES
"""The same bound for the parts of a whole object. Several chunks may be verified at a time, each with a bound of
its own, and a copy to a bucket needs memory for its upload, too."""


class Answer:
    """The bytes of a read, or what went wrong with it."""

    def __init__(self, store: Store, read: RangeRead[Any]) -> None:
        """Send no request yet."""
        self._store = store
        self._read = read
        self._data: bytes | None = None
        self._error: CafcatError | None = None

    def request(self) -> Self:
        """Send the request now, and keep its result."""
        try:
            self._data = self.data()
        except CafcatError as error:
            self._error = error
        return self

    def data(self) -> bytes:
        """Return the bytes, which are read now unless they were requested. Raises what went wrong."""
        if self._error is not None:
            raise self._error
        if self._data is not None:
            return self._data
        read = self._read
        if read.in_blocks or not read.size_bytes:
            return b""
        return self._store.read(read.object_key, read.start_byte, read.end_byte)


def fetch(
    store: Store, reads: Iterable[RangeRead[Span]], *, most_bytes: int | None = None
) -> Generator[tuple[RangeRead[Span], Answer], None, None]:
    """Yield each read with its answer, in the order of the reads. Close the generator if not all are needed.

    To a remote store, as many requests are in flight as its `reads_in_flight` says. A local store is read when the
    data of an answer are asked for. No request is sent here for reads without bytes, and for reads of files that
    are too large to be held in memory: their answer is empty.

    Args:
        store: The store of all the reads.
        reads: What to read; they are iterated only a few requests ahead.
        most_bytes: Most bytes of the reads that were begun and not handed out yet, 128 MiB by default. A single
            read may have more.
    """
    most = store.reads_in_flight
    if most == 1:
        return ((read, Answer(store, read)) for read in reads)
    return in_order(
        lambda read: (read, Answer(store, read).request()),
        reads,
        most_in_flight=most,
        most_begun=_BEGUN_READS * most,
        cost=_memory_bytes,
        budget=_MOST_BYTES if most_bytes is None else most_bytes,
    )


def _memory_bytes(read: RangeRead[Any]) -> int:
    return 0 if read.in_blocks else read.size_bytes


def concerns_single_files(store: Store, error: CafcatError) -> bool:
    """Return whether a failed read may concern only some of its bytes: damage, or an I/O error of a local disk. A
    server that could not answer after all retries cannot give the other bytes, either."""
    return isinstance(error, Corrupt) or (isinstance(error, StoreFailed) and not store.is_remote)


def object_blocks(store: Store, key: str, size_bytes: int) -> Generator[bytes, None, None]:
    """Yield the first bytes of an object in order, in blocks of at most 1 MiB, as fast as the store gives them.

    From a remote store, three parts of 8 MiB are requested at once.

    Args:
        store: Where the object is.
        key: Key of the object.
        size_bytes: Number of bytes to read.

    Raises:
        NotFound, Corrupt, AccessDenied, Conflict, StoreFailed: as reading from the store does.
    """
    if store.reads_in_flight == 1 or size_bytes <= _PART_BYTES:
        yield from store.stream(key, 0, size_bytes)
        return
    parts: Iterator[RangeRead[Any]] = (
        RangeRead(store.url, key, start_byte=start, end_byte=min(start + _PART_BYTES, size_bytes))
        for start in range(0, size_bytes, _PART_BYTES)
    )
    with closing(fetch(store, parts, most_bytes=_MOST_PART_BYTES)) as answers:
        for _, answer in answers:
            data = answer.data()
            for start in range(0, len(data), _BLOCK_BYTES):
                yield data[start : start + _BLOCK_BYTES]
