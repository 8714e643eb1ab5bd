"""Where things are: flags > environment > `cafcat.toml` > defaults.

The names are the same everywhere: the flag `--target-size`, the variable `CAFCAT_TARGET_SIZE` and the key
`target_size`. Read only by repository.py and the doors.
"""

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Self

from cafcat.errors import InvalidInput
from cafcat.units import parse_size

__all__ = ["DEFAULT_TARGET_SIZE", "KEYS", "Settings", "redact"]

KEYS = ("home", "database_url", "store", "target_size")
DEFAULT_TARGET_SIZE = 30_000_000_000
CONFIG_NAME = "cafcat.toml"


class _Given(NamedTuple):
    """A value that somebody gave, who, and the folder that a relative path in it is relative to."""

    value: Any
    origin: str
    folder: Path


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of one repository.

    home: absolute folder of the embedded database. database_url: a libpq URL or key=value string, None for
    the embedded database. store: a URL or an absolute path. target_size: bytes of a chunk. origins: per name
    "flag", "environment CAFCAT_X", "file PATH: key" or "default".
    """

    home: Path
    database_url: str | None = field(repr=False)
    store: str
    target_size: int
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
        given = _from_file(_config_file(config, given), profile) | given
        return cls._resolve(given)

    @classmethod
    def _resolve(cls, given: Mapping[str, _Given]) -> Self:
        home = _absolute_path(given["home"], "home") if "home" in given else _default_home()
        values: dict[str, Any] = {
            "home": home,
            "database_url": None,
            "store": str(home / "chunks"),
            "target_size": DEFAULT_TARGET_SIZE,
        }
        for name, read in _READERS.items():
            if name in given:
                values[name] = read(given[name], name)
        origins = {name: given[name].origin if name in given else "default" for name in KEYS}
        return cls(**values, origins=origins)


def redact(url: str) -> str:
    """The same libpq URL or key=value string, or store URL, with every password replaced by `***`."""
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


def _from_flags(flags: Mapping[str, Any]) -> dict[str, _Given]:
    return {name: _Given(value, "flag", Path.cwd()) for name, value in flags.items() if value is not None}


def _from_environment(environ: Mapping[str, str]) -> dict[str, _Given]:
    """An empty variable counts as not set, so that a shell can switch one off for one command."""
    variables = {name: f"CAFCAT_{name.upper()}" for name in KEYS}
    return {
        name: _Given(environ[variable], f"environment {variable}", Path.cwd())
        for name, variable in variables.items()
        if environ.get(variable)
    }


def _config_file(config: str | os.PathLike[str] | None, given: Mapping[str, _Given]) -> Path | None:
    if config is not None:
        return _absolute_path(_Given(config, "", Path.cwd()), "config")
    home = _absolute_path(given["home"], "home") if "home" in given else _default_home()
    file = home / CONFIG_NAME
    return file if file.is_file() else None


def _from_file(file: Path | None, profile: str | None) -> dict[str, _Given]:
    """Top-level keys, overridden by those of `[profiles.NAME]`."""
    if file is None:
        if profile is not None:
            raise InvalidInput(f"profile {profile!r} needs a {CONFIG_NAME}, and there is none")
        return {}
    document = _read_toml(file)
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


def _checked(table: Mapping[str, Any], file: Path, prefix: str) -> dict[str, _Given]:
    for name in table:
        if name not in KEYS:
            raise InvalidInput(f"unknown key {prefix}{name} in {file}", hint=f"keys are {', '.join(KEYS)}")
    return {name: _Given(value, f"file {file}: {prefix}{name}", file.parent) for name, value in table.items()}


def _read_toml(file: Path) -> dict[str, Any]:
    import tomllib

    try:
        with file.open("rb") as stream:
            return tomllib.load(stream)
    except OSError as error:
        raise InvalidInput(f"cannot read the configuration {file}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{file} is not TOML: {error}") from error


def _default_home() -> Path:
    import platformdirs

    return Path(platformdirs.user_data_dir("cafcat", appauthor=False)).absolute()


def _text(given: _Given, name: str) -> str:
    value = os.fspath(given.value) if isinstance(given.value, os.PathLike) else given.value
    if not isinstance(value, str) or not value or "\0" in value:
        raise InvalidInput(f"{name} ({given.origin}) must be a text that is not empty")
    return value


def _absolute_path(given: _Given, name: str) -> Path:
    try:
        return Path(os.path.normpath(given.folder / Path(_text(given, name)).expanduser()))
    except RuntimeError as error:
        raise InvalidInput(f"{name} ({given.origin}): {error}") from error


def _store(given: _Given, name: str) -> str:
    text = _text(given, name)
    return text if "://" in text else str(_absolute_path(given, name))


def _database_url(given: _Given, name: str) -> str:
    """As libpq reads it; SQLAlchemy's `postgresql+driver://` loses its driver. The value is never in a
    message, because it may hold a password."""
    text = re.sub(r"^(postgres(?:ql)?)\+\w+://", r"\1://", _text(given, name).strip())
    if re.match(r"postgres(ql)?://", text) or re.match(r"\w+\s*=", text):
        return text
    hint = "write postgresql://USER@HOST/DATABASE, or libpq's key=value"
    raise InvalidInput(f"{name} ({given.origin}) is not a Postgres URL", hint=hint)


def _target_size(given: _Given, name: str) -> int:
    value = given.value
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise InvalidInput(f'{name} ({given.origin}) must be a number of bytes or a size such as "30GB"')
    try:
        size = parse_size(value)
    except InvalidInput as error:
        raise InvalidInput(f"{name} ({given.origin}): {error.message}", hint=error.hint) from error
    if size == 0:
        raise InvalidInput(f"{name} ({given.origin}) must be more than 0 bytes")
    return size


_READERS: Mapping[str, Callable[[_Given, str], Any]] = {
    "database_url": _database_url,
    "store": _store,
    "target_size": _target_size,
}
