"""What the name of an archive means: a file, an object, or a folder that is one archive in several files."""

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

__all__ = ["ArchiveLocator", "FolderArchive", "StoreOf", "found"]

StoreOf = Callable[[str], Store]
"""Gives the store at a URL. Raises InvalidInput for a folder that no store has."""
_Alone = TypeVar("_Alone")
_URL: Final = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)


class ArchiveLocator(NamedTuple):
    """Where a name points to. name: absolute path, or s3:// URL; folder: URL of a folder; key: of a file or object
    in it, "" if the folder itself is meant."""

    name: str
    folder: str
    key: str


class FolderArchive(NamedTuple):
    """A folder that is one archive in several files, as a store, and what its format says of it."""

    store: Store
    format: Format
    spread: MultiFileArchive


def found(name: str, alone: Callable[[ArchiveLocator], _Alone], store_of: StoreOf) -> _Alone | FolderArchive:
    """What a path, a file:// or an s3:// URL means. alone: is asked for a file or object, and raises NotFound if an
    object is not there: then a folder may have that name. An s3:// URL that ends in "/" is a folder, whatever
    object has that key: consoles make empty ones.

    Raises InvalidInput for other URLs and for folders that are no archive, NotFound, Corrupt, Unsupported, and what
    `alone` and stores raise.
    """
    place = _place(name)
    if not place.key:
        return _folder(place, store_of)
    try:
        return alone(place)
    except NotFound:
        together = _under_the_name_of_an_object(place, store_of) if is_s3(place.name) else None
        if together is None:
            raise
        return together


def _folder(place: ArchiveLocator, store_of: StoreOf) -> FolderArchive:
    together = _together(store_of(place.folder))
    if together is None:
        hint = "name the archives in it; a bundle of DataBundle has a folder index with a file CURRENT"
        what = "bucket" if is_s3(place.name) and not parse_s3(place.name).key else "folder"
        raise InvalidInput(f"{place.name} is a {what}, and no bundle", hint=hint)
    return together


def _place(name: str) -> ArchiveLocator:
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


def _under_the_name_of_an_object(place: ArchiveLocator, store_of: StoreOf) -> FolderArchive | None:
    try:
        store = store_of(place.name)
    except InvalidInput:
        return None  # keys in a bucket may be odd; that of a folder may not
    return _together(store)


def _together(store: Store) -> FolderArchive | None:
    """None if it is no archive."""
    spread = formats.detect_folder(StoredFolder(store))
    return None if spread is None else FolderArchive(store, *spread)
