"""Translates errors of the operating system in a store's folder into StoreFailed, with hints for the user."""

import errno
import os

from cafcat.errors import StoreFailed

__all__ = ["store_failed"]

_HINTS = {
    errno.ENOSPC: "free space in {folder}, or use another store, and run the same command again",
    errno.EDQUOT: "your quota for {folder} is used up: make room, and run the same command again",
    errno.EFBIG: "the file size limit (ulimit -f) or the file system of {folder} allows no larger file",
    errno.EACCES: "check who may read and write in {folder}",
    errno.EPERM: "check who may read and write in {folder}",
    errno.EROFS: "{folder} is mounted read-only: use another store or mount it again",
    errno.ENOENT: "was {folder} moved, removed or unmounted?",
    errno.ENOTDIR: "a part of {folder}, or of a key in it, is not a folder",
    errno.EEXIST: "a part of {folder}, or of a key in it, is a file",
    errno.EIO: "the device of {folder} may be failing: look into the kernel's log",
    errno.EMFILE: "too many open files: raise the limit (ulimit -n)",
}


def store_failed(doing: str, where: str, folder: str, error: OSError) -> StoreFailed:
    """Return, but do not raise, the StoreFailed for an error of the operating system.

    Args:
        doing: The operation that failed: "write", "read", ...
        where: Path of the file or folder on which the operation failed.
        folder: Folder of the store, for the hint.
        error: The error of the operating system.
    """
    hint = _HINTS.get(error.errno or 0)
    if error.errno in (errno.EACCES, errno.EPERM):
        while not os.path.isdir(folder) and folder != "/":  # the permissions of the last existing one matter
            folder = os.path.dirname(folder)
    message = f"cannot {doing} {where}: {error.strerror or error}"
    return StoreFailed(message, hint=hint.format(folder=folder) if hint else None)
