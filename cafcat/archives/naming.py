"""Resolves the name of an archive: to a file, an object, or a folder that is one archive."""

import os
import re
from typing import Final, NamedTuple, Protocol, TypeVar

from cafcat.errors import InvalidInput, NotFound, Unsupported
from cafcat.formats import registry as formats
from cafcat.formats.base import Format, MultiFileArchive
from cafcat.stores.base import Store, StoredFolder
from cafcat.stores.kind import ObjectAddress
from cafcat.stores.registry import kind_of, shown_schemes

__all__ = ["FolderArchive", "ObjectOpener", "archive_address", "find_archive"]

_Single = TypeVar("_Single")
_Single_co = TypeVar("_Single_co", covariant=True)
_URL: Final = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)


class FolderArchive(NamedTuple):
    """A folder, or a prefix of a bucket, whose files together are one archive.

    Attributes:
        store: the folder, opened as a store.
        format: format of the archive.
        archive: the archive that the files in the folder make up.
    """

    store: Store
    format: Format
    archive: MultiFileArchive


class ObjectOpener(Protocol[_Single_co]):
    """Opens the file, the object or the folder that the name of an archive refers to."""

    def open_object(self, address: ObjectAddress) -> _Single_co:
        """Open the file or object at an address.

        Raises:
            NotFound: there is no such file or object; a folder may have this name.
            InvalidInput: this is not a regular file, or no object can have this name. Errors of the store pass
                through.
        """

    def open_store(self, url: str) -> Store:
        """Open the store at a URL or path. This sends no request: the store may be missing.

        Raises:
            InvalidInput: this is no URL or path of a store, or `check_key` refuses the prefix of the bucket.
            Unsupported: no kind of store has the scheme of the URL.
        """


def find_archive(address: ObjectAddress, opener: ObjectOpener[_Single]) -> _Single | FolderArchive:
    """Find the archive at the address of a file, an object or a folder.

    An s3:// URL that ends in "/" refers to a folder, even if an object has that key: consoles create such empty
    objects.

    Args:
        address: address of the archive.
        opener: opens the object or the folder.

    Returns:
        The result of `opener.open_object` for a file or object; for a folder, the archive in it.

    Raises:
        InvalidInput: the address is that of a folder which is no archive.
        NotFound: neither a file or object, nor a folder that is an archive, has this name.
        Corrupt: the folder holds an archive that is damaged.
        Unsupported: the folder holds an archive with a feature that cafcat does not have. Other errors of `opener`,
            of stores and of `registry.detect_folder` pass through.
    """
    if not address.key:
        return _open_folder(address, opener.open_store(address.store_url))
    try:
        return opener.open_object(address)
    except NotFound:
        folder = _folder_named_like_object(address, opener)
        if folder is None:
            raise
        return folder


def _open_folder(address: ObjectAddress, store: Store) -> FolderArchive:
    folder = _detect_folder(store)
    if folder is None:
        hint = "name an archive in this folder; a DataBundle bundle has a subfolder index with a file CURRENT"
        raise InvalidInput(f"{address.name} is a folder, not an archive", hint=hint)
    return folder


def archive_address(name: str) -> ObjectAddress:
    """Return the address of a path, a file:// or s3:// URL, or the URL of a third-party kind of store.

    Its `name` is an absolute path or a URL. Only a local path is looked up, to recognize an existing folder.

    Raises:
        InvalidInput: the URL is not valid, or no kind of store has its scheme.
    """
    if not _URL.match(name):
        return kind_of(os.path.abspath(name)).address(os.path.abspath(name))
    try:
        return kind_of(name).address(name)
    except Unsupported as error:
        hint = f"URLs can begin with {shown_schemes()}; write ./NAME for a local file with such a name"
        message = "an archive must be a local file or an object in a store"
        raise InvalidInput(message, path=name, hint=hint) from error


def _folder_named_like_object(address: ObjectAddress, opener: ObjectOpener[_Single]) -> FolderArchive | None:
    try:
        store = opener.open_store(address.name)
    except InvalidInput:
        return None  # object keys may contain anything, but stores accept only plain folder names
    return _detect_folder(store)


def _detect_folder(store: Store) -> FolderArchive | None:
    """Return the archive that the files of a folder make up, or None if they are no archive."""
    found = formats.detect_folder(StoredFolder(store))
    return None if found is None else FolderArchive(store, *found)
