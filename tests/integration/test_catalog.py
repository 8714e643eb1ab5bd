"""Transactions of the catalog, on both servers: commits of chunks, conflicts, states, listings."""

import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator, Sequence

import psycopg
import psycopg.sql
import pytest

from cafcat.catalog.catalog import Catalog
from cafcat.catalog.chunks.commit import ChunkCommit
from cafcat.catalog.database_url import DatabaseUrl
from cafcat.catalog.files.mapping import Mapping
from cafcat.catalog.files.scope import FindFilter
from cafcat.errors import CafcatError, CatalogUnavailable, Conflict, InvalidInput, NotFound
from cafcat.model import ChunkState, ChunkSummary, Entry, Folder, OnConflict, SourceFile
from cafcat.support.quantities import to_microseconds


@pytest.fixture(params=["database_url", "database_url_15"])
def url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(request.param))


@pytest.fixture
def catalog(url: str) -> Iterator[Catalog]:
    catalog = Catalog(DatabaseUrl(url))
    yield catalog
    catalog.close()


def begin(catalog: Catalog) -> tuple[int, uuid.UUID]:
    name = uuid.uuid4()
    run = catalog.runs.begin_run(sources=["test"], options={}, version="0")
    catalog.stores.register("file:///nowhere")
    chunk_id = catalog.chunks.begin_chunk(
        uuid=name,
        run_id=run,
        archive_format="caf",
        store_url="file:///nowhere",
        object_key=f"{name}.caf",
        owner="test",
        lease_seconds=60,
    )
    return chunk_id, name


def filled(chunk_id: int, paths: Sequence[str], size: int) -> tuple[Mapping, ChunkSummary]:
    mapping = Mapping(chunk_id)
    for number, path in enumerate(paths):
        mapping.add(Entry(path, number * size, (number + 1) * size, number, 1_700_000_000_000_000_000 + number))
    data = len(paths) * size
    return mapping, ChunkSummary(data + 104, data, data + 100, len(paths), data, 2**64 - 1)


def commit(
    catalog: Catalog,
    paths: Sequence[str],
    *,
    size: int = 10,
    on_conflict: OnConflict = OnConflict.REPLACE,
    all_new: bool = True,
) -> tuple[ChunkCommit, uuid.UUID]:
    chunk_id, name = begin(catalog)
    mapping, summary = filled(chunk_id, paths, size)
    with mapping:
        return catalog.commit.commit_chunk(chunk_id, summary, mapping, on_conflict, all_new=all_new), name


def check_counters(catalog: Catalog) -> None:
    assert catalog.reports.findings() == []


def test_a_committed_chunk_is_found_file_by_file(catalog: Catalog) -> None:
    done, name = commit(catalog, ["a", "b/c", "b/d"])
    assert done[:3] == (3, 0, 0)
    location = catalog.files.locate("b/c")
    assert (location.start_byte, location.end_byte, location.crc32c, location.chunk) == (10, 20, 1, name)
    assert location.object_key == f"{name}.caf"
    with pytest.raises(NotFound):
        catalog.files.locate("b")
    check_counters(catalog)


def test_paths_in_any_order_are_committed(catalog: Catalog) -> None:
    commit(catalog, ["z", "a", "m"])
    assert [place.path for place in catalog.files.page("")] == ["a", "m", "z"]


def test_replacing_retires_the_old_location_and_moves_the_counters(catalog: Catalog) -> None:
    _, first = commit(catalog, ["a", "b", "c"])
    done, second = commit(catalog, ["b", "d"], size=7, all_new=False)
    assert done[:3] == (1, 1, 0)
    assert catalog.files.locate("b").chunk == second
    [old] = catalog.reports.history("b")
    assert (old.location.chunk, old.location.start_byte, old.reason) == (first, 10, "replaced")
    chunk = catalog.chunks.chunk(str(first))
    assert (chunk.file_count, chunk.live_file_count, chunk.live_bytes) == (3, 2, 20)
    check_counters(catalog)


def test_fast_commit_detects_existing_paths(catalog: Catalog) -> None:
    commit(catalog, ["a", "b"])
    done, _ = commit(catalog, ["b", "c"], all_new=True)
    assert done[:3] == (1, 1, 0)
    check_counters(catalog)


def test_skip_keeps_existing_files_and_retires_the_packed_ones(catalog: Catalog) -> None:
    _, first = commit(catalog, ["a", "b"])
    done, second = commit(catalog, ["b", "c"], size=3, on_conflict=OnConflict.SKIP)
    assert done[:3] == (1, 0, 1)
    assert catalog.files.locate("b").chunk == first
    chunk = catalog.chunks.chunk(str(second))
    assert (chunk.file_count, chunk.live_file_count, chunk.live_bytes) == (2, 1, 3)
    assert [old.reason for old in catalog.reports.history("b")] == ["skipped"]
    check_counters(catalog)


def test_fail_commits_nothing(catalog: Catalog) -> None:
    commit(catalog, ["b"])
    chunk_id, name = begin(catalog)
    mapping, summary = filled(chunk_id, ["a", "b"], 5)
    with mapping, pytest.raises(Conflict, match="meanwhile") as raised:
        catalog.commit.commit_chunk(chunk_id, summary, mapping, OnConflict.FAIL, all_new=True)
    assert raised.value.path == "b"
    assert [place.path for place in catalog.files.page("")] == ["b"]
    assert catalog.chunks.chunk(str(name)).state is ChunkState.WRITING
    check_counters(catalog)


def test_a_chunk_is_committed_or_abandoned_once(catalog: Catalog) -> None:
    chunk_id, _ = begin(catalog)
    mapping, summary = filled(chunk_id, ["a"], 5)
    catalog.chunks.abandon_chunk(chunk_id, "because")
    with mapping, pytest.raises(Conflict, match="abandoned"):
        catalog.commit.commit_chunk(chunk_id, summary, mapping, OnConflict.REPLACE, all_new=True)
    with pytest.raises(Conflict):
        catalog.chunks.abandon_chunk(chunk_id, "again")
    with pytest.raises(Conflict):
        catalog.chunks.renew_lease(chunk_id, "test", 60)
    assert catalog.files.page("") == []


def test_a_row_that_breaks_a_rule_commits_nothing(catalog: Catalog) -> None:
    chunk_id, name = begin(catalog)
    mapping, summary = filled(chunk_id, ["a"], 5)
    mapping.add(Entry("b", 9, 3, 0, None))
    with mapping, pytest.raises(CafcatError, match="span"):
        catalog.commit.commit_chunk(chunk_id, summary, mapping, OnConflict.REPLACE, all_new=True)
    assert catalog.files.page("") == []
    assert catalog.chunks.chunk(str(name)).state is ChunkState.WRITING


CUT = """
    SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'
"""


@pytest.mark.parametrize("cuts", [1, 3])
def test_a_connection_cut_during_the_commit(
    catalog: Catalog, url: str, monkeypatch: pytest.MonkeyPatch, cuts: int
) -> None:
    """The commit is tried again. If every attempt is cut, nothing is committed, and the chunk can be adopted."""
    chunk_id, name = begin(catalog)
    mapping, summary = filled(chunk_id, ["a"], 5)
    blocks = mapping.blocks
    left = cuts

    def cut_then_blocks() -> Iterator[bytes]:
        nonlocal left
        if left:
            left -= 1
            with psycopg.connect(url, autocommit=True) as other:
                other.execute(CUT)
        yield from blocks()

    monkeypatch.setattr(mapping, "blocks", cut_then_blocks)
    with mapping:
        if cuts == 1:
            done = catalog.commit.commit_chunk(chunk_id, summary, mapping, OnConflict.REPLACE, all_new=True)
            assert done[:3] == (1, 0, 0)
        else:
            with pytest.raises(CatalogUnavailable):
                catalog.commit.commit_chunk(chunk_id, summary, mapping, OnConflict.REPLACE, all_new=True)
    state = ChunkState.COMMITTED if cuts == 1 else ChunkState.WRITING
    assert catalog.chunks.chunk(str(name)).state is state
    assert len(catalog.files.page("")) == (cuts == 1)


def test_commit_with_a_lost_answer_is_checked(catalog: Catalog, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server commits, then the connection ends before the client gets the answer."""
    commit(catalog, ["b"])
    chunk_id, _ = begin(catalog)
    mapping, summary = filled(chunk_id, ["a", "b"], 5)
    real = catalog.commit._commit

    def committed_but_cut(*arguments: object) -> ChunkCommit:
        real(*arguments)  # type: ignore[arg-type]
        with psycopg.connect(url, autocommit=True) as other:
            other.execute(CUT)
        raise CatalogUnavailable("the connection was lost")

    monkeypatch.setattr(catalog.commit, "_commit", committed_but_cut)
    with mapping:
        for _ in range(20):  # the notice of the disconnect takes a moment to arrive
            try:
                done = catalog.commit.commit_chunk(chunk_id, summary, mapping, OnConflict.REPLACE, all_new=False)
                break
            except Conflict:
                pytest.fail("it was committed twice")
            except CatalogUnavailable:
                monkeypatch.setattr(
                    catalog.commit, "_commit", lambda *_: (_ for _ in ()).throw(CatalogUnavailable("still"))
                )
    assert done[:3] == (1, 1, 0)
    check_counters(catalog)


def wait_until_alone(url: str) -> None:
    """End all other connections to the database, and wait until the server has closed them."""
    with psycopg.connect(url, autocommit=True) as other:
        while other.execute(CUT).fetchall():
            time.sleep(0.01)


def test_a_server_that_was_restarted_in_between_is_connected_again(catalog: Catalog, url: str) -> None:
    commit(catalog, ["a"])
    wait_until_alone(url)
    assert catalog.files.locate("a").path == "a"
    wait_until_alone(url)
    commit(catalog, ["b"])


INTERRUPTED = """
import sys
from cafcat.catalog.connection import Connection
from cafcat.catalog.database_url import DatabaseUrl

with Connection(DatabaseUrl(sys.argv[1])).transaction() as connection:
    connection.pgconn.send_query(b"SELECT pg_sleep(0.1)")
    raise KeyboardInterrupt
"""
"""A user interrupts a query that the server has not answered: the rollback fails."""


def test_a_database_without_a_free_connection(catalog: Catalog, url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        limit = f'ALTER DATABASE "{connection.info.dbname}" CONNECTION LIMIT'
        connection.execute(f"{limit} 0".encode())
        try:
            with pytest.raises(CatalogUnavailable, match="too many connections for") as raised:
                catalog.runs.runs(1)
        finally:
            connection.execute(f"{limit} -1".encode())
    assert "fewer workers (-j)" in str(raised.value.hint)


def test_an_interrupted_query_prints_no_log_of_psycopg(url: str) -> None:
    done = subprocess.run([sys.executable, "-c", INTERRUPTED, url], capture_output=True, text=True)
    assert done.stderr.endswith("KeyboardInterrupt\n")
    assert "ignored" not in done.stderr.partition("Traceback")[0]


def test_only_look_ups_by_path_are_prepared_on_the_server(catalog: Catalog) -> None:
    """Other plans depend on the size of a table: a plan for a small table must not be used when it has grown."""
    commit(catalog, ["a"])
    for _ in range(12):
        catalog.files.locate("a")
        catalog.chunks.find_existing([SourceFile("a", 1, 1, "")], [None])
    with catalog._connection.statement() as connection:
        prepared = connection.execute("SELECT statement FROM pg_prepared_statements").fetchall()
    assert len(prepared) == 1
    assert "file_path = (SELECT $1::text)" in prepared[0][0]


def test_settings_of_the_role_do_not_break_a_commit(catalog: Catalog, url: str) -> None:
    commit(catalog, ["f00001"])
    chunk_id, _ = begin(catalog)
    mapping, summary = filled(chunk_id, [f"f{number:05}" for number in range(20_000)], 5)
    with psycopg.connect(url, autocommit=True) as other:
        name = psycopg.sql.Identifier(other.info.dbname)
        for setting in ("default_transaction_isolation = 'repeatable read'", "statement_timeout = '50ms'"):
            other.execute(psycopg.sql.SQL(f"ALTER DATABASE {{}} SET {setting}").format(name))
    wait_until_alone(url)
    with mapping:
        done = catalog.commit.commit_chunk(chunk_id, summary, mapping, OnConflict.REPLACE, all_new=False)
    assert done[:3] == (19_999, 1, 0)


def test_writers_of_equal_paths_do_not_deadlock_and_totals_are_exact(url: str) -> None:
    paths = [f"f{number:04}" for number in range(400)]
    failures: list[BaseException] = []

    def write(offset: int) -> None:
        catalog = Catalog(DatabaseUrl(url))
        try:
            for turn in range(3):
                mine = paths[(offset + turn) * 37 % 200 :]
                commit(catalog, mine, size=offset + 1, all_new=turn % 2 == 0)
        except BaseException as error:
            failures.append(error)
        finally:
            catalog.close()

    threads = [threading.Thread(target=write, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    catalog = Catalog(DatabaseUrl(url))
    check_counters(catalog)
    assert catalog.reports.stats().files == len(list(catalog.files.page("", limit=10_000)))
    catalog.close()


@pytest.mark.parametrize("found", ["a", "b/\uffff", "b/\U0001f600", "z"])
def test_find_existing_finds_a_single_path_at_any_position(catalog: Catalog, found: str) -> None:
    """The path may be the first or the last in byte order."""
    commit(catalog, [found])
    time_of_found = 1_700_000_000_000_000_000
    batch = [SourceFile(path, 10, time_of_found, "") for path in ("z", "b/\U0001f600", "a", "b/\uffff", "b")]
    known = catalog.chunks.find_existing(batch, [None] * len(batch))
    assert {batch[n].path for n in known.unchanged} == {found}
    others = [file for file in batch if file.path != found]
    assert catalog.chunks.find_existing(others, [None] * len(others)) == (frozenset(), frozenset(), {})


def test_find_existing_distinguishes_unchanged_changed_and_new_files(catalog: Catalog) -> None:
    commit(catalog, ["a", "b", "c"])
    time_of_a = 1_700_000_000_000_000_000
    batch = [
        SourceFile("a", 10, time_of_a + 999, ""),  # the same microsecond
        SourceFile("b", 11, time_of_a + 1, ""),
        SourceFile("new", 1, 0, ""),
        SourceFile("c", 10, time_of_a + 5_000_000, ""),
    ]
    known = catalog.chunks.find_existing(batch, [None] * len(batch))
    assert known.unchanged == {0}
    assert known.changed == {1, 3}


def test_times_outside_the_calendar_are_limited(catalog: Catalog) -> None:
    chunk_id, _ = begin(catalog)
    far = [-(2**63), -1, 2**63 - 1]
    summary = ChunkSummary(100, 0, 90, 3, 0, 0)
    with Mapping(chunk_id) as mapping:
        for number, time_ns in enumerate(far):
            mapping.add(Entry(f"f{number}", 0, 0, 0, time_ns))
        catalog.commit.commit_chunk(chunk_id, summary, mapping, OnConflict.REPLACE, all_new=True)
    found = [place.modified_ns for place in catalog.files.page("")]
    assert found == [to_microseconds(time_ns) * 1000 for time_ns in far]


LEVELS = ["a", "b", "b!", "b/1", "b/2/x", "b/2/y", "b/2/z/deep", "b0", "c/only", "ä/ö", "日/本"]


def test_one_level_of_a_folder(catalog: Catalog) -> None:
    commit(catalog, LEVELS)

    def level(folder: str, limit: int) -> list[str]:
        found: list[str] = []
        after = None
        while page := catalog.files.folder_page(folder, after=after, limit=limit):
            found += [item.path for item in page]
            after = page[-1]
        return found

    for limit in (1, 2, 100):
        assert level("", limit) == ["a", "b", "b!", "b/", "b0", "c/", "ä/", "日/"]
        assert level("b/", limit) == ["b/1", "b/2/"]
        assert level("b/2/", limit) == ["b/2/x", "b/2/y", "b/2/z/"]
        assert level("nothing/", limit) == []
    assert catalog.files.folder_page("c/")[0].path == "c/only"
    assert catalog.files.folder_page("")[3] == Folder("b/")


def test_pages_go_on_where_the_last_one_ended(catalog: Catalog) -> None:
    paths = [*sorted(f"d/{number:03}" for number in range(25)), "e"]
    commit(catalog, paths)
    found: list[str] = []
    after = None
    while page := catalog.files.page("d/", after=after, limit=10):
        found += [place.path for place in page]
        after = page[-1].path
    assert found == paths[:-1]
    assert catalog.files.totals("d/") == (25, 250)


def test_find_by_name_size_and_time(catalog: Catalog) -> None:
    commit(catalog, ["d/a.jpg", "d/b.JPG", "d/jpg", "x.jpg"])
    by_name = catalog.files.page("d/", where=FindFilter(name_regex=r"(^|/)[^/]*\.jpg$"))
    assert [place.path for place in by_name] == ["d/a.jpg"]
    newer = catalog.files.page("", where=FindFilter(newer_ns=1_700_000_000_000_000_000))
    assert newer == []  # times are truncated to microseconds
    assert len(catalog.files.page("", where=FindFilter(older_ns=1_700_000_000_000_001_000))) == 4
    assert catalog.files.page("", where=FindFilter(min_size=11)) == []
    assert len(catalog.files.page("", where=FindFilter(max_size=10))) == 4


def test_pages_of_paths_have_the_paths_of_all_files(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    commit(catalog, ["d", *(f"d/{number}" for number in range(7)), "d/4\nb", "d/6\n", "d/\\\\N", "d/\t\x01é", "e"])
    monkeypatch.setattr("cafcat.catalog.files.lookup.PATHS", 3)
    monkeypatch.setattr("cafcat.catalog.files.lookup._PATHS_BYTES", 12)
    for prefix, where in (
        ("", None),
        ("d", None),
        ("d/", FindFilter(min_size=10)),
        ("d", FindFilter(min_size=11)),
        ("e", None),
        ("f", None),
    ):
        pages = list(catalog.files.path_pages(prefix, where))
        expected = [found.path for page in catalog.files.pages(prefix, where) for found in page]
        assert [path for page in pages for path in page] == expected
        assert all(1 <= len(page) <= 3 for page in pages[:2])
        assert all(len(page) <= 4 for page in pages)


def test_a_chunk_is_named_by_the_beginning_of_its_uuid(catalog: Catalog) -> None:
    _, name = commit(catalog, ["a"])
    assert catalog.chunks.chunk(str(name)[:8]).uuid == name == catalog.chunks.chunk(name).uuid
    with pytest.raises(NotFound):
        catalog.chunks.chunk("00000000")
    with pytest.raises(InvalidInput):
        catalog.chunks.chunk(str(name)[:7])


def test_a_query_of_the_users_gives_columns_and_rows(catalog: Catalog) -> None:
    commit(catalog, ["a"])
    columns, rows = catalog.reports.query(
        "-- a comment\nSELECT file_path, end_byte FROM file_locations; -- another"
    )
    assert (list(columns), list(rows)) == (["file_path", "end_byte"], [("a", 10)])
    with pytest.raises(InvalidInput, match="it begins with 'SELEC'"):
        catalog.reports.query("SELEC 1")
    with pytest.raises(InvalidInput, match="syntax"):
        catalog.reports.query("")
    columns, rows = catalog.reports.query("SELECT 1 AS one WHERE false")
    assert (list(columns), list(rows)) == (["one"], [])
    with pytest.raises(InvalidInput, match="division by zero"):
        list(catalog.reports.query("SELECT 1 / (3 - n) FROM generate_series(1, 5) AS n")[1])
    columns, rows = catalog.reports.query("SELECT 1.50, 'infinity'::timestamptz, ARRAY[1], true, 7, NULL")
    assert list(rows) == [("1.50", "infinity", "{1}", True, 7, None)]
    assert catalog.files.locate("a")
