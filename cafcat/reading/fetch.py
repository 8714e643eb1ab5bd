"""What a plan says is read: several requests in flight where that is worth it, files in the order of the plan."""

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from functools import partial
from itertools import groupby
from typing import Final

from cafcat.errors import CafcatError, Corrupt, NotInstalled, StoreFailed, Unsupported
from cafcat.reading.decoding import decoded
from cafcat.reading.plan import RangeRead, merging_of
from cafcat.reading.reader import Reading
from cafcat.reading.replicas import FAILURES, ReplicaAttempts
from cafcat.reading.request import ReadRequest
from cafcat.stores.base import Store
from cafcat.support.checksums import crc32c
from cafcat.support.in_order import in_order

__all__ = ["fetch"]

_BYTES_IN_FLIGHT: Final = 128 << 20
"""Most bytes of answers that are under way, or here and not yet handed out."""

_Answer = Callable[[], bytes]
"""Gives the bytes of a read, waiting for them if need be, or raises what went wrong."""
_Blocks = Iterator[bytes]


def fetch(reading: Reading, reads: Iterable[RangeRead]) -> Generator[tuple[ReadRequest, _Blocks], None, None]:
    """The files of the reads, in order, each with its blocks: those of a whole file are checked against its
    checksum before the last one comes. What fails is read from copies. Blocks raise Corrupt and StoreFailed for
    that file alone.

    Raises what concerns more than one file: AccessDenied, Unavailable if a store is out of reach. Close it if you
    do not take all.
    """
    for url, of_store in groupby(map(reading.directed, reads), key=lambda read: read.store):
        store = reading.store_of(url)
        with closing(_answers(store, of_store)) as answers:
            for read, answer in answers:
                yield from _files(reading, store, read, answer)


def _files(
    reading: Reading, store: Store, read: RangeRead, answer: _Answer
) -> Iterator[tuple[ReadRequest, _Blocks]]:
    """A function of its own, so that the bytes of a read are let go before the next is waited for."""
    blocks_of = _blocks_of(reading, store, read, answer)
    for wanted in read.wanted:
        yield wanted, blocks_of(wanted) if wanted.made_bytes else _content(reading, wanted, b"")


def _blocks_of(
    reading: Reading, store: Store, read: RangeRead, answer: _Answer
) -> Callable[[ReadRequest], _Blocks]:
    """What gives the blocks of each file of a read that is not empty."""
    if read.in_blocks:
        return reading.blocks
    try:
        data = answer()
    except FAILURES as error:
        return _after(error, reading, store, read)
    return lambda wanted: _content(reading, wanted, _cut(wanted, read, data))


def _after(error: CafcatError, reading: Reading, store: Store, read: RangeRead) -> Callable[[ReadRequest], _Blocks]:
    """A read of several files failed. What is wrong with one must not cost its neighbours: each is read for
    itself. But an object that is not there is so for all, and so is one that a server could not give after all
    retries: all are read from a copy at once."""
    is_copy = read.store != read.wanted[0].location.store
    by_byte = isinstance(error, Corrupt) or (isinstance(error, StoreFailed) and not store.is_remote)
    if is_copy or by_byte:
        return reading.blocks
    found = reading.elsewhere(read, error)
    if isinstance(found, ReplicaAttempts):
        return lambda wanted: _failing(wanted, found)
    return lambda wanted: _content(reading, wanted, _cut(wanted, read, found))


def _cut(wanted: ReadRequest, read: RangeRead, data: bytes) -> bytes:
    return data[wanted.start_byte - read.start_byte : wanted.end_byte - read.start_byte]


def _content(reading: Reading, wanted: ReadRequest, data: bytes) -> _Blocks:
    """What is wrong is read once more, alone, wherever it can be read; then it raises, if it has to."""
    if wanted.part is not None:
        try:
            return iter((decoded(wanted, data),))
        except (Corrupt, NotInstalled, Unsupported):
            return _read_again(reading, wanted)
    if crc32c(data) == wanted.location.crc32c or not wanted.is_whole:
        return iter((data,))
    return _read_again(reading, wanted)


def _read_again(reading: Reading, wanted: ReadRequest) -> _Blocks:
    yield reading.content(wanted)


def _failing(wanted: ReadRequest, trial: ReplicaAttempts) -> _Blocks:
    yield from ()
    raise trial.error(wanted.location)


def _answers(store: Store, reads: Iterable[RangeRead]) -> Generator[tuple[RangeRead, _Answer], None, None]:
    in_flight = min(store.reads_in_flight, _BYTES_IN_FLIGHT // merging_of(store).read_bytes)
    if in_flight > 1:
        return in_order(lambda read: (read, _answered(store, read)), reads, most_in_flight=in_flight)
    return ((read, _asked(store, read)) for read in reads)


def _asked(store: Store, read: RangeRead) -> _Answer:
    """What is empty is not asked for; what comes in blocks is asked for when its turn comes."""
    if read.in_blocks or not read.size_bytes:
        return bytes
    return partial(store.read, read.object_key, read.start_byte, read.end_byte)


def _answered(store: Store, read: RangeRead) -> _Answer:
    """The same, with the answer at hand."""
    try:
        data = _asked(store, read)()
    except CafcatError as error:
        return partial(_raise, error)
    return lambda: data


def _raise(error: CafcatError) -> bytes:
    raise error
