"""serve: hostile requests, limits, TLS, and the end of the server."""

import contextlib
import http.client
import io
import json
import os
import random
import re
import resource
import shutil
import signal
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import BIG, TREE, Cafcat, write_tree
from tests.worlds.file_server import FileServer, received, s3_side, serving
from tests.worlds.usage import usage_of
from tests.worlds.waiting import PATIENCE_SECONDS, wait_until

pytest.importorskip("uvicorn")

pytestmark = pytest.mark.slow  # most tests wait for limits of time

CONTENTS = set(TREE.values())


IDLE = 10_000


@pytest.fixture(scope="module")
def sides(filled: Cafcat, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, FileServer]]:
    """Both sides of a server."""
    log = tmp_path_factory.mktemp("log") / "log"
    with serving(filled, log, "--s3-port", "0", "--public", "tree") as running:
        yield {"http": running, "s3": s3_side(running)}


@pytest.fixture(scope="module")
def server(sides: dict[str, FileServer]) -> FileServer:
    return sides["http"]


def status_of(answer: bytes) -> int:
    assert answer.startswith(b"HTTP/1.1 "), answer[:100]
    return int(answer[9:12])


def get(server: FileServer, target: bytes, headers: bytes = b"") -> bytes:
    return server.raw(b"GET " + target + b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" + headers + b"\r\n")


@pytest.mark.parametrize(
    ("target", "status"),
    [
        (b"/files/../tree/a.txt", 400),
        (b"/files/tree/../tree/a.txt", 400),
        (b"/files/tree/%2e%2e/tree/a.txt", 400),
        (b"/files/tree/%2E/a.txt", 400),
        (b"/files/tree/./a.txt", 400),
        (b"/files/%2e%2e%2fetc/passwd", 400),
        (b"/files/tree/..%2f..%2fa.txt", 400),
        (b"/files//etc/passwd", 400),
        (b"/files/tree//a.txt", 400),
        (b"/files/tree%2F%2Fa.txt", 400),
        (b"/files/tree/a.txt%00", 400),
        (b"/files/tree/a.txt%00.png", 400),
        (b"/files/%c0%ae%c0%ae/a.txt", 400),
        (b"/files/tree%c0%afa.txt", 400),
        (b"/files/%ff", 400),
        (b"/files/%ed%a0%80", 400),
        (b"/files/tree/a.txt%", 400),
        (b"/files/tree/a.txt%4", 400),
        (b"/files/tree/%zz", 400),
        (b"/files/tree\\a.txt", 404),
        (b"/files/" + b"a" * 2048, 404),
        (b"/files/" + b"a" * 2050, 414),
        (b"/files/" + b"%61" * 2050, 414),
        (b"/files/" + b"a" * 9000, 414),
        (b"/files/" + b"a" * 70_000, 414),
        (b"/files/tree/a.txt?" + b"a=1&" * 100, 400),
        (b"/files/tree/a.txt?x=%ff", 400),
        (b"/files/tree%2Fa.txt", 200),
        (b"http://elsewhere/files/tree/a.txt", 200),
        (b"/FILES/tree/a.txt", 404),
        (b"/%66iles/tree/a.txt", 404),
        (b"*", 404),
    ],
)
def test_odd_targets(server: FileServer, target: bytes, status: int) -> None:
    answer = get(server, target)
    assert status_of(answer) == status
    if status != 200:
        assert not any(content in answer for content in CONTENTS if len(content) > 10)
    through_asgi = get(server, target, b"Range: bytes=0-\r\n")
    assert status_of(through_asgi) == (206 if status == 200 else status)


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET /files/tree/a.txt HTTP/1.1\r\nHost: x\r\n" + b"X: " + b"a" * 40_000 + b"\r\n\r\n", 431),
        (b"GET /files/tree/a.txt HTTP/1.1\r\nHost: x\r\n" + b"X: 1\r\n" * 200 + b"\r\n", 431),
        (b"GET /files/tree/a.txt HTTP/1.1\r\n" + b"X" * 40_000, 431),
        (b"hello\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
        (b"GET /files/tree/\xff HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", 400),
        (b"GET /files/tree/a.txt HTTP/9.9\r\n\r\n", 400),
        (b"POST /batch HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n", 400),
        (
            b"POST /batch HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            400,
        ),
        (b"POST /batch HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400),
    ],
)
@pytest.mark.parametrize("door", ["http", "s3"])
def test_requests_that_are_not_http(
    sides: dict[str, FileServer], door: str, request_bytes: bytes, status: int
) -> None:
    answer = sides[door].raw(request_bytes)
    assert status_of(answer) == status
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"content-type: application/json" in head
    assert json.loads(body)["error"]["kind"] == "invalid_input"


def test_an_error_is_no_part_of_the_response_before_it(cafcat: Cafcat, tmp_path: Path) -> None:
    """What comes while a response is sent, and is not HTTP, ends the response early: its client notices."""
    (cafcat.folder / "large").write_bytes(bytes(60_000_000))
    cafcat("ingest", "large")
    with serving(cafcat, tmp_path / "log") as server:
        again = b"GET /files/large HTTP/1.1\r\nHost: x\r\n\r\n"
        long = (b"GET /" + b"a" * 9000, b"GET / HTTP/1.1\r\n" + b"X: 1\r\n" * 200)
        for bad in (b"hello\r\n\r\n", again + b"hello\r\n\r\n", *long):
            with server.connect() as connection:
                connection.sendall(again)
                data = bytearray(connection.recv(1 << 16))
                connection.sendall(bad)
                while part := received(connection):
                    data += part
            body = bytes(data).partition(b"\r\n\r\n")[2]
            assert len(body) < 60_000_000
            assert not body.strip(b"\0")


class OneStream:
    """A socket whose responses are read through one buffer: what is read ahead belongs to the next response."""

    def __init__(self, file: io.BufferedReader) -> None:
        self._file = file

    def makefile(self, _mode: str) -> "OneStream":
        return self

    def __getattr__(self, name: str) -> Any:
        return (lambda: None) if name in ("close", "flush") else getattr(self._file, name)


def test_pipelined_requests_are_answered_in_their_order(server: FileServer) -> None:
    names = ["tree/a.txt", "tree/b.bin", "none", "tree/big.dat", "tree/empty", "tree/a.txt", "tree/"]
    data = b"".join(f"GET /files/{name} HTTP/1.1\r\nHost: x\r\n\r\n".encode() for name in names)
    with server.connect() as connection:
        connection.sendall(data)
        stream = OneStream(connection.makefile("rb"))
        for name in names:
            response = http.client.HTTPResponse(stream)  # type: ignore[arg-type]
            response.begin()
            body = response.read()
            assert name not in TREE or body == TREE[name]
            assert response.status == (404 if name == "none" else 200)


@pytest.fixture(params=["http", "s3"])
def strict(request: pytest.FixtureRequest, filled: Cafcat, tmp_path: Path) -> Iterator[FileServer]:
    """Each side of a server with short times, and few connections."""
    limits = ["--idle-seconds", "1", "--head-seconds", "1", "--connections", "20", "--request-seconds", "1"]
    with serving(filled, tmp_path / "log", *limits, "--s3-port", "0", "--public", "tree") as running:
        side = s3_side(running)
        yield running if request.param == "http" else side


def test_a_slow_head_gets_408(strict: FileServer) -> None:
    with strict.connect() as connection:
        connection.sendall(b"GET /files/tree/a.txt HTTP/1.1\r\nHost:")
        assert status_of(connection.recv(1000)) == 408
        assert connection.recv(1000) == b""


def test_a_head_that_drips_gets_408(strict: FileServer) -> None:
    with strict.connect() as connection:
        connection.settimeout(0.1)
        connection.sendall(b"GET /files/tree/a.txt HTTP/1.1\r\nX:")
        answer = b""
        for _ in range(PATIENCE_SECONDS * 10):
            try:
                connection.sendall(b"x")
                answer = connection.recv(1000)
                break
            except TimeoutError:
                continue
        assert status_of(answer) == 408


def test_a_slow_body_gets_408(strict: FileServer) -> None:
    if strict.files == "/":
        pytest.skip("the S3 side reads no bodies")
    with strict.connect() as connection:
        connection.sendall(b"POST /batch HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n[")
        assert status_of(connection.recv(1000)) == 408
        assert connection.recv(1000) == b""


def test_a_client_that_stops_to_read_is_disconnected(cafcat: Cafcat, tmp_path: Path) -> None:
    (cafcat.folder / "top").mkdir()
    (cafcat.folder / "top/large").write_bytes(bytes(60_000_000))
    cafcat("ingest", "top")
    arguments = ["--stall-seconds", "1", "--s3-port", "0", "--public", "top"]
    with serving(cafcat, tmp_path / "log", *arguments) as server:
        for side in (server, s3_side(server)):
            with side.connect() as connection:
                connection.sendall(f"GET {side.files}top/large HTTP/1.1\r\nHost: x\r\n\r\n".encode())
                line = server.logged(f"{side.files}top/large")
            assert (line["status"], line["incomplete"]) == (200, True)
            assert line["size_bytes"] < 60_000_000


def test_idle_connections_are_closed(strict: FileServer) -> None:
    with strict.connect() as fresh, strict.connect() as used:
        used.sendall(f"GET {strict.files}tree/a.txt HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        data = b""
        while part := used.recv(1000):
            data += part
        assert data.endswith(TREE["tree/a.txt"])
        assert fresh.recv(1000) == b""


def test_idle_connections_make_room_for_new_ones(strict: FileServer) -> None:
    """A hundred idle connections, of twenty that are allowed, do not keep a client out."""
    idle = [strict.connect() for _ in range(100)]
    assert strict.request(strict.files + "tree/a.txt").body == TREE["tree/a.txt"]
    for connection in idle:
        connection.close()


@pytest.mark.parametrize("most", [4096, 11_000])
def test_ten_thousand_idle_connections(filled: Cafcat, tmp_path: Path, most: int) -> None:
    """As many as are allowed stay open, half of them on each side. New requests are answered."""
    if not more_open_files(IDLE + 500):
        pytest.skip("the limit of open files is too low")
    arguments = ["--s3-port", "0", "--public", "tree", "--connections", str(most)]
    with serving(filled, tmp_path / "log", *arguments) as server, contextlib.ExitStack() as opened:
        sides = [server, s3_side(server)]
        before = [side.request(side.files + "tree/a.txt").body for side in sides]
        memory = usage_of(server.process.pid).resident_bytes
        idle = [opened.enter_context(sides[number % 2].connect()) for number in range(IDLE)]
        assert [side.request(side.files + "tree/a.txt").body for side in sides] == before
        wait_until(lambda: open_connections(server) >= min(IDLE, most) - 10)
        assert open_connections(server) <= most + 10  # some of them are being closed
        assert usage_of(server.process.pid).resident_bytes - memory < IDLE * 30_000
        closed = sum(is_closed(connection) for connection in idle)
        assert max(0, IDLE - most) <= closed <= max(0, IDLE - most) + 10


def is_closed(connection: socket.socket) -> bool:
    """Return True if the server has closed a connection on which nothing was sent."""
    connection.setblocking(False)
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True


def open_connections(server: FileServer) -> int:
    text = server.request("/metrics").body.decode()
    return int(float(re.findall(r'^cafcat_http_connections{state="open"} (\S+)$', text, re.M)[0]))


def more_open_files(count: int) -> bool:
    """Allow this process so many open files. Return False if the system does not."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if resource.RLIM_INFINITY != hard < count:
        return False
    if resource.RLIM_INFINITY != soft < count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))
    return True


def test_a_client_that_reads_nothing_does_not_stop_the_server(filled: Cafcat, tmp_path: Path) -> None:
    with serving(filled, tmp_path / "log") as server:
        slow = [server.connect() for _ in range(30)]
        for connection in slow:
            connection.sendall(b"GET /files/tree/big.dat HTTP/1.1\r\nHost: x\r\n\r\n")
        assert server.request("/files/tree/big.dat").body == BIG
        for connection in slow:
            connection.close()


def test_a_large_body_is_complete_at_any_speed(cafcat: Cafcat, tmp_path: Path) -> None:
    """The socket takes all, a part or nothing of what the server sends, and the connection is used again."""
    content = random.Random(3).randbytes(30_000_001)
    (cafcat.folder / "top").mkdir()
    (cafcat.folder / "top/large").write_bytes(content)
    cafcat("ingest", "top")
    with serving(cafcat, tmp_path / "log", "--s3-port", "0", "--public", "top") as server:
        for side in (server, s3_side(server)):
            request = f"GET {side.files}top/large HTTP/1.1\r\nHost: x\r\n\r\n".encode()
            with ThreadPoolExecutor(len(SPEEDS)) as clients:
                connections = [clients.submit(bodies, side, request, *speed) for speed in SPEEDS]
            assert all(body == content for connection in connections for body in connection.result())
            line = server.logged(f"{side.files}top/large")
            assert (line["status"], line["size_bytes"], "incomplete" in line) == (200, len(content), False)


SPEEDS = [
    (1 << 20, 0.0),
    (50_000, 0.001),
    (3_000_000, 0.1),
    *[(size, 0.0) for size in range(10_000, 90_000, 10_000)],
]
"""Bytes that clients read at once, and for how many seconds they then wait."""


def bodies(side: FileServer, request: bytes, bytes_at_once: int, pause: float) -> list[bytes]:
    """Send a request twice on one connection, and return the bodies of the responses."""
    found = []
    with side.connect() as connection:
        for _ in range(2):
            connection.sendall(request)
            response = http.client.HTTPResponse(connection)
            response.begin()
            body = bytearray()
            while part := response.read(bytes_at_once):
                body += part
                time.sleep(pause)
            found.append(bytes(body))
    return found


def test_the_client_may_leave(filled: Cafcat, tmp_path: Path) -> None:
    with serving(filled, tmp_path / "log") as server:
        with server.connect() as connection:
            connection.sendall(b"GET /files/tree/big.dat HTTP/1.1\r\nHost: x\r\n\r\n")
            connection.recv(1000)
        assert server.logged("/files/tree/big.dat")["status"] == 200
        assert "error" not in server.logged("/files/tree/big.dat")


def test_the_client_may_leave_with_another_request_behind(cafcat: Cafcat, tmp_path: Path) -> None:
    """The first response ends, although it is not that of the last request, and nothing is written any more."""
    (cafcat.folder / "top").mkdir()
    (cafcat.folder / "top/large").write_bytes(bytes(60_000_000))
    cafcat("ingest", "top")
    with serving(cafcat, tmp_path / "log", "--s3-port", "0", "--public", "top") as server:
        for side in (server, s3_side(server)):
            with side.connect() as connection:
                connection.sendall(f"GET {side.files}top/large HTTP/1.1\r\nHost: x\r\n\r\n".encode() * 2)
                connection.recv(1000)
            line = server.logged(f"{side.files}top/large")
            assert (line["status"], line["incomplete"], line.get("error")) == (200, True, None)


def test_a_response_in_flight_ends_after_sigterm(cafcat: Cafcat, tmp_path: Path) -> None:
    """The socket's buffers hold less than the file, so the response cannot be over when the signal comes."""
    content = random.Random(2).randbytes(60_000_000)
    (cafcat.folder / "large").write_bytes(content)
    cafcat("ingest", "large")
    with serving(cafcat, tmp_path / "log", "--workers", "2") as server:
        with server.connect() as connection:
            connection.sendall(b"GET /files/large HTTP/1.1\r\nHost: x\r\n\r\n")
            data = bytearray(connection.recv(1 << 16))
            server.process.send_signal(signal.SIGTERM)
            wait_until(lambda: refused(server.port))
            while part := connection.recv(1 << 20):
                data += part
        assert bytes(data).endswith(content)
        assert server.process.wait(PATIENCE_SECONDS) == 0


def refused(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except OSError:
        return True
    return False


def test_a_second_signal_drops_responses(cafcat: Cafcat, tmp_path: Path) -> None:
    (cafcat.folder / "large").write_bytes(bytes(60_000_000))
    cafcat("ingest", "large")
    with serving(cafcat, tmp_path / "log") as server, server.connect() as connection:
        connection.sendall(b"GET /files/large HTTP/1.1\r\nHost: x\r\n\r\n")
        connection.recv(1 << 16)
        server.process.send_signal(signal.SIGINT)
        wait_until(lambda: refused(server.port))
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(PATIENCE_SECONDS) == 0


def children(pid: int) -> list[int]:
    done = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True)
    return [int(word) for word in done.stdout.split()]


@pytest.mark.skipif(not shutil.which("ps"), reason="ps is missing")
def test_a_process_that_dies_is_replaced(filled: Cafcat, tmp_path: Path) -> None:
    process = filled.popen("serve", "--port", "0", "--workers", "2", "--access-log", tmp_path / "log")
    assert process.stderr
    port = int(process.stderr.readline().decode().rstrip("/\n").rsplit(":", 1)[1])
    server = FileServer(process, port, tmp_path / "log")
    before = children(process.pid)
    assert len(before) == 2
    threading.Event().wait(5.5)  # a process that dies sooner counts as one that cannot begin
    os.kill(before[0], signal.SIGKILL)
    assert b"another one begins" in process.stderr.readline()
    wait_until(lambda: len(children(process.pid)) == 2)
    for _ in range(20):
        assert server.request("/files/tree/a.txt").body == TREE["tree/a.txt"]
    assert server.stop() == 0
    process.communicate()


@pytest.mark.skipif(not shutil.which("ps"), reason="ps is missing")
def test_processes_end_with_their_parent(filled: Cafcat, tmp_path: Path) -> None:
    process = filled.popen("serve", "--port", "0", "--workers", "2", "--access-log", tmp_path / "log")
    assert process.stderr
    process.stderr.readline()
    below = children(process.pid)
    process.kill()
    process.wait()
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in below))
    process.communicate()


@pytest.mark.skipif(not shutil.which("openssl"), reason="openssl is missing")
def test_tls(filled: Cafcat, tmp_path: Path) -> None:
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    files = ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*command, *names, *files], check=True, capture_output=True)
    with serving(filled, tmp_path / "log", "--certificate", certificate, "--key", key) as server:
        assert server.scheme == "https"
        context = ssl.create_default_context(cafile=certificate)
        for path in ("tree/a.txt", "tree/big.dat"):
            connection = http.client.HTTPSConnection("127.0.0.1", server.port, context=context)
            connection.request("GET", f"/files/{path}")
            assert connection.getresponse().read() == TREE[path]
            connection.close()


def test_a_replaced_file_is_served_at_once(cafcat: Cafcat, tmp_path: Path) -> None:
    write_tree(cafcat.folder)
    cafcat("ingest", "tree")
    with serving(cafcat, tmp_path / "log") as server:
        before = server.request("/files/tree/a.txt").headers["etag"]
        (cafcat.folder / "tree/a.txt").write_bytes(b"another content")
        cafcat("ingest", "tree")
        answer = server.request("/files/tree/a.txt", {"If-None-Match": before})
        assert (answer.status, answer.body) == (200, b"another content")
        cafcat("rm", "tree/a.txt", "--yes")
        assert server.request("/files/tree/a.txt").status == 404
