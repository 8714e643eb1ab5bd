"""Finds out whether a store is at the place where its URL points.

A missing object is damage only if the store itself is present. An unmounted disk makes all objects look missing.
"""

import os
import re
import shlex
from itertools import islice
from typing import Final

from cafcat.errors import NotFound, StoreFailed, Unavailable
from cafcat.stores.base import FolderStore, Store
from cafcat.stores.keys import BACKUP_PREFIX, JOURNAL_PREFIX, MARKER_PREFIX

__all__ = ["elsewhere", "why_not_there"]

_LOOKED_AT_OBJECTS: Final = 1000
"""How many objects of a store are listed to find one that cafcat wrote."""
_OWN_PREFIXES: Final = (JOURNAL_PREFIX, BACKUP_PREFIX, MARKER_PREFIX)
_CHUNK_KEY: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\.\w+", re.ASCII)
"""Keys of chunks that cafcat wrote. Adopted archives have other keys."""


def why_not_there(store: Store, missing: str | None = None) -> str | None:
    """Return why the whole store seems to be elsewhere, or None if it is present.

    A store is present if it has an object that cafcat wrote: a chunk, a journal record, a backup or a marker. The
    mount point of an unmounted disk has none, nor has a bucket of the same name on another server. The first 1,000
    objects are examined, and whether there is any journal record.

    Args:
        store: The store.
        missing: Key of an object that should exist. If it is not a key that cafcat gives to chunks, the object was
            adopted. Then any object in the store proves that the store is present.

    Raises:
        StoreFailed, AccessDenied: The server does not answer, or refuses the request. A local folder that cannot
            be listed counts as present.
    """
    if isinstance(store, FolderStore) and not os.path.isdir(store.folder):
        return "its folder does not exist"
    is_adopted = missing is not None and not _is_own(missing)
    try:
        found = [key for key, *_ in islice(store.list(), _LOOKED_AT_OBJECTS)]
        if any(is_adopted or _is_own(key) for key in found):
            return None
        if len(found) == _LOOKED_AT_OBJECTS and any(True for _ in store.list(JOURNAL_PREFIX)):
            return None
    except NotFound as error:
        return error.message
    except StoreFailed:
        if not store.is_remote:
            return None
        raise
    return "it has no object that cafcat wrote" if found else "it is empty"


def elsewhere(url: str, why: str) -> Unavailable:
    """Return the Unavailable error for a store that is not at its URL.

    The hint names the command that enters the new URL of a store that was moved.

    Args:
        url: URL of the store.
        why: Why the store seems to be elsewhere (`why_not_there`).
    """
    hint = f"is its disk mounted? If the store was moved, run: cafcat store move {shlex.quote(url)} NEW-URL"
    return Unavailable(f"cannot find the store {url}: {why}", hint=hint)


def _is_own(key: str) -> bool:
    return key.startswith(_OWN_PREFIXES) or _CHUNK_KEY.fullmatch(key) is not None
