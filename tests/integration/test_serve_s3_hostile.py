"""The S3 server answers hostile requests with proper errors, and never reveals files of another folder."""

import http.client
import random
import re
import socket
import time
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

import cafcat
from cafcat.serve.s3.keys import NewKey, add_key
from tests.worlds.aws_signing import Signer
from tests.worlds.servers.s3_gateway import Gateway, gateway

pytestmark = pytest.mark.slow

SECRET = b"only for the key of the other folder"
MUTATED = 1000
"""Number of requests with changed bytes, and of requests with odd parts and a valid signature."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, databases: Any) -> Iterator[Gateway]:
    folder = tmp_path_factory.mktemp("served")
    with (
        databases.fresh(databases.template()) as url,
        cafcat.open(database_url=url, home=folder / "home", store=str(folder / "store")) as repository,
    ):
        with repository.writer() as writer:
            writer.add("mine/a", b"mine")
            writer.add("mine/sub/b", b"mine, too")
            writer.add("secret/file", SECRET)
            writer.add("mine2/file", SECRET)
        with gateway(repository) as server:
            yield server


@pytest.fixture(scope="module")
def key(server: Gateway) -> NewKey:
    return add_key(server.repository.session, "mine")


def signer(key: NewKey) -> Signer:
    return Signer(key.access_key_id, key.secret_access_key)


def ask(
    server: Gateway, key: NewKey, target: str, headers: Mapping[str, str] | None = None, method: str = "GET"
) -> tuple[int, str, bytes]:
    """Send a signed request. Return the status, the code of the error or "", and the body."""
    host = f"127.0.0.1:{server.port}"
    signed = signer(key).headers(method, target, {"Host": host} | dict(headers or {}), time.time())
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    try:
        connection.putrequest(method, target, skip_host=True, skip_accept_encoding=True)
        for name, value in signed.items():
            connection.putheader(name, value)
        connection.endheaders()
        answer = connection.getresponse()
        body = answer.read()
    finally:
        connection.close()
    code = re.search(b"<Error><Code>(.*?)</Code>", body)
    return answer.status, code[1].decode() if code else "", body


@pytest.mark.parametrize(
    ("target", "status", "code"),
    [
        ("/mine/a", 200, ""),
        ("/secret/file", 403, "AccessDenied"),
        ("/secret/nothing", 403, "AccessDenied"),
        ("/mine/../secret/file", 404, "NoSuchKey"),
        ("/mine/%2e%2e/secret/file", 404, "NoSuchKey"),
        ("/mine/..%2fsecret/file", 404, "NoSuchKey"),
        ("/mine/./a", 404, "NoSuchKey"),
        ("/mine//a", 404, "NoSuchKey"),
        ("//mine/a", 403, "AccessDenied"),
        ("/./mine/a", 403, "AccessDenied"),
        ("/mine2/file", 403, "AccessDenied"),
        ("/mine%2f/a", 404, "NoSuchKey"),
        ("/mine/a%00", 400, "InvalidURI"),
        ("/mine/%c0%ae%c0%ae/secret/file", 400, "InvalidURI"),
        ("/mine/%e0%80%af", 400, "InvalidURI"),
        ("/mine/%ed%a0%80", 400, "InvalidURI"),
        ("/mine/%f5%80%80%80", 400, "InvalidURI"),
        ("/mine/%zz", 404, "NoSuchKey"),
        ("/mine/" + "x" * 2048, 404, "NoSuchKey"),
        ("/mine/" + "x" * 2049, 400, "KeyTooLongError"),
        ("/mine/" + "x" * 17_000, 400, "KeyTooLongError"),
        ("/mine?prefix=%00", 400, "InvalidURI"),
        ("/mine?prefix=%c0%af", 400, "InvalidURI"),
        ("/mine?prefix=../secret/", 200, ""),
        ("/mine?prefix=../secret/&list-type=2&continuation-token=c2VjcmV0L2Y=", 200, ""),
        ("/mine?versions&key-marker=../secret&version-id-marker=x", 200, ""),
        ("/secret?versions", 403, "AccessDenied"),
        ("/secret?location", 403, "AccessDenied"),
        ("/mine/a?versionId=" + "f" * 70, 400, "InvalidArgument"),
        ("/mine?max-keys=" + "9" * 400, 200, ""),
        ("/mine?max-keys=1e9", 400, "InvalidArgument"),
        ("/mine/a?response-content-type=a%0d%0aSet-Cookie:%20b", 400, "InvalidArgument"),
    ],
)
def test_odd_names(server: Gateway, key: NewKey, target: str, status: int, code: str) -> None:
    found_status, found_code, body = ask(server, key, target)
    assert (found_status, found_code) == (status, code), body
    assert SECRET not in body


def test_errors_are_documents(server: Gateway, key: NewKey) -> None:
    _, _, body = ask(server, key, "/mine/%3Ca%26%01b%22")
    document = ET.fromstring(body)  # noqa: S314 - of our own server
    assert [child.tag for child in document] == ["Code", "Message", "Key", "Resource", "RequestId", "HostId"]
    assert document.findtext("Key") == '<a&\ufffdb"'
    assert re.fullmatch("[0-9A-F]{16}", document.findtext("RequestId") or "")
    status, _, body = ask(server, key, "/mine/nothing", method="HEAD")
    assert (status, body) == (404, b"")


@pytest.mark.parametrize("method", ["PUT", "POST", "DELETE", "PATCH", "OPTIONS", "TRACE", "BREW"])
def test_other_methods(server: Gateway, key: NewKey, method: str) -> None:
    status, code, _ = ask(server, key, "/mine/a", method=method)
    assert (status, code) in ((405, "MethodNotAllowed"), (400, ""))  # the HTTP server refuses unknown methods


def test_a_revoked_key_is_refused(server: Gateway) -> None:
    from cafcat.serve.s3.keys import revoke_key

    key = add_key(server.repository.session)
    assert ask(server, key, "/secret/file")[0] == 200
    revoke_key(server.repository.session, key.access_key_id)
    assert ask(server, key, "/secret/file")[:2] == (403, "InvalidAccessKeyId")


def raw(server: Gateway, request: bytes) -> bytes:
    """Send bytes and then a request that closes the connection, and return all bytes of the answers."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
        answer = b""
        try:
            connection.sendall(request + b"GET /end HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            while block := connection.recv(1 << 16):
                answer += block
        except (ConnectionResetError, BrokenPipeError):
            pass  # the server closed the connection before it read everything
    return answer


def statuses(answer: bytes) -> list[int]:
    return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d{3}) [A-Z]", answer)]


ODD = [
    "..",
    "%2e%2e",
    "%00",
    "%c0%ae",
    "%ff",
    "//",
    "%",
    "%u0041",
    "+",
    "&",
    "=",
    ";",
    "?",
    "a" * 3000,
    "%ed%a0%80",
]
ODD += [
    "secret/file",
    "../secret/file",
    "%0d%0a",
    "\x7f",
    "\xe9",
    "%F4%8F%BF%BF",
    "~",
]
NAMES = ["prefix", "delimiter", "marker", "max-keys", "list-type", "continuation-token", "start-after", "versions"]
NAMES += ["encoding-type", "fetch-owner", "key-marker", "version-id-marker", "versionId", "partNumber", "location"]
NAMES += [
    "attributes",
    "response-content-type",
    "response-expires",
    "acl",
    "uploads",
    "max-buckets",
    "X-Amz-Expires",
]
VALUES = [
    "",
    "0",
    "-1",
    "1",
    "2",
    "1000",
    "9" * 30,
    "url",
    "true",
    "null",
    "/",
    "%F4%8F%BF%BF",
    "c2VjcmV0",
    "a",
    *ODD,
]
RANGES = ["bytes=0-0", "bytes=-1", "bytes=9-", "bytes=" + "9" * 40 + "-", "bytes=1-0", "bytes=0-1,2-3", "x" * 3000]
TAGS = ["*", '"x"', "W/", ",,,", "ETag", "\xff", "x" * 3000]
TIMES = [
    "Sat, 21 Nov 2026 10:00:00 GMT",
    "Sat, 99 Nov 99999 10:00:00 -9999",
    "Sat, 21 Nov 2099 10:00:00 GMT",
    "0",
    "",
]
HEADERS = {
    "Range": RANGES,
    "If-Match": TAGS,
    "If-None-Match": TAGS,
    "If-Modified-Since": TIMES,
    "If-Unmodified-Since": TIMES,
    "If-Range": [*TAGS, *TIMES],
    "x-amz-checksum-mode": ["ENABLED", "enabled", "?"],
    "x-amz-object-attributes": ["ETag", "Checksum,ObjectSize", "nothing", ","],
}


def odd_target(source: random.Random) -> str:
    target = source.choice(
        ["/", "/mine", "/mine/", "/mine/a", "/secret/file", "/mine/sub/b", "/" + source.choice(ODD)]
    )
    for _ in range(source.choice([0, 0, 0, 0, 1, 2])):
        place = source.randint(1, len(target))
        target = target[:place] + source.choice(ODD).replace("?", "%3f") + target[place:]
    pairs = [f"{source.choice(NAMES)}={source.choice(VALUES)}" for _ in range(source.choice([0, 0, 1, 2, 4]))]
    return target + ("?" + "&".join(pairs) if pairs else "")


def written(target: str, headers: Mapping[str, str], method: str) -> bytes:
    lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, "Connection: close", "", ""]).encode("latin-1", "replace")


def check(answer: bytes, request: bytes) -> None:
    for status in statuses(answer):
        is_refused = b"<Code>NotImplemented</Code>" in answer or request.startswith(b"HEAD")
        assert status < 500 or (status == 501 and is_refused), (request, answer)
    for leak in (SECRET, b"<Key>file</Key>", b"<Name>secret</Name>", b"<Name>mine2</Name>"):
        assert leak not in answer, request


def test_signed_requests_with_odd_parts(server: Gateway, key: NewKey) -> None:
    source = random.Random(20261124)
    seen: set[int] = set()
    for _ in range(MUTATED):
        method, target = source.choice(["GET", "GET", "GET", "HEAD"]), odd_target(source)
        odd = {
            name: source.choice(HEADERS[name]) for name in source.sample(list(HEADERS), source.choice([0, 1, 1, 2]))
        }
        headers = {"Host": f"127.0.0.1:{server.port}"} | odd
        signed = signer(key).headers(method, target, headers, time.time())
        request = written(target, signed, method)
        answer = raw(server, request)
        check(answer, request)
        seen.update(statuses(answer))
    assert {200, 206, 304, 400, 403, 404, 412, 416} <= seen  # most signatures are valid


def test_requests_with_changed_bytes(server: Gateway, key: NewKey) -> None:
    source = random.Random(20261125)
    seen: set[int] = set()
    host = f"127.0.0.1:{server.port}"
    for number in range(MUTATED):
        if number % 2:
            request = written(signer(key).presigned("/mine/a", host, time.time()), {"Host": host}, "GET")
        else:
            signed = signer(key).headers("GET", "/mine?prefix=a", {"Host": host}, time.time())
            request = written("/mine?prefix=a", signed, "GET")
        request = changed(request, source)
        answer = raw(server, request)
        check(answer, request)
        seen.update(statuses(answer))
    assert {200, 400, 403} <= seen
    assert ask(server, key, "/mine/a") == (200, "", b"mine")


def changed(data: bytes, source: random.Random) -> bytes:
    """Return the bytes after one to three changes: bytes set, removed, repeated or inserted."""
    for _ in range(source.randint(1, 3)):
        place, length = source.randrange(len(data)), source.randint(1, 8)
        new = {
            "set": bytes([source.randrange(256)]),
            "remove": b"",
            "repeat": data[place : place + length] * 2,
            "insert": source.choice(ODD).encode("latin-1", "replace") + data[place : place + length],
        }[source.choice(["set", "remove", "repeat", "insert"])]
        data = data[:place] + new + data[place + (1 if len(new) == 1 else length) :]
    return data
