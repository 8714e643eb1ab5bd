"""Single values of the settings: who gave them, and what they must be. No value is ever in a message unless it
cannot be a secret."""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from cafcat.errors import InvalidInput
from cafcat.support.quantities import parse_size

__all__ = ["GivenValue", "absolute_path", "check_keys", "size_in_bytes", "text_of", "yes_or_no"]

_NAME_OF_SECRET = re.compile(r"access.?key|secret|passw|token|credential", re.IGNORECASE)
_NO_SECRETS = (
    "secrets are not kept in this file: those of S3 belong in AWS' own configuration (~/.aws/credentials)"
    " or environment (AWS_SECRET_ACCESS_KEY), that of Postgres in ~/.pgpass or PGPASSWORD"
)


class GivenValue(NamedTuple):
    """A value that somebody gave, who, and the folder that a relative path in it is relative to."""

    value: Any
    origin: str
    folder: Path


def text_of(given: GivenValue, name: str) -> str:
    """A text, or the text of a path object. Raises InvalidInput if it is empty or has a NUL."""
    value = os.fspath(given.value) if isinstance(given.value, os.PathLike) else given.value
    if not isinstance(value, str) or not value or "\0" in value:
        raise InvalidInput(f"{name} ({given.origin}) must be a text that is not empty")
    return value


def absolute_path(given: GivenValue, name: str) -> Path:
    """The path without `~`, `.` and `..`. Raises InvalidInput."""
    try:
        return Path(os.path.normpath(given.folder / Path(text_of(given, name)).expanduser()))
    except RuntimeError as error:
        raise InvalidInput(f"{name} ({given.origin}): {error}") from error


def size_in_bytes(given: GivenValue, name: str) -> int:
    """A number of bytes, or what a size such as "30GB" means. Raises InvalidInput."""
    value = given.value
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise InvalidInput(f'{name} ({given.origin}) must be a number of bytes or a size such as "30GB"')
    try:
        return parse_size(value)
    except InvalidInput as error:
        raise InvalidInput(f"{name} ({given.origin}): {error.message}", hint=error.hint) from error


def yes_or_no(given: GivenValue, name: str) -> bool:
    """A truth value, or the word for one. Raises InvalidInput."""
    if isinstance(given.value, bool):
        return given.value
    word = text_of(given, name).lower()
    if word not in ("true", "false"):
        raise InvalidInput(f"{name} ({given.origin}) must be true or false")
    return word == "true"


def check_keys(table: Mapping[str, Any], keys: Sequence[str], file: Path, prefix: str) -> None:
    """Refuses the first key of a table of `file` that is none of `keys`; `prefix` is what stands before it, as
    "profiles.big.". Raises InvalidInput."""
    for name in table:
        if name not in keys:
            hint = _NO_SECRETS if _NAME_OF_SECRET.search(name) else f"keys are {', '.join(keys)}"
            raise InvalidInput(f"unknown key {prefix}{name} in {file}", hint=hint)
