"""No verb reads a whole table of files, or a row of it more than once for each file that the verb touches.

Every verb runs in a catalog with very many synthetic rows, with each kind of statistics of the planner, and the
plans of all its statements are checked. `make bench-catalog` measures the time of the same verbs.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import psycopg
import pytest

import cafcat
from cafcat.catalog.connection import open_connection
from cafcat.embedded.roles import SUPERUSER
from tests.worlds.plans import Limits, Plan, collected, excesses, explained, has_auto_explain, with_plans
from tests.worlds.servers.services import Databases, debian_programs, temporary_server
from tests.worlds.size_verbs import FILLING, READING, READING_ALL, WRITING, Verb, prepared
from tests.worlds.size_world import FILES, STATES, SizeWorld

ROWS = [200_000, pytest.param(1_000_000, marks=pytest.mark.slow)]
FEWER_ROWS = 50_000
LIMITS = Limits(
    # A statement looks up each file once; some statements name a few further files.
    loops=FILES + 10,
    # In the last state, a path has had several locations.
    rows=10 * FILES,
    # A BRIN index selects ranges of pages with some 9,000 rows each. The files of a chunk are in a few ranges.
    brin_rows=45_000,
)


class Measured(NamedTuple):
    """A catalog, and the way to collect the plans of its statements."""

    world: SizeWorld
    url: str
    collect: Callable[[], contextlib.AbstractContextManager[list[Plan]]]


@pytest.fixture(scope="module")
def explaining_databases(databases: Databases) -> Iterator[Databases]:
    """Databases of a server with auto_explain, if there is one, or else of the usual server."""
    with contextlib.ExitStack() as stack:
        if not has_auto_explain(databases.conninfo):
            with contextlib.suppress(pytest.skip.Exception):
                server = stack.enter_context(temporary_server(debian_programs()))
                databases = stack.enter_context(
                    contextlib.closing(Databases(server.conninfo("postgres", SUPERUSER)))
                )
        yield databases


@contextlib.contextmanager
def measured(databases: Databases, folder: Path, rows: int, partitions: int = 0) -> Iterator[Measured]:
    """A catalog in which a few files were ingested, changed and removed, with many synthetic rows."""
    with databases.fresh(databases.template(), partitions) as owned_url:
        url = databases.superuser_url(owned_url)  # only such a role may load auto_explain
        world = SizeWorld(folder, url)
        world.sql(f"ALTER DATABASE {psycopg.conninfo.conninfo_to_dict(url)['dbname']} SET synchronous_commit = off")
        with world.repository() as repository:
            prepared(world, repository)
        world.grow(rows)
        if has_auto_explain(databases.conninfo):
            yield Measured(world, with_plans(url), collected)
        else:
            yield Measured(world, url, explained)


def excesses_of(catalog: Measured, verb: Verb, state: str, limits: Limits = LIMITS) -> list[str]:
    """Run a verb, and return the scans in which its statements read too much."""
    with catalog.collect() as plans, catalog.world.repository(catalog.url) as repository:
        verb(catalog.world, repository, state)
    assert plans, "no plan was reported"
    return [f"{verb.__name__} ({state} statistics): {excess}" for excess in excesses(plans, limits)]


def check(catalog: Measured, states: Sequence[str] = STATES) -> None:
    """Run all verbs with the statistics of these states."""
    found = []
    for state in states:
        catalog.world.switch(state)
        for verb in WRITING + READING:
            found += excesses_of(catalog, verb, state)
    assert not found, "\n\n".join(found)


@pytest.mark.parametrize("rows", ROWS)
def test_no_verb_reads_more_rows_than_it_touches(
    explaining_databases: Databases, tmp_path: Path, rows: int
) -> None:
    with measured(explaining_databases, tmp_path, rows) as catalog:
        check(catalog)


@pytest.mark.slow
@pytest.mark.parametrize("rows", [200_000])
def test_no_verb_reads_more_rows_of_a_partition(explaining_databases: Databases, tmp_path: Path, rows: int) -> None:
    """The limits are those of a scan of one partition: no verb reads a whole partition."""
    with measured(explaining_databases, tmp_path, rows, partitions=4) as catalog:
        check(catalog)


@pytest.mark.slow
def test_no_verb_reads_more_rows_on_the_server_of_the_other_tests(databases: Databases, tmp_path: Path) -> None:
    """The server has another version of PostgreSQL, with another planner.

    Fresh statistics are the least dangerous.
    """
    with measured(databases, tmp_path, FEWER_ROWS) as catalog:
        check(catalog, ["midway", "none"])


@pytest.mark.slow
def test_verbs_that_read_whole_tables_read_them_once(explaining_databases: Databases, tmp_path: Path) -> None:
    """Each check of all rows is one scan: no row is read again for each row of another table."""
    whole = Limits(loops=FEWER_ROWS // 10, rows=FEWER_ROWS + 100 * FILES, brin_rows=FEWER_ROWS * 2)
    with measured(explaining_databases, tmp_path, FEWER_ROWS) as catalog:
        for state in STATES:
            catalog.world.switch(state)
            for verb in READING_ALL:
                assert excesses_of(catalog, verb, state, whole) == []
        for verb in FILLING:
            with explaining_databases.fresh(explaining_databases.template()) as owned_url:
                empty = explaining_databases.superuser_url(owned_url)
                url = with_plans(empty) if catalog.collect is collected else empty
                assert excesses_of(catalog._replace(url=url), verb, "no", whole) == []


def test_whole_and_repeated_scans_are_found(explaining_databases: Databases, tmp_path: Path) -> None:
    """The test uses an old statement of cafcat. It proves that plans are really collected."""
    with measured(explaining_databases, tmp_path, FEWER_ROWS) as catalog:

        def look_up_as_before(world: SizeWorld, repository: cafcat.Repository, state: str) -> None:
            with open_connection(catalog.url) as connection:
                connection.execute("CREATE TEMPORARY TABLE staged (LIKE file_locations)")
                connection.execute(
                    "INSERT INTO staged (caf_file_id, start_byte, end_byte, crc32c, file_path) "
                    "SELECT 1, n, n, n, 'zzz/' || n FROM generate_series(1, 60) AS n"
                )
                connection.execute("ANALYZE staged")
                connection.execute(
                    "SELECT file_path FROM staged JOIN file_locations USING (file_path) ORDER BY 1 LIMIT 1"
                )

        found = {}
        for state in STATES:
            catalog.world.switch(state)
            found[state] = "".join(excesses_of(catalog, look_up_as_before, state))
    assert "Nested Loop" in found["midway"]
