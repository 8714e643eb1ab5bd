"""What the file system tells of an embedded server: its locks, its postmaster.pid, its log.

Beside the data folder `postgres` lie `postgres.lock` (held by the command that starts or stops the server),
`postgres.running` (held by the server and its children as long as one of them lives: process numbers alone cannot
tell that, they are used again after a restart of the machine or container) and `postgres.log`.
"""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Postmaster", "bound_log", "is_held", "locked", "open_beside", "read_postmaster", "take"]

LOG_LIMIT_BYTES = 8 << 20
LOG_KEPT_BYTES = 256 << 10


def open_beside(path: Path, flags: int) -> int:
    """A descriptor of a file in the home, made if missing, 0600 and of the home's owner (root may be a guest
    there). Never follows a symlink. Raises OSError."""
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
    """Waits for the lock file and holds it. Raises OSError."""
    descriptor = open_beside(path, os.O_RDWR)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def take(path: Path) -> int | None:
    """A descriptor that holds the lock file, or None if somebody else does. Raises OSError."""
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


def is_held(path: Path) -> bool:
    """Whether somebody holds the lock file. Raises OSError other than that it is missing."""
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
    """The lines of postmaster.pid that matter; `sockets` is None and `status` empty while it is being written."""

    pid: int
    folder: Path
    sockets: Path | None
    status: str

    def is_alive(self, folder: Path) -> bool:
        """Return whether process `pid` is the postmaster of this data folder. Its number may belong to another
        process by now, or to a zombie that nobody collects, as in a container whose process 1 is an application;
        or the folder is a copy, and the number is that of a process on another machine."""
        try:
            os.kill(self.pid, 0)
            if Path("/proc/self/cwd").exists():
                return Path(f"/proc/{self.pid}/cwd").samefile(folder)
            return self.folder == folder
        except PermissionError:
            # A postmaster runs as the owner of its folder: where that is us, the process is another program.
            return folder.stat().st_uid != os.geteuid()
        except OSError:
            return False


def read_postmaster(folder: Path) -> Postmaster | None:
    """What postmaster.pid says; None if there is none, or none that makes sense. Raises OSError otherwise.
    Its lines: https://github.com/postgres/postgres/blob/REL_18_STABLE/src/include/utils/pidfile.h"""
    try:
        lines = os.fsdecode((folder / "postmaster.pid").read_bytes()).split("\n")
    except FileNotFoundError:
        return None
    if not lines[0].isdigit() or len(lines) < 2:
        return None
    lines += [""] * 8
    return Postmaster(int(lines[0]), Path(lines[1]), Path(lines[4]) if lines[4] else None, lines[7].strip())


def bound_log(log: Path) -> None:
    """Cuts a log that has grown past its limit down to its end. The server only appends, so it need not know.
    Raises OSError."""
    if not log.exists() or log.stat().st_size <= LOG_LIMIT_BYTES:
        return
    with os.fdopen(open_beside(log, os.O_RDWR | os.O_APPEND), "r+b") as file:
        file.seek(-LOG_KEPT_BYTES, os.SEEK_END)
        kept = file.read(LOG_KEPT_BYTES)
        file.truncate(0)
        file.write(kept)
