"""Parses values that users type on the command line: byte ranges, dates, durations, percentages, text."""

import os
import re
import time
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import NamedTuple, TypeVar

from cafcat.errors import InvalidInput

__all__ = [
    "WHOLE",
    "ByteRange",
    "format_duration",
    "member_of",
    "parse_date",
    "parse_duration",
    "parse_grace",
    "parse_moment",
    "parse_new_file",
    "parse_percent",
    "parse_range",
    "parse_share",
    "parse_text",
]

Member = TypeVar("Member", bound=StrEnum)

_DURATION = re.compile(r"(\d{1,9})([smhdw])", re.ASCII)
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


class ByteRange(NamedTuple):
    """The bytes `[start, end)` of a file, as in a slice of Python.

    Attributes:
        start: Offset in bytes. A negative offset counts from the end of the file.
        end: Offset in bytes, exclusive. None means the end of the file.
    """

    start: int
    end: int | None


WHOLE = ByteRange(0, None)


def parse_text(text: str) -> str:
    """Return `text` unchanged. Raises InvalidInput if it is not valid UTF-8, which the catalog requires."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        shown = os.fsencode(text).decode(errors="backslashreplace")
        hint = "names in the catalog are always UTF-8; `cafcat ls` and `cafcat find` list them"
        raise InvalidInput(f"not valid UTF-8: {shown}", hint=hint) from error
    return text


def parse_new_file(text: str) -> str:
    """Return `text` unchanged, as the name of a new file that cannot be standard output.

    Raises:
        InvalidInput: The name is "-", which would mean standard output.
    """
    if text == "-":
        raise InvalidInput("the output cannot be standard output", hint="name a file; ./- is a file called -")
    return text


def parse_range(text: str) -> ByteRange:
    """Parse a byte range as in HTTP (RFC 9110, 14.1.2). Both ends of the text are inclusive.

    "0-99" means 100 bytes, "100-" all bytes from byte 100 on, "-100" the last 100 bytes.

    Returns:
        The range, whose end is exclusive: `ByteRange(0, 100)` for "0-99".

    Raises:
        InvalidInput: The text is not a byte range, or the range has no bytes.
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
    """Parse a date or time in ISO 8601, or a duration before now, and return it as nanoseconds since 1970 UTC.

    A time without an offset is UTC. Raises InvalidInput if the text is neither a date nor a duration.
    """
    if _DURATION.fullmatch(text):
        return time.time_ns() - parse_grace(text) * 1_000_000_000
    try:
        when = datetime.fromisoformat(text)
    except ValueError as error:
        hint = "write 2026-11-21, 2026-11-21T10:00:00 or 2026-11-21T10:00:00+02:00, or 7d for seven days ago"
        raise InvalidInput(f"not a date: {text!r}", hint=hint) from error
    when = when if when.tzinfo else when.replace(tzinfo=UTC)
    since = when - datetime(1970, 1, 1, tzinfo=UTC)
    return ((since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds) * 1000


def parse_moment(moment: object) -> datetime:
    """Return a time as a datetime with a time zone.

    Args:
        moment: A datetime with a time zone, or a text as `parse_date` takes it.

    Raises:
        InvalidInput: The argument is no such time, or one before the year 1 or after 9999.
    """
    if isinstance(moment, datetime) and moment.tzinfo is not None:
        return moment
    if not isinstance(moment, str):
        hint = "pass datetime(..., tzinfo=UTC), or a text such as 2026-11-21T10:00"
        raise InvalidInput(f"not a time with a time zone: {moment!r}", hint=hint)
    try:
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=parse_date(moment) // 1000)
    except OverflowError as error:
        raise InvalidInput(f"a time before the year 1 or after 9999: {moment!r}") from error


def parse_duration(text: str) -> int:
    """Parse a duration such as "60s", "15m", "1h", "7d" or "2w", and return it in seconds.

    A number without a unit is refused: whoever means 7 days must not get 7 seconds.

    Raises InvalidInput for any other text, and for zero.
    """
    seconds = parse_grace(text)
    if not seconds:
        raise InvalidInput(f"a duration of zero: {text!r}", hint="write 60s, 15m, 1h, 7d or 2w")
    return seconds


def parse_percent(text: str, *, may_be_zero: bool = False) -> float:
    """Parse a percentage such as "20%" or "0.5%", and return it as a fraction of 1, such as 0.2.

    Args:
        text: A percentage up to "100%".
        may_be_zero: True to allow "0%".

    Raises:
        InvalidInput: The text is not a percentage, or is out of range.
    """
    number = text.strip()
    try:
        share = float(number.removesuffix("%")) / 100 if number.endswith("%") else -1.0
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1 or (share == 0 and not may_be_zero):
        lowest = "from 0%" if may_be_zero else "above 0%, up"
        raise InvalidInput(f"not a share {lowest} to 100%: {text!r}", hint="write 20% or 0.5%")
    return share


def parse_share(text: str) -> float:
    """Parse a percentage from "0%" to "100%", and return it as a number from 0 to 1. Raises InvalidInput."""
    return parse_percent(text, may_be_zero=True)


def parse_grace(text: str) -> int:
    """Parse a duration such as "7d" or "0d", or "0", and return it in seconds. Raises InvalidInput."""
    given = text.strip().lower()
    match = _DURATION.fullmatch(given)
    if match is None and given != "0":
        raise InvalidInput(f"not a duration: {text!r}", hint="write a unit: 60s, 15m, 1h, 7d or 2w")
    return int(match[1]) * _SECONDS[match[2]] if match else 0


def format_duration(seconds: int) -> str:
    """Return a duration in seconds as text that `parse_grace` reads: 604800 -> "7d", 5400 -> "90m", 0 -> "0"."""
    for unit in ("d", "h", "m", "s"):
        if seconds and not seconds % _SECONDS[unit]:
            return f"{seconds // _SECONDS[unit]}{unit}"
    return "0"


def member_of(kind: type[Member], value: str, name: str) -> Member:
    """Return a member of an enum by its value, which a program may give as a plain text.

    Args:
        kind: The enum.
        value: The member, or its value.
        name: Name of the option, for messages.

    Raises:
        InvalidInput: No member has the value.
    """
    try:
        return kind(value)
    except ValueError:
        *others, last = kind
        raise InvalidInput(f"{name} must be {', '.join(others)} or {last}, not {value!r}") from None
