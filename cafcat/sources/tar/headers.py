"""Decodes single headers of a tar archive, and makes the errors for damaged archives.

The format: POSIX.1-2017, pax, "ustar Interchange Format" and "pax Extended Header". The parameter `at` is the
offset of a header in the archive, in bytes. It is used in messages.
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
"""Size of a block in bytes. Headers and contents begin at multiples of this size."""
_TIME: Final = decimal.Context(prec=40, rounding=decimal.ROUND_FLOOR)
_MAX_SECONDS_DIGITS: Final = 20
"""Most digits before the decimal point of a time."""


def decoded(block: bytes, at: int) -> TarInfo:
    """Return the tar header in a block of 512 bytes. Raises SourceFailed if the header is not valid."""
    try:
        header = TarInfo.frombuf(block, "utf-8", "surrogateescape")
    except (HeaderError, ValueError) as error:
        message = f"there is no valid header at byte {at:,} ({error}): the rest of the archive is not read"
        raise damaged(message) from error
    if header.size < 0:
        raise damaged(f"the header at byte {at:,} has a negative size: the rest of the archive is not read")
    return header


def is_header(block: bytes) -> bool:
    """Return True if a block of 512 bytes is the header of a tar member: its checksum must be right.

    A checksum field without digits is refused. tarfile reads it as 0, and a block of compressed data can have the
    checksum 0, because tarfile also accepts the sum of the bytes as signed numbers.
    """
    if not block[148:156].strip(b"\0 "):
        return False
    try:
        TarInfo.frombuf(block, "utf-8", "surrogateescape")
    except (HeaderError, ValueError):
        return False
    return True


def damaged(message: str) -> SourceFailed:
    """Return the SourceFailed for a damaged archive, with this message."""
    return SourceFailed(message, problem=ProblemKind.CORRUPT.value)


def cut(end_byte: int, expected_byte: int, what: str) -> SourceFailed:
    """Return the SourceFailed for an archive that ends too early.

    Args:
        end_byte: Size of the archive in bytes, as it is.
        expected_byte: Offset up to which the archive should have bytes.
        what: The part of the archive that is incomplete, such as "a header".
    """
    return damaged(f"the archive is cut: it ends at byte {end_byte:,}, within {what} up to byte {expected_byte:,}")


def bad_map(at: int) -> SourceFailed:
    """Return the SourceFailed for a sparse member whose list of pieces is not valid."""
    return damaged(f"the sparse member at byte {at:,} has a bad map: the rest of the archive is not read")


def whole_blocks(size_bytes: int) -> int:
    """Return how many bytes contents of this size take in a tar archive: the size rounded up to whole blocks."""
    return -(-size_bytes // BLOCK_BYTES) * BLOCK_BYTES


def as_text(name: bytes) -> str:
    """Decode a name. Bytes that are not UTF-8 become lone surrogates, as in names of the operating system."""
    return name.decode("utf-8", "surrogateescape")


def up_to_nul(field: bytes) -> str:
    """Return the name in a field of a header: the text before the first NUL byte, decoded by `as_text`."""
    return as_text(field.partition(b"\0")[0])


def own_name(block: bytes) -> str:
    """Return the name of a member in its header block.

    Only a ustar header has a prefix of the name. Old GNU archives have other values at this place, such as times.
    """
    name = up_to_nul(block[:100])
    prefix = up_to_nul(block[345:500]) if block[257:263] == b"ustar\0" else ""
    return f"{prefix}/{name}" if prefix else name


def pax_records(data: bytes, at: int) -> Iterator[tuple[bytes, bytes]]:
    r"""Yield keyword and value of each record "<length> <keyword>=<value>\n" of an extended header.

    Args:
        data: The extended header.
        at: Its offset in the archive in bytes, for messages.

    Raises:
        SourceFailed: A record is not valid.
    """
    begin = 0
    while begin < len(data) and data[begin]:
        digits, space, _ = data[begin : begin + 20].partition(b" ")
        end = begin + (int(digits) if digits.isdigit() else 0)
        keyword, equals, value = data[begin + len(digits) + 1 : end].partition(b"=")
        if end > len(data) or not (space and keyword and equals and value.endswith(b"\n")):
            raise damaged(
                f"the extended header at byte {at:,} has a bad record: the rest of the archive is not read"
            )
        yield keyword, value[:-1]
        begin = end


def decimal_number(digits: bytes, at: int) -> int:
    """Return a decimal number of an extended header or a sparse map.

    Raises SourceFailed if it is not a number of at most 20 digits.
    """
    if not digits.isdigit() or len(digits) > 20:
        raise damaged(
            f"the header at byte {at:,} has {digits[:20]!r} for a number: the rest of the archive is not read"
        )
    return int(digits)


def octal_number(field: bytes, at: int) -> int:
    """Return a number of a sparse map in a header block.

    The number is octal, or binary after a first byte 0x80; an empty field is 0. Raises SourceFailed if the field
    has anything else.
    """
    if field[0] == 0x80:
        return int.from_bytes(field[1:])
    digits = field.partition(b"\0")[0].strip()
    if digits.strip(b"01234567"):
        raise bad_map(at)
    return int(digits or b"0", 8)


def modified_ns(exact: bytes | None, seconds: int) -> int:
    """Return a time in nanoseconds since 1970 UTC, rounded down.

    Args:
        exact: Time in an extended header: seconds as decimal text. None if there is none.
        seconds: Time in the header block. It is used if `exact` is missing, not a number, or 10^20 and more.
    """
    if not exact:
        return seconds * 10**9
    try:
        time = decimal.Decimal(exact.decode("ascii"))
    except (decimal.InvalidOperation, UnicodeDecodeError):
        return seconds * 10**9
    if not time.is_finite() or time.adjusted() >= _MAX_SECONDS_DIGITS:
        return seconds * 10**9
    return int(_TIME.to_integral_value(_TIME.multiply(time, decimal.Decimal(10**9))))
