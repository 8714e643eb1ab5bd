"""The ASGI application of the S3 server."""

import asyncio
import logging
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from cafcat.errors import CafcatError
from cafcat.packed_files import PackedFiles
from cafcat.serve.asgi import Receive, Scope, Send
from cafcat.serve.failures import record
from cafcat.serve.s3.answer import Answer, RequestIds, error_answer, with_id
from cafcat.serve.s3.errors import S3Error, error_of
from cafcat.serve.s3.options import S3Options
from cafcat.serve.s3.request import S3Request
from cafcat.serve.s3.service import S3Service
from cafcat.serve.sending import ClientLeft, close_blocks, send_blocks

__all__ = ["S3App", "s3_app"]

_THREADS: Final = 32
"""Most requests that wait for the catalog or a store at the same time. A slow client needs no thread."""
_INTERNAL: Final = "We encountered an internal error. Please try again."
_log = logging.getLogger("cafcat")


def s3_app(repository: PackedFiles, options: S3Options | None = None) -> "S3App":
    """Return an ASGI application that answers requests of the S3 protocol, for reading only.

    Args:
        repository: Finds and reads files.
        options: Options of the server; None for the defaults.

    Raises:
        InvalidInput: An option is invalid.
    """
    return S3App(S3Service(repository, options or S3Options()))


class S3App:
    """The application. It needs memory for one block of each response, at most 8 MiB, however large a file is."""

    def __init__(self, service: S3Service) -> None:
        """Create the application. Threads are started by the first requests.

        Args:
            service: Answers the requests.
        """
        self._service = service
        self._ids = RequestIds()
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="cafcat-s3")

    def close(self) -> None:
        """End the threads, after the last request. Idempotent."""
        self._pool.shutdown()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, as ASGI defines it."""
        if scope["type"] == "lifespan":
            await _live(receive, send)
            return
        if scope["type"] != "http":
            raise ValueError(f"the S3 server has no protocol {scope['type']}")
        request_id = self._ids.new()
        loop = asyncio.get_running_loop()
        answer = await loop.run_in_executor(self._pool, self._answer, scope, request_id)
        answer.headers = with_id(answer.headers, request_id)
        if _has_body(scope):  # which is not read, and must not be taken for the next request
            answer.headers["connection"] = "close"
        headers = [(name.encode(), value.encode("latin-1", "replace")) for name, value in answer.headers.items()]
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        await send({"type": "http.response.body", "body": answer.body, "more_body": answer.rest is not None})
        if answer.rest is not None:
            await self._send_rest(answer.rest, (scope, receive, send), request_id)

    def _answer(self, scope: Scope, request_id: str) -> Answer:
        """Return the answer to a request. Every error becomes an answer.

        Args:
            scope: Scope of the request, as ASGI defines it.
            request_id: Name of the request in the log.
        """
        request = None
        try:
            request = S3Request.of_scope(scope, time.time())
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

    async def _send_rest(self, blocks: Iterator[bytes], asgi: tuple[Scope, Receive, Send], request_id: str) -> None:
        """Send the other blocks of a body. If they cannot be read, the response ends before its last byte.

        Raises:
            CafcatError: A block cannot be read. The server then closes the connection, so that the client notices.
        """
        scope, receive, send = asgi
        try:
            await send_blocks(blocks, scope, receive, send, self._pool)
            await send({"type": "http.response.body", "body": b""})
        except ClientLeft:
            return
        except CafcatError as error:
            _log.error("request %s ends early: %s", request_id, error)
            raise
        finally:
            await close_blocks(blocks, self._pool)


def _has_body(scope: Scope) -> bool:
    """Return True if a request has a body, or a client waits for permission to send one."""
    headers = {name.lower(): value for name, value in scope.get("headers", ())}
    return headers.get(b"content-length", b"0").strip() != b"0" or b"transfer-encoding" in headers


async def _live(receive: Receive, send: Send) -> None:
    """Follow the protocol by which a server announces its start and its end: nothing has to be done."""
    while (await receive())["type"] != "lifespan.shutdown":
        await send({"type": "lifespan.startup.complete"})
    await send({"type": "lifespan.shutdown.complete"})
