"""Log files and times of a clp-s archive, as the rest of cafcat has them."""

import json
import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Final

from cafcat.errors import Corrupt, Unsupported, shown_path
from cafcat.formats.clp.metadata import LogRange, Noted, TimestampDictionary
from cafcat.model import MAX_PATH_BYTES, ArchiveUnits, LogUnit, TimeRange

__all__ = ["units_of"]

_OWN_FIELD: Final = "_filename"
_MOST_RECORDS: Final = 1 << 63
_LARGEST_SECONDS: Final = 1e300
"""Larger numbers of seconds are no time, and a thousand times as much may be no float."""


def units_of(
    ranges: Sequence[LogRange], timestamps: TimestampDictionary, noted: Noted | None, name: str
) -> ArchiveUnits:
    """name: of the archive. Raises Corrupt if they contradict each other, Unsupported for names, numbers and fields
    that a catalog cannot hold."""
    sources: Sequence[tuple[int, int] | tuple[None, None]] = (
        noted.sources if noted else [(None, None)] * len(ranges)
    )
    if len(sources) != len(ranges):
        raise Corrupt(f"cafcat noted {len(sources):,} log files, its range index has {len(ranges):,}", chunk=name)
    units = [_unit(found, source, name) for found, source in zip(ranges, sources, strict=True)]
    return ArchiveUnits(units, _times(timestamps, name))


def _unit(found: LogRange, source: tuple[int, int] | tuple[None, None], name: str) -> LogUnit:
    file_name = found.file_name or ""
    if "\0" in file_name or len(file_name.encode()) > MAX_PATH_BYTES or found.end >= _MOST_RECORDS:
        message = "a log file has a name, or a number of records, that the catalog cannot hold"
        raise Unsupported(message, path=shown_path(file_name), chunk=name)
    return LogUnit(file_name, found.start, found.end, _fields(found, name), *source)


def _fields(found: LogRange, name: str) -> str:
    """As JSON, without the name of the file."""
    others = {key: value for key, value in found.fields.items() if key != _OWN_FIELD}
    try:
        text = json.dumps(others, allow_nan=False)
    except (ValueError, RecursionError) as error:
        raise Unsupported(f"the fields of a log file cannot be JSON: {error}", chunk=name) from error
    if "\\u0000" in text:
        raise Unsupported("the fields of a log file have a NUL, which the catalog cannot hold", chunk=name)
    return text


def _times(timestamps: TimestampDictionary, name: str) -> list[TimeRange]:
    """One for each key: the widest, and no bound where one of its ranges has none."""
    found: dict[str, TimeRange] = {}
    for key, _, begin, end in timestamps.ranges:
        if "\0" in key or len(key.encode()) > MAX_PATH_BYTES:
            raise Unsupported("a timestamp key has a name that the catalog cannot hold", chunk=name)
        time = TimeRange(key, _milliseconds(begin, math.floor), _milliseconds(end, math.ceil))
        found[key] = time if key not in found else _both(found[key], time)
    return list(found.values())


def _both(one: TimeRange, other: TimeRange) -> TimeRange:
    key, begin, end = one
    begin = None if begin is None or other.begin_ms is None else min(begin, other.begin_ms)
    end = None if end is None or other.end_ms is None else max(end, other.end_ms)
    return TimeRange(key, begin, end)


def _milliseconds(value: int | float | None, rounded: Callable[[Fraction], int]) -> int | None:
    """Return a bound of the timestamp dictionary in milliseconds; None if it is no time.

    clp-s compares integers in the dictionary with milliseconds, and floats with seconds.
    """
    if not isinstance(value, float):
        return value
    return rounded(Fraction(value) * 1000) if abs(value) <= _LARGEST_SECONDS else None
