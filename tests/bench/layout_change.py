"""python -m tests.bench.layout_change: change the layout of a large catalog under load, killed on the way.

Threads read, commit, remove and bring back files, while `cafcat db partition` runs in a process that is killed
several times. The script counts failed reads and commits, and compares all rows at the end.
"""

import argparse
import contextlib
import itertools
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import psycopg

import cafcat
from cafcat.embedded.roles import SUPERUSER
from tests.bench.bench import CAFCAT, forget_settings
from tests.bench.machine import described, shown_command
from tests.worlds.servers.services import Databases, temporary_server

COMMIT_FILES = 500
PAGE_FILES = 1000
KILLS = 5
CHUNKS = """
INSERT INTO stores (url, name) VALUES ('file:///synthetic', 'synthetic');
INSERT INTO chunks (id, uuid, format, store, object_key, state, size_bytes, data_bytes,
                    index_start_byte, index_end_byte, committed_at)
OVERRIDING SYSTEM VALUE
SELECT 1000000 + n, gen_random_uuid(), 'caf', 'file:///synthetic', 'synthetic-' || n, 'committed', 1000000, 1000000,
       1000000, 1000000, now()
FROM generate_series(0, {rows} / 10000) AS n
"""
SYNTHETIC = """
INSERT INTO file_locations (caf_file_id, start_byte, end_byte, crc32c, modified_at, file_path)
SELECT 1000000 + n / 10000, n % 10000 * 100, n % 10000 * 100 + 100, n % 4294967296, now(),
       'synthetic/' || lpad((n / 500)::text, 8, '0') || '/frame-' || lpad(n::text, 10, '0') || '.dat'
FROM generate_series({first}::bigint, {last}::bigint) AS n
"""
CONTENT = """
SELECT count(*), sum(hash_record_extended(ROW(caf_file_id, start_byte, end_byte, crc32c, modified_at, file_path,
       source_etag, content_bytes, decoding, source_id), 0)::numeric)
FROM file_locations WHERE file_path >= 'synthetic/' AND file_path < 'synthetic0'
"""
STATE = """
SELECT phase, source, block, (sources->source->>'blocks')::bigint, rows_copied FROM layout_change
"""


def synthetic_path(number: int) -> str:
    return f"synthetic/{number // 500:08}/frame-{number:010}.dat"


class Worker(threading.Thread):
    """Calls a function repeatedly, until it is stopped. It goes on after errors, and keeps them."""

    def __init__(self, name: str, function: Callable[[int], object]) -> None:
        super().__init__(name=name)
        self.errors: list[str] = []
        self.seconds: list[float] = []
        self._function = function
        self._ending = threading.Event()

    def run(self) -> None:
        for number in itertools.count():
            if self._ending.is_set():
                return
            begun = time.perf_counter()
            try:
                self._function(number)
            except Exception as error:  # every error counts
                self.errors.append(repr(error))
            self.seconds.append(time.perf_counter() - begun)

    def stop(self) -> None:
        self._ending.set()
        self.join()

    def line(self) -> str:
        seconds = sorted(self.seconds)
        p50, p99 = (1000 * seconds[int(len(seconds) * share)] for share in (0.5, 0.99))
        times = f"p50 {p50:.1f} ms, p99 {p99:.0f} ms, longest {seconds[-1]:.2f} s"
        return f"| {self.name} | {len(seconds):,} | {len(self.errors)} | {times} |"


class Load:
    """Readers and writers of a catalog. `live`: the files that the writers left."""

    def __init__(self, url: str, folder: Path, rows: int) -> None:
        self.live: set[str] = set()
        self._rows = rows
        self._url, self._folder = url, folder
        self._opened = contextlib.ExitStack()

    def workers(self) -> list[Worker]:
        reader, lister, writer, remover = (self._open() for _ in range(4))
        removable: list[str] = []
        numbers = random.Random(1)

        def read(_: int) -> None:
            path = synthetic_path(numbers.randrange(self._rows))
            assert reader.session.catalog.files.locate(path).path == path

        def list_page(_: int) -> None:
            first = numbers.randrange(self._rows - PAGE_FILES)
            files = lister.session.catalog.files
            found = [file.path for file in files.page("synthetic/", after=synthetic_path(first), limit=PAGE_FILES)]
            assert found[:500] == [synthetic_path(first + 1 + n) for n in range(500)]
            assert len(files.locate_many(found)) == len(found)

        def commit(number: int) -> None:
            paths = [f"written/{number:06}/{n:04}" for n in range(COMMIT_FILES)]
            with writer.writer() as files:
                for path in [*paths, "written/replaced"]:
                    files.add(path, b"x" * (number % 7))
            self.live.update(paths, ["written/replaced"])
            removable.extend(paths[:20])

        def remove(number: int) -> None:
            if len(removable) < 20:
                time.sleep(0.01)
                return
            names = [removable.pop() for _ in range(20)]
            assert remover.rm(names).files == 20
            if number % 2:
                assert remover.undelete(names).files == 20
            else:
                self.live.difference_update(names)

        functions = {
            "look-up": read,
            "page and 1,000 look-ups": list_page,
            "commit": commit,
            "rm, undelete": remove,
        }
        return [Worker(name, function) for name, function in functions.items()]

    def _open(self) -> cafcat.Repository:
        repository = cafcat.open(
            database_url=self._url, home=self._folder / "home", store=str(self._folder / "store")
        )
        return self._opened.enter_context(repository)

    def close(self) -> None:
        self._opened.close()


def progress_of(connection: psycopg.Connection[Any]) -> float:
    """Return the share of the pages that are copied; 1 to 1.1 in the later phases, 2 without a change."""
    try:
        row = connection.execute(STATE).fetchone()
    except psycopg.errors.UndefinedTable:
        return 2
    if row is None:
        return 2
    phase, source, block, blocks, _ = row
    return block / max(1, blocks) if phase == "copying" and source == 0 else 1


def change(url: str, home: Path, partitions: int, kills: Sequence[float]) -> list[str]:
    """Run the command until it succeeds, and kill it when its progress passes each of `kills`. Return the log."""
    log = []
    command = [*CAFCAT, "--database-url", url, "--home", str(home), "db", "partition", str(partitions), "--yes"]
    left = list(kills)
    with psycopg.connect(url, autocommit=True) as connection:
        while True:
            process = subprocess.Popen(command, env=os.environ | {"CAFCAT_HOME": str(home)})
            while process.poll() is None:
                time.sleep(0.02)
                progress = progress_of(connection)
                if left and left[0] <= progress < 2:
                    left.pop(0)
                    process.kill()
                    log.append(f"killed at {100 * progress:.0f} %")
            if process.wait() == 0:
                return log


@contextlib.contextmanager
def catalog(folder: Path, rows: int) -> Iterator[tuple[str, str]]:
    """Yield the URL of a catalog with synthetic rows, and the major version of its server."""
    with (
        temporary_server() as server,
        contextlib.closing(Databases(server.conninfo("postgres", SUPERUSER))) as databases,
        databases.fresh(databases.template()) as url,
    ):
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(CHUNKS.format(rows=rows).encode())
            for first in range(0, rows, 1_000_000):
                last = min(rows, first + 1_000_000) - 1
                connection.execute(SYNTHETIC.format(first=first, last=last).encode())
            connection.execute("VACUUM (ANALYZE) file_locations")
            version = str(connection.info.server_version // 10_000)
        yield url, version


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.layout_change", description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000, help="synthetic rows")
    parser.add_argument("--partitions", type=int, default=16)
    parser.add_argument("--kills", type=int, default=KILLS)
    parser.add_argument("--folder", type=Path, help="make the temporary folder in this one; else TMPDIR")
    options = parser.parse_args()
    forget_settings()
    kills = [(n + 0.5) / options.kills for n in range(options.kills - 1)] + [1.0]
    with tempfile.TemporaryDirectory(prefix="cafcat-bench-", dir=options.folder) as name:
        os.environ["TMPDIR"] = name
        tempfile.tempdir = name
        with catalog(Path(name), options.rows) as (url, version):
            command = shown_command(sys.argv[1:]).replace("tests.bench", "tests.bench.layout_change")
            print(f"`{command}`, {described(Path(name), version)}", flush=True)
            return measured(url, Path(name), options.rows, options.partitions, kills)


def measured(url: str, folder: Path, rows: int, partitions: int, kills: Sequence[float]) -> int:
    """Change the layout under load, print the results, and return the exit code."""
    with psycopg.connect(url, autocommit=True) as connection:
        before = connection.execute(CONTENT).fetchone()
        load = Load(url, folder, rows)
        workers = load.workers()
        for worker in workers:
            worker.start()
        begun = time.perf_counter()
        log = change(url, folder / "home", partitions, kills)
        seconds = time.perf_counter() - begun
        for worker in workers:
            worker.stop()
        load.close()
        after = connection.execute(CONTENT).fetchone()
        found = connection.execute("SELECT file_path FROM file_locations WHERE file_path ~ '^written/'").fetchall()
        tables = connection.execute(
            "SELECT count(*) FROM pg_inherits WHERE inhparent = 'file_locations'::regclass"
        ).fetchone()
    same = before == after and sorted(row[0] for row in found) == sorted(load.live) and tables == (partitions,)
    print(f"\n{rows:,} rows to {partitions} partitions in {seconds:.0f} s, {', '.join(log)}; ", end="")
    print(f"{len(found):,} rows of writers; all rows are {'right' if same else 'NOT RIGHT'}.\n")
    print("| work beside the change | calls | failed | time of a call |\n| --- | --- | --- | --- |")
    for worker in workers:
        print(worker.line())
        for error in worker.errors[:5]:
            print(f"  {error}")
    return 0 if same and not any(worker.errors for worker in workers) else 1


if __name__ == "__main__":
    sys.exit(main())
