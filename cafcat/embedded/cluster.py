"""Makes the data folder of the embedded PostgreSQL, and sees to it that the server can use the one there is."""

import os
import shutil
import stat
import tempfile
from pathlib import Path

from cafcat.embedded.programs import (
    OTHER_WAYS,
    ServerUser,
    choose_user,
    closed_to,
    fatal_line,
    run_program,
)
from cafcat.embedded.roles import SUPERUSER
from cafcat.errors import CatalogUnavailable
from cafcat.support.private import let_enter
from cafcat.support.syncing import sync_ancestors, sync_folder

__all__ = ["prepare"]


def prepare(folder: Path, programs: Path) -> ServerUser:
    """Makes the data folder unless it is there; returns as whom the server is to run.

    Call it under the start lock only. Raises CatalogUnavailable, OSError.
    """
    user = choose_user(folder)
    if user.uid not in (folder.parent.stat().st_uid, 0):
        let_enter(folder.parent)
    _check_way(user, [folder.parent, programs])
    if not _is_made(folder):
        _make(folder, programs, user)
    _check_version(folder, programs, user)
    if folder.stat().st_uid != user.uid:
        _give_tree(folder, user)
    _close_to_others(folder)
    sync_folder(str(folder.parent))
    sync_ancestors(str(folder.parent))  # whoever made the home may not have come to that
    return user


def _close_to_others(folder: Path) -> None:
    """A copy that was made without the modes: PostgreSQL refuses a folder that others can write to or list."""
    mode = stat.S_IMODE(folder.stat().st_mode)
    if mode & 0o027 or mode & 0o700 != 0o700:
        folder.chmod(0o700)


def _check_way(user: ServerUser, paths: list[Path]) -> None:
    """A server that runs as something less than root may not get to its own folders."""
    closed = closed_to(user, paths) if os.geteuid() == 0 else None
    if closed is not None:
        raise CatalogUnavailable(
            f"PostgreSQL does not run as root, and as user {user.uid} without privileges cannot enter {closed}",
            hint="set CAFCAT_HOME to a folder that this user (`nobody`, if it is none of yours) can reach, run "
            f"cafcat as a normal user, or {OTHER_WAYS}",
        )


def _is_made(folder: Path) -> bool:
    """The folder takes its name only when it is whole. Raises CatalogUnavailable if it is something else."""
    if (folder / "PG_VERSION").exists():
        return True
    if folder.exists() and any(folder.iterdir()):
        raise CatalogUnavailable(
            f"{folder} is not empty and not a PostgreSQL data folder",
            hint="move it away, or set CAFCAT_HOME to another folder",
        )
    return False


def _make(folder: Path, programs: Path, user: ServerUser) -> None:
    """initdb, which syncs what it writes, into a folder beside; the rename makes it ours at one stroke."""
    home, prefix = folder.parent, folder.name + ".new-"
    for leftover in [path for path in home.iterdir() if path.name.startswith(prefix)]:
        shutil.rmtree(leftover, ignore_errors=True)
    made = Path(tempfile.mkdtemp(prefix=prefix, dir=home))
    try:
        if user.switch:
            _give_tree(made, user)
        _initdb(made, programs, user)
        made.rename(folder)
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _initdb(folder: Path, programs: Path, user: ServerUser) -> None:
    options = ["--no-locale", "--encoding=UTF8", "--auth-local=trust", "--auth-host=reject"]
    result = run_program(user, [programs / "initdb", "-D", folder, "-U", SUPERUSER, *options])
    if result.returncode != 0:
        raise CatalogUnavailable(
            f"cannot make the embedded database in {folder.parent}: {fatal_line(result.stderr)}",
            hint=f"set CAFCAT_HOME to another folder, or {OTHER_WAYS}",
        )


def _check_version(folder: Path, programs: Path, user: ServerUser) -> None:
    found = (folder / "PG_VERSION").read_text(encoding="ascii").strip()
    words = run_program(user, [programs / "postgres", "--version"]).stdout.split()
    ours = words[2].split(".")[0] if len(words) > 2 else "unknown"
    if found != ours:
        raise CatalogUnavailable(
            f"the database in {folder} was made by PostgreSQL {found}, and this is PostgreSQL {ours}",
            hint="use the cafcat that made it, or move the folder away and rebuild the catalog",
        )


def _give_tree(folder: Path, user: ServerUser) -> None:
    """Makes `user` the owner of a folder of root's and of all in it; links are not followed."""
    os.chown(folder, user.uid, user.gid, follow_symlinks=False)
    for _, folders, files, descriptor in os.fwalk(folder):
        for name in [*folders, *files]:
            os.chown(name, user.uid, user.gid, dir_fd=descriptor, follow_symlinks=False)
