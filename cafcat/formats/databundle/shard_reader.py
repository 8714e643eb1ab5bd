"""Reading one shard file of a bundle by the rows of its index."""

import os
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from cafcat.errors import Corrupt, NotFound, StoreFailed
from cafcat.formats.databundle.bundle_rows import BundleRows, Record
from cafcat.formats.databundle.compression import NONE, decompressed
from cafcat.formats.databundle.layout import HEAD, parse_head

__all__ = ["ShardReader"]

_BLOCK_BYTES: Final = 1 << 20
_HEAD_BYTES: Final = 64 << 10
"""The most of a head that is read: without a table of metadata it has some 30 bytes."""


class ShardReader:
    """A context manager. Keeps the record that was read last. For one thread at a time."""

    def __init__(self, path: Path, rows: BundleRows, shard: int) -> None:
        """Raises NotFound, StoreFailed; Corrupt if its head is not what the bundle says; Unsupported for a
        compression that is not known, or records of more than 8 MiB."""
        self._name = str(path)
        self._rows = rows
        self._shard = shard
        self._shards, self._record_bytes, self._method = rows.config
        rows.config.check_known(self._name)
        self._kept: tuple[int, bytes] = -1, b""
        try:
            self._file = path.open("rb", buffering=0)
        except FileNotFoundError as error:
            raise NotFound(f"the bundle lacks its shard file {path.name}", chunk=self._name) from error
        except OSError as error:
            raise self._failed(error) from error
        try:
            self._size_bytes = os.fstat(self._file.fileno()).st_size
            self._data_start = self._check_head()
        except BaseException:
            self._file.close()
            raise

    def _check_head(self) -> int:
        """Returns where data begin."""
        head = self._read_at(0, min(_HEAD_BYTES, self._size_bytes))
        try:
            header = parse_head(head)
        except ValueError as error:
            raise self._corrupt(f"its head is damaged: {error}", 0) from error
        found = (header.shard_index, header.shard_count, header.record_size, header.compression_method)
        if found != (self._shard, self._shards, self._record_bytes, self._method):
            raise self._corrupt("its head is of another bundle, or another shard", 0)
        data_start: int = HEAD.unpack_from(head)[2]
        return data_start

    def blocks(self, start: int, end: int) -> Iterator[bytes]:
        """The bytes `[start, end)` of the data before compression, in blocks of at most 1 MiB. Raises Corrupt."""
        if self._method == NONE:
            yield from self._stored(start, end)
        elif start < end:
            yield from self._of_records(start, end)

    def _stored(self, start: int, end: int) -> Iterator[bytes]:
        if self._data_start + end > self._size_bytes and start < end:
            raise self._corrupt(f"a file ends at byte {end:,} of its data, beyond its end", self._size_bytes)
        for position in range(start, end, _BLOCK_BYTES):
            yield self._read_at(self._data_start + position, self._data_start + min(position + _BLOCK_BYTES, end))

    def _of_records(self, start: int, end: int) -> Iterator[bytes]:
        position = start
        for record in self._rows.records(self._shard, start):
            content = self._content(record)
            part = content[position - record.offset : end - record.offset]
            if not part:
                raise self._corrupt(f"no record has byte {position:,} of its data", record.position)
            for at in range(0, len(part), _BLOCK_BYTES):
                yield part[at : at + _BLOCK_BYTES]
            position += len(part)
            if position == end:
                return
        raise self._corrupt(f"no record has byte {position:,} of its data")

    def _content(self, record: Record) -> bytes:
        if self._kept[0] != record.offset:
            self._kept = record.offset, self._read_record(record)
        return self._kept[1]

    def _read_record(self, record: Record) -> bytes:
        most = self._record_bytes if record.end is None else record.end - record.offset
        if record.position is None:
            return bytes(most)
        position = self._data_start + record.position
        end = min(self._data_start + record.stored_end, self._size_bytes)
        if position >= end:
            raise self._corrupt("a record is beyond its end, or has no bytes", position)
        try:
            content = decompressed(self._method, self._read_at(position, end), most)
        except ValueError as error:
            raise self._corrupt(f"a record is damaged: {error}", position) from error
        if record.end is not None and len(content) != most:
            raise self._corrupt(f"a record has {len(content):,} bytes, not {most:,}", position)
        return content

    def _read_at(self, start: int, end: int) -> bytes:
        try:
            data = os.pread(self._file.fileno(), end - start, start)
        except OSError as error:
            raise self._failed(error) from error
        if len(data) != end - start:
            raise self._corrupt("it became shorter", start + len(data))
        return data

    def _corrupt(self, message: str, byte: int | None = None) -> Corrupt:
        return Corrupt(f"the shard is damaged: {message}", chunk=self._name, byte=byte)

    def _failed(self, error: OSError) -> StoreFailed:
        return StoreFailed(f"the shard cannot be read: {error.strerror or error}", chunk=self._name)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
