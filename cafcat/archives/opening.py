"""An archive by its name: a file of this machine, an object of a bucket, or a folder of either that is one archive
in several files."""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from cafcat.archives.naming import Together, found
from cafcat.formats.base import Format, RandomReader, Reader, Spread
from cafcat.formats.read_as import DETECTED, ReadAs
from cafcat.stores.base import Store, StoredFolder
from cafcat.stores.kind import ObjectAddress, ObjectInFolder, StoreContext, StoreKind
from cafcat.stores.registry import kind_of, open_store
from cafcat.support.read_ahead import ReadAhead

__all__ = ["OpenArchive", "Part", "open_archive"]


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


def open_archive(
    where: str | os.PathLike[str], context_of: Callable[[str], StoreContext], read_as: ReadAs = DETECTED
) -> OpenArchive:
    """Open the archive at a path, a file:// URL, "s3://bucket/key", or a URL of another kind of store.

    A folder or prefix can be one archive in several files. An object is read in the version that is there now:
    reading another raises Conflict.

    Args:
        where: name of the archive.
        context_of: returns what the settings provide for a URL. Not called for a kind of store without options, so
            that a local file can be opened whatever the configuration says.
        read_as: the format, if the content cannot tell it.

    Raises:
        NotFound, Corrupt, Unsupported, InvalidInput, AccessDenied, StoreFailed.
    """

    def context_for(kind: StoreKind, url: str) -> StoreContext:
        return context_of(url) if kind.options else StoreContext()

    def store_of(url: str) -> Store:
        return open_store(url, context_for(kind_of(url), url))

    def alone(address: ObjectAddress) -> ObjectInFolder:
        kind = kind_of(address.store_url)
        return kind.open_object(address, context_for(kind, address.name))

    archive = found(os.fspath(where), alone, store_of)
    if isinstance(archive, Together):
        read_as.check_folder(archive.store.url, archive.format)
        return _in_several_files(archive)
    archive_format = read_as.of(archive)
    part = Part(archive, archive_format.reader(archive))
    return OpenArchive(archive.name, archive_format, archive.size_bytes, None, lambda: iter([part]))


def _in_several_files(together: Together) -> OpenArchive:
    """Raises NotFound if one of them is missing."""
    folder, spread = StoredFolder(together.store), together.spread
    sizes = [folder.open(part).size_bytes for part in spread.names]

    def parts() -> Iterator[Part]:
        for part in spread.names:
            archive = folder.open(part)
            yield Part(archive, spread.reader(ReadAhead(archive, archive.size_bytes), part))

    return OpenArchive(folder.name, together.format, sum(sizes), spread, parts)
