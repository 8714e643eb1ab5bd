"""SIGKILL in the middle of an ingest, again and again; then one that may finish. Nothing lost, nothing twice.

The kills come after so many system calls of the write path as a counter says, not after so much time: they land
in every step, on any machine.
"""

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

import cafcat
from cafcat.checksums import crc32c

# Runs `cafcat ingest` and kills itself at the Nth boundary call: whatever makes something durable or visible.
KILLER = """
import os, signal, sys
import psycopg
countdown = int(sys.argv[1])
def counted(function):
    def wrapper(*arguments, **named):
        global countdown
        countdown -= 1
        if countdown == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        result = function(*arguments, **named)
        countdown -= 1
        if countdown == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return result
    return wrapper
for name in ("fsync", "link", "unlink", "write", "replace"):
    setattr(os, name, counted(getattr(os, name)))
for name in ("execute", "transaction"):
    setattr(psycopg.Connection, name, counted(getattr(psycopg.Connection, name)))
psycopg.Transaction.__exit__ = counted(psycopg.Transaction.__exit__)
psycopg.Copy.write = counted(psycopg.Copy.write)
from cafcat.__main__ import main
sys.argv = ["cafcat", "ingest", "-q", "--target-size", "40kB", "tree"]
main()
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    content = random.Random(7)
    tree = tmp_path / "tree"
    tree.mkdir()
    for number in range(120):
        (tree / f"file-{number:03}").write_bytes(content.randbytes(content.randrange(2500)))
    return tree


def ingest_until_killed(countdown: int, folder: Path, environment: dict[str, str]) -> int:
    command = [sys.executable, "-c", KILLER, str(countdown)]
    return subprocess.run(command, cwd=folder, env=os.environ | environment, timeout=120).returncode


def check_invariant(database_url: str, store: Path) -> set[str]:
    """By SQL and raw bytes alone. Returns the paths in the catalog."""
    with psycopg.connect(database_url) as connection:
        rows = connection.execute(
            "SELECT file_path, start_byte, end_byte, crc32c, state, object_key "
            "FROM file_locations LEFT JOIN chunks ON chunks.id = caf_file_id"
        ).fetchall()
        keys = dict(connection.execute("SELECT object_key, state FROM chunks"))
    for path, start, end, checksum, state, key in rows:
        assert state == "committed", path
        data = (store / key).read_bytes()[start:end]
        assert crc32c(data) == checksum, path
    for left in store.glob("*.*") if store.exists() else ():
        assert keys[left.name.removesuffix(".partial")] in ("committed", "writing"), left
    return {row[0] for row in rows}


@pytest.mark.parametrize("seed", [1, 2])
def test_killed_again_and_again(database_url: str, tmp_path: Path, tree: Path, seed: int) -> None:
    store = tmp_path / "store"
    environment = {
        "CAFCAT_DATABASE_URL": database_url,
        "CAFCAT_STORE": str(store),
        "CAFCAT_HOME": str(tmp_path / "home"),
    }
    source = random.Random(seed)
    kills = 0
    before: set[str] = set()
    for _ in range(40):
        code = ingest_until_killed(source.randrange(1, 120), tmp_path, environment)
        kills += code == -signal.SIGKILL
        now = check_invariant(database_url, store)
        assert before <= now, "what was committed stays"
        before = now
        if code == 0:
            break
        assert code == -signal.SIGKILL
    else:
        assert ingest_until_killed(10**9, tmp_path, environment) == 0
    assert kills >= 3
    assert check_invariant(database_url, store) == {f"tree/{path.name}" for path in tree.iterdir()}
    with cafcat.open(database_url=database_url, home=tmp_path / "home", store=str(store)) as repository:
        for path in tree.iterdir():
            assert repository.read(f"tree/{path.name}") == path.read_bytes()
        live = [chunk for chunk in repository.chunks() if chunk.state == "committed"]
        assert sum(chunk.live_file_count for chunk in live) == 120, "nothing twice"
        assert sum(chunk.file_count for chunk in live) == 120
