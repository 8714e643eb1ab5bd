"""Settings from flags, environment variables, `cafcat.toml` and defaults, in this order of precedence.

A setting has the same name everywhere: the flag `--lock-timeout`, the variable `CAFCAT_LOCK_TIMEOUT` and the key
`lock_timeout`. Some settings have no flag on the command line. Only the file can define named stores. The command
line, the repository and the session read the settings, and pass single values to the packages below them.
"""

import os
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from cafcat.errors import AccessDenied, InvalidInput
from cafcat.settings.stores import NamedStore, chosen_url, named_stores, possible_name
from cafcat.settings.values import (
    GivenValue,
    absolute_path,
    as_boolean,
    check_keys,
    size_in_bytes,
    text_of,
    whole_number,
)
from cafcat.stores.base import READ_REQUESTS
from cafcat.stores.kind import UPLOAD_MEMORY, StoreContext
from cafcat.stores.registry import kind_of
from cafcat.support.quantities import format_size, parse_rate

__all__ = ["DEFAULT_TARGET_SIZE", "KEYS", "NamedStore", "Settings", "default_home", "redact"]

KEYS = (
    "home",
    "database_url",
    "read_database_url",
    "max_staleness",
    "store",
    "target_size",
    "upload_memory",
    "read_requests",
    "prepared_statements",
    "lock_timeout",
    "bandwidth",
    "tracing",
)
DEFAULT_TARGET_SIZE = 30_000_000_000
"""Default of target_size: a chunk of this size is full, in bytes."""
DEFAULT_MAX_STALENESS = 60
"""Default of max_staleness, in seconds."""
LEAST_UPLOAD_MEMORY = 16_000_000
"""Smallest accepted value of upload_memory, in bytes."""
MOST_READ_REQUESTS = 1000
"""Largest accepted value of read_requests."""
CONFIG_NAME = "cafcat.toml"
"""Name of the configuration file in the home."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of one repository, as checked values.

    Attributes:
        home: Absolute path of the home: it has the embedded database, the default store and `cafcat.toml`.
        database_url: A libpq URL or key=value string; None for the embedded database.
        read_database_url: URL of a standby server of `database_url`, which answers look-ups and listings; None for
            none.
        max_staleness: How far that server may be behind, in seconds.
        store: URL or absolute path of the store for new chunks.
        store_name: The text that the user gave for `store`, if it can be the name of a store and is not a name in
            `stores`; otherwise None. If the catalog has a store with this name, that store is used instead of
            `store`.
        target_size: Size at which a chunk is full, in bytes.
        upload_memory: Largest amount of memory for the parts of one chunk that are being uploaded to an object
            store, in bytes.
        read_requests: Largest number of requests to an object store that are in flight while files are read.
        prepared_statements: True if look-ups are prepared on the server of `database_url`, which saves time.
        lock_timeout: How long to wait for a lock of the catalog, in seconds. None stands for ten minutes, but for 0
            in rebuild and restore, and for 30 seconds until another process has written its journal records.
        bandwidth: Most bytes per second that this process receives from remote sources and stores, and most that it
            sends to stores. None: no limit.
        tracing: True if reads and commits are recorded as spans of OpenTelemetry.
        stores: The named stores of the configuration file, by name.
        origins: Where each setting came from: "flag", "environment CAFCAT_X", "file PATH: key" or "default". Named
            stores have the keys "stores.NAME". The key "config" has the path of the configuration file, which need
            not exist.
    """

    home: Path
    database_url: str | None = field(repr=False)
    read_database_url: str | None = field(repr=False)
    max_staleness: int
    store: str
    store_name: str | None
    target_size: int
    upload_memory: int
    read_requests: int
    prepared_statements: bool
    lock_timeout: int | None
    bandwidth: int | None
    tracing: bool
    stores: Mapping[str, NamedStore] = field(hash=False)
    origins: Mapping[str, str] = field(repr=False, compare=False)

    @classmethod
    def load(
        cls,
        *,
        environ: Mapping[str, str] | None = None,
        config: str | os.PathLike[str] | None = None,
        profile: str | None = None,
        **flags: Any,
    ) -> Self:
        """Return the settings. Each comes from the first of flags, environment, configuration file and defaults.

        Args:
            environ: Environment variables; default: those of the process.
            config: Path of the configuration file; default: CAFCAT_CONFIG, else `cafcat.toml` in the home.
            profile: Profile of the configuration file; default: CAFCAT_PROFILE, else none.
            flags: Values of flags, with names as in KEYS; None for flags that were not given.

        Raises:
            InvalidInput: A setting is unknown or invalid, the configuration file cannot be read, or it lacks the
                profile. Or this user has no home folder, and no setting names another home. Or Python decodes names
                of files by another encoding than UTF-8.
            Unsupported: No kind of store has the scheme of the store's URL.
            AccessDenied: This user may not read the home.
        """
        _check_encoding()
        environ = os.environ if environ is None else environ
        unknown = sorted(set(flags) - set(KEYS))
        if unknown:
            raise InvalidInput(f"no such setting: {unknown[0]}", hint=f"settings are {', '.join(KEYS)}")
        given = _given(environ, flags)
        config = config if config is not None else environ.get("CAFCAT_CONFIG") or None
        profile = profile if profile is not None else environ.get("CAFCAT_PROFILE") or None
        file, stores = _config_file(config, given), {}
        if file is not None:
            document = _read_toml(file)
            stores = named_stores(document.pop("stores", {}), file)
            given = _from_file(document, file, profile) | given
        elif profile is not None:
            raise InvalidInput(f"profile {profile!r} needs a {CONFIG_NAME}, which does not exist")
        return cls._resolve(given, stores, file)

    @classmethod
    def _resolve(cls, given: Mapping[str, GivenValue], stores: Mapping[str, NamedStore], file: Path | None) -> Self:
        home = absolute_path(given["home"], "home") if "home" in given else default_home()
        values: dict[str, Any] = {
            "database_url": None,
            "read_database_url": None,
            "max_staleness": DEFAULT_MAX_STALENESS,
            "store": str(home / "chunks"),
            "store_name": None,
            "target_size": DEFAULT_TARGET_SIZE,
            "upload_memory": UPLOAD_MEMORY,
            "read_requests": READ_REQUESTS,
            "prepared_statements": True,
            "lock_timeout": None,
            "bandwidth": None,
            "tracing": False,
        }
        for name, parse in _PARSERS.items():
            if name in given:
                values[name] = parse(given[name], name)
        if "store" in given:
            values["store"] = chosen_url(given["store"], "store", stores)
            if "://" in values["store"]:
                kind_of(values["store"])  # refuses an unknown scheme before the first write
            values["store_name"] = possible_name(given["store"].value, stores)
        if values["database_url"] is None and values["read_database_url"] is not None:
            message = f"read_database_url ({given['read_database_url'].origin}) is set without database_url"
            raise InvalidInput(message, hint="the embedded database has no standby: set database_url, too")
        if values["database_url"] is None and Path(values["store"]).is_relative_to(home):
            # Without symbolic links: the embedded database has one URL for the store, whatever path of the home the
            # user gives.
            values["store"] = str(Path(os.path.realpath(home)) / Path(values["store"]).relative_to(home))
        origins = {name: given[name].origin if name in given else "default" for name in KEYS}
        origins |= {f"stores.{name}": f"file {file}: stores.{name}" for name in stores}
        origins["config"] = str(file or home / CONFIG_NAME)
        return cls(home=home, **values, stores=stores, origins=origins)

    @property
    def has_default_home(self) -> bool:
        """True if the home is the default home of this user, because no other was given."""
        return self.origins["home"] == "default"

    @property
    def store_from_flag(self) -> str | None:
        """Name, URL or path of the store if the flag --store was given, else None.

        With it, an operation that works on all stores by default works on this store only.
        """
        return (self.store_name or self.store) if self.origins["store"] == "flag" else None

    def options_of(self, url: str) -> Mapping[str, str]:
        """Return the options that a table [stores.NAME] of cafcat.toml sets for a store, a source or an object.

        Of all named stores whose URL is `url` or a folder above it, the store with the longest URL has the options.
        If there is no such store, the result is empty.

        Args:
            url: URL of the store, source or object.
        """
        scheme, separator, path = url.partition("://")
        url = f"{scheme.lower()}{separator}{path.rstrip('/')}"
        above = [store for store in self.stores.values() if url == store.url or url.startswith(f"{store.url}/")]
        return max(above, key=lambda store: len(store.url)).options if above else {}

    def store_context(self, url: str) -> StoreContext:
        """Return the values with which a StoreKind opens the store, or an object, at a URL.

        They are the options for this URL (`options_of`), the memory for an upload, the number of reads in flight,
        and the default store in the home as the folder to keep private.
        """
        return StoreContext(
            self.options_of(url), self.upload_memory, self.read_requests, private_folder=str(self.home / "chunks")
        )


def redact(url: str) -> str:
    """Return the libpq URL or key=value string of a database with `***` in place of every password."""
    if not re.match(r"\w+://", url):
        return _PASSWORD_KEYWORD.sub(r"\1***", url)
    # A password with an unescaped "/", "?" or "@" makes the URL invalid. It must not be shown even then.
    before, mark, query = url.partition("?")
    if "@" not in before and "@" in query:
        before, mark, query = url, "", ""
    return _PASSWORD_IN_URL.sub(r"\1***@", before) + mark + _PASSWORD_PARAMETER.sub(r"\1***", query)


_PASSWORD_IN_URL = re.compile(r"(://[^:/@]*:).*@", re.DOTALL)
_PASSWORD_PARAMETER = re.compile(r"((?:^|&)(?:ssl)?password=)[^&]*", re.IGNORECASE)
_PASSWORD_KEYWORD = re.compile(
    r"(\b(?:ssl)?password\s*=\s*)(?:'(?:[^'\\]|\\.)*'?|(?:[^\s\\]|\\.)*)", re.IGNORECASE | re.DOTALL
)


def _given(environ: Mapping[str, str], flags: Mapping[str, Any]) -> dict[str, GivenValue]:
    """Return the settings that flags and environment variables give, by name.

    An empty variable counts as not set, so that a user can turn the variable off for one command.
    """
    given = {}
    for name in KEYS:
        variable = f"CAFCAT_{name.upper()}"
        if flags.get(name) is not None:
            given[name] = GivenValue(flags[name], "flag", Path.cwd())
        elif environ.get(variable):
            given[name] = GivenValue(environ[variable], f"environment {variable}", Path.cwd())
    return given


def _config_file(config: str | os.PathLike[str] | None, given: Mapping[str, GivenValue]) -> Path | None:
    if config is not None:
        return absolute_path(GivenValue(config, "", Path.cwd()), "config")
    home = absolute_path(given["home"], "home") if "home" in given else default_home()
    file = home / CONFIG_NAME
    try:
        return file if file.is_file() else None
    except PermissionError as error:
        hint = "run cafcat as the owner of this home, or choose another one with --home or CAFCAT_HOME"
        raise AccessDenied(f"the home {home} cannot be read: {error.strerror}", hint=hint) from error


def _from_file(document: dict[str, Any], file: Path, profile: str | None) -> dict[str, GivenValue]:
    """Return the settings in the configuration file, by name. Keys of the chosen profile override top-level keys.

    Args:
        document: The content of the file, without `stores`. `profiles` is removed from it.
        file: The file.
        profile: Name of the profile to use; None for none.

    Raises:
        InvalidInput: The file has an unknown key or an invalid table, or lacks the profile.
    """
    profiles = document.pop("profiles", {})
    if not isinstance(profiles, dict) or not all(isinstance(table, dict) for table in profiles.values()):
        raise InvalidInput(f"profiles in {file} are not tables", hint="write [profiles.NAME]")
    values = _checked(document, file, "")
    for name, table in profiles.items():
        in_profile = _checked(table, file, f"profiles.{name}.")
        values |= in_profile if name == profile else {}
    if profile is not None and profile not in profiles:
        existing = ", ".join(sorted(profiles)) or "none"
        raise InvalidInput(f"no profile {profile!r} in {file}", hint=f"profiles in this file: {existing}")
    return values


def _checked(table: Mapping[str, Any], file: Path, prefix: str) -> dict[str, GivenValue]:
    if "stores" in table:
        hint = "profiles cannot define stores: write [stores.NAME]"
        raise InvalidInput(f"unknown key {prefix}stores in {file}", hint=hint)
    check_keys(table, KEYS, file, prefix)
    return {name: GivenValue(value, f"file {file}: {prefix}{name}", file.parent) for name, value in table.items()}


def _read_toml(file: Path) -> dict[str, Any]:
    import tomllib

    try:
        with file.open("rb") as stream:
            return tomllib.load(stream)
    except OSError as error:
        raise InvalidInput(f"cannot read the configuration {file}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{file} is not TOML: {error}") from error


def default_home() -> Path:
    """Return the absolute path of the default home: the folder for this user's data of cafcat on this platform.

    Raises:
        InvalidInput: This user has no home folder.
    """
    import platformdirs

    try:
        return Path(platformdirs.user_data_dir("cafcat", appauthor=False)).absolute()
    except RuntimeError as error:  # no HOME, and no entry in passwd, as for `docker run --user 12345`
        hint = "name a folder for catalog and chunks: set CAFCAT_HOME, or use --home"
        raise InvalidInput("this user has no home folder", hint=hint) from error


def _check_encoding() -> None:
    """Check that names of files are decoded as UTF-8. The `cafcat` command makes sure of that by itself."""
    if (encoding := sys.getfilesystemencoding()) != "utf-8":
        message = f"Python decodes names of files as {encoding} here, and the catalog has them in UTF-8"
        raise InvalidInput(message, hint="start Python with PYTHONUTF8=1, or in a locale with UTF-8")


def _database_url(given: GivenValue, name: str) -> str:
    """Return the setting `database_url` in a form for libpq: `postgresql+driver://` loses SQLAlchemy's driver.

    Messages never contain the value, because it may hold a password.
    """
    text = re.sub(r"^(postgres(?:ql)?)\+\w+://", r"\1://", text_of(given, name).strip())
    if re.match(r"postgres(ql)?://", text) or re.match(r"\w+\s*=", text):
        return text
    hint = "write postgresql://USER@HOST/DATABASE, or libpq's key=value"
    raise InvalidInput(f"{name} ({given.origin}) is not a Postgres URL", hint=hint)


def _target_size(given: GivenValue, name: str) -> int:
    size = size_in_bytes(given, name)
    if size == 0:
        raise InvalidInput(f"{name} ({given.origin}) must be more than 0 bytes")
    return size


def _seconds(given: GivenValue, name: str) -> int:
    """Return the value of a setting in seconds, from a number or a duration such as "15m". Raises InvalidInput."""
    text = str(given.value).strip().lower()
    match = re.fullmatch(r"(\d{1,6})([smhd]?)", text, re.ASCII)
    if isinstance(given.value, bool) or match is None:
        hint = "write 0, 60s, 15m or 1h"
        raise InvalidInput(f"{name} ({given.origin}) is not a duration: {given.value!r}", hint=hint)
    return int(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400}[match[2]]


def _max_staleness(given: GivenValue, name: str) -> int:
    seconds = _seconds(given, name)
    if seconds == 0:
        hint = "to read the primary only, leave read_database_url out"
        raise InvalidInput(f"{name} ({given.origin}) must be at least 1 second", hint=hint)
    return seconds


def _upload_memory(given: GivenValue, name: str) -> int:
    size = size_in_bytes(given, name)
    if size < LEAST_UPLOAD_MEMORY:
        least = f"{LEAST_UPLOAD_MEMORY} bytes ({format_size(LEAST_UPLOAD_MEMORY)})"
        raise InvalidInput(f"{name} ({given.origin}) must be at least {least}, not {size}")
    return size


def _bandwidth(given: GivenValue, name: str) -> int:
    try:
        return parse_rate(given.value)
    except InvalidInput as error:
        raise InvalidInput(f"{name} ({given.origin}): {error.message}", hint=error.hint) from error


def _read_requests(given: GivenValue, name: str) -> int:
    return whole_number(given, name, 1, MOST_READ_REQUESTS)


_PARSERS: Mapping[str, Callable[[GivenValue, str], Any]] = {
    "database_url": _database_url,
    "read_database_url": _database_url,
    "max_staleness": _max_staleness,
    "target_size": _target_size,
    "upload_memory": _upload_memory,
    "read_requests": _read_requests,
    "prepared_statements": as_boolean,
    "lock_timeout": _seconds,
    "bandwidth": _bandwidth,
    "tracing": as_boolean,
}
