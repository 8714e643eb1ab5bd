"""Stores that `cafcat.toml` has names for, and how each is reached.

Identity is a matter of AWS' own configuration: no key here holds a secret, a URL with one in it is refused, and
what is refused as a URL is never shown.
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
# An "@" is refused in the path too: it may be the end of a password with an unescaped "/".
_ENDPOINT = re.compile(r"https?://(?:[\w.-]+|\[[\da-f:.]+\])(?::\d{1,5})?(?:/[^?#@\s]*)?", re.ASCII | re.IGNORECASE)
_USER_INFORMATION = re.compile(r"[^/]*://(?=[^/]*[:@]).*@", re.DOTALL)
_FILE_URL = re.compile(r"file://(?:localhost)?(/.*)", re.DOTALL | re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class NamedStore:
    """A table `[stores.NAME]`. url: as in Settings.store. access: how S3 is reached; S3Access() for others."""

    name: str
    url: str
    access: S3Access


def named_stores(tables: Any, file: Path) -> dict[str, NamedStore]:
    """The stores of the value of `stores` in `file`, by name. Raises InvalidInput, also if two have one URL."""
    if not isinstance(tables, dict) or not all(isinstance(table, dict) for table in tables.values()):
        raise InvalidInput(f"stores in {file} are not tables", hint='write [stores.NAME], and url = "..." below it')
    stores = {name: _named_store(name, table, file) for name, table in tables.items()}
    names: dict[str, str] = {}
    for store in stores.values():
        other = names.setdefault(_place(store.url), store.name)
        if other != store.name:
            hint = "a chunk knows its store by URL: remove one of the names"
            raise InvalidInput(f"stores.{other} and stores.{store.name} in {file} have the same url", hint=hint)
    return stores


def chosen_url(given: GivenValue, name: str, stores: Mapping[str, NamedStore]) -> str:
    """The URL of the store that a setting means: a name of one, a URL, or a folder. A path object is always a
    folder. Raises InvalidInput."""
    if isinstance(given.value, str) and given.value in stores:
        return stores[given.value].url
    return _store_url(given, name)


def is_store_name(text: str) -> bool:
    """Return whether a text can be the name of a store: it is no URL, and no path with a slash."""
    return _NAME.fullmatch(text) is not None


def possible_name(given: Any, stores: Mapping[str, NamedStore]) -> str | None:
    """Return what was given for a store if a store in the catalog may have this name; None if it is a URL, a path,
    or a name in the configuration. The configuration wins: only there it is written how a server is reached."""
    return given if isinstance(given, str) and given not in stores and is_store_name(given) else None


def access_of(url: str, stores: Mapping[str, NamedStore]) -> S3Access:
    """That of the store whose URL has the most of the path parts that `url` begins with; S3Access() if none."""
    url = _without_end(url)
    above = [store for store in stores.values() if url == store.url or url.startswith(f"{store.url}/")]
    return max(above, key=lambda store: len(store.url)).access if above else S3Access()


def _named_store(name: str, table: Mapping[str, Any], file: Path) -> NamedStore:
    if not _NAME.fullmatch(name):
        hint = "a name has letters, digits, '_', '-' and '.', so that it is never taken for a folder or URL"
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
    """An s3:// URL without slashes around its prefix, another URL as it is, or an absolute path."""
    text = text_of(given, name)
    if re.match(r"\s*s3:", text, re.IGNORECASE):
        return _s3_url(text, f"{name} ({given.origin})")
    if "://" not in text:
        return str(absolute_path(given, name))
    if _USER_INFORMATION.match(text):
        hint = "remove what stands before the @"
        raise InvalidInput(f"{name} ({given.origin}) has a user or password in it", hint=hint)
    return text


def _s3_url(text: str, what: str) -> str:
    url = _S3_URL.fullmatch(text)
    if url is None:
        hint = "no user, password or query: credentials belong in AWS' own configuration, options in [stores.NAME]"
        raise InvalidInput(f"{what} is not s3://BUCKET or s3://BUCKET/PREFIX", hint=hint)
    return _without_end(f"s3://{url[1]}/{url[2] or ''}")


def _without_end(url: str) -> str:
    """An s3:// URL as it is compared; anything else as it is."""
    return f"s3://{url[5:].rstrip('/')}" if is_s3(url) else url


def _place(url: str) -> str:
    """The same text for the same store: file:///srv/chunks/ and /srv/chunks are one folder."""
    folder = _FILE_URL.fullmatch(url)
    return os.path.normpath(unquote(folder[1])) if folder else url
