"""Some odd requests to a running server (`make fuzz`: 100,000 for each side), and tests of the exploration."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import Cafcat
from tests.fuzz.answers import Judge, Wrong, responses
from tests.fuzz.requests import FILES
from tests.fuzz.server import DOORS, Plan, Target, explore, served
from tests.worlds.servers.services import Databases

pytest.importorskip("uvicorn")


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory, databases: Databases) -> Iterator[Target]:
    with (
        databases.fresh(databases.template()) as url,
        served(Cafcat(tmp_path_factory.mktemp("served"), url)) as found,
    ):
        yield found


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.slow
def test_odd_requests_get_proper_answers(target: Target, door: str) -> None:
    report = explore(target, Plan(door, 2000, connections=4))
    assert not report.findings, "\n".join(report.findings)
    expected = {200, 206, 304, 400, 403, 404, 405, 412, 416, 501} if door == "s3" else {200, 206, 304, 308, 400}
    assert expected <= report.statuses.keys()
    assert report.unanswered < 400


def answer(status: int, headers: bytes, body: bytes) -> bytes:
    return b"HTTP/1.1 %d X\r\n%bcontent-length: %d\r\n\r\n%b" % (status, headers, len(body), body)


def test_responses_are_taken_apart() -> None:
    chunked = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
    head = b"HTTP/1.1 404 No\r\ncontent-length: 7\r\n\r\n"
    found = responses(b"HTTP/1.1 100 Continue\r\n\r\n" + head + chunked + answer(200, b"", b"xy") + head + b"abc")
    assert [(one.status, one.body, one.is_whole) for one in found] == [
        (100, b"", True),
        (404, b"", True),
        (200, b"abc", True),
        (200, b"xy", True),
        (404, b"abc", False),
    ]
    with pytest.raises(Wrong):
        responses(b"hello")


REQUEST = b"GET /files/mine/a HTTP/1.1\r\n\r\n"
A, B = FILES["mine/a"], FILES["mine/sub/b.txt"]


@pytest.mark.parametrize(
    ("request_bytes", "answered"),
    [
        (REQUEST, answer(500, b"", b'{"error": {}}')),
        (REQUEST, answer(404, b"", b"Not Found")),
        (REQUEST, answer(200, b"", b"Traceback (most recent call last)")),
        (REQUEST, answer(200, b"", b"/secret/folder")),
        (REQUEST, answer(200, b'etag: "b"\r\n', B)),
        (REQUEST, answer(200, b'etag: "b"\r\n', b"")),
        (REQUEST, answer(200, b'etag: "a"\r\n', A + b"x")),
        (REQUEST, answer(200, b'etag: "a"\r\n', A[:-1])),
        (REQUEST, answer(206, b'etag: "a"\r\ncontent-range: bytes 1-1/%d\r\n' % len(A), A[:1])),
        (REQUEST, answer(206, b'etag: "a"\r\n', A)),
        (REQUEST, answer(200, b"", B)),
        (b"GET /files/mine/a%00 HTTP/1.1\r\n\r\n", answer(200, b'etag: "a"\r\n', A)),
    ],
)
def test_wrong_answers_are_findings(request_bytes: bytes, answered: bytes) -> None:
    judge = Judge({b'"a"': "mine/a", b'"b"': "mine/sub/b.txt"}, [b"/secret/folder"], is_s3=False)
    assert judge.check(REQUEST, answer(200, b'etag: "a"\r\n', A)) == [200]
    with pytest.raises(Wrong):
        judge.check(request_bytes, answered)


def test_hidden_files_are_findings_of_the_s3_side() -> None:
    judge = Judge({b'"a"': "mine/a"}, [], is_s3=True)
    for body in (FILES["secret/file"], b"<Name>secret</Name>"):
        with pytest.raises(Wrong):
            judge.check(b"GET /secret/file HTTP/1.1\r\n\r\n", answer(200, b"", body))


def test_the_same_requests_are_made_again(tmp_path: Path) -> None:
    from random import Random

    from tests.fuzz.requests import http_request

    made = [http_request(Random(f"http 5 {number}")) for number in range(300)]
    assert made == [http_request(Random(f"http 5 {number}")) for number in range(300)]
    assert len(set(made)) > 250
