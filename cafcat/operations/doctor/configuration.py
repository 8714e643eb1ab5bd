"""Checks of the settings: contradictions, unknown variables, readable passwords."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from cafcat.operations.doctor.examination import Examination
from cafcat.operations.doctor.found import Found, ok, warning
from cafcat.settings.settings import KEYS

__all__ = ["contradictions", "environment", "secrets"]

_OTHER_VARIABLES: Final = ("CAFCAT_CONFIG", "CAFCAT_NATIVE", "CAFCAT_PROFILE", "CAFCAT_SEAL_KEY")
_OWN_PREFIXES: Final = ("CAFCAT_BUILD", "CAFCAT_TEST_", "CAFCAT_REQUIRE_")
_TEMPORARY: Final = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108 - places to warn of


def contradictions(examination: Examination) -> Iterator[Found]:
    """Look for settings that have no effect, or not the effect that the user may expect."""
    settings, given = examination.settings, examination.settings.origins
    problems = list(_problems(examination))
    yield from problems
    if not problems:
        from_user = [f"{name} ({given[name]})" for name in KEYS if given[name] != "default"]
        yield ok(f"settings: {', '.join(from_user) or 'all have their defaults'}; home {settings.home}")


def _problems(examination: Examination) -> Iterator[Found]:
    settings, given = examination.settings, examination.settings.origins
    if settings.read_database_url is None and given["max_staleness"] != "default":
        yield warning("max_staleness has no effect without read_database_url", "remove it, or set the replica")
    if settings.read_database_url is not None and settings.read_database_url == settings.database_url:
        remedy = "leave read_database_url out, or point it to a standby server"
        yield warning("read_database_url is the same as database_url", remedy)
    # A bare word may be the name of a store in the catalog.
    folder = settings.store if settings.store.startswith("/") and settings.store_name is None else None
    if folder is not None and Path(folder).is_relative_to(settings.home / "postgres"):
        yield warning(f"the store {folder} is inside the data of the embedded database", "use another folder")
    for name, place in (("home", str(settings.home)), ("store", folder)):
        if place is not None and place.startswith(tuple(f"{prefix}/" for prefix in _TEMPORARY)):
            yield warning(f"{name} is in a temporary folder: {place}", "use a folder that outlives a restart")


def environment(_: Examination) -> Iterator[Found]:
    """Look for variables that cafcat does not read: usually typing errors."""
    known = {f"CAFCAT_{key.upper()}" for key in KEYS} | set(_OTHER_VARIABLES)
    unknown = sorted(
        name for name in os.environ if name.startswith("CAFCAT_") and not name.startswith(_OWN_PREFIXES)
    )
    unknown = [name for name in unknown if name not in known]
    for name in unknown:
        yield warning(f"the variable {name} has no effect", f"these have one: {', '.join(sorted(known))}")
    if not unknown:
        yield ok("all variables CAFCAT_... are known")


def secrets(examination: Examination) -> Iterator[Found]:
    """Check that other users cannot read a configuration file with a password."""
    from cafcat.catalog.database_url import has_secret

    settings = examination.settings
    readable = set()
    for name in ("database_url", "read_database_url"):
        url, file = getattr(settings, name), _file_of(settings.origins[name])
        if url is not None and file is not None and has_secret(url) and _is_readable_by_others(file):
            readable.add(file)
    for file in sorted(readable):
        remedy = f"run: chmod go-rwx {file}; or keep the password in ~/.pgpass"
        yield warning(f"{file} has a password, and other users may read it", remedy)
    if not readable:
        yield ok("no configuration file shows a password to other users")


def _file_of(origin: str) -> str | None:
    """Return the file in the origin of a setting ("file PATH: key"); None for another origin."""
    return origin.removeprefix("file ").rpartition(": ")[0] if origin.startswith("file ") else None


def _is_readable_by_others(file: str) -> bool:
    try:
        return bool(os.stat(file).st_mode & (stat.S_IRGRP | stat.S_IROTH))
    except OSError:
        return False
