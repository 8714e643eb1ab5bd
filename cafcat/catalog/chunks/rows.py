"""All rows of one chunk, live and retired, in the order of their bytes.

Postgres hands them over at once, and they wait in a temporary file: reading a chunk may take minutes, and no
transaction is open meanwhile.
"""

from collections.abc import Iterable, Iterator
from itertools import islice
from struct import Struct
from typing import Final, NamedTuple

from cafcat.catalog.binary_copy import EPOCH_MICROSECONDS, NULL
from cafcat.support.spool import Spool

__all__ = ["COPY_ROWS", "ChunkRow", "ChunkRows"]

_MEMORY_BYTES: Final = 8 << 20
_ROWS_AT_ONCE: Final = 1000
_BLOCK_BYTES: Final = 1 << 20

COPY_ROWS: Final = """
COPY (
    SELECT start_byte, end_byte, crc32c, coalesce(modified_at, '-infinity'), is_live, file_path, content_bytes,
           decoding
    FROM (SELECT start_byte, end_byte, crc32c, modified_at, 1::bigint AS is_live, file_path, content_bytes, decoding
          FROM file_locations WHERE caf_file_id = %(chunk)s
          UNION ALL
          SELECT start_byte, end_byte, crc32c, modified_at, 0::bigint, file_path, content_bytes, decoding
          FROM retired_locations WHERE caf_file_id = %(chunk)s) AS entries
    ORDER BY start_byte, end_byte, file_path
) TO STDOUT (FORMAT BINARY)
"""
"""What ChunkRows takes. One statement: an entry that is being retired or brought back is seen once."""

# PostgreSQL documentation, COPY, "Binary Format": 19 bytes of head; each row is a field count and, for each field,
# its length and itself. Those before the path are of 8 bytes; those behind it are not there for most rows.
_HEAD_BYTES: Final = 19
_ROW: Final = Struct(">6xq4xq4xq4xq4xqi")
_NOTHING: Final = NULL + NULL
_FURTHER_BYTES: Final = len(_NOTHING)
_FURTHER: Final = Struct(">4xqi")
_NO_TIME: Final = -(1 << 63)
"""How Postgres sends -infinity."""


class ChunkRow(NamedTuple):
    """An entry as the catalog has it; modified_us: microseconds since 1970 UTC; content_bytes, decoding: as in
    Entry."""

    path: str
    start_byte: int
    end_byte: int
    crc32c: int
    modified_us: int | None
    is_live: bool
    content_bytes: int | None = None
    decoding: str | None = None


_new_tuple: Final = tuple.__new__


class ChunkRows(Spool):
    """Can be gone through again and again; memory does not depend on the number of rows."""

    def __init__(self, blocks: Iterable[bytes | bytearray | memoryview]) -> None:
        """Args: blocks: what COPY_ROWS gives. Raises StoreFailed if the temporary file fails."""
        super().__init__("the rows of a chunk", _MEMORY_BYTES)
        rows = iter(blocks)
        while some := b"".join(islice(rows, _ROWS_AT_ONCE)):  # Postgres sends each row for itself
            self.write(some)
        self.flush()

    def __iter__(self) -> Iterator[ChunkRow]:
        """In order of start_byte, end_byte and path. One way through at a time."""
        text, unpack, head_bytes = b"", _ROW.unpack_from, _ROW.size
        for block in self.blocks_from(_HEAD_BYTES, _BLOCK_BYTES):
            text += block
            at, length = 0, len(text)
            while at + head_bytes <= length:
                start, end, crc32c, time, is_live, path_bytes = unpack(text, at)
                path_end = at + head_bytes + path_bytes
                row_end = path_end + _FURTHER_BYTES
                if row_end > length:
                    break
                content_bytes = decoding = None
                if text[path_end:row_end] != _NOTHING:
                    further = _further(text, path_end)
                    if further is None:
                        break
                    content_bytes, decoding, row_end = further
                path = text[at + head_bytes : path_end].decode()
                modified_us = None if time == _NO_TIME else time + EPOCH_MICROSECONDS
                # What ChunkRow(...) does, without the cost of a Python call.
                columns = (path, start, end, crc32c, modified_us, is_live == 1, content_bytes, decoding)
                yield _new_tuple(ChunkRow, columns)
                at = row_end
            text = text[at:]


def _further(text: bytes, at: int) -> tuple[int, str, int] | None:
    """content_bytes and decoding, which begin there, and where they end; None if the text ends before."""
    if at + _FURTHER.size > len(text):
        return None
    content_bytes, decoding_bytes = _FURTHER.unpack_from(text, at)
    begin = at + _FURTHER.size
    end = begin + decoding_bytes
    return None if end > len(text) else (content_bytes, text[begin:end].decode(), end)
