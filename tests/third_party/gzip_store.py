"""An example of a third-party store: file+gz:///FOLDER keeps every object as a gzip file.

It suits small objects only: an upload is in memory until its commit, and a read decompresses the whole object.
"""

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

from cafcat.errors import Corrupt, InvalidInput
from cafcat.stores.base import ObjectInfo, Store, Upload
from cafcat.stores.keys import check_key
from cafcat.stores.kind import StoreContext, StoreKind
from cafcat.stores.local.store import LocalStore

__all__ = ["GZIP"]

_SUFFIX = ".gz"
_BLOCK_BYTES = 1 << 20


class GzipUpload:
    """An object that is being written: in memory until its commit."""

    upload_id = None
    etag = None

    def __init__(self, file: Upload, level: int) -> None:
        self._file = file
        self._level = level
        self._data = bytearray()
        self._has_ended = False

    def write(self, data: bytes | memoryview) -> None:
        self._check_open()
        self._data += data

    def rewrite_head(self, data: bytes) -> None:
        self._check_open()
        self._data[: len(data)] = data

    def commit(self, crc64nvme: int | None = None) -> None:
        del crc64nvme
        self._check_open()
        self._has_ended = True
        self._file.write(gzip.compress(self._data, self._level))
        self._file.commit()

    def abort(self) -> None:
        self._has_ended = True
        self._file.abort()

    def _check_open(self) -> None:
        if self._has_ended:
            raise InvalidInput("the upload has ended")


class GzipStore:
    """A folder of gzip files. LocalStore makes them durable, and never replaces an existing one."""

    is_remote = False
    reads_in_flight = 1

    def __init__(self, folder: str, level: int) -> None:
        self._files = LocalStore(Path(folder))
        self._level = level

    @property
    def url(self) -> str:
        return self._files.url.replace("file:", "file+gz:", 1)

    @property
    def folder(self) -> str:
        """See FolderStore."""
        return self._files.folder

    def create(self, key: str, *, rewrites_head: bool = False) -> Upload:
        return GzipUpload(self._files.create(_name(key), rewrites_head=rewrites_head), self._level)

    def read(self, key: str, start_byte: int, end_byte: int) -> bytes:
        if not 0 <= start_byte <= end_byte:
            raise InvalidInput(f"not a range of bytes: [{start_byte}, {end_byte})")
        data = self._content(key)
        if end_byte > len(data):
            raise Corrupt(f"the object ends at byte {len(data)}", chunk=self.locate(key), byte=len(data))
        return data[start_byte:end_byte]

    def stream(self, key: str, start_byte: int, end_byte: int) -> Iterator[bytes]:
        data = self.read(key, start_byte, end_byte)
        for start in range(0, len(data), _BLOCK_BYTES):
            yield data[start : start + _BLOCK_BYTES]

    def stat(self, key: str) -> ObjectInfo:
        return ObjectInfo(key, len(self._content(key)))

    def delete(self, key: str) -> None:
        self._files.delete(_name(key))

    def discard(self, key: str, upload_id: str | None = None) -> None:
        self._files.discard(_name(key), upload_id)

    def uploads(self) -> Iterator[str]:
        return (name.removesuffix(_SUFFIX) for name in self._files.uploads())

    def list(self, below: str = "") -> Iterator[ObjectInfo]:
        names = (found.key for found in self._files.list(below))
        keys = sorted((name.removesuffix(_SUFFIX) for name in names if name.endswith(_SUFFIX)), key=str.encode)
        return map(self.stat, keys)

    def locate(self, key: str) -> str:
        return f"{self.url}/{check_key(key)}"

    def _content(self, key: str) -> bytes:
        name = _name(key)
        compressed = self._files.read(name, 0, self._files.stat(name).size_bytes)
        try:
            return gzip.decompress(compressed)
        except (OSError, EOFError, zlib.error) as error:
            raise Corrupt(f"not a gzip file: {error}", chunk=self.locate(key)) from error


def _name(key: str) -> str:
    return check_key(key) + _SUFFIX


def _level(text: str) -> str:
    if not text.isdecimal() or int(text) > 9:
        raise InvalidInput(f"must be a level from 0 to 9, not {text}")
    return text


class _GzipKind(StoreKind):
    options = {"level": _level}  # noqa: RUF012 - a constant

    def open(self, url: str, context: StoreContext) -> Store:
        path = unquote(urlsplit(url).path)
        if not path.startswith("/"):
            raise InvalidInput(f"not a folder: {url}", hint="write file+gz:///FOLDER")
        return GzipStore(path, int(context.options.get("level", "6")))


GZIP = _GzipKind()
