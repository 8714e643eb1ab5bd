"""Makes URLs of archives, and signed URLs, which give access to one file for a limited time."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cafcat.errors import InvalidInput
from cafcat.model import Location
from cafcat.stores.base import HttpStore, PresigningStore, Store

__all__ = ["SignedUrl", "curl_options", "signed_url", "url_of"]


@dataclass(frozen=True, slots=True)
class SignedUrl:
    """A URL that gives access to the bytes of one file, without credentials, until the URL expires.

    Attributes:
        url: The URL. It is a secret: whoever has it can read the file.
        headers: HTTP headers that must be sent with the request.
        start_byte: First byte of the archive that the URL returns.
        end_byte: One past the last byte of the archive that the URL returns.
        expires_at: When the URL expires: ISO 8601, UTC.
    """

    url: str = field(repr=False)
    headers: Mapping[str, str]
    start_byte: int
    end_byte: int
    expires_at: str


def url_of(store: Store, location: Location) -> str:
    """Return the URL of the archive that contains a file. The URL contains no credentials.

    Args:
        store: The store of the archive.
        location: Where the file is.

    Returns:
        http:// or https:// for a bucket, file:// for a folder, else a URL of the store's own scheme.
    """
    if isinstance(store, HttpStore):
        return store.http_url(location.object_key)
    located = store.locate(location.object_key)
    return Path(located).as_uri() if located.startswith("/") else located


def signed_url(store: Store, location: Location, seconds: int) -> SignedUrl:
    """Return a URL for the bytes of one file and no other bytes of its archive.

    A request must have the headers of the result, because the signature covers the range of bytes.

    Args:
        store: The store of the archive that contains the file.
        location: Where the file is.
        seconds: How long the URL is valid, from 1 second to 7 days.

    Raises:
        InvalidInput: The store cannot sign URLs (a folder cannot); the file is empty, or has to be decoded; or
            `seconds` is out of range.
        AccessDenied: There are no credentials.
    """
    start, end = location.start_byte, location.end_byte
    if not isinstance(store, PresigningStore):
        hint = "copy the chunks to a bucket of S3 (cafcat copy), or use cafcat get, which writes the file to disk"
        raise InvalidInput(f"the store {store.url} cannot sign URLs", path=location.path, hint=hint)
    if location.decoding is not None:
        message = f"the file has to be decoded ({location.format}): no URL gives its bytes"
        raise InvalidInput(message, path=location.path, hint="use cafcat get, which writes the file to disk")
    if start == end:
        raise InvalidInput("an empty file cannot have a signed URL: HTTP has no empty ranges", path=location.path)
    # The time is read before the URL is signed, so that the URL is never valid for less.
    expires = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=seconds)
    signed = store.presign(location.object_key, start, end, seconds)
    return SignedUrl(signed.url, signed.headers, start, end, expires.isoformat().replace("+00:00", "Z"))


def curl_options(store: Store) -> str:
    """Return the options that curl needs to read URLs of this store, as text for a shell; "" if none are needed.

    The options name environment variables with credentials, and contain no secrets.
    """
    return store.curl_options if isinstance(store, HttpStore) else ""
