"""Which kind of store a URL or path means. Each is imported only when asked for."""

import os
import re
from pathlib import Path
from urllib.parse import unquote_to_bytes, urlsplit

from cafcat.errors import InvalidInput, Unsupported
from cafcat.stores.base import Store

__all__ = ["open_store"]

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):(?=/)")


def open_store(url_or_path: str) -> Store:
    """The store at "file:///srv/chunks" or at a plain path; nothing is created or looked at yet.

    Raises Unsupported for other schemes, InvalidInput for what is no URL or path.
    """
    if not url_or_path or "\0" in url_or_path:
        raise InvalidInput(f"not a store: {url_or_path!r}", hint="give a folder, or a URL as file:///folder")
    scheme = _SCHEME.match(url_or_path)
    if scheme is not None and scheme[1].lower() != "file":
        raise Unsupported(f"no store for {scheme[1]!r}: {url_or_path}", hint="this version has file://")
    from cafcat.stores.local import LocalStore

    return LocalStore(Path(url_or_path) if scheme is None else _path_of(url_or_path))


def _path_of(url: str) -> Path:
    parts = urlsplit(url)
    if parts.netloc not in ("", "localhost") or parts.query or parts.fragment:
        hint = "a file URL is file:///absolute/path, with ? and # as %3F and %23"
        raise InvalidInput(f"not the URL of a folder: {url}", hint=hint)
    path = unquote_to_bytes(parts.path)
    if b"\0" in path:
        raise InvalidInput(f"not the URL of a folder: {url}")
    return Path(os.fsdecode(path))
