"""Resumable uploads against a server that keeps Google's promises which fake-gcs-server does not keep.

The server is written after "Perform resumable uploads" and "Request preconditions" of Google Cloud Storage. It
shows that cafcat follows these pages, not how Google Cloud Storage behaves.
"""

import base64
import json
import random
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

from cafcat.errors import Conflict, StoreFailed
from cafcat.stores.base import Store
from cafcat.stores.kind import StoreContext
from cafcat.stores.registry import open_store
from cafcat.support.checksums import crc32c

UNIT = 256 << 10
MIB = 1 << 20


class Resumable(ThreadingHTTPServer):
    """Keeps at most `keeps` bytes of a request, and ignores bytes that it has already.

    Attributes:
        keeps: most bytes that one request adds.
        loses: number of next answers to PUT requests that are lost.
        objects: the objects by name, with their metadata.
    """

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Request)
        self.keeps = 10**9
        self.loses = 0
        self.cancelled = 0
        self.objects: dict[str, tuple[bytes, dict[str, str]]] = {}
        self.uploads: dict[str, tuple[str, bytearray, dict[str, str]]] = {}


class _Request(BaseHTTPRequestHandler):
    server: Resumable
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        query, body = self.query(), json.loads(self.body())
        name = query["name"]
        assert query["ifGenerationMatch"] == "0"
        if name in self.server.objects:
            return self.answer(412)
        self.server.uploads["u"] = (name, bytearray(), body["metadata"])
        return self.answer(200, {"location": f"{self.path}&upload_id=u"})

    def do_PUT(self) -> None:
        body, upload = self.body(), self.server.uploads.get(self.query()["upload_id"])
        if upload is None:
            return self.answer(404)
        name, data, metadata = upload
        span = re.fullmatch(r"bytes (?:(\d+)-(\d+)|\*)/(\d+|\*)", self.headers["content-range"])
        assert span
        if span[1]:
            first = int(span[1])
            assert first <= len(data), "a gap"
            assert span[3] != "*" or len(body) % UNIT == 0
            data += body[len(data) - first :][: self.server.keeps]
            if span[3] != str(len(data)):
                del data[len(data) // UNIT * UNIT :]
        if span[3] == str(len(data)):
            if name in self.server.objects:
                return self.answer(412)
            self.server.objects[name] = bytes(data), metadata
            return self.lost() or self.answer(200, {}, self.properties(name))
        return self.lost() or self.answer(308, {"range": f"bytes=0-{len(data) - 1}"} if data else {})

    def do_GET(self) -> None:
        name = unquote(urlsplit(self.path).path.rpartition("/")[2])
        return self.answer(200, {}, self.properties(name)) if name in self.server.objects else self.answer(404)

    def do_DELETE(self) -> None:
        self.server.cancelled += self.server.uploads.pop(self.query()["upload_id"], None) is not None
        self.answer(499)

    def properties(self, name: str) -> dict[str, Any]:
        data, metadata = self.server.objects[name]
        checksum = base64.b64encode(crc32c(data).to_bytes(4)).decode()
        updated = "2026-01-01T00:00:00Z"
        known = {"name": name, "size": str(len(data)), "generation": "7", "updated": updated, "crc32c": checksum}
        return known | {"metadata": metadata}

    def query(self) -> dict[str, str]:
        return {name: values[0] for name, values in parse_qs(urlsplit(self.path).query).items()}

    def body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("content-length") or 0))

    def lost(self) -> bool:
        """Break the connection, if the answer is to be lost."""
        if not self.server.loses:
            return False
        self.server.loses -= 1
        self.close_connection = True
        return True

    def answer(self, status: int, headers: dict[str, str] | None = None, document: object = None) -> None:
        body = b"" if document is None else json.dumps(document).encode()
        self.send_response(status)
        for name, value in {**(headers or {}), "content-length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Resumable]:
    with Resumable() as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def store(server: Resumable) -> Store:
    options = {"endpoint_url": f"http://127.0.0.1:{server.server_address[1]}", "anonymous": "true"}
    return open_store("gs://bucket", StoreContext(options=options, upload_memory=20_000_000))


@pytest.fixture
def data() -> bytes:
    return random.Random(9).randbytes(12 * MIB + 5)


def written(store: Store, data: bytes, *, rewrites_head: bool = False) -> None:
    upload = store.create("key", rewrites_head=rewrites_head)
    upload.write(data)
    upload.commit()


@pytest.mark.parametrize("keeps", [UNIT, 3 * UNIT + 1, 10**9])
@pytest.mark.parametrize("loses", [0, 2])
@pytest.mark.parametrize("rewrites_head", [False, True])
def test_the_server_keeps_a_part_of_each_request(
    server: Resumable, store: Store, data: bytes, keeps: int, loses: int, rewrites_head: bool
) -> None:
    server.keeps, server.loses = keeps, loses
    written(store, data, rewrites_head=rewrites_head)
    assert server.objects["key"][0] == data


@pytest.mark.parametrize("size_bytes", [0, 1, UNIT, UNIT + 1])
def test_a_lost_answer_to_the_last_request(server: Resumable, store: Store, size_bytes: int) -> None:
    server.loses = 1
    written(store, bytes(size_bytes))
    assert server.objects["key"][0] == bytes(size_bytes)


def test_an_object_is_never_replaced(server: Resumable, store: Store) -> None:
    upload = store.create("key")
    upload.write(b"ours")
    server.objects["key"] = b"theirs", {}
    with pytest.raises(Conflict):
        upload.commit()
    upload.abort()
    with pytest.raises(Conflict):
        store.create("key")
    assert server.objects["key"][0] == b"theirs"


def test_a_server_that_takes_nothing_is_an_error(server: Resumable, store: Store, data: bytes) -> None:
    server.keeps = 0
    with pytest.raises(StoreFailed):
        written(store, data)


def test_a_dead_upload_is_cancelled(server: Resumable, store: Store) -> None:
    upload = store.create("key")
    store.discard("key", upload.upload_id)
    store.discard("key", upload.upload_id)
    assert server.cancelled == 1
    upload.write(b"late")
    with pytest.raises(StoreFailed):
        upload.commit()
    upload.abort()
    assert server.objects == {}
