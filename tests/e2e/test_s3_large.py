"""Large inputs: a bucket of 20,000 objects, whose ingest is killed three times; an object of 6 GB."""

import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest

import cafcat
from cafcat.stores.keys import is_chunk_key
from tests.worlds.servers.s3_proxy import S3Proxy
from tests.worlds.servers.s3_server import S3Server

MIB = 1 << 20
PAGE = 1000
KILLS = 3


def content_of(key: str, size_bytes: int) -> bytes:
    """Return content that depends on the key, and is equal in every run."""
    block = hashlib.sha512(key.encode(errors="surrogatepass")).digest() * 16384
    return (block * (size_bytes // len(block) + 1))[:size_bytes]


def keys_and_sizes(count: int, largest: int) -> dict[str, int]:
    source = random.Random(20)
    sizes = {f"plain/{n % 40:02}/{n:06}": source.randrange(4000) for n in range(count - 12)}
    sizes |= {"a b/with  spaces ": 10, "ünï/日本/😀": 11, "double//slash//": 12, "/leading": 13, "trailing/": 0}
    sizes |= {"new\nline": 14, "k" * 1000: 15, "é" * 500: 16, "../up": 17, "middle": 5 * MIB, "empty": 0}
    return sizes | {"zz/largest": largest}


def put_all(server: S3Server, bucket: str, sizes: dict[str, int]) -> None:
    client = server.client(max_attempts=5)
    with ThreadPoolExecutor(8) as pool:
        jobs = [
            pool.submit(client.put_object, Bucket=bucket, Key=key, Body=content_of(key, size))
            for key, size in sizes.items()
        ]
        for job in jobs:
            job.result()


class Ingest:
    """`cafcat ingest` of a bucket through the proxy, in processes that can be killed."""

    def __init__(self, proxy: S3Proxy, source: str, target: str, database_url: str, home: Path) -> None:
        self.proxy, self.source, self.target = proxy, source, target
        own = {
            "CAFCAT_DATABASE_URL": database_url,
            "CAFCAT_HOME": str(home),
            "CAFCAT_STORE": f"s3://{target}/chunks",
        }
        self.environment = os.environ | proxy.environ() | own
        self.database_url = database_url

    def start(self, target_size: str) -> "subprocess.Popen[bytes]":
        command = [
            sys.executable,
            "-m",
            "cafcat",
            "ingest",
            "-q",
            "--target-size",
            target_size,
            f"s3://{self.source}",
        ]
        return subprocess.Popen(command, env=self.environment)

    def kill_after(self, chunks: int, target_size: str) -> None:
        """Kill the ingest while it works on a later chunk."""
        process = self.start(target_size)
        while self.committed() < chunks and process.poll() is None:
            time.sleep(0.1)
        if process.poll() is None:
            before = self.proxy.count("GetObject")
            while self.proxy.count("GetObject") < before + 30 and process.poll() is None:
                time.sleep(0.02)
            process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL, "it ended before it was killed"

    def committed(self) -> int:
        with psycopg.connect(self.database_url) as connection:
            row = connection.execute("SELECT count(*) FROM chunks WHERE state = 'committed'").fetchone()
        return int(row[0]) if row else 0


@pytest.mark.slow  # tests/integration/test_s3_killed.py kills such an ingest in `make test`
@pytest.mark.parametrize(
    ("count", "largest", "target_size"),
    [
        pytest.param(300, 2 * MIB, "50kB", id="300-objects"),
        pytest.param(1000, 20 * MIB, "200kB", id="1000-objects"),
        pytest.param(20_000, 200_000_000, "4MB", id="20000-objects"),
    ],
)
def test_ingest_of_a_bucket_that_is_killed_three_times_is_complete(
    s3_server: S3Server,
    s3_proxy: S3Proxy,
    make_bucket: Callable[[], str],
    database_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    count: int,
    largest: int,
    target_size: str,
) -> None:
    sizes = keys_and_sizes(count, largest)
    assert len(sizes) == count
    ingest = Ingest(s3_proxy, make_bucket(), make_bucket(), database_url, tmp_path / "home")
    put_all(s3_server, ingest.source, sizes)
    for kill in range(1, KILLS + 1):
        ingest.kill_after(3 * kill, target_size)
    assert ingest.start(target_size).wait() == 0
    requests = Counter(s3_proxy.counts())
    pages = -(-count // PAGE)
    ahead = 5 + 1  # a batch of the catalog's is five pages; one more is asked for while they are worked on
    assert requests["ListObjectsV2"] <= pages + KILLS * ahead, requests
    for name, value in ingest.environment.items():
        monkeypatch.setenv(name, value)
    with psycopg.connect(database_url) as connection:
        connection.execute("UPDATE chunks SET lease_expires_at = now() - interval '1 s' WHERE state = 'writing'")
    with cafcat.open() as repository:
        repository.recover()
        s3_proxy.clear()
        found = {location.path: location.size_bytes for location in repository.list()}
        assert found == sizes
        for path, data in repository.read_many(sorted(sizes)):
            assert data == content_of(path, sizes[path]), path
            found.pop(path)
        assert found == {}
        print(f"{count:,} objects, {sum(sizes.values()):,} bytes, killed {KILLS} times: {dict(requests)};")
        print(f"read back by {dict(s3_proxy.counts())}")
        committed = [chunk for chunk in repository.chunks() if chunk.state == "committed"]
    client = s3_server.client()
    assert client.list_multipart_uploads(Bucket=ingest.target).get("Uploads", []) == []
    objects = client.get_paginator("list_objects_v2").paginate(Bucket=ingest.target).search("Contents[].Key")
    chunks = [key for key in objects if is_chunk_key(key.removeprefix("chunks/"))]
    assert sorted(chunks) == sorted(f"chunks/{chunk.object_key}" for chunk in committed)


MEASURED = """
import hashlib, json, sys
import cafcat
def peak():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM")) * 1024
with cafcat.open() as repository:
    report = repository.ingest(["-"])
    packed = peak()
    digest = hashlib.sha256()
    for block in repository.stream("big"):
        digest.update(block)
print(json.dumps([report.bytes_added, packed, peak(), digest.hexdigest()]))
"""


def tar_of_one(size_bytes: int, digest: "hashlib._Hash") -> Iterator[bytes]:
    """Yield a tar stream with one member, block by block."""
    import tarfile

    member = tarfile.TarInfo("big")
    member.size = size_bytes
    yield member.tobuf(tarfile.PAX_FORMAT)
    noise = random.Random(6).randbytes(MIB)
    for number in range(size_bytes // MIB):
        block = number.to_bytes(8) + noise[8:]
        digest.update(block)
        yield block
    yield bytes(1024)


@pytest.mark.slow
def test_object_of_6_gb_needs_little_memory(
    s3_environment: None, make_bucket: Callable[[], str], database_url: str, tmp_path: Path
) -> None:
    """The object is streamed from the source, written by multipart, and read back by one GET."""
    size_bytes = 6_000 * MIB
    own = {
        "CAFCAT_DATABASE_URL": database_url,
        "CAFCAT_HOME": str(tmp_path),
        "CAFCAT_STORE": f"s3://{make_bucket()}",
    }
    process = subprocess.Popen(
        [sys.executable, "-c", MEASURED],
        env=os.environ | own,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    digest = hashlib.sha256()
    assert process.stdin
    for block in tar_of_one(size_bytes, digest):
        process.stdin.write(block)
    out, _ = process.communicate()
    added, packed, read, found = json.loads(out)
    print(f"peak memory of the process: {packed:,} bytes after packing, {read:,} after reading")
    assert added == size_bytes
    assert found == digest.hexdigest()
    assert packed < 300_000_000, "parts for at most 256 MB, and the program itself"
    assert read < packed + 50_000_000
