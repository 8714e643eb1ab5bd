"""Arguments that are more than a word: byte ranges, dates, text."""

import re
from datetime import UTC, datetime
from typing import NamedTuple

from cafcat.errors import InvalidInput

__all__ = [
    "WHOLE",
    "ByteRange",
    "format_duration",
    "parse_date",
    "parse_duration",
    "parse_grace",
    "parse_new_file",
    "parse_percent",
    "parse_range",
    "parse_share",
    "parse_text",
]

_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400}


class ByteRange(NamedTuple):
    """Bytes `[start, end)` of a file, as in a slice of Python.

    Attributes:
        start: Offset in bytes. A negative offset counts from the end.
        end: Offset in bytes, exclusive. None: the end of the file.
    """

    start: int
    end: int | None


WHOLE = ByteRange(0, None)


def parse_text(text: str) -> str:
    """Return a text, if the catalog can store it: valid UTF-8. Raises InvalidInput."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidInput(f"not valid UTF-8: {text!a}") from error
    return text


def parse_new_file(text: str) -> str:
    """Return the name of a file that is written with random access.

    Raises:
        InvalidInput: The name is "-", which would mean standard output.
    """
    if text == "-":
        raise InvalidInput("the output cannot be standard output", hint="name a file; ./- is a file called -")
    return text


def parse_range(text: str) -> ByteRange:
    """Return a byte range as in HTTP (RFC 9110, 14.1.2). Both ends are inclusive.

    "0-99" means 100 bytes, "100-" all bytes from byte 100 on, "-100" the last 100 bytes. Raises InvalidInput.
    """
    match = re.fullmatch(r"(\d{0,18})-(\d{0,18})", text, re.ASCII)
    if not match or text == "-":
        raise InvalidInput(f"not a byte range: {text!r}", hint="write 0-99, 100- or -100")
    first, last = (int(digits) if digits else None for digits in match.groups())
    if (last is not None and last < (first or 0)) or (first is None and last == 0):
        raise InvalidInput(f"the byte range {text} has no bytes")
    if first is None:
        return ByteRange(-(last or 0), None)
    return ByteRange(first, None if last is None else last + 1)


def parse_date(text: str) -> int:
    """Return a date or time in ISO 8601 as nanoseconds since 1970 UTC.

    A time without an offset is UTC. Raises InvalidInput.
    """
    try:
        when = datetime.fromisoformat(text)
    except ValueError as error:
        hint = "write 2026-11-21, 2026-11-21T10:00:00 or 2026-11-21T10:00:00+02:00"
        raise InvalidInput(f"not a date: {text!r}", hint=hint) from error
    when = when if when.tzinfo else when.replace(tzinfo=UTC)
    since = when - datetime(1970, 1, 1, tzinfo=UTC)
    return ((since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds) * 1000


def parse_duration(text: str) -> int:
    """Return the seconds in "60", "60s", "15m", "1h" or "7d". Raises InvalidInput, also for zero."""
    match = re.fullmatch(r"(\d{1,9})([smhd]?)", text.strip().lower(), re.ASCII)
    seconds = int(match[1]) * _SECONDS[match[2]] if match else 0
    if not seconds:
        raise InvalidInput(f"not a duration: {text!r}", hint="write 60s, 15m, 1h or 7d")
    return seconds


def parse_percent(text: str, *, may_be_zero: bool = False) -> float:
    """Return the fraction of 1 for a text such as "20%" or "0.5%".

    Args:
        text: A percentage up to 100.
        may_be_zero: True to allow "0%".

    Raises:
        InvalidInput: This is not such a percentage.
    """
    number = text.strip()
    try:
        share = float(number.removesuffix("%")) / 100 if number.endswith("%") else -1.0
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1 or (share == 0 and not may_be_zero):
        raise InvalidInput(f"not a share: {text!r}", hint="write 20% or 0.5%")
    return share


def parse_share(text: str) -> float:
    """Return the fraction as `parse_percent` does. "0%" is allowed."""
    return parse_percent(text, may_be_zero=True)


def parse_grace(text: str) -> int:
    """Return the seconds as `parse_duration` does. "0" is allowed."""
    return 0 if text.strip() == "0" else parse_duration(text)


def format_duration(seconds: int) -> str:
    """Return a duration as `parse_grace` reads it: 604800 -> "7d", 5400 -> "90m", 0 -> "0"."""
    for unit in ("d", "h", "m", "s"):
        if seconds and not seconds % _SECONDS[unit]:
            return f"{seconds // _SECONDS[unit]}{unit}"
    return "0"
