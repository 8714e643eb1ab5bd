"""A temporary folder. That of a process that was killed is removed by the next one that makes one of its kind."""

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from cafcat.support.spool import temporary_file_of

__all__ = ["temporary_folder"]

_YOUNG_SECONDS: Final = 60
"""So long a folder may be there before it is locked."""


@contextmanager
def temporary_folder(prefix: str, what: str) -> Iterator[Path]:
    """Locked while it is used, and removed afterwards. Raises TemporaryFileFailed if it cannot be made.

    Args: prefix: of its name, which only folders of this kind have ("cafcat-logs-"); what: it holds, for messages.
    """
    with temporary_file_of(what):
        _sweep(Path(tempfile.gettempdir()), prefix)
        folder = Path(tempfile.mkdtemp(prefix=prefix))
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def _sweep(where: Path, prefix: str) -> None:
    """Folders of ours that nobody has locked: those of processes that were killed."""
    for folder in where.glob(f"{prefix}*"):
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
