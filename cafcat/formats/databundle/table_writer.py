"""Collects the table of metadata of a DataBundle while its shard file is written."""

from collections.abc import Iterator
from typing import Final

from cafcat.formats.databundle.bundles.compression import ZLIB
from cafcat.formats.databundle.layout import HEAD_BYTES, config_key, encode_config
from cafcat.formats.databundle.rows import record_row, row
from cafcat.support.checksums import crc32c
from cafcat.support.spool import Spool

__all__ = ["TableWriter"]

_MEMORY_BYTES: Final = 8 << 20
"""A table of more bytes spills to a temporary file."""
_FLUSH_BYTES: Final = 256 << 10
_BLOCK_BYTES: Final = 1 << 20


class TableWriter:
    """Collects the rows of a DataBundle's table. If they exceed 8 MiB, they move to a temporary file.

    Methods raise TemporaryFileFailed if the temporary file fails.

    Attributes:
        size_bytes: size of all rows so far in bytes.
        crc32c: CRC-32C of all rows, valid once `blocks` has yielded them.
    """

    def __init__(self) -> None:
        """Begin the table with the row of the bundle's configuration."""
        self._rows = Spool("a table of metadata", _MEMORY_BYTES)
        self._pending = bytearray(row(config_key(), encode_config(ZLIB, 1)))
        self.size_bytes = len(self._pending)
        self.crc32c = 0

    def add(self, encoded: bytes) -> None:
        """Append an encoded row, as `row` returns it."""
        self._pending += encoded
        self.size_bytes += len(encoded)
        if len(self._pending) >= _FLUSH_BYTES:
            self._spool()

    def add_record(self, offset: int, position: int | None) -> None:
        """Append the row of a record.

        Args:
            offset: offset of the record in the data of all records, in bytes before compression.
            position: position of the record in the shard file in bytes; None for a record of zeros, which has no
                bytes.
        """
        self.add(record_row(offset, None if position is None else position - HEAD_BYTES))

    def blocks(self) -> Iterator[bytes]:
        """Yield all rows in blocks of at most 1 MiB, and remove the temporary file. Call this once, at the end."""
        self._spool()
        with self._rows:
            yield from self._rows.blocks_from(0, _BLOCK_BYTES)

    def _spool(self) -> None:
        rows = bytes(self._pending)
        self._rows.write(rows)
        self.crc32c = crc32c(rows, self.crc32c)
        self._pending.clear()
