"""A catalog that is rebuilt from stores equals the lost one. Damage is reported, and affects only its own files."""

import json
import signal
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import cafcat
from cafcat.catalog.transfer.dump import TABLES
from cafcat.errors import CafcatError, Conflict, Locked, NotFound, StoreFailed
from cafcat.events import CatalogsDiffer
from cafcat.formats.registry import by_name
from cafcat.model import OnConflict
from cafcat.operations.rebuild import run as rebuilding
from cafcat.operations.rebuild.damage import DamageKind
from cafcat.operations.rebuild.options import RebuildOptions
from cafcat.progress import Progress
from cafcat.stores.base import Store
from cafcat.stores.local.store import LocalStore
from cafcat.support.checksums import crc32c
from tests.worlds.archives.damage import flip
from tests.worlds.catalog_world import MODIFIED, begin, commit, reasons, sql
from tests.worlds.kills.killing import environment, run_until_killed
from tests.worlds.listeners import Following, Heard, Listener
from tests.worlds.rebuild_world import World, leave_whole, local, world
from tests.worlds.servers.services import Databases

__all__ = ["local", "world"]

FILES = {"a/first": b"first", "a/second": bytes(range(256)) * 20, "b/empty": b"", "ü/日本\n\t\\": b"unicode"}


def live(repository: cafcat.Repository) -> dict[str, bytes]:
    """Return the contents of all live files."""
    return {location.path: repository.read(location.path) for location in repository.list()}


def test_rebuild_restores_all_rows(world: World) -> None:
    first = commit(world.repository, FILES)
    second = commit(world.repository, {"a/first": b"newer", "c": b"c"}, modified_ns=None)
    third = commit(world.repository, {"a/second": b"late", "d": b"d"}, OnConflict.SKIP)
    world.repository.rm(["b/empty", "c"])
    world.repository.undelete(["c"])
    report = world.assert_rebuilds()
    assert (report.chunks, report.files, report.retired_files, report.journal_records) == (3, 5, 3, 5)
    assert (report.adopted, report.foreign_objects, report.copies) == ((), 0, 0)
    rebuilt, _ = world.rebuilt()
    assert live(rebuilt) == live(world.repository)
    assert reasons(rebuilt, "a/first") == [(first, "replaced")]
    assert reasons(rebuilt, "a/second") == [(third, "skipped")]
    assert reasons(rebuilt, "b/empty") == [(first, "removed")]
    same = "SELECT uuid, begun_at, committed_at, retired_at, etag IS NULL, store FROM chunks ORDER BY id"
    before, after = sql(world.repository, same), sql(rebuilt, same)
    assert [row[:4] + row[5:] for row in before] == [row[:4] + row[5:] for row in after]
    retired = "SELECT file_path, retired_at, reason FROM retired_locations ORDER BY 1, 2"
    assert sql(rebuilt, retired) == sql(world.repository, retired)
    assert str(rebuilt.chunk(second).uuid) == second


def test_rebuilt_catalog_accepts_new_changes(world: World) -> None:
    commit(world.repository, FILES)
    world.repository.rm(["a/first"])
    rebuilt, _ = world.rebuilt()
    [(last,)] = sql(rebuilt, "SELECT max(id) FROM journal")
    commit(rebuilt, {"a/first": b"again", "new": b"new"})
    rebuilt.rm(["b/empty"])
    assert [row[0] for row in sql(rebuilt, "SELECT id FROM journal ORDER BY id")] == [1, last, last + 1, last + 2]
    assert sql(rebuilt, "SELECT count(*) FROM journal WHERE unwritten <> '{}'") == [(0,)]
    assert rebuilt.undelete(["b/empty"]).files == 1
    world.repository = rebuilt
    world.assert_rebuilds()


def test_a_chunk_that_nothing_points_to_is_retired_and_pruned_ones_are_gone(world: World) -> None:
    commit(world.repository, {"x": b"1", "y": b"1"})
    commit(world.repository, {"x": b"2"})
    commit(world.repository, {"z": b"3"})
    world.repository.rm(["x", "z"])
    world.assert_rebuilds()
    world.repository.prune(grace_seconds=0)
    report = world.assert_rebuilds()
    assert (report.chunks, report.files) == (1, 1)
    rebuilt, _ = world.rebuilt()
    assert [reason for _, reason in reasons(rebuilt, "x")] == ["replaced"]


def test_repacked_files_are_in_their_new_chunks(world: World) -> None:
    commit(world.repository, {f"f{number}": b"%d" % number * 50 for number in range(10)})
    commit(world.repository, {"f1": b"other", "g": b"g"})
    world.repository.rm([f"f{number}" for number in range(2, 8)])
    world.repository.repack(max_unused=0.1)
    assert {reason for (reason,) in sql(world.repository, "SELECT reason FROM retired_locations")} >= {"moved"}
    world.assert_rebuilds()
    world.repository.prune(grace_seconds=0)
    world.assert_rebuilds()


def test_replaced_file_is_not_confused_with_a_moved_one(local: World) -> None:
    """The first version was replaced by the second one, which the repack moved."""
    first = commit(local.repository, {"a": b"old", "b": b"1"})
    second = commit(local.repository, {"a": b"new", "c": b"gone"})
    local.repository.rm(["c"])
    local.repository.repack(chunks=[second])
    local.repository.prune(grace_seconds=0)
    assert sql(local.repository, "SELECT state FROM chunks WHERE uuid = %s", second) == [("deleted",)]
    assert (first, "replaced") in reasons(local.repository, "a")
    local.assert_rebuilds()


def test_chunks_that_were_committed_in_another_order_than_begun(world: World) -> None:
    """The chunk that was begun first is committed last."""
    early = begin(world.repository, {"a": b"early", "b": b"early"}, all_new=False)
    late = begin(world.repository, {"a": b"late", "c": b"late"}, all_new=False)
    late.finish(OnConflict.REPLACE, Progress())
    early.finish(OnConflict.REPLACE, Progress())
    assert world.repository.read("a") == b"early"
    world.assert_rebuilds()


def test_adopted_chunks_are_rebuilt(world: World) -> None:
    commit(world.repository, {"a": b"1", "b": b"1"})
    leave_whole(world.repository, {"a": b"2", "c": b"2"})
    commit(world.repository, {"c": b"3"})
    assert world.repository.recover().adopted == 1
    world.assert_rebuilds()


@pytest.mark.parametrize("removed_again", [False, True])
def test_undeleted_files_of_a_chunk_without_a_record_have_one_row(local: World, removed_again: bool) -> None:
    """Its record was lost, and the records that name its files were not."""
    uuid = commit(local.repository, {"a": b"1", "b": b"2"})
    local.repository.rm(["a"])
    local.repository.undelete(["a"])
    if removed_again:
        local.repository.rm(["a"])
    [(sequence,)] = sql(
        local.repository,
        "SELECT j.id FROM journal AS j JOIN chunks AS c ON c.id = j.chunk_id WHERE c.uuid = %s",
        uuid,
    )
    [record] = [found.key for found in local.objects.list("journal/") if f"/{sequence:020d}-" in found.key]
    local.objects.delete(record)
    first, report = local.rebuilt()
    assert [str(adopted) for adopted in report.adopted] == [uuid]
    second, _ = local.rebuilt()  # the chunk has a record now, the last one
    rows = (
        "SELECT file_path, count(*) FROM (SELECT file_path, caf_file_id, start_byte FROM file_locations UNION ALL "
    )
    rows += "SELECT file_path, caf_file_id, start_byte FROM retired_locations) AS r GROUP BY 1 ORDER BY 1"
    for rebuilt in (first, second):
        assert sql(rebuilt, rows) == [("a", 1), ("b", 1)]
        assert rebuilt.verify(level="data").damaged == 0
    assert live(first) == live(second)


def test_a_chunk_without_a_record_comes_last_and_gets_one(world: World) -> None:
    commit(world.repository, {"a": b"1", "b": b"1", "same": b"same"})
    world.repository.rm(["same"])
    orphan = leave_whole(world.repository, {"a": b"2", "c": b"2", "same": b"same"})
    rebuilt, report = world.rebuilt()
    assert [str(uuid) for uuid in report.adopted] == [orphan]
    assert report.damages == ()
    # All files of the chunk are in another chunk, too: the file stays removed.
    assert live(rebuilt) == {"a": b"2", "b": b"1", "c": b"2"}
    assert (orphan, "skipped") in reasons(rebuilt, "same")
    assert len(world.journal()) == 3
    assert sql(rebuilt, "SELECT count(*) FROM journal WHERE unwritten <> '{}'") == [(0,)]
    world.repository = rebuilt
    assert world.assert_rebuilds().adopted == ()


def test_copies_are_found(world: World, tmp_path: Path) -> None:
    copies = str(tmp_path / "copies")
    commit(world.repository, FILES)
    second = commit(world.repository, {"a/first": b"newer"})
    world.repository.copy(to=copies)
    commit(world.repository, {"only": b"here"})
    report = world.assert_rebuilds(world.store, copies)
    assert report.copies == 2
    rebuilt, _ = world.rebuilt(world.store, copies)
    statement = "SELECT uuid::text, k.store, k.state FROM chunk_copies AS k JOIN chunks AS c ON c.id = chunk_id"
    assert set(sql(rebuilt, statement)) == set(sql(world.repository, statement))
    # The order of the stores does not matter. From the copies alone, only copied chunks are rebuilt.
    assert world.rebuilt(copies, world.store)[1].files == len(FILES) + 1
    alone, report = world.rebuilt(copies)
    assert (report.chunks, report.damages) == (2, ())
    assert live(alone) == FILES | {"a/first": b"newer"}
    # If one store lost a chunk, the other one has it.
    world.objects.delete(f"{second}.caf")
    rebuilt, report = world.rebuilt(world.store, copies)
    assert (report.damage_count, live(rebuilt)["a/first"]) == (0, b"newer")


def test_stores_of_one_catalog(local: World, tmp_path: Path) -> None:
    commit(local.repository, {"a": b"1", "b": b"1"})
    other = str(tmp_path / "other")
    commit(local.at(other), {"a": b"2"})
    local.repository.rm(["b"])
    report = local.assert_rebuilds(local.store, other)
    assert (report.chunks, report.files) == (2, 1)
    assert live(local.rebuilt(other, local.store)[0]) == {"a": b"2"}


def test_stores_keep_their_names(local: World, tmp_path: Path) -> None:
    """A store that moved has the same identity. A name that the new catalog gave already stays."""
    other, third = tmp_path / "other", tmp_path / "third"
    repository = local.repository
    commit(repository, {"a": b"1"})
    for folder in (other, third):
        folder.mkdir()
        repository.add_store(folder.name, str(folder))
        repository.copy(to=folder.name)
    commit(repository, {"b": b"2"})
    moved = other.rename(tmp_path / "moved")
    rebuilt = local.empty()
    rebuilt.add_store("new", str(third))
    rebuilt.rebuild([local.store, str(moved), str(third)])
    assert {store.url: store.name for store in rebuilt.stores()} == {
        Path(local.store).as_uri(): None,
        moved.as_uri(): "other",
        third.as_uri(): "new",
    }


def test_a_version_ends_when_a_moved_one_began_whose_first_chunk_is_gone(local: World) -> None:
    commit(local.repository, {"a": b"old"})
    gone = commit(local.repository, {"a": b"new"})
    commit(local.repository, {"b": b"b"})
    local.repository.repack(chunks=[gone], dry_run=False)
    [(ended,)] = sql(local.repository, "SELECT retired_at FROM retired_locations WHERE reason = 'replaced'")
    local.objects.delete(f"{gone}.caf")
    local.repository.verify()
    commit(local.repository, {"c": b"c"})
    rebuilt, report = local.rebuilt(local.store)
    assert [str(chunk) for chunk in report.left_out] == [gone]
    assert sql(rebuilt, "SELECT retired_at, reason FROM retired_locations") == [(ended, "replaced")]
    assert rebuilt.as_of(ended).read("a") == b"new"


def test_a_store_that_a_rebuild_left_out_has_its_name_after_the_next_one(local: World, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    commit(local.repository, {"a": b"1"})
    local.repository.add_store("other", str(other))
    local.repository.copy(to="other")
    commit(local.repository, {"b": b"2"})
    first = local.empty()
    first.rebuild([local.store])
    commit(first, {"c": b"3"})
    second, _ = local.rebuilt(local.store, str(other))
    assert {store.url: store.name for store in second.stores()} == {
        Path(local.store).as_uri(): None,
        other.as_uri(): "other",
    }


def test_existing_backups_are_entered_again(local: World) -> None:
    commit(local.repository, {"a": b"1"})
    local.repository.backup()
    kept = local.repository.backup()
    rebuilt, report = local.rebuilt()
    assert (report.backups, report.foreign_objects) == (2, 0)
    assert len(rebuilt.backup(keep=2).removed) == 1
    assert kept.object_key in [found.object_key for found in rebuilt.backups()]


def test_an_empty_catalog_and_nothing_else_is_filled(local: World) -> None:
    commit(local.repository, {"a": b"1"})
    with pytest.raises(Conflict, match="the catalog is not empty"):
        local.repository.rebuild()
    empty = local.empty()
    with psycopg.connect(str(empty.settings.database_url)) as writer:
        writer.execute("LOCK TABLE chunks IN ROW EXCLUSIVE MODE")
        with pytest.raises(Locked, match="another command is writing"):
            empty.rebuild()
    (local.folder / "nothing").mkdir()
    with pytest.raises(NotFound, match="neither a chunk nor a journal"):
        empty.rebuild([str(local.folder / "nothing")])
    assert empty.rebuild().files == 1


def test_foreign_objects_are_counted(local: World) -> None:
    commit(local.repository, {"a": b"1"})
    for name in ("readme.txt", "sub/00000000-0000-0000-0000-000000000000.caf", "journal/x", "backups/y.tar"):
        local.write(name, b"x")
    assert local.assert_rebuilds().foreign_objects == 4


class Failing(Listener):
    """Raises an interrupt at one step."""

    def __init__(self, verb: str) -> None:
        self._verb = verb

    def begin(self, verb: str, **_totals: int | None) -> None:
        if verb == self._verb:
            raise KeyboardInterrupt


@pytest.mark.parametrize("verb", ["list the stores", "read the journal", "rebuild", "write the catalog"])
def test_interrupted_rebuild_leaves_the_catalog_empty(local: World, verb: str) -> None:
    commit(local.repository, FILES)
    empty = local.empty()
    with pytest.raises(KeyboardInterrupt):
        empty.with_progress(Failing(verb)).rebuild()
    assert sql(empty, "SELECT count(*) FROM chunks") == [(0,)]
    assert sql(empty, "SELECT count(*) FROM journal") == [(0,)]
    assert empty.rebuild().files == len(FILES)


# Steps are counted from the call of Stage.plan on. A step is a statement, a block of a COPY, the end of a
# transaction, or a call that makes the journal of the adopted chunk durable.
KILLED = """
import os, sys
import cafcat
from cafcat.catalog.transfer.rebuilding import Stage
from tests.worlds.kills.killed_steps import Steps

steps = Steps()
steps.begin_at(Stage, "plan", int(sys.argv[1]))
steps.count(os, "fsync", "link")
steps.count_statements()
with cafcat.open() as repository:
    repository.rebuild()
"""


def test_killed_rebuild_leaves_the_catalog_empty_or_complete(local: World) -> None:
    """Only every fifth step is tested, since each takes a process."""
    commit(local.repository, FILES)
    local.repository.rm(["b/empty"])
    leave_whole(local.repository, {"c": b"c"})
    empty = local.empty()
    variables = environment(str(empty.settings.database_url), local.store, local.folder / "home")
    found: list[int] = []
    for number in range(1, 200, 5):
        code = run_until_killed(KILLED, number, variables=variables)
        [(count,)] = sql(empty, "SELECT count(*) FROM file_locations")
        found.append(count)
        if count:
            break
        assert code == -signal.SIGKILL
        assert sql(empty, "SELECT count(*) FROM chunks") == sql(empty, "SELECT count(*) FROM journal") == [(0,)]
    assert found[-1] == len(FILES)
    assert len(found) > 4
    # If the process was killed after the commit, recover writes the record into the store of the adopted chunk.
    empty.recover()
    assert sql(empty, "SELECT count(*) FROM journal WHERE unwritten <> '{}'") == [(0,)]
    local.repository = empty
    local.assert_rebuilds()


def test_a_chunk_that_is_gone(world: World) -> None:
    first = commit(world.repository, {"a": b"1", "b": b"1"})
    second = commit(world.repository, {"a": b"2", "c": b"2"})
    world.objects.delete(f"{second}.caf")
    empty, report = world.rebuilt()
    assert not report.written
    [damage] = report.damages
    assert (damage.kind, damage.name, damage.files, damage.lost) == (DamageKind.MISSING, second, 2, True)
    assert sql(empty, "SELECT count(*) FROM chunks") == [(0,)]
    assert sql(empty, "SELECT count(*) FROM journal") == [(0,)]
    report = empty.rebuild(accept_loss=True)
    assert report.written
    assert (report.chunks, report.files, report.lost_count) == (1, 2, 1)
    assert live(empty) == {"a": b"1", "b": b"1"}
    assert sql(empty, "SELECT id, chunk_id FROM journal ORDER BY id") == [(1, 1), (2, None)]
    [(detail,)] = sql(empty, "SELECT detail FROM events WHERE kind = 'rebuild_lost'")
    assert second in detail
    assert str(empty.chunk(first).uuid) == first


def growth(repository: cafcat.Repository) -> list[tuple[Any, ...]]:
    """Return by how many files and bytes the catalog grew, and when."""
    return sql(
        repository,
        "SELECT happened_at, sum(files_change), sum(bytes_change) FROM events "
        "WHERE files_change IS NOT NULL GROUP BY 1 HAVING sum(bytes_change) <> 0 ORDER BY 1",
    )


def test_growth_is_the_same_after_a_rebuild(world: World) -> None:
    commit(world.repository, {"a": b"1", "b": b"22", "c": b"333"})
    commit(world.repository, {"a": b"4444"})
    world.repository.rm(["b"])
    world.repository.repack(max_unused=0)
    commit(world.repository, {"c": b"55555", "d": b""})
    rebuilt, _ = world.rebuilt()
    assert len(growth(rebuilt)) == 4
    assert growth(rebuilt) == growth(world.repository)


def replaced_after_loss(world: World) -> str:
    """Commit a chunk, lose its object, find the loss, and replace all its files. Return the chunk."""
    gone = commit(world.repository, {"a": b"1", "b": b"1"})
    world.objects.delete(f"{gone}.caf")
    assert world.repository.verify().missing == 1
    commit(world.repository, {"a": b"2", "b": b"2", "c": b"2"})
    return gone


def test_a_chunk_that_lost_its_object_and_then_its_last_file_is_no_loss(world: World) -> None:
    gone = replaced_after_loss(world)
    rebuilt, report = world.rebuilt()
    assert (report.written, report.damage_count, list(map(str, report.left_out))) == (True, 0, [gone])
    assert live(rebuilt) == {"a": b"2", "b": b"2", "c": b"2"}
    commit(rebuilt, {"c": b"3"})
    world.repository = rebuilt
    _, again = world.rebuilt()
    assert (again.written, list(map(str, again.left_out))) == (True, [gone])


def test_a_file_that_undelete_brought_back_in_a_left_out_chunk_is_lost(local: World) -> None:
    gone = commit(local.repository, {"a": b"1", "b": b"1"})
    local.objects.delete(f"{gone}.caf")
    assert local.repository.verify().missing == 1
    local.repository.rm(["a", "b"])
    commit(local.repository, {"c": b"2"})
    local.repository.undelete(["a"])
    _, report = local.rebuilt()
    [damage] = report.damages
    assert (report.written, damage.kind, damage.name, damage.lost) == (False, DamageKind.FILE, "a", True)
    assert gone in damage.message


def test_a_chunk_that_is_committed_again_after_it_was_listed_is_a_loss(local: World) -> None:
    """The object of a removed file comes back without its record: the rebuilt catalog has the file again."""
    chunk = commit(local.repository, {"a": b"1"})
    [record] = local.journal()
    key, content = f"{chunk}.caf", Path(local.store, f"{chunk}.caf").read_bytes()
    local.repository.rm(["a"])
    local.objects.delete(key)
    assert local.repository.verify().damaged + local.repository.verify().unneeded > 0
    commit(local.repository, {"b": b"2"})  # its record lists the chunk
    Path(local.store, key).write_bytes(content)
    local.objects.delete(record)
    local.repository, _ = local.rebuilt()
    assert live(local.repository) == {"a": b"1", "b": b"2"}
    local.objects.delete(key)
    _, report = local.rebuilt()
    assert (report.written, report.left_out) == (False, ())


def test_the_record_of_a_lost_object_goes_with_its_chunk(local: World, tmp_path: Path) -> None:
    """After a rebuild, only the record is left in the store that lost the object."""
    chunk = commit(local.repository, {"a": b"1"})
    local.repository.copy(to=tmp_path / "copies")
    local.objects.delete(f"{chunk}.caf")
    commit(local.repository, {"b": b"1"})
    stores = (local.store, str(tmp_path / "copies"))
    local.repository, _ = local.rebuilt(*stores)
    commit(local.repository, {"a": b"2"})
    assert local.repository.prune(grace_seconds=0).chunks == 1
    _, report = local.rebuilt(*stores)
    assert (report.written, report.files, report.damages, report.left_out) == (True, 2, (), ())


def test_files_that_were_brought_back_in_a_lost_chunk_are_named_as_lost(local: World) -> None:
    commit(local.repository, {"a": b"1"})
    second = commit(local.repository, {"a": b"2"})
    local.repository.rm(["a"])
    local.repository.undelete(["a"])
    local.objects.delete(f"{second}.caf")
    rebuilt, report = local.rebuilt(accept_loss=True)
    assert (report.files, report.files_lost) == (0, 1)
    assert live(rebuilt) == {}


def test_files_that_were_brought_back_in_an_unknown_chunk_are_lost(local: World) -> None:
    """Only the record of the undelete names the chunk: the store that had the chunk and its record is gone."""
    commit(local.repository, {"a": b"1"})
    [first] = local.journal()
    commit(local.repository, {"b": b"2"})
    local.repository.rm(["a"])
    local.repository.undelete(["a"])
    chunk = str(local.repository.locate("a").chunk)
    local.objects.delete(f"{chunk}.caf")
    local.objects.delete(first)
    empty, report = local.rebuilt()
    [damage] = report.damages
    assert (report.written, damage.kind, damage.name, damage.lost) == (False, DamageKind.FILE, "a", True)
    assert chunk in damage.message
    assert live(empty) == {}
    report = empty.rebuild(accept_loss=True)
    assert (report.written, report.files_lost, live(empty)) == (True, 1, {"b": b"2"})


def _damaged_index(data: bytes) -> bytes:
    return data[:-10] + b"#" + data[-9:]


def _other_path(data: bytes) -> bytes:
    return data.replace(b'"a":{', b'"q":{')


def _shorter(data: bytes) -> bytes:
    return data[:-1]


@pytest.mark.parametrize("damage", [_damaged_index, _other_path, _shorter])
def test_damaged_index_affects_only_its_chunk(world: World, damage: Any) -> None:
    commit(world.repository, {"b": b"1"})
    second = commit(world.repository, {"a": b"2", "c": b"2"})
    world.write(f"{second}.caf", damage(world.read(f"{second}.caf")))
    _, report = world.rebuilt()
    assert not report.written
    rebuilt, report = world.rebuilt(accept_loss=True)
    [found] = report.damages
    assert (found.kind, found.files, found.lost) == (DamageKind.CHUNK, 2, True)
    assert found.name == world.objects.locate(f"{second}.caf")
    assert live(rebuilt) == {"b": b"1"}


@pytest.mark.parametrize("name", ["caf", "car"])
def test_a_flipped_bit_in_a_name_is_noticed_without_the_journal(local: World, name: str) -> None:
    files = {"aaa": b"1", "ccc": b"2"}
    chunk = begin(local.repository, files, all_new=False, archive_format=by_name(name))
    chunk.finish(OnConflict.REPLACE, Progress())
    key = f"{chunk.uuid}.{name}"
    for record in local.journal():
        local.objects.delete(record)
    data = local.read(key)
    local.write(key, data[: data.rindex(b'"aaa":{')] + data[data.rindex(b'"aaa":{') :].replace(b"aaa", b"aac", 1))
    empty, report = local.rebuilt()
    assert not report.written
    [damage] = report.damages
    assert (damage.kind, damage.lost) == (DamageKind.CHUNK, True)
    assert "the index is damaged: its CRC-32C is" in damage.message
    assert live(empty) == {}


@pytest.mark.parametrize("copied", ["all chunks", "the newest chunk"])
def test_a_copy_that_a_rebuild_missed_brings_back_no_earlier_version(
    local: World, tmp_path: Path, copied: str
) -> None:
    """A catalog is rebuilt without its second store, which it uses again. Then its first chunk is pruned."""
    second = (tmp_path / "second").as_uri()
    first = commit(local.repository, {"a": b"old", "removed": b"1"})
    local.repository.copy(to=second)
    newest = commit(local.repository, {"a": b"new"})
    local.repository.rm(["removed"])
    local.repository, _ = local.rebuilt(local.store)
    local.repository.copy([] if copied == "all chunks" else [newest], to=second)
    local.repository.prune(grace_seconds=0)
    assert (tmp_path / "second" / f"{first}.caf").exists() == (copied != "all chunks")
    rebuilt, report = local.rebuilt(local.store, second)
    assert (report.adopted, report.damages) == ((), ())
    assert {file.path: rebuilt.read(file.path) for file in rebuilt.list()} == {"a": b"new"}


@pytest.mark.parametrize("copies", [False, True])
@pytest.mark.parametrize("link", [False, True])
def test_an_adopted_copy_that_a_rebuild_missed_is_never_removed(
    local: World, tmp_path: Path, copies: bool, link: bool
) -> None:
    second = tmp_path / "second"
    first = commit(local.repository, {"a": b"1"})
    local.repository.copy(to=second.as_uri())
    newest = commit(local.repository, {"b": b"2"})
    local.repository.rm(["a"])
    local.repository, _ = local.rebuilt(local.store)
    local.repository.copy([newest], to=second.as_uri())
    (tmp_path / "link").symlink_to(second)
    local.repository.adopt([str((tmp_path / "link" if link else second) / f"{first}.caf")])
    if copies:
        report = local.repository.copy(to=second.as_uri())
        assert (report.found, report.failed) == (0, ())
    local.repository.prune(grace_seconds=0)
    assert local.repository.read("a") == b"1"


def test_a_damaged_copy_that_a_rebuild_missed_is_a_warning(local: World, tmp_path: Path) -> None:
    second = tmp_path / "second"
    first = commit(local.repository, {"a": b"1"})
    local.repository.copy(to=second.as_uri())
    commit(local.repository, {"b": b"2"})
    local.repository.rm(["a"])
    local.repository, _ = local.rebuilt(local.store)
    flip(second / f"{first}.caf", 0)
    heard = Heard()
    report = local.repository.with_progress(heard).copy(to=second.as_uri())
    assert (report.copied, report.chunks_failed) == (1, 0)
    assert any(f"chunk {first}, without live files: its copy was not entered" in line for line in heard.warnings)


def test_damaged_object_with_a_whole_copy_loses_nothing(local: World, tmp_path: Path) -> None:
    copies = str(tmp_path / "copies")
    chunk = commit(local.repository, FILES)
    local.repository.copy(to=copies)
    local.write(f"{chunk}.caf", _damaged_index(local.read(f"{chunk}.caf")))
    record = local.journal()[0]
    local.write(record, local.read(record)[:-3] + b"}x\n")
    rebuilt, report = local.rebuilt(local.store, copies)
    assert report.written
    assert {(damage.kind, damage.lost) for damage in report.damages} == {
        (DamageKind.CHUNK, False),
        (DamageKind.JOURNAL, False),
    }
    assert (report.lost_count, report.copies) == (0, 0)
    assert live(rebuilt) == FILES


def test_objects_without_a_record_have_to_be_whole(local: World) -> None:
    commit(local.repository, {"b": b"1"})
    local.write("00000000-0000-0000-0000-000000000001.caf", b"nothing like it")
    overlapping = b'xx{"format_version":"1.0","files":{"p":{"start_byte":0,"end_byte":2,"crc32c":1},'
    overlapping += b'"q":{"start_byte":1,"end_byte":2,"crc32c":1}}}'
    size = len(overlapping) - 2
    local.write("00000000-0000-0000-0000-000000000002.caf", overlapping + size.to_bytes(4, "little"))
    no_checksum = b'{"format_version":"1.0","files":{"p":{"start_byte":0,"end_byte":0}}}'
    local.write("00000000-0000-0000-0000-000000000003.caf", no_checksum + len(no_checksum).to_bytes(4, "little"))
    rebuilt, report = local.rebuilt(accept_loss=True)
    assert [damage.kind for damage in report.damages] == [DamageKind.CHUNK] * 3
    assert ["begins before the end" in report.damages[1].message, "no checksum" in report.damages[2].message] == [
        True,
        True,
    ]
    assert live(rebuilt) == {"b": b"1"}


def test_damaged_record_of_a_commit_keeps_its_position(world: World) -> None:
    """The files that the commit skipped are lost with it; its position in the order is not."""
    commit(world.repository, {"a": b"1"})
    commit(world.repository, {"a": b"2", "b": b"2"})
    commit(world.repository, {"b": b"3"})
    record = world.journal()[1]
    world.write(record, world.read(record)[:-5] + b"\n")
    _, report = world.rebuilt()
    assert not report.written
    rebuilt, report = world.rebuilt(accept_loss=True)
    [damage] = report.damages
    assert (damage.kind, damage.name) == (DamageKind.JOURNAL, world.objects.locate(record))
    assert report.adopted == ()
    assert live(rebuilt) == {"a": b"2", "b": b"3"}
    assert world.differences(rebuilt) == []


def test_a_record_that_is_gone_altogether_is_as_a_chunk_without_one(local: World) -> None:
    commit(local.repository, {"a": b"1"})
    second = commit(local.repository, {"b": b"2"})
    local.write(local.journal()[1], b"garbage")
    rebuilt, report = local.rebuilt(accept_loss=True)
    assert [str(uuid) for uuid in report.adopted] == [second]
    assert live(rebuilt) == {"a": b"1", "b": b"2"}
    # Its number is not used again.
    commit(rebuilt, {"c": b"3"})
    assert len({key[8:28] for key in local.journal()}) == len(local.journal())


REMOVAL = {
    "cafcat_journal": 1,
    "sequence": 7,
    "kind": "remove",
    "happened_at": "2026-11-21T10:00:00.123456Z",
}
KEY = "journal/00000000000000000007-11111111-1111-1111-1111-111111111111.jsonl"


def record_of(*documents: dict[str, Any]) -> bytes:
    body = b"".join(json.dumps(document).encode() + b"\n" for document in documents)
    return body + json.dumps({"files": len(documents) - 1, "crc32c": crc32c(body)}).encode() + b"\n"


def test_invalid_record_is_reported_and_ignored(local: World) -> None:
    """tests/unit/test_journal_reader.py tests the kinds of invalid records."""
    commit(local.repository, {"a": b"1"})
    file = {"path": "a", "chunk": "22222222-2222-2222-2222-222222222222", "start_byte": 0}
    local.write(KEY, record_of(REMOVAL, file)[:-9] + b"\n")
    _, report = local.rebuilt()
    assert not report.written
    rebuilt, report = local.rebuilt(accept_loss=True)
    assert [(damage.kind, damage.name) for damage in report.damages] == [
        (DamageKind.JOURNAL, local.objects.locate(KEY))
    ]
    assert live(rebuilt) == {"a": b"1"}
    assert sql(rebuilt, "SELECT max(id) FROM journal") == [(1,)]
    commit(rebuilt, {"b": b"1"})
    assert sql(rebuilt, "SELECT max(id) FROM journal") == [(8,)]
    # A valid record counts, whichever program wrote it.
    local.write(KEY, record_of(REMOVAL, file))
    assert live(local.rebuilt()[0]) == {"b": b"1"}


def test_record_with_too_large_a_number_is_ignored(local: World) -> None:
    """Otherwise later records could not have larger numbers."""
    commit(local.repository, {"a": b"1"})
    local.write("journal/09223372036854775807-11111111-1111-1111-1111-111111111111.jsonl", b"x")
    rebuilt, report = local.rebuilt()
    assert report.foreign_objects == 1
    commit(rebuilt, {"b": b"1"})


def test_two_copies_of_a_catalog_in_one_store(local: World) -> None:
    """Both catalogs number their records from one, and cannot be distinguished. They are not mixed by default."""
    other = local.empty()
    [(identity,)] = sql(local.repository, "SELECT uuid FROM catalog_identity")
    sql(other, "UPDATE catalog_identity SET uuid = %s", identity)
    commit(local.repository, {"a": b"1", "x": b"1"})
    commit(local.repository, {"b": b"1"})
    commit(other, {"c": b"2", "x": b"2"})
    _, report = local.rebuilt()
    assert not report.written
    assert {damage.kind for damage in report.damages} == {DamageKind.ORDER}
    rebuilt, report = local.rebuilt(accept_loss=True)
    assert set(live(rebuilt)) == {"a", "b", "c", "x"}
    assert [row[0] for row in sql(rebuilt, "SELECT id FROM journal ORDER BY id")] == [1, 2, 3]


def test_huge_journal_record_needs_little_memory(local: World) -> None:
    files = {f"{number:06d}/{'x' * 100}": b"" for number in range(10_000)}
    commit(local.repository, files)
    local.repository.rm(folders=["."])
    local.repository.undelete(list(files)[:10])
    empty = local.empty()
    tracemalloc.start()
    try:
        empty.rebuild()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert local.differences(empty) == []
    assert peak < 20 << 20


class Refusing(LocalStore):
    """A store that refuses to read some objects."""

    def read(self, key: str, start_byte: int, end_byte: int) -> bytes:
        if key.endswith(".caf"):
            raise StoreFailed("I/O error")
        return super().read(key, start_byte, end_byte)


def test_an_object_that_cannot_be_read_is_damaged(local: World) -> None:
    commit(local.repository, {"a": b"1"})
    store: Store = Refusing(Path(local.store))
    empty = local.empty()
    report = rebuilding.Rebuild(empty.session, [store], RebuildOptions(accept_loss=True)).run()
    assert [(damage.kind, damage.message) for damage in report.damages] == [(DamageKind.CHUNK, "I/O error")]


PATHS = [f"p{number}" for number in range(6)]
paths = st.lists(st.sampled_from(PATHS), min_size=1, max_size=4, unique=True)
contents = st.integers(0, 3).map(lambda number: b"%d" % number * number)
files = st.dictionaries(st.sampled_from(PATHS), contents, min_size=1, max_size=4)
modified = st.sampled_from([None, MODIFIED, MODIFIED + 1000])
conflicts = st.sampled_from([OnConflict.REPLACE, OnConflict.REPLACE, OnConflict.SKIP])
steps = st.one_of(
    st.tuples(st.just("commit"), files, conflicts, modified),
    st.tuples(st.just("commit"), files, conflicts, modified),
    st.tuples(st.just("cross"), files, files),
    st.tuples(st.just("adopt"), files, conflicts, files),
    st.tuples(st.just("half"), files),
    st.tuples(st.just("remove"), paths),
    st.tuples(st.just("undelete"), paths),
    st.tuples(st.just("prune")),
    st.tuples(st.just("repack")),
)


def take(repository: cafcat.Repository, step: tuple[Any, ...]) -> None:
    match step:
        case "commit", new, on_conflict, modified_ns:
            commit(repository, new, on_conflict, modified_ns)
        case "cross", first, second:
            early, late = begin(repository, first, all_new=False), begin(repository, second, all_new=False)
            late.finish(OnConflict.REPLACE, Progress())
            early.finish(OnConflict.REPLACE, Progress())
        case "adopt", first, on_conflict, second:
            leave_whole(repository, first, on_conflict)
            commit(repository, second)
            repository.recover()
        case "half", new:
            begin(repository, new, all_new=False).abandon("test")
        case "remove", gone:
            repository.rm(gone)
        case "undelete", back:
            repository.undelete(back)
        case ("prune",):
            repository.prune(grace_seconds=0)
        case ("repack",):
            repository.repack(max_unused=0.0)


QUICK = settings(deadline=None, suppress_health_check=list(HealthCheck), phases=(Phase.reuse, Phase.generate))
"""A history takes seconds: a search for a shorter failing one would take an hour."""


@pytest.fixture(scope="module")
def two_catalogs(databases: Databases) -> Iterator[tuple[str, str]]:
    template = databases.template()
    with databases.fresh(template) as first, databases.fresh(template) as second:
        yield first, second


def check_history(urls: tuple[str, str], folder: Path, store: str, history: list[tuple[Any, ...]]) -> None:
    for url in urls:
        with psycopg.connect(url) as connection:
            connection.execute("SET session_replication_role = replica")  # disables triggers on rows of chunks
            filled = [table for table in TABLES if table != "catalog_identity"]
            connection.execute(f"TRUNCATE {', '.join(filled)} RESTART IDENTITY CASCADE")
    with (
        cafcat.open(database_url=urls[0], home=folder, store=store) as repository,
        cafcat.open(database_url=urls[1], home=folder, store=store) as empty,
    ):
        commit(repository, {"always": b"there"})
        for step in history:
            take(repository, step)
        report = empty.rebuild()
        assert report.damages == ()
        differences: list[CatalogsDiffer] = []
        repository.with_progress(Following(on=differences.append)).compare(urls[1])
        assert differences == []
        assert empty.session.catalog.reports.findings() == []
        assert live(empty) == live(repository)


@settings(QUICK, max_examples=20)
@given(history=st.lists(steps, min_size=1, max_size=12))
def test_any_history_is_rebuilt(
    two_catalogs: tuple[str, str], tmp_path: Path, history: list[tuple[Any, ...]]
) -> None:
    check_history(two_catalogs, tmp_path, str(tmp_path / f"store-{uuid4()}"), history)


@pytest.mark.slow
@settings(QUICK, max_examples=60)
@given(history=st.lists(steps, min_size=1, max_size=12))
def test_each_of_many_histories_is_rebuilt(
    two_catalogs: tuple[str, str], tmp_path: Path, history: list[tuple[Any, ...]]
) -> None:
    check_history(two_catalogs, tmp_path, str(tmp_path / f"store-{uuid4()}"), history)


@pytest.mark.slow
@settings(QUICK, max_examples=5)
@given(history=st.lists(steps, min_size=6, max_size=10))
def test_any_history_is_rebuilt_from_a_bucket(
    two_catalogs: tuple[str, str],
    tmp_path: Path,
    s3_bucket: str,
    s3_environment: None,
    history: list[tuple[Any, ...]],
) -> None:
    check_history(two_catalogs, tmp_path, f"s3://{s3_bucket}/{uuid4()}", history)


def test_errors_of_the_catalog_are_cafcats_own(local: World) -> None:
    commit(local.repository, {"a": b"1"})
    empty = local.empty()
    sql(empty, "DROP TABLE journal_files")
    with pytest.raises(CafcatError):
        empty.rebuild()
