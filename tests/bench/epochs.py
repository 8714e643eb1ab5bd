"""An epoch of shuffled samples of 4 KiB in four workers: data sets of cafcat, against WebDataset and the tree.

A worker is a forked process that reads its share of the samples and drops them, as in PyTorch's DataLoader. Data
sets are made before the clock starts, which runs until the last worker has ended.
"""

import importlib
import importlib.util
import multiprocessing
import random
import tarfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from multiprocessing.queues import SimpleQueue
from pathlib import Path
from typing import Any

import cafcat
from cafcat.datasets import PackedDataset, PackedStream
from tests.bench.bench import Bench
from tests.bench.caching import forget_all
from tests.bench.data import DataSet, read_all
from tests.bench.packages import provide
from tests.bench.table import Row, Target, figure, pair_ratios
from tests.bench.timing import Way, in_turn

__all__ = ["ROWS"]

WORKERS = 4
SHARDS = 100
BUFFER_SAMPLES = 10_000
"""Samples among which WebDataset draws the next one: as many as PackedStream by default."""
BATCH = 256
STREAM, BATCHES, SINGLE = "PackedStream", f"PackedDataset, batches of {BATCH}", "PackedDataset, one by one"
TREE, WEBDATASET = "open().read() of the tree", "WebDataset tars"
COLD_ROUNDS = 2
_FORK = multiprocessing.get_context("fork")


class Loader(ABC):
    """A data set, made before the clock starts."""

    def begin(self, epoch: int) -> None:  # noqa: B027 - most data sets need nothing
        """Choose the order of an epoch, in the process that starts the workers."""

    @abstractmethod
    def share(self, epoch: int, worker: int) -> Iterator[bytes]:
        """Yield the samples of a worker, in its process."""


class Stream(Loader):
    """PackedStream: blocks of the chunk in random order, and a window."""

    def __init__(self, snapshot: cafcat.Snapshot) -> None:
        self._streams = [PackedStream(snapshot, seed=1, worker=n, workers=WORKERS) for n in range(WORKERS)]

    def share(self, epoch: int, worker: int) -> Iterator[bytes]:
        self._streams[worker].set_epoch(epoch)
        return (content for _, content in self._streams[worker])


class Batches(Loader):
    """PackedDataset: all samples in random order, read in batches, as a DataLoader with a sampler does."""

    def __init__(self, snapshot: cafcat.Snapshot) -> None:
        self._samples = PackedDataset(snapshot)
        self._order = list(range(len(self._samples)))

    def begin(self, epoch: int) -> None:
        random.Random(epoch).shuffle(self._order)

    def share(self, epoch: int, worker: int) -> Iterator[bytes]:
        for start in range(worker * BATCH, len(self._order), WORKERS * BATCH):
            for _, content in self._samples.__getitems__(self._order[start : start + BATCH]):
                yield content


class Single(Batches):
    """PackedDataset, read one by one in random order."""

    def share(self, epoch: int, worker: int) -> Iterator[bytes]:
        return (self._samples[number][1] for number in self._order[worker::WORKERS])


class Tree(Loader):
    """The original files in random order."""

    def __init__(self, data: DataSet) -> None:
        self._paths = [str(path) for path in data.paths()]

    def begin(self, epoch: int) -> None:
        random.Random(epoch).shuffle(self._paths)

    def share(self, epoch: int, worker: int) -> Iterator[bytes]:
        for path in self._paths[worker::WORKERS]:
            with open(path, "rb") as file:
                yield file.read()


class WebDataset(Loader):
    """Tars in random order, and a buffer from which samples are drawn."""

    def __init__(self, tars: Sequence[str]) -> None:
        self._module: Any = importlib.import_module("webdataset")
        self._tars = tars

    def share(self, epoch: int, worker: int) -> Iterator[bytes]:
        tars = random.Random(epoch).sample(self._tars, len(self._tars))[worker::WORKERS]
        samples = self._module.WebDataset(tars, shardshuffle=len(tars), seed=epoch).shuffle(BUFFER_SAMPLES)
        return (sample["dat"] for sample in samples)


def epochs(bench: Bench) -> Iterator[Row]:
    """Everything is in the page cache."""
    world = World(bench)
    read_all(iter(world.everything()))
    yield from _rows(world, "", in_turn(world.ways(), bench.rounds))


def cold(bench: Bench) -> Iterator[Row]:
    """Nothing is in the page cache when an epoch begins."""
    world = World(bench)
    how = forget_all(world.everything())
    ways = world.ways(lambda: forget_all(world.everything()))
    yield from _rows(world, f", cold ({how})", in_turn(ways, min(COLD_ROUNDS, bench.rounds)))


ROWS = (epochs, cold)


class World:
    """The samples as a tree, as a chunk, and as tars; and the data sets of them that can be had here."""

    def __init__(self, bench: Bench) -> None:
        self.data = bench.pages
        self._home = bench.packed(self.data)
        self._tars = _tars(bench, self.data)
        snapshot = self._snapshot(bench)
        provide(bench, "webdataset")
        makers: dict[str, Callable[[], Loader]] = {
            STREAM: lambda: Stream(snapshot),
            BATCHES: lambda: Batches(snapshot),
            SINGLE: lambda: Single(snapshot),
            TREE: lambda: Tree(self.data),
        }
        if importlib.util.find_spec("webdataset") is not None:
            makers[WEBDATASET] = lambda: WebDataset([str(path) for path in self._tars])
        self._loaders = {name: maker() for name, maker in makers.items()}
        self._epochs = dict.fromkeys(makers, 0)

    def _snapshot(self, bench: Bench) -> cafcat.Snapshot:
        place = bench.folder / "epochs.cafs"
        with cafcat.open(self._home.settings) as repository:
            repository.snapshot(place, overwrite=True)
        return cafcat.Snapshot(place, self._home.settings)

    def everything(self) -> list[Path]:
        return [*self._home.chunks(), *self._tars, *self.data.paths()]

    def ways(self, before: Callable[[], object] | None = None) -> dict[str, Way]:
        """Return a function for each data set that returns the seconds of its next epoch."""
        return {name: partial(self._epoch, name, before) for name in self._loaders}

    def _epoch(self, name: str, before: Callable[[], object] | None) -> float:
        if before:
            before()
        loader, epoch = self._loaders[name], self._epochs[name]
        self._epochs[name] += 1
        counts: SimpleQueue[tuple[int, int]] = _FORK.SimpleQueue()
        begun = time.perf_counter()
        loader.begin(epoch)
        workers = [_FORK.Process(target=_work, args=(loader, epoch, n, counts)) for n in range(WORKERS)]
        for worker in workers:
            worker.start()
        found = [counts.get() for _ in workers]
        for worker in workers:
            worker.join()
        seconds = time.perf_counter() - begun
        assert tuple(map(sum, zip(*found, strict=True))) == (self.data.files, self.data.size_bytes)
        return seconds


def _work(loader: Loader, epoch: int, worker: int, counts: "SimpleQueue[tuple[int, int]]") -> None:
    """Read the samples of a worker, and report their number and their bytes; (0, 0) after an error."""
    files = size_bytes = 0
    try:
        for content in loader.share(epoch, worker):
            files += 1
            size_bytes += len(content)
    except BaseException:
        files = size_bytes = 0
        raise
    finally:
        counts.put((files, size_bytes))


def _tars(bench: Bench, data: DataSet) -> list[Path]:
    """Write the samples into tars, in the order of their names, once. Return the tars."""
    folder = bench.folder / "shards"
    if not folder.exists():
        folder.mkdir()
        paths = list(data.paths())
        share = -(-len(paths) // SHARDS)
        for start in range(0, len(paths), share):
            with tarfile.open(folder / f"{start // share:05}.tar", "w") as archive:
                for path in paths[start : start + share]:
                    archive.add(path, str(path.relative_to(data.folder)))
    return sorted(folder.iterdir())


def _rows(world: World, how: str, measured: Mapping[str, list[float]]) -> Iterator[Row]:
    rates = {name: [world.data.files / seconds for seconds in values] for name, values in measured.items()}
    for ours in (STREAM, BATCHES, SINGLE):
        for theirs in (WEBDATASET, TREE):
            samples = f"{world.data.files:,} shuffled samples of 4 KiB"
            work = f"an epoch of {samples}, {WORKERS} workers{how}, {ours}, samples/s"
            row = Row(f"epochs {ours} {theirs}{how[:6]}", work, theirs, Target(None, at_least=True))
            if theirs not in rates:
                yield row._replace(missing="missing: pip install webdataset, or --install-peers")
                continue
            absolute = f"{figure(rates[ours], 'samples/s')}; {theirs} {figure(rates[theirs], 'samples/s')}"
            yield row._replace(ratios=pair_ratios(rates[ours], rates[theirs]), absolute=absolute)
