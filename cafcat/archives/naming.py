"""Resolves the name of an archive to a file, an object, or a folder that is one archive."""

import os
import re
from collections.abc import Callable
from typing import Final, NamedTuple, TypeVar

from cafcat.errors import InvalidInput, NotFound, Unsupported
from cafcat.formats import registry as formats
from cafcat.formats.base import Format, MultiFileArchive
from cafcat.stores.base import Store, StoredFolder
from cafcat.stores.kind import ObjectAddress
from cafcat.stores.registry import kind_of, shown_schemes

__all__ = ["FolderArchive", "OpenStore", "find_archive"]

OpenStore = Callable[[str], Store]
"""Opens the store at a URL. Raises InvalidInput for a folder name that stores cannot have."""
_Single = TypeVar("_Single")
_URL: Final = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)


class FolderArchive(NamedTuple):
    """A folder that is one archive in several files.

    Attributes:
        store: the folder, opened as a store.
        format: format of the archive.
        archive: the archive.
    """

    store: Store
    format: Format
    archive: MultiFileArchive


def find_archive(
    name: str, open_single: Callable[[ObjectAddress], _Single], open_store: OpenStore
) -> _Single | FolderArchive:
    """Find the archive that a path or URL refers to: file://, s3://, or the scheme of a third-party kind of store.

    An s3:// URL that ends in "/" refers to a folder, even if an object has that key: consoles create such empty
    objects.

    Args:
        name: the name of the archive.
        open_single: opens a file or object. It must raise NotFound if an object is missing: then the name may be
            that of a folder.
        open_store: opens the store at a URL.

    Returns:
        The result of `open_single`, or the folder if that is one archive.

    Raises:
        InvalidInput: the URL is not valid, or the folder is no archive.
        NotFound: neither a file nor an archive in a folder has this name.
        Corrupt, Unsupported: the folder holds an archive that cannot be read. Errors of `open_single` and of stores
            pass through.
    """
    address = _address(name)
    if not address.key:
        return _open_folder(address, open_store)
    try:
        return open_single(address)
    except NotFound:
        folder = _folder_named_like_object(address, open_store)
        if folder is None:
            raise
        return folder


def _open_folder(address: ObjectAddress, open_store: OpenStore) -> FolderArchive:
    folder = _detect_folder(open_store(address.store_url))
    if folder is None:
        hint = "name the archives in it; a DataBundle bundle has a subfolder index with a file CURRENT"
        raise InvalidInput(f"{address.name} is a folder, not an archive", hint=hint)
    return folder


def _address(name: str) -> ObjectAddress:
    if not _URL.match(name):
        return kind_of(os.path.abspath(name)).address(os.path.abspath(name))
    try:
        return kind_of(name).address(name)
    except Unsupported as error:
        hint = f"URLs can begin with {shown_schemes()}; write ./NAME for a local file with such a name"
        message = "an archive must be a local file or an object in a store"
        raise InvalidInput(message, path=name, hint=hint) from error


def _folder_named_like_object(address: ObjectAddress, open_store: OpenStore) -> FolderArchive | None:
    try:
        store = open_store(address.name)
    except InvalidInput:
        return None  # object keys may contain anything, but stores accept only plain folder names
    return _detect_folder(store)


def _detect_folder(store: Store) -> FolderArchive | None:
    """Return the archive that the folder is, or None."""
    found = formats.detect_folder(StoredFolder(store))
    return None if found is None else FolderArchive(store, *found)
