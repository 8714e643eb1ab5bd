"""repack moves live files and changes nothing else, even with concurrent operations and kills."""

import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

import cafcat
from cafcat.catalog.chunks.rewriting import RewritableChunk
from cafcat.errors import InvalidInput, NotFound, StoreFailed
from cafcat.formats.caf.format import CAF
from cafcat.model import Entry, OnConflict
from cafcat.operations import chunk_contents as reading
from cafcat.operations.chosen_stores import store_to_write
from cafcat.operations.repack.options import RepackOptions
from cafcat.operations.repack.report import RepackReport
from cafcat.operations.repack.run import Repack
from cafcat.operations.rewriting import Rewriter, chunk_target, live_files
from cafcat.progress import Progress
from cafcat.stores.local.files import LocalFile
from cafcat.writing.chunk import ChunkTarget, OpenChunk
from cafcat.writing.limits import Limits
from tests.worlds.catalog_world import MODIFIED, Opener, commit, sql, state_of
from tests.worlds.kills.killing import killed_at_each_step
from tests.worlds.kills.meanwhile import in_background, wait_for_a_waiting_statement
from tests.worlds.listeners import AfterFiles, Following, Heard, follow, problems
from tests.worlds.places import Folder, Place
from tests.worlds.removal_world import check, rebuilt
from tests.worlds.waiting import PATIENCE_SECONDS

CONTENT = random.Random(1)
LARGE = CONTENT.randbytes(2_500_000)
FILES = {f"{number:03}": CONTENT.randbytes(1000 + number) for number in range(40)} | {"large": LARGE, "empty": b""}
KEPT = {path: content for path, content in FILES.items() if path in ("001", "002", "007", "empty", "large")}


def wasted(repository: cafcat.Repository, files: dict[str, bytes] = FILES, kept: dict[str, bytes] = KEPT) -> str:
    """Commit a chunk of which only some files stay live, and return its uuid."""
    chunk = commit(repository, files)
    repository.rm([path for path in files if path not in kept])
    return chunk


def repack(repository: cafcat.Repository, **options: Any) -> RepackReport:
    return follow(repository, options).repack(**{"max_unused": 0.0} | options)


def chunks_of(repository: cafcat.Repository) -> dict[str, str]:
    """Return the chunk of each live path."""
    rows = sql(repository, "SELECT file_path, uuid::text FROM file_locations JOIN chunks ON id = caf_file_id")
    return dict(rows)


def test_live_files_move_and_their_chunks_retire(repository: cafcat.Repository, place: Place) -> None:
    first = wasted(repository)
    second = wasted(repository, {"b/1": b"one", "b/2": b"two" * 9000}, {"b/2": b"two" * 9000})
    whole = commit(repository, {"c": b"whole"})
    sql(repository, "UPDATE file_locations SET source_etag = 'tag of ' || file_path")
    described = (
        "SELECT file_path, end_byte - start_byte, crc32c, modified_at, source_etag FROM file_locations ORDER BY 1"
    )
    before = sql(repository, described)
    chosen: list[RewritableChunk] = []
    report = repack(repository, on_chosen=chosen.append)
    assert {chunk.chunk for chunk in chosen} == {first, second}
    assert (report.chunks, report.chunks_retired, report.chunks_written) == (2, 2, 1)
    assert (report.files_moved, report.files_changed, report.files_damaged) == (len(KEPT) + 1, 0, 0)
    assert report.bytes_moved == sum(map(len, KEPT.values())) + 27000
    assert sql(repository, described) == before
    assert check(repository, place) == KEPT | {"b/2": b"two" * 9000, "c": b"whole"}
    assert [state_of(repository, chunk) for chunk in (first, second, whole)] == ["retired", "retired", "committed"]
    assert {reason for (reason,) in sql(repository, "SELECT DISTINCT reason FROM retired_locations")} == {
        "removed",
        "moved",
    }
    assert repack(repository).chunks == 0


def test_the_new_chunk_has_the_times_of_the_files(local: cafcat.Repository, folder: Folder) -> None:
    wasted(local)
    repack(local)
    new = chunks_of(local)["001"]
    entries = list(CAF.reader(LocalFile(str(folder.folder / f"{new}.caf"))).entries())
    assert {entry.path for entry in entries} == set(KEPT)
    assert {entry.modified_ns for entry in entries} == {MODIFIED}


def test_removed_file_is_restored_from_the_old_chunk(local: cafcat.Repository, folder: Folder) -> None:
    old = wasted(local)
    repack(local)
    assert local.undelete(["003"]).files == 1
    assert state_of(local, old) == "committed"
    assert check(local, folder) == KEPT | {"003": FILES["003"]}


def test_a_dry_run_changes_nothing(repository: cafcat.Repository, place: Place) -> None:
    old = wasted(repository)
    before = place.everything()
    report = repack(repository, dry_run=True)
    assert (report.chunks, report.files_moved, report.chunks_written) == (1, len(KEPT), 0)
    assert report.bytes_moved == sum(map(len, KEPT.values()))
    assert report.bytes_dead == sum(map(len, FILES.values())) - report.bytes_moved
    assert place.everything() == before
    assert state_of(repository, old) == "committed"


def shares(repository: cafcat.Repository) -> list[str]:
    """Commit chunks of 10 kB with 10, 50 and 30 per cent of dead bytes."""
    chunks = []
    for number, dead in enumerate((1, 5, 3)):
        files = {f"{number}/{part}": bytes(1000) for part in range(10)}
        chunks.append(wasted(repository, files, dict(list(files.items())[dead:])))
    return chunks


def chosen(repository: cafcat.Repository, **options: Any) -> list[str]:
    found: list[RewritableChunk] = []
    repository.with_progress(Following(on=found.append)).repack(dry_run=True, **options)
    return [chunk.chunk for chunk in found]


def test_which_chunks_are_chosen(local: cafcat.Repository, open_at: Opener, tmp_path: Path) -> None:
    ten, fifty, thirty = shares(local)
    assert chosen(local) == [fifty, thirty]
    assert chosen(local, max_unused=0.0) == [fifty, thirty, ten]
    assert chosen(local, max_unused=0.3) == [fifty]
    assert chosen(local, max_unused=0.5) == []
    assert chosen(local, max_unused=0.0, max_repack_size=12_000) == [fifty, thirty]
    assert chosen(local, max_unused=0.0, max_repack_size=6_999) == [fifty]
    assert chosen(local, max_unused=0.0, max_repack_size=4_999) == []
    assert chosen(local, chunks=[ten[:8]]) == [ten]
    assert chosen(local, store=local.settings.store) == [fifty, thirty]
    report = repack(local, max_repack_size=12_000, dry_run=True)
    assert (report.chunks, report.waiting) == (2, 1)
    other = open_at(Folder(tmp_path / "other"))
    commit(other, {"elsewhere": b"live"})
    assert chosen(other, store=other.settings.store) == []
    with pytest.raises(NotFound):
        chosen(local, chunks=["0" * 8])
    repack(local)
    with pytest.raises(InvalidInput, match="no path points to it"):
        chosen(local, chunks=[fifty])


def test_small_chunks_are_merged(local: cafcat.Repository, folder: Folder, open_at: Opener, tmp_path: Path) -> None:
    small = [commit(local, {f"{number}": b"x" * 100}) for number in range(3)]
    large = commit(local, {"large": bytes(10_000)})
    alone = open_at(Folder(tmp_path / "other"))
    commit(alone, {"alone": b"alone"})
    assert chosen(local) == []
    assert set(chosen(local, small=1000)) == set(small)
    report = repack(local, small=1000)
    assert (report.chunks, report.chunks_written) == (3, 1)
    assert len(set(chunks_of(local).values())) == 3
    assert state_of(local, large) == "committed"
    assert repack(local, small=1000).chunks == 0
    assert len(check(local, folder, Folder(tmp_path / "other"))) == 5


def test_each_store_keeps_its_files(
    local: cafcat.Repository, folder: Folder, open_at: Opener, tmp_path: Path
) -> None:
    second = Folder(tmp_path / "other")
    wasted(local)
    wasted(open_at(second), {"b/1": b"one", "b/2": b"two"}, {"b/2": b"two"})
    assert repack(local).chunks_written == 2
    stores = dict(sql(local, "SELECT file_path, store FROM file_locations JOIN chunks ON id = caf_file_id"))
    assert stores == {"b/2": second.url} | dict.fromkeys(KEPT, folder.url)
    assert check(local, folder, second) == KEPT | {"b/2": b"two"}


def test_a_chunk_of_another_store_is_refused(
    local: cafcat.Repository, folder: Folder, open_at: Opener, tmp_path: Path
) -> None:
    chunk = wasted(local)
    other = Folder(tmp_path / "other")
    commit(open_at(other), {"b": b"1"})
    with pytest.raises(InvalidInput, match="is in the store"):
        local.repack(chunks=[chunk], store=other.url, dry_run=True)
    assert local.repack(chunks=[chunk], store=folder.url, dry_run=True).chunks == 1


def test_missing_store_fails_alone(
    local: cafcat.Repository, folder: Folder, open_at: Opener, tmp_path: Path
) -> None:
    second = Folder(tmp_path / "other")
    gone = wasted(open_at(second), {"b/1": b"one", "b/2": b"two"}, {"b/2": b"two"})
    wasted(local)
    second.folder.rename(tmp_path / "unmounted")
    report = repack(local)
    assert (report.chunks, report.chunks_retired, report.files_damaged) == (2, 1, 0)
    assert len(report.failed) == 1
    assert second.url in report.failed[0]
    assert not second.folder.exists()
    assert state_of(local, gone) == "committed"


def test_new_chunks_obey_the_target_size(local: cafcat.Repository, folder: Folder) -> None:
    wasted(local)
    with pytest.raises(InvalidInput):
        repack(local, target_size=0)
    report = repack(local, target_size=4000)
    sizes = [size for (size,) in sql(local, "SELECT size_bytes FROM chunks WHERE moves_from IS NOT NULL")]
    assert len(sizes) == report.chunks_written > 2
    assert all(size <= 4000 or size > len(LARGE) for size in sizes)
    assert sum(sizes) == report.bytes_written
    assert check(local, folder) == KEPT


def damage(folder: Folder, chunk: str, content: bytes, at: int = -1) -> None:
    """Flip a byte of a file."""
    path = folder.folder / f"{chunk}.caf"
    data = bytearray(path.read_bytes())
    data[data.index(content) + at % len(content)] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("path", ["002", "large"])
def test_damaged_file_is_not_moved(local: cafcat.Repository, folder: Folder, path: str) -> None:
    old = wasted(local)
    damage(folder, old, FILES[path])
    heard = Heard()
    report = repack(local, progress=heard)
    assert problems(heard) == {(path, "corrupt")}
    assert heard.problems[0].message.endswith(f"run cafcat repair --chunk {old}")
    assert (report.files_moved, report.files_damaged, report.chunks_retired) == (len(KEPT) - 1, 1, 0)
    where = chunks_of(local)
    assert {name for name, chunk in where.items() if chunk == old} == {path}
    assert all(local.read(name) == content for name, content in KEPT.items() if name != path)
    assert local.session.catalog.reports.findings() == []


def test_truncated_chunk_loses_only_its_end(local: cafcat.Repository, folder: Folder) -> None:
    old = wasted(local)
    path = folder.folder / f"{old}.caf"
    path.write_bytes(path.read_bytes()[:5000])
    heard = Heard()
    report = repack(local, progress=heard)
    assert problems(heard) == {("007", "corrupt"), ("large", "corrupt")}
    assert report.files_moved == 3
    assert local.read("002") == FILES["002"]


def test_a_chunk_that_is_missing_is_damage(repository: cafcat.Repository, place: Place) -> None:
    other = wasted(repository, {"b/1": b"one", "b/2": b"two"}, {"b/2": b"two"})
    old = wasted(repository)
    repository.session.stores[place.url].delete(f"{old}.caf")
    report = repack(repository)
    assert (report.files_moved, report.files_damaged, report.chunks_retired) == (1, len(KEPT), 1)
    assert len(report.failed) == 1
    assert old in report.failed[0]
    assert f"run cafcat repair --chunk {old}" in report.failed[0]
    assert (state_of(repository, old), state_of(repository, other)) == ("committed", "retired")


def test_concurrent_changes_are_kept(repository: cafcat.Repository, place: Place, open_at: Opener) -> None:
    other = open_at(place)
    old = wasted(repository)

    def change() -> None:
        commit(other, {"001": b"replaced", "large": b"replaced too", "new": b"new"})
        assert other.rm(["002"]).files == 1

    report = repack(repository, progress=AfterFiles(4, change))
    assert (report.files_moved, report.files_changed, report.chunks_retired) == (2, 3, 1)
    assert state_of(repository, old) == "retired"
    assert check(repository, place) == {
        "001": b"replaced",
        "large": b"replaced too",
        "new": b"new",
        "007": FILES["007"],
        "empty": b"",
    }
    assert repository.undelete(["002"]).files == 1
    assert repository.read("002") == FILES["002"]


def test_chunk_that_is_pruned_meanwhile_is_no_damage(
    local: cafcat.Repository, folder: Folder, open_at: Opener
) -> None:
    """All files are replaced, and the chunk is pruned, between two requests."""
    other = open_at(folder)
    files = {f"{number}": bytes([number]) * 2000 for number in range(6)}
    gaps = {f"{path} dead": bytes(100_000) for path in files}
    wasted(local, dict(sorted((files | gaps).items())), files)

    def change() -> None:
        commit(other, dict.fromkeys(files, b"replaced"))
        assert other.prune(grace_seconds=0).chunks == 1

    heard = AfterFiles(3, change)
    report = repack(local, progress=heard)
    assert heard.problems == []
    assert report.files_damaged == 0
    assert check(local, folder) == dict.fromkeys(files, b"replaced")


def test_two_concurrent_repacks(repository: cafcat.Repository, place: Place, open_at: Opener) -> None:
    """Both have selected the same chunks. No file is lost, and each path is in one chunk."""
    other = open_at(place)
    old = [wasted(repository), wasted(repository, {"b/1": b"one", "b/2": b"two"}, {"b/2": b"two"})]
    both = threading.Barrier(2, timeout=PATIENCE_SECONDS)

    def take(repository: cafcat.Repository) -> RepackReport:
        options = RepackOptions(max_unused=0.0)
        mover = Repack(repository.session, options, Limits(4000))
        plan = mover.plan(options, None)
        both.wait()
        return mover.run(plan, dry_run=False)

    threads = [in_background(lambda of=of: take(of)) for of in (repository, other)]
    reports = [thread.done() for thread in threads]
    assert sum(report.files_moved for report in reports) == len(KEPT) + 1
    assert [state_of(repository, chunk) for chunk in old] == ["retired", "retired"]
    assert check(repository, place) == KEPT | {"b/2": b"two"}


def test_chunk_of_another_running_repack_is_left_alone(local: cafcat.Repository, folder: Folder) -> None:
    wasted(local)
    [(chunk_id,)] = sql(local, "SELECT id FROM chunks")
    chunk = OpenChunk(chunk_target(local.session.catalog, local.session.stores[folder.url], "repack"), moves=True)
    chunk.move_from(chunk_id)
    report = repack(local)
    assert (report.chunks, report.taken) == (0, 1)
    chunk.abandon("the test is over")
    assert repack(local).chunks == 1


def test_a_chunk_that_another_repack_begins_with_after_the_plan_is_left_alone(
    local: cafcat.Repository, folder: Folder
) -> None:
    wasted(local)
    options = RepackOptions(max_unused=0.0)
    mover = Repack(local.session, options, Limits(4000))
    plan = mover.plan(options, None)
    [(chunk_id,)] = sql(local, "SELECT id FROM chunks")
    chunk = OpenChunk(chunk_target(local.session.catalog, local.session.stores[folder.url], "repack"), moves=True)
    chunk.move_from(chunk_id)
    report = mover.run(plan, dry_run=False)
    assert (report.taken, report.chunks_written, report.files_moved) == (1, 0, 0)
    chunk.abandon("the test is over")
    assert repack(local).chunks_retired == 1
    late = mover.run(plan, dry_run=False)
    assert (late.taken, late.chunks_written, late.files_moved) == (0, 0, 0)


def test_an_ingest_waits_for_the_commit_and_wins(local: cafcat.Repository, folder: Folder, open_at: Opener) -> None:
    """The ingest commits the same paths while the move is committed. The later commit counts."""
    other = open_at(folder)
    wasted(local)
    with psycopg.connect(str(local.settings.database_url)) as holder:
        holder.execute("LOCK TABLE file_locations IN SHARE MODE")
        moving = in_background(lambda: repack(local))
        wait_for_a_waiting_statement(local)
        replacing = in_background(lambda: commit(other, dict.fromkeys(KEPT, b"newest")))
        holder.rollback()
        report = moving.done()
        replacing.done()
    assert report.files_moved + report.files_changed == len(KEPT)
    assert check(local, folder) == dict.fromkeys(KEPT, b"newest")


def test_stopped_repack_commits_packed_files(repository: cafcat.Repository, place: Place) -> None:
    old = wasted(repository)
    taken: list[int] = []

    class Counted(Heard):
        def advance(self, files: int, _: int) -> None:
            taken.extend([1] * files)

    report = repack(repository, progress=Counted(), should_stop=lambda: len(taken) >= 2)
    assert report.interrupted
    assert (report.files_moved, report.chunks_written, report.chunks_retired) == (2, 1, 0)
    assert state_of(repository, old) == "committed"
    assert check(repository, place) == KEPT
    assert repack(repository).files_moved == len(KEPT) - 2
    assert check(repository, place) == KEPT


@pytest.mark.parametrize("after", [0, 2, 4, 5])
def test_interrupted_repack_changes_nothing(local: cafcat.Repository, folder: Folder, after: int) -> None:
    old = wasted(local)
    taken: list[int] = []

    class Counted(Heard):
        def advance(self, files: int, _: int) -> None:
            taken.extend([1] * files)

    def stop() -> bool:
        if len(taken) >= after:
            raise KeyboardInterrupt
        return False

    with pytest.raises(KeyboardInterrupt):
        repack(local, progress=Counted(), should_stop=stop)
    assert set(chunks_of(local).values()) == {old}
    assert {key for key in folder.everything() if not key.startswith(("journal/", "catalogs/"))} == {f"{old}.caf"}
    assert repack(local).files_moved == len(KEPT)


def test_repeated_path_is_moved_once(local: cafcat.Repository, folder: Folder) -> None:
    """The path was live in one chunk when its files were read, and then in another."""
    commit(local, {"a": b"content", "x": b"x"})
    [(first,)] = sql(local, "SELECT id FROM chunks")
    [file] = [file for file in live_files(local.session.catalog, first) if file.path == "a"]
    commit(local, {"a": b"content"})
    second = max(chunk for (chunk,) in sql(local, "SELECT id FROM chunks"))
    place = chunk_target(local.session.catalog, local.session.stores[folder.url], "repack")
    with Rewriter(local.session, place, Limits(1_000_000)) as rewriter:
        assert rewriter.move(first, file, iter([b"content"]))
        [again] = live_files(local.session.catalog, second)
        assert rewriter.move(second, again, iter([b"content"]))
        rewriter.finish()
    assert (rewriter.chunks, rewriter.files, rewriter.changed) == (2, 1, 1)
    assert check(local, folder) == {"a": b"content", "x": b"x"}


class Counting:
    """A local store of one object that records its requests, and fails to read some bytes."""

    url = "file:///counting"
    is_remote = False
    reads_in_flight = 1

    def __init__(self, data: bytes, bad: range = range(0)) -> None:
        self.data = data
        self.bad = bad
        self.requests: list[tuple[int, int]] = []

    def open(self, _: str) -> Any:
        raise NotImplementedError

    def read(self, key: str, start: int, end: int) -> bytes:
        return b"".join(self.stream(key, start, end))

    def stream(self, _: str, start: int, end: int) -> Iterator[bytes]:
        self.requests.append((start, end))
        for at in range(start, end, 1000):
            block = range(at, min(at + 1000, end))
            if set(block) & set(self.bad):
                raise StoreFailed("input/output error")
            yield self.data[block.start : block.stop]


def entries(*spans: tuple[int, int]) -> list[Entry]:
    return [Entry(str(n), start, end, 0, None) for n, (start, end) in enumerate(spans)]


def read(store: Counting, files: list[Entry], skip: set[str] = frozenset()) -> dict[str, bytes | None]:
    found: dict[str, bytes | None] = {}
    for file, blocks in reading.contents(store, "key", files):  # type: ignore[arg-type]
        if file.path in skip:
            continue
        try:
            found[file.path] = b"".join(blocks)
        except StoreFailed:
            found[file.path] = None
    return found


DATA = CONTENT.randbytes(300_000)


@pytest.mark.parametrize(
    ("spans", "requests"),
    [
        ([(0, 10), (10, 2500), (2500, 2500), (66_000, 66_001)], [(0, 66_001)]),
        ([(0, 10), (65_546, 65_550)], [(0, 65_550)]),
        ([(0, 10), (65_547, 65_550)], [(0, 10), (65_547, 65_550)]),
        ([(0, 10), (5, 20), (20, 30)], [(0, 30)]),
        ([(5, 5), (5, 5)], []),
        ([(100, 5000), (200_000, 290_000)], [(100, 5000), (200_000, 290_000)]),
    ],
)
def test_near_files_are_read_by_one_request(spans: list[tuple[int, int]], requests: list[tuple[int, int]]) -> None:
    store, files = Counting(DATA), entries(*spans)
    assert read(store, files) == {file.path: DATA[file.start_byte : file.end_byte] for file in files}
    assert store.requests == requests


def test_files_that_are_not_read_are_passed_over() -> None:
    store, files = Counting(DATA), entries((0, 3000), (3000, 9000), (9500, 9501), (9600, 12_000))
    found = read(store, files, skip={"1"})
    assert found == {file.path: DATA[file.start_byte : file.end_byte] for file in files if file.path != "1"}
    assert len(store.requests) == 1


def test_unreadable_bytes_affect_only_their_files() -> None:
    """A block may have bytes of several files."""
    store = Counting(DATA, bad=range(4100, 4110))
    files = entries((0, 3900), (3900, 4050), (4050, 4120), (4120, 4130), (4200, 9000))
    found = read(store, files)
    assert found.pop("2") is None
    assert found == {file.path: DATA[file.start_byte : file.end_byte] for file in files if file.path != "2"}


def dies_before_commit(chunk: OpenChunk) -> None:
    """Make the object durable, and end before the commit."""
    chunk._make_durable(Progress())
    chunk._lease.end()
    chunk._mapping.close()


def move_and_die(repository: cafcat.Repository, place: Place) -> OpenChunk:
    """Repack the only chunk, and die before the commit."""
    chunk = OpenChunk(
        chunk_target(repository.session.catalog, repository.session.stores[place.url], "repack"), moves=True
    )
    [(source,)] = sql(repository, "SELECT id FROM chunks WHERE state = 'committed'")
    chunk.move_from(source)
    for file in live_files(repository.session.catalog, source):
        chunk.add(file.path, KEPT[file.path], file.modified_ns)
    dies_before_commit(chunk)
    sql(repository, "UPDATE chunks SET lease_expires_at = now() - interval '1s' WHERE state = 'writing'")
    return chunk


def test_a_repack_that_died_is_finished_by_recover(repository: cafcat.Repository, place: Place) -> None:
    old = wasted(repository)
    new = move_and_die(repository, place)
    report = repository.recover()
    assert (report.adopted, report.files_adopted, report.files_skipped) == (1, len(KEPT), 0)
    assert state_of(repository, old) == "retired"
    assert set(chunks_of(repository).values()) == {str(new.uuid)}
    assert check(repository, place) == KEPT


def test_changes_after_a_killed_repack_are_kept(
    repository: cafcat.Repository, place: Place, open_at: Opener
) -> None:
    """The newer file may be in a chunk that was begun before the repack."""
    old = wasted(repository)
    other = open_at(place)
    store = store_to_write(other.session)
    other.session.catalog.stores.register(store.url)
    run = other.session.catalog.runs.begin_run(sources=["tree"], options={}, version="0")
    begun_before = OpenChunk(ChunkTarget(other.session.catalog, store, CAF, run, "here:1:test"))
    new = move_and_die(repository, place)
    begun_before.add("001", b"newer", MODIFIED)
    begun_before.all_new = False
    begun_before.finish(OnConflict.REPLACE, Progress())
    commit(other, {"large": b"newest"})
    other.rm(["002"])
    report = repository.recover()
    assert (report.adopted, report.files_adopted, report.files_skipped) == (1, 2, 3)
    assert check(repository, place) == {"001": b"newer", "large": b"newest", "007": FILES["007"], "empty": b""}
    assert chunks_of(repository)["007"] == str(new.uuid)
    assert state_of(repository, old) == "retired"


def test_chunk_of_a_killed_repack_is_retired_if_all_files_have_changed(
    local: cafcat.Repository, folder: Folder
) -> None:
    wasted(local)
    new = move_and_die(local, folder)
    commit(local, dict.fromkeys(KEPT, b"newer"))
    assert local.recover().files_skipped == len(KEPT)
    assert state_of(local, str(new.uuid)) == "retired"
    assert check(local, folder) == dict.fromkeys(KEPT, b"newer")


def test_next_repack_finishes_a_killed_one(local: cafcat.Repository, folder: Folder) -> None:
    old = wasted(local)
    move_and_die(local, folder)
    heard = Heard()
    report = repack(local, progress=heard)
    assert report.chunks == 0
    assert "1 chunk adopted" in heard.warnings[0]
    assert state_of(local, old) == "retired"
    assert check(local, folder) == KEPT


def check_killed(repository: cafcat.Repository, place: Place) -> dict[str, bytes]:
    """Check catalog and store after recover. Abandoned chunks may remain as rows without objects."""
    left = "SELECT count(*) FROM chunks WHERE state = 'writing' OR (state = 'abandoned' AND deleted_at IS NULL)"
    assert sql(repository, left) == [(0,)]
    assert sql(repository, "SELECT count(*) FROM chunks WHERE live_file_count = 0 AND state = 'committed'") == [
        (0,)
    ]
    assert repository.session.catalog.reports.findings() == []
    objects = place.everything()
    keys = sql(repository, "SELECT object_key FROM chunks WHERE state IN ('committed', 'retired')")
    assert {key for key in objects if not key.startswith(("journal/", "catalogs/"))} == {key for (key,) in keys}
    located = sql(
        repository,
        "SELECT file_path, uuid::text, start_byte, end_byte FROM file_locations JOIN chunks ON id = caf_file_id",
    )
    assert rebuilt(place) == {path: (chunk, start) for path, chunk, start, _ in located}
    return {path: objects[f"{chunk}.caf"][start:end] for path, chunk, start, end in located}


@pytest.mark.slow  # `make test` has samples of it: tests/crash/test_crash.py
def test_a_repack_is_killed_at_every_step(repository: cafcat.Repository, place: Place, tmp_path: Path) -> None:
    """The repack moves two chunks into two others.

    Recover completes the work, and the next step continues from there.
    """
    expected: dict[str, bytes] = {}

    def prepare(number: int) -> None:
        for half in "ab":
            files = {f"{number}/{half}/{name}": random.randbytes(900) for name in range(4)}
            expected.update({path: content for path, content in files.items() if path[-1] != "0"})
            wasted(repository, files, expected)

    adopted = 0
    for number in killed_at_each_step(repository, place.url, tmp_path, "repack", prepare=prepare):
        report = repository.recover()
        assert report.failed == ()
        adopted += report.adopted
        assert check_killed(repository, place) == expected, number
        assert repack(repository).files_damaged == 0
        assert sql(
            repository, "SELECT count(*) FROM chunks WHERE data_bytes > live_bytes AND state = 'committed'"
        ) == [(0,)]
    assert adopted
    assert check_killed(repository, place) == expected
