"""GET and HEAD of /files/PATH: an ASGI application of its own, because it answers nearly all requests."""

import asyncio
import secrets
from collections.abc import Iterator, Sequence
from typing import Final

from cafcat.errors import CafcatError, InvalidInput, NotFound
from cafcat.model import NO_SUCH_FILE, Location
from cafcat.reading.request import ReadRequest
from cafcat.serve.asgi import Headers, Receive, Scope, Send, respond
from cafcat.serve.failures import BadRequest, record, respond_error
from cafcat.serve.finding import Found
from cafcat.serve.folders import Folders
from cafcat.serve.names import name_of, query_of, quoted
from cafcat.serve.ranges import Unsatisfiable, ranges_of
from cafcat.serve.representation import (
    describing_headers,
    is_range_wanted,
    precondition,
    type_of,
)
from cafcat.serve.sending import ClientLeft, close_blocks, next_block, send_blocks
from cafcat.serve.serving import Serving

__all__ = ["PREFIX", "Files"]

PREFIX: Final = b"/files/"
"""The path of the top folder."""
_AT_ONCE_BYTES: Final = 1 << 20
"""A body up to this size, in bytes, is read and checked before the response begins."""
_CONDITIONS: Final = frozenset(
    (b"if-match", b"if-none-match", b"if-modified-since", b"if-unmodified-since", b"if-range", b"range")
)
_USED: Final = _CONDITIONS | {b"accept", b"cafcat-redirect"}
Span = tuple[int, int]


class Files:
    """Answers GET and HEAD of files and folders."""

    def __init__(self, serving: Serving) -> None:
        """Create the application.

        Args:
            serving: Repository, threads and limits, shared by the requests of one process.
        """
        self._serving = serving
        self._reader = serving.reader
        self._finder = serving.finder
        self._pool = serving.pool
        self._redirects = serving.options.redirect
        self._folders = Folders(serving.repository.session.catalog.reading.files, serving.pool)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        try:
            await self._answer(scope, receive, send)
        except CafcatError as error:
            await respond_error(scope, send, error)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] not in ("GET", "HEAD"):
            raise BadRequest(405, "files can be read only", [(b"allow", b"GET, HEAD")])
        name = name_of(scope["raw_path"][len(PREFIX) :])
        headers = {key: value for key, value in scope["headers"] if key in _USED}
        query = query_of(scope["query_string"])
        if not name or name.endswith("/"):
            await self._folders.respond(name, headers, query, (scope, receive, send))
            return
        is_plain = scope["method"] == "GET" and _CONDITIONS.isdisjoint(headers)
        found = await self._finder.find(name, reads=is_plain)
        if found.location is None:
            await self._absent(name, found, scope, send)
            return
        request = _Request((scope, receive, send), name, headers, found.location)
        request.download = "download" in query
        asks = self._redirects and ("redirect" in query or b"cafcat-redirect" in headers)
        if asks and await self._redirect(request):
            return
        await self._file(request, found.data)

    async def _absent(self, name: str, found: Found, scope: Scope, send: Send) -> None:
        if not found.is_folder:
            raise NotFound(NO_SUCH_FILE, path=name)
        last = quoted(name.rsplit("/", 1)[-1])
        query = b"?" + scope["query_string"] if scope["query_string"] else b""
        # Relative, so that it is right behind a proxy; with "./", so that a colon is no scheme.
        location = b"./" + last.encode() + b"/" + query
        await respond(send, 308, [(b"location", location), (b"content-length", b"0")])

    async def _file(self, request: "_Request", data: bytes | CafcatError | None) -> None:
        if isinstance(data, CafcatError):
            raise data
        if data is not None:  # nearly all requests end here
            await respond(request.send, 200, request.headers_of_body(len(data)), data)
            return
        status = precondition(request.headers, request.location)
        if status is not None:
            await self._unmet(request, status)
            return
        ranges = _ranges(request)
        if ranges is None:
            await self._respond(request, 200, request.headers_of_body(request.size_bytes), [])
        elif len(ranges) == 1:
            [(start, end)] = ranges
            shown = (b"content-range", b"bytes %d-%d/%d" % (start, end - 1, request.size_bytes))
            await self._respond(request, 206, [*request.headers_of_body(end - start), shown], [(b"", ranges[0])])
        else:
            await self._respond_parts(request, ranges)

    async def _unmet(self, request: "_Request", status: int) -> None:
        if status == 412:
            raise BadRequest(412, "the file is not as the request requires")
        described = describing_headers(request.location)
        kept = [(name, value) for name, value in described if name in (b"etag", b"last-modified")]
        await respond(request.send, 304, kept)

    async def _respond_parts(self, request: "_Request", ranges: Sequence[Span]) -> None:
        boundary = secrets.token_hex(16).encode()
        parts: list[tuple[bytes, Span]] = []
        size_bytes = 0
        for n, (start, end) in enumerate(ranges):
            head = b"\r\n--" + boundary if n else b"--" + boundary
            head += b"\r\nContent-Type: " + type_of(request.location.path)
            head += b"\r\nContent-Range: bytes %d-%d/%d\r\n\r\n" % (start, end - 1, request.size_bytes)
            parts.append((head, (start, end)))
            size_bytes += len(head) + end - start
        parts.append((b"\r\n--" + boundary + b"--\r\n", (0, 0)))
        size_bytes += len(parts[-1][0])
        headers = request.headers_of_body(size_bytes, b"multipart/byteranges; boundary=" + boundary)
        await self._respond(request, 206, headers, parts)

    async def _respond(
        self, request: "_Request", status: int, headers: Headers, parts: Sequence[tuple[bytes, Span]]
    ) -> None:
        """Send a response whose body is the whole file, or parts of it.

        Args:
            request: The request.
            status: Status of the response.
            headers: All headers.
            parts: Bytes before each range, and the range; empty for the whole file.
        """
        if request.is_head:
            await respond(request.send, status, headers)
            return
        blocks = self._blocks(request, parts)
        total = sum(end - start for _, (start, end) in parts) if parts else request.size_bytes
        try:
            if total <= _AT_ONCE_BYTES:
                data = await asyncio.get_running_loop().run_in_executor(self._pool, b"".join, blocks)
                await respond(request.send, status, headers, data)
            else:
                await self._stream(request, status, headers, blocks)
        finally:
            await close_blocks(blocks, self._pool)

    async def _stream(self, request: "_Request", status: int, headers: Headers, blocks: Iterator[bytes]) -> None:
        """Send a large body.

        An error before the first block is raised. After a later one the body ends early: the server closes the
        connection.
        """
        first = await next_block(blocks, self._pool) or b""
        await request.send({"type": "http.response.start", "status": status, "headers": headers})
        await request.send({"type": "http.response.body", "body": first, "more_body": True})
        try:
            await send_blocks(blocks, request.scope, request.receive, request.send, self._pool)
        except ClientLeft:
            return
        except CafcatError as error:
            record(request.scope, error)
            return
        await request.send({"type": "http.response.body", "body": b""})

    def _blocks(self, request: "_Request", parts: Sequence[tuple[bytes, Span]]) -> Iterator[bytes]:
        """Yield the body. This runs in a thread."""
        for head, (start, end) in parts or [(b"", (0, request.size_bytes))]:
            if head:
                yield head
            if start < end:
                wanted = ReadRequest.of(request.name, request.location, start, end)
                yield from self._reader.stream(wanted, checked_bytes=_AT_ONCE_BYTES)

    async def _redirect(self, request: "_Request") -> bool:
        """Send the client to a signed URL of the store. Return False if there is none for this file."""
        sign, seconds = self._serving.repository.signed_url, self._serving.options.redirect_seconds
        try:
            signed = await asyncio.get_running_loop().run_in_executor(self._pool, sign, request.location, seconds)
        except InvalidInput:  # the file is in a folder, is empty, or has to be decoded
            return False
        wanted = b"bytes=%d-%d" % (signed.start_byte, signed.end_byte - 1)
        headers = [(b"location", signed.url.encode()), (b"cafcat-range", wanted), (b"cache-control", b"no-store")]
        await respond(request.send, 307, [*headers, (b"content-length", b"0")])
        return True


class _Request:
    """A GET or HEAD of an existing file."""

    __slots__ = ("download", "headers", "is_head", "location", "name", "receive", "scope", "send", "size_bytes")

    def __init__(
        self, asgi: tuple[Scope, Receive, Send], name: str, headers: dict[bytes, bytes], location: Location
    ):
        self.scope, self.receive, self.send = asgi
        self.name, self.headers, self.location = name, headers, location
        self.size_bytes = location.size_bytes
        self.is_head = self.scope["method"] == "HEAD"
        self.download = False

    def headers_of_body(self, size_bytes: int, kind: bytes | None = None) -> Headers:
        """Return the headers of a response with a body of this size, and of this media type."""
        headers = describing_headers(self.location, download=self.download)
        headers.append((b"content-type", kind or type_of(self.location.path)))
        headers.append((b"content-length", b"%d" % size_bytes))
        return headers


def _ranges(request: _Request) -> Sequence[Span] | None:
    """Return the ranges that the response has to have; None for the whole file.

    Raises:
        BadRequest: The file has no byte of the ranges (416).
    """
    header = request.headers.get(b"range")
    if header is None or request.is_head or not is_range_wanted(request.headers, request.location):
        return None
    try:
        return ranges_of(header, request.size_bytes)
    except Unsatisfiable:
        size = (b"content-range", b"bytes */%d" % request.size_bytes)
        raise BadRequest(416, f"the file has {request.size_bytes:,} bytes", [size]) from None
