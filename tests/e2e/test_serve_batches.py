"""POST /batch: many files in one stream, damaged files, and redirects to the store."""

import http.client
import io
import json
import os
import random
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from tests.e2e.conftest import TREE, Cafcat, write_tree
from tests.worlds.archives.damage import flip
from tests.worlds.file_server import FileServer, serving
from tests.worlds.waiting import wait_until

pytest.importorskip("uvicorn")

NAMES = list(reversed(TREE))
LARGE = random.Random(5).randbytes(9_000_000)


@pytest.fixture(scope="module")
def server(filled: Cafcat, tmp_path_factory: pytest.TempPathFactory) -> Iterator[FileServer]:
    with serving(filled, tmp_path_factory.mktemp("log") / "log") as running:
        yield running


def members(data: bytes, format: str) -> dict[str, bytes]:
    if format == "zip":
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            return {info.filename: archive.read(info) for info in archive.infolist()}
    with tarfile.open(fileobj=io.BytesIO(data), mode="r|") as tar:
        return {info.name: (tar.extractfile(info) or pytest.fail("no file")).read() for info in tar}


@pytest.mark.parametrize("format", ["tar", "zip"])
@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (json.dumps(NAMES), "application/json"),
        (json.dumps({"paths": NAMES}), "application/json"),
        (json.dumps(NAMES), "application/x-www-form-urlencoded"),
        ("\n".join(name for name in NAMES if "\n" not in name) + "\n", "text/plain"),
        ("\n".join(name for name in NAMES if "\n" not in name), ""),
    ],
)
def test_files_in_the_order_of_the_request(server: FileServer, format: str, body: str, kind: str) -> None:
    answer = server.request(f"/batch?format={format}", {"Content-Type": kind}, "POST", body.encode())
    assert (answer.status, answer.headers["content-type"][:13]) == (
        200,
        f"application/{'x-tar' if format == 'tar' else 'zip'}"[:13],
    )
    found = members(answer.body, format)
    names = NAMES if body[0] in "[{" else [name for name in NAMES if "\n" not in name]
    assert list(found) == names
    assert found == {name: TREE[name] for name in names}


@pytest.mark.parametrize(
    ("body", "query", "status"),
    [
        (b"[1]", "", 400),
        (b"{}", "", 400),
        (b'{"paths": "tree/a.txt"}', "", 400),
        (b"[", "", 400),
        (b"[" * 100_000, "", 400),
        (b"\xff", "", 400),
        (b'["tree/a.txt"]', "?format=rar", 400),
        (b'["tree/a.txt"]', "?on_error=ignore", 400),
        (b'{"paths": [], "format": "rar"}', "", 400),
        (b'{"paths": [], "on_error": "ignore"}', "?on_error=skip", 400),
        (b'["../etc/passwd"]', "", 404),
        (b'["/etc/passwd"]', "", 404),
        (b'["tree/%2e%2e/tree/a.txt"]', "", 404),
        (b'["tree//a.txt"]', "", 404),
        (b'["/tree/a.txt"]', "", 404),
        (b'["./tree/a.txt"]', "", 404),
        (json.dumps(["x" * 2049]).encode(), "", 404),
        (b'["none"]', "", 404),
        (b'["tree/a.txt", "tree/folder"]', "", 404),
        (b'["\\u0000"]', "", 400),
        (b'["\\ud800"]', "", 400),
    ],
)
def test_requests_that_get_no_archive(server: FileServer, body: bytes, query: str, status: int) -> None:
    answer = server.request("/batch" + query, {"Content-Type": "application/json"}, "POST", body)
    assert answer.status == status
    assert answer.document["error"]["message"]


@pytest.mark.parametrize("path", ["none", "tree/folder", "../etc/passwd"])
def test_the_file_that_failed_is_named(server: FileServer, path: str) -> None:
    answer = server.request("/batch", method="POST", body=json.dumps(["tree/a.txt", path, "none"]).encode())
    assert (answer.status, answer.document["error"]["path"]) == (404, path)


def test_missing_files_are_named_in_the_last_member(server: FileServer) -> None:
    body = json.dumps({"paths": ["none", "tree/a.txt", "\ud800", "tree/b.bin"], "on_error": "skip"}).encode()
    found = members(server.request("/batch", method="POST", body=body).body, "tar")
    assert list(found) == ["tree/a.txt", "tree/b.bin", ".cafcat-errors.json"]
    errors = json.loads(found[".cafcat-errors.json"])
    assert [(row["path"], row["kind"]) for row in errors] == [("none", "not_found"), ("\ud800", "invalid_input")]


def test_a_list_that_is_too_long(server: FileServer) -> None:
    head = b"POST /batch HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n"
    assert server.raw(head + b"x").startswith(b"HTTP/1.1 413")


@pytest.fixture
def damaged(cafcat: Cafcat, tmp_path: Path) -> Iterator[FileServer]:
    """A server of files of which a small and a large one are damaged."""
    write_tree(cafcat.folder)
    (cafcat.folder / "tree/large").write_bytes(LARGE)
    (cafcat.folder / "tree/middle").write_bytes(LARGE[:100_000])
    cafcat("ingest", "tree")
    for path in ("tree/large", "tree/a.txt", "tree/middle"):
        place = cafcat("locate", path, "--json").document
        flip(Path(place["object"]), place["end_byte"] - 1)
    with serving(cafcat, tmp_path / "log") as running:
        yield running


def test_a_large_damaged_file_ends_before_its_last_byte(damaged: FileServer) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", damaged.port)
    connection.request("GET", "/files/tree/large")
    response = connection.getresponse()
    assert (response.status, response.getheader("content-length")) == (200, str(len(LARGE)))
    with pytest.raises(http.client.IncompleteRead) as caught:
        response.read()
    connection.close()
    assert LARGE.startswith(caught.value.partial)
    line = damaged.logged("/files/tree/large")
    assert (line["incomplete"], line["error"]["kind"]) == (True, "corrupt")
    assert "tree/large" in line["error"]["message"]


@pytest.mark.parametrize("path", ["tree/a.txt", "tree/middle"])
def test_a_small_damaged_file_gets_a_status(damaged: FileServer, path: str) -> None:
    answer = damaged.request(f"/files/{path}")
    assert answer.status == 500
    assert answer.document == {"error": {"kind": "corrupt", "message": "the file is damaged"}}
    line = damaged.logged(f"/files/{path}")
    assert (line["status"], line["error"]["kind"]) == (500, "corrupt")
    metrics = damaged.request("/metrics").body
    assert b'cafcat_http_failures_total{kind="corrupt"} 1.0' in metrics


def test_damaged_files_in_batches(damaged: FileServer) -> None:
    names = ["tree/b.bin", "tree/large", "tree/a.txt", "tree/folder/c.txt"]
    body = json.dumps(names).encode()
    for format in ("tar", "zip"):
        answer = damaged.request(f"/batch?on_error=skip&format={format}", method="POST", body=body)
        found = members(answer.body, format)
        assert list(found) == ["tree/b.bin", "tree/folder/c.txt", ".cafcat-errors.json"]
        errors = json.loads(found.pop(".cafcat-errors.json"))
        assert [(row["path"], row["kind"]) for row in errors] == [
            ("tree/large", "corrupt"),
            ("tree/a.txt", "corrupt"),
        ]
        assert found == {name: TREE[name] for name in found}
    with pytest.raises(http.client.IncompleteRead):
        damaged.request("/batch?on_error=fail", method="POST", body=body)
    wait_until(lambda: damaged.logged("/batch").get("incomplete"))  # the lines of the batches before come first


def test_a_missing_archive(cafcat: Cafcat, tmp_path: Path) -> None:
    write_tree(cafcat.folder)
    cafcat("ingest", "tree")
    place = cafcat("locate", "tree/a.txt", "--json").document
    os.unlink(place["object"])
    with serving(cafcat, tmp_path / "log") as server:
        for path in ("tree/a.txt", "tree/big.dat"):
            answer = server.request(f"/files/{path}")
            assert answer.status == 500
            assert str(tmp_path).encode() not in answer.body
            assert place["chunk"] in server.logged(f"/files/{path}")["error"]["message"]


def test_redirect_serves_files_that_have_no_signed_url(filled: Cafcat, tmp_path: Path) -> None:
    with serving(filled, tmp_path / "log", "--redirect") as server:
        assert server.request("/files/tree/a.txt?redirect").body == TREE["tree/a.txt"]
        assert server.request("/files/tree/a.txt", {"Cafcat-Redirect": "1"}).body == TREE["tree/a.txt"]


@pytest.mark.usefixtures("s3_environment")
def test_files_of_a_bucket_and_redirects_to_it(
    cafcat: Cafcat, tmp_path: Path, make_bucket: Callable[[], str]
) -> None:
    cafcat.extra["CAFCAT_STORE"] = f"s3://{make_bucket()}/chunks"
    write_tree(cafcat.folder)
    cafcat("ingest", "tree")
    with serving(cafcat, tmp_path / "log", "--redirect") as server:
        for path in ("tree/a.txt", "tree/big.dat", "tree/empty"):
            assert server.request(f"/files/{path}").body == TREE[path]
        part = server.request("/files/tree/big.dat", {"Range": "bytes=1000-1999"})
        assert (part.status, part.body) == (206, TREE["tree/big.dat"][1000:2000])
        body = json.dumps(NAMES).encode()
        assert members(server.request("/batch", method="POST", body=body).body, "tar") == TREE
        for target, headers in (("?redirect", {}), ("", {"Cafcat-Redirect": "1"})):
            answer = server.request("/files/tree/a.txt" + target, headers)
            assert (answer.status, answer.body) == (307, b"")
            wanted = {"Range": answer.headers["cafcat-range"]}
            with urlopen(Request(answer.headers["location"], headers=wanted)) as response:  # noqa: S310 - of our server
                assert response.read() == TREE["tree/a.txt"]
        assert server.request("/files/tree/empty?redirect").status == 200
    with serving(cafcat, tmp_path / "log") as server:
        assert server.request("/files/tree/a.txt?redirect").status == 200
