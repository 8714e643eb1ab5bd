"""The folder of the embedded server's unix socket.

Whoever can enter it is let in as the owner of the database (`trust`), and whoever made it could pose as the
server. So it belongs to the server's user, and is closed to all others; anything else is refused.
"""

import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from cafcat.errors import CatalogUnavailable

__all__ = ["PORT", "SOCKET_NAME", "is_private", "make_socket_folder", "socket_folder"]

PORT = 5432  # only a part of the socket's name: no TCP port is opened
SOCKET_NAME = f".s.PGSQL.{PORT}"
SOCKET_PATH_BYTES = 103  # sun_path holds 107 bytes and a NUL on Linux, 103 and a NUL on macOS


def socket_folder(data_folder: Path, uid: int) -> Path:
    """Where the server of this data folder, run by user `uid`, has its socket: short whatever the data folder is
    called. Creates nothing."""
    import hashlib  # a command that finds the server up needs none of it

    name = hashlib.sha256(os.fsencode(data_folder)).hexdigest()[:16]
    folders = [base / name for base in _bases(uid)]
    return next((folder for folder in folders if _fits(folder)), folders[-1])


def _bases(uid: int) -> Iterator[Path]:
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    if os.path.isabs(runtime) and is_private(Path(runtime), uid) and os.access(runtime, os.W_OK):
        yield Path(runtime) / "cafcat"
    if uid == os.geteuid():  # the TMPDIR of root may be closed to the user that runs the server
        yield Path(tempfile.gettempdir()) / f"cafcat-{uid}"
    yield Path("/tmp") / f"cafcat-{uid}"  # noqa: S108 - checked by make_socket_folder


def _fits(folder: Path) -> bool:
    """Whether the socket's path is short enough, and text that libpq takes."""
    try:
        return len(str(folder / SOCKET_NAME).encode()) <= SOCKET_PATH_BYTES
    except UnicodeEncodeError:
        return False


def is_private(folder: Path, uid: int) -> bool:
    """Whether it is a folder, not a symlink to one, that belongs to `uid` and that nobody else can enter."""
    try:
        found = os.lstat(folder)
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == uid and not found.st_mode & 0o077


def make_socket_folder(folder: Path, uid: int, gid: int) -> None:
    """Makes the folder and its parent, both 0700 and of user `uid`; raises CatalogUnavailable if either is there
    and is not so."""
    for path in (folder.parent, folder):
        try:
            os.mkdir(path, 0o700)
            if uid != os.geteuid():
                _give(path, uid, gid)
        except FileExistsError:
            pass
        if not is_private(path, uid):
            raise CatalogUnavailable(
                f"the folder {path} for the database's socket is not a private folder of user {uid}",
                hint="remove it, or set XDG_RUNTIME_DIR or TMPDIR to another place",
            )


def _give(folder: Path, uid: int, gid: int) -> None:
    """By descriptor: a name in a folder of somebody else may have become a link since."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        os.fchown(descriptor, uid, gid)
    finally:
        os.close(descriptor)
