"""Proof that two stores are different places.

Two URLs can name one place: through a symbolic link, a second mount, or an S3 server that serves a folder. There an
object is no copy of itself, and whoever removes the copy removes the object.

Folders are compared by device and inode. That does not see every second name, so a probe follows: a tiny object
with a fresh random key is written into one store, looked for in the other one, and removed. This is done in both
directions, as servers remember listings for some time, and show late what others write.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from cafcat.errors import CafcatError, InvalidInput, StoreFailed
from cafcat.stores.base import FolderStore, Store, has
from cafcat.stores.keys import probe_key
from cafcat.stores.putting import put_once

__all__ = ["DistinctStores", "Unproven", "check_files"]

_PROBE: Final = b"cafcat looks whether two stores are one place; this object may be removed\n"


class Unproven(StoreFailed):
    """It cannot be told whether two stores are one place."""


class DistinctStores:
    """For one piece of work: each pair of stores is looked at once, the files of objects every time."""

    def __init__(self) -> None:
        """Begin without knowing anything."""
        self._seen: dict[tuple[str, str], bool | CafcatError] = {}

    def prove(self, store: Store, other: Store, keys: tuple[str, str] | None = None) -> None:
        """Prove that removing an object of a store leaves an object of another store alone.

        Args:
            keys: of the objects in `store` and `other`; they need not be there.

        Raises:
            InvalidInput: both are one place, or one file.
            Unproven: one of the stores does not take the probe, or does not answer.
        """
        check_files(store, other, keys)
        for writer, reader in ((store, other), (other, store)):
            with _unproven(store, other):
                is_seen = self._sees(writer, reader)
            if is_seen:
                raise _same_place(store, other)

    def check(self, store: Store, other: Store, keys: tuple[str, str] | None = None) -> None:
        """Check that an object of a store is another one than that of another store, which may be read-only: what
        cannot be told there is taken for different. So this is enough to write, not to remove.

        Raises:
            InvalidInput: both are one place, or one file.
            StoreFailed, AccessDenied: `store` does not take the probe.
        """
        check_files(store, other, keys)
        is_seen = False
        with suppress(Unproven):
            is_seen = self._sees(store, other)
        with suppress(CafcatError):
            is_seen = is_seen or self._sees(other, store)
        if is_seen:
            raise _same_place(store, other)

    def _sees(self, writer: Store, reader: Store) -> bool:
        """Whether an object that is written into one store is seen in the other one."""
        pair = (writer.url, reader.url)
        if pair not in self._seen:
            try:
                self._seen[pair] = _look(writer, reader)
            except CafcatError as error:
                self._seen[pair] = error
        found = self._seen[pair]
        if isinstance(found, CafcatError):
            raise found
        return found


def check_files(store: Store, other: Store, keys: tuple[str, str] | None = None) -> None:
    """Raise InvalidInput if two stores are the same folder, or their objects the same file; Unproven if that cannot
    be told. Nothing is written."""
    if not isinstance(store, FolderStore) or not isinstance(other, FolderStore):
        return
    try:
        if _is_same(store.folder, other.folder):
            raise _same_place(store, other)
        files = (store.locate(keys[0]), other.locate(keys[1])) if keys else ("", "")
        if keys and _is_same(*files):
            hint = "a link of that name is no copy: remove it by hand"
            raise InvalidInput(f"{files[0]} and {files[1]} are the same file", hint=hint)
    except OSError as error:
        raise Unproven(_unknown(store, other, str(error))) from error


def _is_same(path: str, other: str) -> bool:
    with suppress(FileNotFoundError, NotADirectoryError):
        return os.path.samefile(path, other)
    return False


def _look(writer: Store, reader: Store) -> bool:
    """A folder that is not there is no other place, and is not made."""
    if isinstance(writer, FolderStore) and not os.path.isdir(writer.folder):
        return False
    key = probe_key()
    try:
        put_once(writer, key, lambda: [_PROBE])
        with _unproven(writer, reader):
            is_seen = has(reader, key)
            # A concurrent recover removes what it takes for a probe that was left.
            if not is_seen and not has(writer, key):
                raise StoreFailed(f"an object that was just written into {writer.url} is gone")
        return is_seen
    finally:
        with suppress(CafcatError):
            writer.delete(key)


@contextmanager
def _unproven(store: Store, other: Store) -> Iterator[None]:
    try:
        yield
    except Unproven:
        raise
    except CafcatError as error:
        raise Unproven(_unknown(store, other, str(error))) from error


def _unknown(store: Store, other: Store, why: str) -> str:
    return f"cannot tell whether {store.url} and {other.url} are the same place: {why}"


def _same_place(store: Store, other: Store) -> InvalidInput:
    hint = "one is a link to the other, or a server of its files: `cafcat store ls` shows all stores"
    return InvalidInput(f"{store.url} is the store {other.url} by another name", hint=hint)
