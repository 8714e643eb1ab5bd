"""The named stores of `cafcat.toml`, and how to reach each of them.

Credentials belong in AWS's own configuration. No key of the file holds a secret, and a URL that contains one is
refused. Messages never show a refused URL.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args
from urllib.parse import unquote

from cafcat.errors import InvalidInput
from cafcat.remote.access import Addressing, S3Access, is_s3
from cafcat.settings.values import GivenValue, absolute_path, check_keys, text_of

__all__ = ["NamedStore", "access_of", "chosen_url", "is_store_name", "named_stores", "possible_name"]

_OPTIONS = ("endpoint_url", "region", "profile", "addressing")
_KEYS = ("url", *_OPTIONS)
_ADDRESSINGS: tuple[Addressing, ...] = get_args(Addressing)
_NAME = re.compile(r"\w[\w.-]*")
_BUCKET = r"[A-Za-z0-9][A-Za-z0-9._-]*"
_S3_URL = re.compile(rf"s3://({_BUCKET})(?:/+([^?#\x00-\x1f\x7f\ud800-\udfff]*))?", re.IGNORECASE)
# An "@" is refused even in the path, because it may be the end of a password with an unescaped "/".
_ENDPOINT = re.compile(r"https?://(?:[\w.-]+|\[[\da-f:.]+\])(?::\d{1,5})?(?:/[^?#@\s]*)?", re.ASCII | re.IGNORECASE)
_USER_INFORMATION = re.compile(r"[^/]*://(?=[^/]*[:@]).*@", re.DOTALL)
_FILE_URL = re.compile(r"file://(?:localhost)?(/.*)", re.DOTALL | re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class NamedStore:
    """A table `[stores.NAME]` of the configuration file.

    Attributes:
        name: Name of the store.
        url: URL or absolute path of the store.
        access: How to reach S3; S3Access() for a store that is not at s3://.
    """

    name: str
    url: str
    access: S3Access


def named_stores(tables: Any, file: Path) -> dict[str, NamedStore]:
    """Return the named stores of a configuration file, by name.

    Args:
        tables: Value of the key `stores`.
        file: The configuration file.

    Raises:
        InvalidInput: A table is invalid, or two stores have the same URL.
    """
    if not isinstance(tables, dict) or not all(isinstance(table, dict) for table in tables.values()):
        raise InvalidInput(f"stores in {file} are not tables", hint='write [stores.NAME], and url = "..." below it')
    stores = {name: _named_store(name, table, file) for name, table in tables.items()}
    names: dict[str, str] = {}
    for store in stores.values():
        other = names.setdefault(_comparable(store.url), store.name)
        if other != store.name:
            hint = "the catalog identifies a store by its URL: remove one of the names"
            raise InvalidInput(f"stores.{other} and stores.{store.name} in {file} have the same url", hint=hint)
    return stores


def chosen_url(given: GivenValue, name: str, stores: Mapping[str, NamedStore]) -> str:
    """Return the URL or absolute path of the store that a setting selects.

    Args:
        given: Name of a store, URL, or folder. A path object is always a folder.
        name: Name of the setting, for messages.
        stores: The named stores.

    Raises:
        InvalidInput: The value is invalid.
    """
    if isinstance(given.value, str) and given.value in stores:
        return stores[given.value].url
    return _store_url(given, name)


def is_store_name(text: str) -> bool:
    """Return whether a text can be the name of a store: it is neither a URL nor a path with a slash."""
    return _NAME.fullmatch(text) is not None


def possible_name(given: Any, stores: Mapping[str, NamedStore]) -> str | None:
    """Return a value for a store if it may be the name of a store in the catalog.

    Returns:
        None if the value is a URL, a path, or the name of a store in the configuration file. Names in the file take
        precedence, because only the file has the settings to reach a server.
    """
    return given if isinstance(given, str) and given not in stores and is_store_name(given) else None


def access_of(url: str, stores: Mapping[str, NamedStore]) -> S3Access:
    """Return the access of the named store that contains a URL.

    Returns:
        The access of the store with the longest URL that is equal to `url`, or a folder above it. S3Access() if
        there is no such store.
    """
    url = _without_trailing_slash(url)
    above = [store for store in stores.values() if url == store.url or url.startswith(f"{store.url}/")]
    return max(above, key=lambda store: len(store.url)).access if above else S3Access()


def _named_store(name: str, table: Mapping[str, Any], file: Path) -> NamedStore:
    if not _NAME.fullmatch(name):
        hint = (
            "a name may have letters, digits, '_', '-' and '.', so that it cannot be mistaken for a folder or URL"
        )
        raise InvalidInput(f"not a name for a store in {file}: {name!r}", hint=hint)
    prefix = f"stores.{name}."
    check_keys(table, _KEYS, file, prefix)
    if "url" not in table:
        raise InvalidInput(
            f"stores.{name} in {file} has no url", hint='write url = "s3://BUCKET/PREFIX", or a folder'
        )
    given = {key: GivenValue(value, f"file {file}: {prefix}{key}", file.parent) for key, value in table.items()}
    url = _store_url(given.pop("url"), "url")
    if given and not url.startswith("s3://"):
        key, option = next(iter(given.items()))
        raise InvalidInput(f"{key} ({option.origin}) is for stores at s3:// only", hint="remove it, or change url")
    return NamedStore(name, url, _access(given))


def _access(given: Mapping[str, GivenValue]) -> S3Access:
    return S3Access(
        endpoint_url=_endpoint_url(given["endpoint_url"]) if "endpoint_url" in given else None,
        region=text_of(given["region"], "region") if "region" in given else None,
        profile=text_of(given["profile"], "profile") if "profile" in given else None,
        addressing=_addressing(given["addressing"]) if "addressing" in given else "auto",
    )


def _endpoint_url(given: GivenValue) -> str:
    text = text_of(given, "endpoint_url")
    if not _ENDPOINT.fullmatch(text):
        hint = "write https://HOST or https://HOST:PORT; credentials belong in AWS' own configuration"
        raise InvalidInput(f"endpoint_url ({given.origin}) is not the URL of a server", hint=hint)
    return text.rstrip("/")


def _addressing(given: GivenValue) -> Addressing:
    text = text_of(given, "addressing")
    for word in _ADDRESSINGS:
        if text == word:
            return word
    raise InvalidInput(f"addressing ({given.origin}) must be one of {', '.join(_ADDRESSINGS)}, not {text!r}")


def _store_url(given: GivenValue, name: str) -> str:
    """Return an s3:// URL without slashes around its prefix, any other URL unchanged, or an absolute path."""
    text = text_of(given, name)
    if re.match(r"\s*s3:", text, re.IGNORECASE):
        return _s3_url(text, f"{name} ({given.origin})")
    if "://" not in text:
        return str(absolute_path(given, name))
    if _USER_INFORMATION.match(text):
        hint = "remove the part before the @"
        raise InvalidInput(f"{name} ({given.origin}) contains a user or password", hint=hint)
    return text


def _s3_url(text: str, label: str) -> str:
    url = _S3_URL.fullmatch(text)
    if url is None:
        hint = "no user, password or query: credentials belong in AWS' own configuration, options in [stores.NAME]"
        raise InvalidInput(f"{label} is not s3://BUCKET or s3://BUCKET/PREFIX", hint=hint)
    return _without_trailing_slash(f"s3://{url[1]}/{url[2] or ''}")


def _without_trailing_slash(url: str) -> str:
    """Return an s3:// URL without slashes at its end, and any other text unchanged."""
    return f"s3://{url[5:].rstrip('/')}" if is_s3(url) else url


def _comparable(url: str) -> str:
    """Return a text that is equal for equal stores: file:///srv/chunks/ and /srv/chunks are the same folder."""
    folder = _FILE_URL.fullmatch(url)
    return os.path.normpath(unquote(folder[1])) if folder else url
