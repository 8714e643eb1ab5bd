"""Files by URL: those of their archives, and signed ones that give anybody exactly one file for a while."""

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
    """A URL that needs no credentials, the headers that have to be sent with it, the bytes `[start_byte, end_byte)`
    of the archive that it gives, and when it ends: RFC 3339 in UTC."""

    url: str = field(repr=False)
    headers: Mapping[str, str]
    start_byte: int
    end_byte: int
    expires_at: str


def url_of(store: Store, location: Location) -> str:
    """Return the URL of the archive that holds a file: http(s)://, file://, or that of the kind of store.

    The URL itself gives no access: whoever reads it may need credentials.
    """
    if isinstance(store, HttpStore):
        return store.http_url(location.object_key)
    located = store.locate(location.object_key)
    return Path(located).as_uri() if located.startswith("/") else located


def signed_url(store: Store, location: Location, seconds: int) -> SignedUrl:
    """A URL for the bytes of one file, and no others of its archive: the signature covers the range. Raises
    InvalidInput for a store that is a folder, an empty file, more than 7 days, and AccessDenied without
    credentials."""
    start, end = location.start_byte, location.end_byte
    if not isinstance(store, PresigningStore):
        hint = "cafcat get copies the file"
        raise InvalidInput(f"the store {store.url} cannot sign URLs", path=location.path, hint=hint)
    if location.decoding is not None:
        message = f"the file has to be decoded ({location.format}): no URL gives its bytes"
        raise InvalidInput(message, path=location.path, hint="cafcat get copies the file")
    if start == end:
        raise InvalidInput("the file is empty, and HTTP has no range of no bytes", path=location.path)
    # Taken before it is signed: it never ends earlier than said.
    expires = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=seconds)
    signed = store.presign(location.object_key, start, end, seconds)
    return SignedUrl(signed.url, signed.headers, start, end, expires.isoformat().replace("+00:00", "Z"))


def curl_options(store: Store) -> str:
    """Return the options that curl needs to read `url_of`; "" if none are needed."""
    return store.curl_options if isinstance(store, HttpStore) else ""
