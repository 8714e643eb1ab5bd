"""rm and undelete: atomic, recorded in every store, and correct during concurrent operations."""

import contextlib
import itertools
import random
import threading
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import cafcat
from cafcat.catalog.files import path_list
from cafcat.catalog.files.mapping import COLUMNS
from cafcat.catalog.files.removal import Change, Removal, _nothing
from cafcat.errors import CatalogUnavailable, InvalidInput, NotFound, StoreFailed
from cafcat.model import FileProblem, OnConflict
from cafcat.operations.rm.report import RemoveReport
from cafcat.operations.undelete.report import UndeleteReport
from tests.worlds.catalog_world import Opener, commit, live, reasons, sql, state_of
from tests.worlds.kills.killing import STEPS, killed_at_each_step
from tests.worlds.kills.meanwhile import InBackground, in_background, wait_for_a_waiting_statement
from tests.worlds.listeners import Following, Heard, problems
from tests.worlds.places import Folder, Place
from tests.worlds.removal_world import check, rebuilt
from tests.worlds.servers.services import Databases
from tests.worlds.waiting import PATIENCE_SECONDS, wait_until

FILES = {"a/first": b"first", "a/second": bytes(range(256)), "b/empty": b"", "ü/日本": b"unicode"}


def test_removed_file_is_restored_unchanged(repository: cafcat.Repository, place: Place) -> None:
    chunk = commit(repository, FILES)
    locations = f"SELECT {COLUMNS}, ingest_run_id FROM file_locations ORDER BY file_path"
    before = sql(repository, locations)
    report = repository.rm(["a/first", "ü/日本"])
    assert report == RemoveReport(2, 12, 0, 0, (), dry_run=False)
    with pytest.raises(NotFound):
        repository.read("a/first")
    assert reasons(repository, "a/first") == [(chunk, "removed")]
    assert set(check(repository, place)) == {"a/second", "b/empty"}
    last = "SELECT kind, detail FROM events WHERE kind <> 'command' ORDER BY id DESC LIMIT 1"
    [(kind, detail)] = sql(repository, last)
    assert (kind, detail) == ("files_removed", "2 files, 12 bytes")

    assert repository.undelete(["ü/日本", "a/first"]) == UndeleteReport(2, 12, 0, 0, 0, 0, 0, 0, ())
    assert check(repository, place) == FILES
    assert sql(repository, locations) == before
    assert reasons(repository, "a/first") == []
    assert repository.read("a/first") == b"first"


def test_chunk_without_files_is_retired_until_undelete(repository: cafcat.Repository, place: Place) -> None:
    chunk = commit(repository, FILES)
    other = commit(repository, {"other": b"other"})
    report = repository.rm(folders=["."])
    assert (report.files, report.chunks_retired) == (5, 2)
    assert state_of(repository, chunk) == state_of(repository, other) == "retired"
    assert check(repository, place) == {}
    assert repository.undelete(["a/second"]).files == 1
    assert (state_of(repository, chunk), state_of(repository, other)) == ("committed", "retired")
    assert check(repository, place) == {"a/second": FILES["a/second"]}
    assert repository.undelete(folders=["."]).files == 4
    assert check(repository, place) == FILES | {"other": b"other"}


def test_folders_as_typed(local: cafcat.Repository, folder: Folder) -> None:
    names = ["x", "x/a", "x/b/c", "x.y", "x0", "xy/a", "z"]
    commit(local, {name: name.encode() for name in names})
    for typed, gone in {
        "x": {"x", "x/a", "x/b/c"},
        "x/": {"x/a", "x/b/c"},
        "./x": {"x", "x/a", "x/b/c"},
        "/x/b": {"x/b/c"},
        "x/b/c": {"x/b/c"},
        ".": set(names),
        "./": set(names),
    }.items():
        assert local.rm(folders=[typed], dry_run=True).files == len(gone)
        assert live(local) == set(names)
        assert local.rm(folders=[typed]).files == len(gone)
        assert live(local) == set(names) - gone
        assert {old.location.path for old in local.removed(typed)} == gone
        assert {old.location.path for old in local.removed()} == gone
        assert local.undelete(folders=[typed]).files == len(gone)
        assert live(local) == set(names)
    check(local, folder)


def test_folders_within_each_other_and_names_twice_count_once(local: cafcat.Repository, folder: Folder) -> None:
    commit(local, FILES)
    folders = ["a", "a/", "a/first", "./a", "b"]
    heard = Heard()
    names = ["a/first", "a/first", "ü/日本"]
    dry = local.with_progress(heard).rm(names, folders=folders, dry_run=True)
    report = local.with_progress(heard).rm(names, folders=folders)
    assert heard.problems == []
    assert (report.files, report.bytes) == (4, sum(map(len, FILES.values())))
    assert report.chunks_retired == 1
    assert (dry.files, dry.bytes, dry.chunks_retired) == (report.files, report.bytes, report.chunks_retired)
    assert check(local, folder) == {}
    assert local.with_progress(heard).undelete(names, folders=folders).files == 4
    assert heard.problems == []
    assert check(local, folder) == FILES


def test_dry_run_reports_the_effects_and_changes_nothing(repository: cafcat.Repository, place: Place) -> None:
    commit(repository, FILES)
    commit(repository, {"c/1": b"1", "d": b"d"})
    tables = ("file_locations", "retired_locations", "chunks", "journal", "events")
    before = [sql(repository, f"SELECT * FROM {table} ORDER BY 1, 2") for table in tables]
    heard = Heard()
    dry = repository.with_progress(heard).rm(["d", "no"], folders=["a", "c", "nowhere"], dry_run=True)
    assert before == [sql(repository, f"SELECT * FROM {table} ORDER BY 1, 2") for table in tables]
    reported = problems(heard)
    assert reported == {("no", "missing"), ("nowhere", "missing")}
    heard = Heard()
    done = repository.with_progress(heard).rm(["d", "no"], folders=["a", "c", "nowhere"])
    assert problems(heard) == reported
    assert (done.files, done.bytes, done.files_failed, done.chunks_retired) == (4, 263, 2, 1)
    assert (dry.files, dry.bytes, dry.files_failed, dry.chunks_retired) == (4, 263, 2, 1)
    assert set(check(repository, place)) == {"b/empty", "ü/日本"}


def test_missing_names_fail_alone(local: cafcat.Repository, folder: Folder) -> None:
    commit(local, FILES)
    heard = Heard()
    odd = ["nothing", "a", "a/", "nul\0", "half\udcff", "x" * 5000, ""]
    report = local.with_progress(heard).rm([*odd, "a/first"])
    assert (report.files, report.files_failed) == (1, len(odd))
    assert {problem.kind.value for problem in heard.problems} == {"missing"}
    messages = {problem.path: problem.message for problem in heard.problems}
    assert messages["a"] == messages["a/"] == "this is a folder: use rm -r to remove all files below it"
    assert messages["nothing"] == messages["nul\\x00"] == "the catalog has no such file"
    assert "half\\udcff" in messages
    heard = Heard()
    report = local.with_progress(heard).rm(["a/first"])
    assert (report.files, report.files_failed) == (0, 1)
    assert sql(local, "SELECT count(*) FROM journal WHERE kind = 'remove'") == [(1,)]
    heard = Heard()
    back = local.with_progress(heard).undelete([*odd, "b/empty", "a/first"])
    assert (back.files, back.files_failed) == (1, len(odd) + 1)
    assert {problem.message for problem in heard.problems} == {"no removed file has this name"}
    assert check(local, folder) == FILES


def test_names_have_to_be_a_list_and_folders_to_be_names(local: cafcat.Repository) -> None:
    commit(local, FILES)
    with pytest.raises(InvalidInput, match="a list"):
        local.rm("a/first")
    with pytest.raises(InvalidInput, match="a list"):
        local.undelete(folders="a")
    for nothing in ("", "nul\0"):
        with pytest.raises(InvalidInput):
            local.rm(folders=["a", nothing])
    assert live(local) == set(FILES)


def test_undelete_restores_the_last_removed_version(local: cafcat.Repository, folder: Folder) -> None:
    commit(local, {"p": b"one"})
    local.rm(["p"])
    commit(local, {"p": b"two", "q": b"q"})
    commit(local, {"p": b"three"})
    local.rm(["p"])
    local.undelete(["p"])
    assert check(local, folder) == {"p": b"three", "q": b"q"}
    local.rm(["p"])
    sql(local, "UPDATE chunks SET retired_at = now() - interval '1h' WHERE retired_at IS NOT NULL AND id = 3")
    assert local.prune(grace_seconds=60).chunks == 1
    heard = Heard()
    assert local.with_progress(heard).undelete(["p"]).files_pruned == 1
    assert problems(heard) == {("p", "missing")}
    assert list(local.removed()) == []
    assert check(local, folder) == {"q": b"q"}


def test_a_path_that_has_a_file_again_is_left_alone(local: cafcat.Repository, folder: Folder) -> None:
    commit(local, FILES)
    local.rm(folders=["a"])
    commit(local, {"a/first": b"newer"})
    assert [old.location.path for old in local.removed("a")] == ["a/second"]
    heard = Heard()
    report = local.with_progress(heard).undelete(["a/first"])
    assert (report.files, report.files_live) == (0, 1)
    assert problems(heard) == {("a/first", "exists")}
    heard = Heard()
    report = local.with_progress(heard).undelete(folders=["a"])
    assert (report.files, report.files_live) == (1, 1)
    assert problems(heard) == {("a/first", "conflict")}
    assert check(local, folder) == FILES | {"a/first": b"newer"}


def test_many_removed_files_are_listed_in_pages(local: cafcat.Repository, folder: Folder) -> None:
    names = [f"f/{number:04}" for number in range(2500)]
    commit(local, dict.fromkeys(names, b"x"))
    local.rm(names[:2200])
    commit(local, dict.fromkeys(names[500:600], b"y"))
    expected = names[:500] + names[600:2200]
    assert [old.location.path for old in local.removed("f")] == expected
    [old] = local.removed("f/0007")
    assert (old.reason, old.run, old.location.size_bytes) == ("removed", None, 1)
    assert local.undelete(folders=["f"]).files == 2100
    assert len(check(local, folder)) == 2500


@pytest.mark.slow
def test_memory_does_not_grow_with_the_number_of_names(
    local: cafcat.Repository, folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither existing nor missing names are kept in memory."""
    monkeypatch.setattr(path_list, "_MEMORY_BYTES", 64 << 10)
    count = 22_000
    names = [f"some/longer/folder/{number:064}" for number in range(count)]
    commit(local, dict.fromkeys(names, b""))
    local.rm(names[:1])  # warms up caches
    peaks = []
    for some in (count // 2, count):
        tracemalloc.start()
        heard = Counting()
        report = local.with_progress(heard).rm(f"{name}{end}" for name in names[1:some] for end in ("", "?"))
        assert (report.files, heard.count) == (some - 1, some - 1)
        assert local.undelete(iter(names[1:some])).files == some - 1
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] - peaks[0] < 1 << 20, "the names alone are 1.5 MB more"
    assert len(check(local, folder)) == count - 1


class Counting(Heard):
    count = 0

    def problem(self, problem: FileProblem) -> None:
        self.count += bool(problem.path)


# --- killed processes, cut connections, unreachable stores


@pytest.mark.parametrize(("place", "every"), STEPS, indirect=["place"])
@pytest.mark.parametrize("verb", ["rm", "undelete"])
def test_verb_is_killed_at_every_step(
    repository: cafcat.Repository, place: Place, tmp_path: Path, verb: str, every: int
) -> None:
    """The verb has all of its effects or none. After recover, the stores have its journal record."""
    commit(repository, {"always": b"there"})
    expected = {"always": b"there"}
    done = 0

    def prepare(number: int) -> None:
        commit(repository, {f"{number}/gone": b"gone", f"{number}/kept": b"kept"})
        commit(repository, {f"{number}/alone/1": b"1", f"{number}/alone/2": b"2"})
        if verb == "undelete":
            repository.rm([f"{number}/gone"], folders=[f"{number}/alone"])
        expected[f"{number}/kept"] = b"kept"

    for number in killed_at_each_step(repository, place.url, tmp_path, verb, prepare=prepare, every=every):
        removable = {f"{number}/gone": b"gone", f"{number}/alone/1": b"1", f"{number}/alone/2": b"2"}
        are_live = set(removable) & live(repository)
        assert are_live in (set(), set(removable))
        done += bool(are_live) == (verb == "undelete")
        if are_live:
            expected |= removable
        if number % 5 == 0:
            assert repository.recover().failed == ()
            assert check(repository, place) == expected
    assert done > 0
    assert repository.recover().failed == ()
    assert set(check(repository, place)) >= set(expected)


CUT = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
    "WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
)


@pytest.mark.parametrize("verb", ["rm", "undelete"])
@pytest.mark.parametrize("cuts", [1, 3])
def test_a_connection_cut_before_the_commit(
    local: cafcat.Repository, folder: Folder, monkeypatch: pytest.MonkeyPatch, verb: str, cuts: int
) -> None:
    """The verb is tried again. If every attempt is cut, nothing has changed."""
    commit(local, FILES)
    if verb == "undelete":
        local.rm(FILES)
    left = cuts
    attempt = Removal._attempt

    def cut(self: Removal, act: object, change: Change) -> None:
        def acted(connection: psycopg.Connection, change: Change) -> None:
            nonlocal left
            act(connection, change)  # type: ignore[operator]
            if left:
                left -= 1
                sql(local, CUT)

        attempt(self, acted, change)

    monkeypatch.setattr(Removal, "_attempt", cut)
    heard = Heard()
    names = [*FILES, "missing"]
    before = live(local)
    if cuts == 3:
        with pytest.raises(CatalogUnavailable):
            getattr(local.with_progress(heard), verb)(names)
        assert (live(local), heard.problems) == (before, [])
    else:
        report = getattr(local.with_progress(heard), verb)(names)
        assert (report.files, report.files_failed) == (len(FILES), 1)
        assert problems(heard) == {("missing", "missing")}
        assert live(local) != before
    check(local, folder)


@pytest.mark.parametrize("verb", ["rm", "undelete"])
def test_commit_with_a_lost_answer_is_checked(
    local: cafcat.Repository, folder: Folder, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    commit(local, FILES)
    if verb == "undelete":
        local.rm(FILES)
    attempt = Removal._attempt
    attempts = []

    def committed_but_cut(self: Removal, act: object, change: Change) -> None:
        attempts.append(1)
        attempt(self, act, change)  # type: ignore[arg-type]
        wait_until(lambda: not sql(local, CUT))  # the server needs some time to end a connection
        raise CatalogUnavailable("the connection was lost")

    monkeypatch.setattr(Removal, "_attempt", committed_but_cut)
    report = getattr(local, verb)([*FILES, "missing"])
    assert (report.files, report.files_failed) == (len(FILES), 1)
    assert attempts == [1]
    assert check(local, folder) == (FILES if verb == "undelete" else {})


def test_check_after_a_lost_answer_waits_for_the_commit(
    local: cafcat.Repository, open_at: Opener, folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection is lost while the server still executes the commit."""
    commit(local, FILES)
    other = open_at(folder).session.catalog.removal
    attempt = Removal._attempt
    lost: list[InBackground] = []

    def still_at_it(self: Removal, act: object, change: Change) -> None:
        if lost:
            return attempt(self, act, change)  # type: ignore[arg-type]

        def act_and_wait(connection: psycopg.Connection, of_other: Change) -> None:
            act(connection, of_other)  # type: ignore[operator]
            change.uuid, change.sequence, change.files = of_other.uuid, of_other.sequence, of_other.files
            change.stores = of_other.stores
            acted.set()
            wait_for_a_waiting_statement(local)

        def attempt_of_other() -> None:
            with _nothing() as of_other:
                attempt(other, act_and_wait, of_other)

        acted = threading.Event()
        lost.append(in_background(attempt_of_other))
        assert acted.wait(PATIENCE_SECONDS)
        raise CatalogUnavailable("the connection was lost")

    monkeypatch.setattr(Removal, "_attempt", still_at_it)
    assert local.rm(["a/first"]).files == 1
    lost[0].done()
    assert live(local) == set(FILES) - {"a/first"}
    check(local, folder)


def test_interrupt_before_the_commit_changes_nothing(local: cafcat.Repository, folder: Folder) -> None:
    """The interrupt comes at each checkpoint in turn."""
    commit(local, FILES)
    for verb, names in (("rm", list(FILES)), ("undelete", list(FILES))):
        before = live(local)
        for number in itertools.count():
            asked = iter(range(number))

            def stop(asked: Iterator[int] = asked) -> None:
                if next(asked, None) is None:
                    raise KeyboardInterrupt

            try:
                getattr(local.with_progress(Following(should_stop=stop)), verb)(names)
            except KeyboardInterrupt:
                assert live(local) == before
            else:
                break
        assert number > 6
        assert live(local) != before
    assert check(local, folder) == FILES


def test_unreachable_store_gets_its_record_later(
    local: cafcat.Repository, open_at: Opener, tmp_path: Path, folder: Folder
) -> None:
    """The disk of the store is not mounted, and its mount point stays empty."""
    elsewhere = Folder(tmp_path / "elsewhere")
    far = open_at(elsewhere)
    commit(local, {"near": b"near", "near2": b"near2"})
    commit(far, {"far": b"far", "far2": b"far2"})
    mounted = tmp_path / "mounted"
    elsewhere.folder.rename(mounted)
    for is_there in (False, True):
        if is_there:
            elsewhere.folder.mkdir()
        heard = Heard()
        report = local.with_progress(heard).rm(["near2" if is_there else "near", "far2"])
        assert report.files == 2 - is_there
        assert report.stores_behind == (elsewhere.url,)
        [warning] = heard.warnings
        assert elsewhere.url in warning
        assert "cafcat recover" in warning
    assert elsewhere.everything() == {}
    heard = Heard()
    back = local.with_progress(heard).undelete(["near2"])
    assert (back.files, back.stores_behind, len(heard.warnings)) == (1, (elsewhere.url,), 1)
    assert rebuilt(folder).keys() == {"near2"}
    elsewhere.folder.rmdir()
    mounted.rename(elsewhere.folder)
    assert rebuilt(folder, elsewhere).keys() == {"near2", "far"}
    assert local.recover().failed == ()
    assert check(local, folder, elsewhere) == {"near2": b"near2", "far": b"far"}
    assert rebuilt(elsewhere).keys() >= {"far"}
    assert "far2" not in rebuilt(elsewhere)


def test_failing_store_gets_its_record_later(
    local: cafcat.Repository, folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is full when the record is written."""
    commit(local, FILES)
    store = local.session.stores[folder.url]

    def full(_key: str) -> None:
        raise StoreFailed("no space left")

    with monkeypatch.context() as patch:
        patch.setattr(store, "create", full)
        heard = Heard()
        report = local.with_progress(heard).rm(["a/first"])
        assert (report.files, report.stores_behind) == (1, (folder.url,))
        assert "no space left" in heard.warnings[0]
    assert "a/first" in rebuilt(folder)
    assert local.undelete(["a/first"]).stores_behind == ()
    assert check(local, folder) == FILES


def test_stores_of_copies_get_the_record(
    local: cafcat.Repository, open_at: Opener, folder: Folder, tmp_path: Path
) -> None:
    """A rebuild from the store of copies finds the same files, even if the copy was not finished."""
    chunk = commit(local, FILES)
    for state in ("committed", "writing"):
        elsewhere = Folder(tmp_path / state)
        elsewhere.folder.mkdir()
        (elsewhere.folder / "copy.caf").write_bytes(folder.everything()[f"{chunk}.caf"])
        sql(local, "INSERT INTO stores (url) VALUES (%s) ON CONFLICT DO NOTHING", elsewhere.url)
        sql(
            local,
            "INSERT INTO chunk_copies (chunk_id, store, object_key, state, committed_at) "
            "SELECT id, %s, 'copy.caf', %s, now() FROM chunks",
            elsewhere.url,
            state,
        )
        assert local.rm(["a/first"]).files == 1
        assert len(elsewhere.everything()) == 2
        local.undelete(["a/first"])
        assert len(elsewhere.everything()) == 3


# --- concurrent operations


def test_rebuild_does_not_restore_replaced_and_removed_files(repository: cafcat.Repository, place: Place) -> None:
    commit(repository, {"p": b"old", "other": b"other"})
    newer = commit(repository, {"p": b"new"})
    repository.rm(["p"])
    assert rebuilt(place).keys() == {"other"}
    assert repository.prune(grace_seconds=0).chunks == 1
    assert state_of(repository, newer) == "deleted"
    assert rebuilt(place).keys() == {"other"}
    assert check(repository, place) == {"other": b"other"}


def test_rm_waits_for_a_commit_and_removes_its_files(
    local: cafcat.Repository, open_at: Opener, folder: Folder
) -> None:
    """The operation that commits later comes later in the journal, too."""
    old = commit(local, {"p": b"old"})
    with psycopg.connect(str(local.settings.database_url)) as holder:
        holder.execute("LOCK TABLE file_locations IN ROW EXCLUSIVE MODE")
        removing = in_background(lambda: open_at(folder).rm(["p", "q"]))
        wait_for_a_waiting_statement(local)
        # Like a commit whose new paths go directly into the table.
        holder.execute(
            "INSERT INTO file_locations (caf_file_id, start_byte, end_byte, crc32c, file_path) "
            "SELECT id, 0, 0, 0, 'q' FROM chunks"
        )
        holder.execute("INSERT INTO folder_deltas (files, bytes, depth, folder_path) VALUES (1, 0, 0, '')")
        holder.execute("UPDATE chunks SET live_file_count = 2, file_count = 2")
        holder.commit()
    assert removing.done().files == 2
    assert state_of(local, old) == "retired"
    assert local.session.catalog.reports.findings() == []


def test_concurrent_rm_undelete_prune_and_ingest(open_at: Opener, folder: Folder) -> None:
    """There is no deadlock, no file is lost, and the stores agree with the catalog."""
    paths = [f"p{number}" for number in range(6)]
    first = open_at(folder)
    commit(first, dict.fromkeys(paths, b"first"))

    def at_work(seed: int) -> None:
        source, repository = random.Random(seed), repositories[seed]
        for number in range(25):
            some = source.sample(paths, source.randrange(1, 5))
            act = source.randrange(5)
            if act == 0:
                commit(repository, {path: f"{seed}/{number}".encode() for path in some})
            elif act == 1:
                repository.rm(some)
            elif act == 2:
                repository.undelete(some)
            elif act == 3:
                repository.undelete(folders=["."])
            else:
                assert repository.prune(grace_seconds=0).failed == ()

    repositories = [open_at(folder) for _ in range(4)]
    threads = [in_background(lambda seed=seed: at_work(seed)) for seed in range(4)]  # type: ignore[misc]
    for thread in threads:
        thread.done()
    assert first.recover().failed == ()
    check(first, folder)
    for path in live(first):
        first.read(path)


# --- comparison with a model


PATHS = ["a", "a/b", "a/c", "b", "ü"]
some_paths = st.sets(st.sampled_from(PATHS), min_size=1)
STEPS = st.one_of(
    st.tuples(st.just("commit"), some_paths),
    st.tuples(st.just("skip"), some_paths),
    st.tuples(st.just("remove"), some_paths),
    st.tuples(st.just("remove"), some_paths),
    st.tuples(st.just("remove below"), st.sampled_from(["a", "a/", "."])),
    st.tuples(st.just("undelete"), some_paths),
    st.tuples(st.just("undelete below"), st.sampled_from(["a", "a/", "."])),
    st.tuples(st.just("prune"), st.none()),
)


class Model:
    """The expected catalog: version (chunk and content) of each path, and removed versions."""

    def __init__(self) -> None:
        self.live: dict[str, tuple[int, bytes]] = {}
        self.removed: dict[str, list[tuple[int, bytes]]] = {path: [] for path in PATHS}
        self.chunks = 0
        self.pruned: set[int] = set()

    def commit(self, paths: set[str], *, skips: bool) -> dict[str, bytes]:
        self.chunks += 1
        files = {path: f"{path} {self.chunks}".encode() for path in sorted(paths)}
        for path, content in files.items():
            if not (skips and path in self.live):
                self.live[path] = self.chunks, content
        return files

    def remove(self, paths: set[str]) -> int:
        gone = paths & self.live.keys()
        for path in gone:
            self.removed[path].append(self.live.pop(path))
        return len(gone)

    def undelete(self, paths: set[str]) -> tuple[int, int, int]:
        """Return the numbers of restored, live and pruned files."""
        counts = [0, 0, 0]
        for path in paths:
            if not self.removed[path]:
                continue
            if path in self.live:
                counts[1] += 1
            elif self.removed[path][-1][0] in self.pruned:
                counts[2] += 1
            else:
                self.live[path] = self.removed[path].pop()
                counts[0] += 1
        return counts[0], counts[1], counts[2]

    def prune(self) -> int:
        dead = set(range(1, self.chunks + 1)) - {chunk for chunk, _ in self.live.values()} - self.pruned
        self.pruned |= dead
        return len(dead)


def below(folder: str) -> set[str]:
    return {path for path in PATHS if folder in (".", path) or path.startswith(folder.rstrip("/") + "/")}


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(steps=st.lists(STEPS, min_size=3, max_size=14))
def test_operations_equal_those_of_a_model(
    databases: Databases, tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, object]]
) -> None:
    model = Model()
    home = tmp_path_factory.mktemp("model")
    place = Folder(home / "store")
    with contextlib.ExitStack() as opened:
        url = opened.enter_context(databases.fresh(databases.template()))
        repository = opened.enter_context(cafcat.open(database_url=url, home=home, store=place.url))
        for verb, what in steps:
            paths = what if isinstance(what, set) else below(str(what)) if what else set()
            act(repository, model, verb, paths, what)
        found = check(repository, place)
    assert found == {path: content for path, (_, content) in model.live.items()}
    chunks = [key for key in place.everything() if not key.startswith(("journal/", "catalogs/"))]
    assert len(chunks) == model.chunks - len(model.pruned)


def act(repository: cafcat.Repository, model: Model, verb: str, paths: set[str], what: object) -> None:
    custody = repository
    if verb in ("commit", "skip"):
        conflict = OnConflict.SKIP if verb == "skip" else OnConflict.REPLACE
        commit(repository, model.commit(paths, skips=verb == "skip"), conflict)
    elif verb == "rm":
        assert custody.rm(paths).files == model.remove(paths)
    elif verb == "remove below":
        inside = paths - ({"a"} if what == "a/" else set())
        assert custody.rm(folders=[str(what)]).files == model.remove(inside)
    elif verb == "undelete":
        report = custody.undelete(paths)
        assert (report.files, report.files_live, report.files_pruned) == model.undelete(paths)
    elif verb == "undelete below":
        inside = paths - ({"a"} if what == "a/" else set())
        report = custody.undelete(folders=[str(what)])
        assert (report.files, report.files_live, report.files_pruned) == model.undelete(inside)
    else:
        assert custody.prune(grace_seconds=0).chunks == model.prune()
