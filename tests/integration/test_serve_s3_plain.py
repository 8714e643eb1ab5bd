"""Plain GETs of small objects from the S3 server: those that come together share a query."""

import socket
import time
from http.client import HTTPResponse
from pathlib import Path

import pytest

import cafcat
from cafcat.errors import InvalidInput
from cafcat.serve.s3 import S3Options, s3_app
from tests.worlds.aws_signing import Signer
from tests.worlds.servers.s3_gateway import Gateway, gateway
from tests.worlds.statements import statements
from tests.worlds.waiting import PATIENCE_SECONDS

CLIENTS = 64


def head_of(server: Gateway, target: str, signer: Signer | None) -> bytes:
    """Return a GET, signed unless there is no signer."""
    headers = {"Host": f"127.0.0.1:{server.port}"}
    if signer:
        headers = signer.headers("GET", target, headers, time.time())
    return "\r\n".join([f"GET {target} HTTP/1.1", *map(": ".join, headers.items()), "", ""]).encode()


def get_all(server: Gateway, targets: list[str], signer: Signer | None = None) -> list[tuple[int, bytes]]:
    """Return status and body of GETs that are sent at the same time."""
    connections = [socket.create_connection(("127.0.0.1", server.port), PATIENCE_SECONDS) for _ in targets]
    for connection, target in zip(connections, targets, strict=True):
        connection.sendall(head_of(server, target, signer))
    found = []
    for connection in connections:
        with connection, HTTPResponse(connection) as answer:
            answer.begin()
            found.append((answer.status, answer.read()))
    return found


def signer_of(server: Gateway) -> Signer:
    return Signer(server.key.access_key_id, server.key.secret_access_key)


@pytest.fixture
def filled(local: cafcat.Repository) -> cafcat.Repository:
    with local.writer() as writer:
        for number in range(CLIENTS):
            writer.add(f"data/{number}", b"%d" % number)
    return local


@pytest.mark.parametrize("signed", [True, False])
def test_gets_at_the_same_time_share_queries(filled: cafcat.Repository, tmp_path: Path, signed: bool) -> None:
    options = {"key_seconds": 600.0} if signed else {"public": ("data",)}
    with gateway(filled, **options) as server:
        signer = signer_of(server) if signed else None
        targets = [f"/data/{number}" for number in range(CLIENTS)]
        assert get_all(server, targets[:1], signer) == [(200, b"0")]  # afterwards the key is remembered
        with statements(filled, tmp_path / "trace") as executed:
            assert get_all(server, targets, signer) == [(200, b"%d" % number) for number in range(CLIENTS)]
        assert 0 < len(executed) < CLIENTS


def test_a_remembered_key_does_not_open_anything_else(filled: cafcat.Repository) -> None:
    with filled.writer() as writer:
        writer.add("secret/1", b"hidden bytes")
    with gateway(filled, key_seconds=600.0, public=("data",)) as server:
        right = signer_of(server)
        assert get_all(server, ["/secret/1"] * 2, right) == [(200, b"hidden bytes")] * 2
        wrong = Signer(right.access_key_id, right.secret + "x")
        for signer in (wrong, None):
            [(status, body)] = get_all(server, ["/secret/1"], signer)
            assert (status, b"hidden" in body) == (403, False)
        assert [status for status, _ in get_all(server, ["/data/nothing", "/data/1/", "/data//1"])] == [404] * 3


def test_a_damaged_small_object_is_an_error(filled: cafcat.Repository) -> None:
    location = filled.locate("data/7")
    with open(filled.object_of(location), "r+b") as file:
        file.seek(location.start_byte)
        file.write(b"8")
    with gateway(filled, public=("data",)) as server:
        [(status, body), (other, _)] = get_all(server, ["/data/7", "/data/8"])
        assert (status, b"InternalError" in body, other) == (500, True, 200)


def test_public_folders_must_be_a_list(filled: cafcat.Repository) -> None:
    options = S3Options(public="data")  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="the names must be a list, not one name"):
        s3_app(filled, options)
