"""Creates files that get their final name only when their content is complete."""

import errno
import os
from contextlib import suppress
from typing import Final

from cafcat.support.syncing import rename_new, sync_file

__all__ = ["NewFile", "new_file", "new_named_file", "write_all"]

_UNNAMED_FLAGS: Final = os.O_RDWR | os.O_CLOEXEC | getattr(os, "O_TMPFILE", os.O_DIRECTORY)
_NAMED_FLAGS: Final = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_NO_UNNAMED_FILES: Final = (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT)
"""Errors of systems and file systems without O_TMPFILE. ENOENT can also mean that the folder was removed: then
creating a named file fails, too."""
_NO_LINKS: Final = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)
"""Errors of file systems without hard links."""
_COPIED_BYTES: Final = 1 << 20
"""Size of the blocks in which a file is copied, in bytes."""


class NewFile:
    """A new file in an open folder, which has no name, or a temporary name, while it is written.

    A file without a name disappears with its process. While a file with a temporary name is written, only its owner
    has permissions for it, if the file system has permissions.

    Attributes:
        descriptor: File descriptor, -1 once the file is closed.
        temporary: The temporary name. None if the file has no name.
    """

    __slots__ = ("_folder", "_mode", "descriptor", "temporary")

    def __init__(self, folder: int, descriptor: int, temporary: str | None, mode: int | None) -> None:
        """Manage a file that was created already; see `new_file` and `new_named_file`.

        Args:
            folder: Descriptor of the folder.
            descriptor: Descriptor of the file.
            temporary: Temporary name of the file; None if it has no name.
            mode: Permissions to set before the file gets its name; None if it has the final permissions already.
        """
        self._folder = folder
        self.descriptor = descriptor
        self.temporary = temporary
        self._mode = mode

    def take_name(self, name: str, *, overwrite: bool) -> None:
        """Give the file its final name, and close it.

        This is one step: at every moment, the name leads to the old file or to this file. Only where a file system
        has neither hard links nor RENAME_NOREPLACE, a new name leads to an empty file for a moment. The caller
        makes the content durable before this call, and the name after it.

        Args:
            name: The final name in the folder.
            overwrite: True to replace an existing file.

        Raises:
            FileExistsError: A file has this name, and overwrite is false. This file was removed.
            OSError: The name cannot be given. This file was removed.
        """
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
        """Give a file without a name its final name.

        If the name is taken and `overwrite` is true, or the file cannot be linked, the file gets a temporary name
        instead; the caller then renames it.
        """
        own = f"/proc/self/fd/{self.descriptor}"
        try:
            os.link(own, name, dst_dir_fd=self._folder, follow_symlinks=True)
        except FileExistsError:
            if not overwrite:
                raise
            temporary = _temporary_name()
            self.temporary = temporary  # set before linking, because an interrupt may come between
            os.link(own, temporary, dst_dir_fd=self._folder, follow_symlinks=True)
        except OSError as error:
            if error.errno not in (*_NO_LINKS, errno.ENOENT, errno.EXDEV):
                raise
            self._copy()

    def _copy(self) -> None:
        """Replace this file, which the file system cannot link, by a durable copy that has a temporary name."""
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
            # Without hard links: create an empty file with the name, then replace it.
            os.close(os.open(name, _NAMED_FLAGS, dir_fd=folder))
            os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
            return
        os.unlink(temporary, dir_fd=folder)

    def discard(self) -> None:
        """Close and remove the file. After `take_name` this does nothing. Errors of the removal are ignored."""
        self._close()
        if self.temporary is not None:
            with suppress(OSError):
                os.unlink(self.temporary, dir_fd=self._folder)

    def _close(self) -> None:
        descriptor, self.descriptor = self.descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


def new_file(folder: int, mode: int = 0o666) -> NewFile:
    """Create a file in an open folder: without a name if the file system can, else with a temporary name.

    Args:
        folder: Descriptor of the folder.
        mode: Permissions, from which the umask is removed.

    Raises:
        OSError: The file cannot be created.
    """
    try:
        return NewFile(folder, os.open(".", _UNNAMED_FLAGS, mode, dir_fd=folder), None, None)
    except OSError as error:
        if error.errno not in _NO_UNNAMED_FILES:
            raise
    return new_named_file(folder, mode)


def new_named_file(folder: int, mode: int = 0o666) -> NewFile:
    """Create a file with a temporary name in an open folder, for programs that need a path.

    Args:
        folder: Descriptor of the folder.
        mode: Permissions, from which the umask is removed.

    Raises:
        OSError: The file cannot be created.
    """
    temporary = _temporary_name()
    descriptor = os.open(temporary, _NAMED_FLAGS, mode, dir_fd=folder)
    try:
        final_mode = (
            os.fstat(descriptor).st_mode & 0o777
        )  # the permissions that the umask, or the folder's ACL, allows
        os.fchmod(descriptor, 0o600)
    except OSError:  # a file system without modes
        return NewFile(folder, descriptor, temporary, None)
    return NewFile(folder, descriptor, temporary, final_mode)


def _temporary_name() -> str:
    return f".cafcat-{os.urandom(8).hex()}.partial"


def write_all(file: int, block: bytes) -> int:
    """Write all bytes of a block to the file with the descriptor `file`. Return their number. Raises OSError."""
    written = os.write(file, block)
    while written < len(block):
        written += os.write(file, memoryview(block)[written:])
    return written
