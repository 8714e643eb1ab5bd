"""serve: DuckDB's own readers of S3 and HTTP (httpfs, extra `test-clients`). Skipped without them."""

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import Cafcat
from tests.worlds.file_server import FileServer, s3_side, serving
from tests.worlds.servers.s3_gateway import interpreter
from tests.worlds.servers.services import Databases

pytest.importorskip("uvicorn")

pytestmark = pytest.mark.slow  # another interpreter is started for each query

ROWS = 200_000
QUERY = """
import json, pathlib, sys
import duckdb, duckdb_extension_httpfs

[extension] = pathlib.Path(duckdb_extension_httpfs.__path__[0]).rglob("httpfs.duckdb_extension")
connection = duckdb.connect(config={"home_directory": ".", "autoinstall_known_extensions": False})
connection.execute(f"LOAD '{extension}'")
connection.execute("SET enable_progress_bar = false")  # a slow query prints it on stdout
for statement in json.load(sys.stdin):
    rows = connection.execute(statement).fetchall()
print(json.dumps(rows))
"""
Query = Callable[..., Any]


@pytest.fixture(scope="module")
def query(tmp_path_factory: pytest.TempPathFactory) -> Query:
    """A function that runs statements in DuckDB, and returns the rows of the last one."""
    python = interpreter("duckdb_extension_httpfs")
    if python is None:
        pytest.skip("DuckDB's httpfs is not installed: see the extra test-clients, and CAFCAT_TEST_PROGRAMS")
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    elsewhere = tmp_path_factory.mktemp("query")

    def run(*statements: str, folder: Path | None = None, fails: bool = False) -> Any:
        done = subprocess.run(
            [python, "-c", QUERY],
            input=json.dumps(statements),
            cwd=folder or elsewhere,
            env=environment,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert bool(done.returncode) == fails, done.stderr
        return done.stderr if fails else json.loads(done.stdout)

    return run


@dataclass
class Served:
    """The running server of both protocols.

    Attributes:
        cafcat: the command.
        server: the HTTP side.
        endpoint: host and port of the S3 side.
    """

    cafcat: Cafcat
    server: FileServer
    endpoint: str

    def secret(self, *arguments: str) -> str:
        """Make an access key by the command, and return the statement with which DuckDB uses it."""
        key = self.cafcat("keys", "add", "--json", *arguments).document
        return (
            f"CREATE SECRET (TYPE s3, KEY_ID '{key['access_key_id']}', SECRET '{key['secret_access_key']}', "
            f"ENDPOINT '{self.endpoint}', URL_STYLE 'path', USE_SSL false, REGION 'us-east-1')"
        )


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, databases: Databases, query: Query) -> Iterator[Served]:
    with databases.fresh(databases.template()) as url:
        cafcat = Cafcat(tmp_path_factory.mktemp("served"), url)
        for folder in ("data/csv/year=2025", "data/csv/year=2026", "other"):
            (cafcat.folder / folder).mkdir(parents=True)
        query(
            f"CREATE TABLE t AS SELECT range AS id, hash(range) AS number, repeat('x', 20) || range AS name "
            f"FROM range({ROWS})",
            "COPY t TO 'data/table é.parquet' (ROW_GROUP_SIZE 20000)",
            "COPY (SELECT id, number FROM t WHERE id < 100) TO 'data/csv/year=2025/a.csv'",
            "COPY (SELECT id, number FROM t WHERE id >= 100 AND id < 250) TO 'data/csv/year=2026/b c.csv'",
            "COPY (SELECT id, number FROM t WHERE id >= 250 AND id < 300) TO 'data/csv/year=2026/d.csv'",
            folder=cafcat.folder,
        )
        cafcat("ingest", "data")
        with serving(cafcat, cafcat.folder / "log", "--s3-port", "0", "--workers", "2") as server:
            yield Served(cafcat, server, s3_side(server).url.removeprefix("http://"))


def test_a_parquet_file_by_s3(served: Served, query: Query) -> None:
    """DuckDB reads the columns that it needs, by ranges."""
    source = "'s3://data/table é.parquet'"
    secret = served.secret()
    [[rows, total]] = query(secret, f"SELECT count(*), sum(id) FROM {source}")
    assert (rows, int(total)) == (ROWS, ROWS * (ROWS - 1) // 2)
    [[name]] = query(secret, f"SELECT name FROM {source} WHERE id = 123456")
    assert name == "x" * 20 + "123456"
    answers = [line for line in served.server.lines() if line.get("door") == "s3" and line["status"] == 206]
    size = (served.cafcat.folder / "data/table é.parquet").stat().st_size
    assert answers
    assert sum(line["size_bytes"] for line in answers) < size


@pytest.mark.parametrize("glob", ["csv/*/*.csv", "csv/**/*.csv", "*/year=*/[a-d]*.csv"])
def test_a_glob_of_csv_files_by_s3(served: Served, query: Query, glob: str) -> None:
    counted = "SELECT year, count(*), sum(id)::BIGINT, count(DISTINCT filename) FROM read_csv('s3://data/{}', "
    statement = counted.format(glob) + "filename = true, hive_partitioning = true) GROUP BY year ORDER BY year"
    assert query(served.secret(), statement) == [
        [2025, 100, sum(range(100)), 1],
        [2026, 200, sum(range(100, 300)), 2],
    ]


def test_a_key_of_a_folder_reads_this_folder_alone(served: Served, query: Query) -> None:
    secret = served.secret("--prefix", "data/csv/year=2025")
    assert query(secret, "SELECT count(*) FROM 's3://data/csv/year=2025/*.csv'") == [[100]]
    assert "403" in query(secret, "SELECT count(*) FROM 's3://data/csv/year=2026/d.csv'", fails=True)


def test_both_kinds_of_files_by_http(served: Served, query: Query) -> None:
    files = f"{served.server.url}/files/data"
    [[rows, total]] = query(f"SELECT count(*), sum(id) FROM '{files}/table%20%C3%A9.parquet'")
    assert (rows, int(total)) == (ROWS, ROWS * (ROWS - 1) // 2)
    named = f"['{files}/csv/year=2025/a.csv', '{files}/csv/year=2026/b%20c.csv']"
    assert query(f"SELECT count(*) FROM read_csv({named})") == [[250]]
    statuses = {line["status"] for line in served.server.lines() if line.get("path", "").endswith(".parquet")}
    assert 206 in statuses
