"""A proxy in front of an S3 server that remembers every request, and breaks those that it is told to break.

Clients sign for the proxy's host and port; it passes their Host header on unchanged, so that the server finds the
signature right. Bodies are streamed, connections kept alive, and any number of them served at once.
"""

import contextlib
import random
import socket
import socketserver
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import pytest

from tests.worlds.servers.http_wire import Head, Wire, final_head
from tests.worlds.servers.s3_server import S3Server
from tests.worlds.servers.services import missing_service
from tests.worlds.servers.serving import ServesWhileEntered
from tests.worlds.waiting import PATIENCE_SECONDS

SLOW_SECONDS = 0.2
SLOW_PIECES = 8
WITHOUT_BODY = {204, 304}


class Fault(StrEnum):
    """What can go wrong with a request."""

    ERROR_503 = "error_503"
    """503 SlowDown; the server is not asked."""
    ERROR_500 = "error_500"
    """500 InternalError; the server is not asked."""
    ERROR_200 = "error_200"
    """200 with an error in its body, as S3 may answer CompleteMultipartUpload and CopyObject; nobody is asked."""
    EXPIRED = "expired"
    """403 ExpiredToken; the server is not asked."""
    NOT_IMPLEMENTED = "not_implemented"
    """501 NotImplemented, as of a server that does not know a header; it is not asked."""
    NOT_ALLOWED = "not_allowed"
    """405 MethodNotAllowed, as of a server that does not have the operation; it is not asked."""
    RESET_BEFORE = "reset_before"
    """The connection is reset; the server is not asked."""
    LOST_ANSWER = "lost_answer"
    """The server acts; its answer is thrown away and the connection reset."""
    LOST_500 = "lost_500"
    """The server acts; the client is told 500 InternalError."""
    CUT_BODY = "cut_body"
    """The server acts; the connection is reset amid its answer: half-way through the body, or the head if it has
    none."""
    FLIPPED_BIT = "flipped_bit"
    """One bit of the request's body changes on its way to the server."""
    STATUS_200 = "status_200"
    """The server acts; its status 206 becomes 200."""
    SLOW = "slow"
    """The server acts; its answer comes late and in drops, but whole."""


MADE_UP = {
    Fault.ERROR_503: (503, b"Slow Down", b"SlowDown"),
    Fault.ERROR_500: (500, b"Internal Server Error", b"InternalError"),
    Fault.ERROR_200: (200, b"OK", b"InternalError"),
    Fault.EXPIRED: (403, b"Forbidden", b"ExpiredToken"),
    Fault.NOT_IMPLEMENTED: (501, b"Not Implemented", b"NotImplemented"),
    Fault.NOT_ALLOWED: (405, b"Method Not Allowed", b"MethodNotAllowed"),
    Fault.LOST_500: (500, b"Internal Server Error", b"InternalError"),
}
UNASKED = {
    Fault.ERROR_503,
    Fault.ERROR_500,
    Fault.ERROR_200,
    Fault.EXPIRED,
    Fault.NOT_IMPLEMENTED,
    Fault.NOT_ALLOWED,
}
ERROR = b"""<?xml version="1.0" encoding="UTF-8"?>
<Error><Code>%s</Code><Message>made up by the proxy</Message><RequestId>proxy</RequestId></Error>"""
NOT_BY_CHANCE = (
    Fault.ERROR_200,
    Fault.EXPIRED,
    Fault.NOT_IMPLEMENTED,
    Fault.NOT_ALLOWED,
    Fault.FLIPPED_BIT,
    Fault.STATUS_200,
)
ANYWHERE = tuple(fault for fault in Fault if fault not in NOT_BY_CHANCE)


@dataclass
class Request:
    """A request as it arrived, and what became of it.

    `number` counts from 0 in order of arrival. `status` is what the client was told, None if nothing;
    `server_status` what the server said, None if it was not asked. `bytes_received` and `bytes_sent` are those of
    the bodies. `range` is the header's value, `checksums` the headers that promise something of the body.
    """

    number: int
    method: str
    bucket: str
    key: str
    query: dict[str, str]
    range: str | None
    operation: str
    checksums: dict[str, str] = field(default_factory=dict)
    fault: Fault | None = None
    status: int | None = None
    server_status: int | None = None
    bytes_received: int = 0
    bytes_sent: int = 0


Faults = Callable[[Request], Fault | None]


def no_faults(_request: Request) -> None:
    """Everything goes well."""


def seeded_faults(
    seed: int, rate: float, operations: Collection[str] | None = None, kinds: Collection[Fault] = ANYWHERE
) -> Faults:
    """A part `rate` of the requests of these operations (None: all) goes wrong, in any of these ways; always the
    same ones for the same seed and arrival number."""
    choices = sorted(kinds)

    def choose(request: Request) -> Fault | None:
        chance = random.Random(f"{seed}:{request.number}")
        hit = chance.random() < rate and (operations is None or request.operation in operations)
        return chance.choice(choices) if hit else None

    return choose


def faults_in_order(operation: str, *faults: Fault | None) -> Faults:
    """The first request of that operation meets the first fault, the second the second; later ones meet none."""
    left = list(faults)

    def choose(request: Request) -> Fault | None:
        return left.pop(0) if left and request.operation == operation else None

    return choose


OPERATIONS = {
    # (method, what the path names, what the query or a header names)
    ("GET", "service", ""): "ListBuckets",
    ("HEAD", "bucket", ""): "HeadBucket",
    ("PUT", "bucket", ""): "CreateBucket",
    ("DELETE", "bucket", ""): "DeleteBucket",
    ("GET", "bucket", ""): "ListObjects",
    ("GET", "bucket", "list-type"): "ListObjectsV2",
    ("GET", "bucket", "uploads"): "ListMultipartUploads",
    ("GET", "bucket", "location"): "GetBucketLocation",
    ("POST", "bucket", "delete"): "DeleteObjects",
    ("GET", "key", ""): "GetObject",
    ("HEAD", "key", ""): "HeadObject",
    ("PUT", "key", ""): "PutObject",
    ("DELETE", "key", ""): "DeleteObject",
    ("PUT", "key", "copy"): "CopyObject",
    ("GET", "key", "attributes"): "GetObjectAttributes",
    ("POST", "key", "uploads"): "CreateMultipartUpload",
    ("PUT", "key", "uploadId"): "UploadPart",
    ("PUT", "key", "uploadId copy"): "UploadPartCopy",
    ("GET", "key", "uploadId"): "ListParts",
    ("POST", "key", "uploadId"): "CompleteMultipartUpload",
    ("DELETE", "key", "uploadId"): "AbortMultipartUpload",
}
CHECKSUMS = ("content-md5", "x-amz-checksum-algorithm", "x-amz-checksum-crc64nvme", "x-amz-checksum-type")
SUBRESOURCES = ("uploadId", "uploads", "list-type", "location", "delete", "attributes")


def operation_of(method: str, bucket: str, key: str, query: Collection[str], copies: bool) -> str:
    """S3's name for what such a request does; what is not in the table comes as "GET bucket tagging"."""
    place = "key" if key else "bucket" if bucket else "service"
    named = [name for name in SUBRESOURCES if name in query][:1] + ["copy"] * copies
    return OPERATIONS.get((method, place, " ".join(named)), " ".join([method, place, *named]))


class S3Proxy(ServesWhileEntered, socketserver.ThreadingTCPServer):
    """Listens while it is entered. `faults` is asked about each request; assign to it."""

    request_queue_size = 128

    def __init__(self, upstream: S3Server) -> None:
        """Its URL has to be "http://": TLS is not spoken."""
        self._upstream = upstream
        self._lock = threading.Lock()
        self._requests: list[Request] = []
        self._clients: set[socket.socket] = set()
        self.faults: Faults = no_faults
        self.delay_seconds = 0.0
        """How long each request waits before it is passed on."""
        self.most_in_flight = 0
        """Most requests that waited for the beginning of their answer at the same time."""
        self._in_flight = 0
        self.further_headers: Callable[[Request], Iterable[bytes]] = lambda _request: ()
        """Lines to put into the head of an answer: what other servers say, and ours does not."""
        self.removed_headers: Callable[[Request], Collection[bytes]] = lambda _request: ()
        """Names, in lower case, of lines to leave out of the head of an answer."""
        super().__init__(("127.0.0.1", 0), _Connection)

    @property
    def endpoint_url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    @property
    def server(self) -> S3Server:
        """The server as it is reached through the proxy."""
        return replace(self._upstream, endpoint_url=self.endpoint_url)

    def environ(self) -> dict[str, str]:
        """The variables that lead a program through the proxy."""
        return self.server.environ()

    @property
    def requests(self) -> list[Request]:
        """In order of arrival, since the beginning or the last `clear`."""
        with self._lock:
            return list(self._requests)

    def counts(self) -> Counter[str]:
        """How many requests there were, by operation."""
        return Counter(request.operation for request in self.requests)

    def count(self, operation: str) -> int:
        return self.counts()[operation]

    def clear(self) -> None:
        """Forgets all requests; arrival numbers begin anew."""
        with self._lock:
            self._requests.clear()

    def delay(self) -> None:
        """Let a request wait, and count it as in flight meanwhile."""
        with self._lock:
            self._in_flight += 1
            self.most_in_flight = max(self.most_in_flight, self._in_flight)
        time.sleep(self.delay_seconds)
        with self._lock:
            self._in_flight -= 1

    def server_close(self) -> None:
        """Waits for the threads of all clients: they have to end first."""
        with self._lock:
            for client in self._clients:
                with contextlib.suppress(OSError):
                    client.shutdown(socket.SHUT_RDWR)
        super().server_close()

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            self._clients.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._clients.remove(request)
        super().shutdown_request(request)

    def connect(self) -> Wire:
        place = urlsplit(self._upstream.endpoint_url)
        return Wire(socket.create_connection((place.hostname or "", place.port or 80), PATIENCE_SECONDS))

    def record(self, head: Head) -> Request:
        """Notes a request, and decides what becomes of it."""
        method, target, _ = head.start.decode("ascii").split(" ")
        path, _, query_text = target.partition("?")
        bucket, _, key = unquote(path, errors="surrogateescape").removeprefix("/").partition("/")
        query = dict(parse_qsl(query_text, keep_blank_values=True, errors="surrogateescape"))
        span = head.get(b"range")
        operation = operation_of(method, bucket, key, query, head.get(b"x-amz-copy-source") is not None)
        with self._lock:
            number = len(self._requests)
            checksums = {
                name: value.decode() for name in CHECKSUMS if (value := head.get(name.encode())) is not None
            }
            span_text = span.decode() if span else None
            request = Request(number, method, bucket, key, query, span_text, operation, checksums)
            request.fault = self.faults(request)
            self._requests.append(request)
        return request


class _Connection(socketserver.BaseRequestHandler):
    """One client's connection, and our own to the server on its behalf."""

    server: S3Proxy

    def handle(self) -> None:
        self.client = Wire(self.request)
        self.upstream: Wire | None = None
        with contextlib.suppress(OSError, EOFError):  # either side has gone: so does the connection
            while (head := self.client.head()) is not None:
                self.server.delay()
                if not self._answer(self.server.record(head), head):
                    break
        self.client.close()
        self._hang_up()

    def _answer(self, request: Request, head: Head) -> bool:
        """Serves one request; whether the connection is good for more."""
        if request.fault is Fault.RESET_BEFORE:
            self.client.reset()
            return False
        if (head.get(b"expect") or b"").lower() == b"100-continue":
            self.client.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        if request.fault in UNASKED:
            for block in self.client.body(head):
                request.bytes_received += len(block)
            return self._make_up(request, MADE_UP[request.fault])
        upstream = self._server()
        self._forward(request, head, upstream)
        answer = final_head(upstream)
        request.server_status = answer.status
        return self._pass_on(request, answer, upstream)

    def _forward(self, request: Request, head: Head, upstream: Wire) -> None:
        """The whole request. A server may answer and hang up before it has all of the body."""
        upstream.send(head.encoded())
        listens = True
        for block in self.client.body(head):
            request.bytes_received += len(block)
            if request.fault is Fault.FLIPPED_BIT and request.bytes_received == len(block):
                block = bytes([block[0] ^ 1]) + block[1:]  # noqa: PLW2901
            if listens:
                try:
                    upstream.send(block)
                except ConnectionError:
                    listens = False

    def _pass_on(self, request: Request, answer: Head, upstream: Wire) -> bool:
        """The server's answer, or what the fault leaves of it."""
        silent = request.method == "HEAD" or answer.status in WITHOUT_BODY
        blocks = iter(()) if silent else upstream.body(answer, until_closed=True)
        if request.fault in {Fault.LOST_ANSWER, Fault.LOST_500}:
            for _ in blocks:
                pass
        if request.fault is Fault.LOST_500:
            return self._make_up(request, MADE_UP[request.fault])
        if request.fault is Fault.LOST_ANSWER:
            self.client.reset()
            return False
        if request.fault is Fault.CUT_BODY:
            return self._cut(request, answer, 0 if silent else answer.length, blocks)
        if request.fault is Fault.SLOW:
            blocks = self._drops(blocks)
        return self._whole(request, answer, blocks)

    def _whole(self, request: Request, answer: Head, blocks: Iterator[bytes]) -> bool:
        ends_by_closing = not answer.is_chunked and answer.length is None
        if request.fault is Fault.STATUS_200 and answer.status == 206:
            answer.start = answer.start.partition(b" ")[0] + b" 200 OK"  # LocalStack gives no phrase
        removed = self.server.removed_headers(request)
        answer.headers = [line for line in answer.headers if line.partition(b":")[0].strip().lower() not in removed]
        request.status = answer.status
        further = self.server.further_headers(request)
        self.client.send(answer.encoded(*further, *[b"Connection: close"] * ends_by_closing))
        for block in blocks:
            request.bytes_sent += len(block)
            self.client.send(block)
        if answer.closes:
            self._hang_up()
        return not ends_by_closing

    def _drops(self, blocks: Iterator[bytes]) -> Iterator[bytes]:
        """The first block in some pieces, with pauses, then the rest."""
        time.sleep(SLOW_SECONDS)
        first = next(blocks, b"")
        size = len(first) // SLOW_PIECES + 1
        for start in range(0, len(first), size):
            yield first[start : start + size]
            time.sleep(SLOW_SECONDS / SLOW_PIECES)
        yield from blocks

    def _cut(self, request: Request, answer: Head, length: int | None, blocks: Iterator[bytes]) -> bool:
        """Half of the body, or half of the head if there is no body, or the first byte of one of unknown length."""
        head = answer.encoded()
        if length == 0:
            self.client.send(head[: len(head) // 2])
        else:
            request.status = answer.status
            self.client.send(head)
        left = 1 if length is None else length // 2
        while left:
            block = next(blocks)[:left]
            request.bytes_sent, left = request.bytes_sent + len(block), left - len(block)
            self.client.send(block)
        self.client.wait_until_arrived()
        self.client.reset()
        self._hang_up()
        return False

    def _make_up(self, request: Request, answer: tuple[int, bytes, bytes]) -> bool:
        """An answer that is not the server's."""
        status, reason, code = answer
        body = b"" if request.method == "HEAD" else ERROR % code
        request.status, request.bytes_sent = status, len(body)
        headers = b"Content-Type: application/xml\r\nContent-Length: %d\r\n\r\n" % len(body)
        self.client.send(b"HTTP/1.1 %d %s\r\n" % (status, reason) + headers + body)
        return True

    def _server(self) -> Wire:
        """The connection to the server, made anew if the server has closed the one before."""
        if self.upstream is not None and self.upstream.is_stale:
            self._hang_up()
        if self.upstream is None:
            self.upstream = self.server.connect()
        return self.upstream

    def _hang_up(self) -> None:
        if self.upstream is not None:
            self.upstream.close()
            self.upstream = None


@pytest.fixture
def s3_proxy(s3_server: S3Server) -> Iterator[S3Proxy]:
    """In front of `s3_server`: counts requests, and breaks what `faults` says."""
    if not s3_server.endpoint_url.startswith("http://"):
        missing_service("the proxy of the tests speaks no TLS: give an http:// URL in CAFCAT_TEST_S3_URL")
    with S3Proxy(s3_server) as proxy:
        yield proxy


@pytest.fixture
def s3_proxy_environment(s3_proxy: S3Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leads everything in this process, and what it starts, through `s3_proxy`."""
    for name, value in s3_proxy.environ().items():
        monkeypatch.setenv(name, value)
