"""The protocols of stores: immutable objects by key, and optional capabilities.

A store is opened by its kind (`cafcat.stores.kind.StoreKind`), which is registered by URL scheme in
`cafcat/stores/registry.py`. Code outside `cafcat/stores` does not depend on the kind. It reads `Store.is_remote`,
or checks whether the store is a FolderStore, FileStore, HttpStore, PresigningStore, ProbedStore or ClosableStore.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, runtime_checkable

from cafcat.errors import NotFound

if TYPE_CHECKING:
    from cafcat.stores.probing import Finding

__all__ = [
    "HEAD_BYTES",
    "READ_REQUESTS",
    "ClosableStore",
    "FileStore",
    "FolderStore",
    "HttpStore",
    "ObjectInfo",
    "OpenObject",
    "Presigned",
    "PresigningStore",
    "ProbedStore",
    "Store",
    "StoredFolder",
    "StoredObject",
    "Upload",
    "has",
]


HEAD_BYTES: Final = 4096
"""Most bytes at the start of an object that `Upload.rewrite_head` can replace."""


READ_REQUESTS: Final = 64
"""Default for the most requests to a remote store that are in flight at once while files are read. With an answer
time of 30 ms that is up to 2,000 answers per second, more than one process can handle."""


class ObjectInfo(NamedTuple):
    """Key, size and entity tag of an object in a store.

    Attributes:
        key: Key of the object in its store.
        size_bytes: Size in bytes.
        etag: Entity tag of this version of the object, without quotes. None in listings, and if the store shows no
            entity tag.
    """

    key: str
    size_bytes: int
    etag: str | None = None


class Upload(Protocol):
    """An object that is being written. It is not visible under its key before `commit` is called.

    After `commit` or `abort`, only `abort`, `upload_id` and `etag` may be used.
    """

    def write(self, data: bytes | memoryview) -> None:
        """Append bytes to the new object. The caller may change the buffer as soon as this returns.

        Raises:
            Conflict: Another writer has created an object with this key. Only some stores find that out here.
            StoreFailed: The store cannot write. Later calls of `write`, `rewrite_head` and `commit` fail, too.
        """

    def rewrite_head(self, data: bytes) -> None:
        """Replace the first bytes of the object. Call this at most once, after the last write.

        Args:
            data: At most HEAD_BYTES bytes, and no more than were written.

        Raises:
            InvalidInput: The upload was begun without `rewrites_head`, which only some stores need.
            Conflict: Another writer has created an object with this key. Only some stores find that out here.
            StoreFailed: The store cannot write.
        """

    @property
    def upload_id(self) -> str | None:
        """Identifier for `Store.discard`, to remove this upload if its writer dies; None if the key is enough."""

    @property
    def etag(self) -> str | None:
        """Entity tag of the committed object, without quotes.

        None before the commit, and if the store shows no entity tag.
        """

    def commit(self, crc64nvme: int | None = None) -> None:
        """Make the object durable and visible under its key. A power cut after this cannot remove it.

        Args:
            crc64nvme: CRC-64/NVME of the object, computed by the caller. An upload that computes this checksum
                itself requires that both are equal; other uploads ignore it. None: the caller computed none.

        Raises:
            Conflict: The store already has another object with this key.
            StoreFailed: The store cannot write, or the checksums differ. The object may be visible nevertheless.
            AccessDenied: A server refuses the credentials or the request.
        """

    def abort(self) -> None:
        """Give up the upload and remove its bytes. An object that is already visible under its key stays.

        Errors of the store are suppressed, because `Store.discard` can remove the bytes later. Idempotent. After a
        commit, this does nothing.
        """


class Store(Protocol):
    """A folder, bucket or other place with immutable objects, such as chunks, each under a key.

    Methods that can raise StoreFailed also raise AccessDenied if a server refuses the credentials or the request,
    and NotFound if the bucket is missing.
    """

    @property
    def url(self) -> str:
        """URL of the store, as in the column `chunks.store`: "file:///srv/chunks" or "s3://bucket/prefix"."""

    @property
    def is_remote(self) -> bool:
        """True if cafcat sends requests to a server. False for a folder, even on a network file system.

        A failure of a server usually concerns all objects of the store, and each attempt takes long. A failure of a
        folder usually concerns only the bytes that were read.
        """

    @property
    def reads_in_flight(self) -> int:
        """Most reads of this store that callers keep in flight at once; 1 if more would not be faster."""

    def create(self, key: str, *, rewrites_head: bool = False) -> Upload:
        """Begin the upload of a new object.

        Args:
            key: Key of the new object.
            rewrites_head: True if `Upload.rewrite_head` is going to be called.

        Raises:
            InvalidInput: The key is not allowed (cafcat.stores.keys.check_key).
            Conflict: The folder has an object with this key, or an unfinished upload of the key. For a bucket, only
                the commit finds an existing object, and unfinished uploads of the key are no conflict.
            StoreFailed: The store cannot write.
        """

    def read(self, key: str, start_byte: int, end_byte: int) -> bytes:
        """Return exactly the bytes `[start_byte, end_byte)` of an object.

        A remote store gets them with one request, which is only repeated if it fails.

        Raises:
            NotFound: There is no such object.
            Corrupt: The object is shorter than end_byte.
            InvalidInput: The range or the key is not valid.
            StoreFailed: The store cannot read.
        """

    def stream(self, key: str, start_byte: int, end_byte: int) -> Iterator[bytes]:
        """Yield the bytes `[start_byte, end_byte)` of an object in order, in blocks of at most 1 MiB.

        A remote store gets them with one request, and with a further one each time that the connection breaks.

        Raises:
            NotFound: There is no such object.
            Corrupt: The object is shorter than end_byte.
            Conflict: The object was replaced while it was read.
            InvalidInput: The range or the key is not valid.
            StoreFailed: The store cannot read.
        """

    def stat(self, key: str) -> ObjectInfo:
        """Return key, size and entity tag of an object.

        Raises:
            NotFound: There is no such object.
            InvalidInput: The key is not valid.
            StoreFailed: The store cannot answer.
        """

    def delete(self, key: str) -> None:
        """Remove an object. A missing object is not an error.

        Raises:
            InvalidInput: The key is not valid.
            StoreFailed: The store cannot remove the object.
        """

    def discard(self, key: str, upload_id: str | None = None) -> None:
        """Remove every unfinished upload of a key, which dead writers left behind.

        Uploads of living writers are removed, too: the caller must know that there are none. When this returns,
        nothing of these uploads is left, unless the server cannot list or abort uploads. A key without uploads is
        not an error.

        Args:
            key: Key of the object.
            upload_id: `Upload.upload_id` of one of the uploads, if it is known. That upload is removed first.

        Raises:
            InvalidInput: The key is not valid.
            StoreFailed: The store cannot remove an upload.
        """

    def uploads(self) -> Iterator[str]:
        """Yield the key of each unfinished upload, whether or not its writer is alive.

        A key with several uploads is yielded several times. There are no keys if the server cannot list uploads.

        Raises:
            StoreFailed: The store cannot list its uploads for another reason.
        """

    def list(self, below: str = "") -> Iterator[ObjectInfo]:
        """Yield key and size of all objects, in the order of their keys' bytes; some S3 servers have another order.

        Unfinished uploads, and objects with keys that `create` refuses, are left out.

        Args:
            below: Only list keys with this prefix, which ends in a slash ("journal/"). "" lists the whole store.

        Raises:
            StoreFailed: The store cannot list its objects. A missing folder counts as an empty store.
        """

    def locate(self, key: str) -> str:
        """Return where other programs find an object. The object may be missing.

        Returns:
            An absolute path, if that file has exactly the bytes of the object. Otherwise the object's URL, as
            "s3://bucket/prefix/key".

        Raises:
            InvalidInput: The key is not allowed.
        """


class Presigned(NamedTuple):
    """A signed URL that everybody can read from until it expires.

    Attributes:
        url: The URL. It is a secret: whoever has it can read the bytes.
        headers: HTTP headers that must be sent with the request.
    """

    url: str
    headers: Mapping[str, str]

    def __repr__(self) -> str:
        return "Presigned(url=...)"  # the URL is a secret


@runtime_checkable
class HttpStore(Protocol):
    """A store whose objects other programs can read with HTTP."""

    def http_url(self, key: str) -> str:
        """Return the http(s) URL of an object. Reading it may need credentials."""

    @property
    def curl_options(self) -> str:
        """Options with which curl, called from a shell, can read the URLs of `http_url`; "" if none are needed.

        Credentials appear only as names of environment variables.
        """


@runtime_checkable
class PresigningStore(Protocol):
    """A store that can sign URLs, which give access to a range of an object for a time."""

    def presign(self, key: str, start_byte: int, end_byte: int, seconds: int) -> Presigned:
        """Return a URL that gives access to the bytes `[start_byte, end_byte)` of an object, and to nothing else.

        Args:
            key: Key of the object.
            start_byte: Offset in bytes.
            end_byte: Offset in bytes, exclusive.
            seconds: How long the URL is valid.

        Raises:
            InvalidInput: The range is empty, the key is not valid, or `seconds` is less than 1 or more than 7 days.
            AccessDenied: There are no credentials to sign with.
        """


class OpenObject(Protocol):
    """An object that is open as a local file. The file is closed when no reference to this instance is left."""

    @property
    def descriptor(self) -> int:
        """File descriptor for os.pread."""

    def is_current(self) -> bool:
        """Return True if the file's name still leads to this file, and the file has not changed since opening."""


@runtime_checkable
class FolderStore(Protocol):
    """A store that keeps its objects in a folder of this machine, in whatever form."""

    @property
    def folder(self) -> str:
        """Absolute path of the folder with the objects of the store."""


@runtime_checkable
class FileStore(FolderStore, Protocol):
    """A store whose objects are files: the file at `Store.locate` has the bytes of the object."""

    def open(self, key: str) -> OpenObject:
        """Open the file of an object, to be read with os.pread. It is closed when no reference to it is left.

        Raises:
            NotFound: There is no such object.
            InvalidInput: The key is not valid.
            StoreFailed: The file cannot be opened.
        """


@runtime_checkable
class ClosableStore(Protocol):
    """A store that keeps files or connections open between reads."""

    def close(self) -> None:
        """Close all files and connections. Idempotent. The store can still be used, and then opens new ones."""


@runtime_checkable
class ProbedStore(Protocol):
    """A store with its own tests for `cafcat store check`. Other stores are tested with one small object."""

    def probe(self) -> "Iterator[Finding]":
        """Test the features of the server, and yield a finding for each.

        Raises:
            NotFound: There is no such bucket or folder.
            AccessDenied: The server refuses the credentials.
            StoreFailed: The server does not answer.
        """

    @property
    def failed_checks(self) -> Collection[str]:
        """Names of the checks that the server failed, also in earlier processes if the catalog remembers them.

        `cafcat.stores.kind.Verdicts` loads them from the catalog.
        """


def has(store: Store, key: str) -> bool:
    """Return True if a store has an object with this key; False if the object, the folder or the bucket is missing.

    Raises:
        InvalidInput: The key is not valid.
        StoreFailed, AccessDenied: The store cannot answer.
    """
    try:
        store.stat(key)
    except NotFound:
        return False
    return True


class StoredObject:
    """An object of a store that formats read in parts: a RandomReader."""

    def __init__(self, store: Store, key: str, name: str | None = None, size_bytes: int | None = None) -> None:
        """Prepare to read an object.

        Args:
            store: The store.
            key: Key of the object.
            name: Used in messages. None: `store.locate(key)`.
            size_bytes: Size of the object in bytes, if it is known. None: one request finds it.

        Raises:
            InvalidInput: The key is not valid.
            NotFound: The size was not given, and there is no such object.
            StoreFailed, AccessDenied: The size was not given, and the store cannot answer.
        """
        self._store = store
        self._key = key
        self.name = name or store.locate(key)
        self.size_bytes = store.stat(key).size_bytes if size_bytes is None else size_bytes

    def read_at(self, start_byte: int, end_byte: int) -> bytes:
        """Return exactly the bytes `[start_byte, end_byte)` of the object.

        Raises:
            NotFound: There is no such object any more.
            Corrupt: The object is shorter than end_byte.
            StoreFailed: The store cannot read.
        """
        return self._store.read(self._key, start_byte, end_byte)

    def blocks_from(self, start_byte: int) -> Iterator[bytes]:
        """Yield all bytes of the object from an offset to its end, in blocks of at most 1 MiB.

        Raises:
            NotFound: There is no such object any more.
            Corrupt: The object is shorter than `size_bytes`.
            Conflict: The object was replaced while it was read.
            StoreFailed: The store cannot read.
        """
        return self._store.stream(self._key, start_byte, self.size_bytes)

    def parent_folder(self) -> "StoredFolder":
        """Return the objects whose keys begin like this object's key, up to its last "/", as a folder."""
        return StoredFolder(self._store, self._key[: self._key.rfind("/") + 1])


class StoredFolder:
    """The objects of a store below a prefix of keys, which formats list and open like files: an ArchiveFolder."""

    def __init__(self, store: Store, prefix: str = "") -> None:
        """Prepare to list and read a folder.

        Args:
            store: The store.
            prefix: Prefix of the keys, with a slash at its end; "" for the whole store.
        """
        self._store = store
        self._prefix = prefix
        self.name: str = store.locate(prefix.rstrip("/")) if prefix else _name_of(store)

    def files(self, below: str) -> Iterator[tuple[str, int]]:
        """Yield name and size in bytes of each file below the subfolder `below`, such as "index/"; "" for all.

        The names are relative to this folder. Raises StoreFailed if the store cannot list its objects.
        """
        for found in self._store.list(self._prefix + below):
            yield found.key.removeprefix(self._prefix), found.size_bytes

    def open(self, name: str) -> StoredObject:
        """Open a file of the folder.

        Raises:
            NotFound: There is no such file.
            InvalidInput: No key can have this name.
            StoreFailed: The store cannot read.
        """
        return StoredObject(self._store, self._prefix + name)


def _name_of(store: Store) -> str:
    """Return the name of a store for messages: its folder if its objects are files, else its URL."""
    return store.folder if isinstance(store, FileStore) else store.url
