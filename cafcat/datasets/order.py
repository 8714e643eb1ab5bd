"""The order in which a `PackedStream` reads and yields samples. This module reads no files."""

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from random import Random
from typing import Any, NamedTuple

from cafcat.datasets.names import Names
from cafcat.errors import InvalidInput
from cafcat.model import Location

__all__ = ["SampleIndex", "Shard", "Window", "block_order", "blocks_of_shard", "same_settings"]


class Shard(NamedTuple):
    """The part of each epoch that one process reads.

    Attributes:
        rank: Number of the training process, from 0.
        ranks: Number of training processes.
        worker: Number of the data-loading worker of this training process, from 0.
        workers: Number of data-loading workers of each training process.
    """

    rank: int = 0
    ranks: int = 1
    worker: int = 0
    workers: int = 1

    def check(self) -> "Shard":
        """Return the shard. Raises InvalidInput if a number is out of range."""
        if not 0 <= self.rank < self.ranks:
            raise InvalidInput(f"rank must be from 0 to {self.ranks - 1}, not {self.rank}")
        if not 0 <= self.worker < self.workers:
            raise InvalidInput(f"worker must be from 0 to {self.workers - 1}, not {self.worker}")
        return self

    def span(self, samples: int, *, even: bool) -> tuple[int, int]:
        """Return which samples `[start, end)` of the order of an epoch this shard reads.

        The spans of all shards are adjacent. The shares of two ranks differ by at most one sample, and so do those
        of two workers of a rank.

        Args:
            samples: Number of samples of the data set.
            even: True to give each rank the same number of samples, so that up to `ranks - 1` samples are left out.
        """
        if even:
            of_rank = samples // self.ranks
            start = self.rank * of_rank
        else:
            start = samples * self.rank // self.ranks
            of_rank = samples * (self.rank + 1) // self.ranks - start
        first, last = of_rank * self.worker // self.workers, of_rank * (self.worker + 1) // self.workers
        return start + first, start + last


class SampleIndex:
    """All samples of a data set in the order of chunks and offsets, cut into blocks.

    A block is a range of one chunk, which is read at once. Only paths, sizes and the starts of blocks are kept.

    Attributes:
        names: Path of each sample.
        sizes: Size of each sample in bytes.
        starts: Number of the first sample of each block, and one past the last sample.
    """

    def __init__(self, found: Iterable[tuple[str, Location]], *, block_bytes: int, block_samples: int) -> None:
        """Sort the samples, and cut them into blocks.

        Args:
            found: Path and location of each sample.
            block_bytes: A block ends before it gets larger, in bytes; a single file may be larger.
            block_samples: Largest number of samples in a block.
        """
        rows, chunks = _rows(found)
        rows.sort(key=lambda row: (chunks[row[0]], row[1], row[3]))
        self.names = Names(row[3] for row in rows)
        self.sizes = array("Q", (row[2] for row in rows))
        self.starts = array("Q", _starts(rows, block_bytes, block_samples))

    def __len__(self) -> int:
        return len(self.sizes)


_Row = tuple[int, int, int, str]
"""Number of the chunk, first byte in the chunk, size in bytes, and path of a sample."""


def _rows(found: Iterable[tuple[str, Location]]) -> tuple[list[_Row], dict[int, tuple[str, str]]]:
    """Return a row for each sample, and store and key of each chunk by its number."""
    numbers: dict[tuple[str, str], int] = {}
    rows = []
    for path, location in found:
        chunk = numbers.setdefault((location.store, location.object_key), len(numbers))
        rows.append((chunk, location.start_byte, location.size_bytes, path))
    return rows, {number: place for place, number in numbers.items()}


def _starts(rows: Sequence[_Row], block_bytes: int, block_samples: int) -> Iterator[int]:
    chunk, start, size_bytes = -1, 0, 0
    for number, row in enumerate(rows):
        size_bytes += row[2]
        if row[0] != chunk or size_bytes > block_bytes or number - start >= block_samples:
            yield number
            chunk, start, size_bytes = row[0], number, row[2]
    yield len(rows)


def block_order(blocks: int, seed: int, epoch: int, *, shuffle: bool) -> Sequence[int]:
    """Return the numbers of all blocks in the order of an epoch: the same for all ranks and workers."""
    order = array("Q", range(blocks))
    if shuffle:
        random = Random(f"{seed} {epoch}")  # noqa: S311 - not a secret
        for last in range(blocks - 1, 0, -1):
            place = _below(last + 1, random)
            order[place], order[last] = order[last], order[place]
    return order


def _below(end: int, random: Random) -> int:
    """Return a random number from 0 to `end - 1`.

    Of the methods of Random, only `random` returns the same numbers for the same seed in all versions of Python.
    """
    return int(random.random() * end)


def blocks_of_shard(starts: Sequence[int], order: Sequence[int], span: tuple[int, int]) -> Iterator[range]:
    """Yield the samples of each block, or of the part of it, that a shard reads.

    Args:
        starts: As in SampleIndex.
        order: The order of blocks in this epoch.
        span: As from `Shard.span`.
    """
    first, last = span
    ends = array("Q", accumulate(starts[block + 1] - starts[block] for block in order))
    place = bisect_right(ends, first)
    while first < last:
        start, end = starts[order[place]], starts[order[place] + 1]
        before = ends[place] - (end - start)
        some = range(start + first - before, start + min(last - before, end - start))
        yield some
        first += len(some)
        place += 1


class Window:
    """The samples from which the next one is drawn at random. Whole blocks are added, and single samples drawn.

    Attributes:
        held: The samples in the window.
    """

    def __init__(self, sizes: Sequence[int], random: Random | None, most_bytes: int, most_samples: int) -> None:
        """Create an empty window.

        Args:
            sizes: Size of each sample in bytes.
            random: Draws the samples. None: they are drawn in the order in which they were added.
            most_bytes: The window is full when its samples have at least this size.
            most_samples: The window is full when it has at least this number of samples.
        """
        self._sizes = sizes
        self._random = random
        self._most_bytes = most_bytes
        self._most_samples = most_samples
        self._bytes = 0
        self.held: list[int] = []

    @property
    def is_full(self) -> bool:
        """True if no block is to be added before the next sample is drawn."""
        if self._random is None:
            return bool(self.held)
        return len(self.held) >= self._most_samples or (bool(self.held) and self._bytes >= self._most_bytes)

    def add(self, block: Iterable[int]) -> None:
        """Add the samples of a block."""
        added = list(block)
        self._bytes += sum(self._sizes[number] for number in added)
        if self._random is None:
            added.reverse()  # they are drawn from the end
        self.held += added

    def draw(self) -> int:
        """Remove and return a sample. The window must not be empty."""
        if self._random is not None:
            place = _below(len(self.held), self._random)
            self.held[place], self.held[-1] = self.held[-1], self.held[place]
        number = self.held.pop()
        self._bytes -= self._sizes[number]
        return number


def same_settings(state: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
    """Compare the settings in a saved state with those of a stream.

    Raises:
        InvalidInput: They differ, so that the order of samples would be another one.
    """
    for name, value in settings.items():
        if state.get(name) != value:
            message = f"the state was saved with {name} = {state.get(name)!r}, this stream has {value!r}"
            raise InvalidInput(message, hint="create the stream as the one that saved the state")
