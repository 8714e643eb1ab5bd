"""Checks single values of the settings, and converts them to their types.

An error message contains the value of a setting only if the setting cannot be a secret.
"""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from cafcat.errors import InvalidInput
from cafcat.support.quantities import parse_size

__all__ = ["GivenValue", "absolute_path", "as_boolean", "check_keys", "size_in_bytes", "text_of", "whole_number"]

_NAME_OF_SECRET = re.compile(r"access.?key|secret|passw|token|credential", re.IGNORECASE)
_NO_SECRETS = (
    "secrets do not belong in this file: keep those of S3 in AWS' own configuration (~/.aws/credentials)"
    " or environment (AWS_SECRET_ACCESS_KEY), and that of PostgreSQL in ~/.pgpass or PGPASSWORD"
)


class GivenValue(NamedTuple):
    """The value of a setting as the user gave it, and its origin.

    Attributes:
        value: The value, not checked yet.
        origin: Where the user gave it, for messages: "flag", "environment CAFCAT_X" or "file PATH: key".
        folder: Absolute path of the folder from which a relative path in the value begins.
    """

    value: Any
    origin: str
    folder: Path


def text_of(given: GivenValue, name: str) -> str:
    """Return the value of a setting as a text. A path object becomes the text of its path.

    Args:
        given: The value.
        name: Name of the setting, for messages.

    Raises:
        InvalidInput: The value is of another type, is empty, or contains a NUL.
    """
    value = os.fspath(given.value) if isinstance(given.value, os.PathLike) else given.value
    if not isinstance(value, str) or not value or "\0" in value:
        raise InvalidInput(f"{name} ({given.origin}) must be a text that is not empty and has no NUL character")
    return value


def absolute_path(given: GivenValue, name: str) -> Path:
    """Return the value of a setting as an absolute path without `~`, `.` and `..`.

    Args:
        given: The value.
        name: Name of the setting, for messages.

    Raises:
        InvalidInput: The value is not a path, or begins with `~` and the home of that user is unknown.
    """
    try:
        return Path(os.path.normpath(given.folder / Path(text_of(given, name)).expanduser()))
    except RuntimeError as error:
        raise InvalidInput(f"{name} ({given.origin}): {error}") from error


def size_in_bytes(given: GivenValue, name: str) -> int:
    """Return the value of a setting as a number of bytes, from a number or a size such as "30GB".

    Args:
        given: The value.
        name: Name of the setting, for messages.

    Raises:
        InvalidInput: The value is not a size.
    """
    value = given.value
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise InvalidInput(f'{name} ({given.origin}) must be a number of bytes or a size such as "30GB"')
    try:
        return parse_size(value)
    except InvalidInput as error:
        raise InvalidInput(f"{name} ({given.origin}): {error.message}", hint=error.hint) from error


def whole_number(given: GivenValue, name: str, least: int, most: int) -> int:
    """Return the value of a setting as a whole number, from a number or a text of decimal digits.

    Args:
        given: The value.
        name: Name of the setting, for messages.
        least: Smallest number that is allowed.
        most: Largest number that is allowed.

    Raises:
        InvalidInput: The value is not a whole number in this range.
    """
    text = str(given.value).strip()
    if isinstance(given.value, bool) or not re.fullmatch(r"[0-9]{1,9}", text) or not least <= int(text) <= most:
        raise InvalidInput(f"{name} ({given.origin}) must be a whole number from {least} to {most}")
    return int(text)


def as_boolean(given: GivenValue, name: str) -> bool:
    """Return the value of a setting as a boolean, from a boolean or the words "true" and "false" in any case.

    Args:
        given: The value.
        name: Name of the setting, for messages.

    Raises:
        InvalidInput: The value is neither a boolean nor one of these words.
    """
    if isinstance(given.value, bool):
        return given.value
    word = text_of(given, name).lower()
    if word not in ("true", "false"):
        raise InvalidInput(f"{name} ({given.origin}) must be true or false")
    return word == "true"


def check_keys(table: Mapping[str, Any], keys: Sequence[str], file: Path, prefix: str) -> None:
    """Check that a table of the configuration file has no unknown keys.

    Args:
        table: The table.
        keys: The known keys.
        file: The configuration file.
        prefix: Path of the table in the file, for messages, such as "profiles.big.".

    Raises:
        InvalidInput: The table has a key that is not in `keys`.
    """
    for name in table:
        if name not in keys:
            hint = _NO_SECRETS if _NAME_OF_SECRET.search(name) else f"keys are {', '.join(keys)}"
            raise InvalidInput(f"unknown key {prefix}{name} in {file}", hint=hint)
