"""Removes uploads and objects that appear in a store after `recover` has finished with their chunk.

A request that was on its way when its writer died can begin or complete an upload at any later time.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final
from uuid import UUID

from cafcat.catalog.chunks.recovery import Recovery
from cafcat.events import Event, ObjectLeftAlone
from cafcat.model import ChunkState
from cafcat.operations.joining import CHUNK_KEY
from cafcat.stores.base import Store, has
from cafcat.stores.keys import JOURNAL_PREFIX, is_chunk_key, is_probe_key

__all__ = ["LateObjects"]

_BATCH_KEYS: Final = 1000


@dataclass(frozen=True, slots=True)
class LateObjects:
    """Counts and removes late uploads and objects of one store.

    Attributes:
        recovery: Queries of the catalog.
        store: The store.
        url: URL of the store in the catalog.
        counts: Receives the numbers of removed uploads and objects, and of those that are left alone.
        emit: Receives an event for each upload and object that is left alone.
        dry_run: Count only; change nothing.
    """

    recovery: Recovery
    store: Store
    url: str
    counts: Counter[str]
    emit: Callable[[Event], None]
    dry_run: bool

    def remove(self) -> None:
        """Remove uploads and objects that a dead writer's late requests made.

        These are uploads whose chunk, copy or backup is no longer being written, and objects whose row is
        abandoned. All probe objects and their uploads are removed, too. Uploads and objects with the key of a chunk
        that have no row in the catalog are only counted, because another catalog may write them. Those with the key
        of a chunk in another store are counted as copies, needed or not. So are objects of deleted chunks and
        copies, as in a lost store that is found again. Journal records, and other stores below this one, are left
        out. With `dry_run`, nothing is removed.
        """
        others = (JOURNAL_PREFIX, *self._nested())
        uploads = (key for key in self.store.uploads() if not key.startswith(others))
        for key in self._late("uploads", uploads, frozenset(ChunkState)):
            if not self.dry_run:
                self.store.discard(key)
        objects = (key for key, *_ in self.store.list() if not key.startswith(others))
        for key in self._late("objects", objects, {ChunkState.ABANDONED}):
            if not self.dry_run:
                self.store.delete(key)

    def _late(self, kind: str, keys: Iterable[str], late: Collection[ChunkState]) -> Iterator[str]:
        """Yield the keys of uploads or objects to remove, and count each after the caller has handled it.

        Probe objects are among them, but not counted. A living process notices that its probe object is gone.

        Args:
            kind: "uploads" or "objects", for the counters.
            keys: Keys of all uploads or objects of the store.
            late: The states of rows whose upload or object is removed.
        """
        for batch in _batches(keys):
            states = self.recovery.final_states(self.url, batch)
            gone = [key for key in batch if states.get(key, ChunkState.DELETED) is ChunkState.DELETED]
            copies = self._copies(gone if kind == "objects" else ())
            for key in batch:
                if is_probe_key(key):
                    yield key
                elif key not in states:
                    self._leave_alone(kind, key, copies.get(key, (None, False)))
                elif states[key] in late:
                    yield key
                    self.counts[f"{kind}_removed"] += 1
                elif key in copies and has(self.store, key):  # prune did not remove the object meanwhile
                    self._leave_alone(kind, key, copies[key])

    def _copies(self, gone: Iterable[str]) -> dict[str, tuple[UUID, bool]]:
        """Return the keys of chunks of the catalog, with the uuid of the chunk and whether it has live files."""
        found = {key: UUID(match[1]) for key in gone if (match := CHUNK_KEY.fullmatch(key))}
        needed = self.recovery.find_needed(list(found.values())) if found else {}
        return {key: (uuid, needed[uuid]) for key, uuid in found.items() if uuid in needed}

    def _leave_alone(self, kind: str, key: str, copy: tuple[UUID | None, bool]) -> None:
        if is_chunk_key(key):
            copy_of, is_needed = copy
            copies = "unknown_copies" if is_needed else "unneeded_copies"
            self.counts[copies if copy_of else f"unknown_{kind}"] += 1
            url = f"{self.url.rstrip('/')}/{key}"
            self.emit(ObjectLeftAlone(url, kind == "uploads", copy_of, is_needed))

    def _nested(self) -> tuple[str, ...]:
        """Return the key prefixes of other stores of the catalog that are below this one."""
        below = self.url.rstrip("/") + "/"
        others = (other for other in self.recovery.stores() if other.startswith(below))
        return tuple(f"{other.removeprefix(below)}/" for other in others)


def _batches(keys: Iterable[str]) -> Iterator[Sequence[str]]:
    keys = iter(keys)
    while batch := list(islice(keys, _BATCH_KEYS)):
        yield batch
