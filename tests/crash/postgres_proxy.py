"""A proxy in front of Postgres that cuts a connection at a chosen request: before it, or before its answer.

The proxy parses only as much of the protocol (PostgreSQL documentation, "Message Formats") as it needs to separate
requests: messages up to a Sync, a Query or the end of a COPY.
"""

import contextlib
import socket
import socketserver
import threading
from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import Any
from urllib.parse import quote

from psycopg.conninfo import conninfo_to_dict

from tests.worlds.servers.serving import ServesWhileEntered

__all__ = ["Cut", "PostgresProxy"]

_ENDS = b"SQcX"
_ANSWERED = b"ZG"
"""ReadyForQuery, and CopyInResponse, after which the server waits for data."""


class Cut(StrEnum):
    """The moment at which the connection ends."""

    REQUEST = "request"
    """The server does not get the request."""
    ANSWER = "answer"
    """The server has executed the request; its answer is discarded."""


class PostgresProxy(ServesWhileEntered, socketserver.ThreadingTCPServer):
    """Serves while it is entered.

    While `flowing` is cleared, it accepts connections and bytes, but passes nothing on.

    `statements` gets the text of every statement.

    `cut` is called for each request with the statements of its transaction, the request's own statement last. After
    it has returned a Cut, it is not called again.
    """

    daemon_threads = True

    def __init__(self, conninfo: str) -> None:
        self._server = conninfo_to_dict(conninfo)
        self._lock = threading.Lock()
        self.cut: Callable[[list[bytes]], Cut | None] = lambda _: None
        self.was_cut: list[bytes] | None = None
        self.statements: set[str] = set()
        self.flowing = threading.Event()
        self.flowing.set()
        super().__init__(("127.0.0.1", 0), _Client)

    def url(self, dbname: str) -> str:
        user = quote(str(self._server.get("user", "")), safe="")
        port = self.server_address[1]
        return f"postgresql://{user}@127.0.0.1:{port}/{dbname}?sslmode=disable&gssencmode=disable"

    def choose(self, transaction: list[bytes]) -> Cut | None:
        with self._lock:
            if self.was_cut is not None:
                return None
            cut = self.cut(transaction)
            if cut is not None:
                self.was_cut = list(transaction)
            return cut

    def connect(self) -> socket.socket:
        """Connect to the server, by its unix socket or by TCP."""
        host, port = str(self._server["host"]), str(self._server.get("port", 5432))
        if not host.startswith("/"):
            return socket.create_connection((host, int(port)))
        upstream = socket.socket(socket.AF_UNIX)
        upstream.connect(f"{host}/.s.PGSQL.{port}")
        return upstream


class _Client(socketserver.BaseRequestHandler):
    server: PostgresProxy

    def handle(self) -> None:
        # An answer is several messages: without this each waits for the acknowledgement of the one before.
        self.request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._swallow = False
        self._transaction: list[bytes] = []
        self.server.flowing.wait()
        with contextlib.closing(self.server.connect()) as upstream, contextlib.suppress(OSError, EOFError):
            upstream.sendall(self._startup())
            back = threading.Thread(target=self._pass_answers, args=(upstream,))
            back.start()
            try:
                self._pass_requests(upstream)
            finally:
                _end(upstream)
                back.join()
                _end(self.request)

    def _startup(self) -> bytes:
        length = _exactly(self.request, 4)
        return length + _exactly(self.request, int.from_bytes(length) - 4)

    def _pass_requests(self, upstream: socket.socket) -> None:
        request, text = b"", b""
        for kind, message in _messages(self.request):
            request += message
            if kind in b"PQ":
                statement = message[5:].partition(b"\0")[2 if kind in b"P" else 0].partition(b"\0")[0]
                self.server.statements.add(statement.decode())
                text += message[5:].strip(b"\0").partition(b"\0")[0]
            if kind not in _ENDS:
                continue
            cut = self._choose(text) if text else None
            if cut is Cut.REQUEST:
                return
            self._swallow = cut is Cut.ANSWER
            self.server.flowing.wait()
            upstream.sendall(request)
            request, text = b"", b""

    def _choose(self, text: bytes) -> Cut | None:
        if text.startswith(b"BEGIN"):
            self._transaction.clear()
        self._transaction.append(text)
        return self.server.choose(self._transaction)

    def _pass_answers(self, upstream: socket.socket) -> None:
        with contextlib.suppress(OSError, EOFError):
            for kind, message in _messages(upstream):
                self.server.flowing.wait()
                if not self._swallow:
                    self.request.sendall(message)
                elif kind in _ANSWERED:
                    break
        _end(self.request)
        _end(upstream)


def _messages(connection: socket.socket) -> Iterator[tuple[int, bytes]]:
    """Yield type and bytes of each message. Raises EOFError at the end of the connection."""
    while True:
        head = _exactly(connection, 5)
        yield head[0], head + _exactly(connection, int.from_bytes(head[1:]) - 4)


def _exactly(connection: socket.socket, size_bytes: int) -> bytes:
    found = b""
    while len(found) < size_bytes:
        part = connection.recv(size_bytes - len(found))
        if not part:
            raise EOFError
        found += part
    return found


def _end(connection: Any) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
