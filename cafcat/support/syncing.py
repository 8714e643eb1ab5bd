"""Makes files, folders and whole file systems durable by system calls.

A file is durable when three things are on the disk: its bytes, its name in its folder, and the names of all folders
above, up to the root of the file system. A folder that any process created a moment ago may be gone after a power
cut.
"""

import ctypes
import errno
import fcntl
import functools
import os
import re
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

__all__ = [
    "FOLDER_FLAGS",
    "can_sync_file_system",
    "rename_new",
    "sync_ancestors",
    "sync_file",
    "sync_file_system",
    "sync_folder",
]

FOLDER_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_NO_FOLDER_SYNC: Final = (errno.EINVAL, errno.ENOTSUP, errno.EBADF)
"""Errors of file systems that cannot sync a folder."""
_FULL_SYNC: Final[int | None] = getattr(fcntl, "F_FULLFSYNC", None)
"""The command that flushes the cache of the disk on macOS, where fsync does not."""
_SYNCABLE: Final = frozenset(
    (
        0xEF53,  # ext2, ext3, ext4
        0x58465342,  # XFS
        0x9123683E,  # Btrfs
        0xF2F52010,  # F2FS
        0x2FC12FC1,  # ZFS
        0x01021994,  # tmpfs
        0xCA451A4E,  # bcachefs
    )
)
"""Types of file systems (statfs(2)) whose syncfs writes everything. On all others, such as network file systems
and FUSE, every file is synced by itself."""
_FIRST_KERNEL: Final = (5, 8)
"""First version of Linux whose syncfs reports data that could not be written."""
_RENAME_NOREPLACE: Final = 1
"""Flag of renameat2(2)."""


def sync_file(descriptor: int) -> None:
    """Write the content, the size and the times of an open file to the disk. Raises OSError."""
    if _FULL_SYNC is not None:
        with suppress(OSError):  # a network file system may not have this command
            fcntl.fcntl(descriptor, _FULL_SYNC)
            return
    os.fsync(descriptor)


def sync_folder(folder: str | int) -> None:
    """Write the names that a folder contains to the disk. Does nothing if the file system cannot sync folders.

    Args:
        folder: Path or descriptor of the folder.

    Raises:
        OSError: The folder cannot be opened or written.
    """
    descriptor = folder if isinstance(folder, int) else os.open(folder, FOLDER_FLAGS)
    try:
        sync_file(descriptor)
    except OSError as error:
        if error.errno not in _NO_FOLDER_SYNC:
            raise
    finally:
        if descriptor != folder:
            os.close(descriptor)


def sync_ancestors(folder: str) -> None:
    """Make the name of a folder, and the names of all folders above it in its file system, durable.

    Any process may have created these folders. The names in a parent that this user may not read are skipped. This
    takes one sync per level, and little time if no folder has changed. Raises OSError.
    """
    path = os.path.realpath(folder)
    device = os.stat(path).st_dev
    while (parent := os.path.dirname(path)) != path:
        path = parent
        try:
            descriptor = os.open(parent, FOLDER_FLAGS)
        except PermissionError:
            continue
        try:
            if os.fstat(descriptor).st_dev != device:
                return
            sync_folder(descriptor)
        finally:
            os.close(descriptor)


def sync_file_system(descriptor: int) -> None:
    """Write all changes of the file system of an open file to the disk (Linux). Other threads run meanwhile.

    Raises:
        OSError: Changes since the file was opened could not be written.
    """
    if _library().syncfs(descriptor):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def can_sync_file_system(descriptor: int) -> bool:
    """Return True if `sync_file_system` is reliable for the file system of an open file.

    It is reliable on Linux 5.8 or later, and for file systems that write all changes and report errors.
    """
    return _kernel_reports() and _type_of(descriptor) in _SYNCABLE


@functools.cache
def _kernel_reports() -> bool:
    version = re.match(r"(\d+)\.(\d+)", os.uname().release)
    is_new = version is not None and (int(version[1]), int(version[2])) >= _FIRST_KERNEL
    return sys.platform == "linux" and is_new and hasattr(_library(), "syncfs")


def _type_of(descriptor: int) -> int:
    """Return the type of the file system of an open file, as statfs(2) has it; 0 if it cannot be found out."""
    buffer = (ctypes.c_long * 64)()
    if _library().fstatfs(descriptor, buffer):
        return 0
    return buffer[0] & 0xFFFFFFFF


def rename_new(folder: int, old: str, new: str) -> bool:
    """Rename a file within an open folder in one step, without replacing a file that has the new name.

    Args:
        folder: Descriptor of the folder.
        old: The current name.
        new: The new name.

    Returns:
        True if the file was renamed. False if the system or the file system cannot do that in one step; then
        nothing was changed.

    Raises:
        FileExistsError: The new name is taken.
        OSError: The file cannot be renamed.
    """
    rename: Callable[..., int] | None = getattr(_library(), "renameat2", None)
    if sys.platform != "linux" or rename is None:
        return False
    if not rename(folder, os.fsencode(old), folder, os.fsencode(new), _RENAME_NOREPLACE):
        return True
    number = ctypes.get_errno()
    if number in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EPERM):
        return False
    raise OSError(number, os.strerror(number), new)


@functools.cache
def _library() -> Any:
    """Return the C library. While its functions run, other Python threads can run."""
    return ctypes.CDLL(None, use_errno=True)
