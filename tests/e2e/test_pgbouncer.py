"""Every verb through a real PgBouncer in transaction mode, in which each transaction may run in another session."""

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

import cafcat as package
from cafcat.catalog.connection import open_connection
from tests.e2e.conftest import Cafcat
from tests.e2e.test_every_verb import CASES, WITHOUT_A_DATABASE, check_verb, clp_program, filled
from tests.worlds.memory import in_memory
from tests.worlds.servers.pgbouncer import SERVER_CONNECTIONS, PgBouncer, pgbouncer, pgbouncer_version
from tests.worlds.servers.services import Databases

__all__ = ["clp_program", "filled"]

QUICK = {"ingest", "ls", "rm", "undelete", "rebuild", "snapshot", "sql"}
"""Verbs that `make test` runs: with a commit, a look-up, temporary tables, advisory locks and cursors."""
VERBS = [
    pytest.param(verb, marks=[] if verb in QUICK else pytest.mark.slow)
    for verb in CASES
    if verb not in WITHOUT_A_DATABASE
]


@pytest.fixture(scope="module", params=["0", "100"])
def pooler(request: pytest.FixtureRequest, postgres_server: str) -> Iterator[PgBouncer]:
    """PgBouncer, which passes prepared statements on as they are, or handles them itself."""
    settings = {}
    if request.param != "0":
        if pgbouncer_version() < (1, 21):
            pytest.skip("this PgBouncer is older than 1.21, and has no max_prepared_statements")
        settings["max_prepared_statements"] = request.param
    with in_memory() as folder, pgbouncer(folder, postgres_server, settings) as running:
        yield running


@pytest.fixture
def database_url(pooler: PgBouncer, databases: Databases) -> Iterator[str]:
    with databases.fresh(databases.template()) as url:
        pooled = pooler.url(url)
        assert len(pooler.open_all(pooled)) == SERVER_CONNECTIONS
        yield pooled


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_does_its_work_through_the_pooler(
    filled: Cafcat, pooler: PgBouncer, databases: Databases, verb: str
) -> None:
    with databases.fresh(databases.template()) as empty:
        check_verb(filled, verb, pooler.url(empty))


def test_each_transaction_may_run_in_another_session(database_url: str) -> None:
    with psycopg.connect(database_url, autocommit=True, prepare_threshold=None) as connection:
        found = {connection.execute("SELECT pg_backend_pid()").fetchall()[0][0] for _ in range(10)}
    assert len(found) == SERVER_CONNECTIONS


def test_clients_never_execute_the_prepared_statements_of_others(database_url: str, tmp_path: Path) -> None:
    """Without max_prepared_statements, the pooler gives a client a session in which another one has prepared."""
    with package.open(database_url=database_url, home=tmp_path, store=tmp_path / "store") as repository:
        with repository.writer() as writer:
            writer.add("folder/file", b"content")
        repository.read("folder/file")
    opened = [package.open(database_url=database_url, home=tmp_path, store=tmp_path / "store") for _ in range(2)]
    try:
        for _ in range(20):
            assert opened[0].locate("folder/file").path == "folder/file"
            found = opened[1].session.catalog.files.entry("folder")
            assert found is not None
            assert found.path == "folder/"
    finally:
        for repository in opened:
            repository.close()


def test_names_of_prepared_statements_differ_between_connections(database_url: str) -> None:
    with open_connection(database_url) as one, open_connection(database_url) as other:
        assert one._prepared._prepared_idx != other._prepared._prepared_idx


@pytest.mark.parametrize("prepares", [True, False])
def test_the_doctor_finds_the_pooler(database_url: str, tmp_path: Path, prepares: bool) -> None:
    with package.open(
        database_url=database_url, home=tmp_path, store=tmp_path / "store", prepared_statements=prepares
    ) as repository:
        report = repository.doctor()
    [found] = [result for result in report.diagnoses if result.check == "pooler"]
    assert "a pooler is in between" in found.found
    assert (found.remedy is None) is not prepares
    assert report.skipped == ()
