"""The ASGI application of the S3 server."""

import asyncio
import logging
import os
import time
from collections.abc import Awaitable, Callable, Generator, Iterator, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import count
from typing import Any, Final

from cafcat.errors import CafcatError
from cafcat.model import Location
from cafcat.packed_files import PackedFiles
from cafcat.progress import Warnings
from cafcat.reading.reader import FileReader
from cafcat.serve.failures import record
from cafcat.serve.finding import Finder
from cafcat.serve.s3.answer import Answer, error_answer
from cafcat.serve.s3.errors import S3Error, error_of
from cafcat.serve.s3.options import S3Options
from cafcat.serve.s3.request import S3Request
from cafcat.serve.s3.service import S3Service

__all__ = ["S3App", "s3_app"]

_THREADS: Final = 32
"""Most requests that wait for the catalog or a store at the same time. A slow client needs no thread."""
_INTERNAL: Final = "We encountered an internal error. Please try again."
_log = logging.getLogger("cafcat")

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


def s3_app(repository: PackedFiles, options: S3Options | None = None, finder: Finder | None = None) -> "S3App":
    """Return an ASGI application that answers requests of the S3 protocol, for reading only.

    Args:
        repository: Finds and reads files.
        options: Options of the server; None for the defaults.
        finder: Finds small files for many requests at once, if other applications share it; None for a new one.

    Raises:
        InvalidInput: An option is invalid.
    """
    service = S3Service(repository, options or S3Options())
    if finder is None:
        session = repository.session
        finder = Finder(session.catalog.files, FileReader(session.catalog, session.stores, Warnings()))
    return S3App(service, finder)


class S3App:
    """The application. It needs memory for one block of each response, at most 8 MiB, however large a file is."""

    def __init__(self, service: S3Service, finder: Finder) -> None:
        """Create the application. Threads are started by the first requests.

        Args:
            service: Answers the requests.
            finder: Finds and reads small files.
        """
        self._service = service
        self._finder = finder
        self._prefix, self._numbers = os.urandom(4).hex().upper(), count()
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="cafcat-s3")

    def close(self) -> None:
        """End the threads, after the last request. Idempotent."""
        self._finder.close()
        self._pool.shutdown()

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Answer one request, as ASGI defines it."""
        if scope["type"] == "lifespan":
            await _live(receive, send)
            return
        if scope["type"] != "http":
            raise ValueError(f"the S3 server has no protocol {scope['type']}")
        request_id = f"{self._prefix}{next(self._numbers) & 0xFFFFFFFF:08X}"
        answer, location = await self._plain_answer(scope)
        if answer is None:
            arguments = (scope, request_id, location)
            answer = await asyncio.get_running_loop().run_in_executor(self._pool, self._answer, *arguments)
        answer.headers |= {"x-amz-request-id": request_id, "x-amz-id-2": "cafcat"}
        if _has_body(scope):  # which is not read, and must not be taken for the next request
            answer.headers["connection"] = "close"
        headers = [(name.encode(), value.encode("latin-1", "replace")) for name, value in answer.headers.items()]
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        await send({"type": "http.response.body", "body": answer.body, "more_body": answer.rest is not None})
        if answer.rest is not None:
            await self._send_rest(answer.rest, receive, send, request_id)

    async def _plain_answer(self, scope: MutableMapping[str, Any]) -> tuple[Answer | None, Location | None]:
        """Answer a plain request for a small file, whose query is shared with other requests.

        Returns:
            The answer, or None if `_answer` has to give it. Of a plain request for a large file, its location.
        """
        try:
            request = S3Request(scope, time.time())
            path = self._service.plain_path(request)
            if path is None:
                return None, None
            location, _, data = await self._finder.find(path, reads=request.method == "GET")
            if location is None or isinstance(data, CafcatError):
                return None, None
            if data is None and request.method != "HEAD":
                return None, location
            return self._service.plain_answer(request, location, data), location
        except (CafcatError, S3Error):
            return None, None

    def _answer(self, scope: MutableMapping[str, Any], request_id: str, location: Location | None) -> Answer:
        """Return the answer to a request. Every error becomes an answer.

        Args:
            scope: Scope of the request, as ASGI defines it.
            request_id: Name of the request in the log.
            location: Where the file is, if the request is plain and was found to be permitted.
        """
        request = None
        try:
            request = S3Request(scope, time.time())
            if location is not None:
                return self._service.plain_answer(request, location, None)
            return self._service.answer(request)
        except S3Error as error:
            return error_answer(error, request, request_id)
        except CafcatError as error:
            found = error_of(error)
            if found.status >= 500:
                record(scope, error)
                _log.error("request %s: %s", request_id, error)
            return error_answer(found, request, request_id)
        except Exception as error:  # noqa: BLE001 - nothing above handles errors: the client gets a proper answer
            record(scope, error)
            _log.exception("request %s failed", request_id)
            return error_answer(S3Error("InternalError", _INTERNAL), request, request_id)

    async def _send_rest(self, blocks: Iterator[bytes], receive: Receive, send: Send, request_id: str) -> None:
        """Send the other blocks of a body. If they cannot be read, the response ends before its last byte.

        Raises:
            CafcatError: A block cannot be read. The server then closes the connection, so that the client notices.
        """
        loop = asyncio.get_running_loop()
        gone = asyncio.ensure_future(_disconnected(receive))
        try:
            while not gone.done():
                block = await loop.run_in_executor(self._pool, next, blocks, None)
                await send({"type": "http.response.body", "body": block or b"", "more_body": block is not None})
                if block is None:
                    return
        except CafcatError as error:
            _log.error("request %s ends early: %s", request_id, error)
            raise
        finally:
            gone.cancel()
            await loop.run_in_executor(self._pool, _close, blocks)


def _has_body(scope: MutableMapping[str, Any]) -> bool:
    """Return True if a request has a body, or a client waits for permission to send one."""
    headers = {name.lower(): value for name, value in scope.get("headers", ())}
    return headers.get(b"content-length", b"0").strip() != b"0" or b"transfer-encoding" in headers


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass  # a body, which no request that reads has


async def _live(receive: Receive, send: Send) -> None:
    """Follow the protocol by which a server announces its start and its end: nothing has to be done."""
    while (await receive())["type"] != "lifespan.shutdown":
        await send({"type": "lifespan.startup.complete"})
    await send({"type": "lifespan.shutdown.complete"})


def _close(blocks: Iterator[bytes]) -> None:
    """Close the file behind the blocks, unless another thread is reading it after the request was cancelled."""
    if isinstance(blocks, Generator):
        with suppress(ValueError):
            blocks.close()
