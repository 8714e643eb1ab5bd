"""Converts sizes from and to text, and times to the precision of the catalog.

SI units are powers of 1000 (kB, MB, GB), IEC units powers of 1024 (KiB, MiB, GiB).
"""

import re
from decimal import Decimal

from cafcat.errors import InvalidInput

__all__ = ["format_size", "is_int64", "parse_rate", "parse_size", "plural", "to_microseconds", "to_nanoseconds"]

_PREFIXES = "kMGTPE"
_SIZE = re.compile(r"(\d{1,19}(?:\.\d{1,19})?)\s*(?:([kmgtpe])(i?))?b?", re.ASCII | re.IGNORECASE)
_LARGEST = 2**63 - 1

_FIRST_MICROSECOND = -62_135_596_800_000_000
_LAST_MICROSECOND = 253_402_300_799_999_999


def parse_size(text: str | int) -> int:
    """Parse a size such as "30GB", "20 MB", "1.5GiB", "4k" or "1000", and return it in bytes.

    Raises InvalidInput if the text is not a size, or exceeds 2^63-1 bytes.
    """
    match = _SIZE.fullmatch(str(text).strip())
    if not match:
        raise InvalidInput(f"not a size: {text!r}", hint="write a size as 30GB, 1.5GiB or 1000")
    number, prefix, binary = match.groups()
    power = _PREFIXES.lower().index(prefix.lower()) + 1 if prefix else 0
    size = int(Decimal(number) * (1024 if binary else 1000) ** power)
    if size > _LARGEST:
        raise InvalidInput(f"size too large: {text!r}", hint=f"the largest size is {_LARGEST} bytes")
    return size


def parse_rate(text: str | int) -> int:
    """Parse a rate such as "100MB/s" or "1.5GiB", and return it in bytes per second.

    Raises InvalidInput if the text is not a rate, or is 0.
    """
    number = str(text).strip()
    try:
        rate = 0 if isinstance(text, bool) else parse_size(number.removesuffix("/s"))
    except InvalidInput:
        rate = 0
    if not rate:
        raise InvalidInput(f"not a number of bytes per second: {text!r}", hint="write 100MB/s or 12MiB/s")
    return rate


def format_size(size_bytes: int) -> str:
    """Return a size in SI units with one decimal: 999 -> "999 B", 1500 -> "1.5 kB", 30_000_000_000 -> "30.0 GB"."""
    if abs(size_bytes) < 1000:
        return f"{size_bytes} B"
    value, unit = float(size_bytes), ""
    for prefix in _PREFIXES:
        value, unit = value / 1000, prefix
        if abs(value) < 999.95:  # 999,950 bytes are shown as "1.0 MB", not as "1000.0 kB"
            break
    return f"{value:.1f} {unit}B"


def to_microseconds(modified_ns: int) -> int:
    """Convert a time to microseconds since 1970 UTC, rounded down, as the catalog stores it.

    A time before the year 1 or after 9999 becomes the first or last microsecond of these years. File systems can
    have such times, but clients of Postgres and calendars cannot.

    Args:
        modified_ns: Time in nanoseconds since 1970 UTC.
    """
    microseconds = modified_ns // 1000
    if _FIRST_MICROSECOND <= microseconds <= _LAST_MICROSECOND:
        return microseconds
    return _FIRST_MICROSECOND if microseconds < 0 else _LAST_MICROSECOND


def to_nanoseconds(microseconds: int | None) -> int | None:
    """Convert a time of the catalog from microseconds to nanoseconds since 1970 UTC. None stays None."""
    return None if microseconds is None else microseconds * 1000


def is_int64(number: int) -> bool:
    """Return True if a number fits into 64 bits with a sign, as nanoseconds of the years 1678 to 2261 do."""
    return -(1 << 63) <= number < 1 << 63


def plural(count: int, word: str) -> str:
    """Return a number with a noun, in the plural unless the number is 1: "1 file", "2 files", "2 copies"."""
    if count == 1:
        return f"{count} {word}"
    return f"{count} {word[:-1]}ies" if word.endswith("copy") else f"{count} {word}s"
