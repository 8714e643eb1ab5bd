"""Finds out whether cafcat's store is still at its URL, or something else, such as an empty mount point.

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
"""Most objects of a store that are listed to find one that cafcat wrote."""
_OWN_PREFIXES: Final = (JOURNAL_PREFIX, BACKUP_PREFIX, MARKER_PREFIX)
_CHUNK_KEY: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\.\w+", re.ASCII)
"""Keys of chunks that cafcat wrote. Adopted archives have other keys."""


def why_not_there(store: Store, missing: str | None = None) -> str | None:
    """Return why a store seems not to be at its URL any more, for a message; None if the store is present.

    A store is present if it has an object with a key that cafcat gives: a chunk, a journal record, a backup or a
    marker. The mount point of an unmounted disk has none, nor has a bucket of the same name on another server. If
    the first 1,000 objects have other keys, the store is present only if it has journal records.

    Args:
        store: The store.
        missing: Key of an object that should exist, if one is missing. A key that cafcat does not give is that of
            an adopted archive. Then any object in the store proves that the store is present.

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


def elsewhere(url: str, why: str, *, is_of_snapshot: bool = False) -> Unavailable:
    """Return the Unavailable error for a store that is not at its URL.

    The hint names the commands that enter the new URL of a store that was moved, and that give up a lost store. For
    a snapshot, these commands change nothing: the hint names a new snapshot.

    Args:
        url: URL of the store.
        why: Why the store seems not to be there, as `why_not_there` returns it.
        is_of_snapshot: True if the URL comes from a snapshot.
    """
    quoted = shlex.quote(url)
    first = "is its disk mounted" if url.startswith("file:") else "is this the right server and account"
    remedy = f"cafcat store move {quoted} NEW-URL; if the store is lost for good: cafcat store rm {quoted} --lost"
    hint = f"{first}? If the store was moved, " + ("make a new snapshot" if is_of_snapshot else f"run: {remedy}")
    return Unavailable(f"cannot find the store {url}: {why}", hint=hint)


def _is_own(key: str) -> bool:
    return key.startswith(_OWN_PREFIXES) or _CHUNK_KEY.fullmatch(key) is not None
