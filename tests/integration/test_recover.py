"""Leftovers of dead writers in catalog and store: recover adopts whole chunks, and abandons the others.

The tests run with a folder and on S3. Concurrent operations are in test_recover_leases.py, stores in
test_recover_stores.py.
"""

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

import cafcat
from cafcat.catalog.chunks.owners import owner_name
from cafcat.errors import NotFound
from cafcat.events import ChunkRecovered, RecoverOutcome
from cafcat.formats.caf.format import CAF
from cafcat.formats.index_checksum import CHECKSUM_BYTES, CHECKSUM_TEXT
from cafcat.model import ChunkState, OnConflict
from cafcat.operations.recover import run as recovering
from cafcat.progress import Progress
from cafcat.support.checksums import crc32c
from cafcat.testing.formats import ListSink
from cafcat.writing.chunk import OpenChunk
from tests.worlds.catalog_world import MODIFIED, begin, commit, reasons, sql
from tests.worlds.kills.killing import STEPS, killed_at_each_step
from tests.worlds.listeners import Following, Listener
from tests.worlds.places import Folder, Place
from tests.worlds.recover_world import (
    FILES,
    check,
    chunk_objects,
    counted,
    die_before_commit,
    end_leases,
    key_of,
    leave_half,
    leave_whole,
    place,
    recover,
    states,
)
from tests.worlds.servers.services import Databases

__all__ = ["place"]


@pytest.mark.parametrize(("place", "every"), STEPS, indirect=["place"])
def test_an_ingest_is_killed_at_every_step(
    repository: cafcat.Repository, place: Place, tmp_path: Path, every: int
) -> None:
    for path, content in FILES.items():
        (tmp_path / "tree" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "tree" / path).write_bytes(content)
    whole: set[str] = set()
    half: set[str] = set()
    for _ in killed_at_each_step(repository, place.url, tmp_path, "ingest", every=every):
        # The next ingest recovers the leftovers first: the writer is dead, even if its lease has not ended.
        left = {key for (key,) in sql(repository, "SELECT object_key FROM chunks WHERE state = 'writing'")}
        whole |= left & set(chunk_objects(place))
        half |= left - whole
    assert recover(repository).failed == ()
    assert whole
    assert half
    states_of = dict(sql(repository, "SELECT object_key, state FROM chunks"))
    assert {states_of[key] for key in whole} == {"committed"}
    assert {states_of[key] for key in half} == {"abandoned"}
    found = check(repository, place)
    runs = {path.split("/")[0] for path in found}
    assert len(runs) == states(repository).count("committed") > len(whole)
    assert found == {f"{run}/tree/{path}": data for run in runs for path, data in FILES.items()}
    assert counted(repository.recover()) == {}


@pytest.mark.parametrize(("place", "every"), STEPS, indirect=["place"])
def test_a_recover_is_killed_at_every_step(
    repository: cafcat.Repository, place: Place, tmp_path: Path, every: int
) -> None:
    """The next recover completes the work."""
    expected: dict[str, bytes] = {}

    def leave() -> None:
        number = len(expected)
        remains = leave_half(repository, {"remains": b"remains"})
        repository.session.catalog.chunks.abandon_chunk(remains._id, "interrupted")
        leave_half(repository, {"half": b"half"})
        expected[f"{number}"] = b"whole"
        leave_whole(repository, {f"{number}": b"whole"})
        end_leases(repository)

    leave()
    for _ in killed_at_each_step(repository, place.url, tmp_path, "recover", every=every):
        assert recover(repository).failed == ()
        assert check(repository, place) == expected
        leave()
    assert check(repository, place) == expected


def test_adopted_chunk_has_the_rows_of_a_normal_commit(
    repository: cafcat.Repository, place: Place, databases: Databases, tmp_path: Path
) -> None:
    """The object has dead bytes, and names in no order."""
    described = (
        "SELECT size_bytes, data_bytes, index_start_byte, index_end_byte, file_count, live_file_count, live_bytes, "
        "crc64nvme, array_agg((file_path, start_byte, end_byte, crc32c, modified_at)::text ORDER BY file_path) "
        "FROM chunks AS c JOIN file_locations ON caf_file_id = c.id GROUP BY c.id"
    )

    def write(repository: cafcat.Repository) -> OpenChunk:
        chunk = begin(repository, FILES)
        given_up = chunk.open("a/given up", MODIFIED)
        given_up.write(b"dead" * 1000)
        given_up.abandon()
        chunk.add("Z", b"z", None)
        return chunk

    with (
        databases.fresh(databases.template()) as url,
        cafcat.open(database_url=url, home=tmp_path, store=str(tmp_path / "other")) as other,
    ):
        write(other).finish(OnConflict.REPLACE, Progress())
        expected = sql(other, described)
    left = die_before_commit(write(repository))
    settled: list[ChunkRecovered] = []
    report = recover(repository, on_settled=settled.append)
    assert sql(repository, described) == expected
    assert check(repository, place) == FILES | {"Z": b"z"}
    size_bytes = expected[0][0]
    assert settled == [ChunkRecovered(left.uuid, place.url, RecoverOutcome.ADOPTED, len(FILES) + 1, size_bytes)]
    assert report.files_adopted == len(FILES) + 1
    assert report.bytes_adopted == sum(map(len, FILES.values())) + 1
    assert repository.read("a/second") == FILES["a/second"]


def test_lease_is_renewed_while_many_blocks_are_checked(
    repository: cafcat.Repository, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lease ends after each block, and is renewed before the next one. A block has at most 1 MiB."""
    monkeypatch.setattr(recovering, "_RENEW_SECONDS", 0)
    files = {f"{number:02}": random.randbytes(700_001) for number in range(10)}
    files |= {f"{number:0100}": b"" for number in range(15_000)}  # an index of several blocks
    leave_whole(repository, files)
    live: list[bool] = []
    blocks: list[int] = []

    class Blocks(Listener):
        def advance(self, _: int, size_bytes: int) -> None:
            if size_bytes:
                blocks.append(size_bytes)
                live.append(sql(repository, "SELECT lease_expires_at > now() FROM chunks") == [(True,)])
                end_leases(repository)

    report = recover(repository, progress=Blocks())
    assert counted(report) == {"adopted": 1}
    assert len(blocks) > 8
    assert max(blocks) <= 1 << 20
    assert all(live)
    assert sql(repository, "SELECT lease_owner FROM chunks")[0][0].split(" [")[0].endswith(":recover")
    assert check(repository, place) == files


def flip(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :]


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "a byte of a file": lambda data: flip(data, 100),
    "a byte of the index": lambda data: flip(data, data.index(b'"start_byte"') + 1),
    "a checksum in the index": lambda data: data.replace(b'"crc32c":0,', b'"crc32c":1,'),
    "a span in the index": lambda data: data.replace(b'"end_byte":5,', b'"end_byte":4,'),
    "the footer": lambda data: flip(data, len(data) - 4),
    "cut in the data": lambda data: data[:50],
    "cut in the index": lambda data: data[:-40],
    "a byte too many": lambda data: data + b"\0",
    "nothing": lambda data: data[:0],
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_object_is_not_adopted(repository: cafcat.Repository, place: Place, damage: str) -> None:
    chunk = leave_whole(repository, FILES)
    leave_whole(repository, {"other": b"other"})
    data = chunk_objects(place)[key_of(chunk)]
    damaged = DAMAGE[damage](data)
    assert damaged != data
    place.write(key_of(chunk), damaged)
    settled: list[ChunkRecovered] = []
    report = recover(repository, on_settled=settled.append)
    assert counted(report) == {"adopted": 1, "abandoned": 1}
    assert settled[0].reason
    assert settled[0].reason in sql(repository, "SELECT detail FROM events WHERE kind = 'chunk_abandoned'")[0][0]
    assert check(repository, place) == {"other": b"other"}


def archive(files: list[tuple[str, bytes]]) -> bytes:
    sink = ListSink()
    writer = CAF.writer(sink)
    for path, content in files:
        writer.add(path, content, None)
    writer.finalize()
    return sink.data


def with_index(data: bytes, index: str) -> bytes:
    text = f'{{"format_version":"1.0","files":{{{index}}}}}'.encode()
    return data + text + len(text).to_bytes(4, "little")


FOREIGN = {
    "no checksum": with_index(b"x", '"a":{"start_byte":0,"end_byte":1}'),
    "shared bytes": with_index(
        b"xx",
        f'"a":{{"start_byte":0,"end_byte":2,"crc32c":{crc32c(b"xx")}}},'
        '"b":{"start_byte":1,"end_byte":2,"crc32c":0}',
    ),
    "a name with NUL": with_index(b"", '"a\\u0000":{"start_byte":0,"end_byte":0,"crc32c":0}'),
    "an empty name": with_index(b"", '"":{"start_byte":0,"end_byte":0,"crc32c":0}'),
    "a long name": with_index(b"", f'"{"é" * 1025}":{{"start_byte":0,"end_byte":0,"crc32c":0}}'),
}


@pytest.mark.parametrize("what", FOREIGN)
def test_foreign_objects_are_not_adopted(local: cafcat.Repository, folder: Folder, what: str) -> None:
    chunk = leave_whole(local, FILES)
    folder.write(key_of(chunk), FOREIGN[what])
    assert counted(recover(local)) == {"abandoned": 1}
    assert check(local, folder) == {}


def test_a_chunk_with_a_name_twice_is_not_adopted(local: cafcat.Repository, folder: Folder) -> None:
    chunk = leave_whole(local, FILES)
    folder.write(key_of(chunk), archive([("twice", b"old"), ("once", b"once"), ("twice", b"new")]))
    assert counted(recover(local)) == {"abandoned": 1}
    assert check(local, folder) == {}


def test_files_of_later_chunks_are_not_replaced_by_recover(local: cafcat.Repository, folder: Folder) -> None:
    dead = leave_whole(local, {"kept": b"older", "new": b"new"})
    later = commit(local, {"kept": b"newer"})
    report = recover(local)
    assert (report.files_adopted, report.files_skipped, report.bytes_adopted) == (1, 1, 3)
    assert check(local, folder) == {"kept": b"newer", "new": b"new"}
    assert str(local.locate("kept").chunk) == later
    assert reasons(local, "kept") == [(str(dead.uuid), "skipped")]


def test_files_of_earlier_chunks_are_replaced_by_recover(local: cafcat.Repository, folder: Folder) -> None:
    before = commit(local, {"changed": b"older", "other": b"other"})
    leave_whole(local, {"changed": b"newer!", "new": b"new"})
    report = recover(local)
    assert (report.files_adopted, report.files_skipped, report.bytes_adopted) == (2, 0, 9)
    assert check(local, folder) == {"changed": b"newer!", "new": b"new", "other": b"other"}
    assert reasons(local, "changed") == [(before, "replaced")]


def test_order_of_beginnings_decides_between_several_chunks(local: cafcat.Repository, folder: Folder) -> None:
    """Each path gets the version of the chunk that was begun last, in whatever order the chunks are committed."""
    commit(local, {"a": b"1", "b": b"1", "c": b"1", "d": b"1"})
    leave_whole(local, {"a": b"2", "b": b"2", "c": b"2"})
    leave_whole(local, {"b": b"3", "c": b"3", "e": b"3"})
    commit(local, {"c": b"4"})
    report = recover(local)
    assert (report.adopted, report.files_adopted, report.files_skipped) == (2, 2 + 2, 1 + 1)
    assert check(local, folder) == {"a": b"2", "b": b"3", "c": b"4", "d": b"1", "e": b"3"}
    assert {reason for path in "abcde" for _, reason in reasons(local, path)} == {"replaced", "skipped"}


@pytest.mark.parametrize("on_conflict", ["skip", "fail"])
def test_recover_of_a_run_without_replace_replaces_nothing(
    local: cafcat.Repository, folder: Folder, on_conflict: str
) -> None:
    """Another run committed the path after the dead run had checked it."""
    commit(local, {"there": b"there"})
    leave_whole(local, {"new": b"new", "there": b"other"}, on_conflict)
    report = recover(local)
    assert (report.files_adopted, report.files_skipped) == (1, 1)
    assert check(local, folder) == {"there": b"there", "new": b"new"}


def test_recover_twice(repository: cafcat.Repository, place: Place) -> None:
    leave_whole(repository, FILES)
    leave_half(repository, {"half": b"half"})
    assert place.uploads()
    assert counted(recover(repository)) == {"adopted": 1, "abandoned": 1}
    assert counted(recover(repository)) == {}
    assert check(repository, place) == FILES


def test_dry_run_gives_the_same_report_and_changes_nothing(repository: cafcat.Repository, place: Place) -> None:
    settled_before = leave_half(repository, {"before": b"before"})
    recover(repository)
    place.begin_upload(key_of(settled_before))
    remains = leave_half(repository, {"remains": b"remains"})
    repository.session.catalog.chunks.abandon_chunk(remains._id, "interrupted")
    leave_whole(repository, FILES)
    leave_half(repository, {"half": b"half"})
    end_leases(repository)
    rows = "SELECT * FROM chunks ORDER BY id"
    before = (sql(repository, rows), chunk_objects(place), sorted(place.uploads()))
    settled: list[ChunkRecovered] = []
    report = repository.with_progress(Following(on=settled.append)).recover(dry_run=True)
    assert (sql(repository, rows), chunk_objects(place), sorted(place.uploads())) == before
    expected = {"adopted": 1, "abandoned": 1, "cleaned": 1, "uploads_removed": 1}
    assert counted(report) == expected | {"dry_run": True}
    assert report.bytes_adopted == sum(map(len, FILES.values()))
    done: list[ChunkRecovered] = []
    assert counted(repository.with_progress(Following(on=done.append)).recover()) == expected
    assert done == settled
    assert check(repository, place) == FILES


def test_interrupted_recover_between_and_within_chunks(repository: cafcat.Repository, place: Place) -> None:
    """Finished chunks stay so. The next recover can process the current chunk at once."""
    for number in range(3):
        leave_whole(repository, {f"{number}": b"whole"})
    settled: list[ChunkRecovered] = []
    report = recover(repository, on_settled=settled.append, should_stop=lambda: bool(settled))
    assert counted(report) == {"adopted": 1, "interrupted": True}
    asked = iter([False, False])

    def stop() -> bool:
        try:
            return next(asked)
        except StopIteration:
            raise KeyboardInterrupt from None

    with pytest.raises(KeyboardInterrupt):
        repository.with_progress(Following(should_stop=stop)).recover()
    assert states(repository) == ["committed", "writing", "writing"]
    assert counted(repository.recover()) == {"adopted": 2, "records_written": 1}
    assert check(repository, place) == {"0": b"whole", "1": b"whole", "2": b"whole"}


def test_chunk_of_a_later_version_is_left_alone(local: cafcat.Repository, folder: Folder) -> None:
    """The chunk is neither adopted nor abandoned, and its lease does not delay the next recover."""
    chunk = leave_whole(local, FILES)
    leave_whole(local, {"other": b"other"})
    data = chunk_objects(folder)[key_of(chunk)]
    later = data.replace(b'"format_version":"1.0"', b'"format_version":"9.0"')
    start, end = later.rindex(b'{"format_version"'), later.rindex(b',"index_crc32c":"')
    text = CHECKSUM_TEXT % crc32c(later[start:end])
    folder.write(key_of(chunk), later[:end] + text + later[end + CHECKSUM_BYTES :])
    report = recover(local)
    assert (report.adopted, report.abandoned, len(report.failed)) == (1, 0, 1)
    assert str(chunk.uuid) in report.failed[0]
    assert "9.0" in report.failed[0]
    folder.write(key_of(chunk), data)
    assert counted(local.recover()) == {"adopted": 1}
    assert check(local, folder) == FILES | {"other": b"other"}


def test_ingest_after_recover_packs_only_lost_files(
    local: cafcat.Repository, folder: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for number in range(10):
        path = tmp_path / "tree" / f"{number}"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"x" * number)
        os.utime(path, ns=(MODIFIED, MODIFIED))
    leave_whole(local, {f"tree/{number}": b"x" * number for number in range(5)})
    leave_half(local, {f"tree/{number}": b"x" * number for number in range(5, 8)})
    recover(local)
    report = local.ingest(["tree"])
    assert (report.files_unchanged, report.files_added, report.files_replaced) == (5, 5, 0)
    assert check(local, folder) == {f"tree/{number}": b"x" * number for number in range(10)}
    with pytest.raises(NotFound):
        local.locate("tree/10")
    assert [chunk.state for chunk in local.chunks()].count(ChunkState.COMMITTED) == 2


def test_an_ingest_recovers_only_if_something_is_left(
    local: cafcat.Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One query decides: chunks, copies and journal records of the store, and runs of dead processes."""
    path = tmp_path / "file"
    path.write_bytes(b"1")
    local.ingest([str(path)])
    store = sql(local, "SELECT url FROM stores")[0][0]
    left = local.session.catalog.recovery.leftovers
    assert left(store) == (False, False)
    sql(local, "UPDATE journal SET unwritten = ARRAY[(SELECT url FROM stores)]")
    assert left(store) == (True, False)
    assert left("file:///elsewhere") == (False, False)
    local.ingest([str(path)])
    assert left(store) == (False, False)
    dead = owner_name("ingest").replace(f":{os.getpid()}:", f":{2**30}:")
    sql(local, f"UPDATE ingest_runs SET state = 'running', finished_at = NULL, owner = '{dead}' WHERE id = 1")
    assert left(store) == (False, True)
    assert local.recover(dry_run=True).runs_failed == 1
    assert (local.recover().runs_failed, local.recover().runs_failed) == (1, 0)
    sql(local, f"UPDATE ingest_runs SET state = 'running', finished_at = NULL, owner = '{dead}' WHERE id = 1")
    with monkeypatch.context() as patch:
        patch.setattr(recovering.Recovery, "recover_rows", lambda *_: pytest.fail("nothing is left in the store"))
        local.ingest([str(path)])
    assert sql(local, "SELECT state FROM ingest_runs WHERE id = 1") == [("failed",)]
    leave_half(local, {"half": b"2"})
    end_leases(local)
    assert left(store) == (True, False)
