"""Opens an archive by name: a local file, an object, or a folder that is one archive in several files."""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from cafcat.archives.naming import ArchiveLocator, FolderArchive, OpenStore, find_archive
from cafcat.formats.base import ArchiveFolder, Format, LocatedArchive, MultiFileArchive, RandomReader, Reader
from cafcat.formats.format_choice import DETECT_FORMAT, FormatChoice
from cafcat.remote.access import S3Access, is_s3
from cafcat.stores.base import Store, StoredFolder
from cafcat.support.read_ahead import ReadAhead

__all__ = ["OpenArchive", "Part", "open_archive"]

_Access = Callable[[str], S3Access]


class Part(NamedTuple):
    """One file of an archive, with its reader."""

    archive: RandomReader
    reader: Reader


@dataclass(frozen=True, slots=True)
class OpenArchive:
    """An archive that is open for reading.

    Attributes:
        name: absolute path or URL.
        format: format of the archive.
        size_bytes: total size in bytes of all files that hold entries.
        multi_file: the archive as a MultiFileArchive, or None if it is a single file.
    """

    name: str
    format: Format
    size_bytes: int
    multi_file: MultiFileArchive | None
    _parts: Callable[[], Iterator[Part]]

    def parts(self) -> Iterator[Part]:
        """Return the files of the archive: one for most archives.

        Raises:
            NotFound: a file is missing.
            Corrupt: a file is damaged.
        """
        return self._parts()


def open_archive(
    where: str | os.PathLike[str], access: _Access, format_choice: FormatChoice = DETECT_FORMAT
) -> OpenArchive:
    """Open the archive at a path, a file:// URL or an "s3://bucket/key" URL.

    A folder or prefix can be one archive in several files. An object is read in its current version: if it is
    replaced later, reading raises Conflict.

    Args:
        where: name of the archive.
        access: returns how to reach a bucket, given its URL.
        format_choice: the format, for archives whose content does not show it.

    Raises:
        NotFound, Corrupt, Unsupported, InvalidInput, AccessDenied, StoreFailed.
    """

    def store_at(url: str) -> Store:
        from cafcat.stores.registry import open_store

        return open_store(url, access(url)) if is_s3(url) else open_store(url)

    def open_single(locator: ArchiveLocator) -> LocatedArchive:
        return _remote(locator, access, store_at) if is_s3(locator.name) else _local(locator, store_at)

    archive = find_archive(os.fspath(where), open_single, store_at)
    if isinstance(archive, FolderArchive):
        format_choice.check_folder(archive.store.url, archive.format)
        return _open_multi_file(archive)
    archive_format = format_choice.format_of(archive)
    part = Part(archive, archive_format.reader(archive))
    return OpenArchive(archive.name, archive_format, archive.size_bytes, None, lambda: iter([part]))


def _open_multi_file(found: FolderArchive) -> OpenArchive:
    """Open an archive in several files. Raises NotFound if one of the files is missing."""
    folder, multi_file = StoredFolder(found.store), found.archive
    sizes = [folder.open(name).size_bytes for name in multi_file.names]

    def parts() -> Iterator[Part]:
        for name in multi_file.names:
            archive = folder.open(name)
            yield Part(archive, multi_file.reader(ReadAhead(archive, archive.size_bytes), name))

    return OpenArchive(folder.name, found.format, sum(sizes), multi_file, parts)


class _SingleArchive:
    """A file or object as a LocatedArchive."""

    def __init__(
        self, name: str, size_bytes: int, read_at: Callable[[int, int], bytes], folder: Callable[[], ArchiveFolder]
    ) -> None:
        """Wrap a file or object.

        Args:
            name: path or URL.
            size_bytes: size in bytes.
            read_at: reads a range of bytes; see RandomReader.
            folder: opens the folder that contains the archive. Called only if a reader needs the folder.
        """
        self.name = name
        self.size_bytes = size_bytes
        self.read_at = read_at
        self.parent_folder = folder


def _local(locator: ArchiveLocator, open_store: OpenStore) -> LocatedArchive:
    from cafcat.stores.local.files import LocalFile

    file = LocalFile(locator.name)
    return _SingleArchive(
        file.name, file.size_bytes, file.read_at, lambda: StoredFolder(open_store(locator.folder))
    )


def _remote(locator: ArchiveLocator, access: _Access, open_store: OpenStore) -> LocatedArchive:
    from cafcat.remote.address import parse_s3
    from cafcat.remote.connection import S3Connection
    from cafcat.remote.reading import RemoteObject

    bucket, key = parse_s3(locator.name)
    connection = S3Connection(bucket, access(locator.name))
    head = RemoteObject(connection, key).head()
    read_at = RemoteObject(connection, key, head.etag).read_at
    archive = _SingleArchive(
        locator.name, head.size_bytes, read_at, lambda: StoredFolder(open_store(locator.folder))
    )
    return ReadAhead(archive, head.size_bytes)
