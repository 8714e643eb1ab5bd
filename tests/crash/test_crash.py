"""A sample of the crash campaign (`make crash` runs all of it), and tests of the campaign's own parts."""

import fcntl
import itertools
import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.crash.campaign import DIED, crash, prepare, spread
from tests.crash.team import Victim
from tests.crash.verbs import SMALL, VERBS, available_verbs, ingest_by_two, packed, write_files
from tests.crash.world import Outcome, World
from tests.worlds.servers.services import missing_service

ALONE = [name for name, verb in VERBS.items() if verb.victim is None]
QUICK = ("ingest",)
"""Sampled on S3, too, where each verb takes long."""
QUICK_TEAMS = ("ingest by two: leader", "ingest by two: worker 1", "ingest by two: all at worker 2")


def slow_except(quick: Sequence[str], all_of_them: Iterable[str]) -> list[Any]:
    return [name if name in quick else pytest.param(name, marks=pytest.mark.slow) for name in all_of_them]


def check_here(name: str) -> None:
    if name not in available_verbs():
        missing_service(f"{VERBS[name].needs}, for {name}")


def store_of(world: World) -> str:
    return "s3" if world.environment else "folder"


@pytest.mark.parametrize("kills", [2, pytest.param(6, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", ALONE)
@pytest.mark.parametrize("crash_world", ["folder"], indirect=True)
def test_killed_verb_recovers_in_a_folder(crash_world: World, name: str, kills: int) -> None:
    check_here(name)
    tally = crash(crash_world, name, "folder", spread(kills))
    assert tally.kills.total() >= kills
    assert tally.found == []


@pytest.mark.parametrize("name", slow_except(QUICK_TEAMS, (name for name in VERBS if name not in ALONE)))
@pytest.mark.parametrize("crash_world", slow_except(["folder"], ["folder", "s3"]), indirect=True)
def test_killed_team_recovers(crash_world: World, name: str) -> None:
    tally = crash(crash_world, name, store_of(crash_world), spread(1))
    assert tally.kills.total() >= 1
    assert tally.found == []


@pytest.mark.parametrize(
    ("name", "kills"),
    [*((name, 1) for name in QUICK), *(pytest.param(name, 2, marks=pytest.mark.slow) for name in ALONE)],
)
@pytest.mark.parametrize("crash_world", ["s3"], indirect=True)
def test_killed_verb_recovers_on_s3(crash_world: World, name: str, kills: int) -> None:
    check_here(name)
    tally = crash(crash_world, name, "s3", spread(kills))
    assert tally.kills.total() >= kills
    assert tally.found == []


AFTER_A_LOSS = (
    "SELECT file_path, c.store FROM file_locations AS l JOIN chunks AS c ON c.id = l.caf_file_id ORDER BY 1",
    "SELECT file_path FROM retired_locations WHERE reason = 'removed' ORDER BY 1",
    "SELECT store, state, deleted_at IS NULL, count(*) FROM chunks GROUP BY 1, 2, 3 ORDER BY 1, 2, 3",
    "SELECT store, state, deleted_at IS NULL, count(*) FROM chunk_copies GROUP BY 1, 2, 3 ORDER BY 1, 2, 3",
    # The second command may write the list of stores once more.
    "SELECT kind FROM journal WHERE kind <> 'remove' ORDER BY id",
    "SELECT kind FROM journal WHERE unwritten <> '{}'",
)


@pytest.mark.parametrize("every", [9, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("crash_world", slow_except(["folder"], ["folder", "s3"]), indirect=True)
def test_a_lost_store_can_be_given_up_after_any_kill(crash_world: World, every: int) -> None:
    """The store had chunks with and without a copy elsewhere, copies, and files of a former chunk elsewhere."""
    world, (kept, lost) = crash_world, crash_world.places
    world.begin()
    packed(world)
    world.cafcat("copy", "-q", "--all", "--to", lost.url)
    write_files(world, "more", "abcdef", 5)
    world.cafcat("ingest", *SMALL, "--store", lost.url, "more")
    world.cafcat("copy", "-q", "--prefix", "more", "--to", kept.url)
    write_files(world, "lost", "ab", 6)
    world.cafcat("ingest", *SMALL, "--store", lost.url, "lost")
    write_files(world, "moved", "ab", 7)
    world.cafcat("ingest", *SMALL, "moved")
    [(chunk,)] = world.sql("SELECT chunk::text FROM cafcat_ops.files WHERE file_path = 'moved/a.dat'")
    world.cafcat("repair", "-q", "--chunk", chunk, "--store", lost.url, "--yes")
    lost.put({}, [])
    state = world.save()
    world.restore(state)
    command = ("store", "rm", lost.url, "--lost", "--yes")
    passed = world.cafcat(*command).passed
    expected = [world.sql(query) for query in AFTER_A_LOSS]
    assert "more/a.dat" in dict(expected[0])
    assert expected[1][-2:] == [("lost/a.dat",), ("lost/b.dat",)]
    assert ("moved/a.dat", chunk) in world.sql("SELECT file_path, chunk::text FROM cafcat_ops.files")
    assert "nothing is wrong" in world.cafcat("db", "check").output
    for number in range(1, len(passed) + 1, every):
        world.restore(state)
        world.cafcat(*command, kill_at=number, code=-9)
        world.settle()
        world.cafcat(*command)
        world.cafcat("recover", "-q")  # writes the journal record if the command could not do so
        assert [world.sql(query) for query in AFTER_A_LOSS] == expected, passed[number - 1]
        assert "nothing is wrong" in world.cafcat("db", "check").output
        world.cafcat("verify", "-q", "--level", "data")
    world.close()


EVERYWHERE = {"sql BEGIN", "sql COMMIT", "sql COPY", "sql INSERT INTO chunks", "sql INSERT INTO journal"}
IN_FOLDER = {
    "file open for writing",
    "file write",
    "file fsync",
    "file link",
    "file unlink",
    "file fsync of a folder",
}
ON_S3 = {"s3 CreateMultipartUpload", "s3 UploadPart", "s3 CompleteMultipartUpload", "s3 HeadObject"}


def test_boundaries_of_an_ingest_are_counted(crash_world: World) -> None:
    crash_world.begin()
    write_files(crash_world, "one", "ab", 1)
    passed = crash_world.cafcat("ingest", *SMALL, "one").passed
    labels = {label.partition(" ")[2] for label in passed}
    assert labels >= EVERYWHERE | (ON_S3 if store_of(crash_world) == "s3" else IN_FOLDER)
    assert sum(label.startswith("before ") for label in passed) == len(passed) / 2


@pytest.mark.parametrize("crash_world", ["folder"], indirect=True)
def test_car_head_is_written_before_the_sync(crash_world: World) -> None:
    crash_world.begin()
    packed(crash_world)  # this also writes the marker of the store, which is made durable first
    write_files(crash_world, "one", "ab", 1)
    passed = crash_world.cafcat("ingest", *SMALL, "--format", "car", "one").passed
    assert (
        passed.index("before file pwrite") < passed.index("after file pwrite") < passed.index("before file fsync")
    )
    crash_world.close()


@pytest.mark.parametrize("crash_world", ["folder"], indirect=True)
def test_kill_happens_at_its_boundary_and_keeps_earlier_effects(crash_world: World) -> None:
    """A killed ingest leaves the first chunk, and an upload of the second one."""
    crash_world.begin()
    packed(crash_world)
    write_files(crash_world, "dead", "abc", 3)
    crash_world.killed("ingest", "-q", "dead", before="file link")
    assert len(crash_world.places[0].uploads()) == 1
    assert crash_world.sql("SELECT count(*) FROM chunks WHERE state = 'writing'") == [(1,)]
    passed = crash_world.cafcat("recover", "-q").passed
    for number in itertools.islice(itertools.count(1), 3):
        outcome = crash_world.cafcat("recover", "-q", kill_at=number, code=-9)
        assert outcome.label == passed[number - 1]


def direct_writes_are_possible(folder: Path) -> bool:
    """Return True if the file system of the folder supports O_DIRECT."""
    descriptor = os.open(folder / "probe", os.O_WRONLY | os.O_CREAT)
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETFL, getattr(os, "O_DIRECT", 0))
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return hasattr(os, "O_DIRECT")


@pytest.mark.parametrize("crash_world", ["folder"], indirect=True)
def test_boundaries_of_every_process_of_a_team_are_counted(crash_world: World) -> None:
    """The whole blocks of a large chunk are written directly; its last block is buffered."""
    for number in (0, 1):
        crash_world.begin()
        passed = crash_world.cafcat(*ingest_by_two(crash_world), victim=Victim(number)).passed
        labels = {label.partition(" ")[2] for label in passed}
        if number == 0:
            assert labels >= {
                "pipe Setup",
                "pipe pack",
                "pipe finish",
                "pipe receive",
                "sql UPDATE ingest_runs SET",
            }
        else:
            sent = {"pipe done", "pipe report", "pipe event", "pipe finished"}
            assert labels >= EVERYWHERE | IN_FOLDER | sent
            assert not direct_writes_are_possible(crash_world.folder) or "file write direct" in labels


BAD: dict[str, tuple[str, Outcome, str]] = {
    "a worker that keeps running": ("leader", Outcome(-9, "", "", (), (1,)), "1 processes are still running"),
    "a leader that survives": ("all at worker 1", Outcome(1, DIED, "", (), ()), "it ended with 1"),
    "a death that is not reported": ("worker 1", Outcome(0, "", "", (), ()), "was not reported"),
    "another exit code": ("worker 1", Outcome(2, DIED, "", (), ()), "was not reported"),
    "a success without all files": (
        "worker 1",
        Outcome(0, "", "", ("after pipe finished",), ()),
        "it had finished",
    ),
    "an open chunk of a living process": (
        "leader",
        Outcome(-9, "", "", (), ()),
        "open chunks are left by 0 dead",
    ),
}


@pytest.mark.parametrize("crash_world", ["folder"], indirect=True)
def test_campaign_finds_wrong_behaviour_of_a_team(crash_world: World) -> None:
    trial = prepare(crash_world, VERBS["ingest by two: leader"])
    crash_world.restore(trial.state)
    crash_world.killed(*trial.command, before="file link")
    for case, (name, outcome, words) in BAD.items():
        found = list(replace(trial, verb=VERBS[f"ingest by two: {name}"]).when_killed(outcome))
        assert any(words in problem for problem in found), case
    crash_world.close()


PARTIAL = ".cafcat-0123456789abcdef.partial"
LEFT: dict[str, tuple[dict[str, bytes], str]] = {
    "half an archive": ({"all.caf": b"half"}, "has ['all.caf'], or their bytes"),
    "the older output is gone": ({}, "has [], or their bytes"),
    "another name": ({"all.caf": b"older", "all.caf.tmp": b""}, "'all.caf.tmp'"),
    "two temporary files": ({"all.caf": b"older", PARTIAL: b"", PARTIAL.replace("0", "f"): b""}, "are left"),
}


@pytest.mark.parametrize("crash_world", ["folder"], indirect=True)
def test_campaign_finds_wrong_outputs_of_a_killed_export(crash_world: World) -> None:
    trial = prepare(crash_world, VERBS["export over another"])
    for case, (left, words) in LEFT.items():
        crash_world.restore(trial.state._replace(outputs=left))
        assert any(words in problem for problem in trial.after_kill()), case
    crash_world.restore(trial.state._replace(outputs={"all.caf": b"older", PARTIAL: b"half"}))
    assert [*trial.after_kill(), *trial.after_all()] == []
    crash_world.close()


@pytest.mark.parametrize("crash_world", ["folder"], indirect=True)
def test_campaign_finds_a_changed_third_party_archive(crash_world: World) -> None:
    trial = prepare(crash_world, VERBS["adopt"])
    crash_world.restore(trial.state)
    assert crash_world.outside is not None
    [*_, key] = crash_world.outside.objects()
    crash_world.outside.write(key, b"")
    assert "the third-party archives have changed" in list(trial.after_kill())
    crash_world.close()
