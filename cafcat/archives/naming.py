"""What the name of an archive means: a file, an object, or a folder that is one archive in several files."""

import os
import re
from collections.abc import Callable
from typing import Final, NamedTuple, TypeVar

from cafcat.errors import InvalidInput, NotFound, Unsupported
from cafcat.formats import registry as formats
from cafcat.formats.base import Format, Spread
from cafcat.stores.base import Store, StoredFolder
from cafcat.stores.kind import ObjectAddress
from cafcat.stores.registry import kind_of, shown_schemes

__all__ = ["StoreOf", "Together", "found"]

StoreOf = Callable[[str], Store]
"""Gives the store at a URL. Raises InvalidInput for a folder that no store has."""
_Alone = TypeVar("_Alone")
_URL: Final = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)


class Together(NamedTuple):
    """A folder that is one archive in several files, as a store, and what its format says of it."""

    store: Store
    format: Format
    spread: Spread


def found(name: str, alone: Callable[[ObjectAddress], _Alone], store_of: StoreOf) -> _Alone | Together:
    """Return what a path or URL means: one file or object, or a folder that is one archive in several files.

    Args:
        name: a path, or a URL of a kind of store: file://, s3://, or a third party's.
        alone: returns the result for one file or object. It raises NotFound for a missing object; then the name may
            be that of a folder.
        store_of: opens the store at a URL.

    Raises:
        InvalidInput: the URL is not valid, or the folder is no archive.
        NotFound, Corrupt, Unsupported: the archive is missing or damaged, or its format is not known.
    """
    address = _address(name)
    if not address.key:
        return _folder(address, store_of)
    try:
        return alone(address)
    except NotFound:
        together = _folder_of_that_name(address, store_of)
        if together is None:
            raise
        return together


def _folder(address: ObjectAddress, store_of: StoreOf) -> Together:
    together = _together(store_of(address.store_url))
    if together is None:
        hint = "name the archives in it; a bundle of DataBundle has a folder index with a file CURRENT"
        raise InvalidInput(f"{address.name} is a folder without a bundle", hint=hint)
    return together


def _address(name: str) -> ObjectAddress:
    if not _URL.match(name):
        return kind_of(os.path.abspath(name)).address(os.path.abspath(name))
    try:
        return kind_of(name).address(name)
    except Unsupported as error:
        hint = f"download it first; ./NAME is a file of that name; URLs can begin with {shown_schemes()}"
        raise InvalidInput("an archive is a file, or an object of a store", path=name, hint=hint) from error


def _folder_of_that_name(address: ObjectAddress, store_of: StoreOf) -> Together | None:
    try:
        store = store_of(address.name)
    except InvalidInput:
        return None  # the key of an object may be odd; that of a folder may not
    return _together(store)


def _together(store: Store) -> Together | None:
    """None if it is no archive."""
    spread = formats.spread(StoredFolder(store))
    return None if spread is None else Together(store, *spread)
