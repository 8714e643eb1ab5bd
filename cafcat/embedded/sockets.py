"""Chooses, creates and removes the folder of the embedded server's Unix socket.

A user that can enter this folder can connect as any role of the database, because the server uses `trust`
authentication. The owner of this folder could pose as the server. The folder therefore belongs to the server's
user, and no other user has permissions for it. A folder with another owner or mode is not used.
"""

import os
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from cafcat.embedded.connecting import SOCKET_NAME, is_private
from cafcat.errors import CatalogUnavailable

__all__ = ["make_socket_folder", "remove_socket_folder", "socket_folder"]

SOCKET_PATH_BYTES = 103  # sun_path has room for 107 bytes and a NUL on Linux, for 103 and a NUL on macOS


def socket_folder(data_folder: Path, uid: int) -> Path:
    """Return the usual folder for the socket of a server: the first one that is private or does not exist yet.

    This creates nothing. If none of the usual folders is usable, this returns one of them all the same, but
    `make_socket_folder` creates a folder with a random name. The name of the folder is a hash of the data folder's
    path, because the path of a socket must be short.

    Args:
        data_folder: The data folder of the server.
        uid: User id that runs the server.
    """
    folders = _folders(data_folder, uid)
    return next((folder for folder in folders if _is_free(folder, uid)), folders[-1])


def _folders(data_folder: Path, uid: int) -> list[Path]:
    """Return the folders that are tried for the socket, in the order of the attempts. There is at least one."""
    import hashlib  # not needed if the server is running

    name = hashlib.sha256(os.fsencode(data_folder)).hexdigest()[:16]
    folders = [base / name for base in _base_folders(uid)]
    return [folder for folder in folders if _fits(folder)] or folders[-1:]


def _is_free(folder: Path, uid: int) -> bool:
    """Return True if the folder and its parent are each private to user `uid`, or do not exist yet."""
    return all(is_private(path, uid) or not os.path.lexists(path) for path in (folder.parent, folder))


def _base_folders(uid: int) -> Iterator[Path]:
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    if os.path.isabs(runtime) and is_private(Path(runtime), uid) and os.access(runtime, os.W_OK):
        yield Path(runtime) / "cafcat"
    for folder in _temporary_folders(uid):
        yield folder / f"cafcat-{uid}"


def _temporary_folders(uid: int) -> Iterator[Path]:
    if uid == os.geteuid():  # another user may not be able to enter the TMPDIR of root
        yield Path(tempfile.gettempdir())
    yield Path("/tmp")  # noqa: S108 - owner and mode of each folder in it are checked


def _fits(folder: Path) -> bool:
    """Return True if the path of a socket in this folder is short enough, and valid UTF-8, which libpq needs."""
    try:
        return len(str(folder / SOCKET_NAME).encode()) <= SOCKET_PATH_BYTES
    except UnicodeEncodeError:
        return False


def make_socket_folder(data_folder: Path, uid: int, gid: int) -> Path:
    """Create the folder of the socket and its parent, both with mode 0700 and owned by user `uid`.

    In a shared TMPDIR, another user may have made a folder of this name before. A folder that is not private is
    left alone, and the next one is tried. If none can be used, a folder with a random name is created.

    Args:
        data_folder: The data folder of the server.
        uid: User id that runs the server.
        gid: Group id that runs the server.

    Returns:
        The folder that was created, or existed and is private.

    Raises:
        CatalogUnavailable: No private folder can be created.
    """
    for folder in _folders(data_folder, uid):
        with suppress(OSError):
            if _make_private(folder.parent, uid, gid) and _make_private(folder, uid, gid):
                return folder
    return _make_with_random_name(uid, gid)


def _make_private(folder: Path, uid: int, gid: int) -> bool:
    try:
        os.mkdir(folder, 0o700)
        if uid != os.geteuid():
            _change_owner(folder, uid, gid)
    except FileExistsError:
        pass
    return is_private(folder, uid)


def _make_with_random_name(uid: int, gid: int) -> Path:
    for base in _temporary_folders(uid):
        with suppress(OSError):
            parent = Path(tempfile.mkdtemp(prefix=_own_prefix(uid), dir=base))
            if uid != os.geteuid():
                _change_owner(parent, uid, gid)
            folder = parent / "socket"
            if _fits(folder) and _make_private(folder, uid, gid):
                return folder
            parent.rmdir()
    raise CatalogUnavailable(
        f"cannot create a folder for the database's socket that is private to user {uid}",
        hint="set XDG_RUNTIME_DIR or TMPDIR to a folder of that user",
    )


def remove_socket_folder(folder: Path, uid: int) -> None:
    """Remove the socket folder of a stopped server, and its parent if the parent has a random name.

    Folders that are not empty stay. Errors are ignored.
    """
    with suppress(OSError):
        folder.rmdir()
        if folder.parent.name.startswith(_own_prefix(uid)):
            folder.parent.rmdir()


def _own_prefix(uid: int) -> str:
    return f"cafcat-{uid}-"


def _change_owner(folder: Path, uid: int, gid: int) -> None:
    """Change the owner of a folder to a user and group, by their ids.

    This uses a descriptor, because in a shared folder another user may have replaced the name with a link.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        os.fchown(descriptor, uid, gid)
    finally:
        os.close(descriptor)
