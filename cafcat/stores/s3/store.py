"""A store in an S3 bucket."""

import hashlib
import shlex
from collections.abc import Callable, Collection, Iterator
from typing import Final

from cafcat.errors import InvalidInput
from cafcat.remote.access import S3Access
from cafcat.remote.address import parse_s3
from cafcat.remote.connection import S3Connection
from cafcat.remote.errors import translated
from cafcat.remote.reading import RemoteObject
from cafcat.stores.base import ObjectInfo, Presigned
from cafcat.stores.keys import check_key
from cafcat.stores.probing import Finding
from cafcat.stores.s3.parts import plan_parts
from cafcat.stores.s3.server_checks import ServerCheck, ServerChecks
from cafcat.stores.s3.unfinished import abort_uploads, check_reachable, uploads_of
from cafcat.stores.s3.upload import S3Upload

__all__ = ["S3Store"]

_LONGEST_SECONDS: Final = 7 * 86_400
"""Of a presigned URL (Amazon S3 User Guide, "Download and upload objects with presigned URLs")."""


class S3Store:
    """Objects are those of a bucket below a prefix. Safe to share by threads; nothing is asked before the first
    call that needs it."""

    def __init__(
        self,
        url: str,
        access: S3Access,
        upload_memory: int,
        checks: Callable[[str], ServerChecks] = ServerChecks,
    ) -> None:
        """Open a store without a request.

        Args:
            url: "s3://bucket" or "s3://bucket/prefix".
            access: How the server is reached.
            upload_memory: For the parts of one upload, in bytes.
            checks: Gives what the server of a store URL is known to lack. By default nothing.

        Raises:
            InvalidInput: Not the URL of a bucket, or too little memory.
        """
        address = parse_s3(url)
        prefix = address.key.strip("/")
        if prefix:
            check_key(prefix)
        self._url = f"s3://{address.bucket}/{prefix}".rstrip("/")
        self._prefix = f"{prefix}/" if prefix else ""
        self._plan = plan_parts(upload_memory)
        self._connection = S3Connection(address.bucket, access)
        self.checks = checks(self._url)

    @property
    def url(self) -> str:
        """ "s3://bucket/prefix", without a slash at its end."""
        return self._url

    @property
    def is_remote(self) -> bool:
        """True: an S3 server answers the requests."""
        return True

    @property
    def reads_in_flight(self) -> int:
        """An answer takes some ten milliseconds, whatever else is under way."""
        return 8

    def create(self, key: str, *, rewrites_head: bool = False) -> S3Upload:
        """Begins a multipart upload; with rewrites_head its first part is sent last. Raises InvalidInput for a bad
        key, NotFound if there is no such bucket, AccessDenied, StoreFailed."""
        return S3Upload(self._connection, self.checks, self._key(key), self._plan, rewrites_head=rewrites_head)

    def read(self, key: str, start_byte: int, end_byte: int) -> bytes:
        """Exactly `[start_byte, end_byte)`, by one request. Raises NotFound, Corrupt if the object ends earlier,
        AccessDenied, StoreFailed."""
        return self._object(key).read_at(start_byte, end_byte)

    def stream(self, key: str, start_byte: int, end_byte: int) -> Iterator[bytes]:
        """The same in blocks of at most 1 MiB; where the connection breaks, a further request goes on."""
        return self._object(key).blocks(start_byte, end_byte)

    def stat(self, key: str) -> ObjectInfo:
        """Raises NotFound, AccessDenied, StoreFailed."""
        head = self._object(key).head()
        return ObjectInfo(key, head.size_bytes, head.etag)

    def delete(self, key: str) -> None:
        """Removes an object. No error if it is not there."""
        with translated("remove", self.locate(key)):
            self._connection.client.delete_object(Bucket=self._connection.bucket, Key=self._key(key))

    def discard(self, key: str, upload_id: str | None = None) -> None:
        """Abort every multipart upload of that key, as far as the server can list and abort uploads."""
        abort_uploads(self._connection, self.checks, self._key(key), upload_id)

    def uploads(self) -> Iterator[str]:
        """Yield the keys of unfinished multipart uploads; none if the server cannot list them.

        Asks the server in any case, so that a store that is not there raises.
        """
        if ServerCheck.LIST_UPLOADS in self.checks:
            check_reachable(self._connection)
        for key, _ in uploads_of(self._connection, self.checks, self._prefix):
            yield key.removeprefix(self._prefix)

    def list(self, below: str = "") -> Iterator[ObjectInfo]:
        """All objects, or those below a folder of keys, in order of key: a request for each thousand."""
        token: dict[str, str] = {}
        while True:
            with translated("list", self._url):
                page = self._connection.client.list_objects_v2(
                    Bucket=self._connection.bucket,
                    Prefix=self._prefix + below,
                    **token,  # type: ignore[arg-type]
                )
            for found in page.get("Contents", []):
                key = found["Key"].removeprefix(self._prefix)
                if _is_key(key):
                    yield ObjectInfo(key, found["Size"])
            if not page.get("IsTruncated"):
                return
            token = {"ContinuationToken": page["NextContinuationToken"]}

    def locate(self, key: str) -> str:
        """ "s3://bucket/prefix/key"."""
        return f"{self._connection.url}/{self._key(key)}"

    def http_url(self, key: str) -> str:
        """The https URL of an object; who reads it has to sign the request."""
        return self._connection.http_url(self._key(key))

    def presign(self, key: str, start_byte: int, end_byte: int, seconds: int) -> Presigned:
        """A URL for these bytes and no others: the Range header is signed, and has to be sent."""
        if not 0 < seconds <= _LONGEST_SECONDS:
            raise InvalidInput(f"a signed URL is valid for 1 to {_LONGEST_SECONDS} seconds, not {seconds}")
        if end_byte <= start_byte:
            raise InvalidInput("there is no URL for no bytes: HTTP has no such range")
        header = f"bytes={start_byte}-{end_byte - 1}"
        return Presigned(self._connection.presigned_url(self._key(key), header, seconds), {"Range": header})

    @property
    def curl_options(self) -> str:
        """Signs with what is in the environment of who runs it (curl 7.87 or newer)."""
        session = '${AWS_SESSION_TOKEN:+-H "x-amz-security-token: $AWS_SESSION_TOKEN"}'
        who = '"$AWS_ACCESS_KEY_ID:$AWS_SECRET_ACCESS_KEY"'
        nothing = f"-H x-amz-content-sha256:{hashlib.sha256().hexdigest()}"  # AWS wants it, curl leaves it out
        signed_for = shlex.quote(f"aws:amz:{self._connection.region}:s3")
        return f"--aws-sigv4 {signed_for} --user {who} {nothing} {session}"

    def probe(self) -> Iterator[Finding]:
        """Test the features of the server with small objects, and remove these. Raises as ProbedStore.probe."""
        from cafcat.stores.s3.probe import S3Probe

        return S3Probe(self).findings()

    @property
    def failed_checks(self) -> Collection[str]:
        """Values of the ServerChecks that the server failed."""
        return [check.value for check in self.checks.failed]

    @property
    def connection(self) -> S3Connection:
        """The bucket of the store."""
        return self._connection

    def bucket_key(self, key: str) -> str:
        """Return the key in the bucket of a key in the store. Raises InvalidInput."""
        return self._key(key)

    def _key(self, key: str) -> str:
        return self._prefix + check_key(key)

    def _object(self, key: str) -> RemoteObject:
        return RemoteObject(self._connection, self._key(key))


def _is_key(key: str) -> bool:
    """False for what is no object of ours: something else's, under a name that no store takes."""
    try:
        check_key(key)
    except InvalidInput:
        return False
    return True
