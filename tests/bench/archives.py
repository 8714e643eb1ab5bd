"""Reading small files at random from other archives: the time to open the archive, and the time for each file."""

import importlib
import random
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import cafcat
from tests.bench.bench import Bench
from tests.bench.data import DataSet
from tests.bench.finding import MOST_FILES, Read, World
from tests.bench.packages import provide
from tests.bench.table import Row, Target, figure, pair_ratios
from tests.bench.timing import in_turn, shell, timed

RATARMOUNT = "ratarmountcore"


class Peer(NamedTuple):
    """Another kind of archive. make: makes one of the tree. open: returns a function that reads a file by path."""

    name: str
    title: str
    make: Callable[[Bench, DataSet], Path]
    open: Callable[[Bench, Path], Read]


def archives(bench: Bench) -> Iterator[Row]:
    """Files per second, one by one in random order, from an open archive in the page cache."""
    world = World(bench, "archived", min(MOST_FILES, bench.files))
    with cafcat.open(world.home.settings) as repository:
        for peer in PEERS:
            yield _row(bench, peer, world, repository.read)


def _row(bench: Bench, peer: Peer, world: World, read: Read) -> Row:
    paths = list(world.paths)
    random.Random(1).shuffle(paths)
    work = f"Repository.read of {len(paths):,} files at random, files/s"
    row = Row(f"archives.{peer.name}", work, peer.title, Target(None, at_least=True))
    archive = peer.make(bench, world.data)
    begun = time.perf_counter()
    try:
        theirs = peer.open(bench, archive)
    except ModuleNotFoundError as missing:
        return row._replace(missing=f"missing: pip install {missing.name}, or --install-peers")
    opened = f"after {time.perf_counter() - begun:.2f} s to open it"
    assert all(theirs(path) == read(path) for path in paths[:100])
    ways = {"theirs": partial(_read_all, theirs, paths), "cafcat": partial(_read_all, read, paths)}
    measured = in_turn(ways, bench.rounds)
    rates = {name: [len(paths) / seconds for seconds in measured[name]] for name in ways}
    absolute = f"{figure(rates['cafcat'], 'files/s')}; {peer.title} {figure(rates['theirs'], 'files/s')} {opened}"
    return row._replace(ratios=pair_ratios(rates["cafcat"], rates["theirs"]), absolute=absolute)


def _read_all(read: Read, paths: Sequence[str]) -> float:
    def reads() -> None:
        for path in paths:
            read(path)

    return timed(reads)


def make_zip(bench: Bench, data: DataSet) -> Path:
    """Write a zip without compression, with the paths of the catalog."""
    place = bench.folder / "archived.zip"
    with zipfile.ZipFile(place, "w") as archive:
        for path in data.paths():
            archive.write(path, path.relative_to(bench.folder))
    return place


def open_zip(_: Bench, archive: Path) -> Read:
    """Open a zip."""
    return zipfile.ZipFile(archive).read


def make_tar(bench: Bench, data: DataSet) -> Path:
    """Write a tar with the paths of the catalog, and install the library of ratarmount if requested."""
    place = bench.folder / "archived.tar"
    shell('tar cf "$2" "$1"', data.name, place, cwd=bench.folder)
    provide(bench, RATARMOUNT)
    return place


def open_tar(_: Bench, archive: Path) -> Read:
    """Open an archive. Raises ModuleNotFoundError if ratarmount is not installed."""
    factory = importlib.import_module(f"{RATARMOUNT}.mountsource.factory")
    source = factory.open_mount_source(str(archive), writeIndex=False, printDebug=0)

    def read(path: str) -> bytes:
        with source.open(source.lookup(f"/{path}")) as file:
            content: bytes = file.read()
            return content

    return read


PEERS = (
    Peer("zipfile", "python zipfile", make_zip, open_zip),
    Peer("ratarmount", "ratarmount (its library)", make_tar, open_tar),
)
ROWS = (archives,)
