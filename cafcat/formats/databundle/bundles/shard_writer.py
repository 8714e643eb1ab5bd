"""Writing one shard file of a bundle: records of 256 KiB, each compressed as a whole."""

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from cafcat.formats.databundle.bundles.compression import NONE, compressed
from cafcat.formats.databundle.decoding import MOST_RUNS
from cafcat.formats.databundle.layout import (
    HEAD_BYTES,
    LARGE_BYTES,
    RECORD_BYTES,
    ZEROS,
    head_of,
    padding_after,
    record_key,
)
from cafcat.formats.databundle.rows import record_value
from cafcat.support.checksums import crc32c

__all__ = ["ShardPlace", "ShardWriter"]

ShardPlace = tuple[int, int, int]
"""Of a file: its offset in the shard's data before compression, its size in bytes, its CRC-32C."""
_BUFFER_BYTES: Final = 1 << 20


class ShardWriter:
    """A context manager. Memory: a record, and 1 MiB of a file. Errors are OSError."""

    def __init__(
        self, path: Path, method: int, shard: int, shards: int, put_row: Callable[[bytes, bytes], None]
    ) -> None:
        """put_row: takes key and value of each record; of NONE there are none, as offsets are places then."""
        self._file = path.open("xb", buffering=_BUFFER_BYTES)
        self._method = method
        self._shard = shard
        self._put_row = put_row
        self._record = bytearray()
        self._position = 0
        self.offset = 0
        """In the data before compression."""
        self._zero_runs = 0
        """Of the file that is being added."""
        self._after_zeros = False
        self._file.write(head_of(method, shard=shard, shards=shards, metadata_at_eof=False))

    @property
    def stored_bytes(self) -> int:
        """Of the shard file so far."""
        return HEAD_BYTES + self._position

    def add(self, blocks: Iterable[bytes]) -> ShardPlace:
        """A file. One of 1 MiB or more begins a record."""
        self._zero_runs, self._after_zeros = 0, False
        held, is_large, checksum, size_bytes = bytearray(), False, 0, 0
        for block in blocks:
            checksum = crc32c(block, checksum)
            size_bytes += len(block)
            held += block
            if not is_large and len(held) >= LARGE_BYTES:
                is_large = True
                self.end_record()
            if is_large:
                self._put(held)
                held.clear()
        self._put(held)
        return self.offset - size_bytes, size_bytes, checksum

    def _put(self, data: bytearray) -> None:
        at = 0
        while at < len(data):
            room = RECORD_BYTES - len(self._record)
            part = data[at : at + room]
            self._record += part
            self.offset += len(part)
            at += len(part)
            if len(self._record) == RECORD_BYTES:
                self.end_record()

    def end_record(self) -> None:
        """The next byte begins a record."""
        record = bytes(self._record)
        self._record.clear()
        if self._method == NONE:
            self._write(record)
            self.offset = self._position
        elif record:
            begin = self.offset - len(record)
            is_zeros = self._is_zeros(record)
            place = None if is_zeros else self._position
            self._put_row(record_key(self._shard, begin), record_value(begin, place, self._shard))
            if not is_zeros:
                self._write(compressed(self._method, record))

    def _is_zeros(self, record: bytes) -> bool:
        """Whether a record has no bytes. Zeros have some after so many runs: their places in a file stay few."""
        is_zeros = record == ZEROS[: len(record)] and (self._after_zeros or self._zero_runs < MOST_RUNS)
        if is_zeros and not self._after_zeros:
            self._zero_runs += 1
        self._after_zeros = is_zeros
        return is_zeros

    def _write(self, data: bytes) -> None:
        """With padding."""
        padding = padding_after(len(data))
        self._file.write(data + bytes(padding))
        self._position += len(data) + padding

    def finish(self) -> None:
        """Makes it durable."""
        self.end_record()
        self._file.flush()
        os.fsync(self._file.fileno())

    def __enter__(self) -> "ShardWriter":
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._file.close()
