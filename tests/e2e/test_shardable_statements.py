"""The statements that cafcat sends keep to the rules of docs/scale-citus.md, except for those that are listed."""

import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict

from tests.crash.postgres_proxy import PostgresProxy
from tests.e2e.conftest import Cafcat
from tests.e2e.test_every_verb import CASES, WITHOUT_A_DATABASE, check_verb, clp_program, filled
from tests.worlds.servers.services import Databases

pytest.importorskip("sqlglot")

from tests.worlds.shardable import broken_rules

__all__ = ["clp_program", "filled"]

PAGE = Path(__file__).parents[2] / "docs" / "scale-citus.md"
BROKEN = {
    # cafcat/catalog/by_key.py: join_by_key and exists_by_key fix the order of a join with a table of keys.
    "insert asked, retired_locations, wanted": {"correlated subquery"},  # undelete
    "insert restored_locations, retired_locations, wanted": {"correlated subquery"},  # undelete
    "insert asked, file_locations, listed": {"correlated subquery"},  # ingest --delete
    "select file_locations, wanted": {"correlated subquery"},  # undelete
    "insert file_locations, retired_locations, staged": {"correlated subquery"},  # ingest, files that are replaced
    "insert chunks, file_locations, retired_locations, staged": {"correlated subquery"},
    "insert file_locations, folder_deltas, staged": {"correlated subquery"},  # ingest, folders of replaced files
    "delete insert file_locations, retired_locations, staged": {"correlated subquery"},  # repack
    "update chunks, file_locations, staged": {"correlated subquery"},  # ingest and repack, counters
    "insert journal, journal_files, retired_locations": {"correlated subquery"},  # rebuild
    # cafcat/catalog/by_key.py: delete_by_key names the rows by ctid.
    "delete insert asked, file_locations, gone": {"correlated subquery", "system column"},  # rm
    "delete retired_locations, wanted": {"correlated subquery", "system column"},  # undelete
    # Look-ups in ranges: each is a query of its own.
    "select file_locations": {"correlated subquery"},  # export: names without a file; folders_among
    "select chunks, file_locations": {"correlated subquery", "recursive query"},  # ls: levels and entries
    "select alembic_version, chunks, file_locations": {"correlated subquery"},  # entries, the first of a connection
    "select alembic_version, chunks, file_locations, pg_class": {"correlated subquery"},  # look-ups, likewise
    "update chunks, file_locations": {"correlated subquery"},  # prune: no file of the chunk is live
}
"""The rules that statements break, by command and tables. docs/scale-citus.md says what each of them becomes."""
FURTHER = (
    "ls",
    "ls tree",
    "ls --json tree/",
    "get --files-from list -o all.tar",
    "cat ./tree/a",
    "verify --prefix tree",
    "ingest tree --checksum",
)
"""Commands with other statements than those of CASES."""


@pytest.fixture(scope="module")
def proxy(databases: Databases) -> Iterator[PostgresProxy]:
    with PostgresProxy(databases.owner_conninfo) as proxy:
        yield proxy


@pytest.fixture
def database_url(proxy: PostgresProxy, databases: Databases) -> Iterator[str]:
    with databases.fresh(databases.template()) as url:
        yield proxy.url(str(conninfo_to_dict(url)["dbname"]))


@pytest.mark.slow
@pytest.mark.parametrize("verb", [verb for verb in CASES if verb not in {*WITHOUT_A_DATABASE, "db partition"}])
def test_statements_of_a_verb_are_shardable(
    filled: Cafcat, proxy: PostgresProxy, databases: Databases, verb: str
) -> None:
    with databases.fresh(databases.template()) as empty:
        check_verb(filled, verb, proxy.url(str(conninfo_to_dict(empty)["dbname"])))
    check(proxy.statements)


def test_statements_of_further_commands_are_shardable(filled: Cafcat, proxy: PostgresProxy) -> None:
    (filled.folder / "list").write_text("tree/a\ntree/b\n")
    for command in FURTHER:
        filled(*shlex.split(command))
    (filled.folder / "tree" / "a").write_text("changed")
    filled("ingest", "tree")
    filled("rm", "tree/a", "--yes")
    filled("undelete", "tree/a")
    (filled.folder / "tree" / "b").unlink()
    filled("ingest", "tree", "--delete")
    assert {name for name, _ in check(proxy.statements)} >= {"select chunks, file_locations"}


def check(statements: set[str]) -> set[tuple[str, str]]:
    """Check that the statements break only listed rules, and return what they break."""
    broken = {(name, rule) for statement in list(statements) for rule, name in broken_rules(statement)}
    assert broken <= {(name, rule) for name, rules in BROKEN.items() for rule in rules}
    return broken


def test_every_listed_statement_is_on_the_page() -> None:
    page = PAGE.read_text()
    for name in BROKEN:
        assert f"`{name}`" in page, name


@pytest.mark.parametrize(
    ("statement", "rule"),
    [
        ("DELETE FROM file_locations WHERE ctid = ANY ($1)", "system column"),
        ("SELECT * FROM file_locations WHERE file_path = $1 FOR UPDATE", "lock of rows"),
        (
            "SELECT * FROM keys, LATERAL (SELECT * FROM file_locations AS l WHERE l.file_path = keys.path) AS f",
            "corr",
        ),
        ("UPDATE file_locations SET file_path = $1 WHERE file_path = $2", "change of the key"),
        ("INSERT INTO retired_locations (id) VALUES (1) ON CONFLICT (id) DO NOTHING", "conflict on another key"),
        (
            "WITH RECURSIVE w AS (SELECT 1 UNION SELECT caf_file_id FROM file_locations) SELECT * FROM w",
            "recursive",
        ),
        ("DECLARE c CURSOR FOR SELECT ctid FROM file_locations", "system column"),
        ("COPY (SELECT ctid FROM file_locations) TO STDOUT (FORMAT BINARY)", "system column"),
    ],
)
def test_a_statement_that_breaks_a_rule_is_found(statement: str, rule: str) -> None:
    assert any(found.startswith(rule) for found, _ in broken_rules(statement))


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT * FROM file_locations WHERE file_path = $1",
        "SELECT ctid FROM chunks FOR UPDATE",
        "INSERT INTO file_locations (file_path) VALUES ($1) "
        "ON CONFLICT (file_path) DO UPDATE SET crc32c = excluded.crc32c",
        "COPY file_locations (file_path) FROM STDIN (FORMAT BINARY)",
        "SELECT c.uuid FROM (SELECT * FROM file_locations WHERE file_path = $1 OFFSET 0) AS l "
        "JOIN chunks AS c ON c.id = l.caf_file_id",
    ],
)
def test_a_statement_that_keeps_to_the_rules_is_accepted(statement: str) -> None:
    assert broken_rules(statement) == set()
