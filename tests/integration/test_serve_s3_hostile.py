"""The S3 server answers hostile requests with proper errors, and never reveals files of another folder."""

import http.client
import re
import socket
import time
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping

import pytest

import cafcat
from cafcat.serve.s3.keys import NewKey, add_key
from tests.worlds.aws_signing import Signer
from tests.worlds.servers.s3_gateway import Gateway, gateway

pytestmark = pytest.mark.slow

SECRET = b"only for the key of the other folder"


@pytest.fixture(scope="module")
def server(shared_repository: cafcat.Repository) -> Iterator[Gateway]:
    with shared_repository.writer() as writer:
        writer.add("mine/a", b"mine")
        writer.add("mine/sub/b", b"mine, too")
        writer.add("secret/file", SECRET)
        writer.add("mine2/file", SECRET)
    with gateway(shared_repository) as server:
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
        ("/mine/" + "x" * 17_000, 414, ""),
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
        ("/?max-buckets=0", 200, ""),
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


@pytest.mark.parametrize("method", ["PUT", "POST", "DELETE", "PATCH", "TRACE", "BREW"])
def test_other_methods(server: Gateway, key: NewKey, method: str) -> None:
    status, code, _ = ask(server, key, "/mine/a", method=method)
    assert (status, code) in ((405, "MethodNotAllowed"), (400, ""))  # the HTTP server refuses unknown methods


def test_a_preflight_request_of_a_browser_is_refused(server: Gateway, key: NewKey) -> None:
    assert ask(server, key, "/mine/a", method="OPTIONS")[:2] == (400, "BadRequest")
    origin = {"Origin": "http://example.org", "Access-Control-Request-Method": "GET"}
    assert ask(server, key, "/mine/a", origin, method="OPTIONS")[:2] == (403, "AccessForbidden")


def test_a_revoked_key_is_refused(server: Gateway) -> None:
    from cafcat.serve.s3.keys import revoke_key

    with gateway(server.repository, key_seconds=0.0) as forgetful:
        assert ask(forgetful, forgetful.key, "/secret/file")[0] == 200
        revoke_key(server.repository.session, forgetful.key.access_key_id)
        assert ask(forgetful, forgetful.key, "/secret/file")[:2] == (403, "InvalidAccessKeyId")


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


def written(target: str, headers: Mapping[str, str]) -> bytes:
    lines = [f"GET {target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, "Connection: close", "", ""]).encode()


def code_of(server: Gateway, target: str, headers: Mapping[str, str]) -> tuple[int, str]:
    answer = raw(server, written(target, headers))
    assert SECRET not in answer
    code = re.search(b"<Code>(.*?)</Code>", answer)
    return int(answer[9:12]), code[1].decode() if code else ""


REFUSED = (403, "SignatureDoesNotMatch")


def test_tampered_signatures(server: Gateway, key: NewKey) -> None:
    host = {"Host": f"127.0.0.1:{server.port}"}
    signed = signer(key).headers("GET", "/mine/a", host, time.time())
    assert code_of(server, "/mine/a", signed) == (200, "")
    authorization = signed["Authorization"]
    other = authorization[:-1] + ("0" if authorization[-1] != "0" else "1")
    assert code_of(server, "/mine/a", signed | {"Authorization": other}) == REFUSED
    assert code_of(server, "/mine/sub/b", signed) == REFUSED
    assert code_of(server, "/mine/a?versionId=null", signed) == REFUSED
    named = authorization.replace(key.access_key_id, server.key.access_key_id)
    assert code_of(server, "/secret/file", signed | {"Authorization": named}) == REFUSED
    url = signer(key).presigned("/mine/a", host["Host"], time.time(), 60)
    assert code_of(server, url, host) == (200, "")
    assert code_of(server, url.replace("/mine/a", "/secret/file"), host) == REFUSED
    assert code_of(server, url.replace("Expires=60", "Expires=600"), host) == REFUSED
    assert code_of(server, url, {"Host": "elsewhere"}) == REFUSED


def test_expired_signatures(server: Gateway, key: NewKey) -> None:
    host = {"Host": f"127.0.0.1:{server.port}"}
    for age in (-1000, 1000):
        old = signer(key).headers("GET", "/mine/a", host, time.time() - age)
        assert code_of(server, "/mine/a", old) == (403, "RequestTimeTooSkewed")
    url = signer(key).presigned("/mine/a", host["Host"], time.time() - 61, 60)
    assert code_of(server, url, host) == (403, "AccessDenied")


def test_an_expired_key_is_refused(server: Gateway) -> None:
    key = add_key(server.repository.session, seconds=1)
    with gateway(server.repository, key_seconds=0.0) as forgetful:
        assert ask(forgetful, key, "/secret/file")[0] == 200
        time.sleep(1.5)
        assert ask(forgetful, key, "/secret/file")[:2] == (403, "InvalidAccessKeyId")
