"""A writer stops inside its commit: other verbs wait for a while, report the holder, and exit with 11."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from cafcat.formats.caf.format import CAF
from cafcat.testing.formats import pack
from tests.e2e.conftest import Cafcat
from tests.worlds.archives.damage import flip
from tests.worlds.waiting import wait_until

# An ingest that stops in the transaction of its commit, after its changes of file_locations.
STOPPED = """
import os, signal
from cafcat.catalog.chunks import commit
set_committed = commit._set_committed
def stop(*arguments):
    os.kill(os.getpid(), signal.SIGSTOP)
    set_committed(*arguments)
commit._set_committed = stop
import sys
from cafcat.__main__ import main
sys.argv = ["cafcat", "ingest", "-j", "1", "tree"]
main()
"""
HOLDER = re.compile(
    r"held by server process \d+ \(cafcat (\d+)@\S+, host \S+, role \w+\) since (\S+Z), idle in tra"
)


@pytest.fixture
def filled(cafcat: Cafcat) -> Cafcat:
    """The first version of some files is ingested; the second version is not."""
    (cafcat.folder / "tree").mkdir()
    for number in range(3):
        (cafcat.folder / f"tree/{number}").write_text("first")
    cafcat("ingest", "tree")
    cafcat("rm", "tree/2", "--yes")
    for number in range(2):
        (cafcat.folder / f"tree/{number}").write_text("second, longer")
    return cafcat


@contextmanager
def stopped_writer(cafcat: Cafcat) -> Iterator["subprocess.Popen[bytes]"]:
    """An ingest of the tree that is stopped in its commit. It continues at the end, and must succeed."""
    process = subprocess.Popen([sys.executable, "-c", STOPPED], cwd=cafcat.folder, env=cafcat.environment)
    try:
        wait_until(lambda: os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT | os.WNOHANG))
        yield process
    finally:
        os.kill(process.pid, signal.SIGCONT)
        assert process.wait(60) == 0


def archive(cafcat: Cafcat) -> Path:
    """Write an archive with a path that is in the catalog."""
    data, _, _ = pack(CAF, [("tree/0", b"other", 0)])
    path = cafcat.folder / "other.caf"
    path.write_bytes(data)
    return path


def test_verbs_that_commit_name_the_holder_of_the_lock_and_exit_with_11(filled: Cafcat) -> None:
    with stopped_writer(filled) as writer:
        (filled.folder / "tree/0").write_text("third, and longest of all")
        verbs = [
            ["ingest", "-j", "1", "tree/0"],
            ["ingest", "-j", "2", "tree/0"],
            ["rm", "tree/1", "--yes"],
            ["undelete", "tree/2"],
            ["adopt", "--on-conflict", "replace", str(archive(filled))],
        ]
        for verb in verbs:
            result = filled(*verb, "--lock-timeout", "1s", code=11)
            found = HOLDER.search(result.err)
            assert found, result.err
            assert int(found[1]) == writer.pid
            assert "--lock-timeout" in result.err
        assert filled("ingest", "tree/0", "--json", "--lock-timeout", "0", code=11).error["kind"] == "locked"
        assert filled("cat", "tree/0").text == "first"  # readers go on
    assert filled("cat", "tree/1").text == "second, longer"
    filled("recover", code=0)
    filled("ingest", "tree/0")
    assert filled("cat", "tree/0").text == "third, and longest of all"
    assert filled("db", "check").lines == ["nothing is wrong"]


def damage(cafcat: Cafcat) -> None:
    """Damage a chunk after it was copied."""
    cafcat("copy", "--to", "./second", "--all")
    chunk = next((cafcat.folder / "store").rglob("*.caf"))
    flip(chunk, chunk.read_bytes().index(b"first"))
    cafcat("verify", "--level", "data", code=5)


def half_dead(cafcat: Cafcat) -> None:
    """Remove one of two files that are still in the first chunk."""
    cafcat("rm", "tree/1", "--yes")


def retired(cafcat: Cafcat) -> None:
    """Remove all files of the first chunk."""
    cafcat("rm", "-r", "tree", "--yes")


@pytest.mark.parametrize(
    ("prepare", "verb"),
    [
        (half_dead, ["repack", "--max-unused", "0%", "--yes"]),
        (damage, ["repair", "--from-copy", "--yes"]),
        (None, ["copy", "--to", "./second", "--all"]),
        (retired, ["prune", "--grace", "0", "--yes"]),
        (None, ["store", "migrate", "./store", "./second"]),
    ],
    ids=["repack", "repair", "copy", "prune", "migrate"],
)
def test_custody_verbs_wait_for_a_lock_for_a_limited_time(
    filled: Cafcat, prepare: Callable[[Cafcat], None] | None, verb: list[str]
) -> None:
    """Another program holds a lock of the tables: the verb ends with exit code 11, and succeeds later."""
    if prepare is not None:
        prepare(filled)
    assert filled.database_url
    with psycopg.connect(filled.database_url, application_name="report") as holder:
        holder.execute("LOCK TABLE file_locations, chunks, chunk_copies IN SHARE MODE")
        filled.extra["CAFCAT_LOCK_TIMEOUT"] = "1s"
        result = filled(*verb, code=11)
        assert f"held by server process {holder.info.backend_pid} (report, host " in result.err
        holder.rollback()
    filled("recover")
    filled(*verb)
    if prepare is not retired:
        assert filled("cat", "tree/0").text == "first"
    assert filled("db", "check").lines == ["nothing is wrong"]


def test_waiting_verb_reports_the_lock_and_continues_later(filled: Cafcat) -> None:
    assert filled.database_url
    with psycopg.connect(filled.database_url, application_name="a report, or so") as holder:
        holder.execute("LOCK TABLE file_locations IN SHARE MODE")
        process = filled.popen("rm", "tree/1", "--yes")
        assert process.stderr is not None
        line = process.stderr.readline().decode()
        assert line.startswith("cafcat: warning: waiting for a lock of the catalog, for ")
        assert f"held by server process {holder.info.backend_pid} (a report, or so, host " in line
        holder.rollback()
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    filled("cat", "tree/1", code=4)


def test_rebuild_names_the_writer_that_it_does_not_wait_for(filled: Cafcat) -> None:
    assert filled.database_url
    with psycopg.connect(filled.database_url) as holder:
        holder.execute("LOCK TABLE chunks IN ROW EXCLUSIVE MODE")
        result = filled("rebuild", str(filled.folder / "store"), code=11)
        assert f"server process {holder.info.backend_pid} " in result.err


@pytest.mark.parametrize("value", ["x", "-1", "1y", "1.5"])
def test_invalid_lock_timeout_is_refused(filled: Cafcat, value: str) -> None:
    assert "lock_timeout" in filled("rm", "tree/1", "--yes", f"--lock-timeout={value}", code=2).err
    filled.extra["CAFCAT_LOCK_TIMEOUT"] = value
    assert "CAFCAT_LOCK_TIMEOUT" in filled("rm", "tree/1", "--yes", code=2).err


def test_connections_have_a_name_unless_the_url_gives_one(filled: Cafcat) -> None:
    query = "SELECT current_setting('application_name') AS name"
    assert re.fullmatch(r"cafcat \d+@\S+", filled("sql", "--json", "-c", query).document["name"])
    filled.database_url = f"{filled.database_url}&application_name=mine"
    assert filled("sql", "--json", "-c", query).document["name"] == "mine"
