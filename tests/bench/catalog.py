"""python -m tests.bench.catalog: the time of each verb in catalogs of very different sizes, as a table.

Every verb touches the same few files; the other rows are synthetic. So the columns should not differ, except for
the verbs that read whole tables.
"""

import argparse
import contextlib
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

import psycopg

from cafcat.embedded.roles import SUPERUSER
from tests.bench.bench import forget_settings
from tests.bench.machine import described, shown_command
from tests.bench.table import number
from tests.worlds.servers.services import Databases, temporary_server
from tests.worlds.size_verbs import READING, READING_ALL, WRITING, Verb, prepared
from tests.worlds.size_world import FILES, SizeWorld

SIZES = (10_000, 1_000_000)
Times = dict[str, float]
"""Milliseconds by verb."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.catalog", description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=SIZES, help="sizes of the catalogs, in rows")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of each verb, of which the median counts")
    parser.add_argument("--folder", type=Path, help="make the temporary folder in this one; else TMPDIR")
    parser.add_argument("--no-whole", action="store_true", help="leave out the verbs that read whole tables")
    options = parser.parse_args()
    forget_settings()
    columns: list[Times] = []
    with (
        tempfile.TemporaryDirectory(prefix="cafcat-bench-", dir=options.folder) as name,
        temporary_server() as server,
    ):
        conninfo = server.conninfo("postgres", SUPERUSER)
        with psycopg.connect(conninfo) as connection:
            version = str(connection.info.server_version // 10_000)
        command = shown_command(sys.argv[1:]).replace("tests.bench", "tests.bench.catalog")
        print(f"`{command}`, {described(Path(name), version)}", flush=True)
        for rows in options.rows:
            folder = Path(name) / str(rows)
            folder.mkdir()
            with contextlib.closing(Databases(conninfo)) as databases:
                columns.append(measured(databases, folder, rows, options.rounds, whole=not options.no_whole))
    print(f"\nMilliseconds of a verb that touches {FILES} files, median of {options.rounds} rounds.\n")
    print(table(options.rows, columns))


def measured(databases: Databases, folder: Path, rows: int, rounds: int, *, whole: bool) -> Times:
    """Return the times in a catalog with this number of synthetic rows, and fresh statistics."""
    with databases.fresh(databases.template()) as url:
        world = SizeWorld(folder, url)
        with world.repository() as repository:
            prepared(world, repository)
        begun = time.perf_counter()
        world.grow(rows)
        world.sql("VACUUM (ANALYZE)")
        world.sql("CHECKPOINT")
        print(f"{rows:,} rows made in {time.perf_counter() - begun:.0f} s", file=sys.stderr, flush=True)
        times: dict[str, list[float]] = {}
        for round in range(rounds):
            run(world, WRITING + READING, f"round-{round}", times)
        if whole:
            run(world, READING_ALL, "whole", times)
    return {name: statistics.median(found) for name, found in times.items()}


def run(world: SizeWorld, verbs: Iterable[Verb], round: str, times: dict[str, list[float]]) -> None:
    """Run verbs, each with a connection of its own, and add their milliseconds to `times`."""
    for verb in verbs:
        with world.repository() as repository:
            repository.runs(1)  # connects
            begun = time.perf_counter()
            verb(world, repository, round)
            times.setdefault(verb.__name__, []).append(1000 * (time.perf_counter() - begun))


def table(sizes: Iterable[int], columns: list[Times]) -> str:
    """Return a table with a line for each verb: its time at each size, and the last time relative to the first."""
    heads = ["verb", *(f"{rows:,} rows" for rows in sizes), "last to first"]
    lines = ["| " + " | ".join(heads) + " |", "|" + " --- |" * len(heads)]
    for name in columns[0]:
        found = [column[name] for column in columns]
        cells = [name.replace("_", " "), *map(number, found), number(found[-1] / found[0])]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
