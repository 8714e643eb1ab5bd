"""serve --s3-port: the S3 protocol by the command, in several processes, with keys made by the command."""

import http.client
import os
import random
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import TREE, Cafcat
from tests.worlds.archives.damage import flip
from tests.worlds.file_server import FileServer, s3_side, serving
from tests.worlds.waiting import PATIENCE_SECONDS

pytest.importorskip("uvicorn")


class S3Side:
    """A running `cafcat serve` that speaks the S3 protocol."""

    def __init__(self, cafcat: Cafcat, url: str) -> None:
        self.cafcat = cafcat
        self.url = url

    def client(self, **key: Any) -> Any:
        """Return a client of boto3 for a key, as `cafcat keys add --json` prints it; without one, for no key."""
        import boto3
        from botocore import UNSIGNED
        from botocore.config import Config

        config = Config(
            signature_version="s3v4" if key else UNSIGNED,
            retries={"total_max_attempts": 1},
            s3={"addressing_style": "path"},
        )
        return boto3.client(
            "s3",
            endpoint_url=self.url,
            region_name="us-east-1",
            aws_access_key_id=key.get("access_key_id"),
            aws_secret_access_key=key.get("secret_access_key"),
            config=config,
        )


@pytest.fixture
def alone(filled: Cafcat) -> Iterator[S3Side]:
    """The S3 protocol alone, by two processes, with a public folder."""
    arguments = [
        "--no-http",
        "--s3-port",
        "0",
        "--workers",
        "2",
        "--public",
        "tree/odd",
        "--access-log",
        os.devnull,
    ]
    process = filled.popen("serve", *arguments)
    try:
        line = process.stderr.readline().decode()
        found = re.fullmatch(r"cafcat: serving files at (http://127\.0\.0\.1:\d+/) \(S3\)\n", line)
        assert found, line
        yield S3Side(filled, found[1])
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_SECONDS) == 0
        assert process.stderr.read() == b""
    finally:
        process.kill()
        process.communicate()


def read(client: Any, path: str) -> bytes:
    bucket, _, key = path.partition("/")
    with client.get_object(Bucket=bucket, Key=key)["Body"] as body:
        return bytes(body.read())


def test_every_file_is_read_by_its_key(alone: S3Side) -> None:
    key = alone.cafcat("keys", "add", "--json").document
    client = alone.client(**key)
    try:
        listed = client.list_objects_v2(Bucket="tree")["Contents"]
        assert {f"tree/{item['Key']}": item["Size"] for item in listed} == {
            path: len(content) for path, content in TREE.items() if path.startswith("tree/")
        }
        for path, content in TREE.items():
            if path.startswith("tree/"):
                assert read(client, path) == content
    finally:
        client.close()


def test_a_key_of_a_folder_and_no_key_at_all(alone: S3Side) -> None:
    from botocore.exceptions import ClientError

    key = alone.cafcat("keys", "add", "--prefix", "tree/folder", "--json").document
    own, public = ("tree/folder/", "tree/odd/"), ("tree/odd/",)
    for client, allowed in ((alone.client(**key), own), (alone.client(), public)):
        try:
            for path, content in TREE.items():
                if path.startswith(allowed):
                    assert read(client, path) == content
                elif path.startswith("tree/"):
                    with pytest.raises(ClientError, match="AccessDenied"):
                        read(client, path)
        finally:
            client.close()


def test_http_and_s3_side_by_side(filled: Cafcat, tmp_path: Path) -> None:
    with serving(filled, tmp_path / "log", "--s3-port", "0", "--public", ".", "--bucket", "all") as server:
        client = S3Side(filled, s3_side(server).url).client()
        try:
            for path, content in list(TREE.items())[:3]:
                with client.get_object(Bucket="all", Key=path)["Body"] as body:
                    assert body.read() == content
        finally:
            client.close()
        check_log(server)


def test_a_damaged_object_ends_early_and_is_named_in_the_log(cafcat: Cafcat, tmp_path: Path) -> None:
    """Of a small object, no byte is sent. The response of a large one ends before its last byte."""
    (cafcat.folder / "tree").mkdir()
    large = random.Random(5).randbytes(9_000_000)
    for name, content in (("small", b"small"), ("large", large)):
        (cafcat.folder / "tree" / name).write_bytes(content)
    cafcat("ingest", "tree")
    for name in ("small", "large"):
        place = cafcat("locate", f"tree/{name}", "--json").document
        flip(Path(place["object"]), place["end_byte"] - 1)
    with serving(cafcat, tmp_path / "log", "--s3-port", "0", "--public", "tree") as server:
        side = s3_side(server)
        answer = side.request("/tree/small")
        assert (answer.status, b"<Code>InternalError</Code>" in answer.body) == (500, True)
        assert str(cafcat.folder).encode() not in answer.body
        with pytest.raises(http.client.IncompleteRead) as caught:
            side.request("/tree/large")
        assert large.startswith(caught.value.partial)
        for path, status in (("/tree/small", 500), ("/tree/large", 200)):
            line = server.logged(path)
            assert (line["door"], line["status"], line["error"]["kind"]) == ("s3", status, "corrupt")
            assert path[1:] in line["error"]["message"]
        assert server.logged("/tree/large")["incomplete"] is True


def check_log(server: FileServer) -> None:
    """Check that requests of both sides are in the log, and counted."""
    assert server.request("/files/tree/a.txt").status == 200
    assert server.logged("/files/tree/a.txt")["status"] == 200
    assert {line["door"] for line in server.lines() if "door" in line} == {"http", "s3"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--no-http"], "nothing is to be served"),
        (["--bucket", "a"], "without its port"),
        (["--public", ""], "the name of a public folder is empty; write . for all files"),
        (["--s3-port", "0", "--bucket", "a/b"], "no bucket can have the name"),
        (["--s3-port", "70000"], "s3_port must be from"),
        (["--s3-port", "0", "--s3-region", ""], "must not be empty"),
    ],
)
def test_wrong_options_are_usage_errors(filled: Cafcat, arguments: list[str], message: str) -> None:
    assert message in filled("serve", "--port", "0", *arguments, code=2).err
