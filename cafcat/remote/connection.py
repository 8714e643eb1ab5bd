"""A connection to one bucket: boto3 for identity and control, obstore for reading.

Measured (docs/performance.md): a small read costs obstore a fifth of boto3's CPU time. Neither is imported before
it is needed.
"""

from datetime import timedelta
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from cafcat.errors import InvalidInput
from cafcat.remote.access import S3Access
from cafcat.remote.errors import translated

if TYPE_CHECKING:
    import boto3
    from obstore.store import S3Store as ObstoreS3
    from types_boto3_s3 import S3Client

__all__ = ["S3Connection"]

CONNECT_SECONDS: Final = 10
READ_SECONDS: Final = 60
"""A server that says nothing for so long is not there any more."""
RETRY_SECONDS: Final = 60
"""So long after it was first sent, obstore does not send a request again."""
ATTEMPTS: Final = 6
"""Of each request; between them it waits ever longer, some seconds in all. A read that breaks off begins anew, so
often as `_RESUMES` in remote/reading.py says, each time with as many."""
_CONNECTIONS: Final = 64
_AWS_HOSTS: Final = (".amazonaws.com", ".amazonaws.com.cn")


class S3Connection:
    """Both clients, made at first use. Safe to share by threads."""

    def __init__(self, bucket: str, access: S3Access) -> None:
        self.bucket = bucket
        self.ranges_are_200 = False
        """The server answered a range with the status 200 instead of 206."""
        self._access = access
        self._lock = RLock()
        self._session: boto3.Session | None = None
        self._client: S3Client | None = None
        self._objects: ObstoreS3 | None = None

    @property
    def url(self) -> str:
        """ "s3://bucket"."""
        return f"s3://{self.bucket}"

    @property
    def client(self) -> "S3Client":
        """boto3's client. Raises AccessDenied for a profile that is not there."""
        with self._lock:
            if self._client is None:
                self._client = self._new_client()
            return self._client

    @property
    def objects(self) -> "ObstoreS3":
        """obstore's view of the bucket. Raises AccessDenied if there are no credentials."""
        with self._lock:
            if self._objects is None:
                self._objects = self._new_objects()
            return self._objects

    @property
    def server_url(self) -> str:
        """The endpoint that the configuration leads to."""
        return self.client.meta.endpoint_url

    @property
    def region(self) -> str:
        """That of the configuration; if it names none, the one that the bucket says it is in: one request."""
        configured = self._access.region or self._boto_session().region_name
        if configured or not self._is_aws():
            return configured or "us-east-1"
        with translated("look at", self.url):
            return self.client.head_bucket(Bucket=self.bucket).get("BucketRegion") or "us-east-1"

    def http_url(self, key: str) -> str:
        """The http(s) URL of an object, unsigned."""
        return self._signed_url(self._unsigned_client(), {"Key": key}, 1)

    def presigned_url(self, key: str, range_header: str, seconds: int) -> str:
        """A URL that reads one range of one object until it expires: the range is part of what is signed."""
        return self._signed_url(self.client, {"Key": key, "Range": range_header}, seconds)

    def _signed_url(self, client: "S3Client", parameters: dict[str, str], seconds: int) -> str:
        parameters = {"Bucket": self.bucket} | parameters
        with translated("sign a URL for", f"{self.url}/{parameters['Key']}"):
            return client.generate_presigned_url("get_object", Params=parameters, ExpiresIn=seconds)

    def _is_aws(self) -> bool:
        host = urlsplit(self.client.meta.endpoint_url).hostname or ""
        return host.endswith(_AWS_HOSTS)

    def _boto_session(self) -> "boto3.Session":
        import boto3

        if self._session is None:
            with translated("use", self.url):
                self._session = boto3.Session(profile_name=self._access.profile)
        return self._session

    def _new_client(self, signature: Any = "s3v4") -> "S3Client":
        from botocore.config import Config

        config = Config(
            signature_version=signature,
            connect_timeout=CONNECT_SECONDS,
            read_timeout=READ_SECONDS,
            retries={"mode": "standard", "total_max_attempts": ATTEMPTS},
            max_pool_connections=_CONNECTIONS,
            tcp_keepalive=True,
            # Whole chunks and their parts carry CRC-64/NVME of our own; other requests need none.
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
            s3={"addressing_style": self._access.addressing},
            user_agent_extra="cafcat",
        )
        # A region that is set to nothing is not set.
        region = self._access.region or self._boto_session().region_name or "us-east-1"
        try:
            with translated("use", self.url):
                client = self._boto_session().client(
                    "s3", endpoint_url=self._access.endpoint_url, region_name=region, config=config
                )
        except ValueError as error:
            hint = "write AWS_ENDPOINT_URL, or endpoint_url in a configuration, as https://host:port"
            raise InvalidInput("the URL of the S3 server is none", hint=hint) from error
        if "@" in urlsplit(client.meta.endpoint_url).netloc:
            hint = "credentials belong into AWS' own configuration or environment"
            raise InvalidInput("the URL of an S3 server has no user or password in it", hint=hint)
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
            # Of a whole answer: what limits it is read_timeout, however long a large object takes.
            "timeout": timedelta(days=7),
            "user_agent": "cafcat",
        } | self._certificates()

    def _custom_endpoint(self) -> dict[str, Any]:
        endpoint = self.client.meta.endpoint_url
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
        # boto3 renews credentials ten minutes before they end: what is kept must not be kept for longer.
        return Boto3CredentialProvider(session, ttl=timedelta(minutes=5))

    def _certificates(self) -> dict[str, str]:
        """Of a server with a certificate of its own: what AWS_CA_BUNDLE or the profile's ca_bundle names."""
        file = self._boto_session()._session.get_config_variable("ca_bundle")
        return {"root_certificate": Path(file).read_text()} if file else {}
