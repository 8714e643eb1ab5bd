"""A proxy in front of the S3 server that makes writes possible: the tests of the suite write what they read.

Every request that reads is forwarded unchanged, with its Host header and its signature.
"""

import http.client
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, unquote, urlsplit

from tests.ceph_suite.writes import Answer, Buckets, Request
from tests.worlds.servers.serving import ServesWhileEntered

__all__ = ["WritingProxy"]

HOP = ("connection", "keep-alive", "transfer-encoding")
READS = ("GET", "HEAD", "OPTIONS")
SIGNER = re.compile(r"Credential=([^/,&]+)")
EMPTY_LISTS = {"versions": b"ListVersionsResult", "": b"ListBucketResult"}
EMPTY_LIST = b"<%s><IsTruncated>false</IsTruncated><KeyCount>0</KeyCount></%s>"
VERSIONING = b"<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>"


class WritingProxy(ServesWhileEntered, ThreadingHTTPServer):
    """Serves while it is entered."""

    daemon_threads = True

    def __init__(self, buckets: Buckets, private: str, public: str) -> None:
        """Listen on a free port.

        Args:
            buckets: performs writes.
            private: URL of the S3 server.
            public: URL of another one with the same catalog, which lets anybody read every file. It is asked for
                buckets and objects with a public ACL.
        """
        self.buckets = buckets
        self.made_up = 0
        """Number of answers about empty buckets. The S3 server has none: an empty folder does not exist."""
        self._places = {False: urlsplit(private), True: urlsplit(public)}
        self._lock = threading.Lock()
        super().__init__(("127.0.0.1", 0), _Connection)

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    def handle_error(self, *_: object) -> None:
        """Print nothing: a client closed its connection."""

    def answer(self, request: Request) -> Answer:
        if request.method not in READS:
            return self.buckets.write(request)
        answer = self._forward(request)
        if answer.status == 404 and request.bucket in self.buckets.names:
            return self._of_empty_bucket(request, answer)
        return answer

    def _forward(self, request: Request) -> Answer:
        place = self._places[self.buckets.is_public(request)]
        connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=60)
        try:
            connection.putrequest(request.method, request.target, skip_host=True, skip_accept_encoding=True)
            for name, value in request.headers.items():
                connection.putheader(name, value)
            connection.endheaders(request.body or None)
            answer = connection.getresponse()
            headers = {name.lower(): value for name, value in answer.getheaders()}
            return Answer(
                answer.status, {name: value for name, value in headers.items() if name not in HOP}, answer.read()
            )
        finally:
            connection.close()

    def _of_empty_bucket(self, request: Request, answer: Answer) -> Answer:
        """Return the answer of an empty bucket in place of NoSuchBucket, and all other answers as they are."""
        is_head_of_bucket = request.method == "HEAD" and not request.key
        if b"<Code>NoSuchBucket</Code>" not in answer.body and not is_head_of_bucket:
            return answer
        with self._lock:
            self.made_up += 1
        if is_head_of_bucket:
            return Answer(200)
        if request.key:
            headers = {name: value for name, value in answer.headers.items() if name != "content-length"}
            return Answer(404, headers, answer.body.replace(b"NoSuchBucket", b"NoSuchKey"))
        if "versioning" in request.query:
            return Answer(200, body=VERSIONING)
        root = EMPTY_LISTS["versions" if "versions" in request.query else ""]
        return Answer(200, body=EMPTY_LIST % (root, root))


class _Connection(BaseHTTPRequestHandler):
    server: WritingProxy
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """Print nothing."""

    def _serve(self) -> None:
        answer = self.server.answer(self._request())
        self.send_response_only(answer.status)
        headers = {"content-length": str(len(answer.body))} | answer.headers
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)

    def _request(self) -> Request:
        path, _, query = self.path.partition("?")
        bucket, _, key = unquote(path).removeprefix("/").partition("/")
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items()}
        signer = SIGNER.search(headers.get("authorization", "") + unquote(query).replace("X-Amz-", ""))
        parameters = dict(parse_qsl(query, keep_blank_values=True))
        name = "" if signer is None else signer[1]
        return Request(self.command, self.path, bucket, key, parameters, headers, body, name)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = do_OPTIONS = _serve
