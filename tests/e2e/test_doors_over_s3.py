"""mount and serve, with the chunks in a bucket: programs of others read the same bytes as from a folder."""

import errno
import json
import os
import random
import re
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import closing
from io import BytesIO
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.e2e.conftest import TREE, Cafcat, write_tree
from tests.worlds.file_server import FileServer, serving
from tests.worlds.mounts import Mount, mounted, needs_fuse
from tests.worlds.servers.s3_server import S3Server, empty_bucket, new_bucket
from tests.worlds.servers.services import Databases
from tests.worlds.waiting import PATIENCE_SECONDS

pytest.importorskip("uvicorn")

pytestmark = pytest.mark.slow  # writes its chunks into a bucket, and starts servers

LARGE = random.Random(5).randbytes(20_000_000)
FILES = TREE | {"tree/large": LARGE}


@pytest.fixture(scope="module")
def in_s3(tmp_path_factory: pytest.TempPathFactory, databases: Databases, s3_server: S3Server) -> Iterator[Cafcat]:
    """The command with a tree whose chunks are in a bucket."""
    with databases.fresh(databases.template()) as url, closing(s3_server.client()) as client:
        bucket = new_bucket(client)
        settings = s3_server.environ() | {"CAFCAT_STORE": f"s3://{bucket}/chunks"}
        cafcat = Cafcat(tmp_path_factory.mktemp("in-s3"), url, settings)
        write_tree(cafcat.folder)
        (cafcat.folder / "tree" / "large").write_bytes(LARGE)
        cafcat("ingest", "tree", "--target-size", "5MB")
        assert not (cafcat.folder / "store").exists()
        yield cafcat
        if s3_server.is_lasting:
            empty_bucket(client, bucket)
            client.delete_bucket(Bucket=bucket)


@pytest.fixture(scope="module", params=["catalog", "snapshot"])
def mount(request: pytest.FixtureRequest, in_s3: Cafcat) -> Iterator[Mount]:
    arguments: tuple[str, ...] = ()
    if request.param == "snapshot":
        in_s3("snapshot", "-o", "taken")
        arguments = ("--snapshot", "taken", "--database-url", "postgresql:///nowhere")
    with mounted(in_s3, in_s3.folder / request.param, *arguments) as mount:
        yield mount


@pytest.fixture(scope="module")
def server(in_s3: Cafcat) -> Iterator[FileServer]:
    with serving(in_s3, in_s3.folder / "log", "--workers", "2") as server:
        yield server


def run(*command: str | Path, cwd: Path | None = None) -> bytes:
    """Run a program, which must succeed, and return what it prints."""
    done = subprocess.run(
        command,
        cwd=cwd,
        capture_output=True,
        timeout=PATIENCE_SECONDS,
        env=os.environ | {"TZ": "UTC", "LC_ALL": "C"},
    )
    assert done.returncode == 0, done
    return done.stdout


@needs_fuse
def test_programs_read_the_mount(in_s3: Cafcat, mount: Mount, tmp_path: Path) -> None:
    listed = [run("ls", "-lR", "--time-style=full-iso", "tree", cwd=at) for at in (in_s3.folder, mount.folder)]
    assert rows(listed[1]) == rows(listed[0])
    assert len(rows(listed[0])) == len(FILES)
    found = [run("find", "tree", "-type", "f", "-size", "+1k", cwd=at) for at in (in_s3.folder, mount.folder)]
    assert sorted(found[1].splitlines()) == sorted(found[0].splitlines()) != []
    for path, content in FILES.items():
        assert run("cat", mount.folder / path) == content
    run("cp", "-r", "--preserve=timestamps", mount.folder / "tree", tmp_path / "copy")
    assert run("diff", "-r", in_s3.folder / "tree", tmp_path / "copy") == b""


def rows(listed: bytes) -> list[tuple[bytes, ...]]:
    """Return size, time in microseconds and name of all files, from the output of `ls -lR`."""
    pattern = rb"^-\S+ +\d+ \S+ +\S+ +(\d+) (\S+ \S+?)\d{3} \+0000 (.*)$"
    return sorted(re.findall(pattern, listed, re.MULTILINE))


@needs_fuse
def test_ranges_of_the_mount(mount: Mount) -> None:
    places = random.Random(1)
    with (mount.folder / "tree/large").open("rb", buffering=0) as file:
        for _ in range(30):
            start, length = places.randrange(len(LARGE)), places.choice([1, 4096, 300_000])
            assert os.pread(file.fileno(), length, start) == LARGE[start : start + length]
    tail = ("dd", f"if={mount.folder}/tree/large", "bs=1000000", "skip=19", "status=none")
    assert run(*tail) == LARGE[19_000_000:]


def test_files_and_ranges_over_http(server: FileServer) -> None:
    for path, content in FILES.items():
        assert server.request(f"/files/{quote(path)}").body == content
    for start, end in ((0, 1), (4_999_990, 5_000_010), (12_000_000, 19_999_999)):
        answer = server.request("/files/tree/large", {"Range": f"bytes={start}-{end}"})
        assert (answer.status, answer.body) == (206, LARGE[start : end + 1])
    assert server.request("/files/tree/large", {"Range": "bytes=-5"}).body == LARGE[-5:]
    assert server.request("/files/tree/?format=json").document["folders"] == ["folder/", "odd/"]


def test_a_batch_over_http(server: FileServer) -> None:
    paths = sorted(FILES, reverse=True)
    answer = server.request("/batch?format=tar", method="POST", body=json.dumps(paths).encode())
    with tarfile.open(fileobj=BytesIO(answer.body)) as archive:
        members = archive.getmembers()
        assert [member.name for member in members] == paths
        for member in members:
            file = archive.extractfile(member)
            assert file
            assert file.read() == FILES[member.name]


@needs_fuse
def test_a_lost_chunk_is_an_error_of_its_files(in_s3: Cafcat, server: FileServer, s3_server: S3Server) -> None:
    (in_s3.folder / "lost").mkdir()
    (in_s3.folder / "lost/file").write_bytes(b"x" * 5000)
    in_s3("ingest", "lost")
    chunk = in_s3("locate", "lost/file", "--json").document["object"]
    bucket, _, key = chunk.removeprefix("s3://").partition("/")
    with closing(s3_server.client()) as client:
        client.delete_object(Bucket=bucket, Key=key)
    answer = server.request("/files/lost/file")
    assert (answer.status, answer.document["error"]["kind"]) == (500, "corrupt")
    assert bucket not in answer.body.decode()
    assert server.request("/files/tree/a.txt").body == FILES["tree/a.txt"]
    with mounted(in_s3, in_s3.folder / "mnt") as mount:
        with pytest.raises(OSError) as caught:  # noqa: PT011 - the number is compared below
            (mount.folder / "lost/file").read_bytes()
        assert caught.value.errno == errno.EIO
        assert (mount.folder / "tree/a.txt").read_bytes() == FILES["tree/a.txt"]
