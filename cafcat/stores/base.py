"""What a store is: immutable objects by key. An object never replaces another."""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple, Protocol, runtime_checkable

from cafcat.errors import NotFound

__all__ = [
    "HEAD_BYTES",
    "READ_REQUESTS",
    "KeepsOpen",
    "ObjectInfo",
    "OpenObject",
    "OpensFiles",
    "Presigned",
    "RemoteStore",
    "Store",
    "StoredFolder",
    "StoredObject",
    "Upload",
    "has",
]


HEAD_BYTES: Final = 4096
"""So many of the first bytes of an object can be written anew."""


READ_REQUESTS: Final = 64
"""Requests to a store over a network that are in flight while files are read, by default. With an answer time of
30 ms that is up to 2,000 answers per second, more than one process can handle."""


class ObjectInfo(NamedTuple):
    """An object and its size in bytes. etag: the entity tag of its version, without quotes; None in listings, and
    where there are none."""

    key: str
    size_bytes: int
    etag: str | None = None


class Upload(Protocol):
    """An object being written. Nobody sees it under its key before commit."""

    def write(self, data: bytes | memoryview) -> None:
        """Appends. Raises StoreFailed; after the first failure every further call fails."""

    def rewrite_head(self, data: bytes) -> None:
        """Puts these bytes, at most HEAD_BYTES, in place of the first ones that were written. Once, after the last
        write, for an object that was begun with `rewrites_head`. Raises as write does."""

    @property
    def upload_id(self) -> str | None:
        """What the store needs beside the key to remove an upload whose writer died; None if nothing."""

    @property
    def etag(self) -> str | None:
        """The entity tag of the committed object, without quotes; None before, and where there are none."""

    def commit(self, crc64nvme: int | None = None) -> None:
        """Makes the object durable and gives it its key. When it returns, a power cut cannot take it away. A store
        that keeps checksums compares its own with the one given.
        Raises Conflict if the key is taken, StoreFailed otherwise."""

    def abort(self) -> None:
        """Removes what was written, as far as the store answers. Idempotent; does nothing after a commit."""


class Store(Protocol):
    """Where chunks live."""

    @property
    def url(self) -> str:
        """As in `chunks.store`: "file:///srv/chunks", "s3://bucket/prefix"."""

    @property
    def reads_in_flight(self) -> int:
        """Number of reads that are in flight at once: 1 for a store where more would not be faster."""

    def create(self, key: str, *, rewrites_head: bool = False) -> Upload:
        """Begins an object. rewrites_head: its first bytes are known last."""

    def read(self, key: str, start_byte: int, end_byte: int) -> bytes:
        """Exactly `[start_byte, end_byte)`, by one request. Raises NotFound, Corrupt if the object ends earlier,
        StoreFailed."""

    def stream(self, key: str, start_byte: int, end_byte: int) -> Iterator[bytes]:
        """The same, by one request, in blocks of at most 1 MiB."""

    def stat(self, key: str) -> ObjectInfo:
        """Raises NotFound."""

    def delete(self, key: str) -> None:
        """Removes an object. No error if it is not there."""

    def discard(self, key: str, upload_id: str | None = None) -> None:
        """Removes every upload of that key that has not ended: what a writer left that died. No error if there is
        none. When it returns, nothing of them is left."""

    def uploads(self) -> Iterator[str]:
        """Keys of the uploads that have not ended; a key with several comes several times."""

    def list(self, below: str = "") -> Iterator[ObjectInfo]:
        """All objects, or those below a folder of keys ("journal/"), in order of key. Uploads under way are not
        among them."""

    def locate(self, key: str) -> str:
        """Where other programs find the object: an absolute path, or a URL as "s3://bucket/prefix/key"."""


class Presigned(NamedTuple):
    """A URL that anybody can read with until it expires, and the headers that have to be sent with it."""

    url: str
    headers: Mapping[str, str]

    def __repr__(self) -> str:
        return "Presigned(url=...)"  # whoever has it can read


@runtime_checkable
class RemoteStore(Store, Protocol):
    """A store that speaks HTTP."""

    def http_url(self, key: str) -> str:
        """The http(s) URL of an object; it lets nobody in by itself."""

    def presign(self, key: str, start_byte: int, end_byte: int, seconds: int) -> Presigned:
        """A URL for exactly these bytes, and no others of the object, valid for so many seconds.
        Raises InvalidInput for an empty span or more than 7 days, AccessDenied without credentials."""

    @property
    def curl_options(self) -> str:
        """What the shell needs to give curl to be let in: names of environment variables, no secrets."""


class OpenObject(Protocol):
    """An object that is open as a file of this machine; it closes itself when nobody has it any more."""

    @property
    def descriptor(self) -> int:
        """For os.pread."""

    def is_current(self) -> bool:
        """Whether its name still means this file, and nothing was done to it since it was opened."""


@runtime_checkable
class OpensFiles(Protocol):
    """A store whose objects are files of this machine."""

    @property
    def folder(self) -> str:
        """Absolute path of the folder that they are in."""

    def open(self, key: str) -> OpenObject:
        """Raises NotFound, StoreFailed."""


@runtime_checkable
class KeepsOpen(Protocol):
    """A store that keeps files open between reads."""

    def close(self) -> None:
        """Closes them. Idempotent; the store can still be used."""


def has(store: Store, key: str) -> bool:
    """Whether an object is there."""
    try:
        store.stat(key)
    except NotFound:
        return False
    return True


class StoredObject:
    """One object of a store as a RandomReader for formats."""

    def __init__(self, store: Store, key: str, name: str | None = None, size_bytes: int | None = None) -> None:
        """A size (bytes) that is known need not be asked for. Raises NotFound otherwise."""
        self._store = store
        self._key = key
        self.name = name or store.locate(key)
        self.size_bytes = store.stat(key).size_bytes if size_bytes is None else size_bytes

    def read_at(self, start_byte: int, end_byte: int) -> bytes:
        """Exactly those bytes; raises Corrupt if the object ends earlier."""
        return self._store.read(self._key, start_byte, end_byte)

    def blocks_from(self, start_byte: int) -> Iterator[bytes]:
        """From there to the end, by one request."""
        return self._store.stream(self._key, start_byte, self.size_bytes)

    def parent_folder(self) -> "StoredFolder":
        """The folder that it is in."""
        return StoredFolder(self._store, self._key[: self._key.rfind("/") + 1])


def _named(store: Store) -> str:
    """For messages."""
    return store.folder if isinstance(store, OpensFiles) else store.url


class StoredFolder:
    """A folder of keys of a store as a Folder for formats."""

    def __init__(self, store: Store, prefix: str = "") -> None:
        """Args: prefix: of the keys, with a slash at its end; all of the store without."""
        self._store = store
        self._prefix = prefix
        self.name: str = store.locate(prefix.rstrip("/")) if prefix else _named(store)

    def files(self, below: str) -> Iterator[tuple[str, int]]:
        """Names and sizes (bytes) of what is below a folder of it. Raises StoreFailed."""
        for found in self._store.list(self._prefix + below):
            yield found.key.removeprefix(self._prefix), found.size_bytes

    def open(self, name: str) -> StoredObject:
        """Raises NotFound, InvalidInput for a bad key, StoreFailed."""
        return StoredObject(self._store, self._prefix + name)
