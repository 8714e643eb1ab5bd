"""Growth of cost with the number of files: packing should be linear, look-ups constant or logarithmic."""

from collections.abc import Iterator

import cafcat
from tests.bench.bench import Bench
from tests.bench.data import small_files
from tests.bench.finding import World, p50
from tests.bench.memory import sizes
from tests.bench.table import NO_TARGET, Row, figure, pair_ratios

_STEPS = (10_000, 100_000, 1_000_000, 10_000_000)


def ingest(bench: Bench) -> Iterator[Row]:
    """Microseconds per file at each power of ten, relative to the first; with cafcat's default options."""
    first: list[float] = []
    for files in sizes(bench):
        data = small_files(bench.folder / f"growth-{files}", files)
        bench.ingest_anew(data)
        costs = [bench.ingest_anew(data) * 1e6 / files for _ in range(bench.rounds)]
        data.remove()
        first = first or costs
        work, peer = f"growth: ingest of {files:,} files, time a file", f"at {sizes(bench)[0]:,} files"
        absolute = f"{figure(costs, 'µs')} a file"
        yield Row(f"growth.ingest {files}", work, peer, NO_TARGET, pair_ratios(costs, first), absolute)


def look_up(bench: Bench) -> Iterator[Row]:
    """Median time of Repository.read in a catalog that grows by synthetic rows."""
    steps = sorted({*(rows for rows in _STEPS if rows <= bench.rows), bench.rows})
    world = World(bench, "growing", min(steps[0], bench.files))
    first: list[float] = []
    first_rows = 0
    for step in steps:
        rows = world.grow(step)
        first_rows = first_rows or rows
        with cafcat.open(world.home.settings) as repository:
            p50(repository.read, world.sample(0))
            costs = [p50(repository.read, world.sample(turn)) * 1e6 for turn in range(bench.rounds)]
        first = first or costs
        work = f"growth: Repository.read, {rows:,} rows, {rows - world.data.files:,} of them synthetic"
        peer = f"at {first_rows:,} rows"
        absolute = f"p50 {figure(costs, 'µs')}"
        yield Row(f"growth.look_up {step}", work, peer, NO_TARGET, pair_ratios(costs, first), absolute)


ROWS = (ingest, look_up)
