"""Parses the header Range (RFC 9110, 14.2)."""

import re
from collections.abc import Sequence
from typing import Final

__all__ = ["Unsatisfiable", "ranges_of"]

_MOST_RANGES: Final = 64
"""A request for more ranges than this gets the whole file: so many small ranges cost more than the file."""
_RANGE: Final = re.compile(rb"[ \t]*(\d*)-(\d*)[ \t]*", re.ASCII)
_MOST_DIGITS: Final = 18


class Unsatisfiable(Exception):
    """No range of the request has a byte of the file."""


def ranges_of(header: bytes, size_bytes: int) -> Sequence[tuple[int, int]] | None:
    """Return the requested ranges of a file, in their order.

    Args:
        header: Value of the header Range.
        size_bytes: Size of the file.

    Returns:
        Start and end of each range, `[start, end)`. None to answer with the whole file: the header is not valid,
        has another unit or too many ranges, or asks for more bytes than the file has; or the file is empty.

    Raises:
        Unsatisfiable: The header is valid, but all ranges begin behind the end of the file.
    """
    unit, _, text = header.partition(b"=")
    if unit.strip().lower() != b"bytes" or not size_bytes:
        return None
    specs = [spec for spec in text.split(b",") if spec.strip()]
    if not 0 < len(specs) <= _MOST_RANGES:
        return None
    found: list[tuple[int, int]] = []
    for spec in specs:
        one = _range(spec, size_bytes)
        if one is None:
            return None
        if one[0] < one[1]:
            found.append(one)
    if not found:
        raise Unsatisfiable
    return found if sum(end - start for start, end in found) <= size_bytes else None


def _range(spec: bytes, size_bytes: int) -> tuple[int, int] | None:
    """Return one range, cut to the file. It is empty if it has no byte of the file; None if it is not valid."""
    match = _RANGE.fullmatch(spec)
    if match is None or len(spec) > 2 * _MOST_DIGITS:
        return None
    first, last = match.groups()
    if not first:
        return (max(0, size_bytes - int(last)), size_bytes) if last else None
    start = int(first)
    if not last:
        return min(start, size_bytes), size_bytes
    end = int(last) + 1
    return (min(start, size_bytes), min(end, size_bytes)) if start < end else None
