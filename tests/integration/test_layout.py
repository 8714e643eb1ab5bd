"""The layout of file_locations: a plain table, or partitions; and its change while the catalog is in use."""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

import cafcat
from cafcat.catalog import schema
from cafcat.catalog.tables import STORAGE
from cafcat.errors import CatalogLocked, CatalogUnavailable, Conflict, InvalidInput
from cafcat.operations.partition.run import cancel, run
from cafcat.progress import Progress
from cafcat.settings.database import Database
from cafcat.settings.settings import Settings
from tests.worlds.kills.killed_steps import Steps
from tests.worlds.servers.services import Databases

PARTITIONS = 4
ROWS = """
INSERT INTO file_locations (caf_file_id, start_byte, end_byte, crc32c, modified_at, file_path)
SELECT 1000000 + n / 100, n, n + 1, n, CASE WHEN n % 2 = 0 THEN now() END, 'folder/' || lpad(n::text, 6, '0')
FROM generate_series({first}, {last}) AS n
"""
CONTENT = "SELECT * FROM {} ORDER BY file_path"


@pytest.fixture(params=[0, PARTITIONS])
def layout_url(databases: Databases, request: pytest.FixtureRequest) -> Iterator[str]:
    with databases.fresh(databases.template(), request.param) as url:
        yield url


@pytest.fixture
def repository(database_url: str, tmp_path: Path) -> Iterator[cafcat.Repository]:
    with cafcat.open(database_url=database_url, home=tmp_path / "home", store=str(tmp_path / "store")) as found:
        yield found


def execute(url: str, statement: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


def relations(url: str) -> set[str]:
    return {
        row[0] for row in execute(url, "SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace")
    }


def partitions(url: str) -> int:
    return int(execute(url, "SELECT count(*) FROM pg_inherits WHERE inhparent = 'file_locations'::regclass")[0][0])


def fill(url: str, first: int = 0, last: int = 4999) -> None:
    execute(url, ROWS.format(first=first, last=last))


# The layouts.


def test_init_makes_the_layout_that_is_asked_for(empty_database_url: str) -> None:
    database = Database(Settings.load(database_url=empty_database_url))
    assert database.init(PARTITIONS) == schema.HEAD_REVISION
    assert (database.partitions(), partitions(empty_database_url)) == (PARTITIONS, PARTITIONS)
    assert database.init() == schema.HEAD_REVISION
    assert database.init(2) == schema.HEAD_REVISION
    assert database.partitions() == 2
    fill(empty_database_url)
    assert database.init(2) == schema.HEAD_REVISION
    with pytest.raises(InvalidInput, match="the catalog has files, in 2 partitions") as error:
        database.init(PARTITIONS)
    assert f"cafcat db partition {PARTITIONS}" in str(error.value.hint)


@pytest.mark.parametrize("number", [-1, 1, 1025])
def test_impossible_numbers_of_partitions_are_refused(
    database_url: str, repository: cafcat.Repository, number: int
) -> None:
    with pytest.raises(InvalidInput, match="from 2 to 1024"):
        Database(Settings.load(database_url=database_url)).init(number)
    with pytest.raises(InvalidInput, match="from 2 to 1024"):
        run(repository.session, number)


def test_both_layouts_have_the_storage_parameters_of_the_tables(layout_url: str) -> None:
    rows = execute(
        layout_url,
        "SELECT relname, coalesce(reloptions, '{}') FROM pg_class "
        "WHERE relnamespace = 'public'::regnamespace AND relkind = 'r'",
    )
    found = {name: dict(option.split("=") for option in options) for name, options in rows}
    tables = [name for name in found if name.startswith("file_locations")]
    assert len(tables) in (1, PARTITIONS)
    for name, options in found.items():
        assert options == STORAGE.get("file_locations" if name in tables else name, {}), name


def test_rm_deletes_no_row_at_the_same_place_of_another_partition(layout_url: str, tmp_path: Path) -> None:
    """A ctid is unique only within a partition."""
    with cafcat.open(database_url=layout_url, home=tmp_path, store=str(tmp_path / "store")) as repository:
        with repository.writer() as writer:
            for number in range(100):
                writer.add(f"folder/{number:03}", b"x")
        removed = [f"folder/{number:03}" for number in range(0, 100, 9)]
        assert repository.rm(removed).files == len(removed)
        left = {location.path for location in repository.list()}
    assert left == {f"folder/{number:03}" for number in range(100)} - set(removed)


def test_holder_of_a_lock_on_one_partition_is_named(databases: Databases, tmp_path: Path) -> None:
    with (
        databases.fresh(databases.template(), PARTITIONS) as url,
        psycopg.connect(url, application_name="busy program") as holder,
        cafcat.open(database_url=url, home=tmp_path, store=str(tmp_path / "store"), lock_timeout=0) as repository,
    ):
        holder.execute(f"LOCK TABLE file_locations_p{PARTITIONS}_1 IN ACCESS EXCLUSIVE MODE")
        with pytest.raises(CatalogLocked, match="busy program"):
            repository.rm(["x"])


def test_many_paths_are_located_in_both_layouts(layout_url: str, tmp_path: Path) -> None:
    with cafcat.open(database_url=layout_url, home=tmp_path, store=str(tmp_path / "store")) as repository:
        with repository.writer() as writer:
            for number in range(50):
                writer.add(f"folder/{number:03}", b"x")
        asked = [f"folder/{number:03}" for number in range(40, 60)]
        for _ in range(3):  # the first look-up, the look at the layout, the prepared statement
            assert sorted(repository.session.catalog.files.locate_many(asked)) == asked[:10]


# The change.


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


def changing(url: str, phase: str, blocks: int = 1) -> cafcat.Repository:
    """Return a repository whose change to partitions has reached a phase."""
    repository = cafcat.open(database_url=url)
    layout = repository.session.catalog.layout
    layout.begin(PARTITIONS)
    while phase != "copying" and layout.copy_batch(blocks):
        pass
    if phase == "switching":
        layout.check()
    return repository


CHANGES = [
    "INSERT INTO file_locations (caf_file_id, start_byte, end_byte, crc32c, file_path) VALUES (7, 1, 2, 3, 'new')",
    "UPDATE file_locations SET source_id = 5 WHERE start_byte % 3 = 0",
    "UPDATE file_locations SET file_path = 'moved/' || start_byte WHERE start_byte % 5 = 0",
    "DELETE FROM file_locations WHERE start_byte % 7 = 0",
    "INSERT INTO file_locations (caf_file_id, start_byte, end_byte, crc32c, file_path) "
    "SELECT 9, n, n, n, CASE WHEN n % 2 = 0 THEN 'folder/' || lpad(n::text, 6, '0') ELSE 'z/' || n END "
    "FROM generate_series(1, 99) AS n ON CONFLICT (file_path) DO UPDATE SET crc32c = excluded.crc32c",
]


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


# Kills.


def killed(database_url: str, number: int, target: int) -> int:
    """Run a change in a child process that kills itself at a step. Return the exit code; 0 without such a step."""
    child = os.fork()
    if child == 0:
        try:
            with cafcat.open(database_url=database_url) as repository:
                steps = Steps(number, after=True)
                steps.count_statements()
                run(repository.session, target)
            os._exit(0)
        except BaseException:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.parametrize("step", [29, pytest.param(1, marks=pytest.mark.slow)])
def test_killed_change_continues(database_url: str, step: int) -> None:
    """Each change is killed at one step, and then completed. Writers go on after each kill."""
    fill(database_url, 0, 999)
    codes = []
    for number in range(3, 1000, step):
        target = PARTITIONS if partitions(database_url) == 0 else 0
        code = killed(database_url, number, target)
        codes.append(code)
        execute(database_url, f"DELETE FROM file_locations WHERE start_byte = {number}")
        fill(database_url, 1000 + number, 1000 + number)
        rows = execute(database_url, CONTENT.format("file_locations"))
        with cafcat.open(database_url=database_url) as repository:
            run(repository.session, target)
        assert execute(database_url, CONTENT.format("file_locations")) == rows
        assert partitions(database_url) == target
        assert "layout_change" not in relations(database_url)
        if code == 0:
            break
    assert codes[-1] == 0
    assert codes.count(-signal.SIGKILL) == len(codes) - 1 >= 2


# Load.


@contextmanager
def repeating(function: Callable[[int], object]) -> Iterator[list[BaseException]]:
    """Call a function with 0, 1, 2 ... in a thread meanwhile. Yield a list that gets the error that ends it."""
    errors: list[BaseException] = []
    ending = threading.Event()

    def work() -> None:
        number = 0
        try:
            while not ending.is_set():
                function(number)
                number += 1
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield errors
    finally:
        ending.set()
        thread.join()


def test_readers_and_writers_go_on_while_the_layout_changes(database_url: str, tmp_path: Path) -> None:
    def opened() -> cafcat.Repository:
        return cafcat.open(database_url=database_url, home=tmp_path / "home", store=str(tmp_path / "store"))

    with opened() as writer, opened() as reader, opened() as changer:
        with writer.writer() as files:
            for number in range(200):
                files.add(f"kept/{number:03}", b"kept")
        fill(database_url, 0, 20_000)
        expected = dict.fromkeys((f"kept/{number:03}" for number in range(200)), b"kept")

        def write(number: int) -> None:
            name, content = f"written/{number % 7}/{number}", str(number).encode()
            with writer.writer() as files:
                files.add(name, content)
                files.add("replaced", content)
            expected.update({name: content, "replaced": content})
            if number % 3 == 0:
                writer.rm([name])
                writer.undelete([name])
            if number % 5 == 0:
                writer.rm([name])
                del expected[name]

        def read(number: int) -> None:
            assert reader.read(f"kept/{number % 200:03}") == b"kept"
            page = reader.session.catalog.files.page("kept/")
            assert len(page) == 200
            assert len(reader.session.catalog.files.locate_many(list(expected)[:200])) == 200

        with repeating(write) as failed_writes, repeating(read) as failed_reads:
            for target in (PARTITIONS, 0):
                run(changer.session, target)
                time.sleep(0.1)
        assert failed_writes == failed_reads == []
        rows = execute(database_url, "SELECT file_path FROM file_locations WHERE file_path NOT LIKE 'folder/%'")
        assert sorted(row[0] for row in rows) == sorted(expected)
        assert all(reader.read(path) == content for path, content in expected.items())
        assert changer.session.catalog.reports.findings() == ["20001 files that point to no committed chunk"]


class _Stopping(Progress):
    def checkpoint(self) -> None:
        raise KeyboardInterrupt


def test_interrupted_change_is_continued(database_url: str) -> None:
    fill(database_url)
    with cafcat.open(database_url=database_url) as repository:
        usual = repository.session.progress
        repository.session.progress = _Stopping()
        with pytest.raises(KeyboardInterrupt):
            run(repository.session, PARTITIONS)
        repository.session.progress = usual
        assert run(repository.session, PARTITIONS).unfinished == "copying"


@pytest.mark.parametrize("layouts", [(0, PARTITIONS), (PARTITIONS, 0)])
def test_restore_and_rebuild_fill_the_other_layout(
    databases: Databases, tmp_path: Path, layouts: tuple[int, int]
) -> None:
    store = str(tmp_path / "store")
    columns = "SELECT file_path, start_byte, end_byte, crc32c, modified_at FROM file_locations ORDER BY 1"
    with databases.fresh(databases.template(), layouts[0]) as url:
        with cafcat.open(database_url=url, home=tmp_path / "home", store=store) as repository:
            for text in (b"first", b"second"):
                with repository.writer() as writer:
                    for number in range(40):
                        writer.add(f"folder/{number % 7}/{number}", text)
            repository.rm(folders=["folder/3"])
            repository.backup()
        rows = execute(url, columns)
        for verb in ("restore", "rebuild"):
            with (
                databases.fresh(databases.template(), layouts[1]) as other,
                cafcat.open(database_url=other, home=tmp_path / verb, store=store) as repository,
            ):
                getattr(repository, verb)()
                assert execute(other, columns) == rows
                assert partitions(other) == layouts[1]
                assert not any(repository.compare(url).differences.values())
