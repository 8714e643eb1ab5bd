"""Writes one object into a folder, durably, and without ever replacing another object.

The bytes go to a temporary file beside the final name. Commit: fsync the file, link it to its name (which fails if
the name is taken), remove the temporary name, fsync the folder. On a file system without hard links, an empty file
is created exclusively under the final name, and the temporary file then replaces it.
"""

import contextlib
import errno
import fcntl
import os
from typing import Final, NoReturn

from cafcat.errors import CafcatError, Conflict, InvalidInput, StoreFailed
from cafcat.stores.keys import PARTIAL_SUFFIX
from cafcat.stores.local.errors import store_failed
from cafcat.support.private import PRIVATE_FILE, give_to_owner
from cafcat.support.syncing import FOLDER_FLAGS, sync_file, sync_folder

__all__ = ["LocalUpload"]

_DIRECT_UNIT_BYTES = 4096
"""Unit of writes with O_DIRECT, in bytes: they must begin and end at multiples of the device's block size, which
divides 4,096 on every common device."""
_O_DIRECT: int = getattr(os, "O_DIRECT", 0)
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_NO_HARD_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOSYS}


class LocalUpload:
    """One object that is being written into the folder of a store.

    Whole blocks in page-aligned memory bypass the page cache (O_DIRECT) where the file system allows it. This is
    nearly twice as fast as buffered writes (docs/performance.md). From the first write of anything else on, all
    writes of this object are buffered.

    Attributes:
        upload_id: Always None, because the key is enough to find the temporary file.
        etag: Always None, because file systems have no entity tags.
    """

    upload_id: Final = None
    etag: Final = None

    def __init__(self, path: str, folder: str, key: str, *, is_private: bool = False) -> None:
        """Create the temporary file of a new object.

        Args:
            path: Final path of the object. Its folder must exist.
            folder: Folder of the store, for messages.
            key: Key of the object, for messages.
            is_private: True to give the object no permissions for other users. False to apply the umask. Before the
                commit, only the owner can read the file in either case.

        Raises:
            Conflict: The store has this key, or an unfinished upload of it.
            StoreFailed: The file cannot be created.
        """
        self._path = path
        self._temporary = path + PARTIAL_SUFFIX
        self._folder = folder
        self._key = key
        self._written_bytes = 0
        self._half_written = False
        self._failure: CafcatError | None = None
        self._ended = False
        if os.path.lexists(path):
            raise self._found()
        try:
            self._descriptor = self._create_private() if is_private else os.open(self._temporary, _CREATE, 0o666)
        except FileExistsError as error:
            raise self._taken(
                f"another process is writing it, or died while writing it: see {self._temporary}"
            ) from error
        except OSError as error:
            raise store_failed("create", self._temporary, folder, error) from error
        try:
            self._final_mode = self._make_private()
            self._direct = self._set_direct(True)
        except BaseException:
            self.abort()
            raise

    def write(self, data: bytes | memoryview) -> None:
        """Append bytes to the new object. The caller may change the buffer as soon as this returns.

        Raises:
            StoreFailed: The file cannot be written. Later calls of `write`, `rewrite_head` and `commit` fail, too.
            InvalidInput: The upload has ended.
        """
        self._check_usable()
        self._half_written = True
        try:
            self._write_all(memoryview(data).cast("B"))
        except OSError as error:
            self._fail("write", error)
        self._half_written = False

    def rewrite_head(self, data: bytes) -> None:
        """Replace the first bytes of the object, which need not be a whole block: the write is buffered.

        Raises:
            StoreFailed: The file cannot be written, or an earlier write failed.
            InvalidInput: The upload has ended.
        """
        self._check_usable()
        self._half_written = True
        try:
            self._direct = self._set_direct(False)
            if os.pwrite(self._descriptor, data, 0) != len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            self._fail("write", error)
        self._half_written = False

    def commit(self, crc64nvme: int | None = None) -> None:  # noqa: ARG002 - a file system keeps no checksum
        """Make the object durable and visible under its key.

        Raises:
            Conflict: The store already has another object with this key.
            StoreFailed: The file cannot be written, or an earlier write failed. The object may be visible
                nevertheless, if its folder could not be synced.
            InvalidInput: The upload has ended.
        """
        self._check_usable()
        try:
            if self._final_mode is not None:
                os.fchmod(self._descriptor, self._final_mode)
            sync_file(self._descriptor)
            self._link_name()
            sync_folder(os.path.dirname(self._path))
        except FileExistsError as error:
            self._failure = self._found()
            raise self._failure from error
        except OSError as error:
            self._fail("finish", error)
        self._end()

    def abort(self) -> None:
        """Remove the temporary file of the object, unless the upload has ended.

        Errors are suppressed, because `LocalStore.discard` can remove the file later. Idempotent.
        """
        if not self._ended:
            with contextlib.suppress(OSError):
                os.unlink(self._temporary)
            self._end()

    def _create_private(self) -> int:
        """Create the temporary file for the owner of its folder, who may be another user. Return its descriptor.

        Raises:
            OSError: The file cannot be created, or exists.
        """
        folder = os.open(os.path.dirname(self._temporary), FOLDER_FLAGS)
        try:
            descriptor = os.open(os.path.basename(self._temporary), _CREATE, PRIVATE_FILE, dir_fd=folder)
            give_to_owner(descriptor, folder)
        finally:
            os.close(folder)
        return descriptor

    def _write_all(self, rest: memoryview) -> None:
        while rest:
            if self._direct and (self._written_bytes | len(rest)) % _DIRECT_UNIT_BYTES:
                self._direct = self._set_direct(False)
            try:
                count = os.write(self._descriptor, rest)
            except OSError as error:
                if not (self._direct and error.errno == errno.EINVAL):
                    raise
                self._direct = self._set_direct(False)  # the memory is not aligned, or the device has larger blocks
                continue
            self._written_bytes += count
            rest = rest[count:]

    def _set_direct(self, is_direct: bool) -> bool:
        """Switch O_DIRECT on or off, and return True if it is on afterwards.

        The flag is set after opening, because an open that fails with it may already have created the file.
        """
        if not _O_DIRECT:
            return False
        flags = fcntl.fcntl(self._descriptor, fcntl.F_GETFL)
        flags = flags | _O_DIRECT if is_direct else flags & ~_O_DIRECT
        try:
            fcntl.fcntl(self._descriptor, fcntl.F_SETFL, flags)
        except OSError:
            return False
        return is_direct

    def _make_private(self) -> int | None:
        """Remove the permissions of other users from the unfinished file.

        Returns:
            The mode with which the file was created, which `commit` sets again. None if the mode cannot be changed,
            as on a file system without modes.
        """
        mode = os.fstat(self._descriptor).st_mode & 0o777
        try:
            os.fchmod(self._descriptor, 0o600)
        except OSError:
            return None
        return mode

    def _link_name(self) -> None:
        try:
            os.link(self._temporary, self._path)
        except FileExistsError:
            # A network file system may have created the link and lost the answer.
            if not os.path.samestat(os.fstat(self._descriptor), os.lstat(self._path)):
                raise
        except OSError as error:
            if error.errno not in _NO_HARD_LINKS:
                raise
            self._rename_without_links()
            return
        os.unlink(self._temporary)

    def _rename_without_links(self) -> None:
        os.close(os.open(self._path, _CREATE, 0o600))
        try:
            os.replace(self._temporary, self._path)
        except OSError:
            os.unlink(self._path)  # the empty file from above
            raise

    def _check_usable(self) -> None:
        if self._failure is not None:
            raise StoreFailed(
                f"an earlier write to {self._path} failed: {self._failure.message}"
            ) from self._failure
        if self._half_written:
            raise StoreFailed(f"writing {self._path} was interrupted: the number of written bytes is not known")
        if self._ended:
            raise InvalidInput(f"the upload of {self._key} has ended")

    def _fail(self, doing: str, error: OSError) -> NoReturn:
        self._failure = store_failed(doing, self._temporary, self._folder, error)
        raise self._failure from error

    def _found(self) -> Conflict:
        """Sync the name of an existing object, and return the error for it.

        The writer of that object may have died before its name was durable. Callers rely on the object that they
        find.
        """
        with contextlib.suppress(OSError):
            sync_folder(os.path.dirname(self._path))
        return self._taken("an object with this key exists")

    def _taken(self, message: str) -> Conflict:
        return Conflict(f"cannot write the object {self._key}: {message}", chunk=self._path)

    def _end(self) -> None:
        self._ended = True
        with contextlib.suppress(OSError):  # an error here loses nothing: committed data were fsynced
            os.close(self._descriptor)
