"""python -m tests.bench.layout_growth: costs of catalogs of 10⁴ to 10⁸ rows, in both layouts, with fitted laws.

The rows of a catalog are synthetic, except those of the chunks that the script commits. It prints a table, and
writes the numbers as JSON and a plot as SVG.
"""

import argparse
import contextlib
import json
import math
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import psycopg

import cafcat
from cafcat.embedded.roles import SUPERUSER
from cafcat.formats import registry as formats
from cafcat.model import OnConflict
from cafcat.progress import Progress
from cafcat.writing.chunk import ChunkTarget, OpenChunk
from tests.bench.bench import forget_settings
from tests.bench.layout_change import CHUNKS, SYNTHETIC, synthetic_path
from tests.bench.machine import described, shown_command
from tests.bench.table import number
from tests.worlds.servers.services import Databases, temporary_server

STEPS = (10_000, 100_000, 1_000_000)
LAYOUTS = (0, 16)
COMMIT_FILES = 10_000
COMMITS = 5
LOOK_UPS = 2000
PAGES = 20
REMOVED = 1000
METRICS = {
    "commit": "commit of 10,000 new files, rows/s",
    "p50": "look-up, p50, µs",
    "p99": "look-up, p99, µs",
    "folders": "`ls` of 1,000 folders, ms",
    "files": "`ls` of 500 files, ms",
    "prefix": "1,000 files of a prefix, ms",
    "many": "look-up of 1,000 scattered files, ms",
    "rm": "`rm` of 1,000 named files, ms",
    "bytes": "bytes a row, with indexes",
    "vacuum": "vacuum after the new rows, s",
    "vacuum_dead": "vacuum of 1 % dead rows, s",
}
COLOURS = {0: "#1f77b4", 16: "#d62728"}
SIZE = """
SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class AS c LEFT JOIN pg_inherits AS i ON i.inhrelid = c.oid
WHERE c.relkind = 'r' AND coalesce(i.inhparent, c.oid) = 'file_locations'::regclass
"""


class Measured(NamedTuple):
    """Costs of one catalog, by the names of METRICS."""

    partitions: int
    rows: int
    costs: dict[str, float]


class _TimeOfCheckpoint(Progress):
    """Notes when a checkpoint was passed last. `finish` passes the last one right before it commits."""

    seconds = 0.0

    def checkpoint(self) -> None:
        self.seconds = time.perf_counter()


class Subject:
    """One catalog, which grows by synthetic rows."""

    def __init__(self, url: str, folder: Path) -> None:
        self.connection = psycopg.connect(url, autocommit=True)
        self.repository = cafcat.open(database_url=url, home=folder / "home", store=str(folder / "store"))
        self._rows = 0
        self._commits = 0

    def close(self) -> None:
        self.repository.close()
        self.connection.close()

    def grow(self, rows: int) -> float:
        """Add synthetic rows, and return the seconds of the vacuum after them."""
        for first in range(self._rows, rows, 1_000_000):
            statement = SYNTHETIC.format(first=first, last=min(rows, first + 1_000_000) - 1)
            self.connection.execute(statement.encode())
        self._rows = rows
        return self.seconds("VACUUM (ANALYZE) file_locations")

    def seconds(self, statement: str) -> float:
        begun = time.perf_counter()
        self.connection.execute(statement.encode())
        return time.perf_counter() - begun

    def commit(self) -> tuple[float, list[str]]:
        """Commit a chunk of new files. Return the seconds of the commit, and the paths."""
        session = self.repository.session
        store = session.stores[session.settings.store]
        session.catalog.stores.register(store.url)
        chunk = OpenChunk(ChunkTarget(session.catalog, store, formats.by_name("caf"), None, "bench"))
        # Between the synthetic folders, not after them.
        folder = f"synthetic/{self._rows // 500 * (self._commits % COMMITS) // COMMITS:08}.{self._commits}"
        paths = [f"{folder}/{n // 500:04}/frame-{n:010}.dat" for n in range(COMMIT_FILES)]
        for path in paths:
            chunk.add(path, b"x", 1_767_225_600_000_000_000)
        before_commit = _TimeOfCheckpoint()
        chunk.finish(OnConflict.REPLACE, before_commit)
        self._commits += 1
        return time.perf_counter() - before_commit.seconds, paths

    def costs(self, rows: int) -> dict[str, float]:
        """Grow to a number of rows, and return the costs there."""
        costs = {"vacuum": self.grow(rows)}
        costs["bytes"] = self._bytes_per_row()
        self.connection.execute("CHECKPOINT")
        commits = [self.commit() for _ in range(COMMITS)]
        costs["commit"] = COMMIT_FILES / statistics.median(seconds for seconds, _ in commits)
        costs |= self._look_ups() | self._listings()
        removals = [self._removal(paths) for _, paths in commits[:3]]
        costs["rm"] = 1000 * statistics.median(removals)
        condition = "crc32c % 100 = 0"
        self.connection.execute(f"UPDATE file_locations SET source_id = {self._commits} WHERE {condition}".encode())
        costs["vacuum_dead"] = self.seconds("VACUUM file_locations")
        return costs

    def _bytes_per_row(self) -> float:
        row = self.connection.execute(SIZE).fetchone()
        count = self.connection.execute("SELECT count(*) FROM file_locations").fetchone()
        assert row is not None
        assert count is not None
        return float(row[0]) / float(count[0])

    def _look_ups(self) -> dict[str, float]:
        files, chosen = self.repository.session.catalog.files, random.Random(self._rows)
        for _ in range(200):
            files.locate(self._random(chosen))
        singles = sorted(timed(lambda: files.locate(self._random(chosen))) for _ in range(LOOK_UPS))
        many = [timed(lambda: files.locate_many([self._random(chosen) for _ in range(1000)])) for _ in range(PAGES)]
        return {
            "p50": 1e6 * singles[LOOK_UPS // 2],
            "p99": 1e6 * singles[LOOK_UPS * 99 // 100],
            "many": 1e3 * statistics.median(many),
        }

    def _listings(self) -> dict[str, float]:
        files, chosen = self.repository.session.catalog.files, random.Random(self._rows)
        functions: dict[str, Callable[[], object]] = {
            "folders": lambda: files.folder_page("synthetic/", limit=min(1000, self._rows // 500)),
            "files": lambda: files.folder_page(self._random(chosen)[:19]),
            "prefix": lambda: files.page("synthetic/", after=self._random(chosen)),
        }
        return {
            name: 1e3 * statistics.median(timed(function) for _ in range(PAGES))
            for name, function in functions.items()
        }

    def _random(self, chosen: random.Random) -> str:
        return synthetic_path(chosen.randrange(self._rows))

    def _removal(self, paths: Sequence[str]) -> float:
        names = paths[:: len(paths) // REMOVED]
        seconds = timed(lambda: self.repository.rm(names))
        assert self.repository.undelete(names).files == len(names)
        return seconds


def timed(function: Callable[[], object]) -> float:
    begun = time.perf_counter()
    function()
    return time.perf_counter() - begun


def fitted(rows: Sequence[int], costs: Sequence[float]) -> tuple[float, float]:
    """Return a and b of the law a · rows^b, by least squares of the logarithms."""
    x, y = [math.log(value) for value in rows], [math.log(max(value, 1e-9)) for value in costs]
    slope = statistics.linear_regression(x, y).slope if len(x) > 1 else 0.0
    return math.exp(statistics.fmean(y) - slope * statistics.fmean(x)), slope


def table(found: Sequence[Measured]) -> str:
    """Return a table with a line for each metric and layout, and the exponent of its fitted law."""
    steps = sorted({each.rows for each in found})
    heads = ["", "layout", *(f"{rows:,} rows" for rows in steps), "exponent"]
    lines = ["| " + " | ".join(heads) + " |", "|" + " --- |" * len(heads)]
    for name, label in METRICS.items():
        for partitions, costs in series(found, name).items():
            layout = f"{partitions} partitions" if partitions else "plain"
            exponent = f"{fitted(list(costs), list(costs.values()))[1]:+.2f}"
            cells = [label, layout, *(number(costs[rows]) if rows in costs else "" for rows in steps), exponent]
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def series(found: Sequence[Measured], name: str) -> dict[int, dict[int, float]]:
    """Return the costs of a metric by layout, then by rows."""
    by_layout: dict[int, dict[int, float]] = {}
    for each in found:
        by_layout.setdefault(each.partitions, {})[each.rows] = each.costs[name]
    return by_layout


_WIDTH, _HEIGHT, _COLUMNS, _MARGIN = 300, 190, 3, 54


def plot(found: Sequence[Measured]) -> str:
    """Return an SVG with a panel for each metric: points, and the fitted law as a line, both axes logarithmic."""
    panels = "".join(
        _panel(index, series(found, name), label) for index, (name, label) in enumerate(METRICS.items())
    )
    lines = -(-len(METRICS) // _COLUMNS)
    size = f'width="{_WIDTH * _COLUMNS}" height="{_HEIGHT * lines + 24}"'
    legend = "".join(
        f'<text x="{10 + 130 * n}" y="{_HEIGHT * lines + 16}" fill="{COLOURS.get(partitions, "#2ca02c")}">'
        f"{f'{partitions} partitions' if partitions else 'plain table'}</text>"
        for n, partitions in enumerate(sorted({each.partitions for each in found}))
    )
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="11">'
    return f'{head}<rect width="100%" height="100%" fill="white"/>{panels}{legend}</svg>\n'


def _panel(index: int, by_layout: Mapping[int, Mapping[int, float]], label: str) -> str:
    left, top = index % _COLUMNS * _WIDTH + _MARGIN, index // _COLUMNS * _HEIGHT + 24
    width, height = _WIDTH - _MARGIN - 14, _HEIGHT - 48
    rows = sorted({row for costs in by_layout.values() for row in costs})
    values = [cost for costs in by_layout.values() for cost in costs.values()]
    low, high = min(values) / 1.5, max(values) * 1.5

    def x(value: float) -> float:
        span = math.log(rows[-1] / rows[0]) or 1
        return left + width * math.log(value / rows[0]) / span

    def y(value: float) -> float:
        return top + height * (1 - math.log(value / low) / math.log(high / low))

    parts = [f'<rect x="{left}" y="{top}" width="{width}" height="{height}" fill="none" stroke="#bbb"/>']
    parts.append(f'<text x="{left}" y="{top - 7}" font-weight="bold">{label.replace("`", "")}</text>')
    for value in (low * 1.5, high / 1.5):
        parts.append(f'<text x="{left - 4}" y="{y(value) + 4:.0f}" text-anchor="end">{number(value)}</text>')
    for row in rows:
        exponent = f'10<tspan dy="-4" font-size="8">{math.log10(row):.0f}</tspan>'
        parts.append(f'<text x="{x(row):.0f}" y="{top + height + 14}" text-anchor="middle">{exponent}</text>')
    for partitions, costs in by_layout.items():
        colour = COLOURS.get(partitions, "#2ca02c")
        factor, power = fitted(list(costs), list(costs.values()))
        ends = [(x(row), y(min(high, max(low, factor * row**power)))) for row in (rows[0], rows[-1])]
        line = " ".join(f"{place[0]:.1f},{place[1]:.1f}" for place in ends)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}"/>')
        parts += [
            f'<circle cx="{x(row):.1f}" cy="{y(cost):.1f}" r="3" fill="{colour}"/>' for row, cost in costs.items()
        ]
        place = top + 14 if partitions else top + height - 6
        law = f"∝ rows^{power:+.2f}"
        parts.append(f'<text x="{left + width - 4}" y="{place}" text-anchor="end" fill="{colour}">{law}</text>')
    return "".join(parts)


def measured(folder: Path, layouts: Sequence[int], steps: Sequence[int]) -> Iterator[Measured]:
    """Grow a catalog of each layout on one server, and yield the costs of each step."""
    with (
        temporary_server() as server,
        contextlib.closing(Databases(server.conninfo("postgres", SUPERUSER))) as databases,
    ):
        for partitions in layouts:
            with databases.fresh(databases.template(), partitions) as owned_url:
                url = databases.superuser_url(owned_url)  # CHECKPOINT needs such a role
                subject = Subject(url, folder / str(partitions))
                with contextlib.closing(subject):
                    subject.connection.execute(CHUNKS.format(rows=max(steps)).encode())
                    for rows in steps:
                        begun = time.perf_counter()
                        yield Measured(partitions, rows, subject.costs(rows))
                        print(f"{rows:,} rows: {time.perf_counter() - begun:.0f} s", file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.layout_growth", description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=STEPS, help="numbers of rows")
    parser.add_argument("--partitions", type=int, nargs="+", default=LAYOUTS, help="layouts; 0 is a plain table")
    parser.add_argument("--json", type=Path, help="write the numbers to this file")
    parser.add_argument("--svg", type=Path, help="write the plot to this file")
    parser.add_argument("--folder", type=Path, help="make the temporary folder in this one; else TMPDIR")
    options = parser.parse_args()
    forget_settings()
    with tempfile.TemporaryDirectory(prefix="cafcat-bench-", dir=options.folder) as name:
        tempfile.tempdir = name
        command = shown_command(sys.argv[1:]).replace("tests.bench", "tests.bench.layout_growth")
        print(f"`{command}`, {described(Path(name), '18')}\n", flush=True)
        found = []
        for each in measured(Path(name), options.partitions, options.rows):
            found.append(each)
            if options.json:  # a run of 10⁸ rows takes an hour, and may be cut
                options.json.write_text(json.dumps([one._asdict() for one in found], indent=1) + "\n")
    print(table(found))
    if options.svg:
        options.svg.write_text(plot(found))


if __name__ == "__main__":
    main()
