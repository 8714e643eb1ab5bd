"""Creates folders that only their owner can read, and closes existing folders to other users.

Names and contents of private files must not become public because they were packed. So cafcat's home, and the store
in it, are closed to other users, whatever the umask is.

Root may work in the home of another user, who can replace any name there by a link. So permissions and owners are
changed by descriptor, links are not followed, and a file is given only to the owner of its folder.
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
"""Permissions of a file that only its owner can read and write."""
PRIVATE_FOLDER: Final = 0o700
"""Permissions of a folder that only its owner can enter."""
_OTHERS: Final = 0o077
_ENTER: Final = 0o011
_FOLDER_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_OF_HOME: Final = ("postgres", "chunks", "cafcat.toml", "seal.key")
"""Prefixes of the names of cafcat's own files and folders in its home."""


def close_home(home: Path, *, is_default: bool) -> None:
    """Remove the permissions of other users from cafcat's home. Earlier versions gave them such permissions.

    A home that the user has chosen is left alone if it contains other files or folders than cafcat's. If the
    database server of the home runs as another user, the permission to enter the home stays. Errors are ignored.

    Args:
        home: The folder of cafcat's home.
        is_default: True for the default home of this user, False for a folder that the user has chosen.
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
    """Remove all permissions of group and others from a folder of this user.

    A link is left alone, because it points to a folder that the user has chosen. So is a folder of another user.
    Errors are ignored.

    Args:
        folder: The folder.
        except_entering: True to keep the permission to enter the folder, which `let_enter` gives.
    """
    removed = _OTHERS & ~_ENTER if except_entering else _OTHERS
    with suppress(OSError), _opened(folder) as descriptor:
        status = os.fstat(descriptor)
        if status.st_mode & removed and os.geteuid() == status.st_uid:
            os.fchmod(descriptor, stat.S_IMODE(status.st_mode) & ~removed)


def let_enter(folder: Path) -> None:
    """Give other users the permission to enter a folder, but none to list it.

    If root starts the database server, the server runs as another user, which needs this permission.

    Raises:
        OSError: The permissions cannot be changed, or the path is a link that does not belong to the owner of the
            folder.
    """
    with _opened(os.path.realpath(folder)) as descriptor:
        status = os.fstat(descriptor)
        if stat.S_IMODE(status.st_mode) & _ENTER == _ENTER:
            return
        if os.lstat(folder).st_uid != status.st_uid:
            message = "the link belongs to another user than the folder that it points to"
            raise PermissionError(errno.EPERM, message, str(folder))
        os.fchmod(descriptor, stat.S_IMODE(status.st_mode) | _ENTER)


def give_to_owner(made: int, folder: int) -> None:
    """If this process runs as root, give a file or folder that it created to the owner of the folder around it.

    Root must not leave files in the folder of another user that this user cannot read. Errors are ignored.

    Args:
        made: Descriptor of the file or folder.
        folder: Descriptor of the folder in which it was created.
    """
    if os.geteuid() == 0:
        with suppress(OSError):
            owner = os.fstat(folder)
            os.fchown(made, owner.st_uid, owner.st_gid)


def make_private_folder(path: str) -> None:
    """Create a folder that only its owner can enter. Root gives it to the owner of its parent. Raises OSError."""
    parent, name = os.path.split(path)
    with _opened(os.path.realpath(parent)) as folder:
        os.mkdir(name, PRIVATE_FOLDER, dir_fd=folder)
        with _opened(name, below=folder) as made:
            if not os.listdir(made) and os.fstat(made).st_uid == os.geteuid():
                give_to_owner(made, folder)


@contextmanager
def _opened(folder: str | Path, *, below: int | None = None) -> Iterator[int]:
    """Provide the descriptor of a folder, and close it afterwards. Raises OSError, also if the path is a link.

    Args:
        folder: Path of the folder.
        below: Descriptor of the folder from which the path begins; None for the current folder.
    """
    descriptor = os.open(folder, _FOLDER_FLAGS, dir_fd=below)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def is_below(path: str | os.PathLike[str], folder: Path) -> bool:
    """Return True if `path` is the folder itself, or anywhere below it, after all links are followed."""
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))
