"""python -m tests.bench.folders --rows N: time of the total of a folder, against a SUM over its files.

The catalog has N synthetic files, 500 in a folder, in three levels of folders. Each folder is asked for in turn
with its peer.
"""

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import perf_counter

import cafcat
from cafcat.catalog.files.folder_changes import COUNT_FOLDERS
from cafcat.catalog.files.scope import folder_range
from cafcat.embedded.roles import SUPERUSER
from cafcat.embedded.server import EmbeddedServer

FILES_PER_FOLDER = 500
FOLDERS_PER_FOLDER = 200
ROUNDS = 30
SUM = (
    "SELECT count(*), sum(coalesce(content_bytes, end_byte - start_byte)) FROM file_locations WHERE file_path >= %s"
)
ROWS = """
INSERT INTO file_locations (caf_file_id, start_byte, end_byte, crc32c, modified_at, file_path)
SELECT n / 100000, n, n + n % 1000, n % 4294967295, now(), 'year-' || lpad((n / {above} / {folders})::text, 4, '0')
       || '/day-' || lpad((n / {above})::text, 6, '0') || '/hour-' || lpad((n / {files})::text, 8, '0')
       || '/frame-' || lpad(n::text, 10, '0') || '.dat'
FROM generate_series(0::bigint, {rows} - 1) AS n
"""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.folders", description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    rows = parser.parse_args().rows
    with (
        tempfile.TemporaryDirectory() as folder,
        cafcat.open(home=Path(folder), store=f"{folder}/store") as repository,
    ):
        repository.stats()
        server = EmbeddedServer(Path(folder) / "postgres")
        try:
            print(f"{rows:,} files; {fill(server, rows):.1f} s to count all folders once")
            for name in ("", "year-0000", "year-0000/day-000007", "year-0000/day-000007/hour-00001400", "none"):
                print_times(repository, server, name)
        finally:
            server.stop()


def fill(server: EmbeddedServer, rows: int) -> float:
    """Insert the files, and return the seconds that it takes to count their folders."""
    above = FILES_PER_FOLDER * FOLDERS_PER_FOLDER
    sizes = {"rows": rows, "files": FILES_PER_FOLDER, "above": above, "folders": FOLDERS_PER_FOLDER // 10}
    with server.connect(SUPERUSER) as connection:
        connection.execute(ROWS.format(**sizes).encode())
        connection.execute("VACUUM (ANALYZE) file_locations")
        start = perf_counter()
        connection.execute(COUNT_FOLDERS.encode())
        seconds = perf_counter() - start
        connection.execute("VACUUM (ANALYZE) folder_totals")
    return seconds


def print_times(repository: cafcat.Repository, server: EmbeddedServer, name: str) -> None:
    path = f"{name}/" if name else ""
    low, high = folder_range(path)
    with server.connect() as connection:
        statement = SUM + ("" if high is None else " AND file_path < %s")
        given = [low] if high is None else [low, high]
        summed, counted = connection.execute(statement.encode(), given).fetchone(), repository.folder_total(name)
        assert summed is not None
        assert (counted.files, counted.size_bytes) == (summed[0], int(summed[1] or 0)), name
        total = milliseconds(lambda: repository.folder_total(name), ROUNDS)
        below = milliseconds(lambda: list(repository.folder_totals(name)), ROUNDS)
        peer = milliseconds(lambda: connection.execute(statement.encode(), given).fetchone(), 3)
    print(f"{counted.files:>12,} files in {path or '(all)':45} total {total}, with subfolders {below}, SUM {peer}")


def milliseconds(function: Callable[[], object], rounds: int) -> str:
    times = []
    for _ in range(rounds):
        start = perf_counter()
        function()
        times.append((perf_counter() - start) * 1000)
    return f"{median(times):.2f} ms [{min(times):.2f}-{max(times):.2f}]"


if __name__ == "__main__":
    main()
