"""The rows of an S3 Inventory, from its data files.

The columns: Amazon S3 User Guide, "Amazon S3 Inventory list". In CSV, keys are URL-encoded, with "+" for a space,
as in other answers of S3. In Parquet they are not.
"""

import csv
import io
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from gzip import BadGzipFile, GzipFile
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol
from urllib.parse import unquote_plus

from cafcat.errors import CafcatError, Corrupt, InvalidInput, NotInstalled
from cafcat.remote.answers import BLOCK_BYTES, nanoseconds, unquoted
from cafcat.sources.names import printable
from cafcat.support.seekable_file import SeekableFile

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow.parquet import ParquetFile

__all__ = ["Columns", "InventoryRow", "Listed", "csv_rows", "parquet_rows"]

_LINE_BYTES: Final = 1 << 16
"""Longest line in bytes. A key has at most 1,024 bytes, and all other columns less."""
_BATCH_ROWS: Final = 8192
"""How many rows of Parquet are read at once."""
_SIZE: Final = re.compile(r"[0-9]{1,18}", re.ASCII)
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_UNIT_NS: Final = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}
_NEEDED: Final = ("Key", "Size", "LastModifiedDate")
"""Columns that every inventory must have."""


class InventoryRow(NamedTuple):
    """The current version of an object of a bucket, as an inventory or a listing describes it.

    Attributes:
        key: Key in the bucket.
        size_bytes: Size in bytes.
        modified_ns: Time of the last modification, in nanoseconds since 1970 UTC.
        etag: Entity tag without quotes; None if the inventory or listing has none.
    """

    key: str
    size_bytes: int
    modified_ns: int
    etag: str | None


class _OtherBucket(Exception):
    """A row of the inventory lists an object of another bucket, whose name is the argument."""

    def found(self, where: str, bucket: str) -> InvalidInput:
        """Return the InvalidInput that is raised for the row.

        Args:
            where: Name of the data file, and number of the line or row.
            bucket: The bucket whose objects the rows must list.
        """
        return InvalidInput(f"inventory {where}: this row is about bucket {str(self)!r}, not {bucket!r}")


class Listed(Protocol):
    """A data file of an inventory."""

    @property
    def name(self) -> str:
        """Name of the file, for messages."""

    def size_bytes(self) -> int:
        """Return the size in bytes."""

    def read_at(self, start_byte: int, end_byte: int) -> bytes:
        """Return the bytes `[start_byte, end_byte)`."""

    def blocks(self) -> Iterator[bytes]:
        """Yield all bytes of the data file. Raises Corrupt if its size or its MD5 differs from the manifest."""

    def check(self) -> None:
        """Read all bytes, and raise Corrupt if size or MD5 differ from a manifest, if there is one."""


class Columns:
    """The positions of the columns of an inventory that cafcat reads. Optional columns are None if missing.

    Columns have the same names in CSV and Parquet, except for case and underscores: "LastModifiedDate" in CSV is
    "last_modified_date" in Parquet.
    """

    def __init__(self, where: str, names: Sequence[str], hint: str | None = None) -> None:
        """Find the positions of the columns that cafcat reads.

        Args:
            where: Name of the file, for messages.
            names: Names of all columns, in order.
            hint: Hint of the error for a missing column. None: the hint is to add the column to the configuration
                of the inventory in S3.

        Raises:
            InvalidInput: The column of keys, sizes or times is missing.
        """
        found = {name.strip().replace("_", "").lower(): n for n, name in enumerate(names)}
        missing = " and ".join(name for name in _NEEDED if name.lower() not in found)
        if missing:
            hint = hint or f"add {missing} to the configuration of the inventory in S3"
            raise InvalidInput(f"inventory {where} has no column {missing}", hint=hint)
        self.count = len(names)
        self.key, self.size, self.modified = (found[name.lower()] for name in _NEEDED)
        self.bucket, self.etag = found.get("bucket"), found.get("etag")
        self.is_latest, self.is_delete_marker = found.get("islatest"), found.get("isdeletemarker")


def csv_rows(file: Listed, bucket: str, columns: Columns | None) -> Iterator[InventoryRow]:
    """Return an iterator over the current versions of objects that a CSV file lists.

    Args:
        file: The data file.
        bucket: The bucket whose objects the rows must list.
        columns: The columns. None: the first line names them, and is read at once.

    Raises:
        InvalidInput: A needed column is missing, or (raised by the iterator) a row lists an object of another
            bucket.
        Corrupt: The file is damaged, or differs from the manifest. The iterator raises this, except for a first
            line that names the columns.
    """
    records = _records(file)
    if columns is None:
        hint = "name the manifest.json, or a file with the names of the columns in its first line"
        columns = Columns(file.name, next(records, (0, []))[1], hint)
    return _current_rows(file, bucket, columns, records)


def _current_rows(
    file: Listed, bucket: str, columns: Columns, records: Iterator[tuple[int, list[str]]]
) -> Iterator[InventoryRow]:
    for line, fields in records:
        try:
            row = _row_of_fields(fields, bucket, columns)
        except ValueError as error:
            raise Corrupt(f"inventory {file.name}, line {line:,}: {error}") from error
        except _OtherBucket as error:
            raise error.found(f"{file.name}, line {line:,}", bucket) from error
        if row is not None:
            yield row


def _row_of_fields(fields: list[str], bucket: str, columns: Columns) -> InventoryRow | None:
    """Return the object that a line lists; None if the line is not about the current version of an object.

    Raises:
        ValueError: The line has a wrong number of columns, or a value is not valid.
        _OtherBucket: The line lists an object of another bucket.
    """
    if len(fields) != columns.count:
        raise ValueError(f"{len(fields)} columns, expected {columns.count}")
    if columns.bucket is not None and fields[columns.bucket] != bucket:
        raise _OtherBucket(fields[columns.bucket])
    if columns.is_latest is not None and fields[columns.is_latest].lower() == "false":
        return None
    if columns.is_delete_marker is not None and fields[columns.is_delete_marker].lower() == "true":
        return None
    etag = None if columns.etag is None else _tag(fields[columns.etag])
    return InventoryRow(
        _key(fields[columns.key]), _size(fields[columns.size]), _time(fields[columns.modified]), etag
    )


def _records(file: Listed) -> Iterator[tuple[int, list[str]]]:
    """Yield line number and fields of each line of a CSV file, except empty lines. Raises Corrupt for damage."""
    reader = csv.reader(_lines(file), strict=True)
    try:
        for fields in reader:
            if fields:
                yield reader.line_num, fields
    except csv.Error as error:
        raise Corrupt(f"inventory {file.name}, line {reader.line_num:,}: not CSV: {error}") from error


def _lines(file: Listed) -> Iterator[str]:
    stream: Any = io.BufferedReader(_Stream(file.blocks()), BLOCK_BYTES)
    if stream.peek(2)[:2] == b"\x1f\x8b":
        stream = GzipFile(fileobj=stream)
    count = 0
    try:
        while line := stream.readline(_LINE_BYTES + 1):
            count += 1
            if len(line) > _LINE_BYTES:
                raise Corrupt(f"inventory {file.name}, line {count:,}: longer than {_LINE_BYTES:,} bytes")
            yield line.decode()
    except UnicodeDecodeError as error:
        raise Corrupt(f"inventory {file.name}, line {count:,}: not UTF-8") from error
    except (BadGzipFile, EOFError, zlib.error) as error:
        raise Corrupt(f"inventory {file.name}: damaged gzip data after line {count:,}: {error}") from error


class _Stream(io.RawIOBase):
    """A binary file that can be read once, made of blocks of bytes."""

    def __init__(self, blocks: Iterator[bytes]) -> None:
        self._blocks = blocks
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._rest:
            self._rest = memoryview(next(self._blocks, b""))
        size = min(len(buffer), len(self._rest))
        buffer[:size], self._rest = self._rest[:size], self._rest[size:]
        return size


def _key(field: str) -> str:
    try:
        key = unquote_plus(field, errors="strict")
    except UnicodeDecodeError as error:
        raise ValueError(f"a key that is not UTF-8: {printable(field)!r}") from error
    if not key:
        raise ValueError("an empty key")
    return key


def _tag(field: str) -> str | None:
    """Return an entity tag without quotes. Raises ValueError for a text that cannot be sent in a request."""
    if _CONTROL.search(field):
        raise ValueError(f"not an entity tag: {printable(field)!r}")
    return unquoted(field)


def _size(field: str) -> int:
    if not _SIZE.fullmatch(field):
        raise ValueError(f"not a size: {printable(field)!r}")
    return int(field)


def _time(field: str) -> int:
    """Return a time in ISO 8601 as nanoseconds since 1970 UTC. A time without a zone is UTC. Raises ValueError."""
    try:
        when = datetime.fromisoformat(field)
        return nanoseconds(when if when.tzinfo else when.replace(tzinfo=UTC))
    except ValueError as error:
        raise ValueError(f"not a time: {printable(field)!r}") from error


def parquet_rows(files: Iterable[Listed], bucket: str) -> Iterator[InventoryRow]:
    """Return an iterator over the current versions of objects that Parquet files list.

    Args:
        files: The data files.
        bucket: The bucket whose objects the rows must list.

    Raises:
        NotInstalled: pyarrow is missing.
        InvalidInput: Raised by the iterator: a column is missing or has another type, or a row lists an object of
            another bucket.
        Corrupt: Raised by the iterator: a file is damaged, or differs from the manifest.
    """
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError as error:
        hint = f"run {NotInstalled.remedy('inventory')}, or configure the inventory as CSV"
        raise NotInstalled("an inventory in Parquet needs pyarrow, which is not installed", hint=hint) from error
    return (row for file in files for row in _parquet_file(file, bucket))


def _parquet_file(file: Listed, bucket: str) -> Iterator[InventoryRow]:
    from pyarrow.parquet import ParquetFile

    file.check()
    with _arrow_errors(file.name):
        table = ParquetFile(_Ranges(file), buffer_size=BLOCK_BYTES, pre_buffer=False)
    schema = table.schema_arrow
    columns = Columns(file.name, schema.names)
    _check_types(file.name, schema, columns)
    for number, values in enumerate(_values(file.name, table, columns), 1):
        if values.bucket not in (None, bucket):
            raise _OtherBucket(values.bucket).found(f"{file.name}, row {number:,}", bucket)
        if values.is_latest is False or values.is_delete_marker is True:
            continue
        key, size_bytes, modified_ns = values[:3]
        if not key or size_bytes is None or not 0 <= size_bytes < 10**18 or modified_ns is None:
            raise Corrupt(
                f"inventory {file.name}, row {number:,}: key, size or time is missing or wrong: {values[:3]}"
            )
        if values.etag is not None and _CONTROL.search(values.etag):
            raise Corrupt(f"inventory {file.name}, row {number:,}: not an entity tag: {printable(values.etag)!r}")
        yield InventoryRow(key, size_bytes, modified_ns, unquoted(values.etag))


class _Values(NamedTuple):
    """A row of an inventory in Parquet. A value is None if the row has none, or the file has no such column."""

    key: str | None
    size_bytes: int | None
    modified_ns: int | None
    bucket: str | None
    etag: str | None
    is_latest: bool | None
    is_delete_marker: bool | None


def _values(where: str, table: "ParquetFile", columns: Columns) -> Iterator[_Values]:
    """Yield the rows of a Parquet file. Only the columns in `columns` are read, 8,192 rows at a time."""
    names = table.schema_arrow.names
    positions = [columns.key, columns.size, columns.modified, columns.bucket]
    positions += [columns.etag, columns.is_latest, columns.is_delete_marker]
    fields = [None if n is None else names[n] for n in positions]
    with _arrow_errors(where):
        for batch in table.iter_batches(_BATCH_ROWS, columns=list(filter(None, fields)), use_threads=False):
            lists = ([None] * batch.num_rows if name is None else _list(batch.column(name)) for name in fields)
            yield from map(_Values, *lists)


def _list(column: "pa.Array") -> "list[Any]":
    """Return the values of a column; times as nanoseconds since 1970 UTC."""
    from pyarrow import int64, types

    if not types.is_timestamp(column.type):
        return list(column.to_pylist())
    unit = _UNIT_NS[column.type.unit]
    return [None if value is None else value * unit for value in column.cast(int64()).to_pylist()]


def _check_types(where: str, schema: "pa.Schema", columns: Columns) -> None:
    from pyarrow import types

    def is_text(kind: "pa.DataType") -> bool:
        return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))

    expected = (
        (columns.key, is_text, "a text"),
        (columns.size, types.is_integer, "an integer"),
        (columns.modified, types.is_timestamp, "a time"),
        (columns.bucket, is_text, "a text"),
        (columns.etag, is_text, "a text"),
        (columns.is_latest, types.is_boolean, "a boolean"),
        (columns.is_delete_marker, types.is_boolean, "a boolean"),
    )
    for n, is_right, words in expected:
        if n is not None and not is_right(schema.field(n).type):
            found = schema.field(n)
            message = f"inventory {where}: column {found.name!r} has the type {found.type}, expected {words}"
            raise InvalidInput(message)


class _Ranges(SeekableFile, io.RawIOBase):
    """A data file as a file object that reads only the requested ranges."""

    def __init__(self, file: Listed) -> None:
        self._file = file

    def readable(self) -> bool:
        return True

    def _size_bytes(self) -> int:
        return self._file.size_bytes()

    def readinto(self, buffer: Any) -> int:
        end = min(self._position + len(buffer), self._size_bytes())
        data = self._file.read_at(self._position, end) if end > self._position else b""
        buffer[: len(data)] = data
        self._position += len(data)
        return len(data)


@contextmanager
def _arrow_errors(where: str) -> Iterator[None]:
    from pyarrow import ArrowException

    try:
        yield
    except CafcatError:
        raise
    except (ArrowException, OSError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise Corrupt(f"inventory {where}: damaged Parquet: {printable(reason)}") from error
