"""Decodes the rows (keys and values) of a bundle, whether they are in its index or in the head of a shard."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple, Protocol

from cafcat.errors import Corrupt, Unsupported
from cafcat.formats.databundle.bundles.compression import METHODS, max_stored_bytes
from cafcat.formats.databundle.layout import (
    FILE_METADATA,
    MAX_RECORD_BYTES,
    VERSION_MAGIC,
    config_key,
    parse_file_key,
    record_key,
)
from cafcat.formats.databundle.messages import DIRECTORY, REGULAR, messages

__all__ = ["BundleConfig", "BundleFile", "BundleRows", "InlineRows", "Record", "RowSource", "UserData"]

_MAX_ZERO_ROWS: Final = 4096
"""Number of rows of zero records that are read to find the end of the record before them."""


class RowSource(Protocol):
    """Provides the rows of a bundle by their keys: the index, or the head of a shard."""

    def get(self, key: bytes) -> bytes | None:
        """Return the value of the row with this key, or None if there is no such row."""

    def files(self) -> Iterator[tuple[bytes, bytes]]:
        """Return the key and the value of each row of a file or directory, in the order of folder and name."""

    def records(self, shard: int, offset: int) -> Iterator[tuple[bytes, bytes]]:
        """Return the key and the value of each record row of a shard, from the record that contains `offset` on.

        No rows are returned if no record of the shard begins at or before the offset. `offset` is in bytes of data
        before compression.
        """


class InlineRows:
    """The rows of files and records in the head of a shard. Implements `RowSource`.

    All rows are in memory; the size of a head is limited. If a key is repeated, the value that sorts last counts.
    """

    def __init__(self, rows: Iterable[Any]) -> None:
        """Sort the rows by their keys.

        Args:
            rows: BundleMetadataRow messages.
        """
        self._rows = dict(sorted((bytes(row.key), bytes(row.value)) for row in rows))
        self._keys = list(self._rows)

    def get(self, key: bytes) -> bytes | None:
        """Return the value of the row with this key, or None if the head has no such row."""
        return self._rows.get(key)

    def files(self) -> Iterator[tuple[bytes, bytes]]:
        """Return the key and the value of each row of a file or directory, in the order of folder and name."""
        return self._range(bytes([FILE_METADATA]), bytes([FILE_METADATA + 1]))

    def records(self, shard: int, offset: int) -> Iterator[tuple[bytes, bytes]]:
        """Return the key and the value of each record row of a shard, from the record that contains `offset` on.

        No rows are returned if no record of the shard begins at or before the offset. `offset` is in bytes of data
        before compression.
        """
        position = bisect_right(self._keys, record_key(shard, offset)) - 1
        first = record_key(shard, 0)
        if position < 0 or self._keys[position] < first:
            return iter(())
        return self._range(self._keys[position], record_key(shard + 1, 0))

    def _range(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        for key in self._keys[bisect_left(self._keys, start) : bisect_left(self._keys, stop)]:
            yield key, self._rows[key]


class UserData(NamedTuple):
    """Data that the application that made the bundle stored with a file: a google.protobuf.Any.

    Attributes:
        type_url: URL that names the type of the data.
        value: the encoded data.
    """

    type_url: str
    value: bytes


class BundleFile(NamedTuple):
    """A file or directory in a bundle.

    Attributes:
        path: name of the file in the bundle.
        is_directory: True for a directory.
        shard: number of the shard that holds the file.
        offset: offset of the file in the data of the shard, in bytes before compression.
        size_bytes: size of the file in bytes.
        crc32c: CRC-32C of the file.
        user_data: data of the application, or None.
    """

    path: str
    is_directory: bool
    shard: int
    offset: int
    size_bytes: int
    crc32c: int
    user_data: UserData | None = None


class Record(NamedTuple):
    """A record of a shard.

    Attributes:
        offset: start of the record in the data of the shard, in bytes before compression.
        end: end of the record in that data, or None for the last record of the shard.
        position: start of the record's stored bytes, relative to the first data byte; None for a record of zeros
            without stored bytes.
        stored_end: upper bound for the end of the record's stored bytes, including padding; 0 for a record of
            zeros.
    """

    offset: int
    end: int | None
    position: int | None
    stored_end: int


class BundleConfig(NamedTuple):
    """The configuration of a bundle.

    Attributes:
        shards: number of shards.
        record_bytes: largest record in bytes, before compression.
        method: the compression method, a value of `compression.METHODS` if it is known.
    """

    shards: int
    record_bytes: int
    method: int

    def check_supported(self, name: str) -> None:
        """Check that the records of this bundle can be read.

        Args:
            name: name of the bundle or shard, for messages.

        Raises:
            Unsupported: the compression is unknown, or records have more than 8 MiB.
        """
        if self.method not in METHODS.values() or not 0 < self.record_bytes <= MAX_RECORD_BYTES:
            message = f"records of {self.record_bytes:,} bytes with compression {self.method} are not supported"
            raise Unsupported(message, chunk=name)


class BundleRows:
    """Decodes the rows of a bundle. Methods raise Corrupt for invalid rows.

    Attributes:
        config: configuration of the bundle.
    """

    def __init__(self, source: RowSource, name: str, config: BundleConfig | None = None) -> None:
        """Read the configuration of the bundle.

        Args:
            source: the rows.
            name: name of the bundle or shard, for messages.
            config: the configuration, if no row contains it; None to read it from the row BUNDLE_CONFIG.

        Raises:
            Corrupt: the row BUNDLE_CONFIG is missing or damaged, or has another version.
        """
        self._source = source
        self._name = name
        self.config = config or self._read_config()

    def _read_config(self) -> BundleConfig:
        value = self._source.get(config_key())
        if value is None:
            raise self.corrupt("its index has no BUNDLE_CONFIG, so the bundle is incomplete")
        config = self._parse(messages().BundleConfig, value)
        if config.version_magic != VERSION_MAGIC:
            raise self.corrupt(f"the version in its BUNDLE_CONFIG is not {VERSION_MAGIC}")
        return BundleConfig(int(config.shard_count), int(config.record_size), int(config.compression_method))

    def files(self) -> Iterator[BundleFile]:
        """Yield all files and directories, in the order of folder and name."""
        for key, value in self._source.files():
            yield self.parse_file(key, value)

    def get(self, key: bytes) -> BundleFile | None:
        """Return the file or directory with this key (see `file_key`), or None if no row has the key."""
        value = self._source.get(key)
        return None if value is None else self.parse_file(key, value)

    def parse_file(self, key: bytes, value: bytes) -> BundleFile:
        """Decode the row of a file or directory.

        Raises:
            Corrupt: the key or the value is invalid, or names a shard that the bundle does not have.
        """
        try:
            path = parse_file_key(key)
        except ValueError as error:
            raise self.corrupt(f"one of its rows has an invalid file name: {error}") from error
        metadata = self._parse(messages().FileMetadata, value)
        if path is None or metadata.type not in (REGULAR, DIRECTORY) or metadata.shard_index >= self.config.shards:
            raise self.corrupt("the row of a file has an invalid key, type or shard", path)
        user_data = None
        if metadata.HasField("user_data"):
            user_data = UserData(metadata.user_data.type_url, metadata.user_data.value)
        return BundleFile(
            path,
            metadata.type == DIRECTORY,
            metadata.shard_index,
            metadata.shard_uncompressed_offset,
            metadata.uncompressed_size,
            metadata.crc32c,
            user_data,
        )

    def records(self, shard: int, offset: int) -> Iterator[Record]:
        """Yield the records of a shard in order, from the one that contains `offset` on.

        `offset` is in bytes of data before compression. Raises Corrupt for a gap or an overlap of records.
        """
        last: Record | None = None
        for key, value in self._source.records(shard, offset):
            record = self._record(shard, key, value)
            if last is not None:
                yield self._with_end(last, record)
            last = record
        if last is not None:
            yield last

    def _record(self, shard: int, key: bytes, value: bytes) -> Record:
        row = self._parse(messages().RecordMetadata, value)
        offset = int(row.shard_uncompressed_offset)
        if key != record_key(shard, offset):
            raise self.corrupt("the key and the value of a record row are of different records")
        if row.all_zeros:
            return Record(offset, None, None, 0)
        position = int(row.shard_byte_offset)
        return Record(offset, None, position, position + max_stored_bytes(self.config.record_bytes))

    def _with_end(self, record: Record, following: Record) -> Record:
        if not record.offset < following.offset <= record.offset + self.config.record_bytes:
            raise self.corrupt(f"there is a gap or an overlap of records at byte {record.offset:,} of the data")
        stored_end = record.stored_end if following.position is None else min(record.stored_end, following.position)
        return record._replace(end=following.offset, stored_end=stored_end)

    def stored_end(self, shard: int, record: Record) -> int:
        """Return an upper bound for the end of a record's stored bytes, relative to the first data byte.

        Usually it is the start of the next record with stored bytes, even if records of zeros are between the two.
        """
        if record.end is None or record.position is None:
            return record.stored_end
        for count, following in enumerate(self.records(shard, record.end)):
            if following.position is not None:
                return min(record.stored_end, following.position)
            if count == _MAX_ZERO_ROWS:
                break
        return record.stored_end

    def _parse(self, kind: Any, value: bytes) -> Any:
        try:
            return kind.FromString(value)
        except messages().DecodeError as error:
            raise self.corrupt("one of its rows is not a valid message") from error

    def corrupt(self, message: str, path: str | None = None) -> Corrupt:
        """Return (not raise) an error with the name of the bundle, and the file `path` if it is not None."""
        return Corrupt(f"the bundle is damaged: {message}", path=path, chunk=self._name)
