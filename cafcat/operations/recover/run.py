"""Runs `cafcat recover`: of the leftovers of dead writers, complete chunks are adopted, and all others are removed.

The row in the catalog is changed first: `writing` becomes `committed` or `abandoned` exactly once, even if several
processes try. Only then an object is removed from a store. Except for probe objects, only objects with a row are
removed.
"""

import contextlib
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Final

from cafcat.catalog.chunks.commit import ChunkCommit
from cafcat.catalog.chunks.owners import owner_name, role_of
from cafcat.catalog.chunks.recovery import LeftoverChunk
from cafcat.catalog.files.mapping import Mapping
from cafcat.errors import CafcatError, CatalogUnavailable, Conflict, Corrupt, Locked, NotFound
from cafcat.events import ChunkRecovered, RecoverOutcome
from cafcat.formats import registry as formats
from cafcat.model import ArchiveUnits, ChunkSummary
from cafcat.operations.audit import recorded
from cafcat.operations.chosen_stores import url_of_store_with_chunks
from cafcat.operations.failures import note_failure
from cafcat.operations.index_rules import units_in
from cafcat.operations.own_index import WholeObject
from cafcat.operations.reachable_stores import ReachableStores
from cafcat.operations.recover.late_objects import LateObjects
from cafcat.operations.recover.left_backups import recover_backups
from cafcat.operations.recover.left_copies import LeftCopies
from cafcat.operations.recover.options import RecoverOptions
from cafcat.operations.recover.report import RecoverReport
from cafcat.progress import Progress
from cafcat.session import Session
from cafcat.stores.base import Store, StoredObject, has
from cafcat.writing.journal import remove_journal, sweep_journal, write_journal
from cafcat.writing.lease import LEASE_SECONDS

__all__ = ["Recovery", "run"]

_RENEW_SECONDS: Final = 60


@recorded
def run(session: Session, options: RecoverOptions) -> RecoverReport:
    """Adopt or remove the leftovers of writers that died, and return the counts.

    Failures of single stores and objects are noted in the report. With `dry_run`, nothing is changed.

    Raises:
        NotFound: The catalog has no chunk, copy or backup in the store.
        InvalidInput, Unsupported: The name of the store is not a valid URL or path, or no kind of store has its
            scheme.
        CatalogUnavailable, CatalogOutdated: The database does not answer, or has another schema.
    """
    store = url_of_store_with_chunks(session, options.store)
    recovery = Recovery(session, dry_run=options.dry_run)
    session.progress.begin("recover")
    try:
        recovery.recover(url for url in session.catalog.recovery.stores() if store in (None, url))
    finally:
        session.progress.end()
    return recovery.report


class Recovery:
    """State and steps of one recovery of leftovers. Several recoveries and writers may work at the same time."""

    def __init__(self, session: Session, *, dry_run: bool) -> None:
        self._session = session
        self._catalog = session.catalog
        self._stores = ReachableStores(session)
        self._owner = owner_name("recover")
        self._dry_run = dry_run
        self._interrupted = False
        self._counts: Counter[str] = Counter()
        self._leases_end_at: str | None = None
        self._failed: list[str] = []
        self._note_failure = partial(note_failure, self._failed)
        self._copies = LeftCopies(session, self._stores, self._owner, self._counts, dry_run=dry_run)

    @property
    def report(self) -> RecoverReport:
        """Counts of the leftovers in all stores so far. In a dry run, those of a real one."""
        counts = self._counts
        return RecoverReport(
            adopted=counts[RecoverOutcome.ADOPTED],
            abandoned=counts[RecoverOutcome.ABANDONED],
            cleaned=counts[RecoverOutcome.CLEANED],
            uploads_removed=counts["uploads_removed"],
            objects_removed=counts["objects_removed"],
            still_leased=counts["still_leased"],
            unknown_uploads=counts["unknown_uploads"],
            unknown_objects=counts["unknown_objects"],
            unknown_copies=counts["unknown_copies"],
            unneeded_copies=counts["unneeded_copies"],
            leases_end_at=self._leases_end_at,
            failed=tuple(self._failed),
            files_adopted=counts["files_adopted"],
            files_skipped=counts["files_skipped"],
            bytes_adopted=counts["bytes_adopted"],
            copies_adopted=counts["copies_adopted"],
            copies_removed=counts["copies_removed"],
            backups_removed=counts["backups_removed"],
            records_written=counts["records_written"],
            runs_failed=counts["runs_failed"],
            interrupted=self._interrupted,
            dry_run=self._dry_run,
        )

    def recover(self, stores: Iterable[str]) -> None:
        """Adopt or remove the leftovers in some stores, until all are done or the user ends the operation.

        Leftovers are chunks, copies, backups and journal records of dead writers, and their uploads and objects.
        Failures of single stores and objects are noted in the report. Runs of dead processes are recorded as
        failed.

        Args:
            stores: URLs of the stores.

        Raises:
            CatalogUnavailable, CatalogOutdated: The database does not answer, or has another schema.
        """
        for url in stores:
            if self._is_stopping():
                return
            with self._note_failure(f"store {url}"):
                store = self._open(url)
                self._recover_store(store, url)
                self._prove(store, url)
                self._sweep(store, url)
            self._count_leases(url)
        if self._dry_run:
            self._counts["runs_failed"] += self._catalog.runs.count_dead_runs()
        else:
            self._counts["runs_failed"] += self._catalog.runs.fail_dead_runs()
            self._catalog.folders.fold()

    def recover_rows(self, url: str) -> None:
        """Adopt or remove those leftovers in one store that have rows in the catalog. Its objects are not listed.

        Late uploads and objects, and chunks with a lease, are left to `recover`. Failures are noted in the report.

        Args:
            url: URL of the store.

        Raises:
            CatalogUnavailable, CatalogOutdated: The database does not answer, or has another schema.
        """
        with self._note_failure(f"store {url}"):
            self._recover_store(self._open(url), url)

    def _recover_store(self, store: Store, url: str) -> None:
        """Adopt or remove leftovers in a store that have rows in the catalog, and write missing journal records.

        First come the chunks that were abandoned or deleted before. If they came last, a chunk that is abandoned
        here, and whose object cannot be removed, would be tried twice.
        """
        recovery = self._catalog.recovery
        unwritten = len(self._catalog.journal.unwritten([url]))
        for chunk in recovery.remains(url):
            if self._is_stopping():
                return
            with self._note_failure(f"chunk {chunk.uuid}"):
                self._clean(store, chunk)
        for chunk in recovery.overdue(url):
            if self._is_stopping():
                return
            with self._note_failure(f"chunk {chunk.uuid}"):
                self._recover_chunk(store, chunk)
        copies = self._catalog.copies
        for found, recover in (
            *((copy, self._copies.clean) for copy in copies.remains(url)),
            *((copy, self._copies.recover) for copy in copies.overdue(url)),
        ):
            if self._is_stopping():
                return
            with self._note_failure(f"copy {store.locate(found.object_key)}"):
                recover(store, found)
        self._recover_backups(store, url)
        if not self._dry_run:
            write_journal(self._catalog.journal, store)
        self._counts["records_written"] += unwritten

    def _prove(self, store: Store, url: str) -> None:
        """Adopt each chunk in a store whose object is complete, although the lease of its writer has not ended.

        If the writer lives, it was about to commit the same object. Of the two commits, the later one finds that
        the chunk is committed.
        """
        for chunk in self._catalog.recovery.leased(url):
            if self._is_stopping():
                return
            if role_of(chunk.owner) != "recover" and has(store, chunk.object_key):
                with contextlib.suppress(Corrupt, NotFound, Locked, Conflict), Mapping(chunk.id) as mapping:
                    summary = _read_whole(store, chunk, mapping, self._session.progress)
                    self._adopt(chunk, summary, mapping, self._units(store, chunk))

    def _recover_backups(self, store: Store, url: str) -> None:
        """Remove the incomplete backups in a store. None is adopted, because the next backup is newer anyway."""
        with self._note_failure(f"backups in {url}"):
            if self._dry_run:
                backups = self._catalog.backups
                self._counts["backups_removed"] += len(backups.remains(url)) + len(backups.overdue(url))
            else:
                self._counts["backups_removed"] += recover_backups(self._catalog, store, self._owner)

    def _sweep(self, store: Store, url: str) -> None:
        """Remove late uploads and objects in a store: those that appeared after their rows were dealt with."""
        if not self._is_stopping():
            LateObjects(
                self._catalog.recovery, store, url, self._counts, self._session.emit, self._dry_run
            ).remove()
            if not self._dry_run:
                sweep_journal(self._catalog.journal, store, self._catalog.identities.of(url).catalog)

    def _is_stopping(self) -> bool:
        self._interrupted = self._session.should_end() or self._interrupted
        return self._interrupted

    def _count_leases(self, url: str) -> None:
        leases = self._catalog.recovery.leases(url)
        self._counts["still_leased"] += leases.chunks
        ends = [end for end in (self._leases_end_at, leases.end_at) if end is not None]
        self._leases_end_at = max(ends, default=None)

    def _open(self, url: str) -> Store:
        """Open a store, after checking that it answers and has objects of the catalog.

        In a store that is not where its URL points, a missing object would not prove anything.

        Raises:
            Unavailable: The store does not answer, or is not where its URL points.
            AccessDenied: The store refuses the request.
        """
        store = self._stores.open(url)
        for _ in store.uploads():
            break
        return store

    def _clean(self, store: Store, chunk: LeftoverChunk) -> None:
        self._remove(store, chunk)
        self._report_chunk(ChunkRecovered(chunk.uuid, chunk.store, RecoverOutcome.CLEANED))

    def _remove(self, store: Store, chunk: LeftoverChunk) -> None:
        """Remove upload, object and journal record of an abandoned or deleted chunk, except in a dry run.

        The upload comes first, because it can still become an object.
        """
        if not self._dry_run:
            store.discard(chunk.object_key, chunk.upload_id)
            store.delete(chunk.object_key)
            remove_journal(self._catalog.journal, store, chunk.id)
            self._catalog.chunks.record_removed(chunk.id)

    def _recover_chunk(self, store: Store, found: LeftoverChunk) -> None:
        """Acquire the lease of a chunk whose writer died, and adopt or abandon the chunk.

        If another process has the lease now, nothing is done. After an error, this process's lease is ended at
        once. A dry run acquires no lease, and only reports the action.
        """
        chunk = found if self._dry_run else self._catalog.recovery.acquire(found, self._owner, LEASE_SECONDS)
        if chunk is None:
            return
        try:
            self._adopt_or_abandon(store, chunk)
        except Locked:
            return
        except BaseException:
            with contextlib.suppress(CafcatError):
                self._catalog.recovery.release(chunk.id, self._owner)
            raise

    def _adopt_or_abandon(self, store: Store, chunk: LeftoverChunk) -> None:
        with Mapping(chunk.id) as mapping:
            try:
                progress = self._session.progress if self._dry_run else _Renewing(self._session, chunk, self._owner)
                summary = _read_whole(store, chunk, mapping, progress)
                units = self._units(store, chunk)
            except (NotFound, Corrupt, Conflict) as error:
                self._abandon(store, chunk, str(error))
            else:
                if not store.is_remote and not self._dry_run:
                    # A writer that died between link and unlink left a second name of the object.
                    store.discard(chunk.object_key)
                self._adopt(chunk, summary, mapping, units)

    def _units(self, store: Store, chunk: LeftoverChunk) -> ArchiveUnits:
        """Return the log files and times in a chunk; NO_UNITS if it is not an archive of logs.

        Raises:
            Conflict: Another run ingested one of the log files meanwhile. Records in an archive cannot be skipped.
        """
        units = units_in(formats.by_name(chunk.format), StoredObject(store, chunk.object_key))
        if units.units and (conflict := self._catalog.logs.find_conflict(units.units, chunk.id)) is not None:
            raise conflict
        return units

    def _adopt(self, chunk: LeftoverChunk, summary: ChunkSummary, mapping: Mapping, units: ArchiveUnits) -> None:
        files, skipped, live_bytes = summary.file_count, 0, mapping.size_bytes
        if not self._dry_run:
            with _locked_if_changed(chunk):
                commit = self._commit(chunk, summary, mapping, units)
            files, skipped, live_bytes = commit.added + commit.replaced, commit.skipped, commit.live_bytes
        self._counts.update(files_adopted=files, files_skipped=skipped, bytes_adopted=live_bytes)
        self._session.progress.advance(summary.file_count, 0)
        outcome = RecoverOutcome.ADOPTED
        self._report_chunk(ChunkRecovered(chunk.uuid, chunk.store, outcome, summary.file_count, summary.size_bytes))

    def _commit(
        self, chunk: LeftoverChunk, summary: ChunkSummary, mapping: Mapping, units: ArchiveUnits
    ) -> ChunkCommit:
        """Commit a chunk as its dead writer would have done, and return the counts of changed files.

        A chunk of `repack` or `repair` must not bring back a file that was removed or replaced meanwhile.
        """
        commit = self._catalog.commit
        if chunk.moves_from is not None:
            return commit.commit_moved(chunk.id, summary, mapping, chunk.moves_from)
        return commit.commit_chunk(
            chunk.id, summary, mapping, chunk.on_conflict, all_new=True, is_late=True, units=units
        )

    def _abandon(self, store: Store, chunk: LeftoverChunk, reason: str) -> None:
        if not self._dry_run:
            with _locked_if_changed(chunk):
                self._catalog.chunks.abandon_chunk(chunk.id, f"its writer died: {reason}")
        self._report_chunk(ChunkRecovered(chunk.uuid, chunk.store, RecoverOutcome.ABANDONED, reason=reason))
        self._remove(store, chunk)

    def _report_chunk(self, recovered: ChunkRecovered) -> None:
        self._counts[recovered.outcome] += 1
        self._session.emit(recovered)


def _read_whole(store: Store, chunk: LeftoverChunk, mapping: Mapping, progress: Progress) -> ChunkSummary:
    """Read a whole chunk, add its files to the mapping, and return the summary that the catalog stores.

    Raises:
        NotFound: The store does not have the object.
        Corrupt: The object is incomplete or damaged.
        StoreFailed, AccessDenied: The store failed, or refused the request.
    """
    whole = WholeObject(store, chunk.object_key, formats.by_name(chunk.format), progress)
    for entry in whole.entries():
        mapping.add(entry)
    return whole.summary


class _Renewing(Progress):
    """Passes progress on to the session, and renews the lease of a chunk once a minute while the chunk is read."""

    def __init__(self, session: Session, chunk: LeftoverChunk, owner: str) -> None:
        self._session = session
        self._chunk = chunk
        self._owner = owner
        self._renewed = time.monotonic()

    def checkpoint(self) -> None:
        """Raise what `Session.checkpoint` raises if the user wants recover to end at once."""
        self._session.checkpoint()

    def advance(self, files: int, size_bytes: int) -> None:
        """Report progress, and renew the lease if the last renewal was a minute ago.

        A catalog that does not answer at the moment is no reason to stop, because the lease lasts 15 minutes.

        Raises:
            Locked: Another process has the lease now.
        """
        self._session.progress.advance(files, size_bytes)
        now = time.monotonic()
        if now - self._renewed >= _RENEW_SECONDS:
            self._renewed = now
            with contextlib.suppress(CatalogUnavailable):
                self._session.catalog.recovery.renew(self._chunk.id, self._owner, LEASE_SECONDS)


@contextlib.contextmanager
def _locked_if_changed(chunk: LeftoverChunk) -> Iterator[None]:
    """Raise Locked in place of Conflict, which means that the chunk's row is not in state `writing` any more.

    Its writer lives, or another recovery was faster.
    """
    try:
        yield
    except Conflict as error:
        raise Locked("another process has adopted or abandoned the chunk", chunk=str(chunk.uuid)) from error
