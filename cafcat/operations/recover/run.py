"""Settles what writers left behind that died: whole chunks are adopted, all else is removed.

The row in the catalog decides, and is changed first: `writing` becomes `committed` or `abandoned` once, whoever is
at it. Only then something is removed from a store, and only what a row names.
"""

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Final, NamedTuple
from uuid import UUID

from cafcat.catalog.catalog import Catalog
from cafcat.catalog.chunks.commit import ChunkCommit
from cafcat.catalog.chunks.owners import role_of
from cafcat.catalog.chunks.recovery import LeftChunk
from cafcat.catalog.files.mapping import Mapping
from cafcat.errors import CafcatError, CatalogUnavailable, Conflict, Corrupt, Locked, NotFound
from cafcat.formats import registry as formats
from cafcat.model import ArchiveUnits, ChunkSummary
from cafcat.operations.failures import reported
from cafcat.operations.index_rules import units_in
from cafcat.operations.known_stores import KnownStores
from cafcat.operations.other_places import OtherReplicas
from cafcat.operations.own_index import read_whole
from cafcat.operations.recover.late_objects import Sweeping
from cafcat.operations.recover.left_backups import recover_backups
from cafcat.operations.recover.left_copies import LeftCopies, RecoveredCopy
from cafcat.progress import Progress
from cafcat.stores.base import OpensFiles, Store, StoredObject, has
from cafcat.writing.journal import remove_journal, sweep_journal, write_journal
from cafcat.writing.lease import LEASE_SECONDS

__all__ = ["Outcome", "Recover", "RecoverReport", "RecoveredChunk"]

_RENEW_SECONDS: Final = 60


class Outcome(StrEnum):
    """What became of a chunk."""

    ADOPTED = "adopted"
    """Its object is whole: it was committed."""
    ABANDONED = "abandoned"
    """Its object is not there or not whole: nothing points to it, and its remains were removed."""
    CLEANED = "cleaned"
    """It was abandoned before; now its remains were removed, too."""


class RecoveredChunk(NamedTuple):
    """files and size_bytes: of an adopted chunk, those in its index and the size of the object. reason: why it was
    abandoned."""

    uuid: UUID
    store: str
    outcome: Outcome
    files: int = 0
    size_bytes: int = 0
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class RecoverReport:
    """What was done, or would be; the first eight in numbers of chunks, uploads and objects.

    uploads_removed, objects_removed: what came late to chunks that were settled before. still_leased: chunks that
    are being written; leases_end_at: when the last of their leases ends, ISO 8601 in UTC. unknown_uploads,
    unknown_objects: what no chunk of this catalog names; left alone. failed: what could not be settled, and why.
    files_adopted: found under their paths now; files_skipped: in adopted chunks, where their paths had newer files,
    or other files that the run was told to keep. bytes_adopted: of the files adopted. A dry run counts all files of
    a chunk as adopted. copies_adopted; copies_removed, backups_removed: of which something was left.
    records_written: of the journal, that a store could not be told when they were made; a thousand at most are
    counted.
    """

    adopted: int
    abandoned: int
    cleaned: int
    uploads_removed: int
    objects_removed: int
    still_leased: int
    unknown_uploads: int
    unknown_objects: int
    leases_end_at: str | None
    failed: tuple[str, ...]
    files_adopted: int
    files_skipped: int
    bytes_adopted: int
    copies_adopted: int
    copies_removed: int
    backups_removed: int
    records_written: int
    interrupted: bool
    dry_run: bool


class Recover:
    """One pass. Any number of them may be at work at once, beside writers."""

    def __init__(
        self,
        catalog: Catalog,
        store_of: Callable[[str], Store],
        *,
        owner: str,
        dry_run: bool,
        progress: Progress,
        on_settled: Callable[[RecoveredChunk | RecoveredCopy], object],
        should_stop: Callable[[], bool],
    ) -> None:
        """`store_of` gives the store of a URL in `chunks.store`; `owner` is who has the leases that are taken;
        `on_settled` is told of each chunk and copy. `should_stop` is asked between chunks; it may raise in the
        middle of one, which then stays as it is."""
        self._catalog = catalog
        self._stores = KnownStores(catalog, store_of)
        self._owner = owner
        self._dry_run = dry_run
        self._progress = progress
        self._on_settled = on_settled
        self._should_stop = should_stop
        self._renewed = 0.0
        self._interrupted = False
        self._counts: Counter[str] = Counter()
        self._leases_end_at: str | None = None
        self._failed: list[str] = []
        self._reported = partial(reported, self._failed)
        self._copies = LeftCopies(
            catalog,
            OtherReplicas(catalog, self._stores.open),
            owner=owner,
            dry_run=dry_run,
            advance=self._pass,
            on_settled=self._tell_of_copy,
        )

    @property
    def report(self) -> RecoverReport:
        """What was done so far."""
        counts = self._counts
        return RecoverReport(
            adopted=counts[Outcome.ADOPTED],
            abandoned=counts[Outcome.ABANDONED],
            cleaned=counts[Outcome.CLEANED],
            uploads_removed=counts["uploads_removed"],
            objects_removed=counts["objects_removed"],
            still_leased=counts["still_leased"],
            unknown_uploads=counts["unknown_uploads"],
            unknown_objects=counts["unknown_objects"],
            leases_end_at=self._leases_end_at,
            failed=tuple(self._failed),
            files_adopted=counts["files_adopted"],
            files_skipped=counts["files_skipped"],
            bytes_adopted=counts["bytes_adopted"],
            copies_adopted=counts["copies_adopted"],
            copies_removed=counts["copies_removed"],
            backups_removed=counts["backups_removed"],
            records_written=counts["records_written"],
            interrupted=self._interrupted,
            dry_run=self._dry_run,
        )

    def take(self, stores: Iterable[str]) -> None:
        """Settles the chunks of these stores. What a store refuses, or damage in it, costs only its chunks and is
        reported. Raises CatalogUnavailable, CatalogOutdated."""
        for url in stores:
            if self._stopped():
                return
            with self._reported(f"store {url}"):
                store = self._open(url)
                self._settle_all(store, url)
                self._prove(store, url)
                self._sweep(store, url)
            self._count_leases(url)
        if not self._dry_run:
            self._catalog.runs.end_dead()

    def settle(self, url: str) -> None:
        """The part of `take` that costs a query or two if nothing was left in that store: what the catalog itself
        knows of. Errors as there."""
        recovery = self._catalog.recovery
        with self._reported(f"store {url}"):
            are_left = recovery.remains(url) or recovery.overdue(url) or self._copies.are_in(url)
            if are_left or self._catalog.journal.unwritten([url]):
                self._settle_all(self._open(url), url)
        self._catalog.runs.end_dead()

    def _settle_all(self, store: Store, url: str) -> None:
        """Remains first: what fails here to be removed is then not tried twice."""
        recovery = self._catalog.recovery
        untold = len(self._catalog.journal.unwritten([url]))
        for chunk in recovery.remains(url):
            if self._stopped():
                return
            with self._reported(f"chunk {chunk.uuid}"):
                self._clean(store, chunk)
        for chunk in recovery.overdue(url):
            if self._stopped():
                return
            with self._reported(f"chunk {chunk.uuid}"):
                self._settle(store, chunk)
        for what, settle in self._copies.works(store, url):
            if self._stopped():
                return
            with self._reported(what):
                settle()
        self._settle_backups(store, url)
        if not self._dry_run:
            write_journal(self._catalog.journal, store)
        self._counts["records_written"] += untold

    def _prove(self, store: Store, url: str) -> None:
        """Chunks whose lease is not over, but whose object is there: a whole one proves itself. If its writer
        lives, it was about to commit the same, and whoever comes second sees that it is done."""
        for chunk in self._catalog.recovery.leased(url):
            if self._stopped():
                return
            if role_of(chunk.owner) != "recover" and has(store, chunk.object_key):
                with contextlib.suppress(Corrupt, NotFound, Locked, Conflict), Mapping(chunk.id) as mapping:
                    summary = self._read_whole(store, chunk, mapping, self._pass)
                    self._adopt(chunk, summary, mapping, self._units(store, chunk))

    def _settle_backups(self, store: Store, url: str) -> None:
        """None is adopted: the next one is newer."""
        with self._reported(f"backups in {url}"):
            if self._dry_run:
                backups = self._catalog.backups
                self._counts["backups_removed"] += len(backups.remains(url)) + len(backups.overdue(url))
            else:
                self._counts["backups_removed"] += recover_backups(self._catalog, store, self._owner)

    def _sweep(self, store: Store, url: str) -> None:
        """What no row of the catalog led to: it came after its row was settled."""
        if not self._stopped():
            Sweeping(self._catalog.recovery, store, url, self._counts, self._dry_run).take()
            if not self._dry_run:
                sweep_journal(self._catalog.journal, store, self._catalog.identities.of(url).catalog)

    def _stopped(self) -> bool:
        self._interrupted = self._should_stop() or self._interrupted
        return self._interrupted

    def _count_leases(self, url: str) -> None:
        leases = self._catalog.recovery.leases(url)
        self._counts["still_leased"] += leases.chunks
        ends = [end for end in (self._leases_end_at, leases.end_at) if end is not None]
        self._leases_end_at = max(ends, default=None)

    def _open(self, url: str) -> Store:
        """That a store says "there is nothing" has to mean something: it answers, and is the one that the catalog
        means."""
        store = self._stores.open(url)
        for _ in store.uploads():
            break
        return store

    def _clean(self, store: Store, chunk: LeftChunk) -> None:
        self._remove(store, chunk)
        self._tell(RecoveredChunk(chunk.uuid, chunk.store, Outcome.CLEANED))

    def _remove(self, store: Store, chunk: LeftChunk) -> None:
        """What is left of an abandoned chunk. The upload first: while it is there, it can still become an
        object."""
        if not self._dry_run:
            store.discard(chunk.object_key, chunk.upload_id)
            store.delete(chunk.object_key)
            remove_journal(self._catalog.journal, store, chunk.id)
            self._catalog.chunks.record_removed(chunk.id)

    def _settle(self, store: Store, found: LeftChunk) -> None:
        """Adopts or abandons an overdue chunk. If that cannot be done now, its lease is given back."""
        chunk = found if self._dry_run else self._catalog.recovery.take(found, self._owner, LEASE_SECONDS)
        if chunk is None:
            return
        self._renewed = time.monotonic()
        try:
            self._adopt_or_abandon(store, chunk)
        except Locked:
            return
        except BaseException:
            with contextlib.suppress(CafcatError):
                self._catalog.recovery.give_back(chunk.id, self._owner)
            raise

    def _adopt_or_abandon(self, store: Store, chunk: LeftChunk) -> None:
        with Mapping(chunk.id) as mapping:
            try:
                summary = self._read_whole(store, chunk, mapping, partial(self._advance, chunk))
                units = self._units(store, chunk)
            except (NotFound, Corrupt, Conflict) as error:
                self._abandon(store, chunk, str(error))
            else:
                if isinstance(store, OpensFiles) and not self._dry_run:
                    # A writer that died between link and unlink left a second name of the object.
                    store.discard(chunk.object_key)
                self._adopt(chunk, summary, mapping, units)

    def _read_whole(
        self, store: Store, chunk: LeftChunk, mapping: Mapping, advance: Callable[[int], object]
    ) -> ChunkSummary:
        return read_whole(store, chunk.object_key, formats.by_name(chunk.format), mapping.add, advance)

    def _units(self, store: Store, chunk: LeftChunk) -> ArchiveUnits:
        """Log files in the chunk. Raises Conflict if another run took one of them meanwhile: records in an archive
        cannot be skipped."""
        units = units_in(formats.by_name(chunk.format), StoredObject(store, chunk.object_key))
        if units.units and (conflict := self._catalog.logs.taken(units.units, chunk.id)) is not None:
            raise conflict
        return units

    def _pass(self, size_bytes: int) -> None:
        self._should_stop()
        self._progress.advance(0, size_bytes)

    def _advance(self, chunk: LeftChunk, size_bytes: int) -> None:
        """With each block. A catalog that does not answer right now is no reason to stop: the lease is long."""
        self._pass(size_bytes)
        now = time.monotonic()
        if now - self._renewed >= _RENEW_SECONDS and not self._dry_run:
            self._renewed = now
            with contextlib.suppress(CatalogUnavailable):
                self._catalog.recovery.renew(chunk.id, self._owner, LEASE_SECONDS)

    def _adopt(self, chunk: LeftChunk, summary: ChunkSummary, mapping: Mapping, units: ArchiveUnits) -> None:
        files, skipped, live_bytes = summary.file_count, 0, mapping.size_bytes
        if not self._dry_run:
            with _ours(chunk):
                commit = self._commit(chunk, summary, mapping, units)
            files, skipped, live_bytes = commit.added + commit.replaced, commit.skipped, commit.live_bytes
        self._counts.update(files_adopted=files, files_skipped=skipped, bytes_adopted=live_bytes)
        self._progress.advance(summary.file_count, 0)
        outcome = Outcome.ADOPTED
        self._tell(RecoveredChunk(chunk.uuid, chunk.store, outcome, summary.file_count, summary.size_bytes))

    def _commit(
        self, chunk: LeftChunk, summary: ChunkSummary, mapping: Mapping, units: ArchiveUnits
    ) -> ChunkCommit:
        """As its writer would have: what repack or repair copied is no news, and must bring nothing back that was
        removed or replaced since."""
        commit = self._catalog.commit
        if chunk.moves_from is not None:
            return commit.commit_moved(chunk.id, summary, mapping, chunk.moves_from)
        return commit.commit_chunk(
            chunk.id, summary, mapping, chunk.on_conflict, all_new=True, yields=True, units=units
        )

    def _abandon(self, store: Store, chunk: LeftChunk, reason: str) -> None:
        if not self._dry_run:
            with _ours(chunk):
                self._catalog.chunks.abandon_chunk(chunk.id, f"its writer died: {reason}")
        self._tell(RecoveredChunk(chunk.uuid, chunk.store, Outcome.ABANDONED, reason=reason))
        self._remove(store, chunk)

    def _tell(self, settled: RecoveredChunk) -> None:
        self._counts[settled.outcome] += 1
        self._on_settled(settled)

    def _tell_of_copy(self, settled: RecoveredCopy) -> None:
        self._counts["copies_adopted" if settled.outcome == Outcome.ADOPTED else "copies_removed"] += 1
        self._on_settled(settled)


@contextlib.contextmanager
def _ours(chunk: LeftChunk) -> Iterator[None]:
    """A row that is not `writing` any more was settled by its writer, which lives after all, or another recover."""
    try:
        yield
    except Conflict as error:
        raise Locked("somebody else settled the chunk", chunk=str(chunk.uuid)) from error
