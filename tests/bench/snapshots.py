"""Reading small files at random from a snapshot, against code without cafcat, and against the tree itself.

Processor time of the process is measured: reads take a few microseconds, from memory, in one thread.
"""

import contextlib
import os
import random
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import google_crc32c
import psycopg

import cafcat
from cafcat.repository import Repository
from tests.bench.bench import Home
from tests.bench.data import read_all
from tests.bench.table import NO_TARGET, Row, at_least, figure, pair_ratios
from tests.bench.timing import Way, in_turn, timed

if TYPE_CHECKING:
    from tests.bench.finding import World

ALL_ROWS = """
SELECT l.file_path, l.caf_file_id, l.start_byte, l.end_byte - l.start_byte, l.crc32c
FROM file_locations AS l ORDER BY l.file_path
"""
COPY = f"COPY ({ALL_ROWS}) TO STDOUT"
ENTRY = struct.Struct("<IQII")
MAP_BYTES = 1 << 40


class LMDBByHand:
    """Code without cafcat: LMDB maps a path to chunk, offset, size and checksum.

    One read transaction stays open. Files are read with pread on open descriptors, and their checksums are
    compared.
    """

    def __init__(self, lmdb: Any, home: Home, folder: Path) -> None:
        self._environment = lmdb.open(str(folder), map_size=MAP_BYTES, sync=False)
        with self._environment.begin(write=True) as transaction, psycopg.connect(home.url) as connection:
            rows = connection.cursor(name="rows")
            rows.itersize = 10_000
            for path, *numbers in rows.execute(ALL_ROWS):
                transaction.put(path.encode(), ENTRY.pack(*numbers), append=True)
        self._transaction = self._environment.begin()
        self._get = self._transaction.get
        chunks = home.connection.execute("SELECT id, object_key FROM chunks").fetchall()
        self._descriptors = {number: os.open(home.chunk_folder / key, os.O_RDONLY) for number, key in chunks}

    def read(self, path: str) -> bytes:
        chunk, start, size, checksum = ENTRY.unpack(self._get(path.encode()))
        data = os.pread(self._descriptors[chunk], size, start)
        if google_crc32c.value(data) != checksum:
            raise ValueError(path)
        return data

    def close(self) -> None:
        self._transaction.abort()
        self._environment.close()
        for descriptor in self._descriptors.values():
            os.close(descriptor)


def snapshot(world: "World", repository: Repository, folder: Path, rounds: int, rows: int) -> Iterator[Row]:
    """Rows for a snapshot of the whole catalog. Only real files are read, in random order."""
    output = folder / "bench.cafs"
    yield written(world, repository, output, rounds, rows)
    paths = random.Random(7).sample(world.paths, len(world.paths))
    read_all(world.data.paths())
    with cafcat.Snapshot(output, world.home.settings) as taken, contextlib.ExitStack() as opened:
        ways: dict[str, Way] = {"cafcat": partial(cpu_seconds, taken.read, paths)}
        above = str(world.data.folder.parent)
        ways["tree"] = partial(cpu_seconds, read_file, [f"{above}/{path}" for path in paths])
        by_hand = lmdb_by_hand(world, folder / "lmdb")
        if by_hand:
            opened.callback(by_hand.close)
            ways["lmdb"] = partial(cpu_seconds, by_hand.read, paths)
            assert all(by_hand.read(path) == taken.read(path) for path in paths[:1000])
        assert all(taken.read(path) == read_file(f"{above}/{path}") for path in paths[:1000])
        yield from against(in_turn(ways, rounds), len(paths), rows)


def against(measured: dict[str, list[float]], files: int, rows: int) -> Iterator[Row]:
    """Yield a row for each peer. The row of LMDB names it as missing if it is not installed."""
    rates = {name: [files / seconds for seconds in values] for name, values in measured.items()}
    for peer, name in {"LMDB + pread by hand": "lmdb", "open().read() of the tree": "tree"}.items():
        work = f"Snapshot.read of {files:,} small files at random; {rows:,} rows"
        row = Row(f"finding.snapshot {name}", work, peer, at_least(0.6))
        if name not in rates:
            yield row._replace(missing="missing: pip install lmdb, or --install-peers")
            continue
        absolute = f"{figure(rates['cafcat'], 'files/s of CPU')}; {name} {figure(rates[name], 'files/s of CPU')}"
        yield row._replace(ratios=pair_ratios(rates["cafcat"], rates[name]), absolute=absolute)


def written(world: "World", repository: Repository, output: Path, rounds: int, rows: int) -> Row:
    """The row for writing a snapshot from Postgres to a synced file; the peer only reads the same rows."""
    ways: dict[str, Way] = {
        "cafcat": lambda: timed(lambda: repository.snapshot(output, overwrite=True)),
        "COPY": lambda: timed(lambda: copy_out(world.home)),
    }
    rates = {name: [rows / seconds for seconds in values] for name, values in in_turn(ways, rounds).items()}
    absolute = f"{figure(rates['cafcat'], 'rows/s')}; COPY {figure(rates['COPY'], 'rows/s')}"
    ratios = pair_ratios(rates["cafcat"], rates["COPY"])
    return Row(
        "finding.snapshot written",
        f"a snapshot of {rows:,} rows, rows/s",
        "COPY of them to nowhere",
        NO_TARGET._replace(at_least=True),
        ratios,
        absolute,
    )


def copy_out(home: Home) -> None:
    with home.connection.cursor() as cursor, cursor.copy(COPY.encode()) as copy:
        for _ in copy:
            pass


def lmdb_by_hand(world: "World", folder: Path) -> LMDBByHand | None:
    """Return LMDB with the rows of the catalog; None if lmdb is not installed."""
    try:
        import lmdb
    except ImportError:
        return None
    return LMDBByHand(lmdb, world.home, folder)


def cpu_seconds(read: Callable[[str], bytes], paths: Sequence[str]) -> float:
    """Return the CPU seconds of this process for reading all paths."""
    begun = time.process_time()
    for path in paths:
        read(path)
    return time.process_time() - begun


def read_file(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()
