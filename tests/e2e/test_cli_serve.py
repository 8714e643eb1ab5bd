"""serve: files, ranges, conditions and folders over HTTP."""

import base64
import email
import html
import json
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator
from email.utils import formatdate
from pathlib import Path
from urllib.parse import quote, unquote

import pytest
from psycopg.conninfo import conninfo_to_dict

from cafcat.serve.representation import type_of
from cafcat.support.checksums import crc32c
from tests.e2e.conftest import BIG, MODIFIED, TREE, Cafcat
from tests.worlds.file_server import FileServer, serving
from tests.worlds.servers.services import Databases
from tests.worlds.waiting import PATIENCE_SECONDS

pytest.importorskip("uvicorn")


@pytest.fixture(scope="module")
def server(filled: Cafcat, tmp_path_factory: pytest.TempPathFactory) -> Iterator[FileServer]:
    with serving(filled, tmp_path_factory.mktemp("log") / "log", "--workers", "2") as running:
        yield running


def target(path: str) -> str:
    return "/files/" + quote(path)


@pytest.mark.parametrize("path", TREE)
def test_a_file_with_its_description(server: FileServer, path: str) -> None:
    answer = server.request(target(path))
    assert (answer.status, answer.body) == (200, TREE[path])
    digest = base64.b64encode(crc32c(TREE[path]).to_bytes(4, "big")).decode()
    modified = MODIFIED + list(TREE).index(path)
    described = {
        "accept-ranges": "bytes",
        "content-length": str(len(TREE[path])),
        "repr-digest": f"crc32c=:{digest}:",
        "x-content-type-options": "nosniff",
    }
    assert described.items() <= answer.headers.items()
    assert answer.headers["last-modified"] in {formatdate(modified, usegmt=True), answer.headers["date"]}
    assert re.fullmatch(r'"[0-9a-f]{32}-[0-9a-f]+-[0-9a-f]+-[0-9a-f]{8}"', answer.headers["etag"])
    head = server.request(target(path), method="HEAD")
    assert (head.status, head.body) == (200, b"")
    dated = {"date": "", "last-modified": ""}
    assert head.headers | dated == answer.headers | dated


def test_tags_differ_between_files_and_stay_the_same(server: FileServer) -> None:
    tags = [server.request(target(path)).headers["etag"] for path in TREE]
    assert len(set(tags)) == len(TREE)
    assert [server.request(target(path), method="HEAD").headers["etag"] for path in TREE] == tags


@pytest.mark.parametrize(
    ("path", "kind"),
    [("tree/a.txt", "text/plain"), ("tree/folder/deep/d.TXT", "text/plain"), ("tree/odd/-dash", None)],
)
def test_the_type_follows_the_name(server: FileServer, path: str, kind: str | None) -> None:
    assert server.request(target(path)).headers["content-type"] == (kind or "application/octet-stream")


def test_the_type_is_the_registered_one() -> None:
    """The tables of Python also have the unofficial image/jpg."""
    assert [type_of(name) for name in ("cat.jpg", "cat.JPEG", "x.webp")] == [b"image/jpeg"] * 2 + [b"image/webp"]


def test_download_names_the_file(server: FileServer) -> None:
    header = server.request(target("tree/odd/日本 é") + "?download").headers["content-disposition"]
    assert header.startswith("attachment; filename=\"__ _\"; filename*=UTF-8''")
    assert unquote(header.partition("''")[2]) == "日本 é"
    quotes = server.request(target('tree/odd/quote\'s "name"') + "?download").headers["content-disposition"]
    assert 'filename="quote\'s _name_"' in quotes


@pytest.mark.parametrize("path", ["tree/big.dat", "tree/b.bin"])
@pytest.mark.parametrize(
    ("header", "start", "end"),
    [
        ("bytes=0-99", 0, 100),
        ("bytes=100-", 100, None),
        ("bytes=-56", -56, None),
        ("bytes=5-5", 5, 6),
        ("bytes=10-99999999999", 10, None),
        ("bytes=-99999999999", 0, None),
        ("BYTES = 1-2", 1, 3),
    ],
)
def test_a_single_range(server: FileServer, path: str, header: str, start: int, end: int | None) -> None:
    answer = server.request(target(path), {"Range": header})
    expected = TREE[path][start:end]
    first = start if start >= 0 else len(TREE[path]) + start
    shown = f"bytes {first}-{first + len(expected) - 1}/{len(TREE[path])}"
    assert (answer.status, answer.headers["content-range"], answer.body) == (206, shown, expected)
    assert answer.headers["content-length"] == str(len(expected))


def test_several_ranges(server: FileServer) -> None:
    spans = [(0, 2_000_000), (2_500_000, 2_500_001), (len(BIG) - 10, len(BIG))]
    header = "bytes=" + ", ".join(f"{start}-{end - 1}" for start, end in spans)
    answer = server.request(target("tree/big.dat"), {"Range": header})
    assert (answer.status, int(answer.headers["content-length"])) == (206, len(answer.body))
    head = f"Content-Type: {answer.headers['content-type']}\r\n\r\n".encode()
    message = email.message_from_bytes(head + answer.body)
    found = [(part["Content-Range"], part.get_payload(decode=True)) for part in message.get_payload()]  # type: ignore[union-attr]
    assert found == [(f"bytes {start}-{end - 1}/{len(BIG)}", BIG[start:end]) for start, end in spans]


@pytest.mark.parametrize("header", ["bytes=3012000-", "bytes=99999999999-", "bytes=-0", "bytes=9999999-,-0"])
def test_a_range_behind_the_end(server: FileServer, header: str) -> None:
    answer = server.request(target("tree/big.dat"), {"Range": header})
    assert (answer.status, answer.headers["content-range"]) == (416, f"bytes */{len(BIG)}")


@pytest.mark.parametrize(
    "header",
    [
        "bytes=",
        "bytes=a-b",
        "bytes=5-2",
        "bytes=-",
        "bytes 0-1",
        "lines=1-2",
        "bytes=0-,0-,0-",
        "bytes=" + ",".join(f"{n}-{n}" for n in range(100)),
        "bytes=\u00b2-3",
        "bytes=" + "1" * 400 + "-",
    ],
)
def test_a_range_that_is_not_valid_gives_the_whole_file(server: FileServer, header: str) -> None:
    answer = server.request(target("tree/b.bin"), {"Range": header})
    assert (answer.status, answer.body) == (200, TREE["tree/b.bin"])


def test_a_range_of_an_empty_file_or_of_a_head(server: FileServer) -> None:
    assert server.request(target("tree/empty"), {"Range": "bytes=0-"}).status == 200
    head = server.request(target("tree/b.bin"), {"Range": "bytes=0-1"}, method="HEAD")
    assert (head.status, head.headers["content-length"]) == (200, "256")


def test_conditions(server: FileServer) -> None:
    described = server.request(target("tree/a.txt"), method="HEAD").headers
    etag, modified = described["etag"], described["last-modified"]
    old, other = formatdate(0, usegmt=True), '"other"'
    for headers, status in (
        ({"If-None-Match": etag}, 304),
        ({"If-None-Match": f"W/{etag}"}, 304),
        ({"If-None-Match": f"{other}, {etag}"}, 304),
        ({"If-None-Match": "*"}, 304),
        ({"If-None-Match": other}, 200),
        ({"If-None-Match": other, "If-Modified-Since": modified}, 200),
        ({"If-Modified-Since": modified}, 304),
        ({"If-Modified-Since": old}, 200),
        ({"If-Modified-Since": "yesterday"}, 200),
        ({"If-Match": etag}, 200),
        ({"If-Match": "*"}, 200),
        ({"If-Match": other}, 412),
        ({"If-Match": f"W/{etag}"}, 412),
        ({"If-Unmodified-Since": modified}, 200),
        ({"If-Unmodified-Since": old}, 412),
        ({"If-Match": etag, "If-Unmodified-Since": old}, 200),
        ({"If-Range": etag, "Range": "bytes=0-1"}, 206),
        ({"If-Range": modified, "Range": "bytes=0-1"}, 206),
        ({"If-Range": other, "Range": "bytes=0-1"}, 200),
        ({"If-Range": f"W/{etag}", "Range": "bytes=0-1"}, 200),
        ({"If-Range": old, "Range": "bytes=0-1"}, 200),
    ):
        answer = server.request(target("tree/a.txt"), headers)
        assert answer.status == status, headers
        if status == 304:
            assert (answer.body, answer.headers["etag"]) == (b"", etag)
            assert server.request(target("tree/a.txt"), headers, method="HEAD").status == 304


def test_a_folder_as_json(server: FileServer) -> None:
    document = server.request("/files/tree/?format=json").document
    assert (document["path"], document["folders"], document["after"]) == ("tree/", ["folder/", "odd/"], None)
    assert [row["name"] for row in document["files"]] == ["a.txt", "b.bin", "big.dat", "empty"]
    row = document["files"][0]
    assert (row["size_bytes"], row["crc32c"]) == (11, crc32c(TREE["tree/a.txt"]))
    assert row["modified_at"] == "2026-11-21T10:00:00Z"
    assert server.request("/files/tree/", {"Accept": "application/json"}).document == document
    assert server.request("/files/?format=json").document["folders"] == ["tree/"]


def test_a_folder_as_a_page_of_html(server: FileServer) -> None:
    page = server.request("/files/tree/odd/", {"Accept": "text/html"})
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    links = [html.unescape(link) for link in re.findall(r'href="\./([^"]*)"', page.body.decode())]
    names = sorted(path.removeprefix("tree/odd/") for path in TREE if path.startswith("tree/odd/"))
    assert sorted(map(unquote, links)) == names
    for link in links:
        assert server.request(f"/files/tree/odd/{link}").body == TREE[f"tree/odd/{unquote(link)}"]
    assert "<a" not in unquote(links[0])


@pytest.mark.parametrize("format", ["json", "html"])
def test_a_folder_page_by_page(server: FileServer, format: str) -> None:
    names: list[str] = []
    query = f"?format={format}&limit=2"
    pages = 0
    while query:
        answer = server.request(f"/files/tree/odd/{query}")
        pages += 1
        if format == "json":
            names += [row["name"] for row in answer.document["files"]]
            after = answer.document["after"]
            query = f"?format=json&limit=2&after={quote(after, safe='')}" if after else ""
        else:
            text = answer.body.decode()
            names += [unquote(html.unescape(link)) for link in re.findall(r'href="\./([^"]*)"', text)]
            following = re.search(r'rel="next" href="([^"]*)"', text)
            query = html.unescape(following[1]) if following else ""
    expected = sorted(path.removeprefix("tree/odd/") for path in TREE if path.startswith("tree/odd/"))
    assert (names, pages) == (expected, (len(expected) + 1) // 2)


def test_folders_are_found_without_their_slash(server: FileServer) -> None:
    answer = server.request("/files/tree/odd?limit=1")
    assert (answer.status, answer.headers["location"]) == (308, "./odd/?limit=1")
    for top in ("/files", "/"):
        answer = server.request(f"{top}?format=json&limit=1")
        assert (answer.status, answer.headers["location"]) == (308, "/files/?format=json&limit=1")
    assert server.request("/files/none/").status == 404
    assert server.request("/files/tree/?limit=0").status == 400
    assert server.request("/files/tree/?format=xml").status == 400
    assert server.request("/files/tree/?format=").status == 400
    assert server.request("/files/tree/?after=%FF").status == 400
    assert server.request("/files/tree/?after=%00").status == 400


def test_what_there_is_not(server: FileServer) -> None:
    answer = server.request("/files/none")
    assert (answer.status, answer.document["error"]["kind"]) == (404, "not_found")
    assert server.request("/none").status == 404
    assert server.request("/files/tree/a.txt", method="PUT", body=b"x").headers["allow"] == "GET, HEAD"
    assert server.request("/files/tree/a.txt", method="DELETE").status == 405
    assert server.request("/batch").status == 405
    assert server.request("/healthz", method="POST").status == 405


def test_health_and_metrics_of_all_processes(server: FileServer) -> None:
    assert server.request("/healthz").document == {"status": "ok"}

    def count() -> float:
        text = server.request("/metrics").body.decode()
        found = re.search(r'^cafcat_http_requests_total{door="http",method="GET",status="404"} (\S+)', text, re.M)
        return float(found[1]) if found else 0

    before = count()
    for _ in range(40):  # each on a connection of its own, so that both processes get some
        server.request("/files/none")
    assert count() == before + 40
    text = server.request("/metrics").body.decode()
    assert "cafcat_http_connections" in text
    assert "\ncafcat_catalog_up 1\n" in text
    assert f"\ncafcat_files {len(TREE)}\n" in text


def test_public_folders_without_files_get_a_warning(filled: Cafcat, tmp_path: Path) -> None:
    folders = ["--public", "tree", "--public", "nope/", "--public", "tree/folder"]
    with serving(filled, tmp_path / "log", *folders) as server:
        assert server.process.stderr
        assert server.process.stderr.readline() == b"cafcat: warning: the catalog has no file below nope/\n"


def test_public_folders_without_a_database_delay_nothing(cafcat: Cafcat, tmp_path: Path) -> None:
    """The listener accepts connections, and never answers, as a frozen database."""
    with socket.create_server(("127.0.0.1", 0)) as frozen:
        frozen.settimeout(PATIENCE_SECONDS)
        database = f"postgresql://127.0.0.1:{frozen.getsockname()[1]}/none?connect_timeout=600"
        with serving(Cafcat(cafcat.folder, database), tmp_path / "log", "--public", "nope") as server:
            connection, _ = frozen.accept()  # the look-up waits for an answer now
            with connection:
                assert server.stop() == 0


def test_metrics_without_a_database(filled: Cafcat, tmp_path: Path, databases: Databases) -> None:
    with databases.fresh(databases.template()) as url:
        with serving(Cafcat(filled.folder, url), tmp_path / "log") as server:
            assert "\ncafcat_files 0\n" in server.request("/metrics").body.decode()
            databases.drop(str(conninfo_to_dict(url)["dbname"]))
            # The numbers of the first scrape are shown for a while.
            assert "\ncafcat_files 0\n" in server.request("/metrics").body.decode()
        with serving(Cafcat(filled.folder, url), tmp_path / "log2") as server:
            answer = server.request("/metrics")
    assert answer.status == 200
    assert "\ncafcat_catalog_up 0\n" in answer.body.decode()
    assert "cafcat_files" not in answer.body.decode()


def test_the_log_has_a_line_for_each_request(server: FileServer) -> None:
    server.request(target("tree/odd/\x1b[31mred") + "?download=1")
    line = server.logged("/files/tree/odd/\x1b[31mred")
    expected = {"door": "http", "client": "127.0.0.1", "method": "GET", "status": 200, "size_bytes": 6}
    assert expected.items() <= line.items()
    assert line["time"].endswith("Z")


@pytest.mark.parametrize(
    ("given", "status"),
    [
        (["--port", "1", "--host", "192.0.2.1"], 1),
        (["--workers", "0"], 2),
        (["--port", "70000"], 2),
        (["--key", "key.pem"], 2),
        (["--certificate", "none.pem"], 2),
        (["--access-log", "/none/log"], 1),
        (["--host", "no such host"], 2),
        (["--port", "8123", "--s3-port", "8123"], 2),
    ],
)
def test_options_that_cannot_be(filled: Cafcat, given: list[str], status: int) -> None:
    assert filled("serve", *given, code=status).err.count("\n") == 1


def test_a_port_that_is_in_use(filled: Cafcat, server: FileServer) -> None:
    assert "another program listens" in filled("serve", "--port", str(server.port), code=1).err


@pytest.mark.skipif(not shutil.which("curl"), reason="curl is missing")
def test_curl(server: FileServer, tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = ["curl", "-sSf", "-o", str(out)]
    subprocess.run([*command, server.url + target("tree/odd/日本 é")], check=True)
    assert out.read_bytes() == TREE["tree/odd/日本 é"]
    out.write_bytes(BIG[:1_234_567])
    subprocess.run([*command, "-C", "-", server.url + target("tree/big.dat")], check=True)
    assert out.read_bytes() == BIG
    many = [f"{server.url}{target(path)}" for path in ("tree/a.txt", "tree/big.dat", "tree/a.txt")]
    done = subprocess.run(["curl", "-sSf", *many], check=True, capture_output=True)
    assert done.stdout == TREE["tree/a.txt"] + BIG + TREE["tree/a.txt"]


@pytest.mark.skipif(not shutil.which("wget"), reason="wget is missing")
def test_wget_continues(server: FileServer, tmp_path: Path) -> None:
    (tmp_path / "big.dat").write_bytes(BIG[:1_234_567])
    url = server.url + target("tree/big.dat")
    subprocess.run(["wget", "-q", "-c", url], check=True, cwd=tmp_path)
    assert (tmp_path / "big.dat").read_bytes() == BIG
    subprocess.run(["wget", "-q", "-r", "-np", "-nH", f"{server.url}/files/tree/folder/"], check=True, cwd=tmp_path)
    assert (tmp_path / "files/tree/folder/deep/d.TXT").read_bytes() == b"d"


def test_httpx_with_keep_alive(server: FileServer) -> None:
    httpx = pytest.importorskip("httpx")
    with httpx.Client(base_url=server.url, trust_env=False) as client:
        for _ in range(3):
            for path in TREE:
                assert client.get(target(path)).content == TREE[path]
        assert client.post("/batch", json=["tree/a.txt"]).content[:14] == b"././@PaxHeader"


def test_json_output_names_the_urls(filled: Cafcat) -> None:
    process = filled.popen("serve", "--port", "0", "--json", "--access-log", "/dev/null")
    assert process.stdout
    url = json.loads(process.stdout.readline())["urls"]["http"]
    assert url.startswith("http://127.0.0.1:")
    process.terminate()
    out, errors = process.communicate()
    assert (process.returncode, out, errors) == (0, b"", b"")


def test_the_log_is_on_stderr_by_default(filled: Cafcat) -> None:
    process = filled.popen("serve", "--port", "0", "--quiet", "--json")
    assert process.stdout
    assert process.stderr
    url = json.loads(process.stdout.readline())["urls"]["http"]
    port = int(url.rstrip("/").rsplit(":", 1)[1])
    assert FileServer(process, port, Path("none")).request("/files/none").status == 404
    line = json.loads(process.stderr.readline())
    assert (line["path"], line["status"]) == ("/files/none", 404)
    process.terminate()
    assert process.communicate() == (b"", b"")


def test_programs_get_all_entries_of_a_large_folder(cafcat: Cafcat, tmp_path: Path) -> None:
    """A program such as rclone reads one page. A browser gets 1,000 entries and a link."""
    (cafcat.folder / "many").mkdir()
    names = [f"n{number:04}" for number in range(2500)]
    for name in names:
        (cafcat.folder / "many" / name).touch()
    cafcat("ingest", "many")
    with serving(cafcat, tmp_path / "log") as server:
        page = server.request("/files/many/").body.decode()
        assert re.findall(r'href="\./([^"]*)"', page) == names
        assert server.request("/files/many/", method="HEAD").status == 200
        shown = server.request("/files/many/", {"Accept": "text/html"}).body.decode()
        assert re.findall(r'href="\./([^"]*)"', shown) == names[:1000]
        assert "?after=n0999" in shown
