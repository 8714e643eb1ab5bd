"""What a store is: immutable objects by key. An object never replaces another."""

from collections.abc import Iterator
from typing import NamedTuple, Protocol

__all__ = ["ObjectInfo", "Store", "StoredObject", "Upload"]


class ObjectInfo(NamedTuple):
    """An object and its size in bytes."""

    key: str
    size_bytes: int


class Upload(Protocol):
    """An object being written. Nobody sees it under its key before commit."""

    def write(self, data: bytes | memoryview) -> None:
        """Appends. Raises StoreFailed; after the first failure every further call fails."""

    def commit(self) -> None:
        """Makes the object durable and gives it its key. When it returns, a power cut cannot take it away.
        Raises Conflict if the key is taken, StoreFailed otherwise."""

    def abort(self) -> None:
        """Removes what was written. Idempotent; does nothing after a commit."""


class Store(Protocol):
    """Where chunks live."""

    @property
    def url(self) -> str:
        """As in `chunks.store`: "file:///srv/chunks"."""

    def create(self, key: str) -> Upload:
        """Begins an object."""

    def read(self, key: str, start_byte: int, end_byte: int) -> bytes:
        """Exactly `[start_byte, end_byte)`, by one request. Raises NotFound, Corrupt if the object ends earlier,
        StoreFailed."""

    def stream(self, key: str, start_byte: int, end_byte: int) -> Iterator[bytes]:
        """The same, by one request, in blocks of at most 1 MiB."""

    def stat(self, key: str) -> ObjectInfo:
        """Raises NotFound."""

    def delete(self, key: str) -> None:
        """Removes an object. No error if it is not there."""

    def list(self) -> Iterator[ObjectInfo]:
        """All objects, in order of key. Uploads under way are not among them."""

    def locate(self, key: str) -> str:
        """Where other programs find the object: an absolute path or a URL."""


class StoredObject:
    """One object of a store as a RandomReader for formats."""

    def __init__(self, store: Store, key: str, name: str | None = None) -> None:
        self._store = store
        self._key = key
        self.name = name or store.locate(key)
        self.size_bytes = store.stat(key).size_bytes

    def read_at(self, start_byte: int, end_byte: int) -> bytes:
        """Exactly those bytes; raises Corrupt if the object ends earlier."""
        return self._store.read(self._key, start_byte, end_byte)
