"""SIGKILL during an ingest from bucket to bucket, repeatedly; then an ingest that may finish, and a recover.

No file is lost or packed twice, and no leftover costs money. A counter of requests and statements chooses the
moments of the kills, so that they hit every step.
"""

import random
import signal
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

import cafcat
from cafcat.stores.keys import is_chunk_key
from cafcat.support.checksums import crc32c
from tests.worlds.kills.killing import environment, run_until_killed
from tests.worlds.servers.s3_server import S3Server

KILLER = """
import sys
import botocore.client, obstore
from tests.worlds.kills.killed_steps import Steps

steps = Steps(int(sys.argv[1]), after=True)
steps.count(botocore.client.BaseClient, "_make_api_call")
steps.count(obstore, "get")
steps.count_statements()
from cafcat.__main__ import main
sys.argv = ["cafcat", "ingest", "-q", "--target-size", "40kB", sys.argv[2]]
main()
"""

pytestmark = pytest.mark.usefixtures("s3_environment")


class Places:
    """The source bucket, the target bucket, and the catalog."""

    def __init__(self, server: S3Server, source: str, target: str, database_url: str, home: Path) -> None:
        self.client = server.client()
        self.source, self.target, self.database_url = source, target, database_url
        self.store = f"s3://{target}/chunks"
        self.home = home
        content = random.Random(7)
        self.files = {f"file-{n:03}": content.randbytes(content.randrange(2500)) for n in range(80)}
        for key, data in self.files.items():
            self.client.put_object(Bucket=source, Key=key, Body=data)

    def ingest_until_killed(self, countdown: int) -> int:
        variables = environment(self.database_url, self.store, self.home)
        return run_until_killed(KILLER, countdown, f"s3://{self.source}", variables=variables)

    def check_invariant(self) -> set[str]:
        """Check the invariant by SQL and raw bytes alone, and return the paths in the catalog."""
        with psycopg.connect(self.database_url) as connection:
            rows = connection.execute(
                "SELECT file_path, start_byte, end_byte, crc32c, state, object_key "
                "FROM file_locations LEFT JOIN chunks ON chunks.id = caf_file_id"
            ).fetchall()
            # The remains of an abandoned chunk are removed after its row was changed.
            in_use = "state IN ('committed', 'writing') OR state = 'abandoned' AND deleted_at IS NULL"
            expected = {key for (key,) in connection.execute(f"SELECT object_key FROM chunks WHERE {in_use}")}
        chunks = {key: self.bytes_of(key) for key in {row[5] for row in rows}}
        for path, start, end, checksum, state, key in rows:
            assert state == "committed", path
            assert crc32c(chunks[key][start:end]) == checksum, path
        assert {*self.objects(), *self.uploads()} <= expected
        return {row[0] for row in rows}

    def bytes_of(self, key: str) -> bytes:
        return self.client.get_object(Bucket=self.target, Key=f"chunks/{key}")["Body"].read()

    def objects(self) -> list[str]:
        found = self.client.list_objects_v2(Bucket=self.target).get("Contents", [])
        return list(filter(is_chunk_key, (item["Key"].removeprefix("chunks/") for item in found)))

    def uploads(self) -> list[str]:
        found = self.client.list_multipart_uploads(Bucket=self.target).get("Uploads", [])
        return list(filter(is_chunk_key, (item["Key"].removeprefix("chunks/") for item in found)))


@pytest.fixture
def places(s3_server: S3Server, make_bucket: Callable[[], str], database_url: str, tmp_path: Path) -> Places:
    return Places(s3_server, make_bucket(), make_bucket(), database_url, tmp_path / "home")


@pytest.mark.parametrize("seed", [1, 2])
def test_killed_again_and_again(places: Places, seed: int) -> None:
    source = random.Random(seed)
    kills = 0
    before: set[str] = set()
    for _ in range(12):
        code = places.ingest_until_killed(source.randrange(1, 240))
        kills += code == -signal.SIGKILL
        now = places.check_invariant()
        assert before <= now, "a committed file is gone"
        before = now
        if code == 0:
            break
        assert code == -signal.SIGKILL
    else:
        assert places.ingest_until_killed(10**9) == 0
    assert kills >= 3
    assert places.check_invariant() == set(places.files)
    with psycopg.connect(places.database_url) as connection:
        connection.execute("UPDATE chunks SET lease_expires_at = now() - interval '1 s' WHERE state = 'writing'")
    with cafcat.open(database_url=places.database_url, home=places.home, store=places.store) as repository:
        assert not repository.recover().failed
        for path, data in places.files.items():
            assert repository.read(path) == data
        committed = [chunk for chunk in repository.chunks() if chunk.state == "committed"]
        live = sum(chunk.live_file_count for chunk in committed)
        assert live == len(places.files), "nothing twice"
    assert places.uploads() == []
    assert sorted(places.objects()) == sorted(chunk.object_key for chunk in committed)
