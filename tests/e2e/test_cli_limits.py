"""limits set, limits list, limits remove, runs show, watch, pause and resume, and ingest --estimate."""

import tarfile

import psycopg
import pytest

from tests.e2e.conftest import Cafcat, documented_keys


def test_a_limit_is_set_listed_and_removed(cafcat: Cafcat) -> None:
    found = cafcat("limits", "set", "s3://b/in/", "--requests", "3", "--in-flight", "1GB", "--json").document
    assert found == {"set": "s3://b/in"}
    listed = cafcat("limits", "list", "--json").document
    assert set(listed) == documented_keys("limits list")
    assert (listed["url"], listed["requests"], listed["in_flight_bytes"]) == ("s3://b/in", 3, 1_000_000_000)
    assert cafcat("limits", "list").lines == [
        "s3://b/in  3 requests at the same time, 1.0 GB in flight  (0 processes)"
    ]
    cafcat("limits", "remove", "s3://b/in")
    assert cafcat("limits", "list").err.startswith("cafcat: there are no limits; ")
    assert "no limit for s3://b/in" in cafcat("limits", "remove", "s3://b/in", code=4).err
    (cafcat.folder / "limits.toml").write_text('[stores.named]\nurl = "s3://named/chunks"\n')
    cafcat("--config", "limits.toml", "limits", "set", "named", "--requests", "3", "-q")
    assert cafcat("limits", "list", "--json").document["url"] == "s3://named/chunks"
    assert "give --requests" in cafcat("limits", "set", "s3://b", code=2).err
    assert "not a number of bytes" in cafcat("limits", "set", "s3://b", "--bandwidth", "fast", code=2).err


def test_a_run_is_paused_and_resumed(cafcat: Cafcat) -> None:
    (cafcat.folder / "tree").mkdir()
    cafcat("ingest", "tree")
    assert "no running ingest has the number 1" in cafcat("runs", "pause", "1", code=4).err
    with psycopg.connect(str(cafcat.database_url), autocommit=True) as connection:
        connection.execute("UPDATE ingest_runs SET state = 'running'")
        assert cafcat("runs", "pause", "1", "--json").document == {"paused": 1}
        assert connection.execute("SELECT paused_at IS NOT NULL FROM ingest_runs").fetchall() == [(True,)]
        assert cafcat("runs", "resume", "1", "--json").document == {"resumed": 1}
        assert connection.execute("SELECT paused_at FROM ingest_runs").fetchall() == [(None,)]
    assert len(cafcat("runs", "--limit", "1").lines) == 1


def test_a_run_is_shown_and_watched(cafcat: Cafcat) -> None:
    (cafcat.folder / "tree").mkdir()
    (cafcat.folder / "tree" / "a").write_bytes(b"a")
    cafcat("ingest", "tree", "--cluster", "local://1")
    lines = cafcat("runs", "show", "1").lines
    assert "finished     +1 file," in lines[0]
    assert lines[1] == "shards: 1 finished; 1 file, 1 B handled"
    assert lines[2].endswith(": 1 shard, 0 running; 1 file, 1 B handled")
    assert cafcat("runs", "watch", "1").lines == lines
    document = cafcat("runs", "show", "1", "--json").document
    shown = {*document, *document["shards"][0]}
    assert shown == documented_keys("runs show") | (documented_keys("runs") - {"runs"})
    assert "there is no run 2" in cafcat("runs", "show", "2", code=4).err


def test_an_estimate_needs_no_database(cafcat: Cafcat) -> None:
    (cafcat.folder / "tree").mkdir()
    (cafcat.folder / "tree" / "a").write_bytes(bytes(1000))
    without = Cafcat(cafcat.folder, None)
    found = without("ingest", "tree", "--estimate", "--json").document["estimate"]
    assert {*found, *found["requests"], *found["speed"], *found["costs"][0]} == documented_keys(
        "ingest --estimate"
    ) - {"estimate"}
    assert (found["objects"], found["size_bytes"], found["is_exact"]) == (1, 1000, True)
    assert without("ingest", "tree", "--estimate").lines[0] == "objects   1, counted"
    assert not (cafcat.folder / "home").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--prices", "x"], "--prices is for --estimate only"),
        (["--estimate", "--prices", "none"], "cannot be read"),
    ],
)
def test_wrong_prices_are_refused(cafcat: Cafcat, arguments: list[str], message: str) -> None:
    (cafcat.folder / "tree").mkdir()
    assert message in cafcat("ingest", "tree", *arguments, code=2).err


@pytest.mark.parametrize("suffix", ["tar", "tar.gz"])
def test_tar_archives_are_not_estimated(cafcat: Cafcat, suffix: str) -> None:
    (cafcat.folder / "a").write_bytes(b"a")
    with tarfile.open(cafcat.folder / f"t.{suffix}", "w:gz" if suffix == "tar.gz" else "w") as archive:
        archive.add(cafcat.folder / "a", "a")
    message = f"t.{suffix} is an archive, which is not estimated; name folders or buckets"
    assert message in cafcat("ingest", f"t.{suffix}", "--estimate", code=1).err
