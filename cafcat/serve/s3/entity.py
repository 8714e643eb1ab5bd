"""The S3 metadata of a packed file: entity tag, time, content type, checksum, version, delete marker."""

import base64
import mimetypes
import posixpath
import re
from datetime import UTC, datetime
from email.utils import formatdate
from functools import lru_cache
from typing import Final
from uuid import UUID

from cafcat.model import Location

__all__ = [
    "content_type",
    "delete_marker_of",
    "entity_tag",
    "http_time",
    "iso_time",
    "modified_seconds",
    "parse_delete_marker",
    "parse_version",
    "shown_checksum",
    "version_of",
]

_LAST_SECOND: Final = 253_402_300_799
"""The end of the year 9999."""
_VERSION: Final = re.compile(r"([0-9a-f]{32})\.([0-9a-f]{1,15})\.([0-9a-f]{1,15})")
_REMOVED: Final = ".removed"
_UNKNOWN_TYPE: Final = "binary/octet-stream"


def entity_tag(location: Location) -> str:
    """Return the entity tag of a file, in quotes.

    It is made of checksum, size and modification time, and stays the same when the file moves into another chunk.
    It has dashes: programs then do not take it for the MD5 checksum of the content.
    """
    time = 0 if location.modified_ns is None else location.modified_ns // 1000
    return f'"{location.crc32c:08x}-{location.size_bytes:x}-{time & 0xFFFFFFFFFFFFFFFF:x}"'


def shown_checksum(location: Location) -> str:
    """Return the CRC-32C of a file in base64."""
    return base64.b64encode(location.crc32c.to_bytes(4, "big")).decode()


def modified_seconds(location: Location) -> int:
    """Return the modification time in seconds since 1970, from 1970 to 9999; 0 if it is unknown."""
    return min(max((location.modified_ns or 0) // 10**9, 0), _LAST_SECOND)


@lru_cache(maxsize=4096)
def http_time(seconds: int) -> str:
    """Return a time, in seconds since 1970, in the form of HTTP headers."""
    return formatdate(seconds, usegmt=True)


def iso_time(seconds: int) -> str:
    """Return a time, in seconds since 1970, in the form of XML documents."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")


def content_type(path: str) -> str:
    """Return the media type that belongs to the suffix of a name."""
    return _type_of(posixpath.splitext(path)[1])


@lru_cache(maxsize=1024)
def _type_of(suffix: str) -> str:
    found, encoding = mimetypes.guess_type(f"file{suffix}")
    return _UNKNOWN_TYPE if found is None or encoding is not None else found


def version_of(location: Location) -> str:
    """Return the name of a version: the chunk and the span of its bytes there."""
    return f"{location.chunk.hex}.{location.start_byte:x}.{location.end_byte:x}"


def parse_version(text: str) -> tuple[UUID, int, int] | None:
    """Return chunk, first byte and one past the last byte of a version; None if the text names no version."""
    found = _VERSION.fullmatch(text)
    return None if found is None else (UUID(found[1]), int(found[2], 16), int(found[3], 16))


def delete_marker_of(location: Location) -> str:
    """Return the name of a delete marker: that of the removed version, and a suffix."""
    return version_of(location) + _REMOVED


def parse_delete_marker(text: str) -> tuple[UUID, int, int] | None:
    """Return the removed version, in parts as `parse_version`; None if the text names no delete marker."""
    return parse_version(text.removesuffix(_REMOVED)) if text.endswith(_REMOVED) else None
