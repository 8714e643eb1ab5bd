"""Which kind of store a URL or path means. Each is imported only when asked for."""

import os
import re
from pathlib import Path
from urllib.parse import unquote_to_bytes, urlsplit

from cafcat.errors import InvalidInput, Unsupported
from cafcat.remote.access import S3Access
from cafcat.stores.base import Store

__all__ = ["UPLOAD_MEMORY", "open_store"]

UPLOAD_MEMORY = 256_000_000
"""Bytes that the parts of one chunk may take on their way to a store over the network."""

_DEFAULT_ACCESS = S3Access()
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):(?=/)")


def open_store(url_or_path: str, access: S3Access = _DEFAULT_ACCESS, upload_memory: int = UPLOAD_MEMORY) -> Store:
    """The store at "file:///srv/chunks", "s3://bucket/prefix" or a plain path; nothing is created or looked at
    yet. access and upload_memory (bytes) are for stores over the network.

    Raises Unsupported for other schemes, InvalidInput for what is no URL or path.
    """
    if not url_or_path or "\0" in url_or_path:
        raise InvalidInput(f"not a store: {url_or_path!r}", hint="give a folder, or a URL as file:///folder")
    scheme = _SCHEME.match(url_or_path)
    if scheme is None or scheme[1].lower() == "file":
        from cafcat.stores.local import LocalStore

        return LocalStore(Path(url_or_path) if scheme is None else _path_of(url_or_path))
    if scheme[1].lower() == "s3":
        from cafcat.stores.s3 import S3Store

        return S3Store(url_or_path, access, upload_memory)
    hint = "this version has file:// and s3://"
    raise Unsupported(f"no store for {scheme[1]!r}: {url_or_path}", hint=hint)


def _path_of(url: str) -> Path:
    parts = urlsplit(url)
    if parts.netloc not in ("", "localhost") or parts.query or parts.fragment:
        hint = "a file URL is file:///absolute/path, with ? and # as %3F and %23"
        raise InvalidInput(f"not the URL of a folder: {url}", hint=hint)
    path = unquote_to_bytes(parts.path)
    if b"\0" in path:
        raise InvalidInput(f"not the URL of a folder: {url}")
    return Path(os.fsdecode(path))
