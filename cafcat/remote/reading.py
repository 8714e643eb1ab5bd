"""Reads objects of a bucket: exact ranges, whole small objects, and streams that survive a broken connection."""

import os
import re
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from cafcat.errors import Conflict, Corrupt, InvalidInput, StoreFailed
from cafcat.remote.connection import S3Connection
from cafcat.remote.errors import OutOfRange, translated

if TYPE_CHECKING:
    from datetime import datetime

__all__ = ["BLOCK_BYTES", "ObjectHead", "RemoteObject", "nanoseconds", "quoted", "unquoted"]

BLOCK_BYTES: Final = 1 << 20
"""Largest block of a stream, in bytes."""
_RESUMES: Final = 5
"""How often in a row a read is begun again after the connection broke. Each received byte of a stream resets the
count."""

# Keys that obstore does not change. obstore (object_store's Path) drops slashes at the ends, and refuses empty, "."
# and ".." parts and control characters. Other keys are read by boto3, because a changed key is another object.
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
    """True in a forked process whose parent had imported obstore: boto3 reads there."""


def _after_fork() -> None:
    _Obstore.is_forked = "obstore" in sys.modules


os.register_at_fork(after_in_child=_after_fork)


class ObjectHead(NamedTuple):
    """Properties of an object in a bucket.

    Attributes:
        size_bytes: Size in bytes.
        modified_ns: Time of the last modification, in nanoseconds since 1970 UTC.
        etag: Entity tag without quotes, None if the server shows none.
    """

    size_bytes: int
    modified_ns: int
    etag: str | None


class RemoteObject:
    """Reads one object of a bucket. With an entity tag, reading another version of the object raises Conflict."""

    def __init__(self, connection: S3Connection, key: str, etag: str | None = None) -> None:
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
        client, where = self._connection.client, {"Bucket": self._connection.bucket, "Key": self._key}
        condition = {"IfMatch": quoted(self._etag)} if self._etag else {}
        with translated("look at", self.name):
            found: Any = client.head_object(**where, **condition)  # type: ignore[arg-type]
        return ObjectHead(found["ContentLength"], nanoseconds(found["LastModified"]), unquoted(found.get("ETag")))

    def read(self) -> tuple[ObjectHead, bytes]:
        """Return size, time and entity tag of the object, and all its bytes.

        This costs one request, which is sent again, five times at most, if the connection breaks.

        Raises:
            NotFound: There is no such object.
            Conflict: The object has another entity tag.
            AccessDenied, StoreFailed: The server refuses or fails.
        """
        return self._whole(lambda: self._get(None, None))

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
        return self._whole(lambda: self._get_span(start_byte, end_byte))[1]

    def _whole(self, function: "Callable[[], _Answer]") -> tuple[ObjectHead, bytes]:
        """Send a request, and return the object's head and the whole body of the answer.

        If the connection breaks within the body, the request is sent again, five times at most.

        Args:
            function: Sends the request, and returns the answer with an unread body.
        """
        for attempt in range(_RESUMES + 1):
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
        without another byte, StoreFailed is raised.

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
                answer = self._get_span(position, end_byte)
                self._etag = self._etag or answer.head.etag  # later requests read the same version
                for block in answer.blocks():
                    position, failures = position + len(block), 0
                    yield block
            except StoreFailed:
                failures += 1
                if failures > _RESUMES:
                    raise

    def _get_span(self, start_byte: int, end_byte: int) -> "_Answer":
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

    def _get(self, start_byte: int | None, end_byte: int | None) -> "_Answer":
        with translated("read", self.name):
            answer = self._get_by_either(start_byte, end_byte)
        if self._etag and answer.head.etag not in (None, self._etag):
            answer.close()
            raise Conflict(f"{self.name} is another version than the requested one: the server ignored If-Match")
        return answer

    def _get_by_either(self, start_byte: int | None, end_byte: int | None) -> "_Answer":
        """Send a GET request with obstore if possible, else with boto3, and return the answer.

        obstore refuses an answer with status 200 to a request for a range, even with the right Content-Range.
        """
        connection = self._connection
        is_range = start_byte is not None
        if _Obstore.is_forked or not _PLAIN_KEY.fullmatch(self._key) or (is_range and connection.ranges_are_200):
            return self._get_by_boto(start_byte, end_byte)
        try:
            return self._get_by_obstore(start_byte, end_byte)
        except Exception as error:
            if _NOT_PARTIAL not in str(error):
                raise
            connection.ranges_are_200 = True
            return self._get_by_boto(start_byte, end_byte)

    def _get_by_obstore(self, start_byte: int | None, end_byte: int | None) -> "_Answer":
        import obstore

        options: dict[str, Any] = {} if start_byte is None else {"range": (start_byte, end_byte)}
        if self._etag:
            options["if_match"] = quoted(self._etag)
        result = obstore.get(self._connection.objects, self._key, options=options)  # type: ignore[arg-type]
        head = ObjectHead(
            result.meta["size"], nanoseconds(result.meta["last_modified"]), unquoted(result.meta["e_tag"])
        )
        first, last = result.range
        return _Answer(
            self.name,
            head,
            first,
            last,
            lambda: bytes(result.bytes()),
            lambda: map(bytes, result.stream(min_chunk_size=BLOCK_BYTES // 4)),
        )

    def _get_by_boto(self, start_byte: int | None, end_byte: int | None) -> "_Answer":
        options: dict[str, Any] = {"Bucket": self._connection.bucket, "Key": self._key}
        if start_byte is not None and end_byte is not None:
            options["Range"] = f"bytes={start_byte}-{end_byte - 1}"
        if self._etag:
            options["IfMatch"] = quoted(self._etag)
        found: Any = self._connection.client.get_object(**options)
        first, last, size = _content_range(found)
        head = ObjectHead(size, nanoseconds(found["LastModified"]), unquoted(found.get("ETag")))
        body = found["Body"]
        return _Answer(self.name, head, first, last, body.read, lambda: body.iter_chunks(BLOCK_BYTES), body.close)

    def _check_span(self, start_byte: int, end_byte: int) -> None:
        if not 0 <= start_byte <= end_byte:
            reason = f"no object can have the byte range [{start_byte}, {end_byte})"
            raise InvalidInput(f"cannot read {self.name}: {reason}")

    def _too_short(self, found_bytes: int, end_byte: int) -> Corrupt:
        message = f"the object ends at byte {found_bytes:,}, expected at least {end_byte:,}"
        return Corrupt(message, chunk=self.name, byte=found_bytes)


class _Answer(NamedTuple):
    """The head of an answer to a GET request, and its unread body: bytes `[first_byte, end_byte)` of the object.

    Reading the body closes it, also if that fails. An unread body must be closed, because its connection stays open
    otherwise. obstore closes a body when it is garbage collected.
    """

    name: str
    head: ObjectHead
    first_byte: int
    end_byte: int
    read: Callable[[], bytes]
    stream: Callable[[], Iterator[bytes]]
    close: Callable[[], None] = lambda: None

    def body(self) -> bytes:
        """Return the whole body of the answer.

        Raises:
            StoreFailed: The connection ended early, or the body has another length than requested.
        """
        try:
            with translated("read", self.name):
                data = self.read()
        finally:
            self.close()
        self._check_length(len(data))
        return data

    def blocks(self) -> Iterator[bytes]:
        """Yield the body of the answer in blocks of at most 1 MiB.

        Raises:
            StoreFailed: The connection ended early, or the body is longer than requested.
        """
        count = 0
        try:
            for block in self._translated_stream():
                count += len(block)
                if count > self.end_byte - self.first_byte:
                    self._check_length(count)
                for start in range(0, len(block), BLOCK_BYTES):
                    yield block[start : start + BLOCK_BYTES]
        finally:
            self.close()
        self._check_length(count)

    def _translated_stream(self) -> Iterator[bytes]:
        with translated("read", self.name):
            stream = self.stream()
        while True:
            with translated("read", self.name):
                block = next(stream, None)
            if block is None:
                return
            yield block

    def _check_length(self, found_bytes: int) -> None:
        expected = self.end_byte - self.first_byte
        if found_bytes != expected:
            message = f"cannot read {self.name}: the server sent {found_bytes:,} of {expected:,} bytes"
            raise StoreFailed(message, hint="run the same command again")


def _content_range(found: Any) -> tuple[int, int, int]:
    """Return which bytes of an object an answer of boto3 has, from its Content-Range (RFC 9110, 14.4).

    Returns:
        Offset of the first byte, offset after the last byte, and size of the whole object.
    """
    if "ContentRange" not in found:
        return 0, found["ContentLength"], found["ContentLength"]
    first, last, size = map(int, re.findall(r"\d+", found["ContentRange"])[:3])
    return first, last + 1, size


def nanoseconds(when: "datetime") -> int:
    """Return a time in nanoseconds since 1970 UTC."""
    return int(when.timestamp() * 1_000_000) * 1000


def unquoted(etag: str | None) -> str | None:
    """Return an entity tag without the quotes that S3 shows around it; None for a missing or empty tag.

    A weak tag (W/...) is returned unchanged.
    """
    if not etag or etag.startswith("W/"):
        return etag or None
    return etag.removeprefix('"').removesuffix('"')


def quoted(etag: str) -> str:
    """Return an entity tag in quotes, as If-Match needs it. A weak tag is returned unchanged, and never matches."""
    return etag if etag.startswith("W/") else f'"{etag}"'
