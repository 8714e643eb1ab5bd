"""Ends a server whose data folder was removed while the server ran.

PostgreSQL looks for its folder once a minute, and ends if the folder is gone. Until then, the server would keep the
lock of `postgres.running`, and the next command would wait. Without /proc, as on macOS, the command does wait.
"""

import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Final

__all__ = ["end_orphans"]

_PROCESSES: Final = Path("/proc")
_PROGRAM: Final = "postgres"
_GONE: Final = " (deleted)"
"""The kernel adds this to the names of folders and programs that were removed."""


def end_orphans(folder: Path) -> None:
    """Ask PostgreSQL's processes in a data folder that was removed to end at once.

    Args:
        folder: The absolute path that the data folder had. There may be a new folder of that name.
    """
    with suppress(OSError):
        for process in _PROCESSES.iterdir():
            if process.name.isdecimal() and _runs_in(process, f"{folder}{_GONE}"):
                with suppress(OSError):
                    os.kill(int(process.name), signal.SIGQUIT)


def _runs_in(process: Path, folder: str) -> bool:
    """Return True if a process is one of PostgreSQL's, and has this working folder."""
    try:
        program = os.readlink(process / "exe").removesuffix(_GONE)
        return os.readlink(process / "cwd") == folder and os.path.basename(program) == _PROGRAM
    except OSError:
        return False  # it has ended, or belongs to another user
