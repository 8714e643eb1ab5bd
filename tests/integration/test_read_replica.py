"""Look-ups on a real streaming standby: which server answers, and what is found."""

import asyncio
import contextlib
import os
import pickle
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

import cafcat
from cafcat.catalog import schema
from cafcat.errors import InvalidInput, NotFound
from cafcat.model import Folder
from tests.e2e.conftest import Cafcat
from tests.worlds.file_server import serving
from tests.worlds.servers.replica import Pair, server_pair
from tests.worlds.waiting import wait_until


@pytest.fixture(scope="module")
def shared_pair() -> Iterator[Pair]:
    with server_pair() as pair:
        yield pair


@pytest.fixture
def pair(shared_pair: Pair) -> Iterator[Pair]:
    """The servers, which every test leaves in order."""
    shared_pair.wait_for_replay()
    yield shared_pair
    shared_pair.resume()


@pytest.fixture
def own_pair() -> Iterator[Pair]:
    """Servers that the test may destroy."""
    with server_pair() as pair:
        yield pair


class Readers:
    """Opens repositories with a read replica, and collects their warnings."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.warnings: list[str] = []
        self._cleanup = contextlib.ExitStack()

    def open(self, pair: Pair, **overrides: Any) -> cafcat.Repository:
        given = {"database_url": pair.database_url, "read_database_url": pair.read_url} | overrides
        given |= {"home": self.folder, "store": self.folder / "store"}
        return self._cleanup.enter_context(cafcat.open(warn=self.warnings.append, **given))

    def close(self) -> None:
        self._cleanup.close()


@pytest.fixture
def readers(tmp_path: Path) -> Iterator[Readers]:
    with contextlib.closing(Readers(tmp_path)) as readers:
        yield readers


def write(repository: cafcat.Repository, path: str, content: bytes = b"content") -> None:
    with repository.writer(on_conflict="replace") as writer:
        writer.add(path, content)


def answers_from(repository: cafcat.Repository) -> str:
    """Return the kind of server that a look-up would use now."""
    standby = repository.session.catalog._standby
    assert standby is not None
    return "standby" if standby.is_usable() else "primary"


def wait_for_standby(repository: cafcat.Repository) -> None:
    wait_until(lambda: answers_from(repository) == "standby")


def test_every_way_to_read_is_answered_by_the_standby(pair: Pair, readers: Readers) -> None:
    write(readers.open(pair), "ways/folder/file")
    pair.wait_for_replay()
    reader = readers.open(pair)
    wait_for_standby(reader)
    standby = reader.session.catalog._standby
    assert standby is not None
    with reader.session.catalog._connection.statement(read_only=True) as connection:
        scans = f"SELECT pg_stat_clear_snapshot(), {SCANS}"
        before = connection.execute(scans.encode()).fetchall()
        assert reader.read("ways/folder/file") == b"content"
        assert [found.path for found in reader.list("ways")] == ["ways/folder/file"]
        assert [found.path for found in reader.list_folder("ways/")] == ["ways/folder/"]
        assert [found.path for found in reader.find("ways", name="f*")] == ["ways/folder/file"]
        assert dict(reader.read_many(["ways/folder/file"])) == {"ways/folder/file": b"content"}
        assert list(reader.walk("ways")) == [("ways", ["folder"], []), ("ways/folder", [], ["file"])]
        connection.execute("SELECT pg_stat_force_next_flush()")
        assert connection.execute(scans.encode()).fetchall() == before
    assert readers.warnings == []


SCANS = (
    "(SELECT sum(coalesce(idx_scan, 0) + coalesce(seq_scan, 0)) FROM pg_stat_xact_all_tables "
    "WHERE relname = 'file_locations')"
)


def test_a_process_reads_what_it_has_written(pair: Pair, readers: Readers) -> None:
    repository = readers.open(pair)
    write(repository, "own", b"old")
    pair.wait_for_replay()
    wait_for_standby(repository)
    pair.pause()
    write(repository, "own", b"new")
    assert repository.read("own") == b"new"
    assert [list(page) for page in repository.find_paths("own", max_size=3)] == [["own"]]
    assert answers_from(repository) == "primary"
    pair.resume()
    wait_for_standby(repository)
    assert repository.read("own") == b"new"
    assert readers.warnings == []


def test_another_repository_of_the_process_reads_what_was_written(pair: Pair, readers: Readers) -> None:
    reader = readers.open(pair)
    write(readers.open(pair), "twice", b"old")
    pair.wait_for_replay()
    wait_for_standby(reader)
    pair.pause()
    write(readers.open(pair), "twice", b"new")
    assert reader.read("twice") == b"new"


def in_another_process(function: Callable[[], object]) -> None:
    """Run a function in a forked process."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            function()
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0


def test_a_reader_may_be_behind_other_processes_unless_it_asks_for_fresh_content(
    pair: Pair, readers: Readers
) -> None:
    reader = readers.open(pair)
    write(reader, "behind", b"old")
    pair.wait_for_replay()
    wait_for_standby(reader)
    pair.pause()
    in_another_process(lambda: write(readers.open(pair), "behind", b"new"))
    assert reader.read("behind") == b"old", "the standby is less than a minute behind"
    assert reader.fresh().read("behind") == b"new"
    assert [found.size_bytes for found in reader.fresh().list("behind")] == [3]
    with pickle.loads(pickle.dumps(reader.fresh())) as copied:  # noqa: S301
        assert copied.read("behind") == b"new"


def test_a_file_that_was_committed_a_moment_ago_is_found(pair: Pair, readers: Readers) -> None:
    reader = readers.open(pair)
    write(reader, "first/file")
    pair.wait_for_replay()
    wait_for_standby(reader)
    pair.pause()
    in_another_process(lambda: write(readers.open(pair), "moment/file"))
    assert reader.read("moment/file") == b"content"
    assert "moment/file" in reader
    assert set(reader.locate_many(["first/file", "moment/file"])) == {"first/file", "moment/file"}
    assert not any(isinstance(found, NotFound) for found in reader.locate_many(["moment/file"]).values())
    files = reader.session.catalog.reading.files
    assert files.folders_among(["first", "moment"]) == {"first", "moment"}
    assert files.entry("moment") == Folder("moment/")
    assert files.totals("moment") == (1, 7)
    assert [found.path for found in reader.list("moment")] == ["moment/file"]
    assert [found.path for found in reader.list_folder("moment/")] == ["moment/file"]
    with pytest.raises(NotFound):
        reader.read("never")
    assert answers_from(reader) == "standby"


def test_a_standby_that_is_too_far_behind_is_not_used(pair: Pair, readers: Readers) -> None:
    reader = readers.open(pair, max_staleness=1)
    write(reader, "stale", b"old")
    pair.wait_for_replay()
    wait_for_standby(reader)
    pair.pause()
    in_another_process(lambda: write(readers.open(pair), "stale", b"new"))
    wait_until(lambda: answers_from(reader) == "primary")
    assert [reader.read("stale") for _ in range(3)] == [b"new"] * 3
    assert len(readers.warnings) == 1
    assert "at most 1 s behind" in readers.warnings[0]
    pair.resume()
    wait_for_standby(reader)


@pytest.mark.slow
def test_the_standby_of_an_idle_primary_stays_in_use(pair: Pair, readers: Readers) -> None:
    """The last commit becomes older than the limit, but nothing is missing."""
    reader = readers.open(pair, max_staleness=1)
    write(reader, "idle")
    pair.wait_for_replay()
    wait_for_standby(reader)
    for _ in range(25):
        time.sleep(0.1)
        assert answers_from(reader) == "standby"
    assert readers.warnings == []


@pytest.mark.slow
def test_the_start_of_a_new_log_file_is_nothing_to_wait_for(pair: Pair, readers: Readers) -> None:
    reader = readers.open(pair, max_staleness=1)
    write(reader, "switch")
    pair.wait_for_replay()
    wait_for_standby(reader)
    pair.primary.execute("SELECT pg_switch_wal()")
    for _ in range(25):
        time.sleep(0.1)
        assert answers_from(reader) == "standby"


def test_a_new_process_does_not_trust_a_standby_that_is_behind(pair: Pair, readers: Readers) -> None:
    write(readers.open(pair), "new", b"old")
    pair.wait_for_replay()
    pair.pause()
    write(readers.open(pair), "new", b"new")
    time.sleep(1.1)
    cafcat_reader = readers.open(pair, max_staleness=1)
    assert cafcat_reader.read("new") == b"new"
    assert len(readers.warnings) == 1


def test_a_query_that_the_replay_cancels_is_run_on_the_primary(pair: Pair, readers: Readers) -> None:
    """The standby replays a lock of the primary on the table that a reader uses."""
    reader = readers.open(pair)
    write(reader, "conflict/file")
    pair.wait_for_replay()
    wait_for_standby(reader)
    standby = reader.session.catalog._standby
    assert standby is not None
    files, seen = standby.connection, []

    def hold(lookup: Any) -> object:
        if lookup._connection is not files:
            seen.append("primary")
            return True
        seen.append("standby")
        with files.transaction(read_only=True) as connection:
            connection.execute("SELECT count(*) FROM file_locations")
            with psycopg.connect(pair.primary.url(dbname="catalog"), autocommit=True) as other:
                other.execute("ALTER TABLE file_locations ALTER file_path SET STATISTICS 100")
                other.execute("BEGIN; LOCK TABLE file_locations; SELECT pg_current_xact_id(); COMMIT")
            connection.execute("SELECT pg_sleep(30)")
        return True

    lookups = reader.session.catalog.reading.files
    assert lookups._ask(hold) is True  # type: ignore[attr-defined]
    assert seen == ["standby", "primary"]
    assert readers.warnings == []
    pair.wait_for_replay()
    wait_for_standby(reader)


def test_a_standby_that_is_killed_is_not_used(own_pair: Pair, readers: Readers) -> None:
    reader = readers.open(own_pair)
    write(reader, "killed")
    own_pair.wait_for_replay()
    wait_for_standby(reader)
    state = reader.session.catalog.reading.files.state()
    own_pair.standby.kill()
    # A thread of another test may have written meanwhile: then this process reads the primary for a moment.
    wait_until(lambda: reader.read("killed") == b"content" and bool(readers.warnings))
    assert [reader.read("killed") for _ in range(3)] == [b"content"] * 3
    assert len(readers.warnings) == 1
    assert "read replica is not used" in readers.warnings[0]
    assert reader.session.catalog.reading.files.state() != state, "caches of the standby's content are dropped"


@pytest.mark.slow
def test_a_standby_that_is_frozen_is_not_used(own_pair: Pair, readers: Readers) -> None:
    reader = readers.open(
        own_pair, read_database_url=own_pair.read_url + "&tcp_user_timeout=1000&connect_timeout=2"
    )
    write(reader, "frozen")
    own_pair.wait_for_replay()
    wait_for_standby(reader)
    own_pair.standby.freeze()
    assert [reader.read("frozen") for _ in range(3)] == [b"content"] * 3
    assert len(readers.warnings) == 1
    assert "silent" in readers.warnings[0]


@pytest.mark.slow
def test_reads_go_on_for_a_while_when_the_primary_is_killed(own_pair: Pair, readers: Readers) -> None:
    reader = readers.open(own_pair, max_staleness=3)
    write(reader, "orphan")
    own_pair.wait_for_replay()
    wait_for_standby(reader)
    own_pair.primary.kill()
    assert reader.read("orphan") == b"content"
    wait_until(lambda: answers_from(reader) == "primary")
    with pytest.raises(cafcat.CafcatError, match="no answer from the database"):
        reader.read("orphan")


@pytest.mark.slow
def test_doors_read_the_standby_alone(own_pair: Pair, readers: Readers, tmp_path: Path) -> None:
    """Without the primary, everything that only reads goes on, as long as the limit allows."""
    fsspec = pytest.importorskip("fsspec")
    pytest.importorskip("uvicorn")
    writer = readers.open(own_pair)
    write(writer, "doors/file")
    own_pair.wait_for_replay()
    urls = {"CAFCAT_DATABASE_URL": own_pair.database_url, "CAFCAT_READ_DATABASE_URL": own_pair.read_url}
    reader = readers.open(own_pair)
    options = {"database_url": own_pair.database_url, "read_database_url": own_pair.read_url}
    files = fsspec.filesystem("cafcat", home=str(tmp_path), skip_instance_cache=True, **options)
    with serving(Cafcat(tmp_path, None, urls), tmp_path / "log") as server:
        wait_for_standby(reader)
        assert files.cat("doors/file") == server.request("/files/doors/file").body == b"content"
        own_pair.primary.kill()
        assert server.request("/files/doors/file").body == b"content"
        assert b"file" in server.request("/files/doors/").body
        assert server.request("/files/doors/none").status == 503, "the primary may have it"
        assert files.cat("doors/file") == b"content"
        assert files.find("doors") == ["doors/file"]
        assert files.ls("doors", detail=False) == ["doors/file"]
        assert reader.read("doors/file") == b"content"
        assert [found.path for found in reader.list()] == ["doors/file"]
        assert asyncio.run(reader.aread("doors/file")) == b"content"
        assert b"content" in b"".join(reader.stream_archive(["doors/file"]))
        with reader.open("doors/file") as opened:
            assert opened.read() == b"content"


@pytest.mark.slow
def test_a_promoted_standby_is_refused(own_pair: Pair, readers: Readers) -> None:
    write(readers.open(own_pair), "promoted")
    own_pair.wait_for_replay()
    reader = readers.open(own_pair, max_staleness=1)
    wait_for_standby(reader)
    own_pair.standby.run("pg_ctl", "promote", "-w", "-D", own_pair.standby.data)
    with pytest.raises(InvalidInput, match="promoted"):
        wait_until(lambda: not reader.read("promoted"))
    with pytest.raises(InvalidInput, match="promoted"):
        readers.open(own_pair).read("promoted")
    # After a failover, both URLs name the new primary.
    both = readers.open(own_pair, database_url=own_pair.read_url)
    assert both.read("promoted") == b"content"


def test_another_catalog_on_the_standby_is_refused(pair: Pair, readers: Readers) -> None:
    write(readers.open(pair), "foreign")
    pair.primary.execute("CREATE DATABASE other OWNER cafcat")
    schema.upgrade(pair.primary.url("cafcat", "other"))
    pair.wait_for_replay()
    with pytest.raises(InvalidInput, match="another catalog"):
        readers.open(pair, read_database_url=pair.standby.url("cafcat", "other")).read("foreign")


def test_a_standby_of_another_cluster_is_refused(pair: Pair, readers: Readers, database_url_15: str) -> None:
    with pytest.raises(InvalidInput, match="another database cluster"):
        readers.open(pair, read_database_url=database_url_15).read("foreign")


def test_the_primary_itself_may_be_the_read_replica(pair: Pair, readers: Readers) -> None:
    repository = readers.open(pair, read_database_url=pair.database_url)
    write(repository, "self")
    assert repository.read("self") == b"content"
    wait_for_standby(repository)


def test_threads_find_what_they_have_committed(pair: Pair, readers: Readers) -> None:
    repository = readers.open(pair)
    errors: list[BaseException] = []

    def work(number: int) -> None:
        own = readers.open(pair)
        try:
            for step in range(5):
                write(own, f"threads/{number}/{step}")
                assert repository.read(f"threads/{number}/{step}") == b"content"
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


def test_the_command_line_reads_the_standby_or_with_fresh_the_primary(pair: Pair, readers: Readers) -> None:
    write(readers.open(pair), "command", b"old")
    pair.wait_for_replay()
    pair.pause()
    write(readers.open(pair), "command", b"new!")
    urls = {"CAFCAT_DATABASE_URL": pair.database_url, "CAFCAT_READ_DATABASE_URL": pair.read_url}
    cafcat_command = Cafcat(readers.folder, None, urls)
    assert cafcat_command("cat", "command").out == b"old"
    assert cafcat_command("cat", "command", "--fresh").out == b"new!"
    assert cafcat_command("ls", "command", "-l", "--fresh", "--json").documents[0]["size_bytes"] == 4
    secret = urls["CAFCAT_READ_DATABASE_URL"] + "&password=secret"
    shown = Cafcat(readers.folder, None, urls | {"CAFCAT_READ_DATABASE_URL": secret})("config").text
    assert "secret" not in shown
    assert "max_staleness = 60" in shown


def test_the_doctor_compares_the_replica_with_the_primary(pair: Pair, readers: Readers) -> None:
    repository = readers.open(pair, max_staleness=1)
    write(repository, "doctor/a")
    pair.wait_for_replay()
    assert replica_result(repository) == ("ok", "the read replica is 0 B of log behind")
    pair.pause()
    write(repository, "doctor/b")
    wait_until(lambda: "max_staleness is 1 s" in replica_result(repository)[1])
    assert replica_result(repository)[0] == "warning"


def test_the_doctor_refuses_another_cluster(pair: Pair, readers: Readers, database_url: str) -> None:
    level, found = replica_result(readers.open(pair, read_database_url=database_url))
    assert (level, "it belongs to another database cluster" in found) == ("error", True)


def replica_result(repository: cafcat.Repository) -> tuple[str, str]:
    """Return level and text of what the doctor finds about the read replica."""
    [found] = [result for result in repository.doctor().diagnoses if result.check == "replica"]
    return str(found.level), found.found
