"""A process of `cafcat serve` on a free port of this machine."""

import http.client
import json
import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.worlds.servers.described import check_described
from tests.worlds.waiting import PATIENCE_SECONDS, wait_until

__all__ = ["Answer", "FileServer", "received", "s3_side", "serving"]


@dataclass(frozen=True)
class Answer:
    """A response: its status, its headers by lower-case names, and its body."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def document(self) -> Any:
        return json.loads(self.body)


@dataclass
class FileServer:
    """A running server, or one side of it.

    Attributes:
        process: the first process of the server.
        port: its port on 127.0.0.1.
        log: file of the access log.
        scheme: "http" or "https".
        files: path of the top folder: "/files/", or "/" on the S3 side.
    """

    process: "subprocess.Popen[bytes]"
    port: int
    log: Path
    scheme: str = "http"
    files: str = "/files/"

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}"

    def connect(self) -> socket.socket:
        """Return a new connection, which the caller closes."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE_SECONDS)

    def request(
        self, target: str, headers: dict[str, str] | None = None, method: str = "GET", body: bytes | None = None
    ) -> Answer:
        """Send one request on a connection of its own. The target is sent as it is.

        A response of the HTTP side must be described in openapi.json.
        """
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_SECONDS)
        try:
            connection.putrequest(method, target, skip_accept_encoding=True)
            for name, value in (
                {} if body is None else {"Content-Length": str(len(body))} | (headers or {})
            ).items():
                connection.putheader(name, value)
            for name, value in (headers or {}).items() if body is None else ():
                connection.putheader(name, value)
            connection.endheaders(body)
            response = connection.getresponse()
            found = {name.lower(): value for name, value in response.getheaders()}
            if self.files == "/files/":
                check_described(method, target, response.status, found)
            return Answer(response.status, found, response.read())
        finally:
            connection.close()

    def raw(self, data: bytes) -> bytes:
        """Send bytes, and return everything until the server closes the connection."""
        with self.connect() as connection:
            connection.sendall(data)
            parts = []
            while part := received(connection):
                parts.append(part)
            return b"".join(parts)

    def lines(self) -> list[dict[str, Any]]:
        """Return the lines of the access log."""
        return [json.loads(line) for line in self.log.read_text().splitlines()] if self.log.exists() else []

    def logged(self, path: str) -> dict[str, Any]:
        """Wait for the line of a path, and return the last one."""
        wait_until(lambda: any(line.get("path") == path for line in self.lines()))
        return [line for line in self.lines() if line.get("path") == path][-1]

    def stop(self) -> int:
        """Send SIGTERM, and return the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE_SECONDS)


def received(connection: socket.socket) -> bytes:
    """Return the next bytes; none if the server has closed or reset the connection."""
    try:
        return connection.recv(1 << 16)
    except ConnectionResetError:
        return b""


@contextmanager
def serving(cafcat: Any, log: Path, *arguments: str | Path) -> Iterator[FileServer]:
    """Run `cafcat serve` until the `with` block ends.

    Args:
        cafcat: The command.
        log: File for the access log.
        arguments: Further arguments of the command.
    """
    process = cafcat.popen("serve", "--port", "0", "--access-log", log, *arguments)
    try:
        line = process.stderr.readline().decode()
        found = re.search(r"serving files at (https?)://[^:]+:(\d+)/", line)
        assert found, line + process.stderr.read().decode()
        yield FileServer(process, int(found[2]), log, found[1])
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE_SECONDS) == 0
        errors = process.stderr.read().decode()
        assert errors == "", errors
    finally:
        process.kill()
        process.communicate()


def s3_side(server: FileServer) -> FileServer:
    """Return the S3 side of a server that was started with --s3-port. Call this once: it reads a line of stderr."""
    assert server.process.stderr
    line = server.process.stderr.readline().decode()
    found = re.fullmatch(r"cafcat: serving files at https?://[^:]+:(\d+)/ \(S3\)\n", line)
    assert found, line
    return replace(server, port=int(found[1]), files="/")
