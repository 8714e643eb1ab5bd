"""Converts the log files and the times of a clp-s archive to cafcat's model."""

import json
import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Final

from cafcat.errors import Corrupt, Unsupported, shown_path
from cafcat.formats.clp.metadata import Annotation, LogRange, TimestampDictionary
from cafcat.model import MAX_PATH_BYTES, ArchiveUnits, LogUnit, TimeRange

__all__ = ["units_of"]

_OWN_FIELD: Final = "_filename"
_MAX_RECORDS: Final = 1 << 63
_LARGEST_SECONDS: Final = 1e300
"""Larger numbers of seconds are not times, and a float may not hold them in milliseconds."""


def units_of(
    ranges: Sequence[LogRange], timestamps: TimestampDictionary, annotation: Annotation | None, name: str
) -> ArchiveUnits:
    """Return the log files of a clp-s archive, and the times of its records, in cafcat's model.

    Args:
        ranges: the ranges of records by log file.
        timestamps: the timestamp dictionary.
        annotation: the annotation by cafcat, or None.
        name: name of the archive, for messages.

    Raises:
        Corrupt: the annotation has another number of log files than `ranges`.
        Unsupported: the catalog cannot store a name, a number of records, a field, or a timestamp key.
    """
    sources: Sequence[tuple[int, int] | tuple[None, None]] = (
        annotation.sources if annotation else [(None, None)] * len(ranges)
    )
    if len(sources) != len(ranges):
        message = f"the annotation by cafcat has {len(sources):,} log files, the range index {len(ranges):,}"
        raise Corrupt(message, chunk=name)
    units = [_unit(found, source, name) for found, source in zip(ranges, sources, strict=True)]
    return ArchiveUnits(units, _times(timestamps, name))


def _unit(found: LogRange, source: tuple[int, int] | tuple[None, None], name: str) -> LogUnit:
    file_name = found.file_name or ""
    if "\0" in file_name or len(file_name.encode()) > MAX_PATH_BYTES or found.end >= _MAX_RECORDS:
        message = "the catalog cannot store the name of a log file, or its number of records"
        raise Unsupported(message, path=shown_path(file_name), chunk=name)
    return LogUnit(file_name, found.start, found.end, _fields(found, name), *source)


def _fields(found: LogRange, name: str) -> str:
    """Return the facts that the archive stores about a log file as JSON text, without the file's name.

    Raises:
        Unsupported: JSON cannot represent a value, or a value contains a NUL.
    """
    other_fields = {key: value for key, value in found.fields.items() if key != _OWN_FIELD}
    try:
        text = json.dumps(other_fields, allow_nan=False)
    except (ValueError, RecursionError) as error:
        raise Unsupported(f"the fields of a log file cannot be represented in JSON: {error}", chunk=name) from error
    if "\\u0000" in text:
        raise Unsupported("the fields of a log file contain a NUL, which the catalog cannot store", chunk=name)
    return text


def _times(timestamps: TimestampDictionary, name: str) -> list[TimeRange]:
    """Return one time range for each timestamp key: the union of all ranges of the key.

    A bound is None if one of the ranges has no such bound, or an invalid one. Raises Unsupported for a key that the
    catalog cannot store.
    """
    found: dict[str, TimeRange] = {}
    for key, _, begin, end in timestamps.ranges:
        if "\0" in key or len(key.encode()) > MAX_PATH_BYTES:
            problem = "contains a NUL, or has more than 2,048 bytes: the catalog cannot store it"
            raise Unsupported(f"the JSON key that holds the times of the log records {problem}", chunk=name)
        begin_ms, end_ms = _milliseconds(begin), _milliseconds(end)
        time = TimeRange(
            key, None if begin_ms is None else math.floor(begin_ms), None if end_ms is None else math.ceil(end_ms)
        )
        found[key] = time if key not in found else _union(found[key], time)
    return list(found.values())


def _union(one: TimeRange, other: TimeRange) -> TimeRange:
    key, begin, end = one
    begin = None if begin is None or other.begin_ms is None else min(begin, other.begin_ms)
    end = None if end is None or other.end_ms is None else max(end, other.end_ms)
    return TimeRange(key, begin, end)


def _milliseconds(value: int | float | None) -> int | Fraction | None:
    """Convert a bound of the timestamp dictionary to milliseconds; None if it is None or not a valid time.

    clp-s compares integers in the dictionary with milliseconds, and floats with seconds.
    """
    if not isinstance(value, float):
        return value
    return Fraction(value) * 1000 if abs(value) <= _LARGEST_SECONDS else None
