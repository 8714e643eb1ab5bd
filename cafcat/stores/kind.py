"""Kinds of stores: how a store is opened, by the scheme of its URL."""

import re
from collections.abc import Callable, Collection, Mapping
from typing import Final, NamedTuple, Protocol

from cafcat.errors import InvalidInput
from cafcat.stores.base import READ_REQUESTS, Store, StoredFolder, StoredObject

__all__ = [
    "UPLOAD_MEMORY",
    "ArchiveObject",
    "ObjectAddress",
    "ObjectInFolder",
    "StoreContext",
    "StoreKind",
    "Verdicts",
]

UPLOAD_MEMORY: Final = 256_000_000
"""Default memory for the parts of one upload to a remote store, in bytes."""

_URL: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^?#\x00-\x1f\x7f\ud800-\udfff]*)")


class Verdicts(Protocol):
    """Remembers which checks the servers of stores failed. With a catalog, later processes get them, too."""

    def failed(self, store_url: str) -> Collection[str]:
        """Return the names of the checks that the server of a store has failed, in this or an earlier process."""

    def remember(self, store_url: str, check: str) -> bool:
        """Remember that the server of a store failed a check.

        Returns:
            False if a process remembered this failed check of the store before; else True.
        """


class StoreContext(NamedTuple):
    """Values that cafcat passes to a StoreKind when a store is opened.

    Attributes:
        options: Values of the store's table [stores.NAME] in cafcat.toml, without `url`, as the functions in
            `StoreKind.options` returned them.
        upload_memory: Memory for the parts of one upload to a remote store, in bytes.
        read_requests: Most requests to a remote store that are in flight while files are read.
        private_folder: Path of a folder. A store in this folder itself must be closed to other users. None: the
            umask decides for all stores.
        verdicts: Remembers failed checks of servers in the catalog. None: they are forgotten when this process
            ends.
        warn: Called with a message about each check that a server newly fails. None: the message is logged.
    """

    options: Mapping[str, str] = {}
    upload_memory: int = UPLOAD_MEMORY
    read_requests: int = READ_REQUESTS
    private_folder: str | None = None
    verdicts: Verdicts | None = None
    warn: Callable[[str], object] | None = None


class ObjectAddress(NamedTuple):
    """The path or URL of an object or folder, split into the URL of a store and a key in this store.

    Attributes:
        name: The whole absolute path or URL.
        store_url: URL of the folder that the object is in, or of the given folder. It can be opened as a store.
        key: Name of the object in that folder, its key in the store; "" if the path or URL is that of a folder.
    """

    name: str
    store_url: str
    key: str


class RangeReader(Protocol):
    """An object whose bytes can be read in any order, range by range."""

    def read_at(self, start_byte: int, end_byte: int) -> bytes:
        """Return exactly the bytes `[start_byte, end_byte)`. Raises Corrupt if the object ends before end_byte."""


class ObjectInFolder(RangeReader, Protocol):
    """An object that is read in parts, and the folder that it is in."""

    @property
    def name(self) -> str:
        """Path or URL of the object, for messages."""

    @property
    def size_bytes(self) -> int:
        """Size of the object in bytes."""

    def parent_folder(self) -> "StoredFolder":
        """Return the folder that the object is in."""


class StoreKind:
    """How cafcat opens the stores of one URL scheme.

    To add a kind: subclass this, override `open`, and register an instance under its scheme. Built-in kinds are
    registered in `cafcat/stores/registry.py`, third-party kinds as entry points of the group `cafcat.stores`. The
    other methods have defaults that suit URLs of the form SCHEME://NAME/FOLDER.
    """

    options: Mapping[str, Callable[[str], str]] = {}
    """Keys that a table [stores.NAME] in cafcat.toml may have beside `url`, each with a function that checks the
    value. The function returns the value in its normal form, or raises InvalidInput with a message that continues
    "KEY ..."."""

    def open(self, url: str, context: StoreContext) -> Store:
        """Return the store at a URL. This sends no request, and creates nothing.

        Raises:
            InvalidInput: The URL is not valid.
        """
        raise NotImplementedError

    def normal_url(self, text: str) -> str:
        """Return the normal form of a store's URL, in which the settings have it.

        By default, the scheme is in lower case, and slashes at the end are removed.

        Raises:
            InvalidInput: This is not the URL of a store. The message continues "url ..." and shows nothing of the
                text, which may contain a password.
        """
        match = _URL.fullmatch(text)
        if match is None:
            raise InvalidInput("is not a URL of the form SCHEME://NAME/FOLDER")
        return f"{match[1].lower()}://{match[2].rstrip('/')}"

    def same_store_key(self, url: str) -> str:
        """Return a text by which settings recognize two URLs in normal form that name the same store.

        It is equal for both. By default, it is the URL itself.
        """
        return url

    def address(self, url: str) -> ObjectAddress:
        """Split the URL of an object into the URL of its folder and its key in that folder.

        The key is the part after the last slash. A URL that ends in "/", or has nothing after the name of the
        store, is that of a folder: the key is "".

        Raises:
            InvalidInput: The URL is not valid.
        """
        scheme, _, path = url.partition("://")
        folder, slash, key = path.rpartition("/") if "/" in path else (path, "", "")
        store_url = f"{scheme.lower()}://{folder}"
        return ObjectAddress(f"{store_url}{slash}{key}" if key else store_url, store_url, key)

    def open_object(self, address: ObjectAddress, context: StoreContext) -> ObjectInFolder:
        """Open one object to read it, whether or not cafcat wrote it.

        Args:
            address: Where the object is.
            context: Values that the settings provide for the URL `address.name`.

        Raises:
            NotFound: There is no such object.
            InvalidInput, AccessDenied, StoreFailed: The object cannot be read.
        """
        return StoredObject(self.open(address.store_url, context), address.key)


class ArchiveObject:
    """An object that is read without opening a store, and the folder that it is in: an ObjectInFolder."""

    def __init__(
        self, content: RangeReader, size_bytes: int, kind: StoreKind, address: ObjectAddress, context: StoreContext
    ) -> None:
        """Describe an object. This reads nothing.

        Args:
            content: Reads the bytes of the object.
            size_bytes: Size in bytes.
            kind: Opens the folder that the object is in, when `parent_folder` is called.
            address: Where the object is.
            context: Values that the settings provide, with which the folder is opened.
        """
        self.name = address.name
        self.size_bytes = size_bytes
        self.read_at = content.read_at
        self._kind = kind
        self._address = address
        self._context = context

    def parent_folder(self) -> "StoredFolder":
        """Return the folder that the object is in."""
        return StoredFolder(self._kind.open(self._address.store_url, self._context))
