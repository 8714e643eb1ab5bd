"""System calls that make files, folders and whole file systems durable.

A file is durable when its bytes are, when its name in its folder is, and when the folder's own name is, up to the
root of the file system: a folder that was made a moment ago, by whichever process, may be gone after a power cut.
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
"""macOS: fsync leaves data in the cache of the disk, this command does not."""
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
"""File systems (statfs(2)) whose syncfs writes everything. On the others, network file systems and FUSE among them,
every file is synced by itself."""
_FIRST_KERNEL: Final = (5, 8)
"""Before this version of Linux, syncfs does not report that data could not be written."""
_RENAME_NOREPLACE: Final = 1


def sync_file(descriptor: int) -> None:
    """Write an open file to the disk, its size and times included. Raises OSError."""
    if _FULL_SYNC is not None:
        with suppress(OSError):  # a network file system may not have this command
            fcntl.fcntl(descriptor, _FULL_SYNC)
            return
    os.fsync(descriptor)


def sync_folder(folder: str | int) -> None:
    """Write the names in a folder, given by path or descriptor, to the disk. Does nothing where the file system
    cannot do that. Raises OSError."""
    if isinstance(folder, int):
        _sync_open_folder(folder)
        return
    descriptor = os.open(folder, FOLDER_FLAGS)
    try:
        _sync_open_folder(descriptor)
    finally:
        os.close(descriptor)


def _sync_open_folder(descriptor: int) -> None:
    try:
        sync_file(descriptor)
    except OSError as error:
        if error.errno not in _NO_FOLDER_SYNC:
            raise


def sync_ancestors(folder: str) -> None:
    """Write the names of a folder and of all folders above it to the disk, up to the root of its file system,
    whoever made them. A parent that this user may not read is passed over. Costs a call per level, and little where
    nothing has changed. Raises OSError."""
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
            _sync_open_folder(descriptor)
        finally:
            os.close(descriptor)


def sync_file_system(descriptor: int) -> None:
    """Write all changes on the file system of an open file to the disk (Linux). Other threads run meanwhile. Raises
    OSError, also for changes since the file was opened that could not be written."""
    if _library().syncfs(descriptor):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def can_sync_file_system(descriptor: int) -> bool:
    """Return whether `sync_file_system` exists here, writes all of this file's file system, and reports errors."""
    return _kernel_reports() and _type_of(descriptor) in _SYNCABLE


@functools.cache
def _kernel_reports() -> bool:
    version = re.match(r"(\d+)\.(\d+)", os.uname().release)
    is_new = version is not None and (int(version[1]), int(version[2])) >= _FIRST_KERNEL
    return sys.platform == "linux" and is_new and hasattr(_library(), "syncfs")


def _type_of(descriptor: int) -> int:
    """The number of a file system's type: the first field of struct statfs, of whose size we need no more."""
    buffer = (ctypes.c_long * 64)()
    if _library().fstatfs(descriptor, buffer):
        return 0
    return buffer[0] & 0xFFFFFFFF


def rename_new(folder: int, old: str, new: str) -> bool:
    """Rename a file of an open folder, unless there is one of the new name. Return False where the system or file
    system cannot do that in one step. Raises OSError, FileExistsError among them."""
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
    """The C library, called without the interpreter's lock."""
    return ctypes.CDLL(None, use_errno=True)
