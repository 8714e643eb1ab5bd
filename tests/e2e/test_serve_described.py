"""serve: its description in the form of OpenAPI has every path and every status that the server has.

`FileServer.request` also compares each response of the other tests with the description.
"""

import ast
import http.client
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import cafcat.serve
from tests.e2e.conftest import Cafcat
from tests.worlds.file_server import FileServer, serving
from tests.worlds.servers.described import DESCRIPTION, METHODS, check_described, operation_path, responses_of

pytest.importorskip("uvicorn")

SOURCE = Path(cafcat.serve.__file__).parent
OPERATIONS = {(path, method) for path, item in DESCRIPTION["paths"].items() for method in item if method in METHODS}
FAULTS = {307, 408, 414, 431, 500, 501, 503}
"""Statuses that need a fault, a bucket or a request that http.client does not send. Other tests cause them."""


@pytest.fixture(scope="module")
def server(filled: Cafcat, tmp_path_factory: pytest.TempPathFactory) -> Iterator[FileServer]:
    with serving(filled, tmp_path_factory.mktemp("log") / "log") as running:
        yield running


def test_the_description_is_served(server: FileServer) -> None:
    answer = server.request("/openapi.json")
    assert answer.document == DESCRIPTION | {"info": DESCRIPTION["info"] | {"version": cafcat.__version__}}
    assert answer.headers["content-type"] == "application/json"
    assert answer.document["openapi"] == "3.1.0"


def constants(kind: type, *names: str) -> set[Any]:
    """Return the constants of a type in modules of the HTTP side."""
    trees = [ast.parse((SOURCE / name).read_text()) for name in names]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    return {node.value for node in nodes if isinstance(node, ast.Constant) and type(node.value) is kind}


def test_every_status_in_the_code_is_described() -> None:
    described = {int(status) for operation in [*OPERATIONS, ("/", "x")] for status in responses_of(*operation)}
    modules = [path.name for path in SOURCE.glob("*.py")]
    in_code = {number for number in constants(int, *modules) if number in http.client.responses}
    assert in_code - {100, 300} == described  # which are a number of headers, and of seconds


def test_every_path_in_the_code_is_described() -> None:
    found = {text for text in constants(str, "application.py") if text.startswith("/")}
    found -= {"/-/"}  # the console, which the description leaves out
    found |= {text.decode() for text in constants(bytes, "application.py", "files.py") if text.startswith(b"/")}
    assert found | {"/files/{path}", "/files/{folder}/"} == set(DESCRIPTION["paths"])


def requests(etag: str) -> list[tuple[str, str, dict[str, str], bytes | None]]:
    """Return requests that cause every described status, apart from FAULTS."""
    both = [
        ("/", {}),
        ("/", {"Accept": "text/html"}),
        ("/files", {}),
        ("/files/", {}),
        ("/files/?limit=0", {}),
        ("/files/tree/", {}),
        ("/files/tree/", {"Accept": "application/json"}),
        ("/files/none/", {}),
        ("/files/tree/?after=%00", {}),
        ("/files/tree/a.txt?download", {}),
        ("/files/tree/a.txt", {"If-None-Match": etag}),
        ("/files/tree/a.txt", {"If-Match": '"other"'}),
        ("/files/tree", {}),
        ("/files/none", {}),
        ("/files/tree/..", {}),
        ("/healthz", {}),
        ("/metrics", {}),
        ("/openapi.json", {}),
    ]
    found: list[tuple[str, str, dict[str, str], bytes | None]] = [
        (method, target, headers, None) for target, headers in both for method in ("GET", "HEAD")
    ]
    found += [("GET", "/files/tree/a.txt", {"Range": spec}, None) for spec in ("bytes=0-1", "bytes=0-1,3-4")]
    found += [("GET", "/files/tree/a.txt", {"Range": "bytes=99-"}, None)]
    bodies = (b'["tree/a.txt"]', b"[", b'["none"]')
    return found + [("POST", "/batch", {"Content-Type": "application/json"}, body) for body in bodies]


def test_every_described_status_is_given(server: FileServer) -> None:
    seen = {("/batch", "post", 413)}  # see test_a_list_that_is_too_long
    for method, target, headers, body in requests(server.request("/files/tree/a.txt").headers["etag"]):
        answer = server.request(target, headers, method, body)
        seen.add((operation_path(target), method.lower(), answer.status))
    described = {(*operation, int(status)) for operation in OPERATIONS for status in responses_of(*operation)}
    missing = {(path, method, status) for path, method, status in described - seen if status not in FAULTS}
    assert seen <= described
    # The parser of HTTP gives 400 for any path.
    assert {(path, method, status) for path, method, status in missing if status != 400} == set()


@pytest.mark.parametrize("path", sorted(DESCRIPTION["paths"]))
@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"])
def test_other_methods_are_refused_with_those_that_there_are(server: FileServer, path: str, method: str) -> None:
    target = path.format(path="tree/a.txt", folder="tree")
    answer = server.request(target, method=method)
    assert (answer.status == 405) == ((path, method.lower()) not in OPERATIONS)


@pytest.mark.parametrize("target", ["/none", "/healthz/", "/metrics/", "/batch/", "/openapi.json/", "/docs", "//"])
def test_there_are_no_other_paths(server: FileServer, target: str) -> None:
    assert server.request(target).status == 404


def test_a_response_that_is_not_described_is_noticed() -> None:
    headers = {"content-type": "application/json"}
    check_described("GET", "/files/a", 404, headers)
    for method, target, status in (("GET", "/files/a", 402), ("PUT", "/batch", 200), ("GET", "/none", 200)):
        with pytest.raises(AssertionError):
            check_described(method, target, status, headers)
    with pytest.raises(AssertionError):
        check_described("GET", "/healthz", 200, {"content-type": "text/plain"})
    with pytest.raises(AssertionError):
        check_described("GET", "/files/a", 416, headers)  # without Content-Range
