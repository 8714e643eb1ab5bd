"""A connection to one bucket: boto3 for credentials and requests, obstore for reading objects.

A small read with obstore needs a fifth of boto3's CPU time (docs/performance.md). Both are imported at their first
use.
"""

from datetime import timedelta
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from cafcat.errors import InvalidInput
from cafcat.remote.access import S3Access
from cafcat.remote.answers import (
    BLOCK_BYTES,
    Answer,
    ObjectHead,
    content_range,
    nanoseconds,
    parse_time,
    quoted,
    unquoted,
)
from cafcat.remote.endpoint import known_endpoint
from cafcat.remote.errors import translated
from cafcat.support.forking import keep_open, renew_after_fork

if TYPE_CHECKING:
    import boto3
    from obstore.store import S3Store as ObstoreS3
    from types_boto3_s3 import S3Client

__all__ = ["S3Connection"]

CONNECT_SECONDS: Final = 10
"""Time limit for a connection to the server, in seconds."""
READ_SECONDS: Final = 60
"""How long a server may send nothing before the request fails, in seconds."""
RETRY_SECONDS: Final = 60
"""How long after its first attempt obstore repeats a request, in seconds."""
ATTEMPTS: Final = 6
"""Largest number of attempts of one request. The pauses between them grow, to some seconds in all. A read that
breaks off is begun again up to `_RESUMES` times in a row (remote/reading.py), each time with this many attempts."""
_CONNECTIONS: Final = 64
"""Largest number of connections that boto3 keeps open."""
_AWS_HOSTS: Final = (".amazonaws.com", ".amazonaws.com.cn")


class S3Connection:
    """The clients of boto3 and obstore for one bucket, created at their first use.

    Threads may share them. A forked process creates clients of its own.
    """

    def __init__(self, bucket: str, access: S3Access) -> None:
        self.bucket = bucket
        self.ranges_are_200 = False
        """True once the server answered a request for a range with status 200 instead of 206."""
        self._access = access
        self._lock = RLock()
        self._session: boto3.Session | None = None
        self._client: S3Client | None = None
        self._objects: ObstoreS3 | None = None
        renew_after_fork(self)

    @property
    def url(self) -> str:
        """URL of the bucket: "s3://bucket"."""
        return f"s3://{self.bucket}"

    @property
    def client(self) -> "S3Client":
        """Client of boto3.

        Raises:
            AccessDenied: The profile does not exist.
            InvalidInput: The URL of the server is invalid or contains credentials, or the file with the
                certificates cannot be read.
        """
        with self._lock:
            if self._client is None:
                self._client = self._new_client()
            return self._client

    @property
    def objects(self) -> "ObstoreS3":
        """Client of obstore, which reads objects of the bucket.

        Raises:
            AccessDenied: There are no credentials, or the profile does not exist.
            InvalidInput: As `client` raises it.
            NotFound, StoreFailed: The region had to be requested, and the bucket is missing or the server fails.
        """
        with self._lock:
            if self._objects is None:
                self._objects = self._new_objects()
            return self._objects

    @property
    def server_url(self) -> str:
        """URL of the server that the configuration leads to."""
        return self.client.meta.endpoint_url

    @property
    def region(self) -> str:
        """The configured region. Without one, a request to AWS finds the bucket's region, at each use.

        For any other server without a configured region, this is "us-east-1".

        Raises:
            NotFound: The request found no such bucket.
            AccessDenied, StoreFailed: The server refuses or fails.
        """
        configured = self._access.region or self._boto_session().region_name
        if configured or not self._is_aws():
            return configured or "us-east-1"
        with translated("look at", self.url):
            return self.client.head_bucket(Bucket=self.bucket).get("BucketRegion") or "us-east-1"

    @property
    def lists_after_any_key(self) -> bool:
        """True: a listing that begins after a key does not cost the keys before it, except in directory buckets."""
        return True

    @property
    def reads_versions(self) -> bool:
        """False: the entity tag of a version is a condition of each request."""
        return False

    @property
    def shows_cause(self) -> bool:
        """True: S3 answers 404 for a missing object, and 412 for a replaced one."""
        return True

    def tag_of(self, meta: Any) -> str | None:
        """Return the entity tag, without quotes, from the properties of an object that obstore returned."""
        return unquoted(meta["e_tag"])

    def head(self, key: str, etag: str | None) -> ObjectHead:
        """Return size, time and entity tag of an object: see `cafcat.remote.bucket.Bucket`."""
        condition = {"IfMatch": quoted(etag)} if etag else {}
        with translated("look at", f"{self.url}/{key}"):
            found: Any = self.client.head_object(Bucket=self.bucket, Key=key, **condition)  # type: ignore[arg-type]
        return ObjectHead(found["ContentLength"], nanoseconds(found["LastModified"]), unquoted(found.get("ETag")))

    def get(self, key: str, start_byte: int | None, end_byte: int | None, etag: str | None) -> Answer:
        """Send a GET request with boto3, and return the answer: see `cafcat.remote.bucket.Bucket`."""
        options: dict[str, Any] = {"Bucket": self.bucket, "Key": key}
        if start_byte is not None and end_byte is not None:
            options["Range"] = f"bytes={start_byte}-{end_byte - 1}"
        if etag:
            options["IfMatch"] = quoted(etag)
        found: Any = self.client.get_object(**options)
        first, last, size = content_range(found.get("ContentRange"), found["ContentLength"])
        head = ObjectHead(size, nanoseconds(found["LastModified"]), unquoted(found.get("ETag")))
        body, name = found["Body"], f"{self.url}/{key}"
        return Answer(name, head, first, last, body.read, lambda: body.iter_chunks(BLOCK_BYTES), body.close)

    def list_page(self, **options: Any) -> Any:
        """List one page of keys: see `cafcat.remote.bucket.Bucket`."""
        return self.client.list_objects_v2(Bucket=self.bucket, **options)

    def http_url(self, key: str) -> str:
        """Return the http(s) URL of an object, unsigned."""
        return self._signed_url(self._unsigned_client(), {"Key": key}, 1)

    def presigned_url(self, key: str, range_header: str, seconds: int) -> str:
        """Return a URL that reads one range of one object until it expires.

        The signature covers the range.

        Args:
            key: Key in the bucket.
            range_header: Value of the Range header, which the request must have.
            seconds: How long the URL is valid.
        """
        return self._signed_url(self.client, {"Key": key, "Range": range_header}, seconds)

    def _signed_url(self, client: "S3Client", parameters: dict[str, str], seconds: int) -> str:
        parameters = {"Bucket": self.bucket} | parameters
        with translated("sign a URL for", f"{self.url}/{parameters['Key']}"):
            return client.generate_presigned_url("get_object", Params=parameters, ExpiresIn=seconds)

    def _is_aws(self) -> bool:
        host = urlsplit(self._endpoint_url()).hostname or ""
        return host.endswith(_AWS_HOSTS)

    def _endpoint_url(self) -> str:
        """Return the URL of the server. A client of boto3 is created only if it is needed for that."""
        found = None if self._client else known_endpoint(self._boto_session(), self._access)
        return found or self.client.meta.endpoint_url

    def _boto_session(self) -> "boto3.Session":
        import boto3

        if self._session is None:
            with translated("use", self.url):
                session = boto3.Session(profile_name=self._access.profile)
            # botocore takes 70 µs for each time of a listing. awscli replaces its parser in the same way.
            parsers: Any = session._session.get_component("response_parser_factory")
            parsers.set_parser_defaults(timestamp_parser=parse_time)
            self._session = session
        return self._session

    def _new_client(self, signature: Any = "s3v4") -> "S3Client":
        from botocore.config import Config

        self._certificates()  # botocore finds an unreadable file only at its first request
        config = Config(
            signature_version=signature,
            connect_timeout=CONNECT_SECONDS,
            read_timeout=READ_SECONDS,
            retries={"mode": "standard", "total_max_attempts": ATTEMPTS},
            max_pool_connections=_CONNECTIONS,
            tcp_keepalive=True,
            # cafcat itself sets the checksums of chunks and their parts; other requests need none.
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
            s3={"addressing_style": self._access.addressing},
            user_agent_extra="cafcat",
        )
        # A region that is set to an empty text counts as not set.
        region = self._access.region or self._boto_session().region_name or "us-east-1"
        try:
            with translated("use", self.url):
                client = self._boto_session().client(
                    "s3", endpoint_url=self._access.endpoint_url, region_name=region, config=config
                )
        except ValueError as error:
            hint = "write AWS_ENDPOINT_URL, or endpoint_url in a configuration, as https://host:port"
            raise InvalidInput("the URL of the S3 server is not valid", hint=hint) from error
        if "@" in urlsplit(client.meta.endpoint_url).netloc:
            hint = "put credentials into AWS' own configuration or environment"
            raise InvalidInput("the URL of the S3 server contains a user or password", hint=hint)
        return client

    def _unsigned_client(self) -> "S3Client":
        from botocore import UNSIGNED

        return self._new_client(UNSIGNED)

    def _new_objects(self) -> "ObstoreS3":
        with translated("use", self.url):
            from obstore.store import S3Store

            endpoint = {} if self._is_aws() else self._custom_endpoint()
            return S3Store(
                self.bucket,
                region=self.region,
                credential_provider=self._credentials(),
                client_options=self._client_options(),
                retry_config={"max_retries": ATTEMPTS - 1, "retry_timeout": timedelta(seconds=RETRY_SECONDS)},
                **endpoint,
            )

    def _client_options(self) -> Any:
        return {
            "allow_http": True,
            "connect_timeout": timedelta(seconds=CONNECT_SECONDS),
            "read_timeout": timedelta(seconds=READ_SECONDS),
            # The limit for a whole answer, which may be a large object: read_timeout ends silent requests.
            "timeout": timedelta(days=7),
            "user_agent": "cafcat",
        } | self._certificates()

    def _custom_endpoint(self) -> dict[str, Any]:
        endpoint = self._endpoint_url()
        if self._access.addressing == "virtual":
            scheme, _, rest = endpoint.partition("://")
            return {"endpoint": f"{scheme}://{self.bucket}.{rest}", "virtual_hosted_style_request": True}
        return {"endpoint": endpoint, "virtual_hosted_style_request": False}

    def _credentials(self) -> Any:
        from botocore.exceptions import NoCredentialsError
        from obstore.auth.boto3 import Boto3CredentialProvider

        session = self._boto_session()
        if session.get_credentials() is None:
            raise NoCredentialsError
        # boto3 renews credentials ten minutes before they expire: obstore must not cache them for longer.
        return Boto3CredentialProvider(session, ttl=timedelta(minutes=5))

    def _certificates(self) -> dict[str, str]:
        """Return the option for obstore with the certificates that AWS_CA_BUNDLE or the profile names.

        Raises:
            InvalidInput: The file cannot be read.
        """
        file = self._boto_session()._session.get_config_variable("ca_bundle")
        try:
            return {"root_certificate": Path(file).read_text()} if file else {}
        except (OSError, UnicodeDecodeError) as error:
            hint = "set AWS_CA_BUNDLE, or ca_bundle of the profile, to a file in PEM format"
            raise InvalidInput(f"the certificates in {file} cannot be read: {error}", hint=hint) from error

    def after_fork(self) -> None:
        """Forget the clients of the parent in a forked process. The next request creates new ones."""
        keep_open(self._session, self._client, self._objects)
        self._lock = RLock()  # another thread of the parent may have held the lock
        self._session = self._client = self._objects = None
