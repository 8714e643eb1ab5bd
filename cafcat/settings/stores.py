"""Reads the named stores of `cafcat.toml`, with the options of each.

Which options a table [stores.NAME] may have depends on the kind of store (`StoreKind.options`). No option holds a
secret, a URL that contains a user or password is refused, and a refused URL is never shown.
"""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from cafcat.errors import InvalidInput
from cafcat.settings.values import GivenValue, absolute_path, check_keys, text_of
from cafcat.stores.kind import StoreKind
from cafcat.stores.registry import find_kind

__all__ = [
    "NamedStore",
    "chosen_url",
    "is_store_name",
    "named_stores",
    "possible_name",
    "redact_store_url",
]

_NAME = re.compile(r"\w[\w.-]*")
# An "@" behind the first "/" belongs to a path, unless a ":" or "@" before that "/" shows that it ends a password.
_USER_INFORMATION = re.compile(r"\A([^/]*://)(?=[^/]*[:@]).*@", re.DOTALL)


class NamedStore(NamedTuple):
    """A store that a table `[stores.NAME]` of the configuration file defines.

    Attributes:
        name: Name of the table.
        url: URL or absolute path of the store.
        options: The other values of the table by key, in the normal form that the kind of store gives them.
    """

    name: str
    url: str
    options: Mapping[str, str] = {}


def named_stores(tables: Any, file: Path) -> dict[str, NamedStore]:
    """Return the named stores of a configuration file, by name.

    Args:
        tables: Value of the key `stores` of the file: one table for each store, by name.
        file: The configuration file.

    Raises:
        InvalidInput: A name or table is invalid, or two stores have the same URL.
    """
    if not isinstance(tables, dict) or not all(isinstance(table, dict) for table in tables.values()):
        raise InvalidInput(f"stores in {file} are not tables", hint='write [stores.NAME], and url = "..." below it')
    stores = {name: _named_store(name, table, file) for name, table in tables.items()}
    names: dict[str, str] = {}
    for store in stores.values():
        other = names.setdefault(_same_store_key(store.url), store.name)
        if other != store.name:
            hint = "the catalog identifies a store by its URL: remove one of the names"
            raise InvalidInput(f"stores.{other} and stores.{store.name} in {file} have the same url", hint=hint)
    return stores


def chosen_url(given: GivenValue, name: str, stores: Mapping[str, NamedStore]) -> str:
    """Return the URL or absolute path of the store that a setting selects.

    Args:
        given: Name of a store in `stores`, a URL, or a folder. A path object is always a folder.
        name: Name of the setting, for messages.
        stores: The named stores of the configuration file, by name.

    Raises:
        InvalidInput: The value is not a valid URL or path, or the URL contains a user or password.
    """
    if isinstance(given.value, str) and given.value in stores:
        return stores[given.value].url
    return _store_url(given, name, find_kind(text_of(given, name)))


def is_store_name(text: str) -> bool:
    """Return True if a text can be the name of a store.

    A name has letters, digits, "_", "-" and ".", and begins with neither "-" nor ".".
    """
    return _NAME.fullmatch(text) is not None


def possible_name(given: Any, stores: Mapping[str, NamedStore]) -> str | None:
    """Return the value of the setting `store` if it may be the name of a store in the catalog, else None.

    Args:
        given: The value: a name, URL or path.
        stores: The named stores of the configuration file. Their names take precedence over those in the catalog,
            because only the file has the settings to reach a server. None is returned for such a name.
    """
    return given if isinstance(given, str) and given not in stores and is_store_name(given) else None


def redact_store_url(url: str) -> str:
    """Return the URL of a store with `***` in place of a user and password. The user may be an access key."""
    return _USER_INFORMATION.sub(r"\1***@", url)


def _named_store(name: str, table: Mapping[str, Any], file: Path) -> NamedStore:
    if not _NAME.fullmatch(name):
        hint = (
            "a name has letters, digits, '_', '-' and '.', and begins with neither '-' nor '.': so it cannot be "
            "mistaken for a folder or URL"
        )
        raise InvalidInput(f"not a name for a store in {file}: {name!r}", hint=hint)
    prefix = f"stores.{name}."
    given = {key: GivenValue(value, f"file {file}: {prefix}{key}", file.parent) for key, value in table.items()}
    if "url" not in given:
        raise InvalidInput(
            f"stores.{name} in {file} has no url", hint='write url = "s3://BUCKET/PREFIX", or a folder'
        )
    kind = find_kind(text_of(given["url"], "url"))
    readers = {} if kind is None else kind.options
    check_keys(table, ("url", *readers), file, prefix)
    url = _store_url(given["url"], "url", kind)
    return NamedStore(name, url, {key: _option(given[key], key, readers[key]) for key in readers if key in given})


def _option(given: GivenValue, name: str, function: Callable[[str], str]) -> str:
    text = text_of(given, name)
    try:
        return function(text)
    except InvalidInput as error:
        raise InvalidInput(f"{name} ({given.origin}) {error.message}", hint=error.hint) from None


def _store_url(given: GivenValue, name: str, kind: StoreKind | None) -> str:
    """Return the URL of a store in the normal form of its kind. A path becomes absolute.

    Args:
        given: The URL or path.
        name: Name of the setting, for messages.
        kind: The kind of store by the scheme; None for a path, or a URL of an unknown scheme, which stays as it is.

    Raises:
        InvalidInput: The value is not a valid URL or path, or the URL contains a user or password.
    """
    text = text_of(given, name)
    if _USER_INFORMATION.search(text):
        hint = "remove the part before the @; credentials belong in the configuration of the store's own tools"
        raise InvalidInput(f"{name} ({given.origin}) contains a user or password", hint=hint)
    if kind is None:
        return text if "://" in text else str(absolute_path(given, name))
    try:
        return kind.normal_url(text)
    except InvalidInput as error:
        raise InvalidInput(f"{name} ({given.origin}) {error.message}", hint=error.hint) from None


def _same_store_key(url: str) -> str:
    kind = find_kind(url)
    return url if kind is None else kind.same_store_key(url)
