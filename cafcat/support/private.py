"""Folders and files that only their owner can read.

Names and contents of private files must not become public because they were packed. What cafcat makes for itself,
its home and the store in it, is closed to other users whatever the umask.
"""

import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

__all__ = [
    "PRIVATE_FILE",
    "PRIVATE_FOLDER",
    "close_home",
    "close_to_others",
    "give_to_owner_of",
    "is_below",
    "let_enter",
]

PRIVATE_FILE: Final = 0o600
PRIVATE_FOLDER: Final = 0o700
_OTHERS: Final = 0o077
_ENTER: Final = 0o011
_OF_HOME: Final = ("postgres", "chunks", "cafcat.toml")
"""How the names begin that cafcat gives to files and folders in its home."""


def close_home(home: Path, *, is_default: bool) -> None:
    """Close a home that an earlier version made with other permissions. A folder that the user has named is left
    alone if it has anything but cafcat's own files.

    Args: is_default: the home is the one of this user, and not a folder that was named.
    """
    with suppress(OSError):
        status = os.stat(home)
        if status.st_mode & _OTHERS and (is_default or _is_only_ours(home)):
            server = home / "postgres"
            is_served = server.exists() and server.stat().st_uid != status.st_uid
            close_to_others(home, except_entering=is_served)


def _is_only_ours(home: Path) -> bool:
    return all(name.startswith(_OF_HOME) for name in os.listdir(home))


def close_to_others(folder: str | Path, *, except_entering: bool = False) -> None:
    """Take all permissions on a folder from group and others, if this user may do that.

    Args: except_entering: leave them the right to enter it, as `let_enter` gives it.
    """
    removed = _OTHERS & ~_ENTER if except_entering else _OTHERS
    with suppress(OSError):
        status = os.stat(folder)
        if stat.S_ISDIR(status.st_mode) and status.st_mode & removed and os.geteuid() in (0, status.st_uid):
            os.chmod(folder, stat.S_IMODE(status.st_mode) & ~removed)


def let_enter(folder: Path) -> None:
    """Let others enter a folder, but not list it: root's server runs as another user. Raises OSError."""
    mode = stat.S_IMODE(folder.stat().st_mode)
    if mode & _ENTER != _ENTER:
        folder.chmod(mode | _ENTER)


def give_to_owner_of(folder: str | Path, made: str | Path | int) -> None:
    """Let a file or folder that root has made belong to the owner of another folder: root may be a guest there, and
    must not leave files that the owner cannot read."""
    if os.geteuid() == 0:
        with suppress(OSError):
            owner = os.stat(folder)
            os.chown(made, owner.st_uid, owner.st_gid)


def is_below(path: str | os.PathLike[str], folder: Path) -> bool:
    """Return whether a path is in a folder, at whatever depth, or the folder itself; links are followed."""
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))
