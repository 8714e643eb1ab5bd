"""The temporary folder that clp-s works in. That of a run that was killed is removed by the next one."""

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from cafcat.spool import temporary_file_of

__all__ = ["log_folder"]

_PREFIX: Final = "cafcat-logs-"
_YOUNG_SECONDS: Final = 60
"""So long a folder may be there before it is locked."""


@contextmanager
def log_folder() -> Iterator[Path]:
    """Locked while it is used, and removed afterwards. Raises TemporaryFileFailed."""
    with temporary_file_of("an archive of logs"):
        _sweep(Path(tempfile.gettempdir()))
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def _sweep(where: Path) -> None:
    """Folders of ours that nobody has locked: those of runs that were killed."""
    for folder in where.glob(f"{_PREFIX}*"):
        with suppress(OSError):  # somebody else's, in use, or gone by now
            status = folder.lstat()
            if status.st_uid == os.geteuid() and time.time() - status.st_mtime > _YOUNG_SECONDS:
                _remove(folder)


def _remove(folder: Path) -> None:
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder)
    finally:
        os.close(lock)
