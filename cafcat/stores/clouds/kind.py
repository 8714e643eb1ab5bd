"""Buckets of Google Cloud Storage and containers of Azure Blob Storage as kinds of stores."""

import re
from collections.abc import Callable, Mapping
from typing import Final

from cafcat.errors import InvalidInput
from cafcat.remote.address import parse_bucket
from cafcat.remote.clouds.access import ANONYMOUS
from cafcat.stores.base import Store
from cafcat.stores.kind import ArchiveObject, ObjectAddress, ObjectInFolder, StoreContext, StoreKind
from cafcat.support.read_ahead import LocatedReadAhead

__all__ = ["AZURE", "GOOGLE"]

# An "@" in the path is refused, too: it may end a password with an unescaped "/".
_ENDPOINT: Final = re.compile(
    r"https?://(?:[\w.-]+|\[[\da-f:.]+\])(?::\d{1,5})?(?:/[^?#@\s]*)?", re.ASCII | re.IGNORECASE
)
_ACCOUNT: Final = re.compile(r"[a-z0-9]{3,24}")
_UNPRINTABLE: Final = re.compile(r"[?#\x00-\x1f\x7f\ud800-\udfff]")


def _endpoint_url(text: str) -> str:
    if not _ENDPOINT.fullmatch(text):
        hint = "write https://HOST or https://HOST:PORT; credentials belong in the environment: docs/clouds.md"
        raise InvalidInput("is not the URL of a server", hint=hint)
    return text.rstrip("/")


def _account(text: str) -> str:
    if not _ACCOUNT.fullmatch(text):
        raise InvalidInput("is not the name of a storage account: 3 to 24 lower-case letters and digits")
    return text


def _anonymous(text: str) -> str:
    if text not in ANONYMOUS:
        raise InvalidInput(f"must be one of {', '.join(ANONYMOUS)}, not {text!r}")
    return text


class _CloudKind(StoreKind):
    """The kind of store whose objects are in a bucket or container, or below a prefix of it."""

    def __init__(self, scheme: str, options: Mapping[str, Callable[[str], str]]) -> None:
        self._scheme = scheme
        self.options = options

    def open(self, url: str, context: StoreContext) -> Store:
        """Return the store at "gs://bucket/prefix" or "az://container/prefix". This sends no request.

        Raises:
            InvalidInput: This is not the URL of a bucket or container, `check_key` refuses the prefix, the memory
                for uploads is too small, or the storage account is not named.
        """
        from cafcat.stores.clouds.store import AzureStore, GoogleStore

        address = parse_bucket(url)
        return GoogleStore(address, context) if self._scheme == "gs" else AzureStore(address, context)

    def normal_url(self, text: str) -> str:
        """Return the URL of a bucket, container or prefix without slashes around the prefix.

        Raises:
            InvalidInput: This is not such a URL.
        """
        try:
            address = parse_bucket(text)
        except InvalidInput:
            address = None
        if address is None or _UNPRINTABLE.search(address.key):
            what = "BUCKET" if self._scheme == "gs" else "CONTAINER"
            hint = (
                "a name has at least 3 small letters, digits and -, in Google Cloud Storage also _ and .; a URL "
                "holds no account, password or query: docs/clouds.md has the options of [stores.NAME]"
            )
            raise InvalidInput(f"is not {self._scheme}://{what} or {self._scheme}://{what}/PREFIX", hint=hint)
        return f"{address.url}/{address.key.lstrip('/')}".rstrip("/")

    def address(self, url: str) -> ObjectAddress:
        """Split the URL of an object into the URL of its folder and the part of its key after the last slash.

        A URL that ends in "/" is that of a folder, even if an object has this key. Keys may begin with a slash, or
        have several in a row.

        Raises:
            InvalidInput: This is not the URL of a bucket, container or object.
        """
        whole = parse_bucket(url)
        folder, _, key = whole.key.rpartition("/")
        store_url = f"{whole.url}/{folder}".rstrip("/")
        return ObjectAddress(f"{whole.url}/{whole.key}" if key else store_url, store_url, key)

    def open_object(self, address: ObjectAddress, context: StoreContext) -> ObjectInFolder:
        """Open the current version of an object to read it in parts. Any key is allowed.

        If the object is replaced later, reading it raises Conflict.

        Raises:
            NotFound: There is no such object, bucket or container.
            AccessDenied, StoreFailed: The server refuses or fails.
        """
        from cafcat.remote.clouds.connection import connect
        from cafcat.remote.reading import RemoteObject

        whole = parse_bucket(address.name)
        connection = connect(whole, context.options)
        head = connection.head(whole.key, None)
        content = RemoteObject(connection, whole.key, head.etag)
        return LocatedReadAhead(ArchiveObject(content, head.size_bytes, self, address, context))


GOOGLE: Final = _CloudKind("gs", {"endpoint_url": _endpoint_url, "anonymous": _anonymous})
AZURE: Final = _CloudKind("az", {"endpoint_url": _endpoint_url, "account": _account, "anonymous": _anonymous})
