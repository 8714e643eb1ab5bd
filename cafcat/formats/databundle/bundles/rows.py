"""What the rows of a bundle say, wherever they are: in its index, or in the head of a shard."""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple, Protocol

from cafcat.errors import Corrupt, Unsupported
from cafcat.formats.databundle.bundles.compression import METHODS, most_stored_bytes
from cafcat.formats.databundle.layout import MOST_RECORD_BYTES, VERSION_MAGIC, config_key, path_of, record_key
from cafcat.formats.databundle.messages import DIRECTORY, REGULAR, messages

__all__ = ["BundleConfig", "BundleFile", "BundleRows", "Record", "RowSource", "UserData"]

_MOST_ZERO_ROWS: Final = 4096
"""So many rows of zeros are passed over to see where a record before them ends."""


class RowSource(Protocol):
    """Rows by their keys."""

    def get(self, key: bytes) -> bytes | None: ...

    def files(self) -> Iterator[tuple[bytes, bytes]]:
        """All rows of FILE_METADATA, by folder and name."""

    def records(self, shard: int, offset: int) -> Iterator[tuple[bytes, bytes]]:
        """The rows of a shard from the record on that has this offset; none if there is none before or at it."""


class UserData(NamedTuple):
    """A google.protobuf.Any of whoever makes the bundle."""

    type_url: str
    value: bytes


class BundleFile(NamedTuple):
    """What the index says of a file or directory; offset: in the data of its shard before compression."""

    path: str
    is_directory: bool
    shard: int
    offset: int
    size_bytes: int
    crc32c: int
    user_data: UserData | None = None


class Record(NamedTuple):
    """Before compression it is `[offset, end)`; end: None if it is the last. It is stored from `position` on, as
    counted from the first data byte of its shard, or nowhere if that is None, and then zeros; stored_end: where it
    ends there at the latest, with its padding."""

    offset: int
    end: int | None
    position: int | None
    stored_end: int


class BundleConfig(NamedTuple):
    """Of all shards; record_bytes: of a record before compression, at most."""

    shards: int
    record_bytes: int
    method: int

    def check_known(self, name: str) -> None:
        """Raises Unsupported for a compression that is not known, or records of more than 8 MiB."""
        if self.method not in METHODS.values() or not 0 < self.record_bytes <= MOST_RECORD_BYTES:
            message = f"records of {self.record_bytes:,} bytes with compression {self.method} are not known"
            raise Unsupported(message, chunk=name)


class BundleRows:
    """The rows, understood. What cannot be understood raises Corrupt."""

    def __init__(self, source: RowSource, name: str, config: BundleConfig | None = None) -> None:
        """Args: name: of the bundle, for messages; config: where no row says it."""
        self._source = source
        self._name = name
        self.config = config or self._read_config()

    def _read_config(self) -> BundleConfig:
        value = self._source.get(config_key())
        if value is None:
            raise self.corrupt("its index has no BUNDLE_CONFIG: it was not written to its end")
        config = self._parsed(messages().BundleConfig, value)
        if config.version_magic != VERSION_MAGIC:
            raise self.corrupt(f"its BUNDLE_CONFIG does not say {VERSION_MAGIC}")
        return BundleConfig(int(config.shard_count), int(config.record_size), int(config.compression_method))

    def files(self) -> Iterator[BundleFile]:
        """All files and directories, by folder and name."""
        for key, value in self._source.files():
            yield self.file_of(key, value)

    def get(self, key: bytes) -> BundleFile | None:
        """One of them, by its key."""
        value = self._source.get(key)
        return None if value is None else self.file_of(key, value)

    def file_of(self, key: bytes, value: bytes) -> BundleFile:
        """A row of FILE_METADATA."""
        try:
            path = path_of(key)
        except ValueError as error:
            raise self.corrupt(f"a name in its index cannot be read: {error}") from error
        metadata = self._parsed(messages().FileMetadata, value)
        if path is None or metadata.type not in (REGULAR, DIRECTORY) or metadata.shard_index >= self.config.shards:
            raise self.corrupt("a row of its index makes no sense", path)
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
        """From the one on that has this offset."""
        last: Record | None = None
        for key, value in self._source.records(shard, offset):
            record = self._record(shard, key, value)
            if last is not None:
                yield self._with_end(last, record)
            last = record
        if last is not None:
            yield last

    def _record(self, shard: int, key: bytes, value: bytes) -> Record:
        row = self._parsed(messages().RecordMetadata, value)
        offset = int(row.shard_uncompressed_offset)
        if key != record_key(shard, offset):
            raise self.corrupt("a row of a record is of another than its key says")
        if row.all_zeros:
            return Record(offset, None, None, 0)
        position = int(row.shard_byte_offset)
        return Record(offset, None, position, position + most_stored_bytes(self.config.record_bytes))

    def _with_end(self, record: Record, following: Record) -> Record:
        if not record.offset < following.offset <= record.offset + self.config.record_bytes:
            raise self.corrupt(f"its records are not one after the other at byte {record.offset:,} of their data")
        stored_end = record.stored_end if following.position is None else min(record.stored_end, following.position)
        return record._replace(end=following.offset, stored_end=stored_end)

    def stored_end(self, shard: int, record: Record) -> int:
        """Where a stored record ends at the latest: where the next that is stored begins, also if there are records
        of zeros between."""
        if record.end is None or record.position is None:
            return record.stored_end
        for count, following in enumerate(self.records(shard, record.end)):
            if following.position is not None:
                return min(record.stored_end, following.position)
            if count == _MOST_ZERO_ROWS:
                break
        return record.stored_end

    def _parsed(self, kind: Any, value: bytes) -> Any:
        try:
            return kind.FromString(value)
        except messages().DecodeError as error:
            raise self.corrupt("a row of its index cannot be read") from error

    def corrupt(self, message: str, path: str | None = None) -> Corrupt:
        return Corrupt(f"the bundle is damaged: {message}", path=path, chunk=self._name)
