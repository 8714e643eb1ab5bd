"""Finds the records of a ChunkIO file by time.

In time series of the original program (romkatv/ChunkIO), the first eight bytes of a record's user data hold the
time of its first event, as a signed little-endian number.

A time is a number of .NET ticks in UTC: units of 100 ns since 0001-01-01.
"""

from collections.abc import Iterator
from itertools import takewhile
from typing import Final

from cafcat.formats.chunkio.records import Record
from cafcat.formats.chunkio.records_reader import RecordReader

__all__ = ["partition_point", "records_after", "ticks_of_ns", "ticks_of_record"]

_TICKS_OF_1970: Final = 621_355_968_000_000_000
"""Ticks at 1970-01-01 UTC."""
_TICK_NS: Final = 100
"""Nanoseconds per tick."""
_MAX_STEPS: Final = 256
"""Largest number of steps of a binary search: four times as many as a range of 2^63 positions needs. If they do not
suffice, the remaining records are listed instead."""


def ticks_of_ns(ns: int) -> int:
    """Convert nanoseconds since 1970-01-01 UTC to .NET ticks (100 ns since 0001-01-01), rounded down."""
    return _TICKS_OF_1970 + ns // _TICK_NS


def ticks_of_record(record: Record) -> int:
    """Return the time in a record's user data, in .NET ticks. Meaningless if a program stores other data there."""
    return int.from_bytes(record.user_data[:8], "little", signed=True)


def records_after(reader: RecordReader, ticks: int, start: int = 0, end: int | None = None) -> Iterator[Record]:
    """Return the records that begin in `[start, end)` and may hold events after a time.

    These are the records with a later time, and the record before them, whose events may extend past the time.
    Records must be in order of time. O(log n) records are read before the first one is returned, more only in files
    with damaged or false meters.

    Args:
        reader: reads the file.
        ticks: the time in .NET ticks.
        start: lower bound of the record positions in bytes.
        end: upper bound of the record positions in bytes, exclusive; None means the end of the file.
    """
    first = partition_point(reader, ticks, start, end)
    if first is None:
        return iter(())
    return takewhile(lambda record: end is None or record.begin < end, reader.records(first))


def partition_point(reader: RecordReader, ticks: int, start: int = 0, end: int | None = None) -> Record | None:
    """Return the last record that begins in `[start, end)` and whose time is not after `ticks`, by binary search.

    Records must be in order of time. If they are not, the result is one of the records that begin in
    `[start, end)`, but perhaps not the last with such a time.

    Args:
        reader: reads the file.
        ticks: the time in .NET ticks.
        start: lower bound of the record positions in bytes.
        end: upper bound of the record positions in bytes, exclusive; None means the end of the file.

    Returns:
        The record; the first record if all are later than `ticks`; None if no record begins in `[start, end)`.
    """
    left = reader.first(start, end)
    if left is None or ticks_of_record(left) > ticks:
        return left
    right = reader.last(left.begin + 1, end)
    if right is None:
        return left
    if ticks_of_record(right) <= ticks:
        return right
    for _ in range(_MAX_STEPS):
        middle = reader.middle(left.begin + 1, right.begin)
        if middle is None:
            return left
        if ticks_of_record(middle) > ticks:
            right = middle
        else:
            left = middle
    return _by_listing(reader, ticks, left, right)


def _by_listing(reader: RecordReader, ticks: int, left: Record, right: Record) -> Record:
    """Find the partition point (see `partition_point`) by listing the records between `left` and `right`.

    Takes linear time; used for files with damaged or false meters.
    """
    for record in reader.records(left):
        if record.begin >= right.begin or (record != left and ticks_of_record(record) > ticks):
            break
        left = record
    return left
