"""Which kind of store a URL or path means. Each is imported only when asked for."""

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote_to_bytes, urlsplit

from cafcat.errors import InvalidInput, Unsupported
from cafcat.remote.access import S3Access
from cafcat.stores.base import READ_REQUESTS, Store

if TYPE_CHECKING:
    from cafcat.stores.s3.server_checks import ServerChecks

__all__ = ["UPLOAD_MEMORY", "open_store"]

UPLOAD_MEMORY = 256_000_000
"""Bytes that the parts of one chunk may take on their way to a store over the network."""

_DEFAULT_ACCESS = S3Access()
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):(?=/)")


def open_store(
    url_or_path: str,
    access: S3Access = _DEFAULT_ACCESS,
    upload_memory: int = UPLOAD_MEMORY,
    *,
    read_requests: int = READ_REQUESTS,
    private_folder: Path | None = None,
    checks: "Callable[[str], ServerChecks] | None" = None,
) -> Store:
    """Return the store at "file:///srv/chunks", "s3://bucket/prefix" or a plain path, without looking at the store.

    Args:
        url_or_path: Where the store is.
        access: How an S3 server is reached.
        upload_memory: For the parts of one upload to an S3 server, in bytes.
        read_requests: Most requests to an S3 server that are in flight while files are read.
        private_folder: If the store is this folder, it is closed to other users.
        checks: Gives what the S3 server of a store URL is known to lack; by default, nothing is known.

    Raises:
        Unsupported: The URL has another scheme.
        InvalidInput: Not a URL or path.
    """
    if not url_or_path or "\0" in url_or_path:
        raise InvalidInput(f"not a store: {url_or_path!r}", hint="give a folder, or a URL as file:///folder")
    scheme = _SCHEME.match(url_or_path)
    if scheme is None or scheme[1].lower() == "file":
        from cafcat.stores.local.store import LocalStore

        folder = Path(url_or_path) if scheme is None else _path_of(url_or_path)
        is_private = private_folder is not None and os.path.abspath(folder) == os.path.abspath(private_folder)
        return LocalStore(folder, is_private=is_private)
    if scheme[1].lower() == "s3":
        from cafcat.stores.s3.store import S3Store

        known = () if checks is None else (checks,)
        return S3Store(url_or_path, access, upload_memory, *known, reads_in_flight=read_requests)
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
