"""Writing one object into a bucket: a multipart upload, parts on their way while the next one is filled.

Nobody sees the object before CompleteMultipartUpload, which does not replace another (If-None-Match: *). Every part
carries its CRC-64/NVME, and the whole object that of all bytes; a server that does not know these gets
Content-MD5. An answer that was lost is settled by looking at what is there.
"""

import base64
import contextlib
import hashlib
from concurrent.futures import Future, ThreadPoolExecutor
from mmap import mmap
from queue import SimpleQueue
from typing import Any, Final, NamedTuple, NoReturn

from cafcat.checksums import combined, crc64nvme, to_base64
from cafcat.errors import CafcatError, Conflict, InvalidInput, NotFound, StoreFailed
from cafcat.remote.connection import S3Connection
from cafcat.remote.errors import translated
from cafcat.remote.reading import unquoted
from cafcat.stores.s3_parts import PartBody, PartPlan

__all__ = ["S3Upload", "abort_uploads"]

_UNKNOWN_CHECKSUM: Final = ("NotImplemented", "InvalidRequest", "InvalidArgument", "UnsupportedArgument")
_COMPLETE_ATTEMPTS: Final = 3
_ABORT_ROUNDS: Final = 5


class _HeldPart(NamedTuple):
    """A part that is not sent yet."""

    buffer: mmap
    size_bytes: int


class S3Upload:
    """One object being written. `write` copies, and waits while all parts are full or on their way."""

    def __init__(self, connection: S3Connection, key: str, plan: PartPlan, *, rewrites_head: bool = False) -> None:
        """Args: key: in the bucket, not in the store; rewrites_head: the first part waits for its head. Begins
        the upload: one request. Raises StoreFailed, NotFound if there is no such bucket, AccessDenied."""
        self._connection = connection
        self._key = key
        self._name = f"{connection.url}/{key}"
        self._where = {"Bucket": connection.bucket, "Key": key}
        self._plan = plan
        self._size_bytes = 0
        self._checksum = 0
        self._holds_head = rewrites_head
        self._head: _HeldPart | None = None
        self._etag: str | None = None
        self._failure: CafcatError | None = None
        self._ended = False
        self._upload_id, self._checked = self._begin()
        # Maps are given back when they are closed, and take memory only as far as they are filled.
        self._free: SimpleQueue[mmap] = SimpleQueue()
        # A first part that waits takes the memory of one on its way, unless that is the only one.
        in_flight = max(1, plan.in_flight - rewrites_head)
        for _ in range(in_flight):
            self._free.put(mmap(-1, plan.part_bytes))
        self._part = mmap(-1, plan.part_bytes)
        self._used = 0
        self._parts: list[Future[dict[str, Any]]] = []
        self._pool = ThreadPoolExecutor(in_flight, thread_name_prefix="cafcat-upload")

    @property
    def upload_id(self) -> str | None:
        return self._upload_id

    @property
    def etag(self) -> str | None:
        return self._etag

    def write(self, data: bytes | memoryview) -> None:
        """Appends. The data may be changed as soon as this returns. Raises StoreFailed, also for an earlier
        part."""
        self._check_usable()
        rest = memoryview(data).cast("B")
        while rest:
            taken = rest[: self._plan.part_bytes - self._used]
            self._part[self._used : self._used + len(taken)] = taken
            self._used += len(taken)
            rest = rest[len(taken) :]
            if self._used == self._plan.part_bytes:
                self._send_part()
        self._size_bytes += len(data) if isinstance(data, bytes) else data.nbytes

    def commit(self, crc64nvme: int | None = None) -> None:
        """Completes the upload, and looks whether the server has what was written: size, entity tag, and its
        checksum where it keeps one. Raises Conflict if the key is taken."""
        self._check_usable()
        try:
            if self._used or not (self._parts or self._head):  # an object of no bytes has one part of none
                self._send_part()
            self._send_head()
            parts = sorted((part.result() for part in self._parts), key=lambda part: part["PartNumber"])
            if crc64nvme is not None and crc64nvme != self._checksum:
                raise StoreFailed(f"the bytes of {self._name} changed in memory on their way to the store")
            self._etag = self._complete(parts)
        except CafcatError as error:
            self._failure = error
            raise
        except BaseException as error:
            self._failure = StoreFailed(f"writing {self._name} was interrupted: {error!r}")
            raise
        self._end()

    def abort(self) -> None:
        """Removes what was written. Never raises for what cannot be removed: `discard` of the store can later."""
        if not self._ended:
            self._end()
            with contextlib.suppress(CafcatError):
                abort_uploads(self._connection, self._key, self._upload_id)

    def _begin(self) -> tuple[str, bool]:
        """The upload's id, and whether the server takes our checksums. An upload whose answer was lost, which is
        known by a second attempt, is removed at once."""
        with translated("write", self._name):
            answer, checked = self._create()
        upload_id: str = answer["UploadId"]
        if answer["ResponseMetadata"].get("RetryAttempts"):
            abort_uploads(self._connection, self._key, None, keep=upload_id)
        return upload_id, checked

    def _create(self) -> tuple[Any, bool]:
        from botocore.exceptions import ClientError

        client: Any = self._connection.client
        content = {"ContentType": "application/octet-stream"}
        try:
            options = {"ChecksumAlgorithm": "CRC64NVME", "ChecksumType": "FULL_OBJECT"}
            return client.create_multipart_upload(**self._where, **content, **options), True
        except ClientError as error:
            if error.response.get("Error", {}).get("Code") not in _UNKNOWN_CHECKSUM:
                raise
            return client.create_multipart_upload(**self._where, **content), False

    def rewrite_head(self, data: bytes) -> None:
        """Changes the first part, which was not sent yet."""
        self._check_usable()
        if self._used:
            self._send_part()
        if self._head is None:
            raise InvalidInput(f"the head of {self._name} was not to be changed, or is gone")
        buffer, size_bytes = self._head
        others_bytes = self._size_bytes - size_bytes
        with memoryview(buffer) as view, view[:size_bytes] as part:
            # The checksum is linear: what the old part gave to it is taken off by giving it once more.
            others = combined(crc64nvme(part), self._checksum, others_bytes)
            part[: len(data)] = data
            self._checksum = combined(crc64nvme(part), others, others_bytes)

    def _send_part(self) -> None:
        """Sends what is in the buffer; or keeps it, if it is the first part, and its head is to be changed."""
        buffer, size_bytes = self._part, self._used
        with memoryview(buffer) as view, view[:size_bytes] as part:
            self._checksum = crc64nvme(part, self._checksum)
        if self._holds_head:
            self._holds_head, self._head = False, _HeldPart(buffer, size_bytes)
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
        """In a thread of the pool. The buffer goes back when the server has its bytes."""
        try:
            if self._failure is not None:
                raise self._failure
            with translated("write", self._name), PartBody(buffer, size_bytes) as body:
                answer = self._connection.client.upload_part(
                    **self._where,  # type: ignore[arg-type]
                    UploadId=self._upload_id,
                    PartNumber=number,
                    Body=body,  # type: ignore[arg-type]  # all of a file that boto3 asks for
                    **self._part_checksum(body, checksum),
                )
            return {"PartNumber": number, "ETag": answer["ETag"]}
        except BaseException as error:
            self._failure = self._failure or self._as_failure(error)
            raise self._failure from error
        finally:
            self._free.put(buffer)

    def _as_failure(self, error: BaseException) -> CafcatError:
        if isinstance(error, NotFound):
            return StoreFailed(f"the upload of {self._name} is not there any more: {error.message}")
        return error if isinstance(error, CafcatError) else StoreFailed(f"writing {self._name} failed: {error!r}")

    def _part_checksum(self, body: PartBody, checksum: int) -> Any:
        if self._checked:
            return {"ChecksumCRC64NVME": to_base64(checksum)}
        return {"ContentMD5": base64.b64encode(body.md5()).decode()}

    def _complete(self, parts: list[dict[str, Any]]) -> str | None:
        """The object's entity tag. Whatever the server answers, or does not: what counts is what is there."""
        for attempt in range(1, _COMPLETE_ATTEMPTS + 1):
            expected, failure = _etag_of(parts), StoreFailed(f"{self._name} was written, and is not there")
            is_gone = False
            try:
                expected = self._ask_to_complete(parts) or expected
            except (Conflict, NotFound, StoreFailed) as error:
                failure, is_gone = (
                    StoreFailed(error.message, hint="run the same command again"),
                    error.kind == "not_found",
                )
            try:
                return self._look(expected)
            except NotFound:
                if is_gone or attempt == _COMPLETE_ATTEMPTS:
                    raise failure from None
        raise AssertionError("unreachable")

    def _ask_to_complete(self, parts: list[dict[str, Any]]) -> str | None:
        """The entity tag that the server answers."""
        options: dict[str, Any] = {"IfNoneMatch": "*", "MpuObjectSize": self._size_bytes}
        if self._checked:
            options |= {"ChecksumCRC64NVME": to_base64(self._checksum), "ChecksumType": "FULL_OBJECT"}
        client: Any = self._connection.client
        with translated("write", self._name):
            answer = client.complete_multipart_upload(
                **self._where, UploadId=self._upload_id, MultipartUpload={"Parts": parts}, **options
            )
        return unquoted(answer.get("ETag"))

    def _look(self, expected: str | None) -> str | None:
        """The entity tag of what has our key, if that is what we wrote: by its checksum where the server keeps
        one, else by its tag. Raises Conflict for something else, NotFound for nothing."""
        client: Any = self._connection.client
        with translated("look at", self._name):
            found = client.head_object(**self._where, ChecksumMode="ENABLED")
        etag, checksum = unquoted(found.get("ETag")), found.get("ChecksumCRC64NVME")
        is_ours = checksum == to_base64(self._checksum) if checksum else etag == expected
        if found["ContentLength"] != self._size_bytes or not is_ours:
            message = f"{self._name} is not what was written there: {found['ContentLength']:,} bytes, tag {etag}"
            raise Conflict(message, chunk=self._name)
        return etag

    def _check_usable(self) -> None:
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


def abort_uploads(connection: S3Connection, key: str, upload_id: str | None, keep: str | None = None) -> None:
    """Removes every upload of a key, the one of that id first; not the one to keep. Asks again until the server
    lists none, as a part that was on its way may have kept one alive."""
    if upload_id is not None:
        _abort(connection, key, upload_id)
    for _ in range(_ABORT_ROUNDS):
        left = [found for name, found in uploads_of(connection, key) if name == key and found != keep]
        if not left:
            return
        for found in left:
            _abort(connection, key, found)
    _never_empty(f"{connection.url}/{key}")


def _never_empty(name: str) -> NoReturn:
    raise StoreFailed(f"the uploads of {name} cannot be removed: the server lists them again and again")


def _abort(connection: S3Connection, key: str, upload_id: str) -> None:
    name = f"{connection.url}/{key}"
    with contextlib.suppress(NotFound), translated("remove the upload of", name):
        connection.client.abort_multipart_upload(Bucket=connection.bucket, Key=key, UploadId=upload_id)


def uploads_of(connection: S3Connection, prefix: str) -> list[tuple[str, str]]:
    """Key and id of every upload under way whose key begins so."""
    found: list[tuple[str, str]] = []
    with translated("list the uploads of", f"{connection.url}/{prefix}"):
        paginator = connection.client.get_paginator("list_multipart_uploads")
        for page in paginator.paginate(Bucket=connection.bucket, Prefix=prefix):
            found += [(upload["Key"], upload["UploadId"]) for upload in page.get("Uploads", [])]
    return found


def _etag_of(parts: list[dict[str, Any]]) -> str | None:
    """What S3 makes the entity tag of an object in parts: the MD5 of the parts' MD5s, and their number. It proves
    that an object is ours; a server that makes others keeps no such proof."""
    try:
        digests = b"".join(bytes.fromhex(part["ETag"].strip('"')) for part in parts)
    except ValueError:
        return None
    return f"{hashlib.md5(digests, usedforsecurity=False).hexdigest()}-{len(parts)}"
