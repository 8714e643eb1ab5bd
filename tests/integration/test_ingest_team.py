"""Ingest by several workers has the results of a single process, even if the workers die, stop or fail."""

import os
import random
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

import cafcat
import cafcat.operations.ingest.coordinator
import cafcat.operations.ingest.worker_pool
from cafcat.catalog.catalog import Catalog
from cafcat.catalog.database_url import DatabaseUrl
from cafcat.errors import CatalogLocked, Conflict, InvalidInput, StoreFailed, Unavailable
from cafcat.model import ChunkState, OnConflict, ProblemKind, RunState
from cafcat.reports import IngestReport
from cafcat.support.checksums import crc32c
from cafcat.support.workers import WorkerPipe, Workers
from tests.worlds.listeners import Following, Heard
from tests.worlds.native import needs_library

ONLY_THREADS = pytest.mark.parametrize("kind", [pytest.param("threads", marks=needs_library)], indirect=True)
ONLY_PROCESSES = pytest.mark.parametrize("kind", ["processes"], indirect=True)
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="finds processes by /proc")

FILES = 4_400
LARGE_BYTES = 5_000_000


@pytest.fixture(params=["processes", pytest.param("threads", marks=needs_library)], autouse=True)
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """What two workers are. Without this fixture, they are threads wherever there is the native part."""
    if request.param == "processes":
        monkeypatch.setattr(cafcat.operations.ingest.coordinator, "_MOST_THREADS", 0)
    return str(request.param)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def repository(database_url: str, tmp_path: Path, store: Path) -> Iterator[cafcat.Repository]:
    with cafcat.open(database_url=database_url, home=tmp_path / "home", store=str(store)) as repository:
        yield repository


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tree with enough files for several processes."""
    monkeypatch.chdir(tmp_path)
    tree = tmp_path / "tree"
    for number in range(FILES):
        file = tree / f"d{number // 100:03}" / f"f{number:05}"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"%d " % number * (number % 50))
    (tree / "large").write_bytes(random.randbytes(LARGE_BYTES))
    (tree / "link").symlink_to("large")
    return tree


def contents(tree: Path) -> dict[str, bytes]:
    files = (path for path in tree.rglob("*") if path.is_file() and not path.is_symlink())
    return {str(path.relative_to(tree.parent)): path.read_bytes() for path in files}


def check(repository: cafcat.Repository, store: Path, expected: dict[str, bytes]) -> None:
    """Check that the catalog has exactly these files and their bytes, and that the store has no other objects."""
    chunks = {chunk.object_key: (store / chunk.object_key).read_bytes() for chunk in committed(repository)}
    found = {}
    for location in repository.list():
        found[location.path] = chunks[location.object_key][location.start_byte : location.end_byte]
        assert crc32c(found[location.path]) == location.crc32c
    assert found == expected
    retired = {chunk.object_key for chunk in repository.chunks(ChunkState.RETIRED)}
    assert {path.name for path in store.glob("*.caf*")} == set(chunks) | retired
    assert list(repository.session.catalog.reports.findings()) == []


def committed(repository: cafcat.Repository) -> list[cafcat.model.Chunk]:
    return list(repository.chunks(ChunkState.COMMITTED))


def packers(parent: int | None = None) -> list[int]:
    """Return the packing processes of a parent, by default of this process."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            status, command = (folder / "stat").read_text(), (folder / "cmdline").read_text()
        except OSError:
            continue
        above = int(status.rpartition(")")[2].split()[1])
        if "cafcat.operations.ingest.worker" in command and above == (parent or os.getpid()):
            found.append(int(folder.name))
    return found


def count_of_threads() -> int:
    return sum(thread.name == "cafcat-worker" for thread in threading.enumerate())


@ONLY_THREADS
def test_a_paused_run_begins_no_further_file(
    repository: cafcat.Repository, tree: Path, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker has got all files before the pause."""
    monkeypatch.setattr("cafcat.operations.shared_limits.RENEW_SECONDS", 0.05)
    monkeypatch.setattr(cafcat.operations.ingest.coordinator, "_WORKER_FILES", 1)
    paused = threading.Event()
    reports = []
    with cafcat.open(database_url=database_url, home=tree.parent / "other") as other:

        def pause() -> None:
            other.pause_run(other.runs(1)[0].id)
            paused.set()

        heard = repository.with_progress(Once(1, pause))
        ingest = threading.Thread(
            target=lambda: reports.append(heard.ingest(["tree/d001"], jobs=2, target_size=500)), daemon=True
        )
        ingest.start()
        assert paused.wait(60)
        time.sleep(0.3)
        files = other.stats().files
        time.sleep(1)
        assert files == other.stats().files < 100
        other.resume_run(other.runs(1)[0].id)
        ingest.join(60)
    assert reports[0].files_added == 100


def test_without_further_connections_no_worker_starts_by_default(
    repository: cafcat.Repository, tree: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nowhere = Catalog(DatabaseUrl("postgresql://127.0.0.1:1/none"))
    monkeypatch.setattr(Catalog, "_copy", lambda _: nowhere)
    monkeypatch.setattr(cafcat.operations.ingest.coordinator, "_WORKER_SECONDS", 0.0)
    repository.ingest(["tree"], jobs=None)
    assert len(committed(repository)) == 1
    check(repository, store, contents(tree))


class Once(Heard):
    """Calls a function when this number of files is packed."""

    def __init__(self, after: int, act: Callable[[], object]) -> None:
        super().__init__()
        self.files = 0
        self.chunks: list[str] = []
        self._after, self._act = after, act

    def advance(self, files: int, size_bytes: int) -> None:
        self.files += files
        if self.files >= self._after and self._act is not None:
            act, self._act = self._act, lambda: None
            act()

    def chunk_committed(self, chunk: str, files: int, size_bytes: int) -> None:
        self.chunks.append(chunk)


def test_several_workers_pack_all_files(repository: cafcat.Repository, tree: Path, store: Path, kind: str) -> None:
    started: list[int] = []
    recorder = Once(1, lambda: started.append(len(packers()) or count_of_threads()))
    report = repository.with_progress(recorder).ingest(["tree"], jobs=2)
    expected = contents(tree)
    assert (report.files_added, report.files_skipped, report.files_failed) == (FILES + 1, 1, 0)
    assert report.bytes_added == sum(map(len, expected.values()))
    assert report.chunks_committed == len(committed(repository)) == 2
    assert started == [2]
    assert recorder.files == FILES + 1
    assert [problem.kind for problem in recorder.problems] == [ProblemKind.SYMLINK]
    check(repository, store, expected)
    run = repository.runs(1)[0]
    assert (run.state, run.files_added) == (RunState.FINISHED, FILES + 1)
    assert packers() == []
    assert count_of_threads() == 0
    assert repository.verify(level="data", jobs=1).damaged == 0
    assert repository.ingest(["tree"], jobs=2).files_unchanged == FILES + 1


def test_chunks_have_the_target_size(repository: cafcat.Repository, tree: Path, store: Path) -> None:
    repository.ingest(["tree"], jobs=3, target_size=100_000)
    assert all((chunk.size_bytes or 0) <= 100_000 for chunk in committed(repository) if chunk.file_count != 1)
    check(repository, store, contents(tree))


def test_sources_with_equal_paths(repository: cafcat.Repository, tree: Path, store: Path) -> None:
    """Sources come in any order, also after files that only the leading process packs.

    The catalog decides repeats.
    """
    (tree.parent / "small").mkdir()
    (tree.parent / "small" / "x").write_bytes(b"x")
    subprocess.run(["tar", "cf", "t.tar", "tree/d000", "small"], cwd=tree.parent, check=True)
    report = repository.ingest(["small", "tree", "t.tar", "tree/d001", "tree", "small"], jobs=2)
    assert report.files_failed == 0
    assert report.files_added == FILES + 2
    check(repository, store, contents(tree) | {"small/x": b"x"})


# Each of the two processes gets about 2,000 files. One that has committed all of them may die without an error.
@ONLY_PROCESSES
@pytest.mark.parametrize("after", [1, 700, 1400])
def test_dead_worker_loses_only_its_open_chunk(
    repository: cafcat.Repository, tree: Path, store: Path, after: int
) -> None:
    def kill() -> None:
        os.kill(packers()[0], signal.SIGKILL)

    with pytest.raises(Unavailable, match="a process of ingest died"):
        repository.with_progress(Once(after, kill)).ingest(["tree"], jobs=2, target_size=60_000)
    assert packers() == []
    run = repository.runs(1)[0]
    assert run.state is RunState.FAILED
    assert run.chunks_committed == len(committed(repository))
    repository.recover()
    assert repository.ingest(["tree"], jobs=2).files_failed == 0
    check(repository, store, contents(tree))


@ONLY_PROCESSES
def test_a_chunk_counts_that_a_dead_worker_did_not_report(
    repository: cafcat.Repository, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker can be killed after the commit of a chunk, and before its message about the chunk."""
    receive = Workers.receive

    def without_reports(workers: Workers, pipe: WorkerPipe) -> tuple[str, object]:
        kind, value = receive(workers, pipe)
        return ("advance", (0, 0)) if kind == "report" else (kind, value)

    monkeypatch.setattr(Workers, "receive", without_reports)
    with pytest.raises(Unavailable) as raised:
        repository.with_progress(Once(1400, lambda: os.kill(packers()[0], signal.SIGKILL))).ingest(
            ["tree"], jobs=2, target_size=60_000
        )
    run = repository.runs(1)[0]
    files = len(list(repository.list()))
    assert (run.chunks_committed, run.files_added) == (len(committed(repository)), files)
    assert isinstance(raised.value.report, IngestReport)
    assert raised.value.report.files_added == files > 0


def test_its_workers_wait_for_a_lock_for_a_limited_time(
    repository: cafcat.Repository, tree: Path, store: Path, database_url: str, tmp_path: Path
) -> None:
    with psycopg.connect(database_url) as holder:
        holder.execute("LOCK TABLE file_locations IN SHARE MODE")
        options = {"database_url": database_url, "home": tmp_path / "home", "store": str(store), "lock_timeout": 1}
        with cafcat.open(**options) as other, pytest.raises(CatalogLocked, match=str(holder.info.backend_pid)):
            other.ingest(["tree"], jobs=2)
    assert packers() == []
    repository.recover()
    assert repository.ingest(["tree"], jobs=2).files_failed == 0
    check(repository, store, contents(tree))


@ONLY_PROCESSES
@pytest.mark.parametrize("delay", [0.0, 0.3, pytest.param(0.6, marks=pytest.mark.slow)])
def test_when_the_leading_process_is_killed_the_others_end(
    repository: cafcat.Repository, tree: Path, store: Path, database_url: str, tmp_path: Path, delay: float
) -> None:
    command = [sys.executable, "-m", "cafcat", "--home", str(tmp_path / "home"), "ingest", "tree", "-q", "-j", "3"]
    environment = os.environ | {
        "CAFCAT_DATABASE_URL": database_url,
        "CAFCAT_STORE": str(store),
        "PYTHONPATH": str(Path(cafcat.__file__).parents[1]),
    }
    process = subprocess.Popen([*command, "--target-size", "60kB"], env=environment, cwd=tree.parent)
    while not (workers := packers(process.pid)) and process.poll() is None:
        time.sleep(0.01)
    time.sleep(delay)
    process.kill()
    process.wait()
    while any(is_alive(worker) for worker in workers):
        time.sleep(0.05)
    repository.recover()
    expected = contents(tree)
    found = {location.path for location in repository.list()}
    check(repository, store, {path: data for path, data in expected.items() if path in found})
    assert repository.ingest(["tree"], jobs=2).files_failed == 0
    check(repository, store, expected)


def is_alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("after", [1, 2000])
def test_stopped_ingest_commits_packed_files(
    repository: cafcat.Repository, tree: Path, store: Path, after: int
) -> None:
    recorder = Once(1, lambda: None)
    report = repository.with_progress(
        Following(progress=recorder, should_stop=lambda: recorder.files >= after)
    ).ingest(
        ["tree"],
        jobs=2,
    )
    assert report.interrupted
    assert repository.runs(1)[0].state is RunState.INTERRUPTED
    expected = contents(tree)
    found = {location.path for location in repository.list()}
    assert len(found) == report.files_added < len(expected)
    check(repository, store, {path: data for path, data in expected.items() if path in found})
    rest = repository.ingest(["tree"], jobs=2)
    assert (rest.files_unchanged, rest.files_added) == (len(found), len(expected) - len(found))
    check(repository, store, expected)


def test_interrupted_ingest_leaves_nothing(repository: cafcat.Repository, tree: Path, store: Path) -> None:
    recorder = Once(1, lambda: None)

    def stop() -> bool:
        if recorder.files:
            raise KeyboardInterrupt
        return False

    with pytest.raises(KeyboardInterrupt):
        repository.with_progress(Following(progress=recorder, should_stop=stop)).ingest(
            ["tree"],
            jobs=2,
        )
    assert packers() == []
    assert {chunk.state for chunk in repository.chunks()} <= {ChunkState.ABANDONED}
    check(repository, store, {})


def test_report_counts_chunks_committed_before_an_interrupt(
    repository: cafcat.Repository, tree: Path, store: Path
) -> None:
    recorder = Once(1, lambda: None)

    def stop() -> bool:
        if recorder.files > 2000:
            raise KeyboardInterrupt
        return False

    with pytest.raises(KeyboardInterrupt):
        repository.with_progress(Following(progress=recorder, should_stop=stop)).ingest(
            ["tree"],
            jobs=2,
            target_size=30_000,
        )
    run = repository.runs(1)[0]
    assert run.state is RunState.INTERRUPTED
    assert run.chunks_committed == len(committed(repository)) == len(recorder.chunks) > 0
    assert run.files_added == len(list(repository.list()))


@ONLY_PROCESSES
def test_workers_ignore_signals_to_the_process_group(
    repository: cafcat.Repository, tree: Path, store: Path
) -> None:
    """`systemctl stop` signals all processes. The workers finish their open chunks."""
    recorder = Once(500, lambda: [os.kill(worker, signal.SIGTERM) for worker in packers()])
    report = repository.with_progress(
        Following(progress=recorder, should_stop=lambda: recorder.files >= 500)
    ).ingest(
        ["tree"],
        jobs=2,
    )
    assert report.interrupted
    assert report.files_added == len(list(repository.list())) > 0


@pytest.mark.parametrize("slow", [False, True])
def test_error_of_a_worker_is_raised(repository: cafcat.Repository, tree: Path, store: Path, slow: bool) -> None:
    """The size of files is limited, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (3_000_000, hard))
    try:
        with pytest.raises(StoreFailed, match="File too large"):
            repository.with_progress(Following(should_stop=lambda: bool(slow and time.sleep(0.3)))).ingest(
                ["tree"], jobs=2
            )
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    found = {location.path for location in repository.list()}  # committed before by the other process
    assert "tree/large" not in found
    check(repository, store, {path: data for path, data in contents(tree).items() if path in found})


def test_error_of_one_worker_ends_all(
    repository: cafcat.Repository, tree: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another run commits one of the paths before the workers commit, which on_conflict=FAIL forbids."""
    victim = "tree/d043/f04399"
    pool = cafcat.operations.ingest.worker_pool.WorkerPool
    real = pool.finish

    def commit(*arguments: object) -> None:
        with cafcat.open(repository.settings) as other:
            other.ingest([victim], jobs=1)
        real(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr(pool, "finish", commit)
        with pytest.raises(Conflict, match="another command committed a file with this path") as raised:
            repository.ingest(["tree"], jobs=2, on_conflict=OnConflict.FAIL)
    assert raised.value.path == victim
    assert repository.runs(2)[1].state is RunState.FAILED
    repository.recover()
    assert repository.read(victim) == Path(victim).read_bytes()
    rest = repository.ingest(["tree"], jobs=2)
    assert rest.files_failed == 0
    check(repository, store, contents(tree))


def test_problems_of_single_files_are_events(
    repository: cafcat.Repository, tree: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some files vanish after they were listed."""
    gone = [tree / f"d0{n}" / f"f0{n}50" for n in range(10, 40)]
    real = cafcat.operations.ingest.worker_pool.WorkerPool._assign

    def vanish(*arguments: object) -> None:
        for file in gone:
            file.unlink(missing_ok=True)
        real(*arguments)

    monkeypatch.setattr(cafcat.operations.ingest.worker_pool.WorkerPool, "_assign", vanish)
    recorder = Once(1, lambda: None)
    report = repository.with_progress(recorder).ingest(["tree"], jobs=2)
    assert {problem.kind for problem in recorder.problems} == {ProblemKind.SYMLINK, ProblemKind.VANISHED}
    assert report.files_failed == 0 or report.files_failed == len(gone)
    assert report.files_failed + report.files_skipped == len(gone) + 1
    check(repository, store, contents(tree))


def test_no_jobs_are_refused(repository: cafcat.Repository, tree: Path) -> None:
    with pytest.raises(InvalidInput, match="--jobs must be at least 1"):
        repository.ingest(["tree"], jobs=0)
