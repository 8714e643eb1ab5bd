"""Verbs with the workers of an executor: they do what they do alone, whatever fails."""

import pickle
import re
import shutil
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

import cafcat
from cafcat.catalog.chunks.rewriting import RewritableChunk
from cafcat.catalog.files.mapping import Mapping
from cafcat.clusters.local import LocalExecutor
from cafcat.errors import AccessDenied, InvalidInput, NotFound, StoreFailed, Unavailable
from cafcat.events import ChunkCopied, ChunkMigrated
from cafcat.model import Entry, FileProblem, ProblemKind
from cafcat.operations.cluster_calls import ClusterCalls
from cafcat.operations.repack.cluster import split
from cafcat.reports import ExtractReport
from cafcat.repository import Repository
from cafcat.session import Session
from tests.worlds.archives.damage import flip
from tests.worlds.engines import Armed, Elsewhere, Failing, process_pool
from tests.worlds.listeners import Following, Heard
from tests.worlds.servers.services import Databases

FILES = {f"tree/{number:03}": b"%d " % number * 200 for number in range(60)}
TARGET = 4_000
"""Target size: each chunk has a few files."""


@pytest.fixture
def repository(database_url: str, tmp_path: Path) -> Iterator[Repository]:
    """A repository with about 15 chunks of a few files."""
    with cafcat.open(
        database_url=database_url, home=tmp_path / "home", store=str(tmp_path / "store")
    ) as repository:
        for name, data in FILES.items():
            path = tmp_path / name
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(data)
        repository.ingest([tmp_path / "tree"], target_size=TARGET, jobs=1)
        yield repository


@pytest.fixture(scope="module")
def processes() -> Iterator[Executor]:
    with process_pool(2) as executor:
        yield executor


@pytest.fixture
def threads() -> Iterator[Executor]:
    with ThreadPoolExecutor(2) as executor:
        yield executor


@pytest.fixture
def local() -> Iterator[Executor]:
    executor = LocalExecutor(2)
    yield executor
    executor.kill()


def rows(repository: Repository, query: str) -> list[tuple[Any, ...]]:
    return list(repository.query(query)[1])


def chunk_files(repository: Repository) -> list[Path]:
    keys = rows(repository, "SELECT object_key FROM chunks WHERE state = 'committed' ORDER BY id")
    return [Path(repository.settings.store) / key for (key,) in keys]


# Calls


def double(session: Session, part: int) -> int:
    session.progress.advance(1, part)
    session.warn(f"part {part}")
    return 2 * part


def test_calls_report_results_progress_and_events(repository: Repository, processes: Executor) -> None:
    heard = Heard()
    calls = ClusterCalls(repository.with_progress(heard).session, processes)
    assert sorted(calls.run(double, iter(range(10)))) == [(part, 2 * part) for part in range(10)]
    assert sorted(heard.warnings) == [f"part {part}" for part in range(10)]
    assert not calls.interrupted


def test_a_failed_call_is_submitted_again_three_times(repository: Repository) -> None:
    heard = Heard()
    calls = ClusterCalls(repository.with_progress(heard).session, Failing(3), share_password=True)
    assert list(calls.run(double, [1])) == [(1, 2)]
    assert (
        heard.warnings[:3]
        == ["a worker failed, and its work is given to another one: the store does not answer"] * 3
    )
    calls = ClusterCalls(repository.session, Failing(4), share_password=True)
    with pytest.raises(StoreFailed, match="does not answer"):
        list(calls.run(double, [1]))
    calls = ClusterCalls(repository.session, Failing(4, OSError("lost")), share_password=True)
    with pytest.raises(Unavailable, match=r"failed on 4 workers: OSError: lost.*run the same command again"):
        list(calls.run(double, [1]))


def test_an_error_of_all_workers_is_raised_at_once(repository: Repository) -> None:
    executor = Failing(1, AccessDenied("the key is refused"))
    with pytest.raises(AccessDenied):
        list(ClusterCalls(repository.session, executor, share_password=True).run(double, [1]))
    assert executor.submitted == 1


def test_stop_waits_for_the_calls_in_flight(repository: Repository, threads: Executor) -> None:
    done: list[int] = []
    session = repository.with_progress(Following(should_stop=lambda: bool(done))).session
    calls = ClusterCalls(session, threads)
    for part, _ in calls.run(double, iter(range(100))):
        done.append(part)
    assert calls.interrupted
    assert 1 <= len(done) <= 6


def test_abort_cancels_the_calls(repository: Repository, threads: Executor) -> None:
    def abort() -> None:
        raise KeyboardInterrupt

    calls = ClusterCalls(repository.with_progress(Following(should_stop=abort)).session, threads)
    with pytest.raises(KeyboardInterrupt):
        list(calls.run(double, iter(range(100))))


def test_few_items_reach_all_workers_and_many_are_grouped(repository: Repository, threads: Executor) -> None:
    calls = ClusterCalls(repository.session, threads)
    assert [len(group) for group in calls.grouped(range(10), lambda _: 0)] == [1, 1, 1, 1, 2, 2, 2]
    assert [len(group) for group in calls.grouped(range(10), lambda _: 0.5)] == [1, 1, 1, 1, 2, 2, 2]
    assert [len(group) for group in calls.grouped(range(5), lambda _: 1)] == [1] * 5
    sizes = [len(group) for group in calls.grouped(range(2000), lambda _: 0)]
    assert (sum(sizes), max(sizes)) == (2000, 16)


# Checks before the work


def test_refuses_workers_that_do_not_see_the_store(repository: Repository, tmp_path: Path) -> None:
    calls = ClusterCalls(repository.session, Hiding(Path(repository.settings.store)), share_password=True)
    with pytest.raises(Unavailable) as caught:
        calls.check([f"file://{repository.settings.store}"])
    assert re.search(r"^worker .*: does not see the store", caught.value.message)
    assert caught.value.hint == "nothing was done; mend the worker, and run the same command again"


def test_a_problem_of_a_worker_has_one_hint(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CAFCAT_DATABASE_URL", raising=False)
    url = str(repository.settings.database_url)
    settings = replace(repository.settings, database_url=f"{url}{'&' if '?' in url else '?'}password=secret")
    session = replace(repository.session, settings=settings)
    with pytest.raises(Unavailable) as caught:
        ClusterCalls(session, Failing(0)).check([])
    assert caught.value.message.endswith("this worker has no URL of the database, and its password was not sent")
    hint = "nothing was done; set CAFCAT_DATABASE_URL for the workers, or give --share-password"
    assert caught.value.hint == hint


class Deserted(Failing):
    """A cluster without workers."""

    def run_on_each_worker(self, function: Any, *args: Any) -> dict[str, Any]:
        return {}

    def worker_count(self) -> int:
        return 0


def test_refuses_a_cluster_without_workers(repository: Repository) -> None:
    calls = ClusterCalls(repository.session, Deserted(0), share_password=True)
    with pytest.raises(Unavailable, match="no workers; start workers, and run the same command again"):
        calls.check([])


def test_refuses_the_embedded_database(tmp_path: Path) -> None:
    with cafcat.open(home=tmp_path / "embedded") as embedded:
        session = replace(embedded.session, settings=replace(embedded.session.settings, database_url=None))
        with pytest.raises(InvalidInput, match="embedded"):
            ClusterCalls(session, Failing(0)).check([])


class Hiding(Failing):
    """Runs each call while a folder has another name, as on a host that does not have it."""

    def __init__(self, folder: Path) -> None:
        super().__init__(0)
        self._folder = folder

    def submit(self, function: Any, /, *args: Any, **named: Any) -> Any:
        hidden = self._folder.rename(self._folder.with_name("hidden"))
        future = super().submit(function, *args, **named)
        future.exception()
        hidden.rename(self._folder)
        return future


class HidingLater(Hiding):
    """Hides the folder from all calls but the probe."""

    def submit(self, function: Any, /, *args: Any, **named: Any) -> Any:
        if function.__name__ == "probe":
            return Failing.submit(self, function, *args, **named)
        return super().submit(function, *args, **named)


# Verify


def test_processes_verify_chunks(repository: Repository, processes: Executor) -> None:
    damaged, missing, *others = chunk_files(repository)
    flip(damaged, 20)
    missing.unlink()
    report = repository.verify(level="data", executor=processes)
    assert (report.damaged, report.missing, report.ok) == (1, 1, len(others))
    assert report.files_checked > 40
    alone = repository.verify(level="data", restart=True, jobs=1)
    assert replace(report, run=0) == replace(alone, run=0)
    verdicts = "SELECT verdict, count(*) FROM verifications GROUP BY run_id, verdict ORDER BY verdict, run_id"
    assert rows(repository, verdicts) == [
        (verdict, count) for verdict, count in [("damaged", 1), ("missing", 1), ("ok", len(others))] for _ in "ab"
    ]


@pytest.mark.parametrize("after", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_verify_goes_on_after_a_killed_worker(repository: Repository, local: Executor, after: bool) -> None:
    heard = Heard()
    armed = Armed(local, "check", after=after)
    report = repository.with_progress(heard).verify(executor=armed, share_password=True)
    assert report.ok == len(chunk_files(repository))
    assert any("its work is given to another one" in warning for warning in heard.warnings)


def test_verify_continues_after_it_failed(repository: Repository) -> None:
    with pytest.raises(StoreFailed):
        repository.verify(executor=Failing(100), share_password=True)
    report = repository.verify(executor=Failing(1), share_password=True)
    assert (report.resumed, report.ok) == (True, len(chunk_files(repository)))


def test_this_process_checks_what_a_worker_does_not_reach(repository: Repository) -> None:
    damaged, *others = chunk_files(repository)
    damaged.unlink()
    executor = HidingLater(Path(repository.settings.store))
    heard = Heard()
    report = repository.with_progress(heard).verify(executor=executor, share_password=True)
    assert (report.missing, report.ok) == (1, len(others))
    assert [warning for warning in heard.warnings if "does not reach the store" in warning]


def test_a_store_out_of_reach_of_all_has_one_finding(repository: Repository, threads: Executor) -> None:
    store = Path(repository.settings.store)
    store.rename(store.with_name("moved"))
    report = repository.verify(executor=threads)
    assert (report.unreadable, report.missing, report.ok) == (1, 0, 0)


def test_other_levels_are_verified_on_one_host(repository: Repository, threads: Executor) -> None:
    with pytest.raises(InvalidInput, match="one host"):
        repository.verify(level="catalog", executor=threads)


# Copy


def copies(repository: Repository, to: Path) -> list[str]:
    """Return the keys of the committed copies whose objects in a folder have the bytes of their chunks."""
    query = "SELECT object_key FROM chunk_copies WHERE state = 'committed' ORDER BY chunk_id, id"
    store, keys = Path(repository.settings.store), [key for (key,) in rows(repository, query)]
    return [key for key in keys if (to / key).read_bytes() == (store / key).read_bytes()]


def test_processes_copy_chunks(repository: Repository, processes: Executor, tmp_path: Path) -> None:
    files = chunk_files(repository)
    flip(files[3], 20)
    first = rows(repository, "SELECT uuid::text FROM chunks ORDER BY id LIMIT 1")[0][0]
    repository.copy([first], to=tmp_path / "copies")
    copied: list[ChunkCopied] = []
    report = repository.with_progress(Following(on=copied.append)).copy(to=tmp_path / "copies", executor=processes)
    assert (report.copied, report.there, report.damaged, len(report.failed)) == (len(files) - 2, 1, 1, 1)
    assert report.bytes_copied == sum(file.stat().st_size for file in [*files[1:3], *files[4:]])
    assert Counter(event.outcome for event in copied) == {"copied": len(files) - 2, "there": 1}
    assert len(copies(repository, tmp_path / "copies")) == len(files) - 1
    assert not report.interrupted


@pytest.mark.skipif(sys.platform != "linux", reason="sees by /proc that a process is dead")
@pytest.mark.parametrize("after", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_copy_goes_on_after_a_killed_worker(
    repository: Repository, local: Executor, tmp_path: Path, after: bool
) -> None:
    armed = Armed(local, "copy", after=after)
    report = repository.copy(to=tmp_path / "copies", executor=armed, share_password=True)
    assert report.failed == ()
    assert copies(repository, tmp_path / "copies") == [file.name for file in chunk_files(repository)]


def test_copy_continues_after_it_failed(repository: Repository, tmp_path: Path) -> None:
    with pytest.raises(StoreFailed):
        repository.copy(to=tmp_path / "copies", executor=Failing(100), share_password=True)
    report = repository.copy(to=tmp_path / "copies", executor=Failing(2), share_password=True)
    assert (
        report.copied + report.there == len(chunk_files(repository)) == len(copies(repository, tmp_path / "copies"))
    )


def test_copy_stops_when_the_user_wants_it(repository: Repository, threads: Executor, tmp_path: Path) -> None:
    copied: list[ChunkCopied] = []
    asked = Following(should_stop=lambda: bool(copied), on=copied.append)
    report = repository.with_progress(asked).copy(to=tmp_path / "copies", executor=threads)
    assert report.interrupted
    assert 1 <= report.copied < len(chunk_files(repository))
    with pytest.raises(NotFound):
        repository.copy(to=tmp_path / "copies", prefix="nothing", executor=threads)


# Repack


@pytest.fixture
def wasteful(repository: Repository) -> dict[str, bytes]:
    """Remove every second file, and return the others. Each chunk is half dead then."""
    paths = sorted(location.path for location in repository.list())
    repository.rm(paths[::2])
    return dict(repository.read_many(paths[1::2]))


def check_repacked(repository: Repository, kept: dict[str, bytes]) -> None:
    """Check that the catalog has the kept files, and that no old chunk is left."""
    paths = [location.path for location in repository.list()]
    assert dict(repository.read_many(paths)) == kept
    report = repository.verify(level="data", jobs=1)
    assert (report.damaged, report.missing) == (0, 0)


def test_processes_repack_chunks(repository: Repository, wasteful: dict[str, bytes], processes: Executor) -> None:
    old = len(chunk_files(repository))
    planned = repository.repack(max_unused=0.1, dry_run=True)
    report = repository.repack(max_unused=0.1, target_size=TARGET, dry_run=False, executor=processes)
    assert (report.chunks, report.chunks_retired) == (planned.chunks, planned.chunks)
    assert (report.files_moved, report.bytes_moved) == (planned.files_moved, planned.bytes_moved)
    assert report.chunks_written <= old * 0.7
    assert report.failed == []
    check_repacked(repository, wasteful)
    assert repository.repack(max_unused=0.1).chunks == 0


@pytest.mark.skipif(sys.platform != "linux", reason="sees by /proc that a process is dead")
@pytest.mark.slow
@pytest.mark.parametrize("after", [False, True])
def test_repack_goes_on_after_a_killed_worker(
    repository: Repository, wasteful: dict[str, bytes], local: Executor, after: bool
) -> None:
    armed = Armed(local, "commit", after=after)
    options: dict[str, Any] = {"max_unused": 0.1, "target_size": TARGET, "dry_run": False}
    report = repository.repack(**options, executor=armed, share_password=True)
    assert (report.failed, report.taken, report.chunks_retired) == ([], 0, report.chunks)
    check_repacked(repository, wasteful)


def test_repack_continues_after_it_failed(repository: Repository, wasteful: dict[str, bytes]) -> None:
    options: dict[str, Any] = {"max_unused": 0.1, "target_size": TARGET, "dry_run": False, "share_password": True}
    with pytest.raises(StoreFailed):
        repository.repack(**options, executor=Failing(100))
    assert repository.repack(**options, executor=Failing(2)).chunks_retired > 0
    check_repacked(repository, wasteful)
    assert repository.repack(max_unused=0.1).chunks == 0


def test_a_damaged_file_stays_where_it_is(
    repository: Repository, wasteful: dict[str, bytes], threads: Executor
) -> None:
    [(start, key)] = rows(
        repository,
        "SELECT start_byte, object_key FROM file_locations JOIN chunks ON id = caf_file_id "
        "ORDER BY file_path LIMIT 1",
    )
    flip(Path(repository.settings.store) / key, start)
    heard = Heard()
    report = repository.with_progress(heard).repack(max_unused=0.1, dry_run=False, executor=threads)
    assert (report.files_damaged, report.chunks_retired) == (1, report.chunks - 1)
    assert len(heard.problems) == 1


def test_parts_of_a_repack_fill_new_chunks() -> None:
    def parts(sizes: list[int], workers: int) -> list[list[int]]:
        chunks = [
            RewritableChunk(number, UUID(int=number), "s", "k", size + 5, size + 5, size, 1, False, "caf", False)
            for number, size in enumerate(sizes)
        ]
        return [[chunk.size_bytes - 5 for chunk in part] for part in split(chunks, 100, workers)]

    assert parts([40, 40, 40, 40, 40], 2) == [[40, 40], [40, 40, 40]]
    assert parts([40, 40, 90, 150, 30], 2) == [[40, 40], [90], [150, 30]]
    assert parts([50] * 40, 2) == [[50] * 8] * 5
    assert parts([50] * 40, 100) == [[50] * 2] * 20
    assert parts([10], 2) == [[10]]


# Migrate


def check_migrated(repository: Repository, to: Path) -> None:
    """Check that all chunks are in the new store, and that their files can be read there."""
    assert rows(repository, "SELECT DISTINCT store FROM chunks") == [(f"file://{to}",)]
    assert rows(repository, "SELECT DISTINCT state, retired_at IS NOT NULL FROM chunk_copies") == [
        ("committed", True)
    ]
    store = Path(repository.settings.store)
    store.rename(store.with_name("moved"))
    assert sorted(data for _, data in repository.read_many([file.path for file in repository.list()])) == sorted(
        FILES.values()
    )


def test_processes_migrate_chunks(repository: Repository, processes: Executor, tmp_path: Path) -> None:
    files = chunk_files(repository)
    migrated: list[ChunkMigrated] = []
    report = repository.with_progress(Following(on=migrated.append)).migrate_store(
        repository.settings.store, str(tmp_path / "new"), executor=processes
    )
    assert (report.chunks, report.failed, report.left, report.interrupted) == (len(files), (), 0, False)
    assert report.size_bytes == sum(file.stat().st_size for file in files)
    assert sum(isinstance(event, ChunkMigrated) for event in migrated) == len(files)
    check_migrated(repository, tmp_path / "new")


def test_migration_leaves_a_damaged_chunk(repository: Repository, threads: Executor, tmp_path: Path) -> None:
    files = chunk_files(repository)
    flip(files[0], 20)
    report = repository.migrate_store(repository.settings.store, str(tmp_path / "new"), executor=threads)
    assert (report.chunks, report.left, len(report.failed)) == (len(files) - 1, 1, 1)


@pytest.mark.skipif(sys.platform != "linux", reason="sees by /proc that a process is dead")
@pytest.mark.slow
@pytest.mark.parametrize(("moment", "after"), [("copy", False), ("copy", True), ("switch", True)])
def test_migration_goes_on_after_a_killed_worker(
    repository: Repository, local: Executor, tmp_path: Path, moment: str, after: bool
) -> None:
    armed = Armed(local, moment, after=after)
    report = repository.migrate_store(
        repository.settings.store, str(tmp_path / "new"), executor=armed, share_password=True
    )
    assert (report.failed, report.left) == ((), 0)
    check_migrated(repository, tmp_path / "new")


def test_migration_continues_after_it_failed(repository: Repository, tmp_path: Path) -> None:
    old, new = repository.settings.store, str(tmp_path / "new")
    with pytest.raises(StoreFailed):
        repository.migrate_store(old, new, executor=Failing(100), share_password=True)
    repository.migrate_store(old, new, executor=Failing(2), share_password=True)
    check_migrated(repository, tmp_path / "new")


# Extract


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


@pytest.fixture
def tree(out: Path, tmp_path: Path) -> Path:
    """The folder of the extracted files."""
    return out / str(tmp_path / "tree")[1:]


def check_extracted(tree: Path) -> None:
    assert {f"tree/{path.name}": path.read_bytes() for path in tree.iterdir()} == FILES


def names(problems: Sequence[FileProblem]) -> list[tuple[str, ProblemKind]]:
    return [(Path(problem.path).name, problem.kind) for problem in problems]


@pytest.fixture
def few_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call of the coordinator extracts at most ten files."""
    monkeypatch.setattr("cafcat.reading.tree_files.PLANNED_FILES", 10)


@pytest.mark.usefixtures("few_at_once")
def test_workers_extract_files(repository: Repository, processes: Executor, out: Path, tree: Path) -> None:
    heard = Heard()
    report = repository.with_progress(heard).extract("", out, executor=processes)
    assert report == ExtractReport(len(FILES), sum(map(len, FILES.values())))
    assert heard.problems == []
    check_extracted(tree)


@pytest.mark.usefixtures("few_at_once")
def test_extract_leaves_files_with_the_same_content(
    repository: Repository, threads: Executor, out: Path, tree: Path
) -> None:
    repository.extract("", out, executor=threads)
    (tree / "007").unlink()
    (tree / "011").write_bytes(b"other")
    (tree / "012").write_bytes(FILES["tree/012"][::-1])
    report = repository.extract("", out, executor=threads)
    assert (report.files, report.files_there, report.files_failed) == (1, len(FILES) - 3, 2)
    assert sorted(names(report.failed)) == [("011", ProblemKind.EXISTS), ("012", ProblemKind.EXISTS)]
    assert (tree / "011").read_bytes() == b"other"
    assert (tree / "007").read_bytes() == FILES["tree/007"]


@pytest.mark.usefixtures("few_at_once")
@pytest.mark.skipif(sys.platform != "linux", reason="sees by /proc that a process is dead")
@pytest.mark.slow
@pytest.mark.parametrize("after", [False, True])
def test_extract_goes_on_after_a_killed_worker(
    repository: Repository, local: Executor, out: Path, tree: Path, after: bool
) -> None:
    armed = Armed(local, "extract", after=after)
    report = repository.extract("", out, executor=armed, share_password=True)
    assert (report.files + report.files_there, report.files_failed) == (len(FILES), 0)
    check_extracted(tree)


def test_extract_reports_damaged_files(repository: Repository, threads: Executor, out: Path) -> None:
    chunk = chunk_files(repository)[0]
    chunk.write_bytes(chunk.read_bytes().replace(FILES["tree/000"], FILES["tree/000"][::-1]))
    report = repository.extract("", out, executor=threads)
    assert names(report.failed) == [("000", ProblemKind.CORRUPT)]
    assert report.files == len(FILES) - 1


def test_extract_of_a_missing_folder(repository: Repository, threads: Executor, out: Path) -> None:
    with pytest.raises(NotFound):
        repository.extract("nothing", out, executor=threads)


@pytest.mark.parametrize("choice", ["prefix", "include", "paths"])
def test_extract_needs_only_the_stores_of_its_files(
    repository: Repository, threads: Executor, out: Path, tmp_path: Path, choice: str
) -> None:
    (tmp_path / "tree2").mkdir()
    (tmp_path / "tree2" / "x").write_bytes(b"x")
    for name, prefix in [("first", "a"), ("dead", "b")]:
        with cafcat.open(
            database_url=repository.settings.database_url,
            home=repository.settings.home,
            store=str(tmp_path / name),
        ) as other:
            other.ingest([tmp_path / "tree2"], prefix=prefix)
            other.copy(to=tmp_path / f"copies of {name}", prefix=prefix)
    repository.rm(folders=["b"])
    repository.prune(grace_seconds=0)  # the catalog has no object any more in the dead store
    shutil.rmtree(tmp_path / "dead")
    shutil.rmtree(tmp_path / "copies of first")
    path = f"a{tmp_path}/tree2/x"
    given: dict[str, Any] = {"prefix": {"prefix": "a"}, "include": {"include": ["x"]}, "paths": {"paths": [path]}}
    report = repository.extract(**{"prefix": "", **given[choice]}, directory=out, executor=threads)
    assert (report.files, report.files_failed) == (1, 0)
    assert (out / path).read_bytes() == b"x"


def test_extract_on_workers_reads_the_copies_of_a_dead_store(
    repository: Repository, processes: Executor, out: Path, tree: Path, tmp_path: Path
) -> None:
    repository.copy(to=tmp_path / "copies")
    shutil.rmtree(repository.settings.store)
    with pytest.raises(
        Unavailable, match=r"does not see the store file://.*/copies: .*run the same command again$"
    ):
        repository.extract("", out, executor=Hiding(tmp_path / "copies"), share_password=True)
    assert repository.extract("", out, executor=processes).files == len(FILES)
    check_extracted(tree)


def test_extract_refuses_workers_with_another_folder(repository: Repository, out: Path) -> None:
    executor = Elsewhere(out, during_probe=True)
    with pytest.raises(Unavailable, match=r"has another folder at .*out"):
        repository.extract("", out, executor=executor, share_password=True)


# Rebuild


@pytest.fixture
def lost(repository: Repository, databases: Databases, tmp_path: Path) -> Iterator[Repository]:
    """An empty catalog, beside the store of the other one."""
    with (
        databases.fresh(databases.template()) as url,
        cafcat.open(database_url=url, home=tmp_path / "home2", store=repository.settings.store) as lost,
    ):
        yield lost


def test_workers_rebuild_a_catalog(
    repository: Repository, lost: Repository, processes: Executor, tmp_path: Path
) -> None:
    repository.rm([str(tmp_path / "tree/005")[1:]])
    report = lost.rebuild(executor=processes)
    assert report.written
    assert report.damage_count == 0
    assert report.files == len(FILES) - 1
    assert lost.compare(repository.settings.database_url or "").equal


def test_rebuild_is_not_stopped_halfway(lost: Repository, threads: Executor) -> None:
    report = lost.with_progress(Following(should_stop=lambda: True)).rebuild(executor=threads)
    assert (report.written, report.files) == (True, len(FILES))


def test_rebuild_of_a_damaged_chunk_is_refused(repository: Repository, lost: Repository, threads: Executor) -> None:
    damaged = chunk_files(repository)[3]
    damaged.write_bytes(damaged.read_bytes()[:-30])
    report = lost.rebuild(executor=threads)
    assert (report.written, report.lost_count) == (False, 1)
    report = lost.rebuild(executor=threads, accept_loss=True)
    assert report.written
    assert report.files < len(FILES)


def test_rebuild_reads_again_what_a_worker_misses(repository: Repository, lost: Repository) -> None:
    """The workers have another folder at the path of the store, and so find no object there."""
    executor = Elsewhere(Path(repository.settings.store), during_probe=False)
    report = lost.rebuild(executor=executor, share_password=True)
    assert (report.written, report.damage_count, report.files) == (True, 0, len(FILES))


@pytest.mark.skipif(sys.platform != "linux", reason="sees by /proc that a process is dead")
@pytest.mark.slow
@pytest.mark.parametrize("after", [False, True])
def test_rebuild_goes_on_after_a_killed_worker(
    repository: Repository, lost: Repository, local: Executor, after: bool
) -> None:
    report = lost.rebuild(executor=Armed(local, "rebuild", after=after), share_password=True)
    assert (report.written, report.damage_count, report.files) == (True, 0, len(FILES))
    assert lost.compare(repository.settings.database_url or "").equal


def test_a_mapping_is_the_same_after_pickle() -> None:
    mapping = Mapping(7)
    mapping.set_source(3)
    mapping.add(Entry("a", 0, 5, 1, None), "etag")
    mapping.add(Entry("b/ü", 5, 9, 2, 1_000_000_000))
    copy = pickle.loads(pickle.dumps(mapping))  # noqa: S301
    assert b"".join(copy.blocks()) == b"".join(mapping.blocks())
    assert list(copy.paths()) == ["a", "b/ü"]
    for name in ("file_count", "size_bytes", "last_path", "ascending"):
        assert getattr(copy, name) == getattr(mapping, name)
    copy.add(Entry("c", 9, 10, 3, 0))
    mapping.add(Entry("c", 9, 10, 3, 0))
    assert b"".join(copy.blocks()) == b"".join(mapping.blocks())
