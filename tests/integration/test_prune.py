"""prune removes chunks without live files, even if it is killed at any step, and keeps all others."""

import json
import os
import threading
from pathlib import Path

import pytest

import cafcat
from cafcat.catalog.chunks import pruning
from cafcat.catalog.chunks.pruning import Pruning
from cafcat.catalog.connection import PgConnection
from cafcat.catalog.history.events import record_event
from cafcat.errors import InvalidInput, NotFound, StoreFailed
from cafcat.events import ChunkPruned
from cafcat.model import OnConflict
from cafcat.operations.prune.report import PruneReport
from cafcat.stores.base import Upload
from tests.worlds.catalog_world import Opener, commit, live, sql, state_of
from tests.worlds.kills.killing import killed_at_each_step
from tests.worlds.kills.meanwhile import InBackground, in_background, wait_for_a_waiting_statement
from tests.worlds.listeners import Following, Heard, problems
from tests.worlds.places import Folder, Place
from tests.worlds.removal_world import check, rebuilt
from tests.worlds.waiting import PATIENCE_SECONDS

DAY = 86_400


def age(repository: cafcat.Repository, days: float) -> None:
    """Shift the times at which chunks were retired into the past."""
    sql(repository, "UPDATE chunks SET retired_at = retired_at - make_interval(secs => %s)", days * DAY)


def sizes(repository: cafcat.Repository, *chunks: str) -> int:
    [(size,)] = sql(
        repository, "SELECT sum(size_bytes)::bigint FROM chunks WHERE uuid = ANY(%s::uuid[])", list(chunks)
    )
    return int(size)


def chunks_in(place: Place) -> set[str]:
    return {key.removesuffix(".caf") for key in place.everything() if not key.startswith(("journal/", "catalogs/"))}


def with_a_record(place: Place) -> set[str]:
    """Return the chunks that have a commit record in the store's journal."""
    heads = [
        json.loads(data.partition(b"\n")[0])
        for key, data in place.everything().items()
        if key.startswith("journal/")
    ]
    return {head["chunk"]["uuid"] for head in heads if "chunk" in head}


def records_in(place: Place) -> int:
    return sum(key.startswith("journal/") for key in place.everything())


def test_retired_chunk_is_removed_after_its_grace_period(repository: cafcat.Repository, place: Place) -> None:
    old = commit(repository, {"old": b"old" * 100, "old too": b""})
    kept = commit(repository, {"kept": b"kept", "gone": b"gone"})
    replaced = commit(repository, {"replaced": b"one"})
    repository.rm(["old", "old too", "gone"])
    age(repository, 8)
    commit(repository, {"replaced": b"two"})
    size, waiting = sizes(repository, old), sizes(repository, replaced)
    before = place.everything()

    told: list[ChunkPruned] = []
    dry = repository.with_progress(Following(on=told.append)).prune(dry_run=True)
    assert dry == PruneReport(1, 1, size, 1, waiting, 0, (), interrupted=False, dry_run=True, files_lost=2)
    assert place.everything() == before
    assert state_of(repository, old) == "retired"

    done: list[ChunkPruned] = []
    report = repository.with_progress(Following(on=done.append)).prune()
    assert report == PruneReport(1, 1, size, 1, waiting, 0, (), interrupted=False, dry_run=False, files_lost=2)
    assert done == told
    assert [(str(chunk.uuid), chunk.store, chunk.bytes_freed) for chunk in done] == [(old, place.url, size)]
    assert state_of(repository, old) == "deleted"
    gone = before.keys() - place.everything().keys()
    assert len(gone) == 2, "the chunk and the record that said that it was committed"
    assert f"{old}.caf" in gone
    assert set(check(repository, place)) == {"kept", "replaced"}
    assert sql(repository, "SELECT kind FROM events WHERE kind = 'chunk_deleted'") == [("chunk_deleted",)]
    assert repository.prune() == PruneReport(0, 0, 0, 1, waiting, 0, (), interrupted=False, dry_run=False)
    assert repository.undelete(["gone"]).files == 1
    assert kept in chunks_in(place)


def test_replaced_files_are_lost_but_not_files_in_another_chunk(local: cafcat.Repository) -> None:
    commit(local, {"p": b"old"})
    commit(local, {"p": b"new", "q": b"q"})
    local.rm(["q"])
    assert local.repack(max_unused=0).files_moved == 1
    assert local.prune(grace_seconds=0, dry_run=True).files_lost == 2
    report = local.prune(grace_seconds=0)
    assert (report.chunks, report.files_lost) == (2, 2)


def test_pruned_files_cannot_be_restored(local: cafcat.Repository, folder: Folder) -> None:
    commit(local, {"p": b"p", "q": b"q"})
    local.rm(folders=["."])
    assert [old.location.path for old in local.removed()] == ["p", "q"]
    assert local.prune(grace_seconds=0).chunks == 1
    assert list(local.removed()) == []
    heard = Heard()
    assert local.with_progress(heard).undelete(["p"]).files_pruned == 1
    assert problems(heard) == {("p", "missing")}
    assert "no longer exist" in heard.problems[0].message
    heard = Heard()
    assert local.with_progress(heard).undelete(folders=["q"]).files_pruned == 1
    assert problems(heard) == {("q", "pruned")}
    assert [old.reason for old in local.history("p")] == ["removed"]
    assert check(local, folder) == {}


def test_undelete_ends_the_grace_period(local: cafcat.Repository, folder: Folder) -> None:
    commit(local, {"p": b"p"})
    local.rm(["p"])
    age(local, 30)
    local.undelete(["p"])
    assert local.prune().chunks == 0
    local.rm(["p"])
    assert local.prune().chunks_waiting == 1
    local.undelete(["p"])
    assert check(local, folder) == {"p": b"p"}


def test_removals_are_still_recorded_after_prune(repository: cafcat.Repository, place: Place) -> None:
    """Other chunks have older files of the same names."""
    commit(repository, {"p": b"oldest", "q": b"oldest", "kept": b"kept"})
    commit(repository, {"p": b"newer", "q": b"newer"})
    commit(repository, {"p": b"newest"})
    repository.rm(["p"])
    repository.rm(["q"])
    repository.undelete(["q"])
    repository.rm(["q"])
    assert repository.prune(grace_seconds=0).chunks == 2
    assert rebuilt(place).keys() == {"kept"}
    assert check(repository, place) == {"kept": b"kept"}


def test_chunks_without_live_files_are_pruned(local: cafcat.Repository, folder: Folder) -> None:
    """All files of the chunk were skipped."""
    commit(local, {"p": b"first"})
    commit(local, {"p": b"second"}, OnConflict.SKIP)
    assert local.prune(grace_seconds=0).chunks == 1
    assert check(local, folder) == {"p": b"first"}


def test_a_live_file_keeps_its_chunk_whatever_its_counters_say(local: cafcat.Repository, folder: Folder) -> None:
    chunk = commit(local, {"p": b"p", "q": b"q"})
    before = folder.everything()
    sql(local, "UPDATE chunks SET state = 'retired', retired_at = now() - interval '1 year', live_file_count = 0")
    assert local.prune(grace_seconds=0).chunks == 0
    assert state_of(local, chunk) == "retired"
    assert folder.everything() == before


def copied(
    repository: cafcat.Repository, chunk: str, source: Folder, copy: Folder, state: str = "committed"
) -> None:
    copy.folder.mkdir(exist_ok=True)
    (copy.folder / f"{chunk}.caf").write_bytes(source.everything()[f"{chunk}.caf"])
    sql(repository, "INSERT INTO stores (url) VALUES (%s) ON CONFLICT DO NOTHING", copy.url)
    sql(
        repository,
        "INSERT INTO chunk_copies (chunk_id, store, object_key, state, committed_at) "
        "SELECT id, %s, %s, %s, now() FROM chunks WHERE uuid = %s",
        copy.url,
        f"{chunk}.caf",
        state,
        chunk,
    )


def test_copies_go_with_their_chunk(local: cafcat.Repository, folder: Folder, tmp_path: Path) -> None:
    chunk, other = commit(local, {"p": b"p"}), commit(local, {"other": b"other"})
    copies = [Folder(tmp_path / "one"), Folder(tmp_path / "two")]
    for copy in copies:
        copied(local, chunk, folder, copy)
        copied(local, other, folder, copy)
    local.rm(["p"])
    size = sizes(local, chunk)
    dry = local.prune(grace_seconds=0, dry_run=True)
    report = local.prune(grace_seconds=0)
    assert (report.chunks, report.objects, report.bytes_freed) == (1, 3, 3 * size)
    assert (dry.chunks, dry.objects, dry.bytes_freed) == (1, 3, 3 * size)
    assert all(chunks_in(copy) == {other} for copy in copies)
    assert check(local, folder, *copies) == {"other": b"other"}


def test_freed_bytes_are_those_of_the_stores(local: cafcat.Repository, folder: Folder, tmp_path: Path) -> None:
    chunk, other = commit(local, {"p": b"p" * 1000}), commit(local, {"other": b"other"})
    copy = Folder(tmp_path / "copy")
    copied(local, chunk, folder, copy)
    copied(local, other, folder, copy)
    local.rm(["p"])
    os.truncate(folder.folder / f"{chunk}.caf", 100)
    (copy.folder / f"{chunk}.caf").unlink()
    dry = local.prune(grace_seconds=0, dry_run=True)
    report = local.prune(grace_seconds=0)
    assert (report.objects, report.bytes_freed) == (dry.objects, dry.bytes_freed) == (2, 100)


def test_a_copy_that_cannot_be_reached_is_removed_later(
    local: cafcat.Repository, folder: Folder, tmp_path: Path
) -> None:
    chunk = commit(local, {"p": b"p", "q": b"q"})
    other = commit(local, {"other": b"other"})
    copy = Folder(tmp_path / "copy")
    copied(local, chunk, folder, copy)
    copied(local, other, folder, copy)
    local.rm(["p", "q"])
    mounted = tmp_path / "mounted"
    copy.folder.rename(mounted)
    report = local.prune(grace_seconds=0)
    assert (report.chunks, report.objects, len(report.failed)) == (1, 1, 1)
    assert copy.url in report.failed[0]
    assert len(local.prune(grace_seconds=0).failed) == 1
    mounted.rename(copy.folder)
    size = sizes(local, chunk)
    assert local.prune() == PruneReport(0, 1, size, 0, 0, 0, (), interrupted=False, dry_run=False)
    assert check(local, folder, copy) == {"other": b"other"}


def test_unreachable_store_keeps_its_chunks(
    local: cafcat.Repository, open_at: Opener, folder: Folder, tmp_path: Path
) -> None:
    """Undelete can still restore the files of these chunks."""
    elsewhere = Folder(tmp_path / "elsewhere")
    far = open_at(elsewhere)
    near_chunk, far_chunk = commit(local, {"near": b"near"}), commit(far, {"far": b"far", "far too": b""})
    commit(local, {"stays": b"stays"})
    commit(far, {"far stays": b"far stays"})
    local.rm(["near", "far", "far too"])
    mounted = tmp_path / "mounted"
    elsewhere.folder.rename(mounted)
    for dry_run in (True, False):
        report = local.prune(grace_seconds=0, dry_run=dry_run)
        assert (report.chunks, len(report.failed)) == (1, 1)
        assert "mounted" in report.failed[0]
        assert report.failed[0].startswith(f"kept 1 of the chunks in {elsewhere.url}: cannot find the store")
        elsewhere.folder.mkdir(exist_ok=True)
    assert (state_of(local, near_chunk), state_of(local, far_chunk)) == ("deleted", "retired")
    elsewhere.folder.rmdir()
    mounted.rename(elsewhere.folder)
    assert local.undelete(["far"]).files == 1
    assert set(check(local, folder, elsewhere)) == {"stays", "far stays", "far"}


def test_store_without_the_record_of_a_removal_keeps_its_chunks(
    local: cafcat.Repository, folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a rebuild from this store would restore the older file."""
    commit(local, {"p": b"older", "q": b"q"})
    chunk = commit(local, {"p": b"newer"})
    store = local.session.stores[folder.url]

    def full(_key: str) -> None:
        raise StoreFailed("no space left")

    with monkeypatch.context() as patch:
        patch.setattr(store, "create", full)
        local.rm(["p"])
        report = local.prune(grace_seconds=0)
    assert (report.chunks, len(report.failed)) == (0, 1)
    assert "no space left" in report.failed[0]
    assert state_of(local, chunk) == "retired"
    assert local.prune(grace_seconds=0).chunks == 1
    assert rebuilt(folder).keys() == {"q"}
    assert check(local, folder) == {"q": b"q"}


@pytest.mark.parametrize("who", ["prune", "recover"])
def test_failed_removal_of_an_object_is_repeated(
    repository: cafcat.Repository, place: Place, monkeypatch: pytest.MonkeyPatch, who: str
) -> None:
    chunk = commit(repository, {"p": b"p"})
    commit(repository, {"q": b"q"})
    repository.rm(["p"])
    store = repository.session.stores[place.url]

    def refuses(key: str) -> None:
        raise StoreFailed(f"cannot remove {key}")

    with monkeypatch.context() as patch:
        patch.setattr(store, "delete", refuses)
        report = repository.prune(grace_seconds=0)
    assert (report.chunks, report.objects, report.bytes_freed, len(report.failed)) == (0, 0, 0, 1)
    assert state_of(repository, chunk) == "deleted"
    assert repository.undelete(["p"]).files_pruned == 1
    if who == "prune":
        assert repository.prune().chunks == 1
    else:
        assert repository.recover().cleaned == 1
    assert chunk not in chunks_in(place)
    assert check(repository, place) == {"q": b"q"}


def test_only_one_store(local: cafcat.Repository, open_at: Opener, folder: Folder, tmp_path: Path) -> None:
    elsewhere = Folder(tmp_path / "elsewhere")
    commit(open_at(elsewhere), {"far": b"far"})
    commit(local, {"near": b"near"})
    local.rm(folders=["."])
    dry = local.prune(grace_seconds=0, store=elsewhere.url, dry_run=True)
    assert local.prune(grace_seconds=0, store=str(elsewhere.folder)).chunks == dry.chunks == 1
    assert (len(chunks_in(folder)), len(chunks_in(elsewhere))) == (1, 0)
    with pytest.raises(InvalidInput):
        local.prune(store="")


def test_unknown_store_is_an_error(local: cafcat.Repository, tmp_path: Path) -> None:
    """Otherwise a mistyped URL would look like a store without work."""
    commit(local, {"file": b"content"})
    slip = str(tmp_path / "sotre")
    custody = local
    for act in (custody.prune, custody.repack, custody.verify, custody.recover):
        with pytest.raises(NotFound, match=f"no chunk in the store file://{slip}; `cafcat store ls`"):
            act(store=slip)


def test_interrupted_between_chunks(local: cafcat.Repository, folder: Folder) -> None:
    for number in range(3):
        commit(local, {f"{number}": b"x"})
    local.rm(folders=["."])
    told: list[ChunkPruned] = []
    report = local.with_progress(Following(on=told.append, should_stop=lambda: bool(told))).prune(
        grace_seconds=0,
    )
    assert (report.chunks, report.interrupted) == (1, True)
    assert local.prune(grace_seconds=0).chunks == 2
    assert check(local, folder) == {}


@pytest.mark.slow  # `make test` has samples of it: tests/crash/test_crash.py
def test_a_prune_is_killed_at_every_step(repository: cafcat.Repository, place: Place, tmp_path: Path) -> None:
    """No live file is damaged, and the next prune or recover removes the leftovers."""
    expected = {"always": b"there"}
    commit(repository, expected)
    tombs: set[str] = set()

    def prepare(number: int) -> None:
        commit(repository, {f"{number}/tomb": b"old", f"{number}/kept": b"kept"})
        commit(repository, {f"{number}/tomb": b"new"})
        commit(repository, {f"{number}/late": b"late"})
        repository.rm([f"{number}/tomb", f"{number}/late"])
        repository.undelete([f"{number}/late"])
        expected.update({f"{number}/kept": b"kept", f"{number}/late": b"late"})
        tombs.add(f"{number}/tomb")

    for number in killed_at_each_step(repository, place.url, tmp_path, "prune", prepare=prepare):
        assert live(repository) == set(expected)
        assert rebuilt(place).keys() == set(expected)
        assert chunks_in(place) <= with_a_record(place), "a chunk has no record of its commit"
        decided = sql(repository, "SELECT count(*) FROM chunks WHERE state = 'deleted' AND deleted_at IS NULL")
        if number % 2:
            assert repository.recover().cleaned == decided[0][0]
        else:
            assert repository.prune(grace_seconds=DAY).chunks == decided[0][0]
        if number % 5 == 0:
            assert check(repository, place) == expected
    assert repository.prune(grace_seconds=0).chunks == 0
    assert check(repository, place) == expected
    assert repository.undelete(tombs).files == 0


# --- concurrent operations


def test_prune_waits_for_undelete_and_keeps_the_chunk(
    local: cafcat.Repository, open_at: Opener, folder: Folder
) -> None:
    """Prune waits for an undelete that has changed the rows, and has not committed yet."""
    chunk = commit(local, {"p": b"p"})
    local.rm(["p"])
    other = open_at(folder)
    asked: list[object] = []

    def stop() -> None:
        asked.append(1)
        if len(asked) == checkpoints:
            started.append(in_background(lambda: other.prune(grace_seconds=0)))
            wait_for_a_waiting_statement(local)

    checkpoints = 10**9
    started: list[InBackground] = []
    local.with_progress(Following(should_stop=stop)).undelete(["p"])
    local.rm(["p"])
    checkpoints, asked = len(asked), []
    assert local.with_progress(Following(should_stop=stop)).undelete(["p"]).files == 1
    assert started[0].done().chunks == 0
    assert state_of(local, chunk) == "committed"
    assert check(local, folder) == {"p": b"p"}


def test_undelete_waits_for_prune_and_reports_the_missing_file(
    local: cafcat.Repository, open_at: Opener, folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Undelete has read the chunk before. Then it waits for a prune that has not committed yet."""
    chunk, other_chunk = commit(local, {"p": b"p"}), commit(local, {"q": b"q"})
    local.rm(["p", "q"])
    other = open_at(folder)
    started: list[InBackground] = []

    def decided(connection: PgConnection, kind: str, detail: str, *, chunk_id: int) -> None:
        record_event(connection, kind, detail, chunk_id=chunk_id)
        if not started:
            started.append(in_background(lambda: other.undelete(["p", "q"])))
            wait_for_a_waiting_statement(local)

    monkeypatch.setattr(pruning, "record_event", decided)
    report = local.prune(grace_seconds=0)
    back = started[0].done()
    assert (back.files, back.files_pruned) == (1, 1)
    assert report.chunks == 1
    assert (state_of(local, chunk), state_of(local, other_chunk)) == ("deleted", "committed")
    assert check(local, folder) == {"q": b"q"}


def test_concurrent_undelete_and_prune(local: cafcat.Repository, open_at: Opener, folder: Folder) -> None:
    """A live file always has its bytes."""
    other = open_at(folder)
    outcomes = set()
    expected: dict[str, bytes] = {}
    for number in range(40):
        commit(local, {f"{number}": b"x"})
        local.rm([f"{number}"])
        barrier = threading.Barrier(2)
        started = in_background(lambda barrier=barrier: (barrier.wait(), other.prune(grace_seconds=0)))  # type: ignore[misc]
        barrier.wait()
        back = local.undelete([f"{number}"])
        pruned = started.done()[1]
        assert pruned.failed == ()
        assert back.files + pruned.chunks == 1
        assert back.files + back.files_pruned == 1
        outcomes.add(back.files)
        if back.files:
            assert local.read(f"{number}") == b"x"
            expected[f"{number}"] = b"x"
    assert check(local, folder) == expected


def test_two_concurrent_prunes(local: cafcat.Repository, open_at: Opener, folder: Folder) -> None:
    for number in range(30):
        commit(local, {f"{number}": b"x", f"{number}/kept": b"y"} if number % 3 == 0 else {f"{number}": b"x"})
    local.rm([f"{number}" for number in range(30)])
    others = [open_at(folder) for _ in range(3)]
    threads = [in_background(lambda other=other: other.prune(grace_seconds=0)) for other in others]  # type: ignore[misc]
    reports = [thread.done() for thread in threads]
    assert all(report.failed == () for report in reports)
    assert sum(report.chunks for report in reports) >= 20
    assert check(local, folder) == {f"{number}/kept": b"y" for number in range(0, 30, 3)}


def test_prune_waits_for_the_record_of_a_commit(
    local: cafcat.Repository, open_at: Opener, folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process is writing the record of the chunk's commit."""
    chunk = commit(local, {"p": b"p"})
    commit(local, {"q": b"q"})
    local.rm(["p"])
    before = records_in(folder)
    other = open_at(folder)
    store, mark_deleted = other.session.stores[folder.url], Pruning.mark_deleted
    create = store.create
    at_it, pruned = threading.Event(), threading.Event()
    started: list[InBackground] = []

    def slowly(key: str) -> Upload:
        at_it.set()
        wait_for_a_waiting_statement(local, or_until=pruned.is_set)
        return create(key)

    def decided(self: Pruning, chunk_id: int, grace_seconds: int) -> bool:
        sql(local, "UPDATE journal SET unwritten = ARRAY[%s] WHERE chunk_id = %s", folder.url, chunk_id)
        for record in (folder.folder / "journal").iterdir():
            if chunk in record.read_text() and '"commit"' in record.read_text():
                record.unlink()
        started.append(in_background(other.recover))
        assert at_it.wait(PATIENCE_SECONDS)
        return mark_deleted(self, chunk_id, grace_seconds)

    monkeypatch.setattr(store, "create", slowly)
    monkeypatch.setattr(Pruning, "mark_deleted", decided)
    assert local.prune(grace_seconds=0).chunks == 1
    pruned.set()
    assert started[0].done().failed == ()
    assert records_in(folder) == before - 1
    assert check(local, folder) == {"q": b"q"}
