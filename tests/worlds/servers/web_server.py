"""A web server for tests: files with entity tags, times, conditions and ranges (RFC 9110), and special answers."""

import contextlib
import sys
from collections.abc import Callable, Iterator
from email.message import Message
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import quote, unquote, urlsplit

import pytest

from tests.worlds.servers.serving import ServesWhileEntered

__all__ = ["Asked", "Handler", "HttpServer", "WebFile", "WebServer", "web_server"]


class WebFile(NamedTuple):
    """A file of the server. Headers that are None are not sent."""

    data: bytes
    etag: str | None
    modified: str | None
    accept_ranges: str | None = "bytes"


class Asked(NamedTuple):
    """A request that the server received."""

    method: str
    target: str
    headers: Message


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1
    web: "WebServer"
    disable_nagle_algorithm = True  # head and body are sent separately

    def setup(self) -> None:
        super().setup()
        self.web.connections += 1

    def do_HEAD(self) -> None:
        self._do()

    def do_GET(self) -> None:
        self._do()

    def _do(self) -> None:
        self.web.asked.append(Asked(self.command, self.path, self.headers))
        self.web.special.get(self.file_path, Handler.serve)(self)

    @property
    def file_path(self) -> str:
        return unquote(urlsplit(self.path).path, errors="surrogateescape").removeprefix("/")

    def serve(self) -> None:
        """Serve a file in accordance with the RFC."""
        file = self.web.files.get(self.file_path)
        if file is None:
            self.answer(404, b"no such file")
        elif self.headers["If-Match"] not in (None, file.etag):
            self.answer(412)
        elif self.headers["Range"] and self.headers["If-Range"] in (None, file.etag):
            start = int(self.headers["Range"].removeprefix("bytes=").removesuffix("-"))
            size = len(file.data)
            self.answer(206, file.data[start:], file, content_range=f"bytes {start}-{size - 1}/{size}")
        else:
            self.answer(200, file.data, file)

    def answer(self, status: int, data: bytes = b"", file: WebFile | None = None, **headers: str | None) -> None:
        """Send a whole answer, with Content-Length unless `content_length=None` is given."""
        self.head(status, file, **{"content_length": str(len(data))} | headers)
        if self.command == "GET":
            self.wfile.write(data)

    def head(self, status: int, file: WebFile | None = None, **headers: str | None) -> None:
        """Send status and headers."""
        self.send_response(status)
        if file is not None:
            known = {"etag": file.etag, "last_modified": file.modified, "accept_ranges": file.accept_ranges}
            headers = known | headers
        for name, value in headers.items():
            if value is not None:
                self.send_header(name.replace("_", "-"), value)
        self.end_headers()

    def hang_up(self) -> None:
        """Close the connection after this answer."""
        self.close_connection = True

    def log_message(self, format: str, *arguments: Any) -> None:
        """Log nothing: tests read `asked` instead."""


class HttpServer(ServesWhileEntered, ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exc_info()[1], ConnectionError):  # clients may disconnect at any time
            super().handle_error(request, client_address)


class WebServer:
    """A running web server, as tests use it.

    Attributes:
        files: the files, by path without a leading slash.
        special: handlers that replace the usual answer, by path.
        asked: all requests so far.
        connections: number of connections so far.
    """

    def __init__(self, server: ThreadingHTTPServer) -> None:
        self.files: dict[str, WebFile] = {}
        self.special: dict[str, Callable[[Handler], None]] = {}
        self.asked: list[Asked] = []
        self.port: int = server.server_address[1]
        self.connections = 0
        self._changes = 0

    def write(self, path: str, data: bytes) -> None:
        """Write a file, each time with a new entity tag and a later time."""
        self._changes += 1
        modified = formatdate(1_700_000_000 + self._changes, usegmt=True)
        self.files[path] = WebFile(data, f'"tag-{self._changes}"', modified)

    def remove(self, path: str) -> None:
        del self.files[path]

    def url(self, path: str, user: str = "", scheme: str = "http", host: str = "127.0.0.1") -> str:
        return f"{scheme}://{user}{host}:{self.port}/{quote(path, errors='surrogateescape')}"

    def methods(self) -> list[str]:
        return [asked.method for asked in self.asked]


@contextlib.contextmanager
def serving() -> Iterator[WebServer]:
    class OwnHandler(Handler):
        pass

    server = HttpServer(("127.0.0.1", 0), OwnHandler)
    OwnHandler.web = WebServer(server)
    with server:
        yield OwnHandler.web


@pytest.fixture
def web_server() -> Iterator[WebServer]:
    """A web server for this test only."""
    with serving() as server:
        yield server
