"""An archive by its name: a file of this machine, or an object of a bucket."""

import os
from collections.abc import Callable
from typing import Final, Protocol

from cafcat.errors import InvalidInput
from cafcat.formats.base import RandomReader
from cafcat.remote.access import S3Access

__all__ = ["ReadAhead", "open_archive"]

_FIRST_BYTES: Final = 64 << 10
_MOST_BYTES: Final = 8 << 20
"""A request is answered after some 30 ms, in which a connection carries 2 MB: larger reads are hardly faster."""


def open_archive(where: str | os.PathLike[str], access: Callable[[str], S3Access]) -> RandomReader:
    """The archive at a path or at "s3://bucket/key"; access: how a bucket is reached, by its URL. An object is read
    in the version that is there now: reading another raises Conflict.

    Raises NotFound, InvalidInput, AccessDenied, StoreFailed.
    """
    name = os.fspath(where)
    if name[:5].lower() == "s3://":
        return _remote(name, access)
    from cafcat.stores.local_files import LocalFile

    return LocalFile(os.path.abspath(name))


def _remote(url: str, access: Callable[[str], S3Access]) -> RandomReader:
    from cafcat.remote.address import parse_s3
    from cafcat.remote.connection import S3Connection
    from cafcat.remote.reading import RemoteObject

    bucket, key = parse_s3(url)
    if not key:
        raise InvalidInput("this is a bucket, not an archive in it", hint="write s3://BUCKET/KEY")
    connection = S3Connection(bucket, access(url))
    head = RemoteObject(connection, key).head()
    return ReadAhead(RemoteObject(connection, key, head.etag), head.size_bytes)


class _Object(Protocol):
    name: str

    def read_at(self, start_byte: int, end_byte: int) -> bytes: ...


class ReadAhead:
    """A RandomReader that asks for more than it is asked for: twice as much each time that reads go on where they
    were, up to 8 MiB. That is also what it keeps in memory."""

    def __init__(self, archive: _Object, size_bytes: int) -> None:
        self._archive = archive
        self.name = archive.name
        self.size_bytes = size_bytes
        self._start = 0
        self._data = b""
        self._ahead_bytes = _FIRST_BYTES

    def read_at(self, start_byte: int, end_byte: int) -> bytes:
        """Exactly those bytes; raises Corrupt if the object ends earlier, and what its store raises."""
        known_end = self._start + len(self._data)
        if not self._start <= start_byte <= end_byte <= known_end:
            goes_on = self._start <= start_byte <= known_end + self._ahead_bytes
            self._ahead_bytes = min(2 * self._ahead_bytes, _MOST_BYTES) if goes_on else _FIRST_BYTES
            end = max(end_byte, min(start_byte + self._ahead_bytes, self.size_bytes))
            self._start, self._data = start_byte, b""
            self._data = self._archive.read_at(start_byte, end)
        return self._data[start_byte - self._start : end_byte - self._start]
