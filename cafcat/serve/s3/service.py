"""Answers requests of the S3 protocol. All calls block; the ASGI application runs them in threads."""

from collections.abc import Callable
from typing import Final

from cafcat.packed_files import PackedFiles
from cafcat.serve.s3.answer import Answer
from cafcat.serve.s3.errors import S3Error
from cafcat.serve.s3.keys import KeyRing
from cafcat.serve.s3.listing import list_objects
from cafcat.serve.s3.namespace import Namespace
from cafcat.serve.s3.objects import Objects, attributes
from cafcat.serve.s3.options import S3Options
from cafcat.serve.s3.request import S3Request
from cafcat.serve.s3.signature import authenticate
from cafcat.serve.s3.version_listing import list_versions
from cafcat.serve.s3.visible import Visible

__all__ = ["S3Service"]

_READING: Final = ("GET", "HEAD")
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
        self._public = options.public_folders()
        self._namespace = Namespace(self._catalog.files, options)
        self._objects = Objects(repository, self._namespace)

    def answer(self, request: S3Request) -> Answer:
        """Return the answer to a request.

        Raises:
            S3Error: The request is refused.
            CafcatError: The catalog or a store fails.
        """
        if request.method not in _READING:
            message = "The specified method is not allowed against this resource."
            raise S3Error("MethodNotAllowed", message, {"Method": request.method}, {"allow": ", ".join(_READING)})
        bucket, key = request.target(self._options.domain)
        signer = authenticate(request, self._options.region, self._keys.find)
        visible = Visible([*self._public, *([] if signer is None else [signer.prefix])])
        unsupported = sorted(_UNSUPPORTED & request.parameters.keys())
        if unsupported:
            message = "A header or query you provided implies functionality that is not implemented"
            raise S3Error("NotImplemented", message, {"Query": unsupported[0]})
        if key:
            return self._of_object(request, bucket, key, visible, is_signed=signer is not None)
        if bucket:
            return self._of_bucket(request, bucket, visible)
        return self._namespace.list_buckets(request, visible)

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
        return list_objects(self._catalog.files, self._namespace, request, bucket, visible)
