"""Reading objects of a bucket: exact ranges, whole small objects, streams that go on after a broken connection."""

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
_RESUMES: Final = 5
"""So often in a row a stream begins again without having got a byte further."""

# Keys that obstore takes as they are (object_store's Path): it drops slashes at the ends, and refuses empty, "."
# and ".." parts and control characters. All others are read by boto3: a key that was changed is another object.
_PLAIN_KEY: Final = re.compile(
    r"(?!.*[\x00-\x1f\x7f])(?:(?!\.{1,2}(?:/|\Z))[^/]+)(?:/(?!\.{1,2}(?:/|\Z))[^/]+)*", re.DOTALL
)


_NOT_PARTIAL: Final = "Received non-partial response"
"""In obstore's error about a range that was answered with status 200."""


class _Obstore:
    """Its threads do not come along into a process that is forked: there it would wait for them for ever."""

    left_behind = False


def _after_fork() -> None:
    _Obstore.left_behind = "obstore" in sys.modules


os.register_at_fork(after_in_child=_after_fork)


class ObjectHead(NamedTuple):
    """What a server says of an object: its size in bytes, time in nanoseconds since 1970 UTC, entity tag without
    quotes."""

    size_bytes: int
    modified_ns: int
    etag: str | None


class RemoteObject:
    """One object. With an etag, only that version of it: reading another raises Conflict."""

    def __init__(self, connection: S3Connection, key: str, etag: str | None = None) -> None:
        self._connection = connection
        self._key = key
        self._etag = etag
        self.name = f"{connection.url}/{key}"

    def head(self) -> ObjectHead:
        """One request. Raises NotFound, Conflict, AccessDenied, StoreFailed."""
        client, where = self._connection.client, {"Bucket": self._connection.bucket, "Key": self._key}
        condition = {"IfMatch": quoted(self._etag)} if self._etag else {}
        with translated("look at", self.name):
            found: Any = client.head_object(**where, **condition)  # type: ignore[arg-type]
        return ObjectHead(found["ContentLength"], nanoseconds(found["LastModified"]), unquoted(found.get("ETag")))

    def read(self) -> tuple[ObjectHead, bytes]:
        """The whole object by one request. Raises NotFound, Conflict, AccessDenied, StoreFailed."""
        return self._whole(lambda: self._get(None, None))

    def read_at(self, start_byte: int, end_byte: int) -> bytes:
        """Exactly `[start_byte, end_byte)`, by one request; nothing of nothing asks nobody. Raises NotFound,
        Corrupt if the object ends earlier, Conflict, InvalidInput, AccessDenied, StoreFailed."""
        self._check_span(start_byte, end_byte)
        if start_byte == end_byte:
            return b""
        return self._whole(lambda: self._get_span(start_byte, end_byte))[1]

    def _whole(self, get: "Callable[[], _Answer]") -> tuple[ObjectHead, bytes]:
        """A body that breaks off is asked for again; a request that fails was tried again before."""
        for attempt in range(_RESUMES + 1):
            answer = get()
            try:
                return answer.head, answer.body()
            except StoreFailed:
                if attempt == _RESUMES:
                    raise
        raise AssertionError("unreachable")

    def blocks(self, start_byte: int, end_byte: int) -> Iterator[bytes]:
        """The same in blocks of at most 1 MiB, by one request; by further ones where the connection breaks."""
        self._check_span(start_byte, end_byte)
        position, failures = start_byte, 0
        while position < end_byte:
            try:
                answer = self._get_span(position, end_byte)
                self._etag = self._etag or answer.head.etag  # further requests read the same version
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
        raise StoreFailed(f"cannot read {self.name}: the server does not give ranges")

    def _get(self, start_byte: int | None, end_byte: int | None) -> "_Answer":
        with translated("read", self.name):
            answer = self._get_by_either(start_byte, end_byte)
        if self._etag and answer.head.etag not in (None, self._etag):
            answer.close()
            raise Conflict(f"{self.name} is another version than the one asked for: a server ignored If-Match")
        return answer

    def _get_by_either(self, start_byte: int | None, end_byte: int | None) -> "_Answer":
        """Read with obstore where it can, else with boto3.

        obstore refuses the status 200 for a range, even with the right Content-Range.
        """
        connection = self._connection
        is_range = start_byte is not None
        if _Obstore.left_behind or not _PLAIN_KEY.fullmatch(self._key) or (is_range and connection.ranges_are_200):
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
            raise InvalidInput(f"bad byte range [{start_byte}, {end_byte}) of {self.name}")

    def _too_short(self, found_bytes: int, end_byte: int) -> Corrupt:
        message = f"the object ends at byte {found_bytes:,}, expected at least {end_byte:,}"
        return Corrupt(message, chunk=self.name, byte=found_bytes)


class _Answer(NamedTuple):
    """The head of a GET, and its body yet to be read: `[first_byte, end_byte)` of the object.

    Reading the body closes it, also where that fails. A body that is not read has to be closed: its connection
    stays open otherwise. obstore closes what nobody refers to.
    """

    name: str
    head: ObjectHead
    first_byte: int
    end_byte: int
    read: Callable[[], bytes]
    stream: Callable[[], Iterator[bytes]]
    close: Callable[[], None] = lambda: None

    def body(self) -> bytes:
        """All of it. Raises StoreFailed if the connection ended before."""
        try:
            with translated("read", self.name):
                data = self.read()
        finally:
            self.close()
        self._check_length(len(data))
        return data

    def blocks(self) -> Iterator[bytes]:
        """The same in blocks of at most 1 MiB."""
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
    """First byte, one past the last, and size of the whole (RFC 9110, 14.4)."""
    if "ContentRange" not in found:
        return 0, found["ContentLength"], found["ContentLength"]
    first, last, size = map(int, re.findall(r"\d+", found["ContentRange"])[:3])
    return first, last + 1, size


def nanoseconds(when: "datetime") -> int:
    """Since 1970 UTC."""
    return int(when.timestamp() * 1_000_000) * 1000


def unquoted(etag: str | None) -> str | None:
    """An entity tag as S3 lists show it, without its quotes."""
    return etag.removeprefix('"').removesuffix('"') if etag else None


def quoted(etag: str) -> str:
    """As HTTP wants it in a condition. A weak one (W/"...") is left as it is, and matches nothing."""
    return etag if etag.startswith("W/") else f'"{etag}"'
