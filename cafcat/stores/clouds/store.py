"""Stores in buckets of Google Cloud Storage and containers of Azure Blob Storage."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Generic, TypeVar

from cafcat.remote.address import BucketAddress
from cafcat.remote.clouds.access import CloudAccess
from cafcat.remote.clouds.azure import AzureContainer
from cafcat.remote.clouds.connection import CloudConnection
from cafcat.remote.clouds.google import GoogleBucket
from cafcat.remote.reading import RemoteObject
from cafcat.stores.base import ObjectInfo
from cafcat.stores.clouds.azure_upload import AzureUpload, discard_blocks
from cafcat.stores.clouds.google_upload import GoogleUpload
from cafcat.stores.keys import check_key, is_key
from cafcat.stores.kind import StoreContext
from cafcat.stores.s3.parts import plan_parts

__all__ = ["AzureStore", "CloudStore", "GoogleStore"]

_Connection = TypeVar("_Connection", bound=CloudConnection)


class CloudStore(ABC, Generic[_Connection]):
    """A store whose objects are those of a bucket or container, or those below a prefix. Threads may share it."""

    def __init__(self, address: BucketAddress, connection: _Connection, context: StoreContext) -> None:
        """Describe a store. This sends no request.

        Args:
            address: The bucket or container, and the prefix.
            connection: Connection to it.
            context: Limits of memory and requests.

        Raises:
            InvalidInput: The prefix is not allowed as a key, or the memory for uploads is too small.
        """
        prefix = address.key.strip("/")
        if prefix:
            check_key(prefix)
        self._url = f"{address.url}/{prefix}".rstrip("/")
        self._prefix = f"{prefix}/" if prefix else ""
        self._plan = plan_parts(context.upload_memory)
        self._reads_in_flight = context.read_requests
        self._connection = connection

    @property
    def url(self) -> str:
        """URL of the store without a slash at its end: "gs://bucket/prefix"."""
        return self._url

    @property
    def is_remote(self) -> bool:
        """True: a server answers the requests."""
        return True

    @property
    def reads_in_flight(self) -> int:
        """Most requests that callers keep in flight at once while files are read."""
        return self._reads_in_flight

    @abstractmethod
    def create(self, key: str, *, rewrites_head: bool = False) -> GoogleUpload | AzureUpload:
        """Begin the upload of a new object: see `cafcat.stores.base.Store.create`."""

    @abstractmethod
    def discard(self, key: str, upload_id: str | None = None) -> None:
        """Remove unfinished uploads of a key: see `cafcat.stores.base.Store.discard`."""

    @abstractmethod
    def uploads(self) -> Iterator[str]:
        """Yield the keys of unfinished uploads: see `cafcat.stores.base.Store.uploads`."""

    def read(self, key: str, start_byte: int, end_byte: int) -> bytes:
        """Return exactly the bytes `[start_byte, end_byte)` of an object: see `cafcat.stores.base.Store.read`."""
        return self._object(key).read_at(start_byte, end_byte)

    def stream(self, key: str, start_byte: int, end_byte: int) -> Iterator[bytes]:
        """Yield the bytes `[start_byte, end_byte)` of an object: see `cafcat.stores.base.Store.stream`."""
        return self._object(key).blocks(start_byte, end_byte)

    def stat(self, key: str) -> ObjectInfo:
        """Return key, size and entity tag of an object. Raises NotFound if it is missing."""
        head = self._object(key).head()
        return ObjectInfo(key, head.size_bytes, head.etag)

    def delete(self, key: str) -> None:
        """Remove an object. A missing object is not an error."""
        self._connection.delete(self._key(key))

    def list(self, below: str = "") -> Iterator[ObjectInfo]:
        """Yield all objects in the order of the keys' bytes, or only those below a folder of keys.

        Objects with keys that `check_key` refuses are left out. The entity tags are None.
        """
        token: dict[str, str] = {}
        while True:
            page = self._connection.list_page(Prefix=self._prefix + below, **token)
            for found in page["Contents"]:
                key = found["Key"].removeprefix(self._prefix)
                if is_key(key):
                    yield ObjectInfo(key, found["Size"])
            if not page["IsTruncated"]:
                return
            token = {"ContinuationToken": page["NextContinuationToken"]}

    def locate(self, key: str) -> str:
        """Return the URL of an object, as "gs://bucket/prefix/key". Raises InvalidInput for a key not allowed."""
        return self._connection.name_of(self._key(key))

    def _key(self, key: str) -> str:
        return self._prefix + check_key(key)

    def _object(self, key: str) -> RemoteObject:
        return RemoteObject(self._connection, self._key(key))


class GoogleStore(CloudStore[GoogleBucket]):
    """A store in a bucket of Google Cloud Storage."""

    def __init__(self, address: BucketAddress, context: StoreContext) -> None:
        """Describe a store. This sends no request. Raises InvalidInput as `CloudStore`."""
        super().__init__(address, GoogleBucket(address, CloudAccess.of(context.options)), context)

    def create(self, key: str, *, rewrites_head: bool = False) -> GoogleUpload:
        """Begin the resumable upload of a new object.

        Raises:
            InvalidInput: The key is not allowed.
            NotFound: There is no such bucket.
            Conflict: The bucket has an object with this key. The commit finds one that is created meanwhile.
            AccessDenied, StoreFailed: The server refuses or fails.
        """
        return GoogleUpload(self._connection, self._key(key), self._plan, rewrites_head=rewrites_head)

    def discard(self, key: str, upload_id: str | None = None) -> None:
        """Cancel a resumable upload. Uploads without a known id end after a week."""
        key = self._key(key)
        if upload_id is not None:
            self._connection.cancel_upload(key, upload_id)

    def uploads(self) -> Iterator[str]:
        """Yield nothing: resumable uploads cannot be listed. One request checks that the bucket exists."""
        self._connection.list_page(MaxKeys=1)
        return iter(())


class AzureStore(CloudStore[AzureContainer]):
    """A store in a container of Azure Blob Storage."""

    def __init__(self, address: BucketAddress, context: StoreContext) -> None:
        """Describe a store. This sends no request.

        Raises:
            InvalidInput: As `CloudStore`, or the storage account is not named.
        """
        super().__init__(address, AzureContainer(address, CloudAccess.of(context.options)), context)

    def create(self, key: str, *, rewrites_head: bool = False) -> AzureUpload:
        """Begin the upload of a new object. This sends no request. Raises InvalidInput for a key not allowed."""
        return AzureUpload(self._connection, self._key(key), self._plan, rewrites_head=rewrites_head)

    def discard(self, key: str, upload_id: str | None = None) -> None:
        """Remove the uncommitted blocks of a key, if there is no blob with this key.

        Raises:
            NotFound: There is no such container.
            AccessDenied, StoreFailed: The server refuses or fails.
        """
        del upload_id
        discard_blocks(self._connection, self._key(key))

    def uploads(self) -> Iterator[str]:
        """Yield the key of each blob that has only uncommitted blocks."""
        for key in self._connection.uncommitted(self._prefix):
            yield key.removeprefix(self._prefix)
