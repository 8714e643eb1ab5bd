"""HTTP/1.1 connections with limits, which uvicorn's own protocol does not have.

Limited are: the number of connections, the size of a request's head and URL, the time that a client may take to
send a request or to read a response, and the time that a connection may be idle. One timer for all connections
checks the times, because a timer for each request would cost more.
"""

import asyncio
import os
import time
from typing import Any, Final
from urllib.parse import unquote

from httptools import HttpParserError
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from cafcat.serve.asgi import exchange_of
from cafcat.serve.connections import Connections
from cafcat.serve.direct import CONNECTION
from cafcat.serve.straight import Straight, StraightCycle

__all__ = ["LimitedProtocol", "protocol_class"]

_MOST_URL_BYTES: Final = 8192
"""Longest target of a request: a name of 2,048 bytes, percent-encoded, and a query."""
_MOST_HEAD_BYTES: Final = 32 << 10
"""Largest head of a request, in bytes: its first line and all headers."""
_MOST_HEADERS: Final = 100
_CLOSE_SECONDS: Final = 2.0
"""How long a closed connection may take to send what is buffered."""
_PHRASES: Final = {
    400: b"Bad Request",
    408: b"Request Timeout",
    414: b"URI Too Long",
    431: b"Request Header Fields Too Large",
    503: b"Service Unavailable",
}


class LimitedProtocol(HttpToolsProtocol):
    """One connection. The names of most methods are those of asyncio.Protocol and of httptools."""

    all: Connections
    """The connections of this process. `protocol_class` sets this."""
    straight: Straight
    """Answers plain requests. `protocol_class` sets this."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin a connection, if there may be another one."""
        super().connection_made(transport)
        self._reads_head = True
        self._head_bytes = 0
        self._deadline = self.loop.time() + self.all.limits.idle
        self._stall_deadline = 0.0
        self._refused = 0
        self._is_fresh = True
        self._running: RequestResponseCycle | None = None
        self.all.open[self] = None
        has_room = self.all.make_room()
        self.all.idle[self] = None
        if not has_room:
            self._refuse(503)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self.all.open.pop(self, None)
        self.all.idle.pop(self, None)
        running = self._running
        if running is not None and not running.response_complete:
            running.disconnected = True  # uvicorn only does so with the last request that the client sent
            running.message_event.set()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse a part of a request, unless its head is too large."""
        if self._refused:
            return
        if self._is_fresh:
            self._is_fresh = False
            self.all.idle.pop(self, None)
            self._deadline = self.loop.time() + self.all.limits.head
        super().data_received(data)
        if self._reads_head:
            self._head_bytes += len(data)
            if self._head_bytes > _MOST_HEAD_BYTES:
                self._refuse(431)

    def on_message_begin(self) -> None:
        """Begin the head of a request."""
        self._reads_head, self._head_bytes, self._url_bytes, self._header_bytes = True, 0, 0, 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """Add a part of the URL, unless it is too long."""
        self._url_bytes += len(url)
        if self._url_bytes > _MOST_URL_BYTES:
            self._refuse(414)
            raise HttpParserError("the URL is too long")
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Add a header, unless there are too many."""
        self._header_bytes += len(name) + len(value) + 4
        if self._header_bytes > _MOST_HEAD_BYTES or len(self.headers) >= _MOST_HEADERS:
            self._refuse(431)
            raise HttpParserError("the head is too large")
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Begin to answer the request."""
        self._reads_head = False
        self._deadline = self.loop.time() + self.all.limits.request
        if not self._begin_straight():
            super().on_headers_complete()

    def _begin_straight(self) -> bool:
        """Begin to answer a plain request without ASGI. Return False for any other request.

        A client that does not read its responses, or sends requests before it has them, goes through ASGI, which
        makes it wait.
        """
        before: Any = self.cycle  # None before the first request
        if self.flow.write_paused or (before is not None and not before.response_complete):
            return False
        parser = self.parser
        if parser.get_http_version() != "1.1" or not parser.should_keep_alive():
            return False
        method = parser.get_method()
        request = self.straight.requests.request(method, self.url, self.headers, time.time())
        if request is None:
            return False
        cycle = StraightCycle(request, self.straight.observer, self, (self.scope, self.url))
        self.cycle = cycle  # type: ignore[assignment]
        self.straight.finder.ask(request.name, cycle, reads=method == b"GET")
        return True

    def finish(self, response: bytes) -> None:
        """Send the response of a StraightCycle, and go on with the next request."""
        self.transport.write(response)
        self.on_response_complete()

    def fall_back(self, cycle: StraightCycle) -> None:
        """Let the ASGI application answer the request of a StraightCycle."""
        scope, url = cycle.scope
        path, _, query = url.partition(b"?")
        scope |= {"method": cycle.request.method, "path": unquote(path.decode("ascii"))}
        scope |= {"raw_path": path, "query_string": query}
        slow = RequestResponseCycle(
            scope=scope,
            transport=self.transport,
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=False,
            default_headers=self.server_state.default_headers,
            message_event=asyncio.Event(),
            expect_100_continue=False,
            keep_alive=cycle.keep_alive,
            on_response=self.on_response_complete,
        )
        slow.more_body = False
        cycle.response_complete = True
        present: Any = self.cycle
        if present is cycle:  # and no request was sent behind this one
            self.cycle = slow
        self._start_asgi_task(slow, self.app)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        """Begin to answer a request, and remember it: the client may have sent others behind it."""
        self._running = cycle
        scope: Any = cycle.scope
        scope[CONNECTION] = self
        super()._start_asgi_task(cycle, app)

    def begin_direct(self) -> int | None:
        """Let a thread send the body of the response, as DirectConnection describes."""
        running = self._running
        is_framed = running is None or running.chunked_encoding is not False
        if is_framed or self.scheme == "https" or self.transport.is_closing():
            return None
        try:
            descriptor = os.dup(self.transport.get_extra_info("socket").fileno())
        except OSError:  # there are too many open files
            return None
        self.transport.set_write_buffer_limits(high=0)
        return descriptor

    async def drain(self) -> None:
        """Wait until all bytes of the event loop are sent, or the client has left."""
        await self.flow.drain()

    def count_direct(self, sent_bytes: int) -> None:
        """Count bytes of the body that a thread has sent."""
        running = self._running
        if running is not None:
            running.expected_content_length -= sent_bytes
            scope: Any = running.scope
            exchange_of(scope).size_bytes += sent_bytes

    def end_direct(self) -> None:
        """Let the event loop keep up to 64 KiB again."""
        if not self.transport.is_closing():
            self.transport.set_write_buffer_limits()

    def on_message_complete(self) -> None:
        """Note that the request has been read completely: from now on, only reading the response has a limit."""
        self._deadline = 0.0
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Begin the next request, if the client has sent it already; else wait for it.

        This replaces uvicorn's method, which starts and stops a timer for each request.
        """
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            cycle, app = self.pipeline.pop()
            self._start_asgi_task(cycle, app)
            return
        self._is_fresh = self._reads_head = True
        self._head_bytes = 0
        self._deadline = self.loop.time() + self.all.limits.idle
        self.all.idle[self] = None

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - as uvicorn calls it
        """Answer a request that is not HTTP, unless it was refused already."""
        self._refuse(400)

    def pause_writing(self) -> None:
        """Note that the client reads more slowly than the response comes."""
        self._stall_deadline = self.loop.time() + self.all.limits.stall
        super().pause_writing()

    def resume_writing(self) -> None:
        """Note that the client has read nearly everything."""
        self._stall_deadline = 0.0
        super().resume_writing()

    def check(self, now: float) -> None:
        """Close the connection if a limit of time has passed.

        Args:
            now: Time of the event loop.
        """
        if self._stall_deadline and now > self._stall_deadline:
            self.transport.abort()
        elif self._deadline and now > self._deadline:
            self._deadline = 0.0
            if self._is_fresh or self._response_began:
                self.end()
            else:
                self._refuse(408)

    @property
    def _response_began(self) -> bool:
        cycle: Any = self.cycle  # None before the first request
        return not self._reads_head and cycle is not None and cycle.response_started

    def end(self) -> None:
        """Close the connection, even if the client does not read the buffered bytes."""
        self.all.idle.pop(self, None)
        self.transport.close()
        self.loop.call_later(_CLOSE_SECONDS, self.transport.abort)

    def _refuse(self, status: int) -> None:
        """Answer with a status and no more, and close the connection.

        If the response to the request before is being sent, the connection is only closed: the client would take
        the answer for bytes of that response.
        """
        if self._refused or self.transport.is_closing():
            return
        self._refused = status
        self._deadline = 0.0
        running = self._running
        if running is not None and running.response_started and not running.response_complete:
            self.end()
            return
        body = b'{"error": {"kind": "invalid_input", "message": "%b"}}\n' % _PHRASES[status]
        head = b"HTTP/1.1 %d %b\r\ncontent-type: application/json\r\n" % (status, _PHRASES[status])
        self.transport.write(head + b"content-length: %d\r\nconnection: close\r\n\r\n" % len(body) + body)
        self.end()


def protocol_class(connections: Connections, straight: Straight) -> type[LimitedProtocol]:
    """Return the class of the connections of one door.

    Args:
        connections: The connections of the process.
        straight: Answers plain requests.
    """
    attributes: dict[str, Any] = {"all": connections, "straight": straight}
    return type("ProcessProtocol", (LimitedProtocol,), attributes)
