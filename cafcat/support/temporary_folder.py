"""Creates temporary folders, and removes those that killed processes left behind.

The folder of a killed process is removed by the next process that creates a folder with the same prefix, unless the
folder has changed within the last minute.
"""

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
"""An unlocked folder is removed if it has not changed for longer than this, in seconds. A new folder is not locked
at once."""


@contextmanager
def temporary_folder(prefix: str, label: str) -> Iterator[Path]:
    """Create a temporary folder for a `with` block. The folder is locked while it is used, and removed afterwards.

    This user's folders with the same prefix that killed processes left are removed first, if they have not changed
    for a minute.

    Args:
        prefix: Prefix of the folder's name, which only folders of this kind have, such as "cafcat-logs-".
        label: Name of the folder's contents, for messages.

    Raises:
        TemporaryFileFailed: The folder cannot be created or opened.
    """
    with temporary_file_of(label):
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
    """Remove this user's folders in `where` with this prefix that killed processes left. Errors are ignored.

    These are the folders that are not locked and have not changed for 60 seconds.
    """
    for folder in where.glob(f"{prefix}*"):
        with suppress(OSError):  # a folder of another user, one that is in use, or one that was just removed
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
