"""A store in a folder of the local file system."""

import errno
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from cafcat.errors import InvalidInput, NotFound
from cafcat.stores.base import ObjectInfo
from cafcat.stores.keys import PARTIAL_SUFFIX, check_key
from cafcat.stores.local.errors import store_failed
from cafcat.stores.local.files import LocalFile
from cafcat.stores.local.open_files import CachedFiles
from cafcat.stores.local.upload import LocalUpload
from cafcat.support.private import PRIVATE_FOLDER, make_private_folder
from cafcat.support.syncing import sync_ancestors, sync_folder

__all__ = ["LocalStore"]


class LocalStore:
    """Objects are files of a folder, by their keys; the folder is made when the first object is. Safe to
    share by threads and processes.

    Files that were read stay open for a while, until `close`.
    """

    def __init__(self, folder: Path, *, is_private: bool = False) -> None:
        """is_private: close the folder, the one that holds it, and all files in it to other users. Otherwise the
        umask decides."""
        self._folder = os.path.abspath(folder)
        self._kept = CachedFiles(self.open)
        self._is_private = is_private
        self._synced: set[tuple[str, int]] = set()
        """Folders, by path and inode, whose own names this process has synced, with those of all folders above."""

    def close(self) -> None:
        """Closes the files that are still open. Idempotent; the store can still be used."""
        self._kept.close()

    @property
    def folder(self) -> str:
        """Absolute path of the folder."""
        return self._folder

    @property
    def url(self) -> str:
        """ "file:///srv/chunks", whatever the folder's name has in it percent-encoded."""
        return Path(self._folder).as_uri()

    @property
    def is_remote(self) -> bool:
        """False, also for a network file system: the operating system hides the server."""
        return False

    @property
    def reads_in_flight(self) -> int:
        """1: files come from the page cache, or from a disk that reads ahead by itself."""
        return 1

    def create(self, key: str, *, rewrites_head: bool = False) -> LocalUpload:  # noqa: ARG002 - any file can be
        """Raises InvalidInput for a bad key, Conflict if the key is taken or being written, StoreFailed."""
        path = self.locate(key)
        self._make_folder(os.path.dirname(path))
        return LocalUpload(path, self._folder, key, is_private=self._is_private)

    def read(self, key: str, start_byte: int, end_byte: int) -> bytes:
        """Exactly `[start_byte, end_byte)`. Raises NotFound, Corrupt if the object ends earlier,
        StoreFailed."""
        return self._kept.read(key, start_byte, end_byte)

    def open(self, key: str) -> LocalFile:
        """An object as a file that is open for reading; nothing here keeps it. Raises NotFound, StoreFailed."""
        path = self.locate(key)
        try:
            return LocalFile(path)
        except (NotFound, InvalidInput) as error:
            raise NotFound(f"no object {key} in {self._folder}", chunk=path) from error

    def stream(self, key: str, start_byte: int, end_byte: int) -> Iterator[bytes]:
        """The same in blocks of at most 1 MiB."""
        with self.open(key) as file:
            yield from file.blocks(start_byte, end_byte)

    def stat(self, key: str) -> ObjectInfo:
        """Raises NotFound, StoreFailed."""
        with self.open(key) as file:
            return ObjectInfo(key, file.size_bytes)

    def delete(self, key: str) -> None:
        """Removes an object, durably. No error if it is not there."""
        self._kept.drop(key)
        self._remove(self.locate(key))

    def discard(self, key: str, upload_id: str | None = None) -> None:  # noqa: ARG002 - keys say it all here
        """Removes what an upload left behind whose process died. No error if there is nothing."""
        self._remove(self.locate(key) + PARTIAL_SUFFIX)

    def uploads(self) -> Iterator[str]:
        """Keys of the uploads that have not ended."""
        for name in self._walk():
            if name.endswith(PARTIAL_SUFFIX):
                yield name.removesuffix(PARTIAL_SUFFIX)

    def list(self, below: str = "") -> Iterator[ObjectInfo]:
        """All objects, or those below a folder of keys, in order of key."""
        for key in self._walk(below):
            if (size_bytes := self._size_of(key)) is not None:
                yield ObjectInfo(key, size_bytes)

    def locate(self, key: str) -> str:
        """The absolute path of an object's file."""
        return f"{self._folder}/{check_key(key)}"

    def _remove(self, path: str) -> None:
        try:
            os.unlink(path)
            sync_folder(os.path.dirname(path))
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            raise store_failed("remove", path, self._folder, error) from error

    def _walk(self, below: str = "") -> Iterator[str]:
        """Names of all files, relative to the folder, in byte order."""
        pending = [below]
        while pending:
            name = pending.pop()
            if not name or name.endswith("/"):
                pending.extend(name + below for below in self._names(name))
            else:
                yield name

    def _names(self, key: str) -> Sequence[str]:
        """Of a folder, in reverse order; those of folders end in "/"."""
        folder = f"{self._folder}/{key}"
        try:
            with os.scandir(folder) as entries:
                names = [f"{entry.name}/" if entry.is_dir() else entry.name for entry in entries]
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise store_failed("list", folder, self._folder, error) from error
        return sorted(names, reverse=True)

    def _size_of(self, key: str) -> int | None:
        """None for what is no object: something else's file, or one that was just deleted."""
        path = f"{self._folder}/{key}"
        try:
            check_key(key)
            status = os.stat(path)
        except (InvalidInput, FileNotFoundError):
            return None
        except OSError as error:
            raise store_failed("list", path, self._folder, error) from error
        return status.st_size if stat.S_ISREG(status.st_mode) else None

    def _make_folder(self, folder: str) -> None:
        """Make a folder of the store, with every folder above it that is missing. When this returns, the names of
        all of them are durable, whoever made them: another process may have made one and not synced it yet."""
        try:
            with suppress(FileNotFoundError):
                if (folder, os.stat(folder).st_ino) in self._synced:
                    return
            self._make_missing(folder)
            sync_ancestors(folder)
            self._synced.add((folder, os.stat(folder).st_ino))
        except OSError as error:
            raise store_failed("create", folder, self._folder, error) from error

    def _make_missing(self, folder: str) -> None:
        missing = []
        while not os.path.isdir(folder):
            missing.append(folder)
            folder = os.path.dirname(folder)
        for path in reversed(missing):
            is_ours = self._is_private and f"{path}/".startswith(f"{os.path.dirname(self._folder)}/")
            with suppress(FileExistsError):
                if is_ours and len(path) >= len(self._folder):
                    make_private_folder(path)
                else:
                    os.mkdir(path, PRIVATE_FOLDER if is_ours else 0o777)
            if not os.path.isdir(path):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
