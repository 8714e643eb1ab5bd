"""Checks that two stores are different places, so that removing an object from one leaves the other alone.

Two URLs can mean the same place: through a symbolic link, a second mount, or an S3 server that serves a folder.
Then an object and its "copy" in the other store are one object, and removing the "copy" loses both.

Folders are compared by device and inode. That does not recognize every second name of a place. Therefore a probe
follows: a tiny object with a fresh random key is written into one store, looked for in the other store, and
removed. Both directions are probed, because a server may show objects of other writers late.
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

_PROBE: Final = b"cafcat checks whether two stores are the same place; this object may be removed\n"


class Unproven(StoreFailed):
    """cafcat could not find out whether two stores are the same place.

    A store refused the probe or did not answer, or the operating system cannot compare two folders or files.
    """


class DistinctStores:
    """Raises InvalidInput for two stores that are the same place under two names.

    The stores are probed: a small object is written into each store, and removed. An instance caches the results of
    the probes, and is used during one operation. Folders and files are compared again at every call.
    """

    def __init__(self) -> None:
        self._results: dict[tuple[str, str], bool | CafcatError] = {}

    def prove(self, store: Store, other: Store, keys: tuple[str, str] | None = None) -> None:
        """Prove that removing an object of one store leaves an object of another store alone.

        A probe is written into both stores, except into a missing folder.

        Args:
            store: The first store.
            other: The second store.
            keys: Keys of an object in `store` and of one in `other`; the objects may be missing. None: only the
                stores are compared.

        Raises:
            InvalidInput: Both stores are the same place, or both objects are the same file.
            Unproven: A store refuses the probe or does not answer, or the operating system cannot compare two
                folders or files.
        """
        check_files(store, other, keys)
        for writer, reader in ((store, other), (other, store)):
            with _unproven(store, other):
                is_visible = self._is_visible(writer, reader)
            if is_visible:
                raise _same_place(store, other)

    def check(self, store: Store, other: Store, keys: tuple[str, str] | None = None) -> None:
        """Check that two stores are different places before writing into the first one.

        The second store may be read-only. If it refuses the probe or does not answer, it counts as a different
        place. This check is enough for writing, but not for removing objects: see `prove`.

        Args:
            store: The store that is going to be written.
            other: The second store.
            keys: Keys of an object in `store` and of one in `other`; the objects may be missing. None: only the
                stores are compared.

        Raises:
            InvalidInput: Both stores are the same place, or both objects are the same file.
            StoreFailed, AccessDenied: `store` refuses the probe or does not answer, or the operating system cannot
                compare two folders or files.
            NotFound: `store` is a bucket that is missing.
        """
        check_files(store, other, keys)
        is_visible = False
        with suppress(Unproven):
            is_visible = self._is_visible(store, other)
        with suppress(CafcatError):
            is_visible = is_visible or self._is_visible(other, store)
        if is_visible:
            raise _same_place(store, other)

    def _is_visible(self, writer: Store, reader: Store) -> bool:
        """Return True if an object that is written into `writer` appears in `reader`.

        The result for this writer and this reader is cached. The error of a failed probe is cached, too, and raised
        again by later calls.
        """
        pair = (writer.url, reader.url)
        if pair not in self._results:
            try:
                self._results[pair] = _probe(writer, reader)
            except CafcatError as error:
                self._results[pair] = error
        found = self._results[pair]
        if isinstance(found, CafcatError):
            raise found
        return found


def check_files(store: Store, other: Store, keys: tuple[str, str] | None = None) -> None:
    """Check that two stores are not the same folder, and two objects not the same file. This writes nothing.

    If one of the stores is not a folder of this machine, nothing is compared.

    Args:
        store: The first store.
        other: The second store.
        keys: Keys of an object in `store` and of one in `other`; the objects may be missing. None: only the stores
            are compared.

    Raises:
        InvalidInput: Both stores are the same folder, or both objects are the same file.
        Unproven: The operating system cannot compare the folders or files.
    """
    if not isinstance(store, FolderStore) or not isinstance(other, FolderStore):
        return
    try:
        if _is_same_file(store.folder, other.folder):
            raise _same_place(store, other)
        files = (store.locate(keys[0]), other.locate(keys[1])) if keys else ("", "")
        if keys and _is_same_file(*files):
            hint = "one of them is a link, not a copy: remove the link by hand"
            raise InvalidInput(f"{files[0]} and {files[1]} are the same file", hint=hint)
    except OSError as error:
        raise Unproven(_message(store, other, str(error))) from error


def _is_same_file(path: str, other: str) -> bool:
    with suppress(FileNotFoundError, NotADirectoryError):
        return os.path.samefile(path, other)
    return False


def _probe(writer: Store, reader: Store) -> bool:
    """Return True if a probe object that is written into `writer` appears in `reader`.

    The probe object is removed afterwards; errors of its removal are suppressed. If `writer` is a missing folder,
    the folder is not created, and the result is False.
    """
    if isinstance(writer, FolderStore) and not os.path.isdir(writer.folder):
        return False
    key = probe_key()
    try:
        put_once(writer, key, lambda: [_PROBE])
        with _unproven(writer, reader):
            is_visible = has(reader, key)
            # A concurrent `cafcat recover` may have removed the probe as a leftover.
            if not is_visible and not has(writer, key):
                raise StoreFailed(f"the probe object that was just written into {writer.url} is missing")
        return is_visible
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
        raise Unproven(_message(store, other, str(error))) from error


def _message(store: Store, other: Store, why: str) -> str:
    return f"cannot find out whether {store.url} and {other.url} are the same place: {why}"


def _same_place(store: Store, other: Store) -> InvalidInput:
    hint = "one is a link to the other, or a server for the other's files; `cafcat store ls` lists all stores"
    return InvalidInput(f"{store.url} and {other.url} are the same store under two names", hint=hint)
