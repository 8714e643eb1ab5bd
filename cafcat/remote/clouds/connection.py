"""The parts of connections that Google Cloud Storage and Azure Blob Storage have in common."""

import re
from abc import abstractmethod
from collections.abc import Mapping
from datetime import timedelta
from email.utils import parsedate_to_datetime
from threading import RLock
from typing import TYPE_CHECKING, Any, Final

from cafcat.errors import Conflict, InvalidInput
from cafcat.remote.address import BucketAddress
from cafcat.remote.answers import BLOCK_BYTES, Answer, ObjectHead, content_range, nanoseconds, unquoted
from cafcat.remote.bucket import Bucket
from cafcat.remote.clouds.access import CloudAccess
from cafcat.remote.clouds.http import CloudHttp, Request, Signer
from cafcat.remote.connection import ATTEMPTS, CONNECT_SECONDS, READ_SECONDS, RETRY_SECONDS
from cafcat.support.forking import keep_open, renew_after_fork

if TYPE_CHECKING:
    from urllib3 import BaseHTTPResponse

__all__ = ["CloudConnection", "connect", "modified_ns", "range_header"]

_SERVER: Final = re.compile(r"https?://[^/@?#\s]+(?:/[^?#@\s]*)?", re.IGNORECASE)


class CloudConnection(Bucket):
    """A connection to one bucket or container.

    Threads may share it. A forked process opens connections of its own.
    """

    def __init__(self, address: BucketAddress, access: CloudAccess, server_url: str, signer: Signer) -> None:
        """Describe a connection. This sends no request.

        Args:
            address: The bucket or container; its key is ignored.
            access: Options of the connection.
            server_url: URL of the server, without a slash at its end.
            signer: Adds credentials to requests.

        Raises:
            InvalidInput: The URL of the server is not valid.
        """
        if not _SERVER.fullmatch(server_url):
            hint = "write https://HOST or https://HOST:PORT; credentials do not belong in the URL"
            raise InvalidInput(f"the URL of the server for {address.url} is not valid", hint=hint)
        self.bucket = address.bucket
        self._url = address.url
        self._server_url = server_url
        self.ranges_are_200 = False
        self._access = access
        self._http = CloudHttp(signer, server_url)
        self._lock = RLock()
        self._objects: Any = None
        renew_after_fork(self)

    @property
    def url(self) -> str:
        """URL of the bucket or container: "gs://bucket"."""
        return self._url

    @property
    def server_url(self) -> str:
        """URL of the server, without a slash at its end."""
        return self._server_url

    @property
    def shows_cause(self) -> bool:
        """False: obstore finds no generation of a replaced object, and Azurite answers 412 for a missing blob."""
        return False

    @abstractmethod
    def delete(self, key: str) -> None:
        """Remove an object. A missing object is not an error.

        Raises:
            AccessDenied, StoreFailed: The server refuses or fails.
        """

    @property
    def objects(self) -> Any:
        """Client of obstore, which reads objects of the bucket."""
        with self._lock:
            if self._objects is None:
                self._objects = self._new_objects()
            return self._objects

    def _new_objects(self) -> Any:
        raise NotImplementedError

    def _obstore_options(self) -> dict[str, Any]:
        return {
            "client_options": {
                "allow_http": True,
                "connect_timeout": timedelta(seconds=CONNECT_SECONDS),
                "read_timeout": timedelta(seconds=READ_SECONDS),
                # The limit for a whole answer, which may be a large object: read_timeout ends silent requests.
                "timeout": timedelta(days=7),
                "user_agent": "cafcat",
            },
            "retry_config": {"max_retries": ATTEMPTS - 1, "retry_timeout": timedelta(seconds=RETRY_SECONDS)},
        }

    def name_of(self, key: str) -> str:
        """Return the URL of an object for messages: "gs://bucket/key"."""
        return f"{self.url}/{key}"

    def send(self, request: Request) -> "BaseHTTPResponse":
        """Send a request, and return the answer: see `CloudHttp.send`."""
        return self._http.send(request)

    def _checked(self, key: str, head: ObjectHead, etag: str | None) -> ObjectHead:
        if etag and head.etag != etag:
            raise Conflict(f"{self.name_of(key)} was replaced by another version", chunk=self.name_of(key))
        return head

    def _answer(self, key: str, found: "BaseHTTPResponse") -> Answer:
        """Return the answer to a GET request, whose body has not been read."""
        headers = found.headers
        first, last, size = content_range(headers.get("content-range"), int(headers["content-length"]))
        head = ObjectHead(size, modified_ns(headers), self._tag_in(headers))
        return Answer(
            self.name_of(key),
            head,
            first,
            last,
            found.read,
            lambda: found.stream(BLOCK_BYTES, decode_content=False),
            found.release_conn,
        )

    def _tag_in(self, headers: Mapping[str, str]) -> str | None:
        return unquoted(headers.get("etag"))

    def after_fork(self) -> None:
        """Forget the client of the parent in a forked process."""
        keep_open(self._objects)
        self._lock = RLock()  # another thread of the parent may have held the lock
        self._objects = None


def modified_ns(headers: Mapping[str, str]) -> int:
    """Return the time of Last-Modified, in nanoseconds since 1970 UTC."""
    return nanoseconds(parsedate_to_datetime(headers["last-modified"]))


def range_header(start_byte: int | None, end_byte: int | None) -> dict[str, str]:
    """Return the Range header for the bytes `[start_byte, end_byte)`; no header for the whole object."""
    if start_byte is None or end_byte is None:
        return {}
    return {"range": f"bytes={start_byte}-{end_byte - 1}"}


def connect(address: BucketAddress, options: Mapping[str, str]) -> CloudConnection:
    """Return a connection to a bucket of Google Cloud Storage or a container of Azure. This sends no request.

    Args:
        address: The bucket or container.
        options: Values of the table [stores.NAME] in cafcat.toml.

    Raises:
        InvalidInput: The storage account is not named, or the URL of the server is not valid.
    """
    from cafcat.remote.clouds.azure import AzureContainer
    from cafcat.remote.clouds.google import GoogleBucket

    access = CloudAccess.of(options)
    return GoogleBucket(address, access) if address.scheme == "gs" else AzureContainer(address, access)
