"""Answers requests of the S3 protocol. All calls block; the ASGI application runs them in threads."""

from collections.abc import Callable
from functools import lru_cache
from typing import Final

from cafcat.model import Location
from cafcat.packed_files import PackedFiles
from cafcat.serve.s3.answer import Answer
from cafcat.serve.s3.claims import QUERY_NAMES
from cafcat.serve.s3.errors import S3Error
from cafcat.serve.s3.keys import Key, KeyRing
from cafcat.serve.s3.listing import list_objects
from cafcat.serve.s3.namespace import OWNER_ID, Namespace
from cafcat.serve.s3.objects import Objects, attributes
from cafcat.serve.s3.options import S3Options
from cafcat.serve.s3.request import S3Request
from cafcat.serve.s3.signature import authenticate
from cafcat.serve.s3.version_listing import list_versions
from cafcat.serve.s3.visible import Visible

__all__ = ["S3Service"]

_READING: Final = ("GET", "HEAD")
# Parameters that change nothing: some SDKs name the operation by x-id, and presigned URLs have the others.
_PLAIN_NAMES: Final = frozenset(("x-id", *QUERY_NAMES))
# The other parts of a bucket or object that Amazon S3 has: their names as parameters without a value.
_UNSUPPORTED: Final = frozenset(
    (
        "accelerate",
        "acl",
        "analytics",
        "cors",
        "encryption",
        "intelligent-tiering",
        "inventory",
        "legal-hold",
        "lifecycle",
        "logging",
        "metadataConfiguration",
        "metadataTable",
        "metrics",
        "notification",
        "object-lock",
        "ownershipControls",
        "policy",
        "policyStatus",
        "publicAccessBlock",
        "replication",
        "requestPayment",
        "restore",
        "retention",
        "select",
        "session",
        "tagging",
        "torrent",
        "uploadId",
        "uploads",
        "website",
    )
)


class S3Service:
    """Answers requests from one catalog. Threads may share a service."""

    def __init__(self, repository: PackedFiles, options: S3Options) -> None:
        """Create a service.

        Args:
            repository: Finds and reads files.
            options: Options of the server.

        Raises:
            InvalidInput: An option is invalid.
        """
        options.check()
        self._catalog = repository.session.catalog
        self._options = options
        self._keys = KeyRing(repository.session, options.key_seconds)
        self._public = tuple(options.public_folders())
        self._namespace = Namespace(self._catalog.reading.files, options)
        self._objects = Objects(repository, self._namespace)

    def answer(self, request: S3Request) -> Answer:
        """Return the answer to a request.

        Raises:
            S3Error: The request is refused.
            CafcatError: The catalog or a store fails.
        """
        if request.method == "OPTIONS":
            raise _no_cors(request)
        if request.method not in _READING:
            message = "The specified method is not allowed against this resource."
            raise S3Error("MethodNotAllowed", message, {"Method": request.method}, {"allow": ", ".join(_READING)})
        bucket, key = request.target(self._options.domain)
        signer = authenticate(request, self._options.region, self._keys.find)
        _check_owner(request, bucket)
        visible = self._visible(signer)
        unsupported = sorted(_UNSUPPORTED & request.parameters.keys())
        if unsupported:
            message = "A header or query you provided implies functionality that is not implemented"
            raise S3Error("NotImplemented", message, {"Query": unsupported[0]})
        if key:
            return self._of_object(request, bucket, key, visible, is_signed=signer is not None)
        if bucket:
            return self._of_bucket(request, bucket, visible)
        return self._namespace.list_buckets(request, visible)

    def plain_path(self, request: S3Request) -> str | None:
        """Return the path of the file that a plain request is for; None if `answer` has to answer the request.

        A plain request is GetObject or HeadObject without further parameters, by a client whose access key is
        remembered. This sends no query, so it does not block. A request without permission is never plain.
        """
        if request.method not in _READING or (request.pairs and not _PLAIN_NAMES.issuperset(request.parameters)):
            return None
        try:
            bucket, key = request.target(self._options.domain)
            signer = authenticate(request, self._options.region, self._keys.remembered)
            _check_owner(request, bucket)
            path = self._namespace.base(bucket) + key
        except S3Error:
            return None
        return path if key and path in self._visible(signer) else None

    def plain_answer(self, request: S3Request, location: Location, data: bytes | None) -> Answer:
        """Return the answer to a plain request.

        Args:
            request: The request, for which `plain_path` returned a path.
            location: Where the file with this path is.
            data: All bytes of the file, if they were read before.

        Raises:
            S3Error: A condition is not met, or the range is not in the file.
            CafcatError: The file cannot be read.
        """
        return self._objects.read(request, location, is_signed=False, data=data)

    def _visible(self, signer: Key | None) -> Visible:
        return _visible(self._public if signer is None else (*self._public, signer.prefix))

    def _of_object(self, request: S3Request, bucket: str, key: str, visible: Visible, *, is_signed: bool) -> Answer:
        location = self._objects.find(request, bucket, key, visible)
        if "attributes" in request.parameters and request.method == "GET":
            return attributes(request, location)
        return self._objects.read(request, location, is_signed=is_signed)

    def _of_bucket(self, request: S3Request, bucket: str, visible: Visible) -> Answer:
        if request.method == "HEAD":
            return self._namespace.head(bucket, visible)
        parts: dict[str, Callable[[str, Visible], Answer]] = {
            "location": self._namespace.location,
            "versioning": self._namespace.versioning,
        }
        for name, answer in parts.items():
            if name in request.parameters:
                return answer(bucket, visible)
        if "versions" in request.parameters:
            return list_versions(self._catalog.versions, self._namespace, request, bucket, visible)
        return list_objects(self._catalog.reading.files, self._namespace, request, bucket, visible)


@lru_cache(maxsize=1024)
def _visible(folders: tuple[str, ...]) -> Visible:
    """Return the files below some folders: the same object for the requests of one client."""
    return Visible(folders)


def _no_cors(request: S3Request) -> S3Error:
    """Return the answer of Amazon S3 to the preflight request of a browser, for a bucket without CORS."""
    if "origin" not in request.headers:
        return S3Error("BadRequest", "Insufficient information. Origin request header needed.")
    return S3Error("AccessForbidden", "CORSResponse: CORS is not enabled for this bucket.")


def _check_owner(request: S3Request, bucket: str) -> None:
    """Raise AccessDenied if the client expects another owner of the bucket."""
    if bucket and request.headers.get("x-amz-expected-bucket-owner", OWNER_ID) != OWNER_ID:
        raise S3Error("AccessDenied", "Access Denied")
