"""Folders and files that only their owner can read.

Names and contents of private files must not become public because they were packed. What cafcat makes for itself,
its home and the store in it, is closed to other users whatever the umask.

Root may work in the home of another user, who can replace any name there by a link. So permissions and owners are
changed by descriptor, links are not followed, and a file is given only to the owner of the folder that it is in.
"""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

__all__ = [
    "PRIVATE_FILE",
    "PRIVATE_FOLDER",
    "close_home",
    "close_to_others",
    "give_to_owner",
    "is_below",
    "let_enter",
    "make_private_folder",
]

PRIVATE_FILE: Final = 0o600
PRIVATE_FOLDER: Final = 0o700
_OTHERS: Final = 0o077
_ENTER: Final = 0o011
_FOLDER_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_OF_HOME: Final = ("postgres", "chunks", "cafcat.toml")
"""How the names begin that cafcat gives to files and folders in its home."""


def close_home(home: Path, *, is_default: bool) -> None:
    """Close a home that an earlier version made with other permissions. A folder that the user has named is left
    alone if it has anything but cafcat's own files.

    Args: is_default: the home is the one of this user, and not a folder that was named.
    """
    with suppress(OSError):
        status = os.lstat(home)
        if status.st_mode & _OTHERS and (is_default or _is_only_ours(home)):
            server = home / "postgres"
            is_served = server.exists() and server.stat().st_uid != status.st_uid
            close_to_others(home, except_entering=is_served)


def _is_only_ours(home: Path) -> bool:
    return all(name.startswith(_OF_HOME) for name in os.listdir(home))


def close_to_others(folder: str | Path, *, except_entering: bool = False) -> None:
    """Take all permissions on a folder of this user from group and others. A link is left alone: it points to a
    folder that the user has chosen.

    Args: except_entering: leave them the right to enter it, as `let_enter` gives it.
    """
    removed = _OTHERS & ~_ENTER if except_entering else _OTHERS
    with suppress(OSError), _opened(folder) as descriptor:
        status = os.fstat(descriptor)
        if status.st_mode & removed and os.geteuid() == status.st_uid:
            os.fchmod(descriptor, stat.S_IMODE(status.st_mode) & ~removed)


def let_enter(folder: Path) -> None:
    """Let others enter a folder, but not list it: root's server runs as another user. Raises OSError, also for a
    link that another user made to the folder."""
    with _opened(os.path.realpath(folder)) as descriptor:
        status = os.fstat(descriptor)
        if stat.S_IMODE(status.st_mode) & _ENTER == _ENTER:
            return
        if os.lstat(folder).st_uid != status.st_uid:
            raise PermissionError(errno.EPERM, "a link of another user", str(folder))
        os.fchmod(descriptor, stat.S_IMODE(status.st_mode) | _ENTER)


def give_to_owner(made: int, folder: int) -> None:
    """Let a file or folder that root has made belong to the owner of the folder that it is in. Root may be a guest
    there, and must not leave files that the owner cannot read.

    Args:
        made: Descriptor of the file or folder.
        folder: Descriptor of the folder in which it was made.
    """
    if os.geteuid() == 0:
        with suppress(OSError):
            owner = os.fstat(folder)
            os.fchown(made, owner.st_uid, owner.st_gid)


def make_private_folder(path: str) -> None:
    """Make a folder that is closed to others and belongs to the owner of the folder above. Raises OSError."""
    parent, name = os.path.split(path)
    with _opened(os.path.realpath(parent)) as folder:
        os.mkdir(name, PRIVATE_FOLDER, dir_fd=folder)
        with _opened(name, below=folder) as made:
            if not os.listdir(made) and os.fstat(made).st_uid == os.geteuid():
                give_to_owner(made, folder)


@contextmanager
def _opened(folder: str | Path, *, below: int | None = None) -> Iterator[int]:
    """Open a folder that is no link. Raises OSError."""
    descriptor = os.open(folder, _FOLDER_FLAGS, dir_fd=below)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def is_below(path: str | os.PathLike[str], folder: Path) -> bool:
    """Return whether a path is in a folder, at whatever depth, or the folder itself; links are followed."""
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))
