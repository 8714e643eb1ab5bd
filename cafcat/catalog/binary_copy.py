"""Rows as Postgres' binary COPY takes them."""

from collections.abc import Iterator
from typing import Final

from cafcat.support.spool import Spool

__all__ = ["EPOCH_MICROSECONDS", "NULL", "copy_stream"]

# PostgreSQL documentation, COPY, "Binary Format": signature, flags, length of the header extension; then rows
# of a field count and length-prefixed fields, all big-endian; then -1.
_HEADER: Final = b"PGCOPY\n\xff\r\n\0" + bytes(8)
_TRAILER: Final = b"\xff\xff"
NULL: Final = b"\xff\xff\xff\xff"
"""A field that has no value."""
EPOCH_MICROSECONDS: Final = 946_684_800_000_000
"""Postgres counts time from 2000-01-01 UTC; this is that moment in microseconds since 1970."""


def copy_stream(rows: Spool) -> Iterator[bytes]:
    """The whole stream of encoded rows in blocks of at most 256 KiB. Can be had again."""
    yield _HEADER
    yield from rows.blocks_from(0)
    yield _TRAILER
