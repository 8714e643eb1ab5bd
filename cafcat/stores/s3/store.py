"""A store in an S3 bucket."""

import hashlib
import shlex
from collections.abc import Collection, Iterator
from typing import Final

from cafcat.errors import InvalidInput
from cafcat.remote.access import S3Access
from cafcat.remote.address import parse_s3
from cafcat.remote.connection import S3Connection
from cafcat.remote.errors import translated
from cafcat.remote.reading import RemoteObject
from cafcat.stores.base import READ_REQUESTS, ObjectInfo, Presigned
from cafcat.stores.keys import check_key, is_key
from cafcat.stores.kind import StoreContext
from cafcat.stores.probing import Finding
from cafcat.stores.s3.parts import plan_parts
from cafcat.stores.s3.server_checks import ServerCheck, ServerChecks
from cafcat.stores.s3.unfinished import abort_uploads, check_reachable, uploads_of
from cafcat.stores.s3.upload import S3Upload
from cafcat.support.traffic import TRAFFIC

__all__ = ["S3Store"]

_LONGEST_SECONDS: Final = 7 * 86_400
"""Longest time that a signed URL is valid, in seconds (Amazon S3 User Guide, "Download and upload objects with
presigned URLs")."""


class S3Store:
    """A store whose objects are those of a bucket, or those below a prefix of it. Safe to share between threads."""

    def __init__(
        self,
        url: str,
        access: S3Access,
        upload_memory: int,
        context: StoreContext | None = None,
        *,
        reads_in_flight: int = READ_REQUESTS,
    ) -> None:
        """Describe a store. This sends no request.

        Args:
            url: "s3://bucket" or "s3://bucket/prefix".
            access: Options of the connection to the server.
            upload_memory: Memory for the parts of one upload, in bytes.
            context: Remembers which checks the server failed, and receives warnings about them (ServerChecks).
                None: the checks are forgotten when this process ends, and the warnings are logged.
            reads_in_flight: Most requests that are in flight at once while files are read.

        Raises:
            InvalidInput: This is not the URL of a bucket, the prefix is not allowed as a key, or the memory is too
                small.
        """
        address = parse_s3(url)
        prefix = address.key.strip("/")
        if prefix:
            check_key(prefix)
        self._url = f"s3://{address.bucket}/{prefix}".rstrip("/")
        self._prefix = f"{prefix}/" if prefix else ""
        self._plan = plan_parts(upload_memory)
        self._reads_in_flight = reads_in_flight
        self._connection = S3Connection(address.bucket, access)
        self.checks = ServerChecks(self._url, context or StoreContext())

    @property
    def url(self) -> str:
        """URL of the store without a slash at its end: "s3://bucket/prefix"."""
        return self._url

    @property
    def is_remote(self) -> bool:
        """True: an S3 server answers the requests."""
        return True

    @property
    def reads_in_flight(self) -> int:
        """Most requests that callers keep in flight at once while files are read.

        An answer takes tens of milliseconds, however many requests are in flight.
        """
        return self._reads_in_flight

    def create(self, key: str, *, rewrites_head: bool = False) -> S3Upload:
        """Begin the multipart upload of a new object.

        With rewrites_head, the first part is sent last. An existing object with this key is not an error before the
        commit.

        Raises:
            InvalidInput: The key is not allowed.
            NotFound: There is no such bucket.
            AccessDenied, StoreFailed: The server refuses or fails.
        """
        return S3Upload(self._connection, self.checks, self._key(key), self._plan, rewrites_head=rewrites_head)

    def read(self, key: str, start_byte: int, end_byte: int) -> bytes:
        """Return exactly the bytes `[start_byte, end_byte)` of an object.

        This sends one request, and sends it again if the connection breaks. An empty range needs no request.

        Raises:
            NotFound: There is no such object.
            Corrupt: The object is shorter than end_byte.
            InvalidInput: The range or the key is not valid.
            AccessDenied, StoreFailed: The server refuses or fails.
        """
        return self._object(key).read_at(start_byte, end_byte)

    def stream(self, key: str, start_byte: int, end_byte: int) -> Iterator[bytes]:
        """Yield the bytes `[start_byte, end_byte)` of an object in blocks of at most 1 MiB.

        If the connection breaks, another request continues at the same byte.

        Raises:
            NotFound: There is no such object.
            Corrupt: The object is shorter than end_byte.
            Conflict: The object was replaced while it was read.
            InvalidInput: The range or the key is not valid.
            AccessDenied, StoreFailed: The server refuses or fails.
        """
        return self._object(key).blocks(start_byte, end_byte)

    def stat(self, key: str) -> ObjectInfo:
        """Return key, size and entity tag of an object.

        Raises:
            NotFound: There is no such object.
            InvalidInput: The key is not valid.
            AccessDenied, StoreFailed: The server refuses or fails.
        """
        head = self._object(key).head()
        return ObjectInfo(key, head.size_bytes, head.etag)

    def delete(self, key: str) -> None:
        """Remove an object. A missing object is not an error."""
        with TRAFFIC.request(self.locate(key)), translated("remove", self.locate(key)):
            self._connection.client.delete_object(Bucket=self._connection.bucket, Key=self._key(key))

    def discard(self, key: str, upload_id: str | None = None) -> None:
        """Abort every multipart upload of a key, as far as the server can list and abort uploads.

        Uploads of living writers are aborted, too: the caller must know that there are none.

        Args:
            key: Key in the store.
            upload_id: Id of an upload that is aborted first, without listing. None: there is none.

        Raises:
            NotFound: There is no such bucket.
            AccessDenied, StoreFailed: The server refuses or fails.
        """
        abort_uploads(self._connection, self.checks, self._key(key), upload_id)

    def uploads(self) -> Iterator[str]:
        """Yield the key of each unfinished multipart upload; none if the server cannot list uploads.

        For a server that is known not to list uploads, a HEAD request checks that the bucket exists.

        Raises:
            NotFound: There is no such bucket.
            AccessDenied, StoreFailed: The server refuses or fails.
        """
        if ServerCheck.LIST_UPLOADS in self.checks:
            check_reachable(self._connection)
        for key, _ in uploads_of(self._connection, self.checks, self._prefix):
            yield key.removeprefix(self._prefix)

    def list(self, below: str = "") -> Iterator[ObjectInfo]:
        """Yield all objects in the order of the server's listing, or only those below a folder of keys.

        That is the order of the keys' bytes, except on some servers (`cafcat store check`). One request returns up
        to 1,000 objects. Objects with keys that `check_key` refuses are left out. The entity tags are None.
        """
        token: dict[str, str] = {}
        while True:
            with TRAFFIC.request(self._url), translated("list", self._url):
                page = self._connection.client.list_objects_v2(
                    Bucket=self._connection.bucket,
                    Prefix=self._prefix + below,
                    **token,  # type: ignore[arg-type]
                )
            for found in page.get("Contents", []):
                key = found["Key"].removeprefix(self._prefix)
                if is_key(key):
                    yield ObjectInfo(key, found["Size"])
            if not page.get("IsTruncated"):
                return
            token = {"ContinuationToken": page["NextContinuationToken"]}

    def locate(self, key: str) -> str:
        """Return the URL of an object, as "s3://bucket/prefix/key". Raises InvalidInput for a key not allowed."""
        return f"{self._connection.url}/{self._key(key)}"

    def http_url(self, key: str) -> str:
        """Return the http(s) URL of an object, unsigned. Unless the object is public, requests must be signed."""
        return self._connection.http_url(self._key(key))

    def presign(self, key: str, start_byte: int, end_byte: int, seconds: int) -> Presigned:
        """Return a signed URL for exactly the bytes `[start_byte, end_byte)` of an object.

        The signature covers the Range header, which the request must have.

        Raises:
            InvalidInput: The range is empty, the key is not valid, or `seconds` is not between 1 and 604,800 (7
                days).
            AccessDenied: There are no credentials.
        """
        if not 0 < seconds <= _LONGEST_SECONDS:
            raise InvalidInput(f"a signed URL is valid for 1 to {_LONGEST_SECONDS} seconds, not {seconds}")
        if end_byte <= start_byte:
            raise InvalidInput("a URL cannot be signed for an empty range of bytes")
        header = f"bytes={start_byte}-{end_byte - 1}"
        return Presigned(self._connection.presigned_url(self._key(key), header, seconds), {"Range": header})

    @property
    def curl_options(self) -> str:
        """Options with which curl 7.87 or newer signs requests.

        The shell that runs curl takes the credentials from AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and, if it is
        set, AWS_SESSION_TOKEN. For AWS without a configured region, a request finds the region of the bucket.

        Raises:
            NotFound: There is no such bucket.
            AccessDenied, StoreFailed: The server refuses or fails.
        """
        session = '${AWS_SESSION_TOKEN:+-H "x-amz-security-token: $AWS_SESSION_TOKEN"}'
        credentials = '"$AWS_ACCESS_KEY_ID:$AWS_SECRET_ACCESS_KEY"'
        # AWS requires this header, and curl does not send it: the SHA-256 of an empty body.
        content_hash = f"-H x-amz-content-sha256:{hashlib.sha256().hexdigest()}"
        scope = shlex.quote(f"aws:amz:{self._connection.region}:s3")
        return f"--aws-sigv4 {scope} --user {credentials} {content_hash} {session}"

    def probe(self) -> Iterator[Finding]:
        """Test the features of the server with test objects, yield a finding for each, and remove the objects.

        Raises:
            NotFound: There is no such bucket.
            AccessDenied: The server refuses the credentials.
            StoreFailed: The server does not answer.
        """
        from cafcat.stores.s3.probe import S3Probe

        return S3Probe(self).findings()

    @property
    def failed_checks(self) -> Collection[str]:
        """Names of the checks that the server failed: values of ServerCheck, as in `ServerChecks.failed`."""
        return [check.value for check in self.checks.failed]

    @property
    def connection(self) -> S3Connection:
        """Connection to the bucket of the store."""
        return self._connection

    def bucket_key(self, key: str) -> str:
        """Return the key in the bucket for a key in the store. Raises InvalidInput if the key is not allowed."""
        return self._key(key)

    def _key(self, key: str) -> str:
        return self._prefix + check_key(key)

    def _object(self, key: str) -> RemoteObject:
        return RemoteObject(self._connection, self._key(key))
