"""Where things are: flags > environment > `cafcat.toml` > defaults.

The names are the same everywhere: the flag `--target-size`, the variable `CAFCAT_TARGET_SIZE` and the key
`target_size`. Stores have names in the file only. The doors and the wiring (docs/design.md) read this; what is
below is told what it needs.
"""

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from cafcat.errors import InvalidInput
from cafcat.settings.stores import NamedStore, chosen_url, named_stores, options_of, possible_name
from cafcat.settings.values import Given, absolute_path, check_keys, size_in_bytes, text_of, yes_or_no
from cafcat.stores.kind import UPLOAD_MEMORY, StoreContext
from cafcat.support.quantities import format_size

__all__ = ["DEFAULT_TARGET_SIZE", "KEYS", "NamedStore", "Settings", "default_home", "redact"]

KEYS = ("home", "database_url", "store", "target_size", "upload_memory", "prepared_statements", "lock_timeout")
DEFAULT_TARGET_SIZE = 30_000_000_000
LEAST_UPLOAD_MEMORY = 16_000_000
CONFIG_NAME = "cafcat.toml"


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of one repository.

    Attributes:
        home: Absolute folder of the embedded database.
        database_url: A libpq URL or key=value string, None for the embedded database.
        store: A URL or an absolute path.
        store_name: The store as given, if that can be a name. A store with this name in the catalog is meant rather
            than the folder in `store`.
        target_size: Bytes of a chunk.
        upload_memory: Most bytes of memory for the parts of one chunk on their way to an object store.
        prepared_statements: Whether look-ups are prepared on the server of database_url.
        lock_timeout: How long to wait for a lock of the catalog, in seconds. None: ten minutes, but rebuild and
            restore do not wait.
        stores: The stores that the configuration file names.
        origins: Where each setting came from: "flag", "environment CAFCAT_X", "file PATH: key" or "default". Stores
            are there as "stores.NAME".
    """

    home: Path
    database_url: str | None = field(repr=False)
    store: str
    store_name: str | None
    target_size: int
    upload_memory: int
    prepared_statements: bool
    lock_timeout: int | None
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
        """Settings from flags (None: not given; names as in KEYS), `environ` (default: the process'), the
        configuration file and the defaults. Raises InvalidInput."""
        environ = os.environ if environ is None else environ
        unknown = sorted(set(flags) - set(KEYS))
        if unknown:
            raise InvalidInput(f"no such setting: {unknown[0]}", hint=f"settings are {', '.join(KEYS)}")
        given = _from_environment(environ) | _from_flags(flags)
        config = config if config is not None else environ.get("CAFCAT_CONFIG") or None
        profile = profile if profile is not None else environ.get("CAFCAT_PROFILE") or None
        file = _config_file(config, given)
        document = {} if file is None else _read_toml(file)
        stores = {} if file is None else named_stores(document.pop("stores", {}), file)
        return cls._resolve(_from_file(document, file, profile) | given, stores, file)

    @classmethod
    def _resolve(cls, given: Mapping[str, Given], stores: Mapping[str, NamedStore], file: Path | None) -> Self:
        home = absolute_path(given["home"], "home") if "home" in given else default_home()
        values: dict[str, Any] = {
            "database_url": None,
            "store": str(home / "chunks"),
            "store_name": None,
            "target_size": DEFAULT_TARGET_SIZE,
            "upload_memory": UPLOAD_MEMORY,
            "prepared_statements": True,
            "lock_timeout": None,
        }
        for name, read in _READERS.items():
            if name in given:
                values[name] = read(given[name], name)
        if "store" in given:
            values["store"] = chosen_url(given["store"], "store", stores)
            values["store_name"] = possible_name(given["store"].value, stores)
        if values["database_url"] is None:
            values["store"] = _in_real_home(values["store"], home)
        origins = {name: given[name].origin if name in given else "default" for name in KEYS}
        origins |= {f"stores.{name}": f"file {file}: stores.{name}" for name in stores}
        return cls(home=home, **values, stores=stores, origins=origins)

    @property
    def has_default_home(self) -> bool:
        """Whether the home is the one of this user, and not a folder that was named."""
        return self.origins["home"] == "default"

    @property
    def store_from_flag(self) -> str | None:
        """The store if a flag names it, as a name or a URL: verbs that take all stores then take only this one."""
        return (self.store_name or self.store) if self.origins["store"] == "flag" else None

    def options_of(self, url: str) -> Mapping[str, str]:
        """Return the options that [stores.NAME] sets for the URL of a store, a source or an object.

        They are those of the named store whose URL is the longest that `url` begins with, compared by whole parts
        between slashes. Empty if there is no such store.
        """
        return options_of(url, self.stores)

    def store_context(self, url: str) -> StoreContext:
        """Return what these settings provide for opening the store, or an object, at a URL."""
        return StoreContext(self.options_of(url), self.upload_memory, str(self.home / "chunks"))


def redact(url: str) -> str:
    """Return a libpq URL or key=value string with `***` in place of every password."""
    if "://" not in url:
        return _PASSWORD_KEYWORD.sub(r"\1***", url)
    # A password with an unescaped "/", "?" or "@" is no valid URL, but must not be shown for that.
    before, mark, query = url.partition("?")
    if "@" not in before and "@" in query:
        before, mark, query = url, "", ""
    return _PASSWORD_IN_URL.sub(r"\1***@", before) + mark + _PASSWORD_PARAMETER.sub(r"\1***", query)


_PASSWORD_IN_URL = re.compile(r"(://[^:/@]*:).*@", re.DOTALL)
_PASSWORD_PARAMETER = re.compile(r"((?:^|&)(?:ssl)?password=)[^&]*", re.IGNORECASE)
_PASSWORD_KEYWORD = re.compile(
    r"(\b(?:ssl)?password\s*=\s*)(?:'(?:[^'\\]|\\.)*'?|(?:[^\s\\]|\\.)*)", re.IGNORECASE | re.DOTALL
)


def _from_flags(flags: Mapping[str, Any]) -> dict[str, Given]:
    return {name: Given(value, "flag", Path.cwd()) for name, value in flags.items() if value is not None}


def _from_environment(environ: Mapping[str, str]) -> dict[str, Given]:
    """An empty variable counts as not set, so that a shell can switch one off for one command."""
    variables = {name: f"CAFCAT_{name.upper()}" for name in KEYS}
    return {
        name: Given(environ[variable], f"environment {variable}", Path.cwd())
        for name, variable in variables.items()
        if environ.get(variable)
    }


def _config_file(config: str | os.PathLike[str] | None, given: Mapping[str, Given]) -> Path | None:
    if config is not None:
        return absolute_path(Given(config, "", Path.cwd()), "config")
    home = absolute_path(given["home"], "home") if "home" in given else default_home()
    file = home / CONFIG_NAME
    return file if file.is_file() else None


def _from_file(document: dict[str, Any], file: Path | None, profile: str | None) -> dict[str, Given]:
    """Top-level keys, overridden by those of `[profiles.NAME]`."""
    if file is None:
        if profile is not None:
            raise InvalidInput(f"profile {profile!r} needs a {CONFIG_NAME}, and there is none")
        return {}
    profiles = document.pop("profiles", {})
    if not isinstance(profiles, dict) or not all(isinstance(table, dict) for table in profiles.values()):
        raise InvalidInput(f"profiles in {file} are not tables", hint="write [profiles.NAME]")
    values = _checked(document, file, "")
    for name, table in profiles.items():
        of_profile = _checked(table, file, f"profiles.{name}.")
        values |= of_profile if name == profile else {}
    if profile is not None and profile not in profiles:
        known = ", ".join(sorted(profiles)) or "none"
        raise InvalidInput(f"no profile {profile!r} in {file}", hint=f"profiles there: {known}")
    return values


def _checked(table: Mapping[str, Any], file: Path, prefix: str) -> dict[str, Given]:
    if "stores" in table:
        hint = "stores have the same names in every profile: write [stores.NAME]"
        raise InvalidInput(f"unknown key {prefix}stores in {file}", hint=hint)
    check_keys(table, KEYS, file, prefix)
    return {name: Given(value, f"file {file}: {prefix}{name}", file.parent) for name, value in table.items()}


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
    """Return the home of this user where none is named: an absolute folder."""
    import platformdirs

    return Path(platformdirs.user_data_dir("cafcat", appauthor=False)).absolute()


def _in_real_home(store: str, home: Path) -> str:
    """The same store by the one name that the embedded database has for it, whichever symbolic link the home was
    reached by."""
    below = Path(store).relative_to(home) if Path(store).is_relative_to(home) else None
    return store if below is None else str(Path(os.path.realpath(home)) / below)


def _database_url(given: Given, name: str) -> str:
    """As libpq reads it; SQLAlchemy's `postgresql+driver://` loses its driver. The value is never in a
    message, because it may hold a password."""
    text = re.sub(r"^(postgres(?:ql)?)\+\w+://", r"\1://", text_of(given, name).strip())
    if re.match(r"postgres(ql)?://", text) or re.match(r"\w+\s*=", text):
        return text
    hint = "write postgresql://USER@HOST/DATABASE, or libpq's key=value"
    raise InvalidInput(f"{name} ({given.origin}) is not a Postgres URL", hint=hint)


def _target_size(given: Given, name: str) -> int:
    size = size_in_bytes(given, name)
    if size == 0:
        raise InvalidInput(f"{name} ({given.origin}) must be more than 0 bytes")
    return size


def _seconds(given: Given, name: str) -> int:
    """Return the seconds of a duration such as "15m", of a number, or 0."""
    text = str(given.value).strip().lower()
    match = re.fullmatch(r"(\d{1,6})([smhd]?)", text, re.ASCII)
    if isinstance(given.value, bool) or match is None:
        hint = "write 0, 60s, 15m or 1h"
        raise InvalidInput(f"{name} ({given.origin}) is not a duration: {given.value!r}", hint=hint)
    return int(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400}[match[2]]


def _upload_memory(given: Given, name: str) -> int:
    size = size_in_bytes(given, name)
    if size < LEAST_UPLOAD_MEMORY:
        least = f"{LEAST_UPLOAD_MEMORY} bytes ({format_size(LEAST_UPLOAD_MEMORY)})"
        raise InvalidInput(f"{name} ({given.origin}) must be at least {least}, not {size}")
    return size


_READERS: Mapping[str, Callable[[Given, str], Any]] = {
    "database_url": _database_url,
    "target_size": _target_size,
    "upload_memory": _upload_memory,
    "prepared_statements": yes_or_no,
    "lock_timeout": _seconds,
}
