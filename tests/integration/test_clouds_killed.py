"""SIGKILL during an ingest into Google Cloud Storage and Azure Blob Storage, then a recover, on emulators."""

import random
import signal
from pathlib import Path

import psycopg
import pytest

import cafcat
from cafcat.stores.keys import is_chunk_key
from tests.worlds.kills.killing import environment, run_until_killed
from tests.worlds.servers.clouds import Azure, Bucket

KILLER = """
import sys
import urllib3
from tests.worlds.kills.killed_steps import Steps

steps = Steps(int(sys.argv[1]), after=True)
steps.count(urllib3.PoolManager, "request")
from cafcat.__main__ import main
sys.argv = ["cafcat", "ingest", "-q", "--target-size", "10kB", sys.argv[2]]
main()
"""


class Places:
    """A folder with files, and a store in a bucket."""

    def __init__(self, bucket: Bucket, database_url: str, folder: Path) -> None:
        self.bucket, self.database_url, self.folder = bucket, database_url, folder
        self.store = f"{bucket.url}/chunks"
        content = random.Random(7)
        self.files = {f"in/file-{n:03}": content.randbytes(content.randrange(2500)) for n in range(80)}
        (folder / "in").mkdir()
        for name, data in self.files.items():
            (folder / name).write_bytes(data)

    def ingest_until_killed(self, step: int) -> int:
        variables = environment(self.database_url, self.store, self.folder / "home")
        return run_until_killed(KILLER, step, "in", folder=self.folder, variables=variables)

    def chunk_keys(self) -> list[str]:
        keys = (key.removeprefix("chunks/") for key in self.bucket.cloud.keys(self.bucket.name))
        return sorted(filter(is_chunk_key, keys))

    def expire_leases(self) -> None:
        with psycopg.connect(self.database_url) as connection:
            connection.execute(
                "UPDATE chunks SET lease_expires_at = now() - interval '1 s' WHERE state = 'writing'"
            )


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_recover_cleans_up_after_kills(cloud_bucket: Bucket, database_url: str, tmp_path: Path, seed: int) -> None:
    """No file is lost or packed twice, and no object or block of a dead writer stays."""
    places = Places(cloud_bucket, database_url, tmp_path)
    source = random.Random(seed)
    killed = [places.ingest_until_killed(source.randrange(1, 40)) == -signal.SIGKILL for _ in range(5)]
    assert sum(killed) >= 3
    places.expire_leases()
    with cafcat.open(database_url=database_url, home=tmp_path / "home", store=places.store) as repository:
        assert not repository.recover().failed
    assert places.ingest_until_killed(10**9) == 0
    with cafcat.open(database_url=database_url, home=tmp_path / "home", store=places.store) as repository:
        assert {location.path: repository.read(location.path) for location in repository.list()} == places.files
        committed = [chunk for chunk in repository.chunks() if chunk.state == "committed"]
        assert sum(chunk.live_file_count for chunk in committed) == len(places.files), "nothing twice"
    assert places.chunk_keys() == sorted(chunk.object_key for chunk in committed)
    if isinstance(cloud_bucket.cloud, Azure):
        assert cloud_bucket.cloud.unfinished(cloud_bucket.name) == set()
