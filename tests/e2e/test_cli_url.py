"""url and locate: access to files of a bucket for other programs."""

import hashlib
import hmac
import os
import re
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from cafcat.errors import InvalidInput
from cafcat.support.arguments import parse_duration
from tests.e2e.conftest import TREE, Cafcat, write_tree
from tests.worlds.servers.s3_proxy import S3Proxy
from tests.worlds.servers.s3_server import S3Server
from tests.worlds.waiting import PATIENCE_SECONDS


@pytest.fixture
def remote(cafcat: Cafcat, s3_bucket: str, s3_environment: None) -> Cafcat:
    """The command with TREE in a bucket."""
    cafcat.extra["CAFCAT_STORE"] = f"s3://{s3_bucket}/odd name/chunks"
    write_tree(cafcat.folder)
    cafcat("ingest", "tree")
    return cafcat


def run_without_credentials(command: str) -> bytes:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    shell = subprocess.run(["/bin/sh", "-c", command], env=environment, capture_output=True, check=False)
    assert (shell.returncode, shell.stderr) == (0, b"")
    return shell.stdout


def fetched(url: str, headers: dict[str, str]) -> bytes:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(urllib.request.Request(url, headers=headers), timeout=PATIENCE_SECONDS) as answer:  # noqa: S310
        return bytes(answer.read())


@pytest.mark.parametrize(
    ("text", "seconds"), [("60s", 60), ("15m", 900), ("1h", 3600), ("7d", 604_800), ("1w", 604_800), (" 2H ", 7200)]
)
def test_durations(text: str, seconds: int) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "0", "0h", "h", "-1", "1.5h", "60", "1y", "1h30m", "٣", "1" * 10])
def test_invalid_durations_are_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="a duration"):
        parse_duration(text)


def test_the_url_of_a_folders_archive(filled: Cafcat) -> None:
    place = filled("locate", "tree/b.bin", "--json").document
    result = filled("url", "tree/b.bin", "tree/empty")
    assert result.lines[0] == Path(place["object"]).as_uri()
    with urllib.request.urlopen(result.lines[0]) as archive:  # noqa: S310
        assert archive.read()[place["start_byte"] : place["end_byte"]] == TREE["tree/b.bin"]
    document = filled("url", "./tree/b.bin", "--json").document
    assert document == {
        "path": "tree/b.bin",
        "url": result.lines[0],
        "start_byte": place["start_byte"],
        "end_byte": place["end_byte"],
    }


def test_folder_store_cannot_sign_urls(filled: Cafcat) -> None:
    for verb in ("url", "locate"):
        error = filled(verb, "--presign", "tree/b.bin", "--json", code=2).error
        assert (error["kind"], error["path"]) == ("invalid_input", "tree/b.bin")
        assert "cannot sign URLs" in error["message"]
        assert error["hint"].startswith("copy the chunks to a bucket of S3 (cafcat copy)")
        assert "--presign" in filled(verb, "tree/b.bin", "--expires", "1h", code=2).err
        assert "not a duration" in filled(verb, "tree/b.bin", "--presign", "--expires", "soon", code=2).err


def test_the_url_of_a_copy_in_a_bucket(filled: Cafcat, s3_bucket: str, s3_environment: None) -> None:
    filled("copy", "--all", "--to", f"s3://{s3_bucket}/copies", "-q")
    document = filled("url", "--presign", "tree/b.bin", "--json").document
    assert fetched(document["url"], document["headers"]) == TREE["tree/b.bin"]


def test_unsigned_url_of_a_bucket_is_refused(remote: Cafcat, s3_server: S3Server, s3_bucket: str) -> None:
    [url] = remote("url", "tree/b.bin").lines
    place = remote("locate", "tree/b.bin", "--json").document
    assert url.startswith(f"{s3_server.endpoint_url}/{s3_bucket}/odd%20name/chunks/")
    assert f"s3:/{unquote(urlsplit(url).path)}" == place["object"]
    assert urlsplit(url).query == ""
    with pytest.raises(urllib.error.HTTPError) as raised:
        fetched(url, {})
    assert 400 <= raised.value.code < 500
    raised.value.close()


def test_signed_url_gives_access_to_the_file_only(remote: Cafcat) -> None:
    for path in ("tree/b.bin", "tree/big.dat", "tree/odd/日本 é"):
        document = remote("url", "--presign", path, "--json").document
        assert set(document) == {"path", "url", "headers", "start_byte", "end_byte", "expires_at"}
        assert fetched(document["url"], document["headers"]) == TREE[path]
        start, end = document["start_byte"], document["end_byte"]
        assert document["headers"] == {"Range": f"bytes={start}-{end - 1}"}
        for other in ({}, {"Range": f"bytes={start}-{end}"}, {"Range": "bytes=0-"}):
            with pytest.raises(urllib.error.HTTPError) as raised:
                fetched(document["url"], other)
            assert raised.value.code == 403
            raised.value.close()


def test_a_signed_url_stands_alone_on_stdout(remote: Cafcat, s3_server: S3Server) -> None:
    before = datetime.now(UTC).replace(microsecond=0)
    result = remote("url", "--presign", "--expires", "15m", "tree/b.bin")
    after = datetime.now(UTC)
    [url] = result.lines
    [notice] = result.err.splitlines()
    header = notice.rpartition("Range: ")[2]
    assert fetched(url, {"Range": header}) == TREE["tree/b.bin"]
    assert "X-Amz-Expires=900" in url
    until = datetime.fromisoformat(notice.split("valid until ")[1].split(",")[0])
    assert before <= until - timedelta(minutes=15) <= after
    assert s3_server.secret_key not in url + notice
    assert "X-Amz-Expires=3600" in remote("url", "--presign", "tree/b.bin").text


def test_files_that_cannot_be_signed(remote: Cafcat) -> None:
    for verb in ("url", "locate"):
        error = remote(verb, "--presign", "tree/empty", "--json", code=2).error
        assert (error["kind"], error["path"]) == ("invalid_input", "tree/empty")
        assert "empty" in error["message"]
        assert "604800" in remote(verb, "--presign", "--expires", "8d", "tree/b.bin", code=2).err
    result = remote("url", "--presign", "tree/empty", "none", "tree/a.txt", code=3)
    assert len(result.lines) == 1
    assert "'tree/empty'" in result.err
    assert "'none'" in result.err


def test_the_signed_line_of_locate_needs_no_credentials(remote: Cafcat) -> None:
    paths = [path for path in TREE if TREE[path]]
    documents = remote("locate", "--presign", "--json", "--", *paths).documents
    for document in documents:
        assert document["command"].startswith("curl -sSf -r ")
        assert run_without_credentials(document["command"]) == TREE[document["path"]]
    lines = remote("locate", "tree/b.bin", "--presign", "--expires", "1m").lines
    assert run_without_credentials(lines[-1]) == TREE["tree/b.bin"]


def test_line_of_locate_signs_with_the_credentials_of_its_environment(remote: Cafcat, s3_server: S3Server) -> None:
    document = remote("locate", "tree/b.bin", "--json").document
    [url] = remote("url", "tree/b.bin").lines
    command = document["command"]
    start, end = document["start_byte"], document["end_byte"]
    assert command.startswith(f"curl -sSf --aws-sigv4 aws:amz:{s3_server.region}:s3 ")
    assert command.endswith(f" -r {start}-{end - 1} {url}")
    assert s3_server.secret_key not in command
    assert document["object"].startswith("s3://")
    subprocess.run(["/bin/sh", "-n", "-c", command], check=True)
    if ":" not in s3_server.access_key:  # curl takes the text after the first colon for the secret
        shell = subprocess.run(["/bin/sh", "-c", command], capture_output=True, check=True)
        assert shell.stdout == TREE["tree/b.bin"]
    assert remote("locate", "tree/empty", "--json").document["command"] == "true"


class Listener(ThreadingHTTPServer):
    """Receives one request, and keeps it. Waits half a minute at most."""

    timeout = 30

    path: str
    headers: dict[str, str]


class Taken(BaseHTTPRequestHandler):
    server: Listener

    def do_GET(self) -> None:
        self.server.path = self.path
        self.server.headers = {name.lower(): value for name, value in self.headers.items()}
        self.send_response(206)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


def signature_of(path: str, headers: dict[str, str], secret: str) -> str:
    """Return the signature that the server computes.

    The rules are in AWS Signature Version 4, "Create a signed AWS API request". S3 uses the path as it is sent.
    """
    scope, names = re.findall(r"Credential=[^/]+/([^,]+), SignedHeaders=([^,]+),", headers["authorization"])[0]
    canonical = [f"{name}:{headers[name]}" for name in names.split(";")]
    request = "\n".join(["GET", path, "", *canonical, "", names, hashlib.sha256(b"").hexdigest()])
    digest = hashlib.sha256(request.encode()).hexdigest()
    key = f"AWS4{secret}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    text = "\n".join(["AWS4-HMAC-SHA256", headers["x-amz-date"], scope, digest])
    return hmac.digest(key, text.encode(), "sha256").hex()


def test_curl_signs_the_line_of_locate_by_the_rules_of_s3(remote: Cafcat) -> None:
    """The signature is computed here, because the server may have access keys that curl does not support."""
    place = remote("locate", "tree/b.bin", "--json").document
    who = {"AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": "a+secret/="}
    for token in ("", "a+token/="):
        with Listener(("127.0.0.1", 0), Taken) as server:
            remote.extra["AWS_ENDPOINT_URL"] = f"http://127.0.0.1:{server.server_port}"
            thread = threading.Thread(target=server.handle_request)
            thread.start()
            command = remote("locate", "tree/b.bin", "--json").document["command"]
            environment = {"PATH": os.environ["PATH"], "AWS_SESSION_TOKEN": token} | who
            shell = subprocess.run(["/bin/sh", "-c", command], env=environment, capture_output=True)
            assert (shell.returncode, shell.stderr) == (0, b"")
            thread.join()
        assert server.headers["range"] == f"bytes={place['start_byte']}-{place['end_byte'] - 1}"
        assert server.headers.get("x-amz-security-token", "") == token
        signed = server.headers["authorization"].split("SignedHeaders=")[1].split(",")[0].split(";")
        assert {name for name in server.headers if name.startswith("x-amz-")} <= set(signed)
        signature = signature_of(server.path, server.headers, who["AWS_SECRET_ACCESS_KEY"])
        assert server.headers["authorization"].endswith(f"Signature={signature}")


def test_reading_from_a_bucket(remote: Cafcat, tmp_path: Path) -> None:
    remote("get", "tree/a.txt", "tree/big.dat", "tree/empty", "-o", tmp_path)
    for name in ("a.txt", "big.dat", "empty"):
        assert (tmp_path / name).read_bytes() == TREE[f"tree/{name}"]
    assert remote("cat", "tree/b.bin", "--range", "10-19").out == TREE["tree/b.bin"][10:20]
    remote("extract", "-C", "out")
    assert all((remote.folder / "out" / path).read_bytes() == content for path, content in TREE.items())


def test_refused_credentials_have_a_separate_exit_code(remote: Cafcat) -> None:
    remote.extra["AWS_SECRET_ACCESS_KEY"] = "not-the-secret"  # noqa: S105
    for arguments in (
        ["get", "tree/a.txt", "-o", "out"],
        ["get", "tree/a.txt", "tree/b.bin", "-o", remote.folder],
        ["cat", "tree/a.txt", "tree/b.bin"],
        ["extract", "-C", "out"],
    ):
        result = remote(*arguments, "--json", code=12)
        assert result.error["kind"] == "credentials"
        assert "not-the-secret" not in result.err
    remote.extra |= {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""}
    assert "AWS_ACCESS_KEY_ID" in remote("url", "--presign", "tree/a.txt", code=12).err


def test_listing_and_plans_of_a_bucket_load_no_s3_library(
    cafcat: Cafcat, s3_bucket: str, s3_proxy: S3Proxy, s3_proxy_environment: None
) -> None:
    cafcat.extra["CAFCAT_STORE"] = f"s3://{s3_bucket}/chunks"
    write_tree(cafcat.folder)
    cafcat("ingest", "tree")
    s3_proxy.clear()
    program = (
        "import sys; from cafcat.cli.app import run; code = run(sys.argv[1:]);"
        "found = {'boto3', 'botocore', 'obstore', 'urllib3', 'sqlalchemy'} & set(sys.modules);"
        "sys.exit(code or (str(found) if found else 0))"
    )
    for arguments in (
        ["ls", "--json"],
        ["ls", "-R", "--json"],
        ["find", "--json"],
        ["stat", "tree/a.txt", "--json"],
        ["get", "tree/a.txt", "tree/b.bin", "--explain"],
        ["extract", "-C", "out", "--explain", "--json"],
    ):
        command = [sys.executable, "-c", program, *arguments]
        process = subprocess.run(command, env=cafcat.environment, cwd=cafcat.folder, capture_output=True)
        assert (process.returncode, process.stderr) == (0, b""), process
        assert b"s3://" in process.stdout or arguments[0] == "ls"
    assert s3_proxy.requests == []
