"""Look-up and read of single files and of many, in one process and as a command, in a catalog of very many rows.

The files that are read are real. The other rows are synthetic, with an equal number of them between any two real
paths: the index is as deep, and its pages are as far apart, as if all rows were real. One folder has no synthetic
rows: its files are neighbours in the catalog, too.
"""

import itertools
import os
import random
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

import psycopg

import cafcat
from cafcat.repository import Repository
from tests.bench.bench import CAFCAT, Bench, Home
from tests.bench.data import DataSet, read_all, small_files
from tests.bench.packages import provide
from tests.bench.snapshots import snapshot
from tests.bench.table import Row, Target, at_least, at_most, figure, pair_ratios
from tests.bench.timing import Way, in_turn, run, seconds_of, shell, timed

FOLDER_FILES = 1000
MOST_FILES = 20_000
READS = 1000
NEIGHBOUR_MICROSECONDS = 4
NEIGHBOUR_ROUNDS = 9
"""A call takes a few milliseconds, so it is measured more often."""
TURN_READS = 25
COMMANDS = 4
"""Number of commands for each round: commands are short, so more of them are run."""

LOOK_UP = """
SELECT c.object_key, l.start_byte, l.end_byte
FROM file_locations AS l JOIN chunks AS c ON c.id = l.caf_file_id WHERE l.file_path = %s
"""
_BY_HAND = f"""
import sys, typer, psycopg
with psycopg.connect(sys.argv[1]) as connection:
    key, start, end = connection.execute({LOOK_UP!r}, [sys.argv[3]]).fetchone()
with open(sys.argv[2] + "/" + key, "rb") as chunk:
    chunk.seek(start)
    sys.stdout.buffer.write(chunk.read(end - start))
"""
_SYNTHETIC = """
INSERT INTO file_locations (caf_file_id, start_byte, end_byte, crc32c, modified_at, file_path)
SELECT caf_file_id, start_byte, end_byte, crc32c, modified_at, file_path || '~' || lpad(n::text, 6, '0')
FROM file_locations, generate_series({first}, {last}) AS n
WHERE file_path LIKE '%.dat' AND NOT starts_with(file_path, '{but}') ORDER BY file_path, n
"""

Read = Callable[[str], bytes]


class World:
    """A repository with real files in folders of a thousand, and synthetic rows between them."""

    def __init__(self, bench: Bench, name: str, files: int) -> None:
        self.data: DataSet = small_files(bench.folder / name, files, FOLDER_FILES)
        self.home: Home = bench.home(name)
        bench.ingest(self.home, self.data)
        self.paths = [f"{name}/{path.relative_to(self.data.folder)}" for path in self.data.paths()]
        self.synthetic = 0

    def grow(self, rows: int) -> int:
        """Add synthetic rows, up to about this number of rows in all. Return the number of rows."""
        neighbours = self.folder(1)
        needed = max(self.synthetic, -(-(rows - self.data.files) // max(1, self.data.files - len(neighbours))))
        if needed > self.synthetic:
            but = neighbours[0].rpartition("/")[0]
            statement = _SYNTHETIC.format(first=self.synthetic + 1, last=needed, but=f"{but}/")
            self.home.connection.execute(statement.encode())
            self.synthetic = needed
        self.home.connection.execute("VACUUM (ANALYZE) file_locations")
        self.home.connection.execute("CHECKPOINT")
        return self.home.files()

    def sample(self, seed: int) -> list[str]:
        return random.Random(seed).choices(self.paths, k=READS)

    def folder(self, number: int) -> list[str]:
        """Return the real paths of one folder. Folder 1, or the only folder, has no others."""
        start = number * FOLDER_FILES if number * FOLDER_FILES < len(self.paths) else 0
        return self.paths[start : start + FOLDER_FILES]


class ByHand:
    """Code without cafcat: a prepared statement on an open connection, pread on open descriptors."""

    def __init__(self, home: Home) -> None:
        self._folder = home.chunk_folder
        self._connection = psycopg.connect(home.url, autocommit=True)
        self._cursor = self._connection.cursor()
        self._descriptors: dict[str, int] = {}

    def read(self, path: str) -> bytes:
        row = self._cursor.execute(LOOK_UP, (path,), prepare=True).fetchone()
        assert row is not None
        key, start, end = row
        descriptor = self._descriptors.get(key)
        if descriptor is None:
            descriptor = self._descriptors[key] = os.open(self._folder / key, os.O_RDONLY)
        return os.pread(descriptor, end - start, start)

    def close(self) -> None:
        self._connection.close()
        for descriptor in self._descriptors.values():
            os.close(descriptor)


def finding(bench: Bench) -> Iterator[Row]:
    """All rows use one catalog, so that it is filled only once."""
    bench.say(f"making a catalog of {bench.rows:,} rows, most of them synthetic")
    world = World(bench, "finding", min(MOST_FILES, bench.files, bench.rows))
    rows = world.grow(bench.rows)
    with cafcat.open(world.home.settings) as repository:
        yield single(world, repository, bench.rounds, rows)
        yield neighbours(world, repository, bench.rounds)
        yield scattered(world, repository, bench.rounds)
        yield against_tree(world, repository, bench.rounds)
        provide(bench, "lmdb")
        yield from snapshot(world, repository, bench.folder, bench.rounds, rows)
    yield command(world, bench, rows)
    yield every_path(world, bench, rows)


ROWS = (finding,)


def p50(read: Read, paths: Sequence[str]) -> float:
    """Return the median seconds of single calls."""
    return statistics.median(_seconds(read, paths))


def _seconds(read: Read, paths: Sequence[str]) -> list[float]:
    clock = time.perf_counter
    seconds = []
    for path in paths:
        begun = clock()
        read(path)
        seconds.append(clock() - begun)
    return seconds


def p50_in_turn(ways: Mapping[str, Read], paths: Sequence[str]) -> dict[str, float]:
    """Return the median seconds of single calls for several ways, which alternate after every few calls.

    Calls are very short: without turns, the load by other programs would distort the comparison. No path is read in
    two ways, because the first read brings its pages into memory for the second.
    """
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    turns = itertools.cycle(ways)
    for start in range(0, len(paths), TURN_READS):
        name = next(turns)
        seconds[name] += _seconds(ways[name], paths[start : start + TURN_READS])
    return {name: statistics.median(values) for name, values in seconds.items()}


@contextmanager
def on_one_processor(home: Home) -> Iterator[None]:
    """Bind this process and its database sessions to one processor meanwhile.

    Otherwise chance decides, for each session, whether waking the other side takes a few microseconds or, on
    another processor of a virtual machine, longer than the look-up.
    """
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    sessions = "SELECT pid FROM pg_stat_activity WHERE datname = current_database()"
    pids = [0, *(pid for (pid,) in home.connection.execute(sessions).fetchall())]
    try:
        for pid in pids:
            os.sched_setaffinity(pid, {min(before)})
        yield
    finally:
        for pid in pids:
            os.sched_setaffinity(pid, before)


def single(world: World, repository: Repository, rounds: int, rows: int) -> Row:
    """Random paths, half of them read in each way."""
    by_hand = ByHand(world.home)
    assert all(by_hand.read(path) == repository.read(path) for path in world.sample(0))
    ways = {"by hand": by_hand.read, "cafcat": repository.read}
    measured: dict[str, list[float]] = {name: [] for name in ways}
    with on_one_processor(world.home):
        for turn in range(rounds):
            for name, median in p50_in_turn(ways, world.sample(turn)).items():
                measured[name].append(median)
    by_hand.close()
    shown = {name: figure([value * 1e6 for value in values], "µs") for name, values in measured.items()}
    absolute = f"p50 {shown['cafcat']}; by hand {shown['by hand']}"
    real = f"{rows:,} rows, {rows - world.data.files:,} of them synthetic"
    ratios = pair_ratios(measured["cafcat"], measured["by hand"])
    peer = "prepared psycopg query + os.pread"
    return Row("finding.read", f"Repository.read of one small file; {real}", peer, at_most(1.3), ratios, absolute)


def neighbours(world: World, repository: Repository, rounds: int) -> Row:
    """Files that are neighbours in the catalog. Single reads before each round fill the processor's caches."""
    paths = world.folder(1)
    ways: dict[str, Way] = {
        "single": lambda: timed(lambda: [repository.read(path) for path in world.folder(2)]),
        "many": partial(read_many, repository, paths),
    }
    measured = [seconds * 1e6 / len(paths) for seconds in in_turn(ways, max(rounds, NEIGHBOUR_ROUNDS))["many"]]
    ratios = [value / NEIGHBOUR_MICROSECONDS for value in measured]
    work = f"read_many of {len(paths):,} neighbours, time a file"
    peer = f"{NEIGHBOUR_MICROSECONDS} µs"
    return Row("finding.neighbours", work, peer, at_most(1), ratios, figure(measured, "µs"))


def scattered(world: World, repository: Repository, rounds: int) -> Row:
    """Files with other rows between any two of them. The ratio is the factor by which read_many is faster."""
    paths = world.folder(len(world.paths) // FOLDER_FILES // 2)
    many = partial(read_many, repository, paths)
    ways: dict[str, Way] = {
        "single": lambda: timed(lambda: [repository.read(path) for path in paths]),
        "many": many,
    }
    measured = in_turn(ways, rounds)
    shown = {name: figure([value * 1e6 / len(paths) for value in measured[name]], "µs") for name in ways}
    absolute = f"a file: {shown['many']}; single {shown['single']}"
    work = f"read_many of {len(paths):,} files with {world.synthetic} others between any two: times faster"
    return Row(
        "finding.read_many",
        work,
        f"{len(paths):,} x Repository.read",
        at_least(20),
        pair_ratios(measured["single"], measured["many"]),
        absolute,
    )


def against_tree(world: World, repository: Repository, rounds: int) -> Row:
    """Files per second of reading everything, against reading the warm original tree."""
    read_all(world.data.paths())
    files = [str(world.data.folder.parent / path) for path in world.paths]
    ways = {"tree": partial(_read_tree, files), "cafcat": partial(read_many, repository, world.paths)}
    measured = in_turn(ways, rounds)
    rates = {name: [len(files) / value for value in values] for name, values in measured.items()}
    absolute = f"{figure(rates['cafcat'], 'files/s')}; open().read() {figure(rates['tree'], 'files/s')}"
    ratios = pair_ratios(rates["cafcat"], rates["tree"])
    work = f"read_many of all {len(files):,} files, files/s"
    return Row("finding.tree", work, "open().read() of the tree", Target(None, at_least=True), ratios, absolute)


def read_many(repository: Repository, paths: Sequence[str]) -> float:
    """Return the seconds until the last file is read."""
    contents: list[object] = []
    seconds = timed(lambda: contents.extend(content for _, content in repository.read_many(paths)))
    assert sum(isinstance(content, bytes) for content in contents) == len(paths)
    return seconds


def _read_tree(files: Sequence[str]) -> float:
    contents: list[bytes] = []

    def read() -> None:
        for name in files:
            with open(name, "rb") as file:
                contents.append(file.read())

    return timed(read)


def command(world: World, bench: Bench, rows: int) -> Row:
    """The command writes one small file to standard output."""
    path = world.paths[len(world.paths) // 2]
    get = [*CAFCAT, "get", path, "-o", "-"]
    by_hand = [sys.executable, "-c", _BY_HAND, world.home.url, str(world.home.chunk_folder), path]
    original = (world.data.folder.parent / path).read_bytes()
    ways = {"by hand": partial(_command, by_hand, world.home), "cafcat": partial(_command, get, world.home)}
    assert _output(get, world.home) == _output(by_hand, world.home) == original
    measured = in_turn(ways, bench.rounds * COMMANDS)
    absolute = seconds_of(measured, "cafcat", "by hand")
    ratios = pair_ratios(measured["cafcat"], measured["by hand"])
    peer = 'python -c "import typer, psycopg; connect, select, read"'
    return Row("finding.get", f"cafcat get as a process; {rows:,} rows", peer, at_most(1.3), ratios, absolute)


def every_path(world: World, bench: Bench, rows: int) -> Row:
    """Print the paths of all files into a pipe."""
    world.home.connection.execute("VACUUM ANALYZE file_locations")
    work, peer, target = f"find of {rows:,} paths into a pipe", "psql COPY", at_most(2)
    psql = shutil.which("psql")
    if psql is None:
        return Row("finding.find", work, peer, target, missing="missing: psql")
    copy = ["-c", "COPY (SELECT file_path FROM file_locations ORDER BY file_path) TO STDOUT"]
    script = '"$@" | cat > /dev/null'
    ways = {
        "psql": partial(timed, partial(shell, script, psql, world.home.url, *copy)),
        "cafcat": partial(timed, partial(shell, script, *CAFCAT, "find", environ=world.home.environ)),
    }
    measured = in_turn(ways, bench.rounds)
    ratios = pair_ratios(measured["cafcat"], measured["psql"])
    return Row("finding.find", work, peer, target, ratios, seconds_of(measured, "cafcat", "psql"))


def _command(words: Sequence[str], home: Home) -> float:
    return timed(lambda: run(*words, environ=home.environ))


def _output(words: Sequence[str], home: Home) -> bytes:
    return subprocess.run(words, env=os.environ | home.environ, check=True, capture_output=True).stdout
