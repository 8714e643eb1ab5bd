"""Creates the data folder of the embedded PostgreSQL, and checks that the server can use it."""

import os
import shutil
import stat
import tempfile
from pathlib import Path

from cafcat.embedded.programs import (
    OTHER_WAYS,
    ServerUser,
    choose_user,
    fatal_line,
    first_inaccessible,
    remedy_for,
    run_program,
)
from cafcat.embedded.roles import SUPERUSER
from cafcat.errors import CatalogUnavailable
from cafcat.support.private import let_enter
from cafcat.support.syncing import sync_ancestors, sync_folder

__all__ = ["prepare"]


def prepare(folder: Path, programs: Path) -> ServerUser:
    """Create the data folder of the embedded server if it does not exist, and check that the server can use it.

    The caller holds the lock for starting the server.

    Args:
        folder: The data folder. Its parent, the home, exists.
        programs: Folder of PostgreSQL's programs.

    Returns:
        The user that runs the server.

    Raises:
        CatalogUnavailable: The folder cannot be created or used.
        OSError: A system call failed.
    """
    user = choose_user(folder)
    if user.uid not in (folder.parent.stat().st_uid, 0):
        let_enter(folder.parent)
    _check_accessible(user, folder.parent, programs)
    if not _is_initialized(folder):
        _initialize(folder, programs, user)
    _check_version(folder, programs, user)
    if folder.stat().st_uid != user.uid:
        _change_owner(folder, user)
    _restrict_mode(folder)
    sync_folder(str(folder.parent))
    sync_ancestors(str(folder.parent))  # the command that made the home may have died before it did this
    return user


def _restrict_mode(folder: Path) -> None:
    """Give the data folder the mode 0700 if PostgreSQL would refuse its mode, as after a copy without modes.

    PostgreSQL refuses a data folder that the group can write to, or that other users can access.
    """
    mode = stat.S_IMODE(folder.stat().st_mode)
    if mode & 0o027 or mode & 0o700 != 0o700:
        folder.chmod(0o700)


def _check_accessible(user: ServerUser, home: Path, programs: Path) -> None:
    """Check that a server which root starts without root's privileges can enter its folders.

    If this process does not run as root, nothing is checked.

    Args:
        user: The user that runs the server.
        home: Parent of the data folder.
        programs: Folder of PostgreSQL's programs.

    Raises:
        CatalogUnavailable: The server cannot enter one of these folders, or of those above them.
    """
    closed = first_inaccessible(user, [home, programs]) if os.geteuid() == 0 else None
    if closed is not None:
        remedy = "set CAFCAT_HOME to" if home.is_relative_to(closed) else "install cafcat in"
        raise CatalogUnavailable(
            "PostgreSQL refuses to run with root's privileges, and without them "
            f"user {user.uid} cannot enter {closed}",
            hint=f"{remedy} a folder below folders that all users can enter, run cafcat as a normal user, "
            f"or {OTHER_WAYS}",
        )


def _is_initialized(folder: Path) -> bool:
    """Return True if the data folder exists with a database cluster, False if it is missing or empty.

    Raises:
        CatalogUnavailable: The folder has content, but is no data folder of PostgreSQL.
    """
    if (folder / "PG_VERSION").exists():
        return True
    if folder.exists() and any(folder.iterdir()):
        raise CatalogUnavailable(
            f"{folder} is not empty and not a PostgreSQL data folder",
            hint="move it away, or set CAFCAT_HOME to another folder",
        )
    return False


def _initialize(folder: Path, programs: Path, user: ServerUser) -> None:
    """Create the data folder atomically: run initdb in a temporary folder beside it, then rename that folder.

    initdb syncs all files that it writes. The remains of earlier attempts are removed.

    Raises:
        CatalogUnavailable: initdb failed.
    """
    home, prefix = folder.parent, folder.name + ".new-"
    for leftover in [path for path in home.iterdir() if path.name.startswith(prefix)]:
        shutil.rmtree(leftover, ignore_errors=True)
    made = Path(tempfile.mkdtemp(prefix=prefix, dir=home))
    try:
        if user.switch:
            _change_owner(made, user)
        _initdb(made, programs, user)
        made.rename(folder)
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _initdb(folder: Path, programs: Path, user: ServerUser) -> None:
    options = ["--no-locale", "--encoding=UTF8", "--auth-local=trust", "--auth-host=reject"]
    result = run_program(user, [programs / "initdb", "-D", folder, "-U", SUPERUSER, *options])
    if result.returncode != 0:
        reason = fatal_line(result.stderr)
        raise CatalogUnavailable(
            f"cannot create the embedded database in {folder.parent}: {reason}",
            hint=remedy_for(reason, f"set CAFCAT_HOME to another folder, or {OTHER_WAYS}"),
        )


def _check_version(folder: Path, programs: Path, user: ServerUser) -> None:
    found = (folder / "PG_VERSION").read_text(encoding="ascii").strip()
    words = run_program(user, [programs / "postgres", "--version"]).stdout.split()
    ours = words[2].split(".")[0] if len(words) > 2 else "unknown"
    if found != ours:
        raise CatalogUnavailable(
            f"the database in {folder} was made by PostgreSQL {found}, and this is PostgreSQL {ours}",
            hint="use the version of cafcat that made it, or move the folder away and run `cafcat rebuild`",
        )


def _change_owner(folder: Path, user: ServerUser) -> None:
    """Make a user the owner of a folder and of all files and folders below it. Symbolic links are not followed."""
    os.chown(folder, user.uid, user.gid, follow_symlinks=False)
    for _, folders, files, descriptor in os.fwalk(folder):
        for name in [*folders, *files]:
            os.chown(name, user.uid, user.gid, dir_fd=descriptor, follow_symlinks=False)
