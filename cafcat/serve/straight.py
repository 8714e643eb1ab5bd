"""Answers plain requests without ASGI: nearly all requests of most clients are for whole small files.

Each door has its own plain requests. If the file is missing, large, damaged or not in a folder of this machine, the
request goes through the ASGI application after all.
"""

import time
from collections.abc import Sequence
from typing import Any, Final, NamedTuple, Protocol

from cafcat.errors import CafcatError
from cafcat.model import Location
from cafcat.serve.asgi import Exchange
from cafcat.serve.finding import Finder, Found
from cafcat.serve.observing import Observer

__all__ = ["WITH_BODY", "Connection", "PlainRequest", "PlainRequests", "Response", "Straight", "StraightCycle"]

WITH_BODY: Final = frozenset((b"content-length", b"transfer-encoding", b"expect", b"upgrade"))
"""Headers of requests that are never plain: they have a body, or want another protocol."""
_STATUS_LINES: Final = {
    200: b"HTTP/1.1 200 OK\r\n",
    206: b"HTTP/1.1 206 Partial Content\r\n",
    304: b"HTTP/1.1 304 Not Modified\r\n",
}


Response = tuple[int, bytes, bytes]
"""A response: its status (200, 206 or 304), its headers, each with a line break at its end, and its body."""


class PlainRequest(Protocol):
    """A request for one file, without anything that is unusual at its door."""

    @property
    def method(self) -> str:
        """GET or HEAD."""

    @property
    def name(self) -> str:
        """Name of the file in the catalog."""

    @property
    def url_path(self) -> str:
        """Path of the URL, decoded, for the log."""

    def response(self, location: Location, data: bytes | None) -> Response | None:
        """Return the response; None if the ASGI application has to answer.

        Args:
            location: Where the file is.
            data: All bytes of the file; None if they were not read.
        """


class PlainRequests(Protocol):
    """Recognizes the plain requests of a door."""

    def request(
        self, method: bytes, url: bytes, headers: Sequence[tuple[bytes, bytes]], now: float
    ) -> PlainRequest | None:
        """Return a plain request; None for any other request. This never blocks.

        Args:
            method: Method of HTTP.
            url: Target of the request, as it was sent.
            headers: Headers of the request; their names are in lower case.
            now: The time in seconds since 1970.
        """


class Straight(NamedTuple):
    """Answers the plain requests of a door.

    Attributes:
        requests: Recognizes them.
        finder: Finds and reads the files.
        observer: Logs and counts them.
    """

    requests: PlainRequests
    finder: Finder
    observer: Observer


class Connection(Protocol):
    """The connection of a client, as a StraightCycle uses it."""

    client: Any
    server_state: Any

    def finish(self, response: bytes) -> None:
        """Send a complete response, and go on with the next request."""

    def fall_back(self, cycle: "StraightCycle") -> None:
        """Pass the request to the ASGI application."""


class StraightCycle:
    """A plain request until its response is sent. It has the attributes of uvicorn's RequestResponseCycle, too.

    The finder gives it the file, as it does to a future.
    """

    __slots__ = (
        "_began",
        "_connection",
        "_observer",
        "body",
        "disconnected",
        "keep_alive",
        "message_event",
        "more_body",
        "request",
        "response_complete",
        "response_started",
        "scope",
    )

    def __init__(self, request: PlainRequest, observer: Observer, connection: Connection, scope: Any) -> None:
        """Begin a request.

        Args:
            request: The request.
            observer: Logs and counts it.
            connection: The connection of the client.
            scope: The request as ASGI describes it, in case that the ASGI application has to answer.
        """
        self.request = request
        self._observer = observer
        self._connection = connection
        self._began = time.monotonic()
        self.scope = scope
        self.keep_alive = self.more_body = True
        self.response_started = self.response_complete = self.disconnected = False
        self.body = b""
        self.message_event = self

    def set(self) -> None:
        """Do nothing, because no application waits for a body. uvicorn calls this as that of an event."""

    def done(self) -> bool:
        """Return True if the client has left."""
        return self.disconnected

    def set_exception(self, _: BaseException) -> None:
        """Let the ASGI application meet the error, and answer."""
        self._connection.fall_back(self)

    def set_result(self, found: Found) -> None:
        """Send the file, if its bytes are at hand."""
        response = self._response(found)
        if response is None:
            self._connection.fall_back(self)
            return
        status, lines, body = response
        connection, request = self._connection, self.request
        date = [b"%b: %b\r\n" % header for header in connection.server_state.default_headers]
        self.response_started = self.response_complete = True
        connection.finish(b"".join((_STATUS_LINES[status], *date, lines, b"\r\n", body)))
        exchange, seconds = Exchange(status, len(body), True), time.monotonic() - self._began
        self._observer.end(request.method, request.url_path, connection.client, exchange, seconds)

    def _response(self, found: Found) -> Response | None:
        location, data = found.location, found.data
        if location is None or isinstance(data, CafcatError) or not self.keep_alive:
            return None
        return self.request.response(location, data)
