"""The lock files of an embedded PostgreSQL server.

Both files are in the home, beside the data folder `postgres`:

* `postgres.lock`: the command that starts or stops the server holds a lock on it.
* `postgres.running`: the server and its children hold a lock on it as long as one of them lives. Process ids do not
  prove that, because a machine or container uses them again after a restart.
"""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

__all__ = ["is_locked", "locked", "open_beside", "try_lock"]


def open_beside(path: Path, flags: int) -> int:
    """Open a file of the embedded server in the home, and create it if it is missing.

    A new file has the mode 0600. If root creates it, the owner of the home becomes its owner. Symbolic links are
    never followed.

    Args:
        path: The file.
        flags: Flags of os.open for access, such as os.O_RDWR.

    Returns:
        The descriptor of the file.

    Raises:
        OSError: The file cannot be opened, or is a symbolic link.
    """
    flags |= os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return os.open(path, flags)
    if os.geteuid() == 0:
        home = path.parent.stat()
        os.fchown(descriptor, home.st_uid, home.st_gid)
    return descriptor


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the exclusive lock of a file inside the `with` block, after waiting until it is free.

    A missing file is created.

    Raises:
        OSError: The file cannot be opened.
    """
    descriptor = open_beside(path, os.O_RDWR)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def try_lock(path: Path) -> int | None:
    """Acquire the exclusive lock of a file, without waiting for it. A missing file is created.

    Returns:
        The descriptor that holds the lock until it is closed; None if another descriptor holds the lock.

    Raises:
        OSError: The file cannot be opened.
    """
    descriptor = open_beside(path, os.O_RDWR)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def is_locked(path: Path) -> bool:
    """Return True if any process holds the exclusive lock of a file. A missing file is not locked.

    Raises:
        OSError: The file exists and cannot be opened.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
