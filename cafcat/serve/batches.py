"""POST /batch: many files in one stream."""

import json
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import closing
from functools import partial
from typing import Any, Final

from cafcat.errors import CafcatError, NotFound
from cafcat.model import NO_SUCH_FILE
from cafcat.reading.archive_stream import FORMATS, ON_ERROR, ArchiveStream
from cafcat.reading.batch import Batch
from cafcat.reading.given_order import Content
from cafcat.serve.asgi import Headers, Receive, Scope, Send
from cafcat.serve.failures import BadRequest, record, respond_error, status_of
from cafcat.serve.names import query_of
from cafcat.serve.sending import ClientLeft, close_blocks, next_block, send_blocks
from cafcat.serve.serving import Serving

__all__ = ["Batches"]

_MOST_BYTES: Final = 64 << 20
"""Largest body of a request, in bytes."""
_MOST_PATHS: Final = 1_000_000
_TYPES: Final = {"tar": b"application/x-tar", "zip": b"application/zip"}


class Batches:
    """Answers POST /batch: the body lists paths, the response is a tar or zip with the files in this order."""

    def __init__(self, serving: Serving) -> None:
        """Create the application.

        Args:
            serving: Repository, threads and limits, shared by the requests of one process.
        """
        self._serving = serving

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        paths: list[str] = []
        try:
            if scope["method"] != "POST":
                raise BadRequest(405, "send the paths with POST", [(b"allow", b"POST")])
            query = {name: values[-1] for name, values in query_of(scope["query_string"]).items()}
            paths, options = _parse(await _body(scope, receive), _content_type(scope))
            _options(options)  # wrong values are refused, even if the query has others
            format, on_error = _options({**options, **query})
            async with self._serving.batches:
                stream = ArchiveStream(self._serving.reader, partial(self._contents, paths), format, on_error)
                await self._send(stream, scope, receive, send)
        except CafcatError as error:
            await respond_error(scope, send, error, error.path if error.path in paths else None)

    def _contents(self, paths: Sequence[str]) -> Generator[Content, None, None]:
        """Yield the files of a list. A path has one spelling: "/a" and "./a" are not the file "a"."""
        with closing(Batch(self._serving.reader).contents(paths)) as contents:
            for content in contents:
                name, request, _ = content
                is_exact = request is None or request.location.path == name
                yield content if is_exact else Content(name, None, NotFound(NO_SUCH_FILE, path=name))

    async def _send(self, stream: ArchiveStream, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the archive. An error before the first block gets a status; a later one ends the stream early."""
        pool = self._serving.batch_pool
        try:
            first = await next_block(stream, pool) or b""
            await send({"type": "http.response.start", "status": 200, "headers": _headers(stream.format)})
            await send({"type": "http.response.body", "body": first, "more_body": True})
            await self._send_rest(stream, scope, receive, send, pool)
        finally:
            await close_blocks(stream, pool)

    async def _send_rest(
        self, stream: ArchiveStream, scope: Scope, receive: Receive, send: Send, pool: Executor
    ) -> None:
        try:
            await send_blocks(stream, scope, receive, send, pool)
        except ClientLeft:
            return
        except CafcatError as error:
            record(scope, error)
            return
        damaged = [error for _, error in stream.failed if status_of(error)[0] >= 500]
        if damaged:
            record(scope, damaged[0])
        await send({"type": "http.response.body", "body": b""})


def _headers(format: str) -> Headers:
    return [
        (b"content-type", _TYPES[format]),
        (b"content-disposition", f'attachment; filename="files.{format}"'.encode()),
        (b"x-content-type-options", b"nosniff"),
        (b"cache-control", b"no-store"),
    ]


def _content_type(scope: Scope) -> bytes:
    return next((value.lower() for name, value in scope["headers"] if name == b"content-type"), b"")


async def _body(scope: Scope, receive: Receive) -> bytes:
    """Return the body of the request.

    Raises:
        BadRequest: It is too large, or the client left before its end.
    """
    parts: list[bytes] = []
    size_bytes = 0
    for name, value in scope["headers"]:
        if name == b"content-length" and int(value) > _MOST_BYTES:
            raise _too_large()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise BadRequest(400, "the request has no end")
        parts.append(message.get("body", b""))
        size_bytes += len(parts[-1])
        if size_bytes > _MOST_BYTES:
            raise _too_large()
        if not message.get("more_body"):
            return b"".join(parts)


def _too_large() -> BadRequest:
    return BadRequest(413, f"the list of paths is larger than {_MOST_BYTES:,} bytes", [(b"connection", b"close")])


def _parse(body: bytes, content_type: bytes) -> tuple[list[str], Mapping[str, str]]:
    """Return the paths of a request, and the options that its JSON object has.

    Raises:
        BadRequest: The body is neither JSON of the right form nor lines of UTF-8.
    """
    try:
        text = body.decode()
        is_json = b"json" in content_type or (
            b"text/plain" not in content_type and text.lstrip().startswith(("[", "{"))
        )
        document: Any = json.loads(text) if is_json else [line for line in text.split("\n") if line]
    except UnicodeDecodeError:
        raise BadRequest(400, "the list of paths is not valid UTF-8") from None
    except (ValueError, RecursionError):
        raise BadRequest(400, "the list of paths is not valid JSON") from None
    options = {}
    if isinstance(document, dict):
        options = {name: str(document[name]) for name in ("format", "on_error") if name in document}
        document = document.get("paths")
    return _checked(document), options


def _checked(paths: Any) -> list[str]:
    if not isinstance(paths, list) or not all(isinstance(path, str) for path in paths):
        raise BadRequest(400, 'send a JSON array of paths, an object with "paths", or one path a line')
    if len(paths) > _MOST_PATHS:
        raise BadRequest(413, f"a batch has at most {_MOST_PATHS:,} paths")
    return paths


def _options(options: Mapping[str, str]) -> tuple[str, str]:
    format, on_error = options.get("format", "tar"), options.get("on_error", "fail")
    if format not in FORMATS:
        raise BadRequest(400, "format must be tar or zip")
    if on_error not in ON_ERROR:
        raise BadRequest(400, "on_error must be fail or skip")
    return format, on_error
