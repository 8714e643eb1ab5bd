"""Writes one object into a bucket with a multipart upload.

The object is invisible before CompleteMultipartUpload. This request has If-None-Match: *, which forbids to replace
another object. If the server promises to check CRC-64/NVME, every part is sent with its own checksum, and the
completion with that of all bytes. Other servers get the Content-MD5 of each part, and cafcat compares the tag of
the part with this MD5. After the completion, `cafcat.stores.s3.proof` checks that the object is the right one.
"""

import base64
import contextlib
import hashlib
from mmap import mmap
from typing import Any, Final

from cafcat.errors import CafcatError, Conflict, NotFound, StoreFailed
from cafcat.remote.answers import unquoted
from cafcat.remote.connection import S3Connection
from cafcat.remote.errors import translated
from cafcat.remote.reading import RemoteObject
from cafcat.stores.parted import PartedUpload
from cafcat.stores.s3.parts import PartBody, PartPlan
from cafcat.stores.s3.proof import Expected, prove
from cafcat.stores.s3.server_checks import ServerCheck, ServerChecks
from cafcat.stores.s3.unfinished import abort_uploads
from cafcat.support.checksums import to_base64
from cafcat.support.traffic import TRAFFIC

__all__ = ["S3Upload"]

_UNKNOWN_CHECKSUM: Final = ("NotImplemented", "InvalidRequest", "InvalidArgument", "UnsupportedArgument")
"""Error codes of servers that do not know the checksum algorithm."""
_COMPLETE_ATTEMPTS: Final = 3
"""Most times that a completion is sent."""


class S3Upload(PartedUpload[dict[str, Any]]):
    """One object that is being written into a bucket of S3."""

    def __init__(
        self,
        connection: S3Connection,
        checks: ServerChecks,
        key: str,
        plan: PartPlan,
        *,
        rewrites_head: bool = False,
    ) -> None:
        """Begin the multipart upload of a new object.

        Args:
            connection: The bucket.
            checks: The checks that the server failed.
            key: Key in the bucket (not in the store).
            plan: Size of the parts, and how many of them are sent at the same time.
            rewrites_head: True to send the first part last, after `rewrite_head`.

        Raises:
            NotFound: There is no such bucket.
            StoreFailed: The server fails.
            AccessDenied: The server refuses the credentials.
        """
        super().__init__(f"{connection.url}/{key}", plan, rewrites_head=rewrites_head)
        self._connection = connection
        self._checks = checks
        self._key = key
        self._where = {"Bucket": connection.bucket, "Key": key}
        self._parts_differ = False
        # Some servers use the MD5 of the whole object as its tag. It is computed from all bytes in order, which is
        # impossible if the first bytes change at the end.
        tags_differ = ServerCheck.ENTITY_TAG in checks
        self._md5 = hashlib.md5(usedforsecurity=False) if tags_differ and not rewrites_head else None
        self._upload_id, self._has_promise = self._begin()

    @property
    def upload_id(self) -> str | None:
        """Id of the multipart upload, with which `S3Store.discard` aborts it if its writer dies."""
        return self._upload_id

    @property
    def has_promise(self) -> bool:
        """True if the server promised to check and store the CRC-64/NVME of the object."""
        return self._has_promise

    def _begin(self) -> tuple[str, bool]:
        """Return the upload's id, and whether the server promises to check and store CRC-64/NVME.

        A request that needed a second attempt may have begun two uploads. Then all other uploads of the key are
        aborted.
        """
        with TRAFFIC.request(self._name), translated("write", self._name):
            answer = self._create()
        upload_id: str = answer["UploadId"]
        if answer["ResponseMetadata"].get("RetryAttempts"):
            abort_uploads(self._connection, self._checks, self._key, None, keep=upload_id)
        promise = (answer.get("ChecksumAlgorithm"), answer.get("ChecksumType"))
        return upload_id, promise == ("CRC64NVME", "FULL_OBJECT")

    def _create(self) -> Any:
        from botocore.exceptions import ClientError

        client: Any = self._connection.client
        options = self._where | {"ContentType": "application/octet-stream"}
        if ServerCheck.CHECKSUM in self._checks:
            return client.create_multipart_upload(**options)
        try:
            return client.create_multipart_upload(
                **options, ChecksumAlgorithm="CRC64NVME", ChecksumType="FULL_OBJECT"
            )
        except ClientError as error:
            if error.response.get("Error", {}).get("Code") not in _UNKNOWN_CHECKSUM:
                raise
            return client.create_multipart_upload(**options)

    def _see(self, part: memoryview) -> None:
        if self._md5 is not None:
            self._md5.update(part)

    def _put_part(self, number: int, buffer: mmap, size_bytes: int, checksum: int) -> dict[str, Any]:
        """Send a part, and return its number and entity tag for the completion."""
        with translated("write", self._name), PartBody(buffer, size_bytes) as body:
            md5 = None if self._has_promise else body.md5()
            answer = self._connection.client.upload_part(
                **self._where,  # type: ignore[arg-type]
                UploadId=self._upload_id,
                PartNumber=number,
                Body=body,  # type: ignore[arg-type]  # PartBody has the methods that boto3 calls
                **_part_checksum(checksum, md5),
            )
        # A server may ignore Content-MD5, and store bytes that were altered on their way.
        if md5 is not None and unquoted(answer["ETag"]) != md5.hex():
            self._parts_differ = True
        return {"PartNumber": number, "ETag": answer["ETag"]}

    def _discard(self) -> None:
        abort_uploads(self._connection, self._checks, self._key, self._upload_id)

    def _as_failure(self, error: BaseException) -> CafcatError:
        if isinstance(error, NotFound):
            return self._as_conflict() or StoreFailed(
                f"the multipart upload of {self._name} does not exist any more: {error.message}"
            )
        return super()._as_failure(error)

    def _as_conflict(self) -> Conflict | None:
        """Return the Conflict if the bucket has an object with this key; None if not, or if that cannot be checked.

        SeaweedFS removes all other uploads of a key as soon as one upload completes.
        """
        try:
            self._check_key_is_free()
        except Conflict as conflict:
            return conflict
        except CafcatError:
            return None
        return None

    def _finish(self, parts: list[dict[str, Any]]) -> str | None:
        """Complete the upload, in up to three attempts, and return the object's entity tag.

        After each attempt, a HEAD request shows whether the object exists and is the right one.

        Raises:
            Conflict: The bucket has another object with this key.
            StoreFailed: The server fails, or does not have the object in the end.
            AccessDenied: The server refuses the credentials or the request.
        """
        parts = sorted(parts, key=lambda part: part["PartNumber"])
        for attempt in range(1, _COMPLETE_ATTEMPTS + 1):
            answered, is_completed, is_gone = None, False, False
            failure = StoreFailed(f"{self._name} was written, but the server does not have it")
            try:
                answered, is_completed = self._ask_to_complete(parts), True
            except (Conflict, NotFound, StoreFailed) as error:
                failure = StoreFailed(error.message, hint="run the same command again")
                is_gone = error.kind == "not_found"
            try:
                whole = None if self._md5 is None else self._md5.hexdigest()
                return self._prove((answered, _etag_of(parts), whole), is_completed=is_completed)
            except NotFound:
                if is_gone or attempt == _COMPLETE_ATTEMPTS:
                    raise failure from None
        raise AssertionError("the last attempt returns or raises")

    def _ask_to_complete(self, parts: list[dict[str, Any]]) -> str | None:
        """Send the request that completes the upload, and return the entity tag in the answer."""
        if ServerCheck.CONDITIONAL_WRITES in self._checks:
            self._check_key_is_free()
        options: dict[str, Any] = {"IfNoneMatch": "*", "MpuObjectSize": self._size_bytes}
        if self._has_promise:
            options |= {"ChecksumCRC64NVME": to_base64(self._checksum), "ChecksumType": "FULL_OBJECT"}
        client: Any = self._connection.client
        with TRAFFIC.request(self._name), translated("write", self._name):
            answer = client.complete_multipart_upload(
                **self._where, UploadId=self._upload_id, MultipartUpload={"Parts": parts}, **options
            )
        return unquoted(answer.get("ETag"))

    def _check_key_is_free(self) -> None:
        """Raise Conflict if the bucket has an object with this key. Some servers would replace it."""
        with contextlib.suppress(NotFound):
            RemoteObject(self._connection, self._key).head()
            raise Conflict(f"cannot write {self._name}: an object with this key exists", chunk=self._name)

    def _prove(self, etags: tuple[str | None, ...], *, is_completed: bool) -> str | None:
        expected = Expected(
            self._size_bytes, self._checksum, etags, self._has_promise, self._parts_differ, is_completed
        )
        return prove(self._connection, self._checks, self._key, expected)


def _part_checksum(checksum: int, md5: bytes | None) -> Any:
    if md5 is None:
        return {"ChecksumCRC64NVME": to_base64(checksum)}
    return {"ContentMD5": base64.b64encode(md5).decode()}


def _etag_of(parts: list[dict[str, Any]]) -> str | None:
    """Return the entity tag that S3 gives an object in parts: the MD5 of the parts' MD5s, and the number of parts.

    An object with this tag is the uploaded one. None if the parts' tags are not MD5s: then this proof does not
    exist.
    """
    try:
        digests = b"".join(bytes.fromhex(part["ETag"].strip('"')) for part in parts)
    except ValueError:
        return None
    return f"{hashlib.md5(digests, usedforsecurity=False).hexdigest()}-{len(parts)}"
