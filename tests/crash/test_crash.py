"""A sample of the crash campaign (`make crash` runs all of it), and that its parts do what they say."""

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
from tests.crash.verbs import SMALL, VERBS, here, ingest_by_two, packed, write_files
from tests.crash.world import Outcome, World
from tests.worlds.servers.services import missing_service

ALONE = [name for name, verb in VERBS.items() if verb.victim is None]
QUICK = ("ingest", "copy")
"""Sampled on S3, too, where each takes its time."""
QUICK_TEAMS = ("ingest by two: leader", "ingest by two: worker 1", "ingest by two: all at worker 2")


def slow_but(quick: Sequence[str], all_of_them: Iterable[str]) -> list[Any]:
    return [name if name in quick else pytest.param(name, marks=pytest.mark.slow) for name in all_of_them]


def check_here(name: str) -> None:
    if name not in here():
        missing_service(f"{VERBS[name].needs}, for {name}")


def store_of(world: World) -> str:
    return "s3" if world.environment else "folder"


@pytest.mark.parametrize("kills", [2, pytest.param(6, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", ALONE)
@pytest.mark.parametrize("crash_world", ["folder"], indirect=True)
def test_some_kills_in_a_folder(crash_world: World, name: str, kills: int) -> None:
    check_here(name)
    tally = crash(crash_world, name, "folder", spread(kills))
    assert tally.kills.total() >= kills
    assert tally.found == []


@pytest.mark.parametrize("name", slow_but(QUICK_TEAMS, (name for name in VERBS if name not in ALONE)))
@pytest.mark.parametrize("crash_world", slow_but(["folder"], ["folder", "s3"]), indirect=True)
def test_a_kill_of_one_of_a_team_or_of_all(crash_world: World, name: str) -> None:
    tally = crash(crash_world, name, store_of(crash_world), spread(1))
    assert tally.kills.total() >= 1
    assert tally.found == []


@pytest.mark.parametrize(
    ("name", "kills"),
    [*((name, 1) for name in QUICK), *(pytest.param(name, 2, marks=pytest.mark.slow) for name in ALONE)],
)
@pytest.mark.parametrize("crash_world", ["s3"], indirect=True)
def test_some_kills_on_s3(crash_world: World, name: str, kills: int) -> None:
    check_here(name)
    tally = crash(crash_world, name, "s3", spread(kills))
    assert tally.kills.total() >= kills
    assert tally.found == []


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


def test_the_boundaries_of_an_ingest_are_seen(crash_world: World) -> None:
    crash_world.begin()
    write_files(crash_world, "one", "ab", 1)
    passed = crash_world.cafcat("ingest", *SMALL, "one").passed
    labels = {label.partition(" ")[2] for label in passed}
    assert labels >= EVERYWHERE | (ON_S3 if store_of(crash_world) == "s3" else IN_FOLDER)
    assert sum(label.startswith("before ") for label in passed) == len(passed) / 2


@pytest.mark.parametrize("crash_world", ["folder"], indirect=True)
def test_the_head_of_a_car_is_written_before_it_is_made_durable(crash_world: World) -> None:
    crash_world.begin()
    packed(crash_world)  # and with it the marker of the store, which is made durable first
    write_files(crash_world, "one", "ab", 1)
    passed = crash_world.cafcat("ingest", *SMALL, "--format", "car", "one").passed
    assert (
        passed.index("before file pwrite") < passed.index("after file pwrite") < passed.index("before file fsync")
    )
    crash_world.close()


@pytest.mark.parametrize("crash_world", ["folder"], indirect=True)
def test_a_kill_comes_at_its_boundary_and_leaves_what_was_before(crash_world: World) -> None:
    """The first chunk is there, of the second there is what was done before."""
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
    """Whether its file system has O_DIRECT."""
    descriptor = os.open(folder / "probe", os.O_WRONLY | os.O_CREAT)
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETFL, getattr(os, "O_DIRECT", 0))
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return hasattr(os, "O_DIRECT")


@pytest.mark.parametrize("crash_world", ["folder"], indirect=True)
def test_the_boundaries_of_each_of_a_team_are_seen(crash_world: World) -> None:
    """A chunk of more than a block is written directly first, and buffered from where the last block begins."""
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
    "a worker that stays": ("leader", Outcome(-9, "", "", (), (1,)), "1 processes did not leave"),
    "a leader that lives": ("all at worker 1", Outcome(1, DIED, "", (), ()), "it ended with 1"),
    "a death that is not told": ("worker 1", Outcome(0, "", "", (), ()), "was not told"),
    "another code": ("worker 1", Outcome(2, DIED, "", (), ()), "was not told"),
    "a success without all files": (
        "worker 1",
        Outcome(0, "", "", ("after pipe finished",), ()),
        "it had finished",
    ),
    "an open chunk of the living": ("leader", Outcome(-9, "", "", (), ()), "1 open chunks are left by 0 dead"),
}


@pytest.mark.parametrize("crash_world", ["folder"], indirect=True)
def test_what_a_team_must_not_do_is_found(crash_world: World) -> None:
    trial = prepare(crash_world, VERBS["ingest by two: leader"])
    crash_world.restore(trial.state)
    crash_world.killed(*trial.command, before="file link")
    for what, (name, outcome, words) in BAD.items():
        found = list(replace(trial, verb=VERBS[f"ingest by two: {name}"]).when_killed(outcome))
        assert any(words in problem for problem in found), what
    crash_world.close()


PARTIAL = ".cafcat-0123456789abcdef.partial"
LEFT: dict[str, tuple[dict[str, bytes], str]] = {
    "half an archive": ({"all.caf": b"half"}, "has ['all.caf'], or other bytes"),
    "nothing of what was there before": ({}, "has [], or other bytes"),
    "another name": ({"all.caf": b"older", "all.caf.tmp": b""}, "'all.caf.tmp'"),
    "two temporary files": ({"all.caf": b"older", PARTIAL: b"", PARTIAL.replace("0", "f"): b""}, "are left"),
}


@pytest.mark.parametrize("crash_world", ["folder"], indirect=True)
def test_what_a_killed_export_must_not_leave_is_found(crash_world: World) -> None:
    trial = prepare(crash_world, VERBS["export over another"])
    for what, (left, words) in LEFT.items():
        crash_world.restore(trial.state._replace(outputs=left))
        assert any(words in problem for problem in trial.after_kill()), what
    crash_world.restore(trial.state._replace(outputs={"all.caf": b"older", PARTIAL: b"half"}))
    assert [*trial.after_kill(), *trial.after_all()] == []
    crash_world.close()


@pytest.mark.parametrize("crash_world", ["folder"], indirect=True)
def test_an_archive_that_was_touched_is_found(crash_world: World) -> None:
    trial = prepare(crash_world, VERBS["adopt"])
    crash_world.restore(trial.state)
    assert crash_world.outside is not None
    [*_, key] = crash_world.outside.objects()
    crash_world.outside.write(key, b"")
    assert "the archives of somebody else are not what they were" in list(trial.after_kill())
    crash_world.close()
