"""The files that show the state of an embedded server: its locks, its postmaster.pid, its log.

These files are beside the data folder `postgres`:

* `postgres.lock`: the command that starts or stops the server holds a lock on it.
* `postgres.running`: the server and its children hold a lock on it as long as one of them lives. Process ids alone
  do not show this, because they are used again after a restart of the machine or container.
* `postgres.log`: the log of the server.
"""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Postmaster", "is_locked", "locked", "open_beside", "read_postmaster", "truncate_log", "try_lock"]

LOG_LIMIT_BYTES = 8 << 20
"""Size of the log above which it is truncated."""
LOG_END_BYTES = 256 << 10
"""Size of the end of the log that is kept then."""


def open_beside(path: Path, flags: int) -> int:
    """Open a file in the home, and create it if it is missing.

    A new file has the mode 0600. Its owner is the owner of the home, even if root creates it. Symbolic links are
    never followed.

    Returns:
        The descriptor.

    Raises:
        OSError: The file cannot be opened.
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
    """Lock a file exclusively, after waiting until no other process holds the lock.

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
    """Lock a file exclusively without waiting.

    Returns:
        The descriptor that holds the lock; None if another process holds it.

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
    """Return whether a process holds the lock of a file. A missing file is not locked.

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


@dataclass(frozen=True)
class Postmaster:
    """The content of postmaster.pid.

    Attributes:
        pid: Process id of the server.
        folder: Data folder of the server.
        sockets: Folder of its socket; None while the file is being written.
        status: Status of the server, such as "ready"; empty while the file is being written.
    """

    pid: int
    folder: Path
    sockets: Path | None
    status: str

    def is_alive(self, folder: Path) -> bool:
        """Return whether process `pid` is the server of a data folder.

        The process id may belong to another process by now. It may be that of a zombie whose parent does not wait
        for it, as in a container whose process 1 is an application. Or the folder is a copy, and the process id
        comes from another machine.
        """
        try:
            os.kill(self.pid, 0)
            if Path("/proc/self/cwd").exists():
                return Path(f"/proc/{self.pid}/cwd").samefile(folder)
            return self.folder == folder
        except PermissionError:
            # A server runs as the owner of its folder. If this process's user is the owner, `pid` is another
            # program.
            return folder.stat().st_uid != os.geteuid()
        except OSError:
            return False


def read_postmaster(folder: Path) -> Postmaster | None:
    """Read postmaster.pid in a data folder.

    Its format: https://github.com/postgres/postgres/blob/REL_18_STABLE/src/include/utils/pidfile.h

    Returns:
        The content; None if the file is missing or invalid.

    Raises:
        OSError: The file exists and cannot be read.
    """
    try:
        lines = os.fsdecode((folder / "postmaster.pid").read_bytes()).split("\n")
    except FileNotFoundError:
        return None
    if not lines[0].isdigit() or len(lines) < 2:
        return None
    lines += [""] * 8
    return Postmaster(int(lines[0]), Path(lines[1]), Path(lines[4]) if lines[4] else None, lines[7].strip())


def truncate_log(log: Path) -> None:
    """Shorten a log of more than 8 MiB to its last 256 KiB.

    The server only appends to the log, so it continues to work with the shorter file.

    Raises:
        OSError: The log cannot be read or written.
    """
    if not log.exists() or log.stat().st_size <= LOG_LIMIT_BYTES:
        return
    with os.fdopen(open_beside(log, os.O_RDWR | os.O_APPEND), "r+b") as file:
        file.seek(-LOG_END_BYTES, os.SEEK_END)
        end = file.read(LOG_END_BYTES)
        file.truncate(0)
        file.write(end)
