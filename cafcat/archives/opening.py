"""An archive by its name: a file of this machine, or an object of a bucket."""

import os
from collections.abc import Callable

from cafcat.errors import InvalidInput
from cafcat.formats.base import RandomReader
from cafcat.read_ahead import ReadAhead
from cafcat.remote.access import S3Access, is_s3

__all__ = ["open_archive"]


def open_archive(where: str | os.PathLike[str], access: Callable[[str], S3Access]) -> RandomReader:
    """The archive at a path or at "s3://bucket/key"; access: how a bucket is reached, by its URL. An object is read
    in the version that is there now: reading another raises Conflict.

    Raises NotFound, InvalidInput, AccessDenied, StoreFailed.
    """
    name = os.fspath(where)
    if is_s3(name):
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
