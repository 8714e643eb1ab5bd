"""What HTTP says about a file: entity tag, times, type and digest; and the conditions of a request."""

import base64
import struct
import time
from collections.abc import Mapping
from email.utils import formatdate, parsedate_to_datetime
from functools import lru_cache
from mimetypes import MimeTypes
from typing import Final
from urllib.parse import quote

from cafcat.model import Location
from cafcat.serve.asgi import Headers

__all__ = ["describing_headers", "etag_of", "is_range_wanted", "modified_of", "precondition", "type_of"]

_NO_TYPE: Final = b"application/octet-stream"
_TYPES: Final = MimeTypes()
"""Types by suffix, from Python's own tables: the files of the machine do not matter, so all servers agree."""
# The first table has unofficial types, such as image/jpg, which the registered types of the second one replace.
_BY_SUFFIX: Final = {suffix: kind.encode() for table in _TYPES.types_map for suffix, kind in table.items()}
_BY_SUFFIX.update({".gz": b"application/gzip", ".bz2": b"application/x-bzip2", ".xz": b"application/x-xz"})
_BY_SUFFIX.update({".zst": b"application/zstd", ".br": _NO_TYPE, ".z": b"application/x-compress"})
_ACTIVE: Final = frozenset((b"text/html", b"image/svg+xml", b"text/xml", b"application/xml"))
"""Types that a browser shows as a page that may have scripts."""
_SANDBOX: Final = b"sandbox allow-scripts allow-popups allow-modals allow-downloads"
"""An archived page may run scripts, but as a page of another site: it must not act for visitors of the console."""
_CRC: Final = struct.Struct(">I")
_LATEST_SECOND: Final = 253_402_300_799
"""The last second of the year 9999, since 1970: HTTP has four digits for a year."""


def type_of(path: str) -> bytes:
    """Return the media type of a file by the suffix of its name."""
    dot = path.rfind(".")
    return _NO_TYPE if dot < 0 else _BY_SUFFIX.get(path[dot:].lower(), _NO_TYPE)


def etag_of(location: Location) -> bytes:
    """Return the strong entity tag of a file: chunk, span and CRC-32C, in hexadecimal digits and quotes.

    The bytes of a chunk never change, so a tag never stands for two contents. `cafcat repack` moves a file into
    another chunk, and so changes its tag.
    """
    chunk, start, end, crc = location.chunk.hex, location.start_byte, location.end_byte, location.crc32c
    return f'"{chunk}-{start:x}-{end:x}-{crc:08x}"'.encode()


def modified_of(location: Location) -> int | None:
    """Return the modification time in seconds since 1970, as HTTP can show it; None if there is none.

    A time in the future is shown as now: HTTP allows no other.
    """
    if location.modified_ns is None:
        return None
    seconds = location.modified_ns // 1_000_000_000
    return min(seconds, int(time.time())) if 0 <= seconds <= _LATEST_SECOND else None


@lru_cache(maxsize=4096)
def _http_date(seconds: int) -> bytes:
    return formatdate(seconds, usegmt=True).encode()


def describing_headers(location: Location, *, download: bool = False) -> Headers:
    """Return the headers that describe a whole file, without those of its body.

    Args:
        location: Where the file is.
        download: True to make browsers save the file.
    """
    digest = base64.b64encode(_CRC.pack(location.crc32c))
    headers: Headers = [
        (b"etag", etag_of(location)),
        (b"accept-ranges", b"bytes"),
        (b"x-content-type-options", b"nosniff"),
        (b"repr-digest", b"crc32c=:" + digest + b":"),
    ]
    if type_of(location.path) in _ACTIVE:
        headers.append((b"content-security-policy", _SANDBOX))
    modified = modified_of(location)
    if modified is not None:
        headers.append((b"last-modified", _http_date(modified)))
    if download:
        headers.append((b"content-disposition", _attachment(location.path)))
    return headers


def _attachment(path: str) -> bytes:
    """Return a Content-Disposition with the last part of a path: plain for old clients, and encoded (RFC 6266)."""
    name = path.rsplit("/", 1)[-1]
    plain = "".join(c if c.isascii() and c.isprintable() and c not in '"\\%' else "_" for c in name)
    return f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(name, safe='')}".encode()


def precondition(headers: Mapping[bytes, bytes], location: Location) -> int | None:
    """Return the status with which the conditions of a GET or HEAD end it: 304 or 412; None if they do not.

    The order of the conditions is that of RFC 9110, 13.2.2.

    Args:
        headers: Headers of the request, by their names in lower case.
        location: Where the file is.
    """
    etag, modified = etag_of(location), modified_of(location)
    if b"if-match" in headers:
        if not _matches(headers[b"if-match"], etag, weak=False):
            return 412
    elif b"if-unmodified-since" in headers:
        limit = _seconds(headers[b"if-unmodified-since"])
        if limit is not None and modified is not None and modified > limit:
            return 412
    if b"if-none-match" in headers:
        return 304 if _matches(headers[b"if-none-match"], etag, weak=True) else None
    since = _seconds(headers.get(b"if-modified-since", b""))
    return 304 if since is not None and modified is not None and modified <= since else None


def is_range_wanted(headers: Mapping[bytes, bytes], location: Location) -> bool:
    """Return False if the file has changed since the time or tag of If-Range, so that the whole file is sent."""
    condition = headers.get(b"if-range")
    if condition is None:
        return True
    if condition.startswith((b'"', b"W/")):
        return condition.strip() == etag_of(location)
    return modified_of(location) is not None and _seconds(condition) == modified_of(location)


def _matches(header: bytes, etag: bytes, *, weak: bool) -> bool:
    """Return True if a list of entity tags has this one. Only a weak comparison accepts weak tags."""
    if header.strip() == b"*":
        return True
    tags = (tag.strip() for tag in header.split(b","))
    return any((tag.removeprefix(b"W/") if weak else tag) == etag for tag in tags)


def _seconds(header: bytes) -> int | None:
    """Return a date of HTTP in seconds since 1970; None if it is not a date."""
    if not header:
        return None
    try:
        return int(parsedate_to_datetime(header.decode("latin-1")).timestamp())
    except (ValueError, OverflowError, TypeError, IndexError):
        return None
