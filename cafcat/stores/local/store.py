"""A store in a folder of the local file system."""

import errno
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from cafcat.errors import InvalidInput, NotFound
from cafcat.stores.base import ObjectInfo
from cafcat.stores.keys import PARTIAL_SUFFIX, check_key
from cafcat.stores.local.errors import store_failed
from cafcat.stores.local.files import CachedFiles, LocalFile
from cafcat.stores.local.upload import LocalUpload
from cafcat.stores.presence import elsewhere, why_not_there
from cafcat.support.private import PRIVATE_FOLDER, make_private_folder
from cafcat.support.syncing import sync_ancestors, sync_folder

__all__ = ["LocalStore"]


class LocalStore:
    """A store whose objects are the files below a folder. Safe to share between threads and processes.

    The folder is created with the first object. Up to 64 files stay open for later reads; `close` closes them.

    Attributes:
        folder: Absolute path of the folder.
        url: URL of the folder, percent-encoded: "file:///srv/chunks".
        is_remote: False, even on a network file system, because the operating system hides the server.
        reads_in_flight: 1: files come from the page cache, or from a disk that reads ahead by itself.
    """

    is_remote: Final = False
    reads_in_flight: Final = 1

    def __init__(self, folder: Path, *, is_private: bool = False) -> None:
        """Describe a store in a folder, which may be missing.

        Args:
            folder: The folder, absolute or relative to the current one.
            is_private: True to create files, the store's folders and the parent of `folder` without permissions for
                other users; existing ones stay as they are. False to apply the umask.
        """
        self.folder: Final = os.path.abspath(folder)
        self.url: Final = Path(self.folder).as_uri()
        self._cache = CachedFiles(self)
        self._is_private = is_private
        self._synced: set[tuple[str, int]] = set()
        """Path and inode of each folder whose name, with those of all folders above, this process has synced."""
        self._known_place: tuple[int, int] | None = None
        """Device and inode of the store's folder when the last upload began, or before, when the first object was
        found there; None before both, and after `close`."""

    def close(self) -> None:
        """Close the files that reads have left open. Idempotent. The store can still be used.

        Afterwards, the store's folder may also be made anew: the next upload does not miss the former one.
        """
        self._cache.close()
        self._known_place = None

    def create(self, key: str, *, rewrites_head: bool = False) -> LocalUpload:  # noqa: ARG002 - any head can be rewritten
        """Begin the upload of a new object.

        Raises:
            InvalidInput: The key is not allowed.
            Conflict: The store has an object with this key, or an unfinished upload of the key.
            Unavailable: The folder of the store vanished since an object was found or written, as by an unmount.
            StoreFailed: The file cannot be created.
        """
        path = self.locate(key)
        self._check_place()
        self._make_folder(os.path.dirname(path))
        self._known_place = self._place()
        return LocalUpload(path, self.folder, key, is_private=self._is_private)

    def read(self, key: str, start_byte: int, end_byte: int) -> bytes:
        """Return exactly the bytes `[start_byte, end_byte)` of an object.

        Raises:
            NotFound: There is no such object.
            Corrupt: The object is shorter than end_byte.
            InvalidInput: The range or the key is not valid.
            StoreFailed: The file cannot be opened or read.
        """
        return self._cache.read(key, start_byte, end_byte)

    def open(self, key: str) -> LocalFile:
        """Open an object as a file. The file belongs to the caller: `close` of the store does not close it.

        Raises:
            NotFound: There is no such object, or its path is not that of a regular file.
            InvalidInput: The key is not valid.
            StoreFailed: The file cannot be opened.
        """
        path = self.locate(key)
        try:
            return LocalFile(path)
        except (NotFound, InvalidInput) as error:
            raise NotFound(f"no object {key} in {self.folder}", chunk=path) from error

    def stream(self, key: str, start_byte: int, end_byte: int) -> Iterator[bytes]:
        """Yield the bytes `[start_byte, end_byte)` of an object in blocks of at most 1 MiB.

        Raises:
            NotFound: There is no such object.
            Corrupt: The object is shorter than end_byte.
            InvalidInput: The range or the key is not valid.
            StoreFailed: The file cannot be opened or read.
        """
        with self.open(key) as file:
            yield from file.blocks(start_byte, end_byte)

    def stat(self, key: str) -> ObjectInfo:
        """Return key and size of an object. The entity tag is None.

        Raises:
            NotFound: There is no such object.
            InvalidInput: The key is not valid.
            StoreFailed: The file cannot be opened.
        """
        with self.open(key) as file:
            if self._known_place is None:
                self._known_place = self._place()
            return ObjectInfo(key, file.size_bytes)

    def delete(self, key: str) -> None:
        """Remove an object durably. A missing object is not an error."""
        self._cache.drop(key)
        self._remove(self.locate(key))

    def discard(self, key: str, upload_id: str | None = None) -> None:  # noqa: ARG002 - a key has one upload
        """Remove the unfinished upload of a key, which a dead process left behind.

        The upload of a living process is removed, too: the caller must know that there is none. A missing upload is
        not an error.
        """
        self._remove(self.locate(key) + PARTIAL_SUFFIX)

    def uploads(self) -> Iterator[str]:
        """Yield the key of each unfinished upload, whether or not its writer is alive."""
        for name in self._walk():
            if name.endswith(PARTIAL_SUFFIX):
                yield name.removesuffix(PARTIAL_SUFFIX)

    def list(self, below: str = "") -> Iterator[ObjectInfo]:
        """Yield all objects in order of key, or only those below a folder of keys.

        Files with names that are not allowed as keys, such as unfinished uploads, are left out.
        """
        for key in self._walk(below):
            if (size_bytes := self._size_of(key)) is not None:
                yield ObjectInfo(key, size_bytes)

    def locate(self, key: str) -> str:
        """Return the absolute path of an object's file. Raises InvalidInput for a key that is not allowed."""
        return f"{self.folder}/{check_key(key)}"

    def _remove(self, path: str) -> None:
        try:
            os.unlink(path)
            sync_folder(os.path.dirname(path))
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            raise store_failed("remove", path, self.folder, error) from error

    def _walk(self, below: str = "") -> Iterator[str]:
        """Yield the paths of all files, relative to the store's folder, in the order of their bytes.

        Args:
            below: Only yield files below this folder of the store, which ends in a slash; "" for all.
        """
        pending = [below]
        while pending:
            name = pending.pop()
            if not name or name.endswith("/"):
                pending.extend(name + below for below in self._names(name))
            else:
                yield name

    def _names(self, key: str) -> Sequence[str]:
        """Return the names in a folder of the store, in reverse order. Names of folders end in "/".

        The result is empty for a missing folder.

        Args:
            key: Path of the folder relative to the store's folder, with a slash at its end; "" for the latter.
        """
        folder = f"{self.folder}/{key}"
        try:
            with os.scandir(folder) as entries:
                names = [f"{entry.name}/" if entry.is_dir() else entry.name for entry in entries]
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise store_failed("list", folder, self.folder, error) from error
        return sorted(names, reverse=True)

    def _size_of(self, key: str) -> int | None:
        """Return the size of an object.

        Returns:
            The size in bytes; None if the name of the file is not allowed as a key, if the file was removed, or if
            it is not a regular file.
        """
        path = f"{self.folder}/{key}"
        try:
            check_key(key)
            status = os.stat(path)
        except (InvalidInput, FileNotFoundError):
            return None
        except OSError as error:
            raise store_failed("list", path, self.folder, error) from error
        return status.st_size if stat.S_ISREG(status.st_mode) else None

    def _check_place(self) -> None:
        """Raise Unavailable if this process has used another folder of this name, and no store is here now.

        Without this check, the chunks after an unmount would get into the empty mount point, and be committed.
        """
        if self._known_place in (None, self._place()):
            return
        if (why := why_not_there(self)) is not None:
            raise elsewhere(self.url, why)

    def _place(self) -> tuple[int, int] | None:
        """Return device and inode of the store's folder; None if it cannot be found."""
        try:
            status = os.stat(self.folder)
        except OSError:
            return None
        return status.st_dev, status.st_ino

    def _make_folder(self, folder: str) -> None:
        """Create a folder of the store, with all missing folders above it, and make their names durable.

        Existing folders are synced, too, once in this process: another process may have created one and not synced
        it yet.
        """
        try:
            with suppress(FileNotFoundError):
                if (folder, os.stat(folder).st_ino) in self._synced:
                    return
            self._make_missing(folder)
            sync_ancestors(folder)
            self._synced.add((folder, os.stat(folder).st_ino))
        except OSError as error:
            raise store_failed("create", folder, self.folder, error) from error

    def _make_missing(self, folder: str) -> None:
        missing = []
        while not os.path.isdir(folder):
            missing.append(folder)
            folder = os.path.dirname(folder)
        for path in reversed(missing):
            is_ours = self._is_private and f"{path}/".startswith(f"{os.path.dirname(self.folder)}/")
            with suppress(FileExistsError):
                if is_ours and len(path) >= len(self.folder):
                    make_private_folder(path)
                else:
                    os.mkdir(path, PRIVATE_FOLDER if is_ours else 0o777)
            if not os.path.isdir(path):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
