"""S3 buckets as a kind of store."""

import re
from collections.abc import Callable, Mapping
from typing import Final, get_args

from cafcat.errors import InvalidInput
from cafcat.remote.access import Addressing, S3Access
from cafcat.remote.address import parse_s3
from cafcat.stores.base import Store
from cafcat.stores.kind import ArchiveObject, ObjectAddress, ObjectInFolder, StoreContext, StoreKind
from cafcat.support.read_ahead import LocatedReadAhead

__all__ = ["S3"]

_BUCKET: Final = r"[A-Za-z0-9][A-Za-z0-9._-]*"
_S3_URL: Final = re.compile(rf"s3://({_BUCKET})(?:/+([^?#\x00-\x1f\x7f\ud800-\udfff]*))?", re.IGNORECASE)
# An "@" in the path is refused, too: it may end a password with an unescaped "/".
_ENDPOINT: Final = re.compile(
    r"https?://(?:[\w.-]+|\[[\da-f:.]+\])(?::\d{1,5})?(?:/[^?#@\s]*)?", re.ASCII | re.IGNORECASE
)
_ADDRESSINGS: Final[tuple[Addressing, ...]] = get_args(Addressing)


def _endpoint_url(text: str) -> str:
    if not _ENDPOINT.fullmatch(text):
        hint = "write https://HOST or https://HOST:PORT; credentials belong in AWS' own configuration"
        raise InvalidInput("is not the URL of a server", hint=hint)
    return text.rstrip("/")


def _addressing(text: str) -> str:
    if text not in _ADDRESSINGS:
        raise InvalidInput(f"must be one of {', '.join(_ADDRESSINGS)}, not {text!r}")
    return text


class _S3Kind(StoreKind):
    """The kind of store whose objects are in an S3 bucket, or below a prefix of a bucket (s3:// URLs)."""

    options: Mapping[str, Callable[[str], str]] = {
        "endpoint_url": _endpoint_url,
        "region": str,
        "profile": str,
        "addressing": _addressing,
    }

    def open(self, url: str, context: StoreContext) -> Store:
        """Return the store at "s3://bucket" or "s3://bucket/prefix". This sends no request.

        Raises:
            InvalidInput: This is not the URL of a bucket, `check_key` refuses the prefix, or the memory for uploads
                is too small.
        """
        from cafcat.stores.s3.store import S3Store

        access = S3Access.of(context.options)
        return S3Store(url, access, context.upload_memory, context, reads_in_flight=context.read_requests)

    def normal_url(self, text: str) -> str:
        """Return the URL of a bucket or prefix without slashes around the prefix.

        Raises:
            InvalidInput: This is not the URL of a bucket or prefix.
        """
        match = _S3_URL.fullmatch(text)
        if match is None:
            hint = "a URL holds no password or query: set credentials with AWS' own tools, options in [stores.NAME]"
            raise InvalidInput("is not s3://BUCKET or s3://BUCKET/PREFIX", hint=hint)
        return f"s3://{match[1]}/{match[2] or ''}".rstrip("/")

    def address(self, url: str) -> ObjectAddress:
        """Split the URL of an object into the URL of its folder and the part of its key after the last slash.

        A URL that ends in "/" is that of a folder, even if an object has this key: S3 consoles create empty objects
        with such keys. Keys may begin with a slash, or have several in a row.

        Raises:
            InvalidInput: This is not the URL of a bucket or object.
        """
        bucket, whole_key = parse_s3(url)
        folder, _, key = whole_key.rpartition("/")
        store_url = f"s3://{bucket}/{folder}".rstrip("/")
        return ObjectAddress(f"s3://{bucket}/{whole_key}" if key else store_url, store_url, key)

    def open_object(self, address: ObjectAddress, context: StoreContext) -> ObjectInFolder:
        """Open the current version of an object to read it in parts. Any key is allowed.

        If the object is replaced later, and the server shows entity tags, reading it raises Conflict.

        Raises:
            NotFound: There is no such object or bucket.
            AccessDenied, StoreFailed: The server refuses or fails.
        """
        from cafcat.remote.connection import S3Connection
        from cafcat.remote.reading import RemoteObject

        bucket, key = parse_s3(address.name)
        connection = S3Connection(bucket, S3Access.of(context.options))
        head = RemoteObject(connection, key).head()
        content = RemoteObject(connection, key, head.etag)
        found = ArchiveObject(content, head.size_bytes, self, address, context)
        return LocatedReadAhead(found)


S3: Final = _S3Kind()
