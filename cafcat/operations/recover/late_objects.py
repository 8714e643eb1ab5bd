"""What came late to a store: a request that was on its way when its writer died may begin an upload, or complete
one, at any time after the chunk was settled."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from cafcat.catalog.chunks.recovery import Recovery
from cafcat.model import ChunkState
from cafcat.stores.base import Store
from cafcat.stores.keys import JOURNAL_PREFIX, is_chunk_key, is_probe_key

__all__ = ["Sweeping"]

_BATCH_KEYS: Final = 1000


@dataclass(frozen=True, slots=True)
class Sweeping:
    """Of one store. counts: gets what was removed, or would be, and what no row of the catalog names, which is left
    alone."""

    recovery: Recovery
    store: Store
    url: str
    counts: Counter[str]
    dry_run: bool

    def take(self) -> None:
        """Removes uploads of what is settled, and objects of what was abandoned."""
        others = (JOURNAL_PREFIX, *self._nested())
        uploads = (key for key in self.store.uploads() if not key.startswith(others))
        self._sweep("uploads", uploads, frozenset(ChunkState), self.store.discard)
        objects = (key for key, *_ in self.store.list() if not key.startswith(others))
        self._sweep("objects", objects, {ChunkState.ABANDONED}, self.store.delete)

    def _sweep(
        self, kind: str, keys: Iterable[str], late: Collection[ChunkState], remove: Callable[[str], object]
    ) -> None:
        for batch in _batches(keys):
            states = self.recovery.settled(self.url, batch)
            for key in batch:
                if is_probe_key(key):
                    self._remove_probe(key, remove)
                elif key not in states:
                    self.counts[f"unknown_{kind}"] += is_chunk_key(key)
                elif states[key] in late:
                    if not self.dry_run:
                        remove(key)
                    self.counts[f"{kind}_removed"] += 1

    def _remove_probe(self, key: str, remove: Callable[[str], object]) -> None:
        """One that a dead process left. Whoever lives notices that its own is gone."""
        if not self.dry_run:
            remove(key)

    def _nested(self) -> tuple[str, ...]:
        """How keys begin that belong to other stores of the catalog, below this one."""
        below = self.url.rstrip("/") + "/"
        others = (other for other in self.recovery.stores() if other.startswith(below))
        return tuple(f"{other.removeprefix(below)}/" for other in others)


def _batches(keys: Iterable[str]) -> Iterator[Sequence[str]]:
    keys = iter(keys)
    while batch := list(islice(keys, _BATCH_KEYS)):
        yield batch
