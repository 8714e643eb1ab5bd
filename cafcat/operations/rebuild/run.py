"""Rebuilds a catalog from the contents of stores alone: their journals and the indexes of the chunks.

First all objects are listed. Then each journal record and each index is read, several at once. Their contents go
into one transaction of the catalog as they are read. docs/formats/journal.md has the rules.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from functools import partial
from itertools import islice
from typing import Final, NamedTuple
from uuid import UUID

from cafcat.catalog.history.journal import JournalRecord
from cafcat.catalog.transfer.rebuilding import FoundObject, FoundRecord, PlannedChunk, RebuiltCounts, Stage
from cafcat.errors import (
    CafcatError,
    Corrupt,
    NotFound,
    StoreFailed,
    Unsupported,
)
from cafcat.model import JournalKind
from cafcat.operations.audit import recorded
from cafcat.operations.backup.keys import backup_time
from cafcat.operations.belonging import catalog_of_backup
from cafcat.operations.chosen_stores import default_store, existing_store
from cafcat.operations.cluster_calls import ClusterCalls
from cafcat.operations.joining import CHUNK_KEY
from cafcat.operations.rebuild.cluster import read_on_cluster
from cafcat.operations.rebuild.damage import Damage, DamageKind, Damages
from cafcat.operations.rebuild.lost_catalogs import LostCatalogs
from cafcat.operations.rebuild.options import RebuildOptions
from cafcat.operations.rebuild.reading import (
    Failure,
    FoundContents,
    ReadChunk,
    failure_of_object,
    format_of,
    index_size,
    read_chunk,
)
from cafcat.operations.rebuild.report import RebuildReport
from cafcat.session import Session
from cafcat.stores.base import ObjectInfo, Store
from cafcat.stores.keys import MARKER_PREFIX, is_probe_key
from cafcat.stores.marker import marker_key, read_marker, remove_marker
from cafcat.support.in_order import in_order
from cafcat.writing.journal import journal_key, parse_journal_key, write_journal
from cafcat.writing.journal_reader import JournalObject, read_head

__all__ = ["Rebuild", "run"]

_BATCH_OBJECTS: Final = 1000
_INDEX_BYTES_AT_ONCE: Final = 64 << 20
"""Largest sum of the sizes of indexes that are read at once, in bytes. A larger index is read alone."""
_NO_COUNTS: Final = RebuiltCounts(0, 0, 0, 0, 0, 0, 0)


@recorded
def run(session: Session, options: RebuildOptions) -> RebuildReport:
    """Fill an empty catalog from the contents of stores, in one transaction.

    Raises:
        Conflict: The catalog is not empty.
        Locked: Another process writes to the catalog.
        NotFound: A folder does not exist, the stores have neither a chunk nor a journal record, or the chosen
            catalog did not write there.
        InvalidInput: Several catalogs wrote to the stores, and the options do not choose one of them; or the name
            of a store is not a valid URL or path.
            Or other hosts cannot reach the database or a store.
        StoreFailed, AccessDenied: A store does not answer, or refuses the request.
        Unavailable: The workers of the executor cannot be used, or a call failed too often.
        CatalogUnavailable, CatalogOutdated: The database does not answer, or has another schema.
    """
    found = [existing_store(session, store) for store in options.stores] or [default_store(session)]
    try:
        return Rebuild(session, list({store.url: store for store in found}.values()), options).run()
    finally:
        session.progress.end()


class Rebuild:
    """State and steps of one `cafcat rebuild`.

    Only the objects that are being read are in memory. Temporary tables of the catalog hold the contents of all
    objects that were read.
    """

    def __init__(self, session: Session, stores: Sequence[Store], options: RebuildOptions) -> None:
        self._catalog = session.catalog
        self._stores = stores
        self._catalog_name = options.catalog
        self._accept_loss = options.accept_loss
        self._progress = session.progress
        self._calls = (
            ClusterCalls(session, options.executor, share_password=options.share_password, can_stop=False)
            if options.executor is not None
            else None
        )
        self._threads = max(2, *(store.reads_in_flight for store in stores))
        self._damages = Damages()
        self._adopted: list[UUID] = []
        self._unclaimed: list[UUID] = []
        self._damaged_retired: Mapping[UUID, int] = {}
        self._left_out: list[UUID] = []
        self._stores_with_copies: list[str] = []
        self._foreign = 0
        self._backups: list[tuple[int, str, int, str]] = []
        self._last_sequence = 0

    def run(self) -> RebuildReport:
        """Read the stores, and fill the catalog. If contents are lost, it is filled only with `accept_loss`."""
        own = self._catalog.identities.of("").catalog
        if self._calls is not None:
            self._calls.check(store.url for store in self._stores)
        with self._catalog.rebuilding.stage([store.url for store in self._stores]) as stage:
            self._list(stage)
            catalogs = self._choose(stage, own)
            identity = catalogs.lost or own
            self._read_chunks(stage)
            self._find_lost_files(stage)
            written = self._accept_loss or not self._damages.lost_count
            counts = self._finalize(stage, identity) if written else _NO_COUNTS
        if written:
            self._finish(catalogs, identity)
        return self._report(counts, identity, written=written)

    def _list(self, stage: Stage) -> None:
        self._progress.begin("list the stores")
        found, without_own = 0, []
        for number, store in enumerate(self._stores):
            listed_here, foreign = 0, self._foreign
            listed = iter(store.list())
            while batch := list(islice(listed, _BATCH_OBJECTS)):
                found += self._add(stage, number, batch)
                listed_here += len(batch)
                self._progress.advance(len(batch), 0)
            if listed_here == self._foreign - foreign:
                without_own.append(store.url)
        if without_own or not found:
            names = ", ".join(without_own or [store.url for store in self._stores])
            hint = (
                "check that the disk is mounted and the name is right; "
                "if the store is lost for good, name only the other stores: cafcat rebuild STORE..."
            )
            raise NotFound(f"there is neither a chunk nor a journal record in {names}", hint=hint)

    def _add(self, stage: Stage, store: int, batch: Sequence[ObjectInfo]) -> int:
        """Add listed objects of a store to the stage, by kind. Returns the number of chunks and journal records."""
        chunks, records = [], []
        for key, size_bytes, _ in batch:
            record = parse_journal_key(key)
            chunk = CHUNK_KEY.fullmatch(key)
            if record is not None:
                records.append((*record, store, size_bytes))
            elif chunk is not None:
                chunks.append(FoundObject(store, UUID(chunk[1]), key, size_bytes))
            elif (begun_at := backup_time(key)) is not None:
                self._backups.append((store, key, size_bytes, begun_at))
            else:
                self._foreign += not (key.startswith(MARKER_PREFIX) or is_probe_key(key))
        stage.add_objects(chunks)
        stage.add_record_objects(records)
        self._last_sequence = max([self._last_sequence, *(record[0] for record in records)])
        return len(chunks) + len(records)

    def _read_records(self, stage: Stage, catalogs: LostCatalogs) -> "dict[UUID | None, Damages]":
        """Read the journal records of all catalogs, and add them to the stage. The lost catalog is chosen later.

        Returns:
            The damage of journal records that could be read, by the catalog that wrote them; None stands for
            records that name no catalog. The damage of other records is noted for the report.
        """
        self._progress.begin("read the journal")
        damages: dict[UUID | None, Damages] = defaultdict(Damages)
        with closing(in_order(self._read_record, stage.records(), most_in_flight=self._threads)) as read:
            for found in read:
                of = self._damages
                if found.record is not None:
                    owner = catalogs.count(found.record)
                    of = damages[owner]
                    files = found.object.files() if found.object is not None and found.object.file_count else None
                    is_move = found.object is not None and found.record.kind is JournalKind.MOVE
                    origins = found.object.origins() if found.object is not None and is_move else ()
                    stage.add_record(found.record, owner, files, origins)
                for name, message in found.failures:
                    of.add(Damage(DamageKind.JOURNAL, name, message, None, found.object is None))
                self._progress.advance(1, 0)
        return damages

    def _choose(self, stage: Stage, own: UUID) -> LostCatalogs:
        """Read the journal, choose the lost catalog, and leave out the records and chunks of all other catalogs."""
        catalogs = LostCatalogs(self._stores, own)
        damages = self._read_records(stage, catalogs)
        catalogs.choose(self._catalog_name)
        for owner, found in damages.items():
            if catalogs.owner(owner) == catalogs.lost:
                self._damages.extend(found)
        if catalogs.are_several:
            self._unclaimed = stage.discard_other_catalogs(catalogs.lost)
            self._backups = [found for found in self._backups if self._is_of(catalogs, found)]
        for sequence, uuid in stage.number_records():
            message = f"the sequence number {sequence}, or one before it, occurs twice: two catalogs wrote here"
            self._damages.add(Damage(DamageKind.ORDER, journal_key(sequence, uuid), message, None, lost=True))
        self._find_unnamed_stores(catalogs)
        self._damaged_retired = catalogs.damaged_retired()
        return catalogs

    def _find_unnamed_stores(self, catalogs: LostCatalogs) -> None:
        """Note stores of the lost catalog that were not named: those with chunks as a loss."""
        listed_at, stores = catalogs.unnamed_stores()
        for store in stores:
            if store.chunks:
                message = f"the catalog had chunks in this store at {listed_at}; rebuild from this store, too"
                self._damages.add(Damage(DamageKind.STORE, store.url, message, None, lost=True))
            else:
                self._stores_with_copies.append(store.url)

    def _is_of(self, catalogs: LostCatalogs, backup: tuple[int, str, int, str]) -> bool:
        """Return True if a backup is of the lost catalog.

        Other backups are left out, because `backup --keep` removes backups that the catalog has.
        """
        store, key, size_bytes, _ = backup
        return catalogs.owner(catalog_of_backup(self._stores[store], key, size_bytes)) == catalogs.lost

    def _read_record(self, found: FoundRecord) -> "_ReadRecord":
        """Return a journal record from the first store that has it complete.

        If no store has the record complete, the first line of a damaged object is used, but only that of a commit
        or a move. This line names the committed chunk and the time. Unreadable objects are noted as failures.
        """
        key = journal_key(found.sequence, found.uuid)
        head, failures = None, []
        for number, size_bytes in zip(found.stores, found.sizes, strict=True):
            store = self._stores[number]
            try:
                whole = JournalObject(store, key, size_bytes)
            except (NotFound, Corrupt, Unsupported, StoreFailed) as error:
                failures.append(Failure(store.locate(key), failure_of_object(error)))
                with suppress(NotFound, Corrupt, StoreFailed):
                    head = head or read_head(store, key, size_bytes)
            else:
                return _ReadRecord(whole.record, whole, failures)
        return _ReadRecord(head if head is not None and head.chunk is not None else None, None, failures)

    def _read_chunks(self, stage: Stage) -> None:
        _, index_bytes = stage.plan()
        self._progress.begin("rebuild", size_bytes=index_bytes or None)
        if self._calls is not None:
            read = read_on_cluster(self._calls, self._stores, stage.chunks())
        else:
            read = in_order(
                partial(read_chunk, self._stores),
                stage.chunks(),
                most_in_flight=self._threads,
                cost=index_size,
                budget=_INDEX_BYTES_AT_ONCE,
            )
        with closing(read):
            for chunk in read:
                self._stage_chunk(stage, chunk)

    def _stage_chunk(self, stage: Stage, read: ReadChunk) -> None:
        """Note the damage of a chunk, and add the chunk to the stage if its index could be read.

        Once contents are lost and the user does not accept this, further chunks are read only to report their
        damage.
        """
        planned, found = read.planned, read.found
        files = planned.file_count
        if found is None and (planned.sequence or 0) < self._damaged_retired.get(planned.uuid, 0):
            self._left_out.append(planned.uuid)
            return
        self._add_failures(DamageKind.CHUNK, read.failures, files, lost=found is None)
        if not planned.objects:
            message = f"the chunk is in journal record {planned.sequence}, but no store has its object"
            self._damages.add(Damage(DamageKind.MISSING, str(planned.uuid), message, files, lost=True))
        if found is None:
            return
        with found.mapping as mapping:
            if planned.sequence is None:
                self._adopted.append(planned.uuid)
            if self._accept_loss or not self._damages.lost_count:
                copies = self._copies(planned, found)
                stage.add_chunk(
                    planned.id,
                    found.object,
                    copies,
                    found.summary,
                    mapping,
                    archive_format=format_of(planned, found.object).name,
                    units=found.units,
                )
            self._progress.advance(mapping.file_count, index_size(planned))

    def _copies(self, planned: PlannedChunk, found: FoundContents) -> list[FoundObject]:
        """Return the objects that become copies of a chunk: those in later stores, if they have the same size.

        An object of another size is noted as damage. Their bytes are not compared; `verify` does that.
        """
        later = planned.objects[planned.objects.index(found.object) + 1 :]
        for other in later:
            if other.size_bytes != found.object.size_bytes:
                name = self._stores[other.store].locate(other.object_key)
                message = f"the object has {other.size_bytes} bytes instead of {found.object.size_bytes}"
                self._damages.add(Damage(DamageKind.CHUNK, name, message, None, lost=False))
        return [other for other in later if other.size_bytes == found.object.size_bytes]

    def _find_lost_files(self, stage: Stage) -> None:
        if self._damages.lost_count and not self._accept_loss:
            return  # not all chunks are in the stage
        for path, chunk in stage.order_changes(self._last_sequence, self._left_out):
            message = f"the file was restored in chunk {chunk}, which none of these stores has whole"
            self._damages.add(Damage(DamageKind.FILE, path, message, None, lost=True))

    def _finalize(self, stage: Stage, identity: UUID) -> RebuiltCounts:
        self._progress.begin("write the catalog")
        stage.add_backups(self._backups)
        lost = (damage for damage in self._damages.listed if damage.lost)
        losses = [f"{damage.kind} {damage.name}: {damage.message}" for damage in lost]
        return stage.finalize(identity, self._last_sequence, losses)

    def _finish(self, catalogs: LostCatalogs, identity: UUID) -> None:
        """Write the journal records of adopted chunks into the stores. `recover` writes those that fail here.

        Also record the UUIDs of the stores and their names, and remove the marker of this catalog's earlier
        identity, if nothing was written under it.
        """
        names = catalogs.store_names()
        for store in self._stores:
            self._record_identity(store, identity, names)
            if self._adopted:
                try:
                    write_journal(self._catalog.journal, store)
                except CafcatError as error:
                    message = f"cannot write the journal of {store.url}: {error}; run `cafcat recover` later"
                    self._progress.warn(message)
            if catalogs.own_is_unused:
                try:
                    remove_marker(store, catalogs.own)
                except CafcatError as error:
                    marker = store.locate(marker_key(catalogs.own))
                    message = f"cannot remove a marker that is no longer used: {error}"
                    self._progress.warn(f"{message}; remove {marker}, or a later rebuild will require --catalog")

    def _record_identity(self, store: Store, catalog: UUID, names: Mapping[UUID, str]) -> None:
        """Record the UUID of a store as in its marker, as the next write to the store would do, and its name.

        Args:
            store: The store.
            catalog: Identity of the rebuilt catalog.
            names: Names of stores by their UUIDs.
        """
        with suppress(CafcatError):
            marker = read_marker(store, catalog)
            if marker is None:
                return
            self._catalog.identities.record_store(store.url, marker.store)
            row = self._catalog.stores.find(store.url)
            if row is not None and row.name is None and marker.store in names:
                self._catalog.stores.rename(store.url, names[marker.store])

    def _add_failures(
        self, kind: DamageKind, failures: Sequence[Failure], files: int | None = None, *, lost: bool
    ) -> None:
        for failure in failures:
            self._damages.add(Damage(kind, failure.name, failure.message, files, lost))

    def _report(self, counts: RebuiltCounts, identity: UUID, *, written: bool) -> RebuildReport:
        return RebuildReport(
            written=written,
            catalog=identity,
            stores=tuple(store.url for store in self._stores),
            chunks=counts.chunks,
            copies=counts.copies,
            files=counts.files,
            bytes=counts.bytes,
            retired_files=counts.retired_files,
            journal_records=counts.journal_records,
            backups=len(self._backups),
            adopted=tuple(self._adopted),
            unclaimed=tuple(self._unclaimed),
            left_out=tuple(self._left_out),
            foreign_objects=self._foreign,
            stores_with_copies=tuple(self._stores_with_copies),
            files_lost=counts.files_lost,
            damages=tuple(self._damages.listed),
            damage_count=self._damages.count,
            lost_count=self._damages.lost_count,
        )


class _ReadRecord(NamedTuple):
    """Result of reading a journal record.

    Attributes:
        record: The record. If no store has it complete, its first line, but only that of a commit or a move; else
            None.
        object: The complete record; None if no store has it.
        failures: Damage in the stores that were tried.
    """

    record: JournalRecord | None
    object: JournalObject | None
    failures: Sequence[Failure]
