"""The database is killed, its connections are cut, its clock is wrong: no file is lost or counted twice."""

import contextlib
import itertools
import os
import random
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

import cafcat
from cafcat.catalog import unknown_outcome
from cafcat.embedded.connecting import read_postmaster
from cafcat.embedded.programs import choose_user, run_program
from cafcat.embedded.roles import SUPERUSER
from cafcat.embedded.server import EmbeddedServer
from cafcat.errors import CatalogUnavailable
from tests.crash.campaign import world
from tests.crash.checker import look, problems
from tests.crash.places import Folder
from tests.crash.postgres_proxy import Cut, PostgresProxy
from tests.crash.world import World
from tests.integration.held_commands import environment, popen, run, start_all
from tests.worlds.servers.services import Databases, debian_programs, temporary_server
from tests.worlds.waiting import PATIENCE_SECONDS, wait_until

WRITERS = 4
FILES = 250


# The server is killed


def stop_immediately(server: EmbeddedServer) -> None:
    """Stop the server without a checkpoint or a message to its clients, as a power cut does."""
    command = [server.programs / "pg_ctl", "stop", "-m", "immediate", "-D", server.folder]
    assert run_program(choose_user(server.folder), command).returncode == 0


def kill_9(server: EmbeddedServer) -> None:
    postmaster = read_postmaster(server.folder)
    assert postmaster
    os.kill(postmaster.pid, signal.SIGKILL)


class Ingests:
    """Four concurrent ingests, each of its own tree, into one store."""

    def __init__(self, folder: Path, further: dict[str, str]) -> None:
        self.folder = folder
        self.place = Folder(folder / "store")
        self.environment = environment(folder, self.place.url, further)
        content = random.Random(4)
        self.files = {
            f"tree{writer}/{number:04}": content.randbytes(content.randrange(2000))
            for writer in range(WRITERS)
            for number in range(FILES)
        }
        for path, data in self.files.items():
            (folder / path).parent.mkdir(exist_ok=True)
            (folder / path).write_bytes(data)

    def start(self) -> "list[subprocess.Popen[str]]":
        commands = [("ingest", "-q", "--target-size", "9kB", f"tree{writer}") for writer in range(WRITERS)]
        processes = [popen(self.folder, self.environment, *command) for command in commands]
        start_all(processes)
        return processes

    def run(self, *arguments: str) -> None:
        run(self.folder, self.environment, *arguments)

    def check_the_ends(self, processes: "list[subprocess.Popen[str]]") -> list[int]:
        """Wait for the processes, and check their output. Return their exit codes.

        Each process ends by itself, and prints only lines of cafcat.
        """
        for process in processes:
            _, errors = process.communicate(timeout=PATIENCE_SECONDS)
            assert process.returncode in (0, 10), errors
            assert all(line.startswith("cafcat: ") for line in errors.splitlines()), errors
            assert bool(errors) or process.returncode == 0
        return [process.returncode for process in processes]

    def check_all_recovered(self, database_url: Callable[[], str]) -> None:
        """Check the invariant after recover.

        Then check that all files are live once after all ingests have run again.
        """
        self.run("recover", "-q")
        seen = look(database_url(), [self.place])
        assert problems(seen) == []
        assert seen.live.items() <= self.files.items()
        for number in range(WRITERS):
            self.run("ingest", "-q", f"tree{number}")
        seen = look(database_url(), [self.place])
        assert problems(seen) == []
        assert seen.live == self.files
        assert not seen.tables["retired_locations"], "nothing was packed twice"


def wait_for_commits(database_url: str) -> None:
    """Wait until each writer has committed a chunk."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    with psycopg.connect(database_url, autocommit=True) as connection:
        while not all_have_committed(connection):
            assert time.monotonic() < deadline
            time.sleep(0.01)


def all_have_committed(connection: "psycopg.Connection[tuple[int]]") -> bool:
    statement = "SELECT count(DISTINCT run_id) FROM chunks WHERE state = 'committed'"
    return connection.execute(statement).fetchall() == [(WRITERS,)]


@pytest.mark.parametrize("kill", [stop_immediately, kill_9])
@pytest.mark.parametrize("programs", [lambda: None, debian_programs], ids=["embedded", "debian"])
def test_a_server_killed_under_four_writers(
    memory: Path, programs: Callable[[], Path | None], kill: Callable[[EmbeddedServer], None]
) -> None:
    with temporary_server(programs()) as server:
        databases = Databases(server.conninfo("postgres", SUPERUSER))
        with databases.fresh(databases.template()) as url:
            ingests = Ingests(memory, {"CAFCAT_DATABASE_URL": url})
            processes = ingests.start()
            wait_for_commits(url)
            kill(server)
            assert 10 in ingests.check_the_ends(processes)
            server.connect().close()
            ingests.check_all_recovered(lambda: url)


def test_the_embedded_server_killed_under_four_writers(memory: Path) -> None:
    """The first process that detects the crash starts the server again. Other processes may not notice it."""
    server = EmbeddedServer(memory / "home" / "postgres")
    ingests = Ingests(memory, {})
    try:
        ingests.run("db", "init", "-q")
        processes = ingests.start()
        wait_for_commits(server.url())
        kill_9(server)
        ingests.check_the_ends(processes)
        ingests.check_all_recovered(server.url)
    finally:
        server.stop()


# The connection is cut


@pytest.fixture
def tree(memory: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """Files below the current folder."""
    monkeypatch.chdir(memory)
    Path("tree").mkdir()
    for number in range(6):
        Path(f"tree/{number}").write_bytes(b"%d" % number * 500)
    return {str(path): path.read_bytes() for path in Path("tree").iterdir()}


def end_leases(url: str) -> None:
    """End the leases of writers in this live process."""
    with psycopg.connect(url) as connection:
        connection.execute("UPDATE chunks SET lease_expires_at = now() - interval '1s' WHERE state = 'writing'")


class Cutting:
    """Chooses the n-th of certain requests."""

    def __init__(self, number: int, cut: Cut, is_counted: Callable[[bytes], bool]) -> None:
        self._left = number
        self._cut = cut
        self._is_meant = is_counted

    def __call__(self, transaction: list[bytes]) -> Cut | None:
        self._left -= self._is_meant(transaction[-1])
        return self._cut if self._left == 0 else None


def cut_in_turn(
    databases: Databases, tree: dict[str, bytes], cut: Cut, is_counted: Callable[[bytes], bool]
) -> Iterator[bool]:
    """Run an ingest for each of certain requests, which is cut.

    Yields True if the request belonged to the transaction that commits a chunk.
    """
    place = Folder(Path("store").absolute())
    for number in itertools.count(1):
        with databases.fresh(databases.template()) as url, PostgresProxy(databases.conninfo) as proxy:
            place.put({}, [])
            proxy.cut = Cutting(number, cut, is_counted)
            commits = ingest_through(proxy, psycopg.conninfo.conninfo_to_dict(url)["dbname"], place, tree)
            if proxy.was_cut is None:
                return
            end_leases(url)
            check_nothing_lost(url, place, tree)
            yield commits


def ingest_through(proxy: PostgresProxy, dbname: object, place: Folder, tree: dict[str, bytes]) -> bool:
    with cafcat.open(database_url=proxy.url(str(dbname)), home=Path("home"), store=place.url) as repository:
        report = None
        with contextlib.suppress(CatalogUnavailable):
            report = repository.ingest(["tree"], target_size=1500)
    commits = any(text.startswith(b"INSERT INTO journal") for text in proxy.was_cut or ())
    if proxy.was_cut is None or (commits and proxy.was_cut[-1] == b"COMMIT"):
        assert report
        assert (report.files_added, report.files_replaced) == (len(tree), 0)
    return commits


def check_nothing_lost(url: str, place: Folder, tree: dict[str, bytes]) -> None:
    with cafcat.open(database_url=url, home=Path("home"), store=place.url) as repository:
        assert repository.recover().failed == ()
        seen = look(url, [place])
        assert problems(seen) == []
        assert seen.live.items() <= tree.items()
        repository.ingest(["tree"], target_size=1500)
    seen = look(url, [place])
    assert problems(seen) == []
    assert seen.live == tree
    assert not seen.tables["retired_locations"], "nothing was packed twice"


@pytest.mark.parametrize(
    "cut", [Cut.ANSWER, *(pytest.param(cut, marks=pytest.mark.slow) for cut in Cut if cut is not Cut.ANSWER)]
)
def test_a_connection_cut_at_every_commit(quick_databases: Databases, tree: dict[str, bytes], cut: Cut) -> None:
    """The cut happens before COMMIT arrives, or before its answer. The ingest checks its chunk, and succeeds."""
    cuts = list(cut_in_turn(quick_databases, tree, cut, lambda text: text == b"COMMIT"))
    assert cuts.count(True) >= 2
    assert cuts.count(False) >= 2


@pytest.mark.slow
@pytest.mark.parametrize("cut", list(Cut))
def test_a_connection_cut_at_every_request(quick_databases: Databases, tree: dict[str, bytes], cut: Cut) -> None:
    assert len(list(cut_in_turn(quick_databases, tree, cut, lambda _: True))) > 40


class Queued:
    """Cuts a connection before the first COMMIT of a change of files. From then on, another session has its lock.

    So the lock is not free when cafcat connects again, as if the server still executed the commit.
    """

    def __init__(self, url: str, statement: str) -> None:
        self._url = url
        self._statement = statement
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._hold)

    def __enter__(self) -> "Queued":
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def __call__(self, transaction: list[bytes]) -> Cut | None:
        if transaction[-1] != b"COMMIT" or not any(text.startswith(b"INSERT INTO journal") for text in transaction):
            return None
        self._thread.start()
        with psycopg.connect(self._url, autocommit=True) as connection:
            waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE %s"
            query = self._statement.partition("FOR")[0] + "%"
            wait_until(lambda: connection.execute(waiting, [query]).fetchall() == [(1,)])
        return Cut.REQUEST

    def _hold(self) -> None:
        with psycopg.connect(self._url) as connection:
            connection.execute(self._statement.encode())
            self._is_over.wait(PATIENCE_SECONDS)


@pytest.mark.parametrize(
    ("verb", "statement"),
    [
        ("ingest", "SELECT FROM chunks WHERE state = 'writing' FOR UPDATE"),
        ("rm", "LOCK TABLE file_locations IN SHARE ROW EXCLUSIVE MODE"),
    ],
)
def test_a_commit_whose_outcome_is_unknown_is_reported_as_such(
    quick_databases: Databases,
    tree: dict[str, bytes],
    monkeypatch: pytest.MonkeyPatch,
    verb: str,
    statement: str,
) -> None:
    monkeypatch.setattr(unknown_outcome, "_OUTCOME_SECONDS", 0.5)
    place = Folder(Path("store").absolute())
    calls: dict[str, Callable[[cafcat.Repository], object]] = {
        "ingest": lambda repository: repository.ingest(["tree"]),
        "rm": lambda repository: repository.rm(["tree/0"]),
    }
    with quick_databases.fresh(quick_databases.template()) as url:
        place.put({}, [])
        with cafcat.open(database_url=url, home=Path("home"), store=place.url) as repository:
            for earlier in itertools.takewhile(lambda name: name != verb, calls):
                calls[earlier](repository)
        with (
            PostgresProxy(quick_databases.conninfo) as proxy,
            Queued(url, statement) as proxy.cut,
            cafcat.open(
                database_url=proxy.url(str(psycopg.conninfo.conninfo_to_dict(url)["dbname"])),
                home=Path("home"),
                store=place.url,
                lock_timeout=1,
            ) as repository,
            pytest.raises(CatalogUnavailable, match=r"it is unknown whether .* held by server process") as raised,
        ):
            calls[verb](repository)
        assert raised.value.kind == "catalog_unavailable"
        end_leases(url)
        check_nothing_lost(url, place, tree)


# The clock is set back


@pytest.fixture
def folder_world(quick_databases: Databases, memory: Path) -> Iterator[World]:
    with world(quick_databases, "folder", memory) as made:
        made.begin()
        yield made


def shift_times(world: World, by: str) -> None:
    """Shift all times of the catalog, as if the clock was set back afterwards."""
    columns = (
        "SELECT table_name, column_name FROM information_schema.columns JOIN information_schema.tables "
        "USING (table_schema, table_name) WHERE table_schema = 'public' AND table_type = 'BASE TABLE' "
        "AND data_type = 'timestamp with time zone' AND column_name <> 'modified_at'"
    )
    for table, column in world.sql(columns):
        world.sql(f"UPDATE {table} SET {column} = {column} + %s::interval", by)


def write(world: World, contents: dict[str, bytes]) -> dict[str, bytes]:
    for path, data in contents.items():
        file = world.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
    return contents


def test_a_chunk_that_waits_to_be_pruned_waits_longer(folder_world: World) -> None:
    files = write(folder_world, {"a/1": b"one", "b/2": b"two"})
    folder_world.cafcat("ingest", "-q", "a")
    folder_world.cafcat("ingest", "-q", "b")
    folder_world.cafcat("rm", "-q", "a/1")
    shift_times(folder_world, "1 day")
    before = folder_world.places[0].objects()
    for verb in (["prune", "-q", "--yes", "--grace", "0"], ["recover", "-q"], ["repack", "-q", "--yes"]):
        folder_world.cafcat(*verb)
        assert folder_world.places[0].objects().items() >= before.items()
    folder_world.cafcat("undelete", "-q", "a/1")
    seen = folder_world.look()
    assert (seen.live, problems(seen)) == (files, [])


def test_recover_waits_for_live_leases_except_those_of_dead_processes(folder_world: World) -> None:
    """A lease of another machine counts until it ends. A dead process of this machine is detected."""
    write(folder_world, {"there/1": b"one" * 1000, "here/2": b"two"})
    # The first link belongs to the marker of the store.
    folder_world.killed("ingest", "-q", "there", before="file link", after=["file link"])
    folder_world.sql("UPDATE chunks SET lease_owner = 'elsewhere:1:run 1' WHERE state = 'writing'")
    folder_world.killed("ingest", "-q", "here", before="sql INSERT INTO journal")
    shift_times(folder_world, "1 day")
    folder_world.cafcat("recover", "-q")
    assert folder_world.sql("SELECT state FROM chunks ORDER BY id") == [("writing",), ("committed",)]
    assert len(folder_world.places[0].uploads()) == 1
    shift_times(folder_world, "-2 days")
    folder_world.cafcat("recover", "-q")
    seen = folder_world.look()
    assert (seen.live, problems(seen)) == ({"here/2": b"two"}, [])


def test_runs_of_the_future_are_listed_and_the_newest_backup_is_kept(folder_world: World) -> None:
    write(folder_world, {"a/1": b"one"})
    folder_world.cafcat("ingest", "-q", "a")
    folder_world.cafcat("backup", "-q")
    (old,) = folder_world.sql("SELECT object_key FROM backups")
    shift_times(folder_world, "1 day")
    later = write(folder_world, {"a/1": b"changed", "a/2": b"new"})
    folder_world.cafcat("ingest", "-q", "a")
    folder_world.cafcat("backup", "-q", "--keep", "1")
    assert folder_world.sql("SELECT object_key FROM backups WHERE state = 'committed'") != [old]
    assert folder_world.cafcat("runs", "-q").output.count("finished") == 2
    assert folder_world.cafcat("cat", "a/1").output == "changed"
    seen = folder_world.look()
    assert (seen.live, problems(seen)) == (later, [])


def test_wrong_clock_of_a_client_does_not_matter(folder_world: World) -> None:
    """Files with times of tomorrow are packed, then unchanged, and replaced by older files."""
    write(folder_world, {"a/1": b"one"})
    tomorrow, last_year = time.time() + 86_400, time.time() - 365 * 86_400
    os.utime(folder_world.folder / "a/1", (tomorrow, tomorrow))
    assert '"files_added":1' in folder_world.cafcat("ingest", "--json", "a").output.replace(" ", "")
    assert '"files_unchanged":1' in folder_world.cafcat("ingest", "--json", "a").output.replace(" ", "")
    write(folder_world, {"a/1": b"two"})
    os.utime(folder_world.folder / "a/1", (last_year, last_year))
    assert '"files_replaced":1' in folder_world.cafcat("ingest", "--json", "a").output.replace(" ", "")
    assert folder_world.look().live == {"a/1": b"two"}
