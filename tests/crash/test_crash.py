"""A sample of the crash campaign (`make crash` runs all of it), and that its parts do what they say."""

import itertools

import pytest

from tests.crash.campaign import crash, spread
from tests.crash.verbs import SMALL, VERBS, packed, write_files
from tests.crash.world import World

QUICK = ("ingest", "recover", "prune", "copy")
"""Sampled on S3, too, where each takes its time."""


def store_of(world: World) -> str:
    return "s3" if world.environment else "folder"


@pytest.mark.parametrize("name", VERBS)
@pytest.mark.parametrize("crash_world", ["folder"], indirect=True)
def test_some_kills_in_a_folder(crash_world: World, name: str) -> None:
    tally = crash(crash_world, name, "folder", spread(3))
    assert tally.kills.total() >= 3
    assert tally.found == []


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in VERBS]
)
@pytest.mark.parametrize("crash_world", ["s3"], indirect=True)
def test_some_kills_on_s3(crash_world: World, name: str) -> None:
    tally = crash(crash_world, name, "s3", spread(2))
    assert tally.kills.total() >= 2
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
