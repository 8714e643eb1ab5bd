"""Removes chunks that no path points to any more, when their grace period is over.

The row in the catalog decides, and is changed first: `retired` becomes `deleted` only while nothing points to the
chunk, and undelete brings back nothing of a chunk that is `deleted`. Then its objects are removed, then its journal
record, which without the objects says nothing. What says that files were removed stays.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple
from uuid import UUID

from cafcat.catalog.catalog import Catalog
from cafcat.catalog.chunks.pruning import ChunkObject, LeftCopy, PrunableChunk
from cafcat.errors import Corrupt
from cafcat.operations.failures import reported
from cafcat.operations.known_stores import KnownStores
from cafcat.operations.other_places import OtherReplicas
from cafcat.progress import Progress
from cafcat.stores.base import Store
from cafcat.stores.distinct import check_files
from cafcat.writing.journal import remove_journal, write_journal

__all__ = ["Prune", "PruneReport", "PrunedChunk"]


class PrunedChunk(NamedTuple):
    """A chunk that was removed, or would be; or one copy that a migration left. bytes_freed: of all its objects;
    retired_at: when the last file left it, or when the chunk was migrated, ISO 8601 in UTC."""

    uuid: UUID
    store: str
    objects: int
    bytes_freed: int
    retired_at: str | None


@dataclass(frozen=True, slots=True)
class PruneReport:
    """What was removed, or would be: chunks, their objects (copies too), and the bytes of these. chunks_waiting,
    bytes_waiting: nothing points to them, but their grace period is not over. let_go: adopted archives that the
    catalog forgets; their objects stay. copies_waiting: copies that a migration of their store left, whose grace
    period is not over. failed: what could not be removed, and why."""

    chunks: int
    objects: int
    bytes_freed: int
    chunks_waiting: int
    bytes_waiting: int
    let_go: int
    failed: tuple[str, ...]
    interrupted: bool
    dry_run: bool
    copies_waiting: int = 0


class Prune:
    """One pass. Any number of them may be at work at once, beside everything else."""

    def __init__(
        self,
        catalog: Catalog,
        stores: KnownStores,
        *,
        grace_seconds: int,
        dry_run: bool,
        progress: Progress,
        on_pruned: Callable[[PrunedChunk], object],
        should_stop: Callable[[], bool],
    ) -> None:
        """`on_pruned` is told of each chunk; `should_stop` is asked between chunks, and may raise there."""
        self._catalog = catalog
        self._stores = stores
        self._places = OtherReplicas(catalog, stores.open)
        self._grace_seconds = grace_seconds
        self._dry_run = dry_run
        self._progress = progress
        self._on_pruned = on_pruned
        self._should_stop = should_stop
        self._counts: Counter[str] = Counter()
        self._failed: list[str] = []

    def take(self, store: str | None) -> PruneReport:
        """See Custody.prune."""
        interrupted = False
        for chunk in self._catalog.pruning.prunable(self._grace_seconds, store):
            if interrupted := self._should_stop():
                break
            with reported(self._failed, f"chunk {chunk.uuid}"):
                self._prune(chunk)
        interrupted = interrupted or self._prune_left_copies(store)
        waiting = self._catalog.pruning.waiting(self._grace_seconds, store)
        copies = self._catalog.pruning.copies_waiting(self._grace_seconds, store)
        counts, failed = self._counts, tuple(self._failed)
        freed = (counts["chunks"], counts["objects"], counts["bytes"])
        return PruneReport(
            *freed,
            *waiting,
            counts["let_go"],
            failed,
            interrupted=interrupted,
            dry_run=self._dry_run,
            copies_waiting=copies,
        )

    def _prune_left_copies(self, store: str | None) -> bool:
        """Whether it was interrupted."""
        for copy in self._catalog.pruning.left_copies(self._grace_seconds, store):
            if self._should_stop():
                return True
            with reported(self._failed, f"chunk {copy.uuid}"):
                self._prune_left(copy)
        return False

    def _prune_left(self, copy: LeftCopy) -> None:
        """Only where the chunk itself is seen at its new place, and that is another place than the old one."""
        store, new = self._stores.open(copy.store), self._stores.open(copy.chunk_store)
        found = new.stat(copy.chunk_key)
        if found.size_bytes != copy.size_bytes:
            where = f"its object in {copy.chunk_store}"
            raise Corrupt(f"{where} has {found.size_bytes:,} bytes, the catalog says {copy.size_bytes:,}")
        check_files(store, new, (copy.object_key, copy.chunk_key))
        if not self._dry_run:
            self._places.prove(store, copy.uuid, copy.object_key)
            if not self._catalog.pruning.decide_copy(copy, self._grace_seconds):
                return
            left = ChunkObject(copy.id, copy.store, copy.object_key, copy.size_bytes)
            self._remove(store, copy.chunk_id, [left])
        self._counts.update(objects=1, bytes=copy.size_bytes)
        self._on_pruned(PrunedChunk(copy.uuid, copy.store, 1, copy.size_bytes, copy.retired_at))

    def _prune(self, chunk: PrunableChunk) -> None:
        if not chunk.is_decided and not self._decide(chunk):
            return
        if chunk.is_adopted and not chunk.is_decided:
            self._let_go(chunk)
        objects = self._catalog.pruning.objects(chunk.id)
        removed = objects if self._dry_run else self._remove_all(chunk, objects)
        if removed:
            freed = sum(found.size_bytes for found in removed)
            itself = sum(found.copy is None for found in removed)
            self._counts.update(chunks=itself, objects=len(removed), bytes=freed)
            self._progress.advance(chunk.file_count, freed)
            self._on_pruned(PrunedChunk(chunk.uuid, chunk.store, len(removed), freed, chunk.retired_at))

    def _let_go(self, chunk: PrunableChunk) -> None:
        """What is not cafcat's is not touched, nor looked for."""
        if not self._dry_run:
            self._catalog.chunks.record_removed(chunk.id)
        self._counts["let_go"] += 1
        self._progress.advance(chunk.file_count, 0)
        self._on_pruned(PrunedChunk(chunk.uuid, chunk.store, 0, 0, chunk.retired_at))

    def _decide(self, chunk: PrunableChunk) -> bool:
        """Nothing is decided of a chunk whose store is not there, or cannot be told what was removed: a rebuild of
        what is left in it would bring back older files of the same names."""
        if chunk.is_adopted:
            return self._dry_run or self._catalog.pruning.decide(chunk.id, self._grace_seconds)
        store = self._stores.open(chunk.store)
        if self._dry_run:
            return True
        write_journal(self._catalog.journal, store)
        return self._catalog.pruning.decide(chunk.id, self._grace_seconds)

    def _remove_all(self, chunk: PrunableChunk, objects: Sequence[ChunkObject]) -> list[ChunkObject]:
        """Returns the objects that were removed. A store that fails keeps its own."""
        removed = []
        for url, group in groupby(sorted(objects, key=attrgetter("store")), key=attrgetter("store")):
            with reported(self._failed, f"chunk {chunk.uuid}"):
                found = list(group)
                self._remove(self._stores.open(url), chunk.id, found)
                removed.extend(found)
        return removed

    def _remove(self, store: Store, chunk_id: int, objects: Sequence[ChunkObject]) -> None:
        """All that one store has of a chunk. The journal record after the objects: a whole chunk without its
        record would be taken for one whose commit never came. And not while somebody is at writing it."""
        # Their uploads were completed long ago: there is none to abort.
        for found in objects:
            store.delete(found.object_key)
        with self._catalog.journal.exclusively(store.url):
            remove_journal(self._catalog.journal, store, chunk_id)
        for found in objects:
            if found.copy is None:
                self._catalog.chunks.record_removed(chunk_id)
            else:
                self._catalog.copies.record_removed(found.copy)
