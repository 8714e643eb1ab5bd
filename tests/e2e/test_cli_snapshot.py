"""snapshot: output, exit codes, and leftovers of an interrupted or killed one."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path

import psycopg
import pytest

import cafcat as library
from cafcat.snapshots.writing import SnapshotReport
from tests.e2e.conftest import TREE, WAITING_LOCKS, Cafcat, documented_keys
from tests.worlds.waiting import PATIENCE_SECONDS, wait_until

READING = """
import sys
import cafcat
with cafcat.Snapshot(sys.argv[1]) as snapshot:
    data = {path: snapshot.read(path) for path in snapshot.paths()}
    assert dict(snapshot.read_many(data)) == data
print(len(data), sum(map(len, data.values())))
found = {"psycopg", "sqlalchemy", "typer", "boto3", "obstore"} & set(sys.modules)
sys.exit(f"loaded: {found}" if found else 0)
"""


def test_all_keys_are_documented() -> None:
    assert {field.name for field in fields(SnapshotReport)} <= documented_keys("snapshot")


def test_snapshot_reports_its_contents(filled: Cafcat, tmp_path: Path) -> None:
    result = filled("snapshot", "-o", tmp_path / "all.cafs")
    assert re.fullmatch(
        rf"snapshot of {len(TREE)} files \(\S+ MB\) in \d chunks? as of \S+Z: .*/all\.cafs, \S+ kB\n", result.text
    )
    assert result.err == ""
    with library.Snapshot(tmp_path / "all.cafs", home=tmp_path) as snapshot:
        assert {path: snapshot.read(path) for path in snapshot.paths()} == TREE
    assert filled("snapshot", "-q", "-o", tmp_path / "quiet").out == b""


def test_as_json_and_of_a_folder(filled: Cafcat, tmp_path: Path) -> None:
    document = filled("snapshot", "tree/folder", "-o", tmp_path / "some", "--json").document
    assert set(document) == {field.name for field in fields(SnapshotReport)}
    assert (document["prefix"], document["files"], document["bytes"]) == ("tree/folder", 2, 2001)
    assert (document["output"], document["size_bytes"]) == (
        str(tmp_path / "some"),
        (tmp_path / "some").stat().st_size,
    )


def test_the_output_in_json_is_absolute(filled: Cafcat) -> None:
    document = filled("snapshot", "-f", "-o", "some", "--json").document
    assert document["output"] == str(filled.folder / "some")


def test_reading_needs_neither_the_database_nor_its_libraries(filled: Cafcat, tmp_path: Path) -> None:
    filled("snapshot", "-q", "-o", tmp_path / "all")
    environment = filled.environment | {"CAFCAT_DATABASE_URL": "postgresql:///nowhere"}
    command = [sys.executable, "-W", "error", "-c", READING, str(tmp_path / "all")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{len(TREE)} {sum(map(len, TREE.values()))}\n"


def test_wrong_arguments_are_refused(filled: Cafcat, tmp_path: Path) -> None:
    assert "--output" in filled("snapshot", code=2).err
    assert "no such file or folder" in filled("snapshot", "nothing", "-o", tmp_path / "x", code=4).err
    (tmp_path / "there").write_bytes(b"precious")
    error = filled("snapshot", "-o", tmp_path / "there", "--json", code=1).error
    assert (error["kind"], error["path"]) == ("conflict", str(tmp_path / "there"))
    assert (tmp_path / "there").read_bytes() == b"precious"
    filled("snapshot", "-f", "-q", "-o", tmp_path / "there")
    assert (tmp_path / "there").read_bytes().startswith(b"SQLite format 3")
    os.mkfifo(tmp_path / "pipe")
    assert "not a device or pipe" in filled("snapshot", "-f", "-o", tmp_path / "pipe", code=2).err
    assert "cannot be written" in filled("snapshot", "-o", tmp_path / "no" / "folder", code=1).err
    assert {path.name for path in tmp_path.iterdir()} == {"there", "pipe"}


@contextmanager
def waiting(cafcat: Cafcat, output: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """A snapshot that waits, while it is written, for a lock that the test holds."""
    assert cafcat.database_url
    blocked = f"{WAITING_LOCKS} AND relation = 'chunk_copies'::regclass"
    with psycopg.connect(cafcat.database_url) as holder, psycopg.connect(cafcat.database_url) as other:
        other.autocommit = True
        holder.execute("LOCK TABLE chunk_copies IN ACCESS EXCLUSIVE MODE")
        process = cafcat.popen("snapshot", "-f", "-o", output)
        wait_until(lambda: other.execute(blocked).fetchone())
        yield process
        holder.rollback()
        process.communicate(timeout=PATIENCE_SECONDS)


def test_interrupted_snapshot_leaves_nothing(filled: Cafcat, tmp_path: Path) -> None:
    with waiting(filled, tmp_path / "taken") as process:
        assert len(list(tmp_path.iterdir())) == 1
        process.send_signal(signal.SIGINT)
        assert process.stderr
        assert process.stderr.read() == b"cafcat: interrupted; nothing was written\n"
        assert process.wait(PATIENCE_SECONDS) == 130
        assert list(tmp_path.iterdir()) == []


def test_killed_snapshot_leaves_no_snapshot(filled: Cafcat, tmp_path: Path) -> None:
    """Only a file with a temporary name may remain."""
    (tmp_path / "old").write_bytes(b"old")
    for name in ("new", "old"):
        with waiting(filled, tmp_path / name) as process:
            process.kill()
            assert process.wait(PATIENCE_SECONDS) == -signal.SIGKILL
    assert (tmp_path / "old").read_bytes() == b"old"
    left = [path for path in tmp_path.iterdir() if path.name != "old"]
    assert len(left) == 2
    for path in left:
        assert re.fullmatch(r"\.cafcat-[0-9a-f]{16}\.partial", path.name)
        with pytest.raises(library.CafcatError):
            library.Snapshot(path, home=tmp_path)
