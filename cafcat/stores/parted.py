"""Writes one object into a bucket in parts, which are sent while the next one is filled.

Subclasses send the parts, and complete the upload with the requests of their servers.
"""

import contextlib
from concurrent.futures import Future, ThreadPoolExecutor
from mmap import mmap
from queue import SimpleQueue
from typing import Generic, NamedTuple, TypeVar

from cafcat.errors import AccessDenied, CafcatError, Conflict, InvalidInput, StoreFailed
from cafcat.stores.s3.parts import PartPlan
from cafcat.support.checksums import combined, crc64nvme
from cafcat.support.traffic import TRAFFIC

__all__ = ["PartedUpload"]

SentPart = TypeVar("SentPart")


class _BufferedPart(NamedTuple):
    """A part of an upload that has not been sent yet.

    Attributes:
        buffer: Memory with the bytes of the part at its beginning.
        size_bytes: Size of the part.
    """

    buffer: mmap
    size_bytes: int


class PartedUpload(Generic[SentPart]):
    """One object that is being written into a bucket.

    `write` copies the bytes, and waits while all buffers are in use.
    """

    def __init__(self, name: str, plan: PartPlan, *, rewrites_head: bool) -> None:
        """Prepare the buffers. This sends no request.

        Args:
            name: URL of the object, for messages.
            plan: Size of the parts, and how many of them are sent at the same time.
            rewrites_head: True to send the first part last, after `rewrite_head`.
        """
        self._name = name
        self._plan = plan
        self._size_bytes = 0
        self._checksum = 0
        self._keeps_head = rewrites_head
        self._head: _BufferedPart | None = None
        self._etag: str | None = None
        self._failure: CafcatError | None = None
        self._ended = False
        # Memory maps return their memory when they are closed, and use it only as far as they are filled.
        self._free: SimpleQueue[mmap] = SimpleQueue()
        # A first part that waits uses the memory of one part in flight, unless that is the only one.
        in_flight = max(1, plan.in_flight - rewrites_head)
        for _ in range(in_flight):
            self._free.put(mmap(-1, plan.part_bytes))
        self._part = mmap(-1, plan.part_bytes)
        self._used = 0
        self._parts: list[Future[SentPart]] = []
        self._pool = ThreadPoolExecutor(in_flight, thread_name_prefix="cafcat-upload")

    def _put_part(self, number: int, buffer: mmap, size_bytes: int, checksum: int) -> SentPart:
        """Send a part, in a thread of the pool, and return its description for the completion.

        Args:
            number: Number of the part, from 1.
            buffer: Memory with the bytes of the part at its beginning.
            size_bytes: Size of the part.
            checksum: CRC-64/NVME of the part.
        """
        raise NotImplementedError

    def _finish(self, parts: list[SentPart]) -> str | None:
        """Complete the upload after all parts were sent, and return the object's entity tag.

        Raises:
            Conflict: The bucket has another object with this key.
            StoreFailed, AccessDenied: The server fails or refuses.
        """
        raise NotImplementedError

    def _discard(self) -> None:
        """Remove the parts from the server. Errors are suppressed."""
        raise NotImplementedError

    def _see(self, part: memoryview) -> None:
        """Read the bytes of a part before it is sent. Parts come in order."""

    def _as_failure(self, error: BaseException) -> CafcatError:
        return error if isinstance(error, CafcatError) else StoreFailed(f"writing {self._name} failed: {error!r}")

    @property
    def etag(self) -> str | None:
        """Entity tag of the committed object, without quotes; None before the commit."""
        return self._etag

    def write(self, data: bytes | memoryview) -> None:
        """Append bytes to the new object. The caller may change the buffer as soon as this returns.

        Raises:
            Conflict: An earlier part could not be sent, because another writer has created the object.
            AccessDenied, StoreFailed: An earlier part could not be sent for another reason, or the upload has
                ended. Later calls of `write`, `rewrite_head` and `commit` fail, too.
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
            parts = [part.result() for part in self._parts]
            if crc64nvme is not None and crc64nvme != self._checksum:
                raise StoreFailed(f"the bytes of {self._name} changed in memory before they were sent")
            self._etag = self._finish(parts)
        except CafcatError as error:
            self._failure = error
            raise
        except BaseException as error:
            self._failure = StoreFailed(f"writing {self._name} was interrupted: {error!r}")
            raise
        self._end()

    def abort(self) -> None:
        """Abort the upload, which removes its parts.

        Errors are suppressed, because `Store.discard` can remove the parts later. Idempotent. After a commit, this
        does nothing.
        """
        if not self._ended:
            self._end()
            with contextlib.suppress(CafcatError):
                self._discard()

    def rewrite_head(self, data: bytes) -> None:
        """Replace the first bytes of the object. The part with these bytes is only sent by `commit`.

        Args:
            data: The new bytes, no more than the first part has.

        Raises:
            InvalidInput: The upload was begun without rewrites_head, or no bytes were written.
            Conflict: An earlier part could not be sent, because another writer has created the object.
            AccessDenied, StoreFailed: An earlier part could not be sent for another reason, or the upload has
                ended.
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
            self._see(part)
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

    def _upload_part(self, number: int, buffer: mmap, size_bytes: int, checksum: int) -> SentPart:
        """Send a part, in a thread of the pool. The buffer can be filled again afterwards.

        Raises the first error of any part.
        """
        try:
            with TRAFFIC.request(self._name, sent=size_bytes, is_given_up=lambda: self._failure is not None):
                if self._failure is not None:
                    raise self._failure
                return self._put_part(number, buffer, size_bytes, checksum)
        except BaseException as error:
            self._failure = self._failure or self._as_failure(error)
            raise self._failure from error
        finally:
            self._free.put(buffer)

    def _check_usable(self) -> None:
        if isinstance(self._failure, AccessDenied | Conflict):
            raise self._failure
        if self._failure is not None:
            raise StoreFailed(f"writing {self._name} failed: {self._failure.message}") from self._failure
        if self._ended:
            raise InvalidInput(f"the upload of {self._name} has ended")

    def _end(self) -> None:
        self._ended = True
        self._failure = self._failure or InvalidInput(f"the upload of {self._name} has ended")
        self._pool.shutdown(wait=True)
        self._parts.clear()
        self._part.close()
        self._head = None
        while not self._free.empty():
            self._free.get().close()
