"""An archive by its name: a file of this machine, an object of a bucket, or a folder of either that is one archive
in several files."""

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple
from urllib.parse import unquote, urlsplit

from cafcat.errors import InvalidInput, NotFound
from cafcat.formats import registry as formats
from cafcat.formats.base import Folder, Format, RandomReader, Reader, Spread
from cafcat.read_ahead import ReadAhead
from cafcat.remote.access import S3Access, is_s3
from cafcat.stores.base import StoredFolder

__all__ = ["OpenArchive", "Part", "local_path", "no_archive", "open_archive"]

_URL: Final = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_Access = Callable[[str], S3Access]


class Part(NamedTuple):
    """A file of an archive, and what reads it."""

    archive: RandomReader
    reader: Reader


@dataclass(frozen=True, slots=True)
class OpenArchive:
    """name: its absolute path or URL; size_bytes: of all its files that hold something; spread: of one that is
    several."""

    name: str
    format: Format
    size_bytes: int
    spread: Spread | None
    _parts: Callable[[], Iterator[Part]]

    def parts(self) -> Iterator[Part]:
        """Its files, one for most archives. Raises NotFound, Corrupt."""
        return self._parts()


def open_archive(where: str | os.PathLike[str], access: _Access) -> OpenArchive:
    """The archive at a path or at "s3://bucket/key"; a folder or prefix can be one archive in several files. Its
    format is told by its content. An object is read in the version that is there now: reading another raises
    Conflict. access: how a bucket is reached, by its URL.

    Raises NotFound, Corrupt, Unsupported, InvalidInput, AccessDenied, StoreFailed.
    """
    name = os.fspath(where)
    try:
        archive = _remote(name, access) if is_s3(name) else _local(local_path(name), access)
    except (NotFound, InvalidInput):
        found = _found_together(name, access)
        if found is None and os.path.isdir(name):
            raise no_archive(name) from None
        if found is None:
            raise
        return found
    archive_format = formats.detect(archive)
    part = Part(archive, archive_format.reader(archive))
    return OpenArchive(archive.name, archive_format, archive.size_bytes, None, lambda: iter([part]))


def local_path(name: str) -> str:
    """The absolute path that a path or a file:// URL means. Raises InvalidInput for any other URL."""
    url = _URL.match(name)
    if url is None:
        return os.path.abspath(name)
    parts = urlsplit(name)
    if parts.scheme.lower() != "file" or parts.netloc.lower() not in ("", "localhost"):
        hint = "download it first; ./NAME is a file of that name"
        raise InvalidInput(
            "an archive is a file of this machine, or an object at an s3:// URL", path=name, hint=hint
        )
    return os.path.abspath(unquote(parts.path))


def no_archive(folder: str) -> InvalidInput:
    """What there is to say of a folder that is not an archive in several files."""
    hint = "name the archives in it; a bundle of DataBundle has a folder index with a file CURRENT"
    return InvalidInput(f"{folder} is a folder, and no bundle", hint=hint)


def _found_together(name: str, access: _Access) -> OpenArchive | None:
    """None if there is no folder, or one that is no archive."""
    if not is_s3(name) and not os.path.isdir(name):
        return None
    try:
        folder = _folder(name, access)
    except InvalidInput:
        return None  # keys in a bucket may be odd; that of a folder may not
    found = formats.spread(folder)
    if found is None:
        return None
    archive_format, spread = found
    sizes = [folder.open(part).size_bytes for part in spread.names]  # raises NotFound

    def parts() -> Iterator[Part]:
        for part in spread.names:
            archive = folder.open(part)
            yield Part(archive, spread.reader(ReadAhead(archive, archive.size_bytes), part))

    return OpenArchive(folder.name, archive_format, sum(sizes), spread, parts)


class _Placed:
    """An archive as an InFolder."""

    def __init__(self, archive: RandomReader, folder: Callable[[], Folder]) -> None:
        """Args: folder: opens what it is in, if somebody asks for it."""
        self.name = archive.name
        self.size_bytes = archive.size_bytes
        self.read_at = archive.read_at
        self.beside = folder


def _local(path: str, access: _Access) -> RandomReader:
    from cafcat.stores.local_files import LocalFile

    return _Placed(LocalFile(path), lambda: _folder(os.path.dirname(path), access))


def _remote(url: str, access: _Access) -> RandomReader:
    from cafcat.remote.address import parse_s3
    from cafcat.remote.connection import S3Connection
    from cafcat.remote.reading import RemoteObject

    bucket, key = parse_s3(url)
    if not key:
        raise InvalidInput("this is a bucket, not an archive in it", hint="write s3://BUCKET/KEY")
    connection = S3Connection(bucket, access(url))
    head = RemoteObject(connection, key).head()
    archive = ReadAhead(RemoteObject(connection, key, head.etag), head.size_bytes)
    return _Placed(archive, lambda: _folder(url[: url.rfind("/")], access))


def _folder(name: str, access: _Access) -> StoredFolder:
    """A folder, or a prefix of a bucket. Raises InvalidInput for one that no store has."""
    from cafcat.stores.registry import open_store

    if is_s3(name):
        return StoredFolder(open_store(name.rstrip("/"), access(name)))
    return StoredFolder(open_store(os.path.abspath(name)))
