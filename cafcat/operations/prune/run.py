"""Removes chunks that no path has pointed to for longer than their grace period.

The row in the catalog is changed first: `retired` becomes `deleted`, if still no path points to the chunk. Undelete
brings back no file of a `deleted` chunk. Then the objects are removed, then their journal record, which is useless
without the objects. Journal records of removed files stay.
"""

from collections import Counter
from collections.abc import Sequence, Set
from contextlib import suppress
from functools import cached_property
from itertools import groupby
from operator import attrgetter

from cafcat.catalog.chunks.pruning import ChunkObject, PrunableChunk, RetiredCopy
from cafcat.errors import (
    AccessDenied,
    CafcatError,
    CatalogOutdated,
    CatalogUnavailable,
    Corrupt,
    InvalidInput,
    NotFound,
    StoreFailed,
    Unavailable,
)
from cafcat.events import ChunkPruned
from cafcat.operations.audit import recorded
from cafcat.operations.chosen_stores import url_of_store_with_chunks
from cafcat.operations.failures import note_failure
from cafcat.operations.other_replicas import OtherReplicas
from cafcat.operations.prune.options import PruneOptions
from cafcat.operations.prune.report import PruneReport
from cafcat.operations.reachable_stores import ReachableStores
from cafcat.session import Session
from cafcat.stores.base import Store, has
from cafcat.stores.distinct import check_files
from cafcat.writing.journal import remove_journal, write_journal

__all__ = ["run"]


@recorded
def run(session: Session, options: PruneOptions) -> PruneReport:
    """Remove chunks that no path points to, and copies that a migration left, if their grace period is over.

    Failures of single chunks and stores are noted in the report.

    Raises:
        NotFound: The catalog has no chunk, copy or backup in the store.
        InvalidInput, Unsupported: The name of the store is not a valid URL or path, or no kind of store has its
            scheme.
        CatalogUnavailable, CatalogOutdated: The database does not answer, or has another schema.
    """
    store = url_of_store_with_chunks(session, options.store)
    session.progress.begin("prune")
    try:
        return _Prune(session, options).prune_all(store)
    finally:
        session.progress.end()


class _Prune:
    """State and steps of one `cafcat prune`. Several prunes, readers and writers may work at the same time."""

    def __init__(self, session: Session, options: PruneOptions) -> None:
        self._session = session
        self._catalog = session.catalog
        self._stores = ReachableStores(session)
        self._replicas = OtherReplicas(session.catalog, self._stores)
        self._grace_seconds = options.grace_seconds
        self._dry_run = options.dry_run
        self._counts: Counter[str] = Counter()
        self._failed: list[str] = []
        self._shown_copies: set[int] = set()
        self._kept: Counter[tuple[str, str]] = Counter()
        """Number of objects that stay because a store is out of reach, by their kind and store, and the reason."""

    def prune_all(self, store: str | None) -> PruneReport:
        """Prune the chunks of one store, or of all stores, until the user ends the operation.

        Args:
            store: URL of the only store to prune; None for all stores.
        """
        interrupted = False
        for chunk in self._catalog.pruning.prunable(self._grace_seconds, store):
            if interrupted := self._session.should_end():
                break
            with note_failure(self._failed, f"chunk {chunk.uuid}"):
                if chunk.is_adopted or chunk.is_deleted or self._are_there("of the chunks", chunk.store):
                    self._prune(chunk)
        interrupted = interrupted or self._prune_left_copies(store)
        waiting = self._catalog.pruning.waiting(self._grace_seconds, store)
        copies = self._catalog.pruning.copies_waiting(self._grace_seconds, store)
        counts = self._counts
        kept = (f"kept {count} {what}: {why}" for (what, why), count in self._kept.items())
        failed = (*self._failed, *kept)
        freed = (counts["chunks"], counts["objects"], counts["bytes"])
        return PruneReport(
            *freed,
            *waiting,
            counts["let_go"],
            failed,
            interrupted=interrupted,
            dry_run=self._dry_run,
            copies_waiting=copies,
            files_lost=counts["files_lost"],
        )

    def _prune_left_copies(self, store: str | None) -> bool:
        """Prune the copies that migrations left. Returns True if the user ended the operation."""
        for copy in self._catalog.pruning.retired_copies(self._grace_seconds, store):
            if self._session.should_end():
                return True
            if copy.id in self._shown_copies:
                continue  # a dry run has shown it with its chunk
            with note_failure(self._failed, f"chunk {copy.uuid}"):
                if self._are_there("of the copies that a migration left", copy.store, copy.chunk_store):
                    self._prune_left(copy)
        return False

    def _are_there(self, kind: str, *urls: str) -> bool:
        """Return True if stores can be reached. If not, count an object that stays because of that.

        Args:
            kind: Kind of the object, for the message.
            *urls: URL of the store of the object, then those of other stores that are needed to remove it.

        Raises:
            CatalogUnavailable, CatalogOutdated: The database does not answer, or has another schema.
        """
        try:
            for url in urls:
                self._stores.open(url)
        except (CatalogUnavailable, CatalogOutdated):
            raise
        except CafcatError as error:
            self._kept[f"{kind} in {urls[0]}", str(error)] += 1
            return False
        return True

    def _prune_left(self, copy: RetiredCopy) -> None:
        """Remove a copy that a migration left.

        The chunk itself must be at its new location, with the right size, and this must not be the old location.
        """
        store, new = self._stores.open(copy.store), self._stores.open(copy.chunk_store)
        found = new.stat(copy.chunk_key)
        if found.size_bytes != copy.size_bytes:
            where = f"its object in {copy.chunk_store}"
            raise Corrupt(f"{where} has {found.size_bytes:,} bytes instead of {copy.size_bytes:,}")
        check_files(store, new, (copy.object_key, copy.chunk_key))
        if not self._dry_run:
            self._replicas.prove(store, copy.uuid, copy.object_key)
            if not self._catalog.pruning.mark_copy_deleted(copy, self._grace_seconds):
                return
        left = ChunkObject(copy.id, copy.store, copy.object_key, copy.size_bytes)
        [left] = self._remove(store, copy.chunk_id, [left])
        self._counts.update(objects=1, bytes=left.size_bytes)
        self._session.emit(ChunkPruned(copy.uuid, copy.store, 1, left.size_bytes, copy.retired_at))

    def _prune(self, chunk: PrunableChunk) -> None:
        if not chunk.is_deleted and not self._decide(chunk):
            return
        if chunk.is_adopted and not chunk.is_deleted:
            self._let_go(chunk)
        elif not chunk.is_deleted:
            self._counts["files_lost"] += self._catalog.pruning.lost_files(chunk.id)
        objects = self._catalog.pruning.objects(chunk.id)
        removed = self._remove_all(chunk, objects)
        if self._dry_run:
            self._shown_copies.update(found.copy for found in objects if found.copy is not None)
        elif own := next((found for found in removed if found.copy is None), None):
            self._remove_other_records(chunk.id, own.object_key, {found.store for found in objects})
        if removed:
            freed = sum(found.size_bytes for found in removed)
            itself = sum(found.copy is None for found in removed)
            self._counts.update(chunks=itself, objects=len(removed), bytes=freed)
            self._session.progress.advance(chunk.file_count, freed)
            self._session.emit(ChunkPruned(chunk.uuid, chunk.store, len(removed), freed, chunk.retired_at))

    @cached_property
    def _all_stores(self) -> Sequence[str]:
        return self._catalog.recovery.stores()

    def _remove_other_records(self, chunk_id: int, object_key: str, known: Set[str]) -> None:
        """Remove the journal record of a deleted chunk from stores without an object of the chunk.

        A store has such a record if the object was lost there, and the catalog was rebuilt since. A later rebuild
        would miss the chunk. If the catalog was rebuilt without a store, the store may have a copy that the catalog
        does not have: there, the record stays, because a rebuild takes a chunk without a record for the newest.
        If a store is out of reach, its record stays, too.

        Args:
            chunk_id: chunks.id of the chunk.
            object_key: Key of the chunk in its store, and of its copies.
            known: URLs of the stores of which the catalog has objects of the chunk. Those were removed.
        """
        for url in self._all_stores:
            if url not in known:
                with suppress(StoreFailed, AccessDenied, Unavailable, InvalidInput):
                    store = self._stores.open(url)
                    if not has(store, object_key):
                        remove_journal(self._catalog.journal, store, chunk_id)

    def _let_go(self, chunk: PrunableChunk) -> None:
        """Record that an adopted archive has left the catalog, unless this is a dry run. Its object stays."""
        if not self._dry_run:
            self._catalog.chunks.record_removed(chunk.id)
        self._counts["let_go"] += 1
        self._session.progress.advance(chunk.file_count, 0)
        self._session.emit(ChunkPruned(chunk.uuid, chunk.store, 0, 0, chunk.retired_at))

    def _decide(self, chunk: PrunableChunk) -> bool:
        """Set the state of a retired chunk to `deleted`, except in a dry run. Returns False if it must stay.

        A chunk stays if a path points to it again. Unless it was adopted, its store must answer, and the journal
        records that the store lacks are written first. Without them, a rebuild from the rest of this store would
        bring back older files with the same paths.
        """
        if chunk.is_adopted:
            return self._dry_run or self._catalog.pruning.mark_deleted(chunk.id, self._grace_seconds)
        store = self._stores.open(chunk.store)
        if self._dry_run:
            return True
        write_journal(self._catalog.journal, store)
        return self._catalog.pruning.mark_deleted(chunk.id, self._grace_seconds)

    def _remove_all(self, chunk: PrunableChunk, objects: Sequence[ChunkObject]) -> list[ChunkObject]:
        """Remove the given objects of a chunk from their stores as `_remove`, and return those that were removed.

        The failure of a store is noted for the report.
        """
        removed = []
        for url, group in groupby(sorted(objects, key=attrgetter("store")), key=attrgetter("store")):
            with note_failure(self._failed, f"chunk {chunk.uuid}"):
                removed += self._remove(self._stores.open(url), chunk.id, list(group))
        return removed

    def _remove(self, store: Store, chunk_id: int, objects: Sequence[ChunkObject]) -> list[ChunkObject]:
        """Remove objects of a chunk from one store, and then its journal record. A dry run only looks for them.

        The journal record comes last, because a rebuild adopts a complete chunk without a record.

        Returns:
            The objects, with the sizes that they had in the store: 0 for one that was missing.
        """
        removed = [found._replace(size_bytes=_size_in(store, found.object_key)) for found in objects]
        if self._dry_run:
            return removed
        # The uploads of these objects were completed long ago, so there is none to abort.
        for found in objects:
            store.delete(found.object_key)
        remove_journal(self._catalog.journal, store, chunk_id)
        for found in objects:
            if found.copy is None:
                self._catalog.chunks.record_removed(chunk_id)
            else:
                self._catalog.copies.record_removed(found.copy)
        return removed


def _size_in(store: Store, key: str) -> int:
    """Return the size of an object in its store, in bytes; 0 if the object is missing."""
    try:
        return store.stat(key).size_bytes
    except NotFound:
        return 0
