"""Reads objects of a bucket: exact ranges, whole small objects, and streams that survive a broken connection."""

import os
import random
import re
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

from cafcat.errors import Conflict, Corrupt, InvalidInput, NotFound, StoreFailed
from cafcat.remote.answers import BLOCK_BYTES, Answer, ObjectHead, nanoseconds, quoted
from cafcat.remote.bucket import Bucket
from cafcat.remote.errors import OutOfRange, Overloaded, translated
from cafcat.support.traffic import TRAFFIC

__all__ = ["RemoteObject"]

_OVERLOADED_SECONDS: Final = 15.0
"""How long a read is tried again while the server answers 503 SlowDown, in seconds."""
_RESUMES: Final = 5
"""How often in a row a read is begun again after the connection broke. Each received byte of a stream resets the
count."""

# Keys that obstore does not change. obstore (object_store's Path) drops slashes at the ends, and refuses empty, "."
# and ".." parts and control characters. Other keys are read without it, because a changed key is another object.
_PLAIN_KEY: Final = re.compile(
    r"(?!.*[\x00-\x1f\x7f])(?:(?!\.{1,2}(?:/|\Z))[^/]+)(?:/(?!\.{1,2}(?:/|\Z))[^/]+)*", re.DOTALL
)


_NOT_PARTIAL: Final = "Received non-partial response"
"""Part of obstore's error when a request for a range is answered with status 200."""


class _Obstore:
    """Whether obstore can be used in this process.

    The threads of obstore do not exist in a forked process. Its calls would wait for them for ever.
    """

    is_forked = False
    """True in a forked process whose parent had imported obstore: it reads without obstore."""


def _after_fork() -> None:
    _Obstore.is_forked = "obstore" in sys.modules


os.register_at_fork(after_in_child=_after_fork)


class RemoteObject:
    """Reads one object of a bucket. With an entity tag, reading another version of the object raises Conflict."""

    def __init__(self, connection: Bucket, key: str, etag: str | None = None, *, is_patient: bool = False) -> None:
        """Describe an object. This sends no request.

        Args:
            connection: Connection to the bucket.
            key: Key of the object.
            etag: Entity tag of the version to read; None for the present version.
            is_patient: True to try again for 15 seconds while the server is overloaded. Objects of a store are
                read without patience, because a copy may be elsewhere.
        """
        self._patience = _OVERLOADED_SECONDS if is_patient else 0.0
        self._connection = connection
        self._key = key
        self._etag = etag
        self.name = f"{connection.url}/{key}"

    def head(self) -> ObjectHead:
        """Return size, time and entity tag of the object. Costs one request.

        Raises:
            NotFound: There is no such object.
            Conflict: The object has another entity tag.
            AccessDenied, StoreFailed: The server refuses or fails.
        """
        with TRAFFIC.request(self.name):
            return self._connection.head(self._key, self._etag)

    def read(self, expected_bytes: int = 0) -> tuple[ObjectHead, bytes]:
        """Return size, time and entity tag of the object, and all its bytes.

        This costs one request, which is sent again, five times at most, if the connection breaks.

        Args:
            expected_bytes: Size of the object, as far as it is known, for the limits of `TRAFFIC`.

        Raises:
            NotFound: There is no such object.
            Conflict: The object has another entity tag.
            AccessDenied, StoreFailed: The server refuses or fails.
        """
        found = self._whole(lambda: self._get(None, None), expected_bytes)
        if not expected_bytes:
            TRAFFIC.received(self.name, len(found[1]))
        return found

    def read_at(self, start_byte: int, end_byte: int) -> bytes:
        """Return exactly the bytes `[start_byte, end_byte)` of the object.

        This costs one request, which is sent again, five times at most, if the connection breaks. An empty range
        costs no request.

        Raises:
            NotFound: There is no such object.
            Corrupt: The object ends before `end_byte`.
            Conflict: The object has another entity tag.
            InvalidInput: The range is not valid.
            AccessDenied, StoreFailed: The server refuses or fails.
        """
        self._check_span(start_byte, end_byte)
        if start_byte == end_byte:
            return b""
        return self._whole(lambda: self._get_span(start_byte, end_byte), end_byte - start_byte)[1]

    def _whole(self, function: "Callable[[], Answer]", expected_bytes: int) -> tuple[ObjectHead, bytes]:
        """Send a request, and return the object's head and the whole body of the answer.

        If the connection breaks within the body, the request is sent again, five times at most.

        Args:
            function: Sends the request, and returns the answer with an unread body.
            expected_bytes: Size of the body; 0 if it is unknown.
        """
        for attempt in range(_RESUMES + 1):
            with TRAFFIC.request(self.name, received=expected_bytes):
                answer = function()
                try:
                    return answer.head, answer.body()
                except StoreFailed:
                    if attempt == _RESUMES:
                        raise
        raise AssertionError("the last attempt returns or raises")

    def blocks(self, start_byte: int, end_byte: int) -> Iterator[bytes]:
        """Yield the bytes `[start_byte, end_byte)` of the object in blocks of at most 1 MiB.

        This costs one request, and another one each time that the connection breaks. After six breaks in a row
        without another byte, StoreFailed is raised. The request counts as in flight until its answer begins: the
        caller may send others while it has a block.

        Raises:
            NotFound: There is no such object.
            Corrupt: The object ends before `end_byte`.
            Conflict: The object has another entity tag, or was replaced while it was read.
            InvalidInput: The range is not valid.
            AccessDenied, StoreFailed: The server refuses or fails.
        """
        self._check_span(start_byte, end_byte)
        position, failures = start_byte, 0
        while position < end_byte:
            try:
                with TRAFFIC.request(self.name):
                    answer = self._get_span(position, end_byte)
                self._etag = self._etag or answer.head.etag  # later requests read the same version
                for block in answer.blocks():
                    position, failures = position + len(block), 0
                    TRAFFIC.received(self.name, len(block))
                    yield block
            except StoreFailed:
                failures += 1
                if failures > _RESUMES:
                    raise

    def _get_span(self, start_byte: int, end_byte: int) -> Answer:
        try:
            answer = self._get(start_byte, end_byte)
        except OutOfRange as error:
            raise self._too_short(self.head().size_bytes, end_byte) from error
        if (answer.first_byte, answer.end_byte) == (start_byte, end_byte):
            return answer
        answer.close()
        if answer.first_byte == start_byte and answer.end_byte < end_byte:
            raise self._too_short(answer.head.size_bytes, end_byte)
        raise StoreFailed(f"cannot read {self.name}: the server does not support ranges")

    def _get(self, start_byte: int | None, end_byte: int | None) -> Answer:
        try:
            answer = self._get_patiently(start_byte, end_byte)
        except (Conflict, NotFound):
            if self._etag and not self._connection.shows_cause:
                self.head()
            raise
        if self._etag and answer.head.etag not in (None, self._etag):
            answer.close()
            raise Conflict(f"{self.name} is another version than the requested one: the server ignored If-Match")
        return answer

    def _get_patiently(self, start_byte: int | None, end_byte: int | None) -> Answer:
        """Send a GET request, and again while the server is overloaded, if the object is read with patience.

        obstore gives up after some two seconds. The pauses are random, so that not all requests come back at once.
        """
        ends_at = time.monotonic() + self._patience
        while True:
            try:
                with translated("read", self.name):
                    return self._get_by_either(start_byte, end_byte)
            except Overloaded:
                if time.monotonic() > ends_at:
                    raise
                time.sleep(random.uniform(0.5, 1.5))  # noqa: S311 - jitter

    def _get_by_either(self, start_byte: int | None, end_byte: int | None) -> Answer:
        """Send a GET request with obstore if possible, else without it, and return the answer.

        obstore refuses an answer with status 200 to a request for a range, even with the right Content-Range.
        """
        connection = self._connection
        is_range = start_byte is not None
        if _Obstore.is_forked or not _PLAIN_KEY.fullmatch(self._key) or (is_range and connection.ranges_are_200):
            return connection.get(self._key, start_byte, end_byte, self._etag)
        try:
            return self._get_by_obstore(start_byte, end_byte)
        except Exception as error:
            if _NOT_PARTIAL not in str(error):
                raise
            connection.ranges_are_200 = True
            return connection.get(self._key, start_byte, end_byte, self._etag)

    def _get_by_obstore(self, start_byte: int | None, end_byte: int | None) -> Answer:
        import obstore

        connection = self._connection
        options: dict[str, Any] = {} if start_byte is None else {"range": (start_byte, end_byte)}
        if self._etag and connection.reads_versions:
            options["version"] = self._etag
        elif self._etag:
            options["if_match"] = quoted(self._etag)
        result = obstore.get(connection.objects, self._key, options=options)  # type: ignore[arg-type]
        meta = result.meta
        first, last = result.range
        return Answer(
            self.name,
            ObjectHead(meta["size"], nanoseconds(meta["last_modified"]), connection.tag_of(meta)),
            first,
            last,
            lambda: bytes(result.bytes()),
            lambda: map(bytes, result.stream(min_chunk_size=BLOCK_BYTES // 4)),
        )

    def _check_span(self, start_byte: int, end_byte: int) -> None:
        if not 0 <= start_byte <= end_byte:
            reason = f"no object can have the byte range [{start_byte}, {end_byte})"
            raise InvalidInput(f"cannot read {self.name}: {reason}")

    def _too_short(self, found_bytes: int, end_byte: int) -> Corrupt:
        message = f"the object ends at byte {found_bytes:,}, expected at least {end_byte:,}"
        return Corrupt(message, chunk=self.name, byte=found_bytes)
