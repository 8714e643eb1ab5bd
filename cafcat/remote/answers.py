"""Answers of a server to requests for objects: the head, the unread body, and their values in cafcat's form."""

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from cafcat.errors import StoreFailed
from cafcat.remote.errors import translated

if TYPE_CHECKING:
    from datetime import datetime

__all__ = [
    "BLOCK_BYTES",
    "Answer",
    "ObjectHead",
    "content_range",
    "nanoseconds",
    "parse_time",
    "quoted",
    "unquoted",
]

BLOCK_BYTES: Final = 1 << 20
"""Largest block of a stream, in bytes."""


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


class Answer(NamedTuple):
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


def content_range(header: str | None, content_bytes: int) -> tuple[int, int, int]:
    """Return which bytes of an object an answer has, from its Content-Range (RFC 9110, 14.4).

    Args:
        header: Value of Content-Range; None if the answer has no such header, and thus the whole object.
        content_bytes: Size of the body in bytes.

    Returns:
        Offset of the first byte, offset after the last byte, and size of the whole object.
    """
    if header is None:
        return 0, content_bytes, content_bytes
    first, last, size = map(int, re.findall(r"\d+", header)[:3])
    return first, last + 1, size


def nanoseconds(when: "datetime") -> int:
    """Return a time in nanoseconds since 1970 UTC."""
    return int(when.timestamp() * 1_000_000) * 1000


def parse_time(value: Any) -> "datetime":
    """Return the time in an answer, for botocore: the texts of listings at once, other ones as botocore does.

    Args:
        value: "2026-11-25T23:01:18.000Z" in a listing, "Wed, 25 Nov 2026 23:01:18 GMT" in a head.

    Raises:
        ValueError: The value is no time.
    """
    from datetime import datetime

    if isinstance(value, str) and value[10:11] == "T" and value[-1] == "Z":
        with suppress(ValueError):
            return datetime.fromisoformat(value)
    from botocore.utils import parse_timestamp

    return parse_timestamp(value)


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
