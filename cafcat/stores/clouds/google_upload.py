"""Writes one object into a bucket of Google Cloud Storage with a resumable upload.

The upload begins with the condition that the object is new, and the server checks that again at the end. Parts are
sent one after the other, because a resumable upload has only one position. The answer to the last part has the
CRC-32C of the whole object.

A part whose answer is lost is sent again as a whole: "Cloud Storage ignores any bytes you send at an offset that
Cloud Storage has already persisted" (Google Cloud Storage, "Perform resumable uploads").
"""

import base64
import re
from mmap import mmap
from tempfile import TemporaryFile
from typing import IO, TYPE_CHECKING, Final
from uuid import uuid4

from cafcat.errors import AccessDenied, CafcatError, Conflict, NotFound, StoreFailed
from cafcat.remote.clouds.google import INCOMPLETE, GoogleBucket, StoredProperties
from cafcat.stores.parted import PartedUpload
from cafcat.stores.s3.parts import PartPlan
from cafcat.support.checksums import crc32c
from cafcat.support.traffic import TRAFFIC

if TYPE_CHECKING:
    from urllib3 import BaseHTTPResponse

__all__ = ["GoogleUpload"]

_UNIT: Final = 256 << 10
"""All requests of a resumable upload except the last one send a multiple of this many bytes."""
_LAST_REQUESTS: Final = 10
"""Most requests that send the last bytes of an object."""
_LAST_NUMBER: Final = re.compile(r"(\d+)\s*$")


class GoogleUpload(PartedUpload[None]):
    """One object that is being written into a bucket of Google Cloud Storage.

    If the head of the object is going to be rewritten, all bytes after the first part wait in a temporary file.
    """

    def __init__(self, bucket: GoogleBucket, key: str, plan: PartPlan, *, rewrites_head: bool = False) -> None:
        """Begin the upload of a new object.

        Args:
            bucket: The bucket.
            key: Key in the bucket (not in the store).
            plan: Size of the parts.
            rewrites_head: True to send the first part last, after `rewrite_head`.

        Raises:
            NotFound: There is no such bucket.
            Conflict: The bucket has an object with this key.
            AccessDenied, StoreFailed: The server refuses or fails.
        """
        mark = uuid4().hex
        upload_id = bucket.begin_upload(key, mark)
        # One part is sent while the next one is filled. A head that is kept back needs a second buffer.
        super().__init__(
            bucket.name_of(key), PartPlan(plan.part_bytes, 1 + rewrites_head), rewrites_head=rewrites_head
        )
        self._bucket = bucket
        self._key = key
        self._mark = mark
        self._upload_id = upload_id
        self._spool: IO[bytes] | None = TemporaryFile() if rewrites_head else None  # noqa: SIM115 - closed at the end
        self._rest = b""
        self._sent_bytes = 0
        self._crc32c = 0

    @property
    def upload_id(self) -> str | None:
        """Id of the resumable upload, with which `discard` cancels it if its writer dies."""
        return self._upload_id

    def _put_part(self, number: int, buffer: mmap, size_bytes: int, checksum: int) -> None:
        del checksum
        data = buffer[:size_bytes]
        if self._spool is not None and number > 1:
            self._spool.write(data)
            return
        self._send(data)
        if self._spool is not None:
            self._spool.seek(0)
            while later := self._spool.read(self._plan.part_bytes):
                TRAFFIC.sent(self._name, len(later))  # when written to the spool, they took no bandwidth
                self._send(later)

    def _send(self, data: bytes) -> None:
        """Send bytes, except for some at the end: a part of _UNIT or less stays for the last request."""
        self._crc32c = crc32c(data, self._crc32c)
        data = self._rest + data
        whole = max(0, (len(data) - 1) // _UNIT * _UNIT)
        first, position = self._sent_bytes, 0
        while position < whole:
            span = f"bytes {first + position}-{first + whole - 1}/*"
            answer = self._bucket.send_part(self._key, self._upload_id, span, memoryview(data)[position:whole])
            received = self._received(answer) - first
            if received <= position:
                raise StoreFailed(f"writing {self._name} failed: the server does not accept its bytes")
            position = received
        self._sent_bytes, self._rest = first + whole, data[whole:]

    def _received(self, answer: "BaseHTTPResponse") -> int:
        """Return how many bytes of the object the server has."""
        if answer.status != INCOMPLETE:
            raise StoreFailed(f"writing {self._name} failed: the server completed the upload too early")
        match = _LAST_NUMBER.search(answer.headers.get("range", ""))
        return int(match[1]) + 1 if match else 0

    def _finish(self, parts: list[None]) -> str | None:
        del parts
        size_bytes = self._sent_bytes + len(self._rest)
        try:
            found = self._send_last(size_bytes)
        except CafcatError as error:
            # The answer to an earlier attempt may be lost: the object shows which upload made it.
            found = self._found_after(error)
        return self._proven(found, size_bytes)

    def _send_last(self, size_bytes: int) -> StoredProperties:
        """Send the last bytes, and return the properties of the new object. The server may take them bit by bit."""
        for _ in range(_LAST_REQUESTS):
            span = f"{self._sent_bytes}-{size_bytes - 1}" if self._rest else "*"
            answer = self._bucket.send_part(self._key, self._upload_id, f"bytes {span}/{size_bytes}", self._rest)
            if answer.status != INCOMPLETE:
                found: StoredProperties = answer.json()
                return found
            received = self._received(answer)
            if received < self._sent_bytes:
                break
            self._rest = self._rest[received - self._sent_bytes :]
            self._sent_bytes = received
        raise StoreFailed(f"writing {self._name} failed: the server does not have all bytes")

    def _as_failure(self, error: BaseException) -> CafcatError:
        failure = super()._as_failure(error)
        return StoreFailed(failure.message) if isinstance(failure, NotFound) else failure

    def _found_after(self, error: CafcatError) -> StoredProperties:
        if isinstance(error, AccessDenied):
            raise error
        try:
            found = self._bucket.properties(self._key)
        except CafcatError:
            raise StoreFailed(error.message, hint="run the same command again") from error
        if found.get("metadata", {}).get("cafcatupload") != self._mark:
            raise Conflict(
                f"cannot write {self._name}: an object with this key exists", chunk=self._name
            ) from error
        return found

    def _proven(self, found: StoredProperties, size_bytes: int) -> str:
        checksum = base64.b64encode(self._crc32c.to_bytes(4)).decode()
        if int(found["size"]) != size_bytes or found.get("crc32c") != checksum:
            message = (
                f"{self._name} was altered on its way: {int(found['size']):,} bytes, CRC-32C {found.get('crc32c')}"
            )
            raise StoreFailed(message, hint="run the same command again", chunk=self._name)
        return str(found["generation"])

    def _discard(self) -> None:
        self._bucket.cancel_upload(self._key, self._upload_id)

    def _end(self) -> None:
        super()._end()
        self._rest = b""
        if self._spool is not None:
            self._spool.close()
