"""Finds the JSON key that holds the time of a record, from the first records of a log file."""

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple

__all__ = ["PACK_WITH_TIMES", "LogHead", "head_of"]

PACK_WITH_TIMES: Final = (
    "to pack log files with times, run `cafcat rm -r UUID.clp` for their archive (`cafcat units` shows the UUID), "
    "then `cafcat ingest --format clp-s --timestamp-key KEY`"
)
"""Remedy for log files in an archive without times, for warnings."""

_HEAD_BYTES: Final = 64 << 10
"""Largest number of bytes that are read from the beginning of a log file."""
_RECORDS: Final = 100
"""Largest number of records that are looked at."""
_DEEPEST: Final = 3
"""Largest number of names in a key: `a.b.time` has three."""
_USUAL_NAMES: Final = (
    "@timestamp",
    "timestamp",
    "ts",
    "time",
    "datetime",
    "date",
    "$date",
    "t",
    "event_time",
    "eventtime",
    "log_time",
    "logtime",
    "asctime",
    "created_at",
    "createdat",
)
"""Names of keys that usually hold the time of a record, the most usual first. Upper and lower case are equal."""
_TIME: Final = re.compile(
    r"\[?\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?: ?(?:Z|[+-]\d\d(?::?\d\d)?))?\]?"
)
_EPOCH: Final = re.compile(r"\d{9,19}(?:\.\d{1,9})?")
"""Forms of times that clp-s 0.12 can read. Seconds to nanoseconds since 1970 have nine digits since 1973."""
_SPECIAL: Final = re.compile(r"[\\.@*?]")
"""Characters that clp-s interprets in a key, unless a backslash is before them."""


class LogHead(NamedTuple):
    """What the beginning of a log file shows.

    Attributes:
        timestamp_key: Key of the records' times, as clp-s names it: names are joined by ".", and special characters
            have a backslash. None if no usual key has times in the form that clp-s reads.
        is_blank: True if the beginning has only white space.
    """

    timestamp_key: str | None
    is_blank: bool


def head_of(name: str) -> LogHead:
    """Read the beginning of a log file, at most 64 KiB, and find the key of the times in its first 100 records.

    Args:
        name: Path of the log file. A file that cannot be read has no key.
    """
    head = b""
    with suppress(OSError), open(name, "rb") as file:
        head = file.read(_HEAD_BYTES)
        if not head.strip():
            return LogHead(None, is_blank=True)
    return LogHead(_key_in(head.decode("utf-8", "replace")), is_blank=False)


def _key_in(text: str) -> str | None:
    """Return the key that holds a time in the most records; of several, the highest and most usual one.

    A key with a text that clp-s cannot read as a time is left out, because clp-s would refuse the whole log file.
    """
    times: dict[tuple[str, ...], int] = {}
    refused: set[tuple[str, ...]] = set()
    for record in _records_in(text):
        for key, value in _usual_keys(record, ()):
            if _is_time(value):
                times[key] = times.get(key, 0) + 1
            elif isinstance(value, str | float):
                refused.add(key)
    found = [key for key in times if key not in refused]
    if not found:
        return None
    best = min(found, key=lambda key: (-times[key], len(key), _USUAL_NAMES.index(key[-1].lower())))
    return ".".join(_SPECIAL.sub(r"\\\g<0>", name) for name in best)


def _records_in(text: str) -> Iterator[Mapping[str, Any]]:
    """Yield the first JSON objects in a text, which may end within an object."""
    decoder = json.JSONDecoder()
    position = 0
    for _ in range(_RECORDS):
        while position < len(text) and text[position].isspace():
            position += 1
        try:
            record, position = decoder.raw_decode(text, position)
        except (ValueError, RecursionError):
            return
        if isinstance(record, dict):
            yield record


def _usual_keys(record: Mapping[str, Any], above: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield the keys of a record that usually hold its time, as tuples of names, with their values."""
    for name, value in record.items():
        key = (*above, name)
        if isinstance(value, dict):
            if len(key) < _DEEPEST:
                yield from _usual_keys(value, key)
        elif name.lower() in _USUAL_NAMES:
            yield key, value


def _is_time(value: Any) -> bool:
    """Return True for a value that clp-s reads as a time, and that is probably meant as a time."""
    if isinstance(value, str):
        return _TIME.fullmatch(value) is not None or _EPOCH.fullmatch(value) is not None
    return isinstance(value, int | float) and not isinstance(value, bool) and 1e8 <= value < 1e19
