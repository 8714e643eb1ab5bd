"""Answers plain GETs of small files without ASGI: nearly all requests of most clients.

A request is plain if it has no query, no conditions, no range and no body, and names no folder. If the file is
missing, large, damaged or not in a folder of this machine, the request goes through the ASGI application after all.
"""

import time
from collections.abc import Sequence
from typing import Any, Final, Protocol

from cafcat.serve.asgi import Exchange
from cafcat.serve.failures import BadRequest
from cafcat.serve.files import PREFIX
from cafcat.serve.finding import Finder, Found
from cafcat.serve.names import name_of
from cafcat.serve.observing import Observer
from cafcat.serve.representation import describing_headers, type_of

__all__ = ["Connection", "StraightCycle", "StraightFiles"]

_NOT_PLAIN: Final = frozenset(
    (
        b"if-match",
        b"if-none-match",
        b"if-modified-since",
        b"if-unmodified-since",
        b"if-range",
        b"range",
        b"expect",
        b"content-length",
        b"transfer-encoding",
        b"upgrade",
        b"cafcat-redirect",
    )
)


class Connection(Protocol):
    """The connection of a client, as a StraightCycle uses it."""

    client: Any
    server_state: Any

    def finish(self, response: bytes) -> None:
        """Send a complete response, and go on with the next request."""

    def fall_back(self, cycle: "StraightCycle") -> None:
        """Pass the request to the ASGI application."""


class StraightFiles:
    """Answers plain GETs of small files."""

    def __init__(self, finder: Finder, observer: Observer) -> None:
        """Create an object.

        Args:
            finder: Finds and reads the files.
            observer: Logs and counts the requests.
        """
        self.finder = finder
        self.observer = observer

    def name_in(self, url: bytes, headers: Sequence[tuple[bytes, bytes]]) -> str | None:
        """Return the name of the file of a GET; None if the request is not plain.

        Args:
            url: Target of the request, as it was sent.
            headers: Headers of the request; their names are in lower case.
        """
        if not url.startswith(PREFIX) or b"?" in url or b"#" in url or url.endswith(b"/"):
            return None
        for name, _ in headers:
            if name in _NOT_PLAIN:
                return None
        try:
            return name_of(url[len(PREFIX) :])
        except BadRequest:
            return None


class StraightCycle:
    """A plain GET until its response is sent. It has the attributes of uvicorn's RequestResponseCycle, too.

    The finder gives it the file, as it does to a future.
    """

    __slots__ = (
        "_began",
        "_connection",
        "_files",
        "body",
        "disconnected",
        "keep_alive",
        "message_event",
        "more_body",
        "name",
        "response_complete",
        "response_started",
        "scope",
    )

    def __init__(self, files: StraightFiles, connection: Connection, scope: Any, name: str) -> None:
        """Begin a request.

        Args:
            files: The finder, and the log.
            connection: The connection of the client.
            scope: The request as ASGI describes it, in case that the ASGI application has to answer.
            name: Name of the file.
        """
        self._files = files
        self._connection = connection
        self._began = time.monotonic()
        self.scope = scope
        self.name = name
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
        location, data = found.location, found.data
        if location is None or not isinstance(data, bytes) or not self.keep_alive:
            self._connection.fall_back(self)
            return
        headers = [*self._connection.server_state.default_headers, *describing_headers(location)]
        lines = b"".join([b"%b: %b\r\n" % header for header in headers])
        kind = type_of(location.path)
        head = b"HTTP/1.1 200 OK\r\n%bcontent-type: %b\r\ncontent-length: %d\r\n\r\n" % (lines, kind, len(data))
        self.response_started = self.response_complete = True
        self._connection.finish(head + data)
        exchange = Exchange(200, len(data), is_complete=True)
        client = self._connection.client
        self._files.observer.end("GET", "/files/" + self.name, client, exchange, time.monotonic() - self._began)
