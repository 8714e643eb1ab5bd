"""Writes one object into a bucket with a multipart upload. Parts are sent while the next one is filled.

The object is invisible before CompleteMultipartUpload. This request has If-None-Match: *, which forbids to replace
another object. If the server promises to check CRC-64/NVME, every part is sent with its own checksum, and the
completion with that of all bytes. Other servers get the Content-MD5 of each part, and cafcat compares the tag of
the part with this MD5. After the completion, `cafcat.stores.s3.proof` checks that the object is the right one.
"""

import base64
import contextlib
import hashlib
from concurrent.futures import Future, ThreadPoolExecutor
from mmap import mmap
from queue import SimpleQueue
from typing import Any, Final, NamedTuple

from cafcat.errors import CafcatError, Conflict, InvalidInput, NotFound, StoreFailed
from cafcat.remote.connection import S3Connection
from cafcat.remote.errors import translated
from cafcat.remote.reading import RemoteObject, unquoted
from cafcat.stores.s3.parts import PartBody, PartPlan
from cafcat.stores.s3.proof import Expected, prove
from cafcat.stores.s3.server_checks import ServerCheck, ServerChecks
from cafcat.stores.s3.unfinished import abort_uploads
from cafcat.support.checksums import combined, crc64nvme, to_base64

__all__ = ["S3Upload"]

_UNKNOWN_CHECKSUM: Final = ("NotImplemented", "InvalidRequest", "InvalidArgument", "UnsupportedArgument")
"""Error codes of servers that do not know the checksum algorithm."""
_COMPLETE_ATTEMPTS: Final = 3
"""Most times that a completion is sent."""


class _BufferedPart(NamedTuple):
    """A part of a multipart upload that has not been sent yet.

    Attributes:
        buffer: Memory with the bytes of the part at its beginning.
        size_bytes: Size of the part.
    """

    buffer: mmap
    size_bytes: int


class S3Upload:
    """One object that is being written into a bucket.

    `write` copies the bytes, and waits while all buffers are in use.
    """

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
        self._connection = connection
        self._checks = checks
        self._key = key
        self._name = f"{connection.url}/{key}"
        self._where = {"Bucket": connection.bucket, "Key": key}
        self._plan = plan
        self._size_bytes = 0
        self._checksum = 0
        self._keeps_head = rewrites_head
        self._head: _BufferedPart | None = None
        self._etag: str | None = None
        self._failure: CafcatError | None = None
        self._ended = False
        self._parts_differ = False
        # Some servers use the MD5 of the whole object as its tag. It is computed from all bytes in order, which is
        # impossible if the first bytes change at the end.
        tags_differ = ServerCheck.ENTITY_TAG in checks
        self._md5 = hashlib.md5(usedforsecurity=False) if tags_differ and not rewrites_head else None
        self._upload_id, self._has_promise = self._begin()
        # Memory maps return their memory when they are closed, and use it only as far as they are filled.
        self._free: SimpleQueue[mmap] = SimpleQueue()
        # A first part that waits uses the memory of one part in flight, unless that is the only one.
        in_flight = max(1, plan.in_flight - rewrites_head)
        for _ in range(in_flight):
            self._free.put(mmap(-1, plan.part_bytes))
        self._part = mmap(-1, plan.part_bytes)
        self._used = 0
        self._parts: list[Future[dict[str, Any]]] = []
        self._pool = ThreadPoolExecutor(in_flight, thread_name_prefix="cafcat-upload")

    @property
    def upload_id(self) -> str | None:
        """Id of the multipart upload, with which `S3Store.discard` aborts it if its writer dies."""
        return self._upload_id

    @property
    def has_promise(self) -> bool:
        """True if the server promised to check and store the CRC-64/NVME of the object."""
        return self._has_promise

    @property
    def etag(self) -> str | None:
        """Entity tag of the committed object, without quotes; None before the commit."""
        return self._etag

    def write(self, data: bytes | memoryview) -> None:
        """Append bytes to the new object. The caller may change the buffer as soon as this returns.

        Raises:
            Conflict: An earlier part could not be sent, because another writer has created the object.
            StoreFailed: An earlier part could not be sent for another reason, or the upload has ended. Later calls
                of `write`, `rewrite_head` and `commit` fail, too.
        """
        self._check_usable()
        rest = memoryview(data).cast("B")
        while rest:
            piece = rest[: self._plan.part_bytes - self._used]
            self._part[self._used : self._used + len(piece)] = piece
            self._used += len(piece)
            rest = rest[len(piece) :]
            if self._used == self._plan.part_bytes:
                self._send_part()
        self._size_bytes += len(data) if isinstance(data, bytes) else data.nbytes

    def commit(self, crc64nvme: int | None = None) -> None:
        """Complete the upload, and check that the server has the bytes that were written.

        Args:
            crc64nvme: CRC-64/NVME of the bytes, computed by the caller, to compare it with the one that this class
                computes. None: the caller computed none.

        Raises:
            Conflict: The bucket has another object with this key.
            StoreFailed: The server fails, the checksums differ because the bytes changed in memory, or the upload
                has ended. If the server fails, the object may be visible nevertheless.
            AccessDenied: The server refuses the credentials or the request.
        """
        self._check_usable()
        try:
            if self._used or not (self._parts or self._head):  # an empty object has one empty part
                self._send_part()
            self._send_head()
            parts = sorted((part.result() for part in self._parts), key=lambda part: part["PartNumber"])
            if crc64nvme is not None and crc64nvme != self._checksum:
                raise StoreFailed(f"the bytes of {self._name} changed in memory before they were sent")
            self._etag = self._complete(parts)
        except CafcatError as error:
            self._failure = error
            raise
        except BaseException as error:
            self._failure = StoreFailed(f"writing {self._name} was interrupted: {error!r}")
            raise
        self._end()

    def abort(self) -> None:
        """Abort the upload, which removes its parts.

        Errors are suppressed, because `S3Store.discard` can remove the parts later. Idempotent. After a commit,
        this does nothing.
        """
        if not self._ended:
            self._end()
            with contextlib.suppress(CafcatError):
                abort_uploads(self._connection, self._checks, self._key, self._upload_id)

    def _begin(self) -> tuple[str, bool]:
        """Return the upload's id, and whether the server promises to check and store CRC-64/NVME.

        A request that needed a second attempt may have begun two uploads. Then all other uploads of the key are
        aborted.
        """
        with translated("write", self._name):
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

    def rewrite_head(self, data: bytes) -> None:
        """Replace the first bytes of the object. The part with these bytes is only sent by `commit`.

        Args:
            data: The new bytes, no more than the first part has.

        Raises:
            InvalidInput: The upload was begun without rewrites_head, or no bytes were written.
            Conflict: An earlier part could not be sent, because another writer has created the object.
            StoreFailed: An earlier part could not be sent for another reason, or the upload has ended.
        """
        self._check_usable()
        if self._used:
            self._send_part()
        if self._head is None:
            reason = "no bytes were written, or the upload was begun without rewrites_head"
            raise InvalidInput(f"the head of {self._name} cannot be replaced: {reason}")
        buffer, size_bytes = self._head
        others_bytes = self._size_bytes - size_bytes
        with memoryview(buffer) as view, view[:size_bytes] as part:
            # The checksum is linear: adding the old part a second time removes it.
            others = combined(crc64nvme(part), self._checksum, others_bytes)
            part[: len(data)] = data
            self._checksum = combined(crc64nvme(part), others, others_bytes)

    def _send_part(self) -> None:
        """Begin to send the part in the buffer to the server, in a thread, and wait for a free buffer.

        The first part is kept back until `commit` if the head of the object is going to be rewritten.
        """
        buffer, size_bytes = self._part, self._used
        with memoryview(buffer) as view, view[:size_bytes] as part:
            self._checksum = crc64nvme(part, self._checksum)
            if self._md5 is not None:
                self._md5.update(part)
        if self._keeps_head:
            self._keeps_head, self._head = False, _BufferedPart(buffer, size_bytes)
            self._part, self._used = mmap(-1, self._plan.part_bytes), 0
            return
        number = len(self._parts) + (1 if self._head is None else 2)
        self._submit(number, buffer, size_bytes)
        self._part, self._used = self._free.get(), 0
        self._check_usable()

    def _send_head(self) -> None:
        if self._head is not None:
            self._submit(1, *self._head)

    def _submit(self, number: int, buffer: mmap, size_bytes: int) -> None:
        with memoryview(buffer) as view, view[:size_bytes] as part:
            checksum = crc64nvme(part)
        self._parts.append(self._pool.submit(self._upload_part, number, buffer, size_bytes, checksum))

    def _upload_part(self, number: int, buffer: mmap, size_bytes: int, checksum: int) -> dict[str, Any]:
        """Send a part, in a thread of the pool, and return its number and entity tag for the completion.

        The buffer can be filled again when the server has the bytes, or the request has failed. Raises the first
        error of any part.
        """
        try:
            if self._failure is not None:
                raise self._failure
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
        except BaseException as error:
            self._failure = self._failure or self._as_failure(error)
            raise self._failure from error
        finally:
            self._free.put(buffer)

    def _as_failure(self, error: BaseException) -> CafcatError:
        if isinstance(error, NotFound):
            return self._as_conflict() or StoreFailed(
                f"the multipart upload of {self._name} does not exist any more: {error.message}"
            )
        return error if isinstance(error, CafcatError) else StoreFailed(f"writing {self._name} failed: {error!r}")

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

    def _complete(self, parts: list[dict[str, Any]]) -> str | None:
        """Complete the upload, in up to three attempts, and return the object's entity tag.

        After each attempt, a HEAD request shows whether the object exists and is the right one.

        Raises:
            Conflict: The bucket has another object with this key.
            StoreFailed: The server fails, or does not have the object in the end.
            AccessDenied: The server refuses the credentials or the request.
        """
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
        with translated("write", self._name):
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

    def _check_usable(self) -> None:
        if isinstance(self._failure, Conflict):
            raise self._failure
        if self._failure is not None:
            raise StoreFailed(f"writing {self._name} failed: {self._failure.message}") from self._failure
        if self._ended:
            raise InvalidInput(f"the upload of {self._key} has ended")

    def _end(self) -> None:
        self._ended = True
        self._failure = self._failure or InvalidInput(f"the upload of {self._key} has ended")
        self._pool.shutdown(wait=True)
        self._parts.clear()
        self._part.close()
        self._head = None
        while not self._free.empty():
            self._free.get().close()


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
