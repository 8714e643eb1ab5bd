"""Writing one object into a folder, durably, and without ever replacing another.

The bytes go to a temporary file beside the final name. Commit: fsync the file, link it to its name (which
fails if the name is taken), remove the temporary name, fsync the folder. A file system without hard links
gets an empty file created exclusively under the name, which the temporary file then replaces.
"""

import contextlib
import errno
import fcntl
import os
from typing import NoReturn

from cafcat.errors import CafcatError, Conflict, InvalidInput, StoreFailed
from cafcat.stores.keys import PARTIAL_SUFFIX
from cafcat.stores.local.errors import store_failed
from cafcat.support.private import PRIVATE_FILE, give_to_owner
from cafcat.support.syncing import FOLDER_FLAGS, sync_file, sync_folder

__all__ = ["LocalUpload"]

_DIRECT_UNIT_BYTES = 4096
"""O_DIRECT writes must begin and end at multiples of the device's block: this is one on every common
device."""
_O_DIRECT: int = getattr(os, "O_DIRECT", 0)
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_NO_HARD_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOSYS}


class LocalUpload:
    """One object being written.

    Page-aligned whole blocks pass by the page cache (O_DIRECT) where the file system allows it: measured
    nearly twice as fast as buffered writes (docs/performance.md). From the first other block on, writes are
    buffered.
    """

    def __init__(self, path: str, folder: str, key: str, *, is_private: bool = False) -> None:
        """Args: path: final file name, its folder exists; folder: that of the store, for messages; is_private:
        close the object to other users, else the umask decides.
        Raises Conflict if the key, or an upload of it, is there; StoreFailed."""
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
            raise self._taken(f"somebody writes it, or died doing so: see {self._temporary}") from error
        except OSError as error:
            raise store_failed("create", self._temporary, folder, error) from error
        try:
            self._final_mode = self._make_private()
            self._direct = self._set_direct(True)
        except BaseException:
            self.abort()
            raise

    def write(self, data: bytes | memoryview) -> None:
        """Appends. The data may be changed as soon as this returns."""
        self._check_usable()
        self._half_written = True
        try:
            self._write_all(memoryview(data).cast("B"))
        except OSError as error:
            self._fail("write", error)
        self._half_written = False

    def rewrite_head(self, data: bytes) -> None:
        """Writes the first bytes anew, through the page cache: they are no whole block."""
        self._check_usable()
        self._half_written = True
        try:
            self._direct = self._set_direct(False)
            if os.pwrite(self._descriptor, data, 0) != len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            self._fail("write", error)
        self._half_written = False

    @property
    def upload_id(self) -> str | None:
        """None: the key says which file to remove."""
        return None

    @property
    def etag(self) -> str | None:
        """None: file systems have none."""
        return None

    def commit(self, crc64nvme: int | None = None) -> None:  # noqa: ARG002 - a file system keeps no checksum
        """Makes the object durable under its key. Raises Conflict if the key was taken meanwhile."""
        self._check_usable()
        try:
            if self._final_mode is not None:
                os.fchmod(self._descriptor, self._final_mode)
            sync_file(self._descriptor)
            self._take_name()
            sync_folder(os.path.dirname(self._path))
        except FileExistsError as error:
            self._failure = self._found()
            raise self._failure from error
        except OSError as error:
            self._fail("finish", error)
        self._end()

    def abort(self) -> None:
        """Removes what was written. Never raises for what cannot be removed: `discard` of the store can
        later."""
        if not self._ended:
            with contextlib.suppress(OSError):
                os.unlink(self._temporary)
            self._end()

    def _create_private(self) -> int:
        """Create the file for the owner of its folder, who may not be this user. Raises OSError."""
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
                self._direct = self._set_direct(False)  # memory not aligned, or a larger block than we know
                continue
            self._written_bytes += count
            rest = rest[count:]

    def _set_direct(self, wanted: bool) -> bool:
        """Whether O_DIRECT is on afterwards. Set after opening, because a refused open may have made the
        file."""
        if not _O_DIRECT:
            return False
        flags = fcntl.fcntl(self._descriptor, fcntl.F_GETFL)
        flags = flags | _O_DIRECT if wanted else flags & ~_O_DIRECT
        try:
            fcntl.fcntl(self._descriptor, fcntl.F_SETFL, flags)
        except OSError:
            return False
        return wanted

    def _make_private(self) -> int | None:
        """Nobody else reads half an object. Gives the mode that the umask (or the folder's ACL) allowed, to
        be set in the end; None where the file system has no modes."""
        mode = os.fstat(self._descriptor).st_mode & 0o777
        try:
            os.fchmod(self._descriptor, 0o600)
        except OSError:
            return None
        return mode

    def _take_name(self) -> None:
        try:
            os.link(self._temporary, self._path)
        except FileExistsError:
            # A network file system may have done it and lost the answer.
            if not os.path.samestat(os.fstat(self._descriptor), os.lstat(self._path)):
                raise
        except OSError as error:
            if error.errno not in _NO_HARD_LINKS:
                raise
            self._take_name_without_links()
            return
        os.unlink(self._temporary)

    def _take_name_without_links(self) -> None:
        os.close(os.open(self._path, _CREATE, 0o600))
        try:
            os.replace(self._temporary, self._path)
        except OSError:
            os.unlink(self._path)  # our own claim, still empty
            raise

    def _check_usable(self) -> None:
        if self._failure is not None:
            raise StoreFailed(f"writing {self._path} failed before: {self._failure.message}") from self._failure
        if self._half_written:
            raise StoreFailed(f"writing {self._path} was interrupted: how much was written is not known")
        if self._ended:
            raise InvalidInput(f"the upload of {self._key} has ended")

    def _fail(self, doing: str, error: OSError) -> NoReturn:
        self._failure = store_failed(doing, self._temporary, self._folder, error)
        raise self._failure from error

    def _found(self) -> Conflict:
        """Return the error for an object that is there. Its writer may have died before its name was durable, and
        whoever finds the object relies on it: so the name is synced."""
        with contextlib.suppress(OSError):
            sync_folder(os.path.dirname(self._path))
        return self._taken("an object of that key is there")

    def _taken(self, message: str) -> Conflict:
        return Conflict(f"the store has {self._key} already: {message}", chunk=self._path)

    def _end(self) -> None:
        self._ended = True
        with contextlib.suppress(OSError):  # nothing is left to lose: committed data were fsynced
            os.close(self._descriptor)
