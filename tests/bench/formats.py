"""Each format in which files can be packed, against CAF: the same tree and the same commands, in turn."""

import random
import shutil
import sys
import sysconfig
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import cafcat
from cafcat.errors import Unsupported
from cafcat.formats import registry
from cafcat.testing.formats import ListSink
from tests.bench.bench import Bench, Home
from tests.bench.data import DataSet, read_all
from tests.bench.table import NO_TARGET, Row, figure, pair_ratios
from tests.bench.timing import in_turn, seconds_of, timed

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

CAF = "caf"
READS = 2000
ZSTD_LEVEL = 3


def write_small(bench: Bench) -> Iterator[Row]:
    """Pack (a) with one process, including the commit."""
    yield from _write(bench, "formats.write_small", "ingest (a), -j1", bench.small)


def write_medium(bench: Bench) -> Iterator[Row]:
    """Pack (b) with one process."""
    yield from _write(bench, "formats.write_medium", "ingest (b), 1 MiB each, -j1", bench.medium)


def read_small(bench: Bench) -> Iterator[Row]:
    """Extract (a) from the page cache into a new folder."""
    yield from _extract(bench, "formats.read_small", "extract of (a)", bench.small)


def read_medium(bench: Bench) -> Iterator[Row]:
    """Extract (b) from the page cache into a new folder."""
    yield from _extract(bench, "formats.read_medium", "extract of (b), 1 MiB each", bench.medium)


def random_get(bench: Bench) -> Iterator[Row]:
    """Read files of (d) one by one in random order, in one process."""
    homes = {name: _packed(bench, bench.pages, name) for name in _writable()}
    paths = [f"{bench.pages.name}/{path.relative_to(bench.pages.folder)}" for path in bench.pages.paths()]
    sample = random.Random(2).sample(paths, min(READS, len(paths)))
    ways = {name: partial(_read, home, sample) for name, home in homes.items()}
    measured = in_turn(ways, bench.rounds)
    for name in _others():
        work = f"Repository.read of {len(sample):,} files of (d), 4 KiB each, {name}"
        micro = {way: [seconds / len(sample) * 1e6 for seconds in measured[way]] for way in (name, CAF)}
        absolute = "; ".join(f"{way} {figure(micro[way], 'us')}" for way in micro)
        ratios = pair_ratios(measured[name], measured[CAF])
        yield Row(f"formats.get {name}", work, CAF, NO_TARGET, ratios, absolute)


def size(bench: Bench) -> Iterator[Row]:
    """Sizes of chunks, without catalogs, of text that compresses: Python's standard library."""
    data = _text(bench)
    sizes = {name: _size(_packed(bench, data, name)) for name in _writable()}
    compressed = _compressed(_packed(bench, data, CAF))
    work = f"size of {data.files:,} files of text, {data.size_bytes / 1e6:,.1f} MB"
    for name in _others():
        for peer, size_bytes in ((CAF, sizes[CAF]), (f"CAF + zstd -{ZSTD_LEVEL}", compressed)):
            absolute = f"{name} {sizes[name] / 1e6:,.2f} MB; {peer} {size_bytes / 1e6:,.2f} MB"
            yield Row(
                f"formats.size {name}", f"{work}, {name}", peer, NO_TARGET, [sizes[name] / size_bytes], absolute
            )


ROWS = (write_small, write_medium, read_small, read_medium, random_get, size)


def _writable() -> list[str]:
    """Return the formats in which files can be packed, CAF first."""
    found = [CAF]
    for name in registry.NAMES:
        try:
            registry.by_name(name).writer(ListSink())
        except Unsupported:
            continue
        found += [name] if name != CAF else []
    return found


def _others() -> Sequence[str]:
    return _writable()[1:]


def _write(bench: Bench, name: str, work: str, data: DataSet) -> Iterator[Row]:
    read_all(data.paths())
    ways = {of: partial(bench.ingest_anew, data, "-j", "1", "--format", of) for of in _writable()}
    yield from _rows(bench, name, work, data, ways)


def _extract(bench: Bench, name: str, work: str, data: DataSet) -> Iterator[Row]:
    homes = {of: _packed(bench, data, of) for of in _writable()}
    read_all(chunk for home in homes.values() for chunk in _objects(home))
    ways = {of: partial(_extracted, bench, home, data) for of, home in homes.items()}
    yield from _rows(bench, name, work, data, ways)


def _rows(bench: Bench, name: str, work: str, data: DataSet, ways: dict[str, Callable[[], float]]) -> Iterator[Row]:
    measured = in_turn(ways, bench.rounds)
    for of in _others():
        rates = "; ".join(f"{way} {_rate(data, measured[way])}" for way in (of, CAF))
        absolute = f"{seconds_of(measured, of, CAF)}; {rates}"
        yield Row(
            f"{name} {of}", f"{work}, {of}", CAF, NO_TARGET, pair_ratios(measured[of], measured[CAF]), absolute
        )


def _rate(data: DataSet, seconds: Sequence[float]) -> str:
    best = sorted(seconds)[len(seconds) // 2]
    return f"{data.size_bytes / best / 1e6:,.0f} MB/s, {data.files / best:,.0f} files/s"


def _packed(bench: Bench, data: DataSet, name: str) -> Home:
    """Return a repository with the data in one format, made at its first use."""
    home = bench.home(f"{data.name}-{name}")
    if not home.files():
        bench.ingest(home, data, "-j", "1", "--format", name)
    return home


def _extracted(bench: Bench, home: Home, data: DataSet) -> float:
    target = bench.folder / "extracted"
    seconds = timed(lambda: home.cafcat("extract", "-q", data.name, "-C", target))
    shutil.rmtree(target)
    return seconds


def _read(home: Home, paths: Sequence[str]) -> float:
    with cafcat.open(home.settings) as repository:
        repository.read(paths[0])
        return timed(lambda: [repository.read(path) for path in paths])


def _objects(home: Home) -> list[Path]:
    names = home.connection.execute("SELECT object_key FROM chunks WHERE state = 'committed'").fetchall()
    return [home.chunk_folder / name for (name,) in names]


def _size(home: Home) -> int:
    return sum(path.stat().st_size for path in _objects(home))


def _text(bench: Bench) -> DataSet:
    folder = bench.folder / "text"
    if not folder.exists():
        library = Path(sysconfig.get_paths()["stdlib"])
        for path in sorted(library.rglob("*.py")):
            if "site-packages" not in path.parts:
                target = folder / path.relative_to(library)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, target)
    files = [path for path in folder.rglob("*") if path.is_file()]
    return DataSet(folder, len(files), sum(path.stat().st_size for path in files))


def _compressed(home: Home) -> int:
    """Return the size of the chunks, each compressed as a whole."""
    return sum(len(zstd.compress(path.read_bytes(), ZSTD_LEVEL)) for path in _objects(home))
