"""A data set that is read from its first to its last sample, in a random order: `PackedStream`."""

import logging
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from random import Random
from typing import Any, Final

from cafcat.datasets.order import SampleIndex, Shard, Window, block_order, blocks_of_shard, same_settings
from cafcat.datasets.source import Contents, FileSource, Transform, locations_of, sample_of
from cafcat.errors import CafcatError, InvalidInput
from cafcat.support.in_order import in_order

__all__ = ["PackedStream"]

_BLOCK_BYTES: Final = 8 << 20
_BLOCK_SAMPLES: Final = 1000
_WINDOW_BYTES: Final = 256 << 20
_WINDOW_SAMPLES: Final = 10_000
_AHEAD: Final = 4
"""Number of blocks that are read while the caller uses the samples before them."""


class PackedStream:
    """Packed files as an iterable-style data set of PyTorch, shuffled, without random reads.

    The files are cut into blocks: ranges of about 8 MiB of a chunk, which are read at once. Each epoch has its own
    random order of all blocks. The samples of a block go into a window, and each sample is drawn from the window at
    random. So the order depends on seed and epoch only, not on the speed of reading.

    Each sample of an epoch goes to exactly one worker of one rank. The shares of ranks, and of workers of a rank,
    differ by at most one sample. In a worker process of a DataLoader, the stream finds out which worker it is.

    Every iteration is the next epoch: 0, 1, 2, ...; `set_epoch` chooses another one.

    The object can be pickled into worker processes, and used after a fork. If PyTorch was imported before the
    object is created, a DataLoader accepts it as an IterableDataset.
    """

    def __init__(
        self,
        source: FileSource,
        paths: Iterable[str] | None = None,
        *,
        prefix: str = "",
        transform: Transform | None = None,
        shuffle: bool = True,
        seed: int = 0,
        rank: int | None = None,
        ranks: int | None = None,
        worker: int | None = None,
        workers: int | None = None,
        drop_uneven: bool = False,
        skip_errors: bool = False,
        window_bytes: int = _WINDOW_BYTES,
        window_samples: int = _WINDOW_SAMPLES,
        block_bytes: int = _BLOCK_BYTES,
        block_samples: int = _BLOCK_SAMPLES,
    ) -> None:
        """Create a stream. The files are located now, and read later.

        All ranks must find the same files: use the same snapshot, or a repository that does not change meanwhile.

        Args:
            source: A Repository, or a Snapshot, which needs no database.
            paths: Paths of the files. None: all files below `prefix`.
            prefix: A folder, or a file; "" for all files. Ignored if `paths` is given.
            transform: Called with path and bytes of a file; its result is the sample. None: the sample is the pair
                of path and bytes.
            shuffle: False to yield the samples in the order of chunks and offsets.
            seed: Chooses the order, together with the epoch. All ranks need the same seed.
            rank: Number of this training process, from 0. None: as `torch.distributed` says; 0 if the process is in
                no process group when it creates the stream.
            ranks: Number of training processes. None: as for `rank`.
            worker: Number of this data-loading worker, from 0. None: as PyTorch's `get_worker_info` says.
            workers: Number of data-loading workers of each training process. None: as for `worker`.
            drop_uneven: True to leave out up to `ranks - 1` samples of each epoch, so that all ranks have equally
                many samples, and equally many batches.
            skip_errors: True to log a file that cannot be read, and go on with the next one. False to raise its
                error.
            window_bytes: Size of the samples among which the next one is drawn, in bytes: about the memory of each
                worker.
            window_samples: Number of the samples among which the next one is drawn.
            block_bytes: Size of a block, in bytes.
            block_samples: Largest number of samples in a block.

        Raises:
            InvalidInput: An argument is out of range, or `paths` is a single text.
            NotFound: One of `paths` does not exist.
            CafcatError: The files cannot be located.
        """
        if (worker is None) != (workers is None):
            raise InvalidInput("give both worker and workers, or neither")
        if rank is None or ranks is None:
            if rank is not ranks:
                raise InvalidInput("give both rank and ranks, or neither")
            rank, ranks = _rank_of_torch()
        if min(window_bytes, window_samples, block_bytes, block_samples) < 1:
            raise InvalidInput("the sizes of window and block must be at least 1")
        self._shard = Shard(rank, ranks, worker or 0, workers or 1).check()
        self._is_fixed = worker is not None
        self._contents = Contents(source)
        self._transform = transform
        self._skip_errors = skip_errors
        found = locations_of(source, paths, prefix)
        self._index = SampleIndex(found, block_bytes=block_bytes, block_samples=block_samples)
        self._settings: dict[str, Any] = {
            "samples": len(self._index),
            "blocks": len(self._index.starts) - 1,
            "shuffle": shuffle,
            "seed": seed,
            "window_bytes": window_bytes,
            "window_samples": window_samples,
            "drop_uneven": drop_uneven,
        }
        self._next = self._now = (0, 0)
        self._loaded_shard: Shard | None = None
        _register()

    @property
    def sample_count(self) -> int:
        """Number of samples of the whole data set, for all ranks and workers together."""
        return len(self._index)

    def __len__(self) -> int:
        """Number of samples of this rank in each epoch, as PyTorch defines it: for all its workers together.

        If `worker` was given, only the samples of this worker are counted.
        """
        first, last = self._shard.span(len(self._index), even=self._settings["drop_uneven"])
        return last - first

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch of the next iteration. All ranks must choose the same epoch.

        In persistent worker processes of a DataLoader this has no effect: each counts the epochs itself.
        """
        self._next = self._now = (epoch, 0)
        self._loaded_shard = None

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the last iteration that was begun: its epoch, and how many samples it has yielded.

        Another stream with the same arguments, in the same worker of the same rank, continues after these samples.
        """
        epoch, position = self._now
        return self._settings | {"epoch": epoch, "position": position, "shard": list(self._current_shard())}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Let the next iteration continue where another stream was when `state_dict` returned this state.

        Samples that were yielded before are not read again.

        Raises:
            InvalidInput: The other stream had other files or arguments. An iteration raises this if the other
                stream was another worker or rank.
        """
        same_settings(state, self._settings)
        self._next = self._now = (int(state["epoch"]), int(state["position"]))
        self._loaded_shard = Shard(*state["shard"])

    def __iter__(self) -> Iterator[Any]:
        """Begin the next epoch.

        Yields:
            The samples of this worker of this rank.

        Raises:
            InvalidInput: A loaded state is that of another worker or rank.
            CafcatError: A file cannot be read, as `PackedFiles.read` raises it.
        """
        shard = self._current_shard()
        if self._loaded_shard not in (None, shard):
            raise InvalidInput(f"the state was saved by {self._loaded_shard}, this is {shard}")
        self._loaded_shard = None
        self._now = epoch, position = self._next
        self._next = (epoch + 1, 0)
        return self._samples(epoch, position, shard)

    def _current_shard(self) -> Shard:
        if self._is_fixed:
            return self._shard
        worker, workers = _worker_of_torch()
        return self._shard._replace(worker=worker, workers=workers)

    def _samples(self, epoch: int, position: int, shard: Shard) -> Iterator[Any]:
        window = self._window(epoch, shard)
        blocks = self._blocks(epoch, shard)
        _skip(window, blocks, position)
        left = iter(sorted(window.held))
        before = list(iter(lambda: list(islice(left, _BLOCK_SAMPLES)), []))
        contents: dict[int, tuple[str, bytes | CafcatError]] = {}
        fetched = in_order(self._fetch, chain(before, blocks), most_in_flight=_AHEAD)
        try:
            for _ in before:
                contents |= next(fetched)
            while True:
                while not window.is_full and (block := next(fetched, None)) is not None:
                    window.add(block)
                    contents |= block
                if not window.held:
                    break
                path, content = contents.pop(window.draw())
                position += 1
                self._now = (epoch, position)
                if self._skip_errors and isinstance(content, CafcatError):
                    logging.getLogger("cafcat").warning("a sample is left out: %s", content)
                    continue
                yield sample_of(path, content, self._transform)
        finally:
            fetched.close()
        self._now = (epoch + 1, 0)

    def _window(self, epoch: int, shard: Shard) -> Window:
        settings = self._settings
        random = Random(f"{settings['seed']} {epoch} {shard}") if settings["shuffle"] else None  # noqa: S311
        return Window(self._index.sizes, random, settings["window_bytes"], settings["window_samples"])

    def _blocks(self, epoch: int, shard: Shard) -> Iterator[range]:
        settings, starts = self._settings, self._index.starts
        order = block_order(settings["blocks"], settings["seed"], epoch, shuffle=settings["shuffle"])
        return blocks_of_shard(starts, order, shard.span(settings["samples"], even=settings["drop_uneven"]))

    def _fetch(self, block: Sequence[int]) -> dict[int, tuple[str, bytes | CafcatError]]:
        """Return path and content of each sample of a block; for a file that cannot be read, path and error."""
        paths = self._index.names.some(block)
        contents = self._contents.read(paths)
        return {number: (path, contents[path]) for number, path in zip(block, paths, strict=True)}


def _skip(window: Window, blocks: Iterator[range], samples: int) -> None:
    """Add blocks to a window and draw samples as an iteration does, without reading, for a number of samples."""
    for _ in range(samples):
        while not window.is_full and (block := next(blocks, None)) is not None:
            window.add(block)
        if not window.held:
            return
        window.draw()


def _rank_of_torch() -> tuple[int, int]:
    """Return rank and number of ranks in PyTorch's process group: (0, 1) if there is none."""
    module = sys.modules.get("torch.distributed")
    if module is None or not module.is_available() or not module.is_initialized():
        return 0, 1
    return module.get_rank(), module.get_world_size()


def _worker_of_torch() -> tuple[int, int]:
    """Return number and count of data-loading workers: (0, 1) outside a worker process of PyTorch's DataLoader."""
    module = sys.modules.get("torch.utils.data")
    info = None if module is None else module.get_worker_info()
    return (0, 1) if info is None else (info.id, info.num_workers)


def _register() -> None:
    """Register PackedStream as an IterableDataset if PyTorch was imported, because its DataLoader requires one."""
    module = sys.modules.get("torch.utils.data")
    if module is not None:
        module.IterableDataset.register(PackedStream)
