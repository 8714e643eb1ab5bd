"""Two to eight concurrent ingests of equal paths with different contents: no deadlock occurs.

The last commit wins, and totals are exact.
"""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.crash.checker import Seen, look, problems
from tests.crash.places import Folder
from tests.integration.held_commands import environment, popen, start_all
from tests.worlds.servers.services import Databases
from tests.worlds.waiting import PATIENCE_SECONDS

PATHS = [f"shared/{number:03}" for number in range(60)]


@pytest.fixture
def url(quick_databases: Databases) -> Iterator[str]:
    with quick_databases.fresh(quick_databases.template()) as url:
        yield url


def content_of(writer: int, path: str) -> bytes:
    """Return the content of a path. All writers have different sizes, so that times do not matter."""
    return f"{writer} {path} ".encode() * (10 + writer)


def write_trees(folder: Path, writers: int) -> None:
    """Write a tree for each writer, with most of the paths, and another order of sizes."""
    for writer in range(writers):
        for number, path in enumerate(PATHS):
            if (number + writer) % 5:
                file = folder / f"writer{writer}" / path
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(content_of(writer, path))


def ingest_at_once(folder: Path, url: str, conflicts: list[str]) -> None:
    variables = environment(folder, Folder(folder / "store").url, {"CAFCAT_DATABASE_URL": url})
    processes = []
    for writer, on_conflict in enumerate(conflicts):
        options = ["-q", "--target-size", f"{6 + writer}kB", "--on-conflict", on_conflict]
        processes.append(popen(folder / f"writer{writer}", variables, "ingest", *options, "shared"))
    start_all(processes)
    for process in processes:
        _, errors = process.communicate(timeout=PATIENCE_SECONDS)
        assert process.returncode == 0, errors
        assert errors == ""


def last_committed(seen: Seen) -> dict[str, int]:
    """Return the chunk of the last commit of each path, by the order of the journal."""
    order = {row.chunk_id: row.id for row in seen.tables["journal"]}
    skipped = {
        (row.file_path, row.caf_file_id) for row in seen.tables["retired_locations"] if row.reason == "skipped"
    }
    found: dict[str, int] = {}
    for row in seen.tables["file_locations"] + seen.tables["retired_locations"]:
        path, chunk = row.file_path, row.caf_file_id
        if (path, chunk) not in skipped and order[chunk] > order.get(found.get(path, -1), -1):
            found[path] = chunk
    return found


def check(url: str, folder: Path, writers: int) -> Seen:
    seen = look(url, [Folder(folder / "store")])
    assert problems(seen) == []
    rows = {row.file_path: row.caf_file_id for row in seen.tables["file_locations"]}
    assert rows == last_committed(seen)
    assert rows.keys() == {path for n, path in enumerate(PATHS) if any((n + w) % 5 for w in range(writers))}
    for path, data in seen.live.items():
        assert data in [content_of(writer, path) for writer in range(writers)]
    return seen


def check_totals(url: str, seen: Seen) -> None:
    """Check that the totals of the runs match the tables."""
    sums = (
        "SELECT sum(files_added), sum(files_replaced), sum(files_skipped), sum(chunks_committed) FROM ingest_runs"
    )
    with psycopg.connect(url) as connection:
        added, replaced, skipped, chunks = connection.execute(sums).fetchall()[0]
        states = dict(connection.execute("SELECT state, count(*) FROM ingest_runs GROUP BY 1").fetchall())
    reasons = [row.reason for row in seen.tables["retired_locations"]]
    assert added == len(seen.live)
    assert replaced == reasons.count("replaced")
    assert skipped >= reasons.count("skipped")
    assert chunks == len(seen.tables["chunks"])
    assert states.keys() == {"finished"}


@pytest.mark.parametrize("writers", [2, 3, 5, 8])
def test_the_last_commit_wins_and_totals_are_exact(url: str, memory: Path, writers: int) -> None:
    write_trees(memory, writers)
    ingest_at_once(memory, url, ["replace"] * writers)
    seen = check(url, memory, writers)
    check_totals(url, seen)
    assert "skipped" not in {row.reason for row in seen.tables["retired_locations"]}


def test_concurrent_writers_that_replace_and_skip(url: str, memory: Path) -> None:
    write_trees(memory, 6)
    ingest_at_once(memory, url, ["replace", "skip"] * 3)
    check_totals(url, check(url, memory, 6))


def test_equal_files_of_many_writers_are_live_once(url: str, memory: Path) -> None:
    """Several writers may pack a file before the first one commits. A further run packs nothing."""
    write_trees(memory, 1)
    for writer in range(1, 4):
        subprocess.run(["cp", "-a", memory / "writer0", memory / f"writer{writer}"], check=True)
    ingest_at_once(memory, url, ["replace"] * 4)
    seen = check(url, memory, 1)
    ingest_at_once(memory, url, ["replace"] * 4)
    assert len(check(url, memory, 1).tables["chunks"]) == len(seen.tables["chunks"])
