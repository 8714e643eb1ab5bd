"""SIGKILL during an ingest, repeatedly; then an ingest that may finish. No file is lost or packed twice.

A counter of system calls of the write path chooses the moments of the kills, so that they hit every step on any
machine.
"""

import random
import signal
from pathlib import Path

import psycopg
import pytest

import cafcat
from cafcat.support.checksums import crc32c
from tests.worlds.kills.killing import environment, run_until_killed

# Runs `cafcat ingest`, and kills itself at the Nth call that makes something durable or visible.
KILLER = """
import sys
from tests.worlds.kills.killed_steps import Steps

steps = Steps(int(sys.argv[1]), after=True)
steps.count_files()
steps.count_statements()
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


def check_invariant(database_url: str, store: Path) -> set[str]:
    """Check the invariant by SQL and raw bytes alone, and return the paths in the catalog."""
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


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_killed_again_and_again(database_url: str, tmp_path: Path, tree: Path, seed: int) -> None:
    store = tmp_path / "store"
    variables = environment(database_url, str(store), tmp_path / "home")
    source = random.Random(seed)
    kills = 0
    before: set[str] = set()
    for _ in range(40):
        code = run_until_killed(KILLER, source.randrange(1, 120), folder=tmp_path, variables=variables)
        kills += code == -signal.SIGKILL
        now = check_invariant(database_url, store)
        assert before <= now, "a committed file is gone"
        before = now
        if code == 0:
            break
        assert code == -signal.SIGKILL
    else:
        assert run_until_killed(KILLER, 10**9, folder=tmp_path, variables=variables) == 0
    assert kills >= 3
    assert check_invariant(database_url, store) == {f"tree/{path.name}" for path in tree.iterdir()}
    with cafcat.open(database_url=database_url, home=tmp_path / "home", store=str(store)) as repository:
        for path in tree.iterdir():
            assert repository.read(f"tree/{path.name}") == path.read_bytes()
        live = [chunk for chunk in repository.chunks() if chunk.state == "committed"]
        assert sum(chunk.live_file_count for chunk in live) == 120, "nothing twice"
        assert sum(chunk.file_count for chunk in live) == 120
