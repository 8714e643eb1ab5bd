"""Opens an archive by its path or URL: a local file, an object, or a folder whose files are one archive."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from cafcat.archives.naming import FolderArchive, find_archive
from cafcat.formats.base import Format, MultiFileArchive, RandomReader, Reader
from cafcat.formats.format_choice import DETECT_FORMAT, FormatChoice
from cafcat.stores.base import Store, StoredFolder
from cafcat.stores.kind import ObjectAddress, ObjectInFolder, StoreContext
from cafcat.stores.registry import kind_of, open_store
from cafcat.support.read_ahead import LocatedReadAhead

__all__ = ["OpenArchive", "Part", "open_archive"]


class Part(NamedTuple):
    """One of the files that an archive consists of.

    Attributes:
        archive: the bytes of the file.
        reader: reads the entries that are stored in the file.
    """

    archive: RandomReader
    reader: Reader


@dataclass(frozen=True, slots=True)
class OpenArchive:
    """An archive that is open for reading.

    Attributes:
        name: absolute path or URL of the archive.
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
        """Return an iterator with a Part for each file of the archive that holds entries, usually a single one.

        The iterator opens each file when it reaches it, and raises the errors of opening it.

        Raises:
            NotFound: a file is missing.
            Corrupt: the head of a file is damaged.
            Unsupported: a file uses a feature that cafcat does not have. Errors of the store pass through.
        """
        return self._parts()


def open_archive(
    address: ObjectAddress, context: StoreContext, format_choice: FormatChoice = DETECT_FORMAT
) -> OpenArchive:
    """Open the archive at an address, which `archive_address` returns for a path or URL.

    A folder or prefix can be one archive in several files. A single object of a bucket is read in its current
    version: if the object is replaced later, reading raises Conflict (if the server shows entity tags). A local
    file is opened once, so that replacing it later changes nothing.

    Args:
        address: address of the archive.
        context: the settings for the store of this address.
        format_choice: the format to read the archive with; DETECT_FORMAT to detect the format.

    Raises:
        NotFound: neither a file nor an archive in a folder has this name, or one of the files of the archive in the
            folder is missing.
        InvalidInput: the folder is no archive, or the path is not that of a regular file. Or `format_choice` has an
            unknown format, or another one than the archive in the folder, or allows zero padding for a format that
            cannot have it.
        Corrupt: the archive is damaged, as far as opening shows it, or the file does not have the chosen format.
        Unsupported: no format recognizes the archive, or it uses a feature that cafcat does not have.
        IndexMissing: the archive is one of several files, and the file with the index is missing.
        NotInstalled: a library that the format needs is not installed.
        Conflict: another process changed the index of the folder's archive while it was copied.
        AccessDenied: the store rejected the credentials.
        StoreFailed: the store cannot be read, or a temporary file failed.
    """
    archive = find_archive(address, _Opener(context))
    if isinstance(archive, FolderArchive):
        format_choice.check_folder(archive.store.url, archive.format)
        return _open_multi_file(archive)
    archive_format = format_choice.format_of(archive)
    part = Part(archive, archive_format.reader(archive))
    return OpenArchive(archive.name, archive_format, archive.size_bytes, None, lambda: iter([part]))


class _Opener(NamedTuple):
    """Opens an object, or the folder that has its name, with the settings of one context. An `ObjectOpener`."""

    context: StoreContext

    def open_object(self, address: ObjectAddress) -> ObjectInFolder:
        return kind_of(address.store_url).open_object(address, self.context)

    def open_store(self, url: str) -> Store:
        return open_store(url, self.context)


def _open_multi_file(found: FolderArchive) -> OpenArchive:
    """Open an archive in several files. Raises NotFound if one of the files that hold entries is missing.

    Only the sizes of the files are read. `parts` of the result opens the files.
    """
    folder, multi_file = StoredFolder(found.store), found.archive
    sizes = [folder.open(name).size_bytes for name in multi_file.names]

    def parts() -> Iterator[Part]:
        for name in multi_file.names:
            archive = folder.open(name)
            yield Part(archive, multi_file.reader(LocatedReadAhead(archive), name))

    return OpenArchive(folder.name, found.format, sum(sizes), multi_file, parts)
