"""Writes one shard file of a bundle: records of 256 KiB, each compressed on its own, or uncompressed files."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from cafcat.formats.databundle.bundles.compression import NONE, compress_record
from cafcat.formats.databundle.bundles.index import IndexBatch
from cafcat.formats.databundle.decoding import MAX_ZERO_RUNS
from cafcat.formats.databundle.layout import (
    HEAD_BYTES,
    LARGE_BYTES,
    RECORD_BYTES,
    ZEROS,
    encode_head,
    padding_after,
    record_key,
)
from cafcat.formats.databundle.rows import record_value
from cafcat.support.checksums import crc32c

__all__ = ["ShardWriter", "StoredFile"]

StoredFile = tuple[int, int, int]
"""The position of a file: its offset in the data of the shard (bytes before compression), its size in bytes, its
CRC-32C."""
_BUFFER_BYTES: Final = 1 << 20


class ShardWriter:
    """Writes one shard file of a bundle. A context manager. Methods raise OSError if the file cannot be written.

    Memory: some 3 MiB, and one block of the file that is being added.

    Attributes:
        offset: current offset in the data of the shard, in bytes before compression.
    """

    def __init__(self, path: Path, method: int, shard: int, shards: int, rows: IndexBatch) -> None:
        """Create the file and write its head.

        Args:
            path: path of the file, which must not exist.
            method: the compression method, a value of `compression.METHODS`.
            shard: number of the shard.
            shards: number of shards in the bundle.
            rows: receives a row for each record. With the method NONE there are no such rows, because offsets are
                positions.
        """
        self._file = path.open("xb", buffering=_BUFFER_BYTES)
        self._method = method
        self._shard = shard
        self._rows = rows
        self._record = bytearray()
        self._position = 0
        self.offset = 0
        self._zero_runs = 0
        """Number of runs of zero records in the current file."""
        self._after_zeros = False
        self._file.write(encode_head(method, shard=shard, shards=shards, metadata_at_eof=False))

    @property
    def stored_bytes(self) -> int:
        """Current size of the shard file in bytes."""
        return HEAD_BYTES + self._position

    def add(self, blocks: Iterable[bytes]) -> StoredFile:
        """Append a file, given in blocks of any size, and return its position, size and CRC-32C.

        A file of 1 MiB or more begins a new record. Errors of `blocks` pass through.
        """
        self._zero_runs, self._after_zeros = 0, False
        buffer, is_large, checksum, size_bytes = bytearray(), False, 0, 0
        for block in blocks:
            checksum = crc32c(block, checksum)
            size_bytes += len(block)
            buffer += block
            if not is_large and len(buffer) >= LARGE_BYTES:
                is_large = True
                self.end_record()
            if is_large:
                self._add_bytes(buffer)
                buffer.clear()
        self._add_bytes(buffer)
        return self.offset - size_bytes, size_bytes, checksum

    def _add_bytes(self, data: bytearray) -> None:
        offset = 0
        while offset < len(data):
            space = RECORD_BYTES - len(self._record)
            part = data[offset : offset + space]
            self._record += part
            self.offset += len(part)
            offset += len(part)
            if len(self._record) == RECORD_BYTES:
                self.end_record()

    def end_record(self) -> None:
        """Write the open record, if any, with its padding, and add its row. A record of zeros gets only a row.

        With the method NONE, zeros are written, too, and there are no rows. After 24 runs of zero records in one
        file, zeros are written with any method.
        """
        record = bytes(self._record)
        self._record.clear()
        if self._method == NONE:
            self._write(record)
            self.offset = self._position
        elif record:
            begin = self.offset - len(record)
            is_zeros = self._is_zeros(record)
            position = None if is_zeros else self._position
            self._rows.put(record_key(self._shard, begin), record_value(begin, position, self._shard))
            if not is_zeros:
                self._write(compress_record(self._method, record))

    def _is_zeros(self, record: bytes) -> bool:
        """Return True if a record consists of zeros and is to be stored without bytes.

        After 24 runs of zero records in a file, further zeros are stored, so that the list of runs stays short.
        """
        is_zeros = record == ZEROS[: len(record)] and (self._after_zeros or self._zero_runs < MAX_ZERO_RUNS)
        if is_zeros and not self._after_zeros:
            self._zero_runs += 1
        self._after_zeros = is_zeros
        return is_zeros

    def _write(self, data: bytes) -> None:
        """Write stored bytes, and the padding up to the next possible start of a record."""
        padding = padding_after(len(data))
        self._file.write(data + bytes(padding))
        self._position += len(data) + padding

    def finish(self) -> None:
        """Write the last record, and make the content of the file durable."""
        self.end_record()
        self._file.flush()
        os.fsync(self._file.fileno())

    def __enter__(self) -> "ShardWriter":
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._file.close()
