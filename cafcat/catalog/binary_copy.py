"""The binary format of PostgreSQL's COPY."""

from collections.abc import Iterator
from typing import Final

from cafcat.support.spool import Spool

__all__ = ["EPOCH_MICROSECONDS", "HEADER", "NULL", "TRAILER", "copy_stream"]

# PostgreSQL documentation, COPY, "Binary Format": signature, flags, length of the header extension; then rows
# of a field count and length-prefixed fields, all big-endian; then -1.
HEADER: Final = b"PGCOPY\n\xff\r\n\0" + bytes(8)
"""First bytes of a stream."""
TRAILER: Final = b"\xff\xff"
"""Last bytes of a stream."""
NULL: Final = b"\xff\xff\xff\xff"
"""Length prefix of a field that is NULL."""
EPOCH_MICROSECONDS: Final = 946_684_800_000_000
"""PostgreSQL's epoch, 2000-01-01 UTC, in microseconds since 1970 UTC."""


def copy_stream(rows: Spool) -> Iterator[bytes]:
    """Yield a complete COPY stream: its header, the rows, and its trailer, in blocks of at most 256 KiB.

    Args:
        rows: The encoded rows. They stay in the spool, so that further calls can stream them again.
    """
    yield HEADER
    yield from rows.blocks_from(0)
    yield TRAILER
