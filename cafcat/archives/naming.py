"""Resolves the name of an archive to a file, an object, or a folder that is one archive."""

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple, TypeVar
from urllib.parse import unquote, urlsplit

from cafcat.errors import InvalidInput, NotFound
from cafcat.formats import registry as formats
from cafcat.formats.base import Format, MultiFileArchive
from cafcat.remote.access import is_s3
from cafcat.remote.address import parse_s3
from cafcat.stores.base import Store, StoredFolder

__all__ = ["ArchiveLocator", "FolderArchive", "OpenStore", "find_archive"]

OpenStore = Callable[[str], Store]
"""Opens the store at a URL. Raises InvalidInput for a folder name that stores cannot have."""
_Single = TypeVar("_Single")
_URL: Final = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)


class ArchiveLocator(NamedTuple):
    """The location that the name of an archive refers to.

    Attributes:
        name: absolute path or s3:// URL.
        folder: URL of the folder that contains the archive.
        key: key of the file or object in `folder`, or "" if the name refers to the folder itself.
    """

    name: str
    folder: str
    key: str


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
    name: str, open_single: Callable[[ArchiveLocator], _Single], open_store: OpenStore
) -> _Single | FolderArchive:
    """Find the archive that a path, a file:// URL or an s3:// URL refers to.

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
        InvalidInput: the URL has another scheme, or the folder is no archive.
        NotFound: neither a file nor an archive in a folder has this name.
        Corrupt, Unsupported: the folder holds an archive that cannot be read. Errors of `open_single` and of stores
            pass through.
    """
    locator = _locate(name)
    if not locator.key:
        return _open_folder(locator, open_store)
    try:
        return open_single(locator)
    except NotFound:
        folder = _folder_named_like_object(locator, open_store) if is_s3(locator.name) else None
        if folder is None:
            raise
        return folder


def _open_folder(locator: ArchiveLocator, open_store: OpenStore) -> FolderArchive:
    folder = _detect_folder(open_store(locator.folder))
    if folder is None:
        hint = "name the archives in it; a DataBundle bundle has a subfolder index with a file CURRENT"
        kind = "bucket" if is_s3(locator.name) and not parse_s3(locator.name).key else "folder"
        raise InvalidInput(f"{locator.name} is a {kind}, not an archive", hint=hint)
    return folder


def _locate(name: str) -> ArchiveLocator:
    if not is_s3(name):
        path = _local_path(name)
        if os.path.isdir(path):
            return ArchiveLocator(path, Path(path).as_uri(), "")
        return ArchiveLocator(path, Path(os.path.dirname(path)).as_uri(), os.path.basename(path))
    bucket, whole_key = parse_s3(name)
    folder, _, key = whole_key.rpartition("/")
    url = f"s3://{bucket}/{folder}".rstrip("/")
    return ArchiveLocator(f"s3://{bucket}/{whole_key}" if key else url, url, key)


def _local_path(name: str) -> str:
    """Return the absolute path that a path or a file:// URL refers to. Raises InvalidInput for any other URL."""
    url = _URL.match(name)
    if url is None:
        return os.path.abspath(name)
    parts = urlsplit(name)
    if parts.scheme.lower() != "file" or parts.netloc.lower() not in ("", "localhost"):
        hint = "download the archive first; write ./NAME for a local file with such a name"
        raise InvalidInput("an archive must be a local file or an object at an s3:// URL", path=name, hint=hint)
    return os.path.abspath(unquote(parts.path))


def _folder_named_like_object(locator: ArchiveLocator, open_store: OpenStore) -> FolderArchive | None:
    try:
        store = open_store(locator.name)
    except InvalidInput:
        return None  # object keys may contain anything, but stores accept only plain folder names
    return _detect_folder(store)


def _detect_folder(store: Store) -> FolderArchive | None:
    """Return the archive that the folder is, or None."""
    found = formats.detect_folder(StoredFolder(store))
    return None if found is None else FolderArchive(store, *found)
