"""Sends range reads to a store: several requests in flight, answers in the order of the reads."""

from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from typing import Any, Final, Self

from cafcat.errors import CafcatError, Corrupt, StoreFailed
from cafcat.reading.coalescing import RangeRead, Span
from cafcat.stores.base import Store
from cafcat.support.in_order import in_order

__all__ = ["Answer", "concerns_single_files", "fetch", "object_blocks"]

_MOST_BYTES: Final = 128 << 20
"""Most bytes of all reads that were begun and whose answers were not yielded yet: eight reads of 16 MiB, the
largest, or 64 reads of 2 MiB."""
_FILE_BYTES: Final = 1 << 10
"""Memory of one file's request, in bytes: it counts in a read of many small files."""
_BEGUN_READS: Final = 4
"""How many reads may be begun and not yielded yet, for each request that may be in flight. Answers that have
arrived wait for a slower one before them, and the next requests are sent meanwhile."""
_PART_BYTES: Final = 8 << 20
"""A whole object is read in parts of this size."""
_BLOCK_BYTES: Final = 1 << 20
_MOST_PART_BYTES: Final = 3 * _PART_BYTES
"""Most bytes of all parts of one object that were begun and not yielded yet. It is lower than _MOST_BYTES because
several chunks may be verified at a time, and because a copy to a bucket also needs memory for its upload."""


class Answer:
    """Sends the request of one range read, and holds its result: the bytes, or the error of the store."""

    def __init__(self, store: Store, read: RangeRead[Any]) -> None:
        """Prepare a read. The request is sent by `request` or `data`."""
        self._store = store
        self._read = read
        self._data: bytes | None = None
        self._error: CafcatError | None = None

    def request(self) -> Self:
        """Send the request, and keep its result for `data`: the bytes, or the CafcatError, which is not raised."""
        try:
            self._data = self.data()
        except CafcatError as error:
            self._error = error
        return self

    def data(self) -> bytes:
        """Return the bytes of the read. If `request` was not called, the store is read now.

        Returns:
            The bytes; b"" for a read that is empty, or that has to be read in blocks (`RangeRead.in_blocks`).

        Raises:
            CafcatError: The error of the store, such as NotFound, Corrupt, AccessDenied or StoreFailed.
        """
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

    Up to `store.reads_in_flight` requests are in flight at once. If that is 1, as for a local store, a read is done
    only when `Answer.data` is called. No request is sent for reads without bytes, nor for `in_blocks` reads of
    files that are too large to be held in memory: `data` of their answer returns b"".

    Args:
        store: The store of all the reads.
        reads: What to read. They are iterated at most four times `store.reads_in_flight` reads ahead.
        most_bytes: Most bytes of all reads that were begun and not yielded yet, 128 MiB by default. A single read
            may have more.
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
    return len(read.files) * _FILE_BYTES + (0 if read.in_blocks else read.size_bytes)


def concerns_single_files(store: Store, error: CafcatError) -> bool:
    """Return whether the other files of a failed read may still be readable one by one.

    True for damage, and for an I/O error of a local disk: these concern only some of the bytes. False for all other
    errors: an object that is missing, or that a server did not give after all retries, fails for all files.

    Args:
        store: The store that was read.
        error: The error of the read.
    """
    return isinstance(error, Corrupt) or (isinstance(error, StoreFailed) and not store.is_remote)


def object_blocks(store: Store, key: str, size_bytes: int) -> Generator[bytes, None, None]:
    """Yield the first bytes of an object in order, in blocks of at most 1 MiB.

    An object of more than 8 MiB in a remote store is read in parts of 8 MiB, three at a time, because that is
    faster than one request.

    Args:
        store: The store that has the object.
        key: Key of the object.
        size_bytes: Number of bytes to read, from the start of the object.

    Raises:
        NotFound: There is no such object.
        Corrupt: The object is shorter than `size_bytes`.
        AccessDenied, Conflict, StoreFailed: The store cannot read, or the object was replaced.
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
