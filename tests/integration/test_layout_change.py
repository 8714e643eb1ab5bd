"""The change of the layout of file_locations while the catalog is in use."""

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

import cafcat
from cafcat.catalog import schema
from cafcat.catalog.layout_change import LayoutChanges
from cafcat.errors import CatalogLocked, CatalogUnavailable, Conflict
from cafcat.operations.partition.run import cancel, run
from tests.worlds.layout_world import CHANGES, CONTENT, PARTITIONS, changing, execute, fill, partitions, relations
from tests.worlds.servers.services import Databases


@pytest.fixture
def repository(database_url: str, tmp_path: Path) -> Iterator[cafcat.Repository]:
    with cafcat.open(database_url=database_url, home=tmp_path / "home", store=str(tmp_path / "store")) as found:
        yield found


@pytest.mark.parametrize(("before", "after"), [(0, PARTITIONS), (PARTITIONS, 0), (2, 3)])
def test_change_keeps_all_rows_and_leaves_nothing_behind(
    databases: Databases, tmp_path: Path, before: int, after: int
) -> None:
    with (
        databases.fresh(databases.template(), after) as other,
        databases.fresh(databases.template(), before) as url,
        cafcat.open(database_url=url, home=tmp_path, store=str(tmp_path / "store")) as repository,
    ):
        fill(url)
        execute(url, "GRANT SELECT ON file_locations TO PUBLIC")
        rows = execute(url, CONTENT.format("file_locations"))
        plan = run(repository.session, after, dry_run=True)
        assert (plan.changed, plan.before, plan.dry_run) == (False, before, True)
        assert 3000 < plan.rows < 6000
        assert plan.total_bytes > 500_000
        report = run(repository.session, after)
        assert (report.changed, report.rows) == (True, 5000)
        assert execute(url, CONTENT.format("file_locations")) == rows
        assert partitions(url) == after
        assert relations(url) == relations(other)
        assert execute(url, "SELECT count(*) FROM pg_proc WHERE proname LIKE 'mirror%'") == [(0,)]
        grants = (
            "SELECT count(*) FROM pg_class, aclexplode(relacl) WHERE relname ~ '^file_locations' AND grantee = 0"
        )
        assert execute(url, f"{grants} AND relkind IN ('r', 'p')") == [(after + 1,)]
        assert run(repository.session, after).changed


@pytest.mark.parametrize("when", ["before", "midway", "after"])
def test_changes_by_others_are_repeated_in_the_new_table(database_url: str, when: str) -> None:
    fill(database_url)
    with changing(database_url, "copying") as repository:
        layout = repository.session.catalog.layout
        batches = {"before": 0, "midway": 20, "after": 1000}[when]
        for _ in range(batches):
            layout.copy_batch(1)
        for statement in CHANGES:
            execute(database_url, statement)
        with (
            psycopg.connect(database_url) as connection,
            connection.cursor() as cursor,
            cursor.copy(
                "COPY file_locations (caf_file_id, start_byte, end_byte, crc32c, file_path) FROM STDIN"
            ) as c,
        ):
            c.write_row((1, 2, 3, 4, "copied"))
        while (change := layout.change()) and change.phase == "copying":
            layout.copy_batch(7)
        new, old = (
            execute(database_url, CONTENT.format(table)) for table in ("file_locations_new", "file_locations")
        )
        assert new == old
        assert len(old) > 4000
        run(repository.session, PARTITIONS)
        assert execute(database_url, CONTENT.format("file_locations")) == old


def test_batch_waits_for_a_transaction_that_deletes_rows(database_url: str) -> None:
    fill(database_url)
    with changing(database_url, "copying") as repository, psycopg.connect(database_url) as other:
        other.execute("DELETE FROM file_locations WHERE start_byte < 100")
        batch = threading.Thread(target=repository.session.catalog.layout.copy_batch, args=(100,))
        batch.start()
        batch.join(0.3)
        assert batch.is_alive()
        other.commit()
        batch.join()
        assert execute(database_url, "SELECT count(*) FROM file_locations_new WHERE start_byte < 100") == [(0,)]


def test_rewritten_table_is_copied_again(database_url: str) -> None:
    """VACUUM FULL moves rows from pages that are not copied yet to pages that are."""
    fill(database_url)
    execute(database_url, "DELETE FROM file_locations WHERE start_byte < 2500")
    rows = execute(database_url, CONTENT.format("file_locations"))
    with changing(database_url, "copying") as repository:
        for _ in range(20):
            repository.session.catalog.layout.copy_batch(1)
        execute(database_url, "VACUUM FULL file_locations")
        run(repository.session, PARTITIONS)
    assert execute(database_url, CONTENT.format("file_locations")) == rows


def test_switch_waits_for_older_snapshots_and_for_readers(database_url: str) -> None:
    fill(database_url)
    with changing(database_url, "switching", 1000) as repository:
        layout = repository.session.catalog.layout
        assert layout.older_sessions() == []
    with (
        cafcat.open(database_url=database_url) as repository,
        repository.session.catalog.consistent_read() as reader,
    ):
        layout = repository.session.catalog.layout
        with pytest.raises(CatalogLocked):
            layout.switch()
        assert reader.totals(None, "folder/")[0] == 5000
    with cafcat.open(database_url=database_url) as repository:
        repository.session.catalog.layout.switch()
        assert run(repository.session, PARTITIONS).changed
    assert partitions(database_url) == PARTITIONS


def test_snapshot_from_before_the_last_batch_is_waited_for(database_url: str) -> None:
    fill(database_url)
    with psycopg.connect(database_url, application_name="old reader") as reader:
        reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        reader.execute("SELECT 1 FROM chunks")
        with changing(database_url, "switching", 1000) as repository:
            assert "old reader" in repository.session.catalog.layout.older_sessions()[0]
            reader.commit()
            assert repository.session.catalog.layout.older_sessions() == []


def test_snapshot_of_another_role_is_waited_for(databases: Databases, database_url: str) -> None:
    """The owner of the tables does not see the type of another role's session."""
    fill(database_url)
    name = f"reader_{uuid4().hex}"
    role = sql.Identifier(name)
    with psycopg.connect(databases.superuser_url(database_url), autocommit=True) as admin:
        admin.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD 'reader'").format(role))
        admin.execute(sql.SQL("GRANT SELECT ON chunks TO {}").format(role))
        other = make_conninfo(database_url, user=name, password="reader", application_name="old reader")  # noqa: S106
        try:
            with psycopg.connect(other) as reader:
                reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
                reader.execute("SELECT 1 FROM chunks")
                with changing(database_url, "switching", 1000) as repository:
                    assert "old reader" in repository.session.catalog.layout.older_sessions()[0]
        finally:
            admin.execute(sql.SQL("DROP OWNED BY {}").format(role))
            admin.execute(sql.SQL("DROP ROLE {}").format(role))


def test_a_change_that_another_command_cancels_is_no_success(
    repository: cafcat.Repository, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(database_url)
    copy_batch = LayoutChanges.copy_batch

    def copy_and_cancel(self: LayoutChanges, blocks: int) -> int:
        rows = copy_batch(self, blocks)
        with cafcat.open(database_url=database_url) as other:
            assert cancel(other.session)
        return rows

    monkeypatch.setattr(LayoutChanges, "copy_batch", copy_and_cancel)
    with pytest.raises(Conflict, match="another command has cancelled this change"):
        run(repository.session, PARTITIONS)
    assert partitions(database_url) == 0


def test_different_rows_are_found_before_the_switch(database_url: str) -> None:
    fill(database_url)
    with changing(database_url, "checking", 1000) as repository:
        execute(database_url, "UPDATE file_locations_new SET crc32c = 5 WHERE start_byte = 17")
        with pytest.raises(cafcat.errors.Corrupt, match="5000 and 5000 rows"):
            run(repository.session, PARTITIONS)
        assert cancel(repository.session)
        assert not cancel(repository.session)
    assert partitions(database_url) == 0
    assert not any(name.startswith(("file_locations_new", "layout")) for name in relations(database_url))
    execute(database_url, CHANGES[3])


def test_another_number_of_partitions_is_refused_meanwhile(database_url: str) -> None:
    fill(database_url)
    with changing(database_url, "copying") as repository:
        with pytest.raises(Conflict, match="a change to 4 partitions is unfinished"):
            run(repository.session, 8)
        assert run(repository.session, PARTITIONS, dry_run=True).unfinished == "copying"
        with pytest.raises(psycopg.Error, match="cannot be truncated"):
            execute(database_url, "TRUNCATE file_locations")


def test_objects_of_users_are_refused_by_name(database_url: str, repository: cafcat.Repository) -> None:
    execute(database_url, "CREATE VIEW mine AS SELECT file_path FROM file_locations")
    execute(database_url, "CREATE INDEX my_index ON file_locations (source_id)")
    with pytest.raises(Conflict, match="index my_index, view mine"):
        run(repository.session, PARTITIONS)
    assert repository.session.catalog.layout.change() is None


@pytest.mark.parametrize("switched", [False, True])
def test_upgrade_ends_an_unfinished_change(database_url: str, switched: bool) -> None:
    fill(database_url)
    with changing(database_url, "switching" if switched else "copying", 1000) as repository:
        if switched:
            repository.session.catalog.layout.switch()
            with pytest.raises(Conflict, match="has 4 partitions already"):
                cancel(repository.session)
    schema.upgrade(database_url)
    assert "layout_change" in relations(database_url)
    execute(database_url, "UPDATE alembic_version SET version_num = '0005'")
    with contextlib.suppress(CatalogUnavailable):  # the migration 0006 was made already
        schema.upgrade(database_url)
    assert not any(name.startswith(("file_locations_old", "layout")) for name in relations(database_url))
    assert execute(database_url, "SELECT count(*) FROM file_locations") == [(5000,)]


def test_change_by_a_role_with_another_isolation_level(database_url: str) -> None:
    database = psycopg.conninfo.conninfo_to_dict(database_url)["dbname"]
    setting = "default_transaction_isolation = 'serializable'"
    execute(database_url, f"ALTER ROLE CURRENT_USER IN DATABASE {database} SET {setting}")
    test_batch_waits_for_a_transaction_that_deletes_rows(database_url)
