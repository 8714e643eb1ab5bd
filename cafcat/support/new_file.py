"""A new file that has no name until its content is complete."""

import errno
import os
from contextlib import suppress
from typing import Final

from cafcat.support.syncing import rename_new, sync_file

__all__ = ["NewFile", "new_file", "new_named_file", "write_all"]

_UNNAMED_FLAGS: Final = os.O_RDWR | os.O_CLOEXEC | getattr(os, "O_TMPFILE", os.O_DIRECTORY)
_NAMED_FLAGS: Final = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_NO_UNNAMED_FILES: Final = (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT)
"""Errors of systems and file systems without O_TMPFILE. ENOENT also means that the folder was removed: then making
a name in it fails, too."""
_NO_LINKS: Final = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)
_COPIED_BYTES: Final = 1 << 20


class NewFile:
    """An open file that is being written in an open folder.

    temporary: its name until it takes its real one; None where the file system has files without names. A file
    without a name is gone when its process is. One with a temporary name is closed to other users until then.
    """

    __slots__ = ("_folder", "_mode", "descriptor", "temporary")

    def __init__(self, folder: int, descriptor: int, temporary: str | None, mode: int | None) -> None:
        """mode: to be set before the file takes its name; None if it is right already."""
        self._folder = folder
        self.descriptor = descriptor
        self.temporary = temporary
        self._mode = mode

    def take_name(self, name: str, *, overwrite: bool) -> None:
        """Give the file its name, in one step: at no moment the name means anything but the old file or this one.
        The content has to be durable. Closes the file. Raises OSError, FileExistsError if there is one of that name
        and overwrite is false; then nothing is left of this one."""
        try:
            if self._mode is not None:
                os.fchmod(self.descriptor, self._mode)
            if self.temporary is None:
                self._link(name, overwrite=overwrite)
            if self.temporary is not None:
                self._rename(self.temporary, name, overwrite=overwrite)
        except BaseException:
            self.discard()
            raise
        self._close()

    def _link(self, name: str, *, overwrite: bool) -> None:
        """Give a file without a name its real one; or, where that takes a further step, a temporary one."""
        own = f"/proc/self/fd/{self.descriptor}"
        try:
            os.link(own, name, dst_dir_fd=self._folder, follow_symlinks=True)
        except FileExistsError:
            if not overwrite:
                raise
            temporary = _temporary_name()
            self.temporary = temporary  # before the link: an interrupt may come between
            os.link(own, temporary, dst_dir_fd=self._folder, follow_symlinks=True)
        except OSError as error:
            if error.errno not in (*_NO_LINKS, errno.ENOENT, errno.EXDEV):
                raise
            self._copy()

    def _copy(self) -> None:
        """Replace a file that cannot be linked by a copy that has a temporary name."""
        source = self.descriptor
        copy = new_named_file(self._folder, os.fstat(source).st_mode & 0o777)
        self.descriptor, self.temporary = copy.descriptor, copy.temporary
        try:
            position = 0
            while block := os.pread(source, _COPIED_BYTES, position):
                write_all(copy.descriptor, block)
                position += len(block)
            os.fchmod(copy.descriptor, os.fstat(source).st_mode & 0o777)
            os.utime(copy.descriptor, ns=(0, os.fstat(source).st_mtime_ns))
            sync_file(copy.descriptor)
        finally:
            os.close(source)

    def _rename(self, temporary: str, name: str, *, overwrite: bool) -> None:
        folder = self._folder
        if overwrite:
            os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        elif not rename_new(folder, temporary, name):
            self._rename_in_steps(temporary, name)
        self.temporary = None

    def _rename_in_steps(self, temporary: str, name: str) -> None:
        folder = self._folder
        try:
            os.link(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            # No hard links here: claim the name, then rename over our own claim.
            os.close(os.open(name, _NAMED_FLAGS, dir_fd=folder))
            os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
            return
        os.unlink(temporary, dir_fd=folder)

    def discard(self) -> None:
        """Close the file and remove its temporary name, if it has one. After `take_name` this does nothing."""
        self._close()
        if self.temporary is not None:
            with suppress(OSError):
                os.unlink(self.temporary, dir_fd=self._folder)

    def _close(self) -> None:
        descriptor, self.descriptor = self.descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


def new_file(folder: int, mode: int = 0o666) -> NewFile:
    """Open a new file in an open folder: without a name where the file system has such files, else with a temporary
    one. The umask is taken from the mode. Raises OSError."""
    try:
        return NewFile(folder, os.open(".", _UNNAMED_FLAGS, mode, dir_fd=folder), None, None)
    except OSError as error:
        if error.errno not in _NO_UNNAMED_FILES:
            raise
    return new_named_file(folder, mode)


def new_named_file(folder: int, mode: int = 0o666) -> NewFile:
    """Open a new file with a temporary name in an open folder, for programs that need a path. Raises OSError."""
    temporary = _temporary_name()
    descriptor = os.open(temporary, _NAMED_FLAGS, mode, dir_fd=folder)
    try:
        final_mode = os.fstat(descriptor).st_mode & 0o777  # as the umask, or the folder's ACL, allows
        os.fchmod(descriptor, 0o600)
    except OSError:  # a file system without modes
        return NewFile(folder, descriptor, temporary, None)
    return NewFile(folder, descriptor, temporary, final_mode)


def _temporary_name() -> str:
    return f".cafcat-{os.urandom(8).hex()}.partial"


def write_all(file: int, block: bytes) -> int:
    """Write all of a block to an open file; return its size in bytes. Raises OSError."""
    written = os.write(file, block)
    while written < len(block):
        written += os.write(file, memoryview(block)[written:])
    return written
