"""The folder of the embedded server's unix socket.

Whoever can enter it is let in as any role of the database (`trust`), and whoever made it could pose as the
server. So it belongs to the server's user, and is closed to all others; any other folder is passed over.
"""

import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from cafcat.errors import CatalogUnavailable

__all__ = ["PORT", "SOCKET_NAME", "is_private", "make_socket_folder", "remove_socket_folder", "socket_folder"]

PORT = 5432  # only a part of the socket's name: no TCP port is opened
SOCKET_NAME = f".s.PGSQL.{PORT}"
SOCKET_PATH_BYTES = 103  # sun_path holds 107 bytes and a NUL on Linux, 103 and a NUL on macOS


def socket_folder(data_folder: Path, uid: int) -> Path:
    """Return where the server of this data folder, run by user `uid`, has its socket unless all places are taken.

    The path is short whatever the data folder is called. Creates nothing.
    """
    folders = _folders(data_folder, uid)
    return next((folder for folder in folders if _is_free(folder, uid)), folders[-1])


def _folders(data_folder: Path, uid: int) -> list[Path]:
    """Return the folders to try, the best first: at least one."""
    import hashlib  # a command that finds the server up needs none of it

    name = hashlib.sha256(os.fsencode(data_folder)).hexdigest()[:16]
    folders = [base / name for base in _bases(uid)]
    return [folder for folder in folders if _fits(folder)] or folders[-1:]


def _is_free(folder: Path, uid: int) -> bool:
    """Return whether the folder and its parent are private, or can be made so."""
    return all(is_private(path, uid) or not os.path.lexists(path) for path in (folder.parent, folder))


def _bases(uid: int) -> Iterator[Path]:
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    if os.path.isabs(runtime) and is_private(Path(runtime), uid) and os.access(runtime, os.W_OK):
        yield Path(runtime) / "cafcat"
    for folder in _temporary_folders(uid):
        yield folder / f"cafcat-{uid}"


def _temporary_folders(uid: int) -> Iterator[Path]:
    if uid == os.geteuid():  # the TMPDIR of root may be closed to the user that runs the server
        yield Path(tempfile.gettempdir())
    yield Path("/tmp")  # noqa: S108 - whatever is made in it is checked


def _fits(folder: Path) -> bool:
    """Whether the socket's path is short enough, and text that libpq takes."""
    try:
        return len(str(folder / SOCKET_NAME).encode()) <= SOCKET_PATH_BYTES
    except UnicodeEncodeError:
        return False


def is_private(folder: Path, uid: int) -> bool:
    """Return whether this is a folder (no symlink) of user `uid` that no other user can enter."""
    try:
        found = os.lstat(folder)
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == uid and not found.st_mode & 0o077


def make_socket_folder(data_folder: Path, uid: int, gid: int) -> Path:
    """Make the folder of the socket and its parent, both 0700 and of user `uid`, and return the folder.

    Other users can make a folder of this name in a shared TMPDIR first. A folder that is not private is left alone,
    and the next place is used; the last one has a random name.

    Raises:
        CatalogUnavailable: no place can be used.
    """
    for folder in _folders(data_folder, uid):
        with suppress(OSError):
            if _make_private(folder.parent, uid, gid) and _make_private(folder, uid, gid):
                return folder
    return _make_random(uid, gid)


def _make_private(folder: Path, uid: int, gid: int) -> bool:
    try:
        os.mkdir(folder, 0o700)
        if uid != os.geteuid():
            _give(folder, uid, gid)
    except FileExistsError:
        pass
    return is_private(folder, uid)


def _make_random(uid: int, gid: int) -> Path:
    for base in _temporary_folders(uid):
        with suppress(OSError):
            parent = Path(tempfile.mkdtemp(prefix=_own_prefix(uid), dir=base))
            if uid != os.geteuid():
                _give(parent, uid, gid)
            folder = parent / "socket"
            if _fits(folder) and _make_private(folder, uid, gid):
                return folder
            parent.rmdir()
    raise CatalogUnavailable(
        f"no folder for the database's socket can be made that is private to user {uid}",
        hint="set XDG_RUNTIME_DIR or TMPDIR to a folder of that user",
    )


def remove_socket_folder(folder: Path, uid: int) -> None:
    """Remove the folder of a server that has stopped, and its parent if the parent has a random name."""
    with suppress(OSError):
        folder.rmdir()
        if folder.parent.name.startswith(_own_prefix(uid)):
            folder.parent.rmdir()


def _own_prefix(uid: int) -> str:
    return f"cafcat-{uid}-"


def _give(folder: Path, uid: int, gid: int) -> None:
    """Change the owner, by descriptor: a name in a shared folder may have become a link since."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        os.fchown(descriptor, uid, gid)
    finally:
        os.close(descriptor)
