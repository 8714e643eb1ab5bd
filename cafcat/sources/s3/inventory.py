"""S3 Inventory: a list of the objects of a bucket that S3 writes once a day or week, read as CSV or Parquet.

A report is a manifest and the data files that it names: Amazon S3 User Guide, "Locating your inventory list".
"""

import hashlib
import io
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from hashlib import sha256
from itertools import chain
from typing import Any, Final, NamedTuple, Protocol

from cafcat.errors import Corrupt, InvalidInput, NotFound, SourceFailed, Unsupported
from cafcat.remote.access import S3Access, is_s3
from cafcat.remote.address import parse_s3
from cafcat.remote.answers import BLOCK_BYTES, ObjectHead
from cafcat.remote.connection import S3Connection
from cafcat.remote.reading import RemoteObject
from cafcat.sources.kind import SourceContext
from cafcat.sources.local.files import problem_kind, reason
from cafcat.sources.names import printable
from cafcat.sources.parts import WHOLE, Part
from cafcat.sources.s3.inventory_rows import Columns, InventoryRow, csv_rows, parquet_rows

__all__ = ["Inventory", "InventoryRow", "read_inventory"]

_MANIFEST_HINT: Final = "name a manifest.json, or a file that ends in .csv, .csv.gz or .parquet"
_MANIFEST_BYTES: Final = 64 << 20
"""Largest manifest in bytes. It has some 200 bytes for each data file, which lists millions of objects."""


class Inventory:
    """An inventory of a bucket: iterate over it for the current versions of the objects, in its order.

    Attributes:
        file_count: Number of its data files, which can be read one by one.
        edition: A text that differs from that of another inventory; "" if there is only one data file.
    """

    def __init__(self, rows: Iterator[InventoryRow], file_count: int = 1, edition: str = "") -> None:
        """Create the inventory. `rows` are those of all data files, or of the part of them that was asked for."""
        self._rows = rows
        self.file_count = file_count
        self.edition = edition

    def __iter__(self) -> Iterator[InventoryRow]:
        """Return the iterator over the rows, which can be read once."""
        return self._rows


def read_inventory(where: str, context: SourceContext, bucket: str) -> Inventory:
    """Return an inventory of the objects of a bucket.

    A manifest, and the first line of a CSV file without one, are read at once. Iterating reads all else.

    Args:
        where: Path or s3:// URL of a manifest.json, or of one data file: .parquet, or .csv or .csv.gz with the
            names of the columns in its first line.
        context: Provides the options in cafcat.toml for the s3:// URL, and the part to read: numbers of data files
            of the manifest, after the first one and up to the second one.
        bucket: Name of the bucket whose objects the inventory must list.

    Raises:
        NotFound: The manifest or data file is missing.
        InvalidInput: `where` is not such a path or URL, the inventory is that of another bucket, or a column is
            missing or has another type. The iterator raises it if only a data file shows that.
        Unsupported: The inventory is in ORC or an unknown format, or its manifest is too large.
        NotInstalled: The inventory is in Parquet, and pyarrow is missing.
        Corrupt: The manifest is damaged. The iterator raises it for a damaged data file, at the latest after its
            last row.
        AccessDenied, StoreFailed: The server refuses or fails.
        Conflict: An object of the inventory was replaced while it was read.
        SourceFailed: A local file of the inventory cannot be read.
    """
    if re.match(r"https?://", where, re.IGNORECASE):
        raise InvalidInput("an inventory must be a file or an s3:// URL", hint="download it first")
    opener = _ReportFiles(context)
    file = _DataFile(opener.open(where))
    ending = where.lower()
    if ending.endswith(".json"):
        return _Manifest(file.file, bucket).inventory(opener, context.part or WHOLE)
    if ending.endswith((".csv", ".csv.gz")):
        return Inventory(csv_rows(file, bucket, None))
    if ending.endswith(".parquet"):
        return Inventory(parquet_rows([file], bucket))
    if ending.endswith(".orc"):
        raise _orc(file.file.name)
    hint = _MANIFEST_HINT
    raise InvalidInput(f"this is not the name of an inventory: {file.file.name}", hint=hint)


class _ReportFile(Protocol):
    """A file of an inventory report, local or in a bucket: the manifest, or a data file."""

    name: str

    def size_bytes(self) -> int: ...

    def read_at(self, start_byte: int, end_byte: int) -> bytes: ...

    def blocks(self) -> Iterator[bytes]:
        """Yield all bytes of this manifest or data file in blocks of at most 1 MiB."""


class _LocalFile:
    def __init__(self, path: str) -> None:
        self.path = path
        self.name = printable(path)

    def size_bytes(self) -> int:
        with self._opened() as file:
            return os.fstat(file.fileno()).st_size

    def read_at(self, start_byte: int, end_byte: int) -> bytes:
        with self._opened() as file:
            file.seek(start_byte)
            return file.read(end_byte - start_byte)

    def blocks(self) -> Iterator[bytes]:
        with self._opened() as file:
            while block := file.read(BLOCK_BYTES):
                yield block

    @contextmanager
    def _opened(self) -> Iterator[io.BufferedReader]:
        try:
            with open(self.path, "rb") as file:
                yield file
        except FileNotFoundError as error:
            raise NotFound(f"inventory {self.name}: {reason(error)}") from error
        except (IsADirectoryError, ValueError) as error:
            raise InvalidInput(f"inventory {self.name} is not a file") from error
        except OSError as error:
            message = f"inventory {self.name}: {reason(error)}"
            raise SourceFailed(message, problem=problem_kind(error).value) from error


class _RemoteFile:
    """A file of an inventory report, its manifest or a data file, that is an object in a bucket.

    If the object is replaced after the first request, reading it raises Conflict.
    """

    def __init__(self, connection: S3Connection, key: str) -> None:
        self._connection = connection
        self._key = key
        self.name = printable(f"{connection.url}/{key}")

    def size_bytes(self) -> int:
        return self._head.size_bytes

    def read_at(self, start_byte: int, end_byte: int) -> bytes:
        return self._object.read_at(start_byte, end_byte)

    def blocks(self) -> Iterator[bytes]:
        return self._object.blocks(0, self._head.size_bytes)

    @cached_property
    def _head(self) -> ObjectHead:
        return RemoteObject(self._connection, self._key).head()

    @property
    def _object(self) -> RemoteObject:
        return RemoteObject(self._connection, self._key, self._head.etag)


class _ReportFiles:
    """Opens files of inventory reports by path or s3:// URL, with one connection to each bucket."""

    def __init__(self, context: SourceContext) -> None:
        self._context = context
        self._connections: dict[tuple[str, S3Access], S3Connection] = {}

    def open(self, where: str) -> _ReportFile:
        if not is_s3(where):
            return _LocalFile(where)
        bucket, key = parse_s3(where)
        reached = bucket, S3Access.of(self._context.options_of(where))
        if reached not in self._connections:
            self._connections[reached] = S3Connection(*reached)
        return _RemoteFile(self._connections[reached], key)


class _DataFile(NamedTuple):
    """A data file of an inventory: a list of objects.

    Attributes:
        file: The file or object.
        expected_bytes: Its size according to the manifest; None without a manifest.
        md5: Its MD5 according to the manifest, in lower-case hexadecimal; None without a manifest.
    """

    file: _ReportFile
    expected_bytes: int | None = None
    md5: str | None = None

    @property
    def name(self) -> str:
        return self.file.name

    def size_bytes(self) -> int:
        return self.file.size_bytes()

    def read_at(self, start_byte: int, end_byte: int) -> bytes:
        return self.file.read_at(start_byte, end_byte)

    def check(self) -> None:
        """Read the whole data file to check its size and MD5, if there is a manifest; else do nothing.

        Raises:
            Corrupt: The size or the MD5 of the file differs from the manifest.
        """
        if self.md5 is not None:
            for _ in self.blocks():
                pass

    def blocks(self) -> Iterator[bytes]:
        """Yield all bytes of the data file.

        Raises:
            Corrupt: The size differs from the manifest; or, raised after the last block, the MD5 does.
        """
        if self.expected_bytes not in (None, self.size_bytes()):
            raise self._damaged(f"{self.size_bytes():,} bytes", f"{self.expected_bytes:,}")
        digest = hashlib.md5(usedforsecurity=False)
        for block in self.file.blocks():
            digest.update(block)
            yield block
        if self.md5 not in (None, digest.hexdigest()):
            raise self._damaged(f"MD5 {digest.hexdigest()}", str(self.md5))

    def _damaged(self, found: str, expected: str) -> Corrupt:
        hint = "copy the file again, or use another inventory"
        message = f"inventory {self.file.name} has {found}, but its manifest has {printable(expected)}"
        return Corrupt(message, hint=hint)


class _Manifest:
    """The manifest.json of an inventory of one bucket."""

    def __init__(self, place: _ReportFile, bucket: str) -> None:
        self._place = place
        self._bucket = bucket
        self._values = self._read()
        source = self._text("sourceBucket")
        if source != bucket:
            raise InvalidInput(f"the inventory {place.name} lists bucket {source!r}, not {bucket!r}")

    def inventory(self, opener: _ReportFiles, part: Part) -> Inventory:
        """Return the inventory with the rows of the data files, in the order of the manifest.

        Args:
            opener: Opens the data files.
            part: Numbers of data files: after the first one, which counts from 1, and up to the second one.

        Raises:
            Unsupported: The data files are in ORC, or in an unknown format.
            NotInstalled: The data files are in Parquet, and pyarrow is missing.
            NotFound: A data file of a local manifest is missing.
            InvalidInput: A column is missing. The iterator raises this for Parquet, and for a row about another
                bucket.
            Corrupt: The manifest is not valid, or (raised by the iterator) a data file is damaged.
        """
        file_format = self._text("fileFormat").lower()
        if file_format == "orc":
            raise _orc(self._place.name)
        if file_format not in ("csv", "parquet"):
            raise Unsupported(f"inventory {self._place.name}: unknown fileFormat {self._text('fileFormat')!r}")
        files = self._files(opener)
        chosen = files[int(part.after or 0) : None if part.through is None else int(part.through)]
        if file_format == "parquet":
            return Inventory(parquet_rows(chosen, self._bucket), len(files), self._edition())
        columns = Columns(self._place.name, self._text("fileSchema").split(","))
        rows = chain.from_iterable(csv_rows(file, self._bucket, columns) for file in chosen)
        return Inventory(rows, len(files), self._edition())

    def _edition(self) -> str:
        return sha256(json.dumps(self._values, sort_keys=True).encode()).hexdigest()

    def _files(self, opener: _ReportFiles) -> list[_DataFile]:
        files = self._values.get("files")
        if not isinstance(files, list):
            raise self._malformed("files")
        return [self._file(file, opener) for file in files]

    def _file(self, values: Any, opener: _ReportFiles) -> _DataFile:
        match values:
            case {"key": str(key), "size": int(size_bytes), "MD5checksum": str(md5)} if key and "\0" not in key:
                return _DataFile(self._data_file(key, opener), size_bytes, md5.lower())
        raise self._malformed("files")

    def _data_file(self, key: str, opener: _ReportFiles) -> _ReportFile:
        if isinstance(self._place, _LocalFile):
            return self._local_data(self._place, key)
        bucket = self._text("destinationBucket").rpartition(":")[2]  # of arn:aws:s3:::bucket
        try:
            return opener.open(f"s3://{bucket}/{key}")
        except InvalidInput as error:
            raise self._malformed("destinationBucket") from error

    def _local_data(self, manifest: _LocalFile, key: str) -> _LocalFile:
        """Return a data file of a local manifest.

        The file is looked for in the folder of the manifest, in the folder `../data` beside that, where `aws s3
        sync` of the report puts it, and at its whole key below the folder of the manifest.

        Raises:
            NotFound: The data file is in none of these places.
        """
        name, folder = key.rpartition("/")[2], os.path.dirname(manifest.path)
        candidates = [name, os.path.join(os.pardir, "data", name)]
        if os.pardir not in key.split("/"):
            candidates.append(key.lstrip("/"))
        for candidate in candidates:
            path = os.path.join(folder, candidate)
            if os.path.isfile(path):
                return _LocalFile(path)
        hint = "copy the data files into the folder of the manifest, or name the manifest by its s3:// URL"
        raise NotFound(f"inventory {manifest.name}: its data file {printable(name)} is missing", hint=hint)

    def _read(self) -> dict[str, Any]:
        size_bytes = self._place.size_bytes()
        if size_bytes > _MANIFEST_BYTES:
            raise Unsupported(f"inventory {self._place.name}: a manifest of {size_bytes:,} bytes is too large")
        try:
            values = json.loads(self._place.read_at(0, size_bytes))
        except (ValueError, RecursionError) as error:
            raise Corrupt(
                f"inventory {self._place.name} is not a manifest: not JSON", hint=_MANIFEST_HINT
            ) from error
        if not isinstance(values, dict):
            message = f"inventory {self._place.name} is not a manifest: not a JSON object"
            raise Corrupt(message, hint=_MANIFEST_HINT)
        return values

    def _text(self, name: str) -> str:
        value = self._values.get(name)
        if not isinstance(value, str):
            raise self._malformed(name)
        return value

    def _malformed(self, name: str) -> Corrupt:
        return Corrupt(
            f"inventory {self._place.name} is not a valid manifest: its value {name!r} is wrong or missing"
        )


def _orc(where: str) -> Unsupported:
    hint = "change the configuration of the inventory in S3 to CSV or Parquet"
    return Unsupported(f"the inventory {where} is in ORC format, which cafcat cannot read", hint=hint)
