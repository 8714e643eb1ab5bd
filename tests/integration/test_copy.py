"""Copies of chunks in a second store: equal objects and journal records, even if processes are killed."""

import contextlib
import os
import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

import cafcat
from cafcat.errors import CafcatError, InvalidInput, NotFound, Unavailable
from cafcat.events import ChunkCopied, CopyRecovered, ObjectLeftAlone
from cafcat.model import OnConflict
from cafcat.operations.copy.report import CopyReport
from cafcat.operations.recover.report import RecoverReport
from tests.worlds.catalog_world import Opener, begin, commit, sql
from tests.worlds.copy_world import PAIRS, World, check, end_leases, folder_of, rebuilt_from_copies, world
from tests.worlds.kills.killing import killed_at_each_step
from tests.worlds.listeners import Following, Heard, Once
from tests.worlds.places import Folder
from tests.worlds.removal_world import rebuilt
from tests.worlds.servers.s3_proxy import Fault, Request, S3Proxy
from tests.worlds.servers.services import Databases

__all__ = ["world"]

FILES = {"a/first": b"first", "a/second": bytes(range(256)) * 20, "b/empty": b"", "ü/日本": b"unicode"}

pairs = pytest.mark.parametrize("world", PAIRS, indirect=True)


def counted(report: CopyReport | RecoverReport) -> dict[str, Any]:
    """Return the values of a report that are not zero or empty."""
    return {name: value for name, value in asdict(report).items() if value and name != "store"}


def with_history(world: World) -> list[str]:
    """Commit chunks with replaced, skipped, removed and restored files, and return their uuids."""
    repository = world.repository
    chunks = [commit(repository, FILES | {"gone": b"gone", "back": b"back", "old": b"old"})]
    repository.rm(["gone", "back"])
    repository.undelete(["back"])
    chunks.append(commit(repository, {"old": b"new", "c/third": b"third"}))
    chunks.append(commit(repository, {"old": b"skipped", "c/fourth": b"fourth"}, OnConflict.SKIP))
    return chunks


@pairs
def test_copies_and_their_journal_records_equal_the_originals(world: World) -> None:
    chunks = with_history(world)
    taken: list[ChunkCopied] = []
    report = world.with_progress(Following(on=taken.append)).copy()
    sizes = dict(world.sql("SELECT uuid::text, size_bytes FROM chunks"))
    assert counted(report) == {"copied": 3, "bytes_copied": sum(sizes.values())}
    assert taken == [ChunkCopied(chunk.uuid, world.second.url, "copied", sizes[str(chunk.uuid)]) for chunk in taken]
    assert [str(chunk.uuid) for chunk in taken] == chunks
    assert check(world) == {f"{chunk}.caf" for chunk in chunks}
    from_copies, catalog = rebuilt_from_copies(world)
    assert from_copies == catalog
    assert "gone" not in catalog

    world.repository.rm(["c/third"])
    world.repository.undelete(["gone"])
    check(world)
    from_copies, catalog = rebuilt_from_copies(world)
    assert from_copies == catalog

    before = world.second.everything()
    assert counted(world.copy()) == {"there": 3}
    assert world.second.everything() == before
    assert counted(world.recover()) == {}


def test_a_rebuild_of_the_copies_gives_the_catalog_back(world: World, databases: Databases, tmp_path: Path) -> None:
    with_history(world)
    world.copy()
    world.repository.rm(["a/first"])
    shutil.rmtree(folder_of(world.first))
    expected = {place.path: world.repository.read(place.path) for place in world.repository.list()}
    with (
        databases.fresh(databases.template()) as url,
        cafcat.open(database_url=url, home=tmp_path / "other", store=world.second.url) as other,
    ):
        other.rebuild()
        assert {place.path: other.read(place.path) for place in other.list()} == expected
    assert expected.keys() == FILES.keys() - {"a/first"} | {"back", "old", "c/third", "c/fourth"}


def test_some_chunks_only(world: World) -> None:
    first = commit(world.repository, {"a/1": b"1", "ab": b"2"})
    second = commit(world.repository, {"a/3": b"3"})
    third = commit(world.repository, {"b": b"b", "c/d": b"d"})
    assert counted(world.copy(prefix="c/"))["copied"] == 1
    assert check(world) == {f"{third}.caf"}
    assert counted(world.copy(first[:8]))["copied"] == 1
    assert check(world) == {f"{third}.caf", f"{first}.caf"}
    assert counted(world.copy(prefix="./b")) == {"there": 1}
    assert counted(world.copy(prefix="a"))["copied"] == 1
    assert check(world) == {f"{chunk}.caf" for chunk in (first, second, third)}
    with pytest.raises(NotFound, match="no such file or folder"):
        world.copy(prefix="nowhere")
    with pytest.raises(NotFound):
        world.copy("00000000-0000-0000-0000-000000000000")
    with pytest.raises(InvalidInput):
        world.copy(first, prefix="a")


def test_copies_in_several_stores(world: World, tmp_path: Path) -> None:
    """Copies are not copied again. Each store has everything that a rebuild from it needs."""
    with_history(world)
    world.copy()
    third = Folder(tmp_path / "third")
    world.repository.rm(["c/fourth"])
    assert world.repository.copy(to=third.url).copied == 2
    assert check(World(world.repository, world.first, third, [])) < check(world)
    from_copies, catalog = rebuilt_from_copies(World(world.repository, world.first, third, []))
    assert from_copies == catalog


def test_copy_into_the_own_store_is_refused(world: World, tmp_path: Path) -> None:
    chunk = commit(world.repository, FILES)
    with pytest.raises(InvalidInput, match="itself"):
        world.repository.copy([chunk], to=world.first.url)
    assert counted(world.repository.copy(to=str(folder_of(world.first)))) == {"own": 1}
    (tmp_path / "link").symlink_to(folder_of(world.first))
    report = world.repository.copy(to=str(tmp_path / "link"))
    assert "under two names" in report.failed[0]
    assert world.sql("SELECT count(*) FROM chunk_copies") == [(0,)]


def test_only_committed_chunks(world: World) -> None:
    chunk = commit(world.repository, FILES)
    world.repository.rm(folders=["."])
    with pytest.raises(InvalidInput, match="retired"):
        world.copy(chunk)
    open_chunk = begin(world.repository, FILES)
    with pytest.raises(InvalidInput, match="this one is writing"):
        world.copy(str(open_chunk.uuid))
    open_chunk.abandon("for a test")
    with pytest.raises(InvalidInput, match="this one is abandoned"):
        world.copy(str(open_chunk.uuid))
    assert counted(world.copy()) == {}


def test_missing_store_gets_no_copies(world: World, tmp_path: Path) -> None:
    """The folder is the mount point of a disk that is not mounted."""
    commit(world.repository, FILES)
    world.copy()
    commit(world.repository, {"more": b"more"})
    folder_of(world.second).rename(tmp_path / "elsewhere")
    with pytest.raises(Unavailable, match="is its disk mounted"):
        world.copy()
    assert world.second.everything() == {}


@pytest.mark.parametrize("left", ["no folder", "an empty folder"])
def test_chunks_of_a_store_out_of_reach_are_not_damaged(world: World, tmp_path: Path, left: str) -> None:
    """The store of two chunks is a disk that is not mounted. A third chunk is in another store."""
    for name in ("near", "far"):
        commit(world.repository, {name: name.encode()})
    third = Folder(tmp_path / "third")
    url = world.repository.settings.database_url
    with cafcat.open(database_url=url, home=tmp_path / "home", store=third.url) as repository:
        reachable = commit(repository, {"reachable": b"reachable"})
    folder_of(world.first).rename(tmp_path / "elsewhere")
    if left == "an empty folder":
        folder_of(world.first).mkdir()
    heard = Heard()
    report = world.with_progress(heard).copy()
    assert (report.copied, report.damaged, len(report.failed)) == (1, 0, 1)
    assert "is its disk mounted" in report.failed[0]
    assert f"{reachable}.caf" in world.second.everything()
    assert heard.warnings == []
    assert world.sql("SELECT count(*) FROM chunk_copies") == [(1,)]
    if left == "an empty folder":
        folder_of(world.first).rmdir()
    (tmp_path / "elsewhere").rename(folder_of(world.first))
    assert counted(world.copy())["copied"] == 2


@pytest.mark.parametrize("left", ["no folder", "an empty folder"])
@pytest.mark.parametrize("world", ["folder-folder"], indirect=True)
def test_a_source_that_vanishes_during_the_copy_has_no_damaged_chunks(
    world: World, tmp_path: Path, left: str
) -> None:
    for name in "abc":
        commit(world.repository, {name: name.encode()})
    report = world.with_progress(Following(on=lambda _: vanish(world.first, tmp_path, left))).copy()
    assert (report.copied, report.chunks_failed, report.damaged) == (1, 2, 0)
    assert [f"cannot find the store {world.first.url}" in failed for failed in report.failed] == [True]


@pytest.mark.parametrize("left", ["no folder", "an empty folder"])
@pytest.mark.parametrize("world", ["folder-folder"], indirect=True)
def test_nothing_is_written_in_place_of_a_target_that_vanished(world: World, tmp_path: Path, left: str) -> None:
    """As after the unmount of its disk: copies in the mount point would be lost at the next mount."""
    for name in "abc":
        commit(world.repository, {name: name.encode()})
    with pytest.raises(Unavailable, match=f"cannot find the store {world.second.url}"):
        world.with_progress(Following(on=lambda _: vanish(world.second, tmp_path, left))).copy()
    assert not list(folder_of(world.second).glob("**/*.caf"))
    assert world.sql("SELECT count(*) FROM chunk_copies WHERE state = 'committed'") == [(1,)]


@pytest.mark.parametrize("place", ["of the chunks", "of the copies"])
def test_a_store_of_another_catalog_in_place_of_a_store_is_no_damage(
    databases: Databases, tmp_path: Path, place: str
) -> None:
    """As after another disk was mounted there."""
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "a").write_bytes(b"a")
    first, second, third = (tmp_path / name for name in ("first", "second", "third"))
    with (
        databases.fresh(databases.template()) as url,
        databases.fresh(databases.template()) as other_url,
        cafcat.open(database_url=url, home=tmp_path / "home", store=str(first)) as repository,
        cafcat.open(database_url=other_url, home=tmp_path / "other home", store=str(third)) as other,
    ):
        for each in (repository, other):
            each.ingest([str(tmp_path / "files")])
        repository.copy(to=str(second))
        changed = first if place == "of the chunks" else second
        changed.rename(tmp_path / "right disk")
        third.rename(changed)
        report = repository.verify()
        assert (report.missing, report.unreadable, report.ok) == (0, 1, 1)
        with pytest.raises(Unavailable, match="a store of another catalog"):
            repository.copy(to=str(changed)) if place == "of the copies" else repository.ingest([str(tmp_path)])
        errors = [result.found for result in repository.doctor().diagnoses if result.level == "error"]
        assert [text for text in errors if "is a store of another catalog" in text]


def vanish(store: Folder, elsewhere: Path, left: str) -> None:
    """Rename the folder of a store, if it is still there, and leave no folder or an empty one."""
    with contextlib.suppress(OSError):
        folder_of(store).rename(elsewhere / "vanished")
    if left == "an empty folder":
        folder_of(store).mkdir(exist_ok=True)


def flip(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :]


DAMAGE: dict[str, Callable[[Path], Any]] = {
    "a byte of a file": lambda path: path.write_bytes(flip(path.read_bytes(), 3)),
    "a byte of the index": lambda path: path.write_bytes(flip(path.read_bytes(), -30)),
    "cut": lambda path: os.truncate(path, 10),
    "empty": lambda path: os.truncate(path, 0),
    "gone": os.unlink,
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_chunk_has_no_copy_and_others_are_copied(world: World, damage: str) -> None:
    damaged = commit(world.repository, FILES)
    whole = commit(world.repository, {"whole": b"whole"})
    DAMAGE[damage](folder_of(world.first) / f"{damaged}.caf")
    report = world.copy()
    assert (report.copied, report.damaged, len(report.failed)) == (1, 1, 1)
    assert damaged in report.failed[0]
    assert report.failed[0].endswith(f"run cafcat repair --chunk {damaged}")
    assert check(world) == {f"{whole}.caf"}
    assert counted(world.recover()) == {}


@pytest.mark.parametrize("damage", DAMAGE)
def test_broken_copies_are_replaced(world: World, damage: str) -> None:
    """A second file is in each store, so that the store without its copy is still that of the catalog."""
    first, second = commit(world.repository, {"a": b"first"}), commit(world.repository, {"b": b"second"})
    world.copy()
    data = world.second.objects()[f"{first}.caf"]
    DAMAGE[damage](folder_of(world.second) / f"{first}.caf")
    assert world.copy().there == 2
    assert world.repository.verify(level="data").ok == 3
    report = world.copy()
    assert (report.replaced, report.there, report.copied, report.failed) == (1, 1, 0, ())
    assert world.second.objects()[f"{first}.caf"] == data
    assert check(world) == {f"{first}.caf", f"{second}.caf"}
    assert world.repository.verify(level="data").ok == 4
    assert world.copy().there == 2


def test_a_broken_copy_of_a_damaged_chunk_stays(world: World) -> None:
    """Each object has the only right bytes of one file. `repair` reads both."""
    chunk = commit(world.repository, {"a": b"first", "b": b"second"})
    world.copy()
    objects = world.first.objects()[f"{chunk}.caf"]
    world.first.write(f"{chunk}.caf", objects.replace(b"first", b"worst"))
    world.second.write(f"{chunk}.caf", objects.replace(b"second", b"sXcond"))
    world.repository.verify(level="data")
    report = world.copy()
    assert (report.replaced, report.damaged) == (0, 1)
    assert "its bytes are damaged" in report.failed[0]
    assert b"first" in world.second.objects()[f"{chunk}.caf"]
    assert world.repository.repair(from_copies=True, dry_run=False).files_lost == 0
    assert dict(world.repository.read_many(["a", "b"])) == {"a": b"first", "b": b"second"}


def test_a_copy_that_was_mended_by_hand_stays(world: World) -> None:
    chunk = commit(world.repository, {"a": b"first"})
    world.copy()
    data = world.second.objects()[f"{chunk}.caf"]
    world.second.write(f"{chunk}.caf", data.replace(b"first", b"worst"))
    world.repository.verify(level="data")
    world.second.write(f"{chunk}.caf", data)
    before = world.sql("SELECT id FROM chunk_copies WHERE state = 'committed'")
    assert world.copy().there == 1
    assert world.sql("SELECT id FROM chunk_copies WHERE state = 'committed'") == before


def test_chunk_without_a_checksum_is_checked_against_its_index(world: World) -> None:
    whole, damaged = commit(world.repository, FILES), commit(world.repository, {"b": b"b" * 1000})
    world.sql("UPDATE chunks SET crc64nvme = NULL")
    path = folder_of(world.first) / f"{damaged}.caf"
    path.write_bytes(flip(path.read_bytes(), 3))
    report = world.copy()
    assert (report.copied, report.damaged) == (1, 1)
    assert "CRC-32C" in report.failed[0]
    key = f"{whole}.caf"
    found = world.second.everything()
    assert found[key] == world.first.everything()[key]
    assert not any(damaged in name for name in found)


def test_existing_object_counts_as_a_copy_if_it_is_equal(world: World) -> None:
    same, other = commit(world.repository, FILES), commit(world.repository, {"b": b"b"})
    folder_of(world.second).mkdir()
    for chunk in (same, other):
        shutil.copy(folder_of(world.first) / f"{chunk}.caf", folder_of(world.second))
    strange = folder_of(world.second) / f"{other}.caf"
    strange.write_bytes(flip(strange.read_bytes(), 0))
    before = strange.read_bytes()
    report = world.copy()
    assert (report.found, report.copied, report.damaged, len(report.failed)) == (1, 0, 0, 1)
    assert "another object has the same key" in report.failed[0]
    assert strange.read_bytes() == before
    assert world.recover().failed == ()
    assert strange.read_bytes() == before
    strange.unlink()
    check(world)
    assert counted(world.copy())["copied"] == 1
    assert len(check(world)) == 2


@pytest.mark.parametrize("damage", ["a byte of a file", "cut", "gone"])
def test_failed_copy_that_a_migration_left_is_called_so(world: World, damage: str) -> None:
    """After prune has removed this copy, the chunk can be copied again."""
    chunk = commit(world.repository, FILES)
    commit(world.repository, {"other": b"other"})
    world.repository.migrate_store(world.first.url, world.second.url)
    DAMAGE[damage](folder_of(world.first) / f"{chunk}.caf")
    report = world.repository.copy(to=world.first.url)
    assert (report.found, report.damaged, len(report.failed)) == (1, 0, 1)
    state = "missing" if damage == "gone" else "damaged"
    assert f"the copy that a migration left in {world.first.url} is {state}" in report.failed[0]
    assert "cafcat prune" in report.failed[0]
    world.repository.prune(grace_seconds=0)
    assert counted(world.repository.copy(to=world.first.url))["copied"] == 1
    assert world.first.everything()[f"{chunk}.caf"] == world.second.everything()[f"{chunk}.caf"]


def test_removal_during_the_first_copy_is_recorded_in_its_store(
    world: World, database_url: str, tmp_path: Path
) -> None:
    commit(world.repository, FILES)
    with cafcat.open(database_url=database_url, home=tmp_path / "home", store=world.first.url) as other:
        world.with_progress(Once(lambda: other.rm(["a/first"]))).copy()
    assert check(world)
    from_copies, catalog = rebuilt_from_copies(world)
    assert from_copies == catalog
    assert "a/first" not in catalog


def test_copy_writes_records_that_other_stores_lack(world: World, tmp_path: Path) -> None:
    """The catalog still has the files of these records."""
    commit(world.repository, FILES)
    journal = folder_of(world.first) / "journal"
    journal.rename(tmp_path / "journal")
    journal.touch()
    world.repository.rm(["a/first"])
    assert world.sql("SELECT count(*) FROM journal WHERE unwritten <> '{}'") == [(1,)]
    world.copy()
    journal.unlink()
    (tmp_path / "journal").rename(journal)
    assert world.recover().failed == ()
    assert check(world)
    from_copies, catalog = rebuilt_from_copies(world)
    assert from_copies == catalog


def test_a_damaged_record_is_no_reason_not_to_copy(world: World) -> None:
    commit(world.repository, FILES)
    world.repository.rm(["a/first"])
    record = max((folder_of(world.first) / "journal").iterdir())
    record.write_bytes(flip(record.read_bytes(), 20))
    heard = Heard()
    assert world.with_progress(heard).copy().copied == 1
    assert [record.name in warning for warning in heard.warnings] == [True]


@pytest.mark.parametrize("answered", [0, 1])
def test_a_source_that_fails_at_a_record_does_not_end_the_copy(
    database_url: str,
    tmp_path: Path,
    s3_proxy: S3Proxy,
    s3_proxy_environment: None,
    s3_bucket: str,
    answered: int,
) -> None:
    """The source answers so many reads of the journal record, and then no more. It answers reads of chunks."""
    near, target = Folder(tmp_path / "near"), Folder(tmp_path / "target")
    options = {"database_url": database_url, "home": tmp_path / "home"}
    with cafcat.open(**options, store=f"s3://{s3_bucket}/far") as repository:
        far = commit(repository, {"a": b"a", "b": b"b"})
        repository.rm(["a"])
    with cafcat.open(**options, store=near.url) as repository:
        chunk = commit(repository, {"near": b"near"})
        reads: list[str] = []

        def fault(request: Request) -> Fault | None:
            if request.operation != "GetObject" or "/journal/" not in request.key:
                return None
            reads.append(request.key)
            return Fault.ERROR_503 if len(reads) > answered else None

        s3_proxy.faults = fault
        report = repository.copy(to=target.url)
        assert len(reads) > answered
        assert (report.copied, report.damaged, len(report.failed)) == (1, 0, 1)
        assert far in report.failed[0]
        assert f"{chunk}.caf" in target.everything()
        s3_proxy.faults = lambda _: None
        assert counted(repository.copy(to=target.url))["copied"] == 1
    assert rebuilt(target).keys() == {"b", "near"}


def test_chunk_that_is_pruned_during_the_copy_has_no_copy(world: World) -> None:
    chunk = commit(world.repository, FILES)
    other = commit(world.repository, {"other": b"other"})
    decide = partial(
        world.sql,
        "UPDATE chunks SET state = 'deleted' WHERE uuid = %s",
        chunk,
    )
    report = world.with_progress(Once(decide)).copy()
    assert (report.copied, len(report.failed)) == (1, 1)
    world.sql("UPDATE chunks SET state = 'committed' WHERE uuid = %s", chunk)
    assert check(world) == {f"{other}.caf"}


def test_prune_removes_copies_and_their_records(world: World) -> None:
    chunk = commit(world.repository, FILES)
    other = commit(world.repository, {"other": b"other"})
    world.copy()
    world.repository.rm(folders=["a", "b", "ü"])
    assert world.repository.prune(grace_seconds=0).objects == 2
    assert check(world) == {f"{other}.caf"}
    assert not any(chunk in key for key in world.second.everything())
    from_copies, catalog = rebuilt_from_copies(world)
    assert from_copies == catalog == {"other": (other, 0)}


def test_copy_that_was_abandoned_by_another_process_is_not_committed(world: World) -> None:
    chunk = commit(world.repository, FILES)
    abandon = partial(world.sql, "UPDATE chunk_copies SET state = 'abandoned', lease_expires_at = NULL")
    report = world.with_progress(Once(abandon)).copy()
    assert (report.copied, len(report.failed)) == (0, 1)
    assert world.recover().failed == ()
    assert check(world) == set()
    assert world.copy(chunk).copied == 1
    check(world)


def test_concurrent_copies_make_one_copy(world: World, database_url: str, tmp_path: Path) -> None:
    chunk = commit(world.repository, FILES)
    reports: list[CopyReport] = []
    with cafcat.open(database_url=database_url, home=tmp_path / "home", store=world.first.url) as other:
        again = partial(other.copy, [chunk], to=world.second.url)
        report = world.with_progress(Once(lambda: reports.append(again()))).copy()
    assert (report.copied, report.failed) == (1, ())
    assert reports[0].copied == 0
    assert "is writing" in reports[0].failed[0]
    assert check(world) == {f"{chunk}.caf"}


@pytest.mark.parametrize("world", ["folder-bucket", "folder-folder"], indirect=True)
def test_stopped_copy_leaves_whole_copies(world: World) -> None:
    """A stop between chunks ends the copy. A stop inside a chunk leaves nothing of it."""
    for name in "abc":
        commit(world.repository, {name: name.encode() * 5000})
    asked = 0

    def stop_at(number: int, error: type[BaseException] | None = None) -> bool:
        nonlocal asked
        asked += 1
        if asked == number and error is not None:
            raise error
        return asked >= number

    report = world.with_progress(Following(should_stop=partial(stop_at, 3))).copy()
    assert report.interrupted
    assert len(check(world)) == report.copied == 1
    asked = 0
    with pytest.raises(KeyboardInterrupt):
        world.with_progress(Following(should_stop=partial(stop_at, 3, KeyboardInterrupt))).copy()
    assert len(check(world)) == 1
    assert world.sql("SELECT count(*) FROM chunk_copies WHERE deleted_at IS NULL") == [(1,)]
    assert world.copy().copied == 2
    assert len(check(world)) == 3


def test_bucket_that_refuses_parts_ends_the_copy_and_has_no_leftovers(
    database_url: str, tmp_path: Path, s3_proxy: S3Proxy, s3_proxy_environment: None, s3_bucket: str
) -> None:
    first = Folder(tmp_path / "first")
    with cafcat.open(database_url=database_url, home=tmp_path / "home", store=first.url) as repository:
        commit(repository, {"large": random.randbytes(20_000_000)})
        s3_proxy.faults = lambda request: Fault.NOT_IMPLEMENTED if request.operation == "UploadPart" else None
        with pytest.raises(CafcatError) as raised:
            repository.copy(to=f"s3://{s3_bucket}/copies")
        assert raised.value.kind in ("store_failed", "failure")
        s3_proxy.faults = lambda _: None
        client = s3_proxy.server.client()
        with contextlib.closing(client):
            assert "Uploads" not in client.list_multipart_uploads(Bucket=s3_bucket)
            assert "Contents" not in client.list_objects_v2(Bucket=s3_bucket)
        assert repository.copy(to=f"s3://{s3_bucket}/copies").copied == 1


def each_step_is_killed(world: World, folder: Path, verb: str, prepare: Callable[[int], None]) -> Iterator[int]:
    """Kill a verb that gets the second store as its argument at each step."""
    here, there = world.first.url, world.second.url
    return killed_at_each_step(world.repository, here, folder, verb, there, prepare=prepare)


@pytest.mark.slow  # `make test` has samples of it: tests/crash/test_crash.py
@pairs
def test_copy_is_killed_at_every_step(world: World, tmp_path: Path) -> None:
    """The next copy recovers the leftovers: the writer is dead, even if its lease has not ended."""
    count = 0

    def prepare(number: int) -> None:
        nonlocal count
        count = number
        commit(world.repository, {f"{count}": b"x" * 100, "same": b"%d" % count})
        if count % 3 == 0:
            world.repository.rm([f"{count}"])
            world.repository.undelete([f"{count}"])

    adopted = removed = 0
    for _ in each_step_is_killed(world, tmp_path, "copy", prepare):
        if world.sql("SELECT count(*) FROM chunk_copies WHERE state = 'writing'") == [(1,)]:
            report = world.repository.recover()
            assert report.failed == ()
            assert report.copies_adopted + report.copies_removed == 1
            adopted += report.copies_adopted
            removed += report.copies_removed
    assert adopted
    assert removed
    assert world.recover().failed == ()
    assert check(world)
    assert world.copy().failed == ()
    assert len(check(world)) == count
    from_copies, catalog = rebuilt_from_copies(world)
    assert from_copies == catalog
    assert counted(world.recover()) == {}


def leave(world: World, chunk: str, how: str) -> None:
    """Leave a copy of a dead writer: half written, whole, or abandoned and not removed."""
    key = f"{chunk}.caf"
    data = world.first.everything()[key]
    [(chunk_id,)] = world.sql("SELECT id FROM chunks WHERE uuid = %s", chunk)
    copies = world.repository.session.catalog.copies
    store = world.repository.session.stores[world.second.url]
    world.repository.session.catalog.stores.register(world.second.url)
    copy_id = copies.begin(chunk_id, world.second.url, key, "here:1:test", 900)
    upload = store.create(key)
    if upload.upload_id:
        copies.record_upload(copy_id, upload.upload_id)
    upload.write(data)
    if how == "whole":
        upload.commit()
    elif (descriptor := getattr(upload, "_descriptor", None)) is not None:
        os.close(descriptor)
    if how == "remains":
        copies.abandon(copy_id)


@pairs
def test_copies_of_dead_writers_are_recovered(world: World) -> None:
    chunks = [commit(world.repository, {name: name.encode()}) for name in "abc"]
    for chunk, how in zip(chunks, ("half", "whole", "remains"), strict=True):
        leave(world, chunk, how)
    report = world.repository.recover()  # their leases have not ended
    assert counted(report) == {"copies_removed": 1}
    end_leases(world)
    settled: list[Any] = []
    before = world.second.everything()
    dry = world.repository.recover(dry_run=True)
    assert counted(dry) == {"copies_adopted": 1, "copies_removed": 1, "dry_run": True}
    assert world.second.everything() == before
    report = world.repository.with_progress(Following(on=settled.append)).recover()
    assert counted(report) == {"copies_adopted": 1, "copies_removed": 1}
    assert settled == [
        CopyRecovered(chunks[0], world.second.url, "abandoned", settled[0].reason),
        CopyRecovered(chunks[1], world.second.url, "adopted"),
    ]
    assert check(world) == {f"{chunks[1]}.caf"}
    from_copies, _ = rebuilt_from_copies(world)
    assert from_copies == {"b": (chunks[1], 0)}
    assert counted(world.recover()) == {}


@pytest.mark.parametrize("damage", [name for name in DAMAGE if name != "gone"])
def test_a_copy_is_adopted_only_if_it_is_whole(world: World, damage: str) -> None:
    chunk = commit(world.repository, FILES)
    leave(world, chunk, "whole")
    DAMAGE[damage](folder_of(world.second) / f"{chunk}.caf")
    assert counted(world.recover()) == {"copies_removed": 1}
    assert check(world) == set()


def test_a_copy_of_a_chunk_that_was_pruned_is_removed(world: World) -> None:
    chunk = commit(world.repository, FILES)
    leave(world, chunk, "whole")
    world.repository.rm(folders=["."])
    assert world.repository.prune(grace_seconds=0).chunks == 1
    assert counted(world.recover()) == {"copies_removed": 1}
    assert check(world) == set()
    assert rebuilt_from_copies(world)[0] == {}


def test_copies_in_a_missing_store_are_not_abandoned(world: World, tmp_path: Path) -> None:
    chunks = [commit(world.repository, {name: name.encode()}) for name in "ab"]
    world.copy(chunks[0])
    leave(world, chunks[1], "whole")
    folder_of(world.second).rename(tmp_path / "elsewhere")
    report = world.recover()
    assert len(report.failed) == 1
    assert world.sql("SELECT count(*) FROM chunk_copies WHERE state = 'writing'") == [(1,)]
    (tmp_path / "elsewhere").rename(folder_of(world.second))
    assert counted(world.recover()) == {"copies_adopted": 1}
    assert len(check(world)) == 2


def copied_without_rows(tmp_path: Path, open_at: Opener) -> tuple[cafcat.Repository, Folder, str]:
    """Return a repository, another store that it uses, and the uuid of a chunk whose copy there has no row."""
    first, second = Folder(tmp_path / "first"), Folder(tmp_path / "second")
    repository = open_at(first)
    chunk = commit(repository, FILES)
    repository.copy(to=second.url)
    commit(open_at(second), {"other": b""})
    sql(repository, "DELETE FROM chunk_copies")
    return repository, second, chunk


def test_copies_without_rows_are_left_to_copy(tmp_path: Path, open_at: Opener) -> None:
    """As after the restore of a backup that is older than the copies."""
    repository, second, chunk = copied_without_rows(tmp_path, open_at)
    found: list[object] = []
    report = repository.with_progress(Following(on=found.append)).recover()
    assert counted(report) == {"unknown_copies": 1}
    assert found == [
        ObjectLeftAlone(f"{second.url}/{chunk}.caf", is_upload=False, copy_of=UUID(chunk), is_needed=True)
    ]
    assert repository.copy(to=second.url).found == 1
    assert counted(repository.recover()) == {}


def test_copies_of_pruned_chunks_without_rows_are_named(tmp_path: Path, open_at: Opener) -> None:
    """As in a store that a rebuild was not given. Their journal records stay, too."""
    repository, second, chunk = copied_without_rows(tmp_path, open_at)
    repository.rm(paths=list(FILES))
    assert counted(repository.recover()) == {"unneeded_copies": 1}
    report = repository.prune(grace_seconds=0)
    assert (report.chunks, report.objects) == (1, 1)
    assert len([key for key in second.everything() if key.startswith("journal/")]) == 3
    found: list[object] = []
    assert counted(repository.with_progress(Following(on=found.append)).recover()) == {"unneeded_copies": 1}
    assert found == [
        ObjectLeftAlone(f"{second.url}/{chunk}.caf", is_upload=False, copy_of=UUID(chunk), is_needed=False)
    ]


def test_copies_that_were_given_up_are_named(tmp_path: Path, open_at: Opener) -> None:
    """As on a lost disk that is found again: the catalog has rows of the copies, in the state `deleted`."""
    first, second, away = Folder(tmp_path / "first"), Folder(tmp_path / "second"), tmp_path / "away"
    repository = open_at(first)
    needed, unneeded = (commit(repository, {name: name.encode()}) for name in "ab")
    repository.copy(to=second.url)
    second.folder.rename(away)
    repository.rm(paths=["b"])
    repository.lose_store(second.url)
    away.rename(second.folder)
    found: list[object] = []
    report = repository.with_progress(Following(on=found.append)).recover()
    assert counted(report) == {"unknown_copies": 1, "unneeded_copies": 1}
    assert {(left.copy_of, left.is_needed) for left in found if isinstance(left, ObjectLeftAlone)} == {
        (UUID(needed), True),
        (UUID(unneeded), False),
    }
    assert repository.copy(to=second.url).found == 2
    assert counted(repository.recover()) == {}
    assert repository.prune(grace_seconds=0).objects == 2
    assert set(second.everything()).isdisjoint({f"{unneeded}.caf"})


def test_objects_of_deleted_chunks_that_are_found_again_are_named(tmp_path: Path, open_at: Opener) -> None:
    first = Folder(tmp_path / "first")
    repository = open_at(first)
    chunk = commit(repository, FILES)
    commit(repository, {"other": b""})
    repository.backup()
    objects = {key: content for key, content in first.everything().items() if key.startswith(("backups/", chunk))}
    assert len(objects) == 2
    repository.rm(paths=list(FILES))
    assert repository.prune(grace_seconds=0).chunks == 1
    sql(repository, "UPDATE backups SET state = 'deleted', deleted_at = now()")
    for key, content in objects.items():
        (first.folder / key).write_bytes(content)
    found: list[object] = []
    assert counted(repository.with_progress(Following(on=found.append)).recover()) == {"unneeded_copies": 1}
    assert found == [
        ObjectLeftAlone(f"{first.url}/{chunk}.caf", is_upload=False, copy_of=UUID(chunk), is_needed=False)
    ]
    assert objects.items() <= first.everything().items()


def test_chunks_of_a_store_that_is_away_are_counted(tmp_path: Path, open_at: Opener) -> None:
    first = Folder(tmp_path / "first")
    repository = open_at(first)
    for name in "abc":
        commit(repository, {name: name.encode()})
    first.folder.rename(tmp_path / "away")
    report = repository.copy(to=Folder(tmp_path / "second").url)
    assert (report.chunks_failed, len(report.failed)) == (3, 1)


def test_an_empty_catalog_claims_no_store(tmp_path: Path, open_at: Opener) -> None:
    second = tmp_path / "second"
    second.mkdir()
    repository = open_at(Folder(tmp_path / "first"))
    assert repository.copy(to=second.as_uri()).copied == 0
    assert list(second.iterdir()) == []
    assert sql(repository, "SELECT count(*) FROM stores") == [(0,)]


@pairs
def test_late_uploads_and_objects_are_removed(world: World) -> None:
    """Uploads and objects of an abandoned copy are removed. Objects that no row names are left alone."""
    chunks = [commit(world.repository, {name: name.encode()}) for name in "ab"]
    for chunk in chunks:
        leave(world, chunk, "remains")
    assert counted(world.recover()) == {"copies_removed": 2}
    store = world.repository.session.stores[world.second.url]
    upload = store.create(f"{chunks[0]}.caf")
    upload.write(b"late")
    if (descriptor := getattr(upload, "_descriptor", None)) is not None:
        os.close(descriptor)
    upload = store.create(f"{chunks[1]}.caf")
    upload.write(b"late")
    upload.commit()
    upload = store.create("strange")
    upload.commit()
    assert counted(world.recover()) == {"uploads_removed": 1, "objects_removed": 1, "unknown_objects": 1}
    assert set(world.second.everything()) == {"strange"}


@pytest.mark.parametrize("way", [("first", "second"), ("first", "second", "first")])
def test_recover_keeps_chunks_where_an_earlier_copy_ended(world: World, way: tuple[str, ...]) -> None:
    """The object of a migrated chunk has the key of a copy that was abandoned or pruned there before."""
    chunk = commit(world.repository, FILES)
    urls = {"first": world.first.url, "second": world.second.url}
    leave(world, chunk, "half")
    assert counted(world.recover()) == {"copies_removed": 1}
    for old, new in pairwise(way):
        assert world.repository.migrate_store(urls[old], urls[new]).chunks == 1
        world.repository.prune(grace_seconds=0)
        assert counted(world.recover()) == {}
        assert {location.store for location in world.repository.list()} == {urls[new]}
        assert world.repository.verify(level="data").ok == 1


def test_recover_keeps_a_retired_copy_whose_row_is_older(world: World, tmp_path: Path) -> None:
    chunk = commit(world.repository, FILES)
    third = (tmp_path / "third").as_uri()
    world.repository.copy(to=third)
    leave(world, chunk, "half")
    assert counted(world.recover()) == {"copies_removed": 1}
    world.repository.migrate_store(world.first.url, world.second.url)
    world.repository.migrate_store(world.second.url, third)
    assert counted(world.recover()) == {}
    assert f"{chunk}.caf" in world.second.everything()


@pytest.mark.slow  # `make test` has samples of it: tests/crash/test_crash.py
@pairs
def test_a_recover_of_copies_is_killed_at_every_step(world: World, tmp_path: Path) -> None:
    count = 0

    def prepare(number: int) -> None:
        nonlocal count
        count = number
        for how in ("half", "whole", "remains"):
            leave(world, commit(world.repository, {f"{how} {count}": b"x" * 100}), how)
        end_leases(world)

    for _ in each_step_is_killed(world, tmp_path, "recover-copies", prepare):
        assert world.recover().failed == ()
        assert len(check(world)) == count
    assert len(check(world)) == count
    from_copies, _ = rebuilt_from_copies(world)
    assert set(from_copies) == {f"whole {number}" for number in range(1, count + 1)}


def test_half_written_backups_are_removed_and_never_adopted(world: World) -> None:
    store = world.repository.session.stores[world.second.url]
    backups = world.repository.session.catalog.backups
    world.repository.session.catalog.stores.register(world.second.url)
    for name, whole in (("half", False), ("whole", True)):
        key = f"backups/{name}"
        backups.begin(world.second.url, key, 0, "here:1:test", 900)
        upload = store.create(key)
        upload.write(b"backup")
        if whole:
            upload.commit()
        else:
            os.close(upload._descriptor)  # type: ignore[attr-defined]
    assert counted(world.repository.recover()) == {}
    assert len(world.second.everything()) == 2
    assert counted(world.recover()) == {"backups_removed": 2}
    assert world.second.everything() == {}
    upload = store.create("backups/half")
    upload.write(b"late")
    os.close(upload._descriptor)  # type: ignore[attr-defined]
    (folder_of(world.second) / "backups/whole").write_bytes(b"late")
    assert counted(world.recover()) == {"uploads_removed": 1, "objects_removed": 1}
    assert world.second.everything() == {}
