"""An archive by its name: a file of this machine, an object of a bucket, or a folder of either that is one archive
in several files."""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from cafcat.archives.naming import ArchiveLocator, FolderArchive, StoreOf, found
from cafcat.formats.base import ArchiveFolder, Format, LocatedArchive, MultiFileArchive, RandomReader, Reader
from cafcat.formats.format_choice import DETECT_FORMAT, FormatChoice
from cafcat.remote.access import S3Access, is_s3
from cafcat.stores.base import Store, StoredFolder
from cafcat.support.read_ahead import ReadAhead

__all__ = ["OpenArchive", "Part", "open_archive"]

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
    spread: MultiFileArchive | None
    _parts: Callable[[], Iterator[Part]]

    def parts(self) -> Iterator[Part]:
        """Its files, one for most archives. Raises NotFound, Corrupt."""
        return self._parts()


def open_archive(
    where: str | os.PathLike[str], access: _Access, format_choice: FormatChoice = DETECT_FORMAT
) -> OpenArchive:
    """Open the archive at a path, a file:// URL or "s3://bucket/key".

    A folder or prefix can be one archive in several files. An object is read in the version that is there now:
    reading another raises Conflict.

    Args:
        where: name of the archive.
        access: returns how a bucket is reached, by its URL.
        format_choice: the format, if the content cannot tell it.

    Raises:
        NotFound, Corrupt, Unsupported, InvalidInput, AccessDenied, StoreFailed.
    """

    def store_of(url: str) -> Store:
        from cafcat.stores.registry import open_store

        return open_store(url, access(url)) if is_s3(url) else open_store(url)

    def alone(place: ArchiveLocator) -> LocatedArchive:
        return _remote(place, access, store_of) if is_s3(place.name) else _local(place, store_of)

    archive = found(os.fspath(where), alone, store_of)
    if isinstance(archive, FolderArchive):
        format_choice.check_folder(archive.store.url, archive.format)
        return _in_several_files(archive)
    archive_format = format_choice.format_of(archive)
    part = Part(archive, archive_format.reader(archive))
    return OpenArchive(archive.name, archive_format, archive.size_bytes, None, lambda: iter([part]))


def _in_several_files(together: FolderArchive) -> OpenArchive:
    """Raises NotFound if one of them is missing."""
    folder, spread = StoredFolder(together.store), together.spread
    sizes = [folder.open(part).size_bytes for part in spread.names]

    def parts() -> Iterator[Part]:
        for part in spread.names:
            archive = folder.open(part)
            yield Part(archive, spread.reader(ReadAhead(archive, archive.size_bytes), part))

    return OpenArchive(folder.name, together.format, sum(sizes), spread, parts)


class _Placed:
    """An archive as an LocatedArchive."""

    def __init__(
        self, name: str, size_bytes: int, read_at: Callable[[int, int], bytes], folder: Callable[[], ArchiveFolder]
    ) -> None:
        """Args: read_at: as RandomReader has it; folder: opens what the archive is in, if somebody asks for it."""
        self.name = name
        self.size_bytes = size_bytes
        self.read_at = read_at
        self.parent_folder = folder


def _local(place: ArchiveLocator, store_of: StoreOf) -> LocatedArchive:
    from cafcat.stores.local.files import LocalFile

    file = LocalFile(place.name)
    return _Placed(file.name, file.size_bytes, file.read_at, lambda: StoredFolder(store_of(place.folder)))


def _remote(place: ArchiveLocator, access: _Access, store_of: StoreOf) -> LocatedArchive:
    from cafcat.remote.address import parse_s3
    from cafcat.remote.connection import S3Connection
    from cafcat.remote.reading import RemoteObject

    bucket, key = parse_s3(place.name)
    connection = S3Connection(bucket, access(place.name))
    head = RemoteObject(connection, key).head()
    read_at = RemoteObject(connection, key, head.etag).read_at
    archive = _Placed(place.name, head.size_bytes, read_at, lambda: StoredFolder(store_of(place.folder)))
    return ReadAhead(archive, head.size_bytes)
