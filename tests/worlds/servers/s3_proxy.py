"""A proxy in front of an S3 server that records every request, and makes chosen requests fail.

Clients sign for the proxy's host and port. The proxy forwards their Host header unchanged, so that the server
accepts the signature. Bodies are streamed, connections are kept alive, and any number of requests is served at
once.
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
    """A failure of a request."""

    ERROR_503 = "error_503"
    """503 SlowDown; the request does not reach the server."""
    ERROR_500 = "error_500"
    """500 InternalError; the request does not reach the server."""
    ERROR_200 = "error_200"
    """200 with an error in its body, as S3 may answer CompleteMultipartUpload and CopyObject.

    The request does not reach the server."""
    EXPIRED = "expired"
    """403 ExpiredToken; the request does not reach the server."""
    NOT_IMPLEMENTED = "not_implemented"
    """501 NotImplemented, as from a server that does not support a header; the server does not get the request."""
    NOT_ALLOWED = "not_allowed"
    """405 MethodNotAllowed, as from a server without the operation; the request does not reach the server."""
    NO_SUCH_UPLOAD = "no_such_upload"
    """404, as rclone's server answers a list of uploads before the first upload."""
    RESET_BEFORE = "reset_before"
    """The connection is reset; the request does not reach the server."""
    LOST_ANSWER = "lost_answer"
    """The server acts; its answer is discarded and the connection reset."""
    LOST_500 = "lost_500"
    """The server acts; the client receives 500 InternalError."""
    CUT_BODY = "cut_body"
    """The server acts; the connection is reset amid its answer: half-way through the body, or through the head if
    there is no body."""
    FLIPPED_BIT = "flipped_bit"
    """One bit of the request's body changes on its way to the server."""
    STATUS_200 = "status_200"
    """The server acts; its status 206 becomes 200."""
    SLOW = "slow"
    """The server acts; its answer comes late and in small pieces, but whole."""


MADE_UP = {
    Fault.ERROR_503: (503, b"Slow Down", b"SlowDown"),
    Fault.ERROR_500: (500, b"Internal Server Error", b"InternalError"),
    Fault.ERROR_200: (200, b"OK", b"InternalError"),
    Fault.EXPIRED: (403, b"Forbidden", b"ExpiredToken"),
    Fault.NOT_IMPLEMENTED: (501, b"Not Implemented", b"NotImplemented"),
    Fault.NOT_ALLOWED: (405, b"Method Not Allowed", b"MethodNotAllowed"),
    Fault.NO_SUCH_UPLOAD: (404, b"Not Found", b"NoSuchUpload"),
    Fault.LOST_500: (500, b"Internal Server Error", b"InternalError"),
}
UNASKED = {
    Fault.ERROR_503,
    Fault.ERROR_500,
    Fault.ERROR_200,
    Fault.EXPIRED,
    Fault.NOT_IMPLEMENTED,
    Fault.NOT_ALLOWED,
    Fault.NO_SUCH_UPLOAD,
}
ERROR = b"""<?xml version="1.0" encoding="UTF-8"?>
<Error><Code>%s</Code><Message>made up by the proxy</Message><RequestId>proxy</RequestId></Error>"""
NOT_BY_CHANCE = (
    Fault.ERROR_200,
    Fault.EXPIRED,
    Fault.NOT_IMPLEMENTED,
    Fault.NOT_ALLOWED,
    Fault.NO_SUCH_UPLOAD,
    Fault.FLIPPED_BIT,
    Fault.STATUS_200,
)
ANYWHERE = tuple(fault for fault in Fault if fault not in NOT_BY_CHANCE)


@dataclass
class Request:
    """A request as it was received, and its outcome.

    Attributes:
        number: counts from 0 in order of arrival.
        range: value of the Range header.
        checksums: the headers with checksums of the body.
        status: sent to the client; None if there was no answer.
        server_status: of the server's answer; None if the request did not reach the server.
        bytes_received: of the request's body.
        bytes_sent: of the answer's body.
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
    """Let every request succeed."""


def seeded_faults(
    seed: int, rate: float, operations: Collection[str] | None = None, kinds: Collection[Fault] = ANYWHERE
) -> Faults:
    """Let a share of the requests fail. The same seed and arrival number always give the same fault.

    Args:
        seed: of the random choices.
        rate: the share, from 0 to 1.
        operations: the requests that may fail; None: all.
        kinds: the faults to choose from.
    """
    choices = sorted(kinds)

    def choose(request: Request) -> Fault | None:
        chance = random.Random(f"{seed}:{request.number}")
        hit = chance.random() < rate and (operations is None or request.operation in operations)
        return chance.choice(choices) if hit else None

    return choose


def faults_in_order(operation: str, *faults: Fault | None) -> Faults:
    """Let the first request of the operation have the first fault, and so on. Later requests succeed."""
    left = list(faults)

    def choose(request: Request) -> Fault | None:
        return left.pop(0) if left and request.operation == operation else None

    return choose


OPERATIONS = {
    # (method, kind of resource that the path names, subresource in the query or header)
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
    """Return S3's name of an operation.

    An operation that is not in OPERATIONS gets a name like "GET bucket tagging".
    """
    place = "key" if key else "bucket" if bucket else "service"
    named = [name for name in SUBRESOURCES if name in query][:1] + ["copy"] * copies
    return OPERATIONS.get((method, place, " ".join(named)), " ".join([method, place, *named]))


class S3Proxy(ServesWhileEntered, socketserver.ThreadingTCPServer):
    """Serves while it is entered. Assign a function to `faults`: it chooses the fault of each request."""

    request_queue_size = 128

    def __init__(self, upstream: S3Server) -> None:
        """Listen on a free port. upstream: its URL must start with "http://", because the proxy has no TLS."""
        self._upstream = upstream
        self._lock = threading.Lock()
        self._requests: list[Request] = []
        self._clients: set[socket.socket] = set()
        self.faults: Faults = no_faults
        self.delay_seconds = 0.0
        """How long each request waits before it is forwarded, in seconds."""
        self.most_in_flight = 0
        """The largest number of requests that waited for the head of their answer at the same time."""
        self._in_flight = 0
        self.further_headers: Callable[[Request], Iterable[bytes]] = lambda _request: ()
        """Returns lines to add to the head of an answer, as other servers send them."""
        self.removed_headers: Callable[[Request], Collection[bytes]] = lambda _request: ()
        """Returns names, in lower case, of lines to remove from the head of an answer."""
        super().__init__(("127.0.0.1", 0), _Connection)

    @property
    def endpoint_url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    @property
    def server(self) -> S3Server:
        """The server as it is reached through the proxy."""
        return replace(self._upstream, endpoint_url=self.endpoint_url)

    def environ(self) -> dict[str, str]:
        """Return the variables that point a program to the proxy."""
        return self.server.environ()

    @property
    def requests(self) -> list[Request]:
        """The requests in order of arrival, since the beginning or the last `clear`."""
        with self._lock:
            return list(self._requests)

    def counts(self) -> Counter[str]:
        """Return the number of requests by operation."""
        return Counter(request.operation for request in self.requests)

    def count(self, operation: str) -> int:
        return self.counts()[operation]

    def clear(self) -> None:
        """Forget all requests; arrival numbers start at 0 again."""
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
        """Close all client connections, and wait for their threads."""
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
        """Record a request, and choose its fault."""
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
    """A client's connection, and the proxy's own connection to the server."""

    server: S3Proxy

    def handle(self) -> None:
        self.client = Wire(self.request)
        self.upstream: Wire | None = None
        with contextlib.suppress(OSError, EOFError):  # one side has closed: close the other side, too
            while (head := self.client.head()) is not None:
                self.server.delay()
                if not self._answer(self.server.record(head), head):
                    break
        self.client.close()
        self._hang_up()

    def _answer(self, request: Request, head: Head) -> bool:
        """Serve one request. Return True if the connection can be used for another request."""
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
        """Send the whole request to the server.

        The server may answer and close before it has received the whole body.
        """
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
        """Send the server's answer to the client, changed by the fault of the request."""
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
        """Yield the first block in pieces, with pauses, then the rest."""
        time.sleep(SLOW_SECONDS)
        first = next(blocks, b"")
        size = len(first) // SLOW_PIECES + 1
        for start in range(0, len(first), size):
            yield first[start : start + size]
            time.sleep(SLOW_SECONDS / SLOW_PIECES)
        yield from blocks

    def _cut(self, request: Request, answer: Head, length: int | None, blocks: Iterator[bytes]) -> bool:
        """Send half of the body and reset the connection.

        Without a body, half of the head is sent. Of a body with an unknown length, the first byte is sent.
        """
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
        """Answer in place of the server."""
        status, reason, code = answer
        body = b"" if request.method == "HEAD" else ERROR % code
        request.status, request.bytes_sent = status, len(body)
        headers = b"Content-Type: application/xml\r\nContent-Length: %d\r\n\r\n" % len(body)
        self.client.send(b"HTTP/1.1 %d %s\r\n" % (status, reason) + headers + body)
        return True

    def _server(self) -> Wire:
        """Return the connection to the server, which is opened again if the server has closed it."""
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
    """A proxy in front of `s3_server` that counts requests, and makes those fail that `faults` chooses."""
    if not s3_server.endpoint_url.startswith("http://"):
        missing_service("the proxy of the tests speaks no TLS: give an http:// URL in CAFCAT_TEST_S3_URL")
    with S3Proxy(s3_server) as proxy:
        yield proxy


@pytest.fixture
def s3_proxy_environment(s3_proxy: S3Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    """Point this process and its children to `s3_proxy`."""
    for name, value in s3_proxy.environ().items():
        monkeypatch.setenv(name, value)
