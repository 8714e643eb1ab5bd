"""An ingest from a bucket by the workers of Dask. One of them is killed meanwhile."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import psycopg
import pytest

from tests.cluster.objects import content, keys, left_over
from tests.worlds.dask_programs import DaskPrograms
from tests.worlds.places import PREFIX
from tests.worlds.servers.s3_server import S3Server, new_bucket
from tests.worlds.waiting import wait_until

OBJECTS = 500


@pytest.mark.slow
@pytest.mark.usefixtures("s3_environment")
@pytest.mark.skipif(find_spec("distributed") is None, reason="the package distributed is missing")
def test_workers_of_dask_pack_every_object_once(
    database_url: str, s3_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = s3_server.client(max_attempts=5)
    source, chunks = new_bucket(client), new_bucket(client)
    for key in keys(OBJECTS):
        client.put_object(Bucket=source, Key=key, Body=content(key))
    monkeypatch.setenv("CAFCAT_DATABASE_URL", database_url)
    monkeypatch.setenv("CAFCAT_STORE", f"s3://{chunks}/{PREFIX}".rstrip("/"))
    monkeypatch.setenv("CAFCAT_HOME", str(tmp_path / "home"))
    dask = DaskPrograms(tmp_path)
    try:
        dask.wait_for_workers()
        flags = ["--cluster", dask.url, "--share-password", "--target-size", "100KB"]
        command = [sys.executable, "-m", "cafcat", "ingest", f"s3://{source}", *flags]
        with open(tmp_path / "output", "wb") as output:
            process = subprocess.Popen(command, env=os.environ, stdout=output, stderr=output)
        wait_until(lambda: process.poll() is not None or committed(database_url))
        dask.kill_worker()
        wait_until(lambda: process.poll() is not None)
        assert process.returncode == 0, (tmp_path / "output").read_text()
    finally:
        dask.stop()
    subprocess.run([sys.executable, "-m", "cafcat", "recover"], check=True)
    assert left_over(database_url, s3_server, chunks, {key: content(key) for key in keys(OBJECTS)}) == []


def committed(database_url: str) -> int:
    with psycopg.connect(database_url) as connection:
        row = connection.execute("SELECT count(*) FROM file_locations").fetchone()
    return int(row[0]) if row else 0
