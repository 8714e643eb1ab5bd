"""What single headers of a tar archive say, and how an archive is said to be damaged.

The format: POSIX.1-2017, pax, "ustar Interchange Format" and "pax Extended Header". `at` is where a header begins,
in bytes from the start of the archive: for messages.
"""

import decimal
from collections.abc import Iterator
from tarfile import HeaderError, TarInfo
from typing import Final

from cafcat.errors import SourceFailed
from cafcat.model import ProblemKind

__all__ = [
    "BLOCK_BYTES",
    "as_text",
    "bad_map",
    "cut",
    "damaged",
    "decimal_number",
    "decoded",
    "is_header",
    "modified_ns",
    "octal_number",
    "own_name",
    "pax_records",
    "up_to_nul",
    "whole_blocks",
]

BLOCK_BYTES: Final = 512
_TIME: Final = decimal.Context(prec=40, rounding=decimal.ROUND_FLOOR)
_MAX_SECONDS_DIGITS: Final = 20


def decoded(block: bytes, at: int) -> TarInfo:
    """The header block at that byte. Raises SourceFailed."""
    try:
        header = TarInfo.frombuf(block, "utf-8", "surrogateescape")
    except (HeaderError, ValueError) as error:
        message = f"no valid header at byte {at:,} ({error}): damaged, or no tar; nothing after it is taken"
        raise damaged(message) from error
    if header.size < 0:
        raise damaged(f"the header at byte {at:,} has a size below zero; nothing after it is taken")
    return header


def is_header(block: bytes) -> bool:
    """Whether this is a header block, by its checksum. One without digits is none: tarfile takes it for 0, which is
    also what it makes of the signed bytes of some compressed zeros."""
    if not block[148:156].strip(b"\0 "):
        return False
    try:
        TarInfo.frombuf(block, "utf-8", "surrogateescape")
    except (HeaderError, ValueError):
        return False
    return True


def damaged(message: str) -> SourceFailed:
    """The archive is not what it should be."""
    return SourceFailed(message, problem=ProblemKind.CORRUPT.value)


def cut(end_byte: int, expected_byte: int, what: str) -> SourceFailed:
    """The archive ends too early."""
    return damaged(f"ends at byte {end_byte:,}, within {what} up to byte {expected_byte:,}: it is cut")


def bad_map(at: int) -> SourceFailed:
    """A sparse member does not say which pieces it has."""
    return damaged(f"the sparse member at byte {at:,} has a bad map; nothing after it is taken")


def whole_blocks(size_bytes: int) -> int:
    """The bytes that so many take in an archive."""
    return -(-size_bytes // BLOCK_BYTES) * BLOCK_BYTES


def as_text(name: bytes) -> str:
    """A name; bytes that are not UTF-8 become lone surrogates, as in names of the operating system."""
    return name.decode("utf-8", "surrogateescape")


def up_to_nul(field: bytes) -> str:
    """The name in a field that is filled with NUL bytes."""
    return as_text(field.partition(b"\0")[0])


def own_name(block: bytes) -> str:
    """The name in a header block. Only ustar has a prefix: old GNU archives have other things in its place, times
    in incremental ones."""
    name = up_to_nul(block[:100])
    prefix = up_to_nul(block[345:500]) if block[257:263] == b"ustar\0" else ""
    return f"{prefix}/{name}" if prefix else name


def pax_records(data: bytes, at: int) -> Iterator[tuple[bytes, bytes]]:
    """Keyword and value of each record "<length> <keyword>=<value>\\n" of the extended header at that byte. Raises
    SourceFailed."""
    begin = 0
    while begin < len(data) and data[begin]:
        digits, space, _ = data[begin : begin + 20].partition(b" ")
        end = begin + (int(digits) if digits.isdigit() else 0)
        keyword, equals, value = data[begin + len(digits) + 1 : end].partition(b"=")
        if end > len(data) or not (space and keyword and equals and value.endswith(b"\n")):
            raise damaged(f"the extended header at byte {at:,} has a bad record; nothing after it is taken")
        yield keyword, value[:-1]
        begin = end


def decimal_number(digits: bytes, at: int) -> int:
    """A number of an extended header or of a sparse map. Raises SourceFailed."""
    if not digits.isdigit() or len(digits) > 20:
        raise damaged(f"the header at byte {at:,} has {digits[:20]!r} for a number; nothing after it is taken")
    return int(digits)


def octal_number(field: bytes, at: int) -> int:
    """A number of a sparse map in a header block: octal, or base 256, marked by the first bit. Raises
    SourceFailed."""
    if field[0] == 0x80:
        return int.from_bytes(field[1:])
    digits = field.partition(b"\0")[0].strip()
    if digits.strip(b"01234567"):
        raise bad_map(at)
    return int(digits or b"0", 8)


def modified_ns(exact: bytes | None, seconds: int) -> int:
    """The time that the decimal text of an extended header says, rounded down; the whole seconds of the header
    block if there is none or it is no number."""
    if not exact:
        return seconds * 10**9
    try:
        time = decimal.Decimal(exact.decode("ascii"))
    except (decimal.InvalidOperation, UnicodeDecodeError):
        return seconds * 10**9
    if not time.is_finite() or time.adjusted() >= _MAX_SECONDS_DIGITS:
        return seconds * 10**9
    return int(_TIME.to_integral_value(_TIME.multiply(time, decimal.Decimal(10**9))))
