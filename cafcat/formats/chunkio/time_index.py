"""Records by time: the original's time series has the time of a record's first event in its user data.

A time is .NET ticks in UTC: 100 ns each since 0001-01-01, a signed number in the first eight bytes, little-endian.
"""

from collections.abc import Callable, Iterator
from itertools import takewhile
from typing import Final

from cafcat.formats.chunkio.records import Record
from cafcat.formats.chunkio.records_reader import RecordReader

__all__ = ["at_partition", "records_after", "ticks_of_ns", "ticks_of_record"]

_TICKS_OF_1970: Final = 621_355_968_000_000_000
_TICK_NS: Final = 100
_MOST_STEPS: Final = 256
"""Halvings of a range of 2^63 positions, four times over: a file where these do not do is listed instead."""


def ticks_of_ns(ns: int) -> int:
    """Nanoseconds since 1970 UTC as ticks, rounded down."""
    return _TICKS_OF_1970 + ns // _TICK_NS


def ticks_of_record(record: Record) -> int:
    """The time that its user data says. It is not known whether its writer put a time there."""
    return int.from_bytes(record.user_data[:8], "little", signed=True)


def records_after(reader: RecordReader, ticks: int, start: int = 0, end: int | None = None) -> Iterator[Record]:
    """The records beginning in `[start, end)` that may hold events after a time: those whose own time is after it,
    and the one before these, whose events may go on until then. Records are taken to be in order of time. Looks at
    O(log n) of them before the first one comes."""
    first = at_partition(reader, lambda found: ticks_of_record(found) > ticks, start, end)
    if first is None:
        return iter(())
    return takewhile(lambda record: end is None or record.begin < end, reader.records(first))


def at_partition(
    reader: RecordReader, is_after: Callable[[Record], bool], start: int = 0, end: int | None = None
) -> Record | None:
    """Of the records that begin in `[start, end)` the last one that is not after; the first one if all are; None if
    there is none. No record that is not after may follow one that is: otherwise it is any at such a turn."""
    left = reader.first(start, end)
    if left is None or is_after(left):
        return left
    right = reader.last(left.begin + 1, end)
    if right is None:
        return left
    if not is_after(right):
        return right
    for _ in range(_MOST_STEPS):
        middle = reader.middle(left.begin + 1, right.begin)
        if middle is None:
            return left
        if is_after(middle):
            right = middle
        else:
            left = middle
    return _by_listing(reader, is_after, left, right)


def _by_listing(reader: RecordReader, is_after: Callable[[Record], bool], left: Record, right: Record) -> Record:
    """The same between two records, in linear time: meters are damaged, or lie."""
    for record in reader.records(left):
        if record.begin >= right.begin or (record != left and is_after(record)):
            break
        left = record
    return left
