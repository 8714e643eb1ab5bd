"""Copies chunks into another store: the same bytes under the same key, with the journal records they need.

The order of steps is that of new chunks: first the row, then the bytes under a temporary name or as an upload, then
the object, then the state `committed`. After a crash, `recover` finds the leftovers by the row. All bytes are
checked against the checksum of the chunk before the copy gets its name.
"""

import contextlib
from collections import Counter
from collections.abc import Generator, Iterable, Iterator
from typing import Final
from uuid import UUID

from cafcat.catalog.catalog import Catalog
from cafcat.catalog.chunks.copies import ChunkToCopy, Selection
from cafcat.catalog.chunks.owners import owner_name
from cafcat.errors import (
    CafcatError,
    CatalogOutdated,
    CatalogUnavailable,
    Conflict,
    Corrupt,
    InvalidInput,
    Locked,
    NotFound,
)
from cafcat.events import ChunkCopied, CopyOutcome
from cafcat.formats import registry as formats
from cafcat.model import NO_SUCH_PREFIX, ChunkState
from cafcat.operations.audit import recorded
from cafcat.operations.chosen_stores import store_for_new_objects
from cafcat.operations.copy.options import CopyOptions
from cafcat.operations.copy.report import CopyReport
from cafcat.operations.failures import note_failure
from cafcat.operations.joining import join_store
from cafcat.operations.names import check_names
from cafcat.operations.object_bytes import object_crc64nvme
from cafcat.operations.other_replicas import OtherReplicas
from cafcat.operations.own_index import WholeObject
from cafcat.operations.reachable_stores import ReachableStores, check_present
from cafcat.operations.recover.before import recover_before
from cafcat.progress import StopOnly
from cafcat.reading.fetch import object_blocks
from cafcat.session import Session
from cafcat.stores.base import Store, Upload, has
from cafcat.stores.distinct import Unproven
from cafcat.support.checksums import from_base64
from cafcat.support.paths import from_root
from cafcat.writing.journal import remove_journal, write_journal
from cafcat.writing.journal_copies import JournalCopies, RecordUnreadable
from cafcat.writing.lease import LEASE_SECONDS, Lease
from cafcat.writing.sink import BlockSink

__all__ = ["ChunkCopier", "run"]

_COPY_ELSEWHERE: Final = "copy to another store"
_ADOPTED: Final = "`cafcat repack --chunk` moves its files into new chunks"


@recorded
def run(session: Session, options: CopyOptions) -> CopyReport:
    """Copy the chosen chunks into a store.

    Raises:
        NotFound: The catalog has no such chunk, folder or store.
        InvalidInput: A chunk cannot be copied, or options contradict each other.
        Conflict: The store has chunks of another catalog, and `join_store` is false.
        Locked: Another catalog began to write into the store at the same moment, and `join_store` is false.
        Unavailable: The store is not where its URL points.
        StoreFailed, AccessDenied: The copies cannot be written to the store.
        CatalogUnavailable, CatalogOutdated: The database does not answer, or has another schema.
    """
    target = ReachableStores(session).check_to_write(store_for_new_objects(session, options.to).url)
    selection = _selection_of(session.catalog, check_names(options.chunks), options.prefix, target)
    copier = ChunkCopier(session, target, owner_name("copy"), dry_run=options.dry_run)
    if options.dry_run:
        join_store(session, target, allow_shared=options.join_store, dry_run=True)
        copier.plan(selection)
        session.progress.end()
        return copier.report
    if selection.prefix is None and session.catalog.identities.is_empty():
        return copier.report  # a catalog without chunks must not claim the store
    recover_before(session, target.url)
    join_store(session, target, allow_shared=options.join_store)
    try:
        if options.executor is not None:
            from cafcat.operations.copy.cluster import copy_on_cluster

            return copy_on_cluster(session, options, copier, selection)
        for copied in copier.copy(selection):
            session.emit(copied)
        copier.enter_forgotten(selection)
    finally:
        session.progress.end()
    return copier.report


class _Unreadable(Exception):
    """A chunk cannot be read, or cannot be copied to the target. The other chunks can still be copied.

    Attributes:
        error: The error that prevents the copy.
    """

    def __init__(self, error: CafcatError) -> None:
        super().__init__(error)
        self.error = error


def _selection_of(catalog: Catalog, names: Iterable[str | UUID], prefix: str | None, target: Store) -> Selection:
    """Return the chunks to copy: by uuid, by prefix, or all.

    Chunks by uuid must be committed, must not be adopted, and must be in another store.

    Raises:
        NotFound: The catalog has no such chunk.
        InvalidInput: A chunk cannot be copied, or both chunks and a prefix are given.
    """
    uuids = []
    for chunk in map(catalog.chunks.chunk, names):
        if chunk.state is not ChunkState.COMMITTED:
            raise InvalidInput(
                f"only committed chunks can be copied, and this one is {chunk.state}", chunk=str(chunk.uuid)
            )
        if chunk.adopted_prefix is not None:
            raise InvalidInput("an adopted archive cannot be copied", chunk=str(chunk.uuid), hint=_ADOPTED)
        if chunk.store == target.url:
            message = f"a copy cannot be in the store of the chunk itself: {target.url}"
            raise InvalidInput(message, chunk=str(chunk.uuid), hint="name another store")
        uuids.append(chunk.uuid)
    if uuids and prefix is not None:
        raise InvalidInput("chunks and a prefix cannot be combined", hint="name either chunks or a prefix")
    return Selection(uuids=uuids) if uuids else Selection(prefix=_folder_name(prefix or ""))


def _folder_name(typed: str) -> str | None:
    """Return a folder without its slashes: "a" for "./a/" and "/a"; None for the whole catalog ("", "." or "/")."""
    return from_root(typed).rstrip("/") or None


class ChunkCopier:
    """Copies chunks into one store. Several copiers may work at the same time; only one of them copies each chunk.

    Attributes:
        interrupted: True if the user ended the operation.
    """

    def __init__(self, session: Session, target: Store, owner: str, *, dry_run: bool = False) -> None:
        """Prepare to copy chunks into a store. This reads and writes nothing yet.

        Args:
            session: The session.
            target: The store for the copies.
            owner: Name of this process as the owner of leases.
            dry_run: The report is about chunks that would be copied.
        """
        self._session = session
        self._catalog = session.catalog
        self._target = target
        self._owner = owner
        self._reachable = ReachableStores(session)
        self._sources: dict[str, Store | None] = {}
        self._journal = JournalCopies(session.catalog.journal, target, session.progress)
        self._replicas = OtherReplicas(session.catalog, session.stores)
        self._counts: Counter[str] = Counter()
        self._failed: list[str] = []
        self._dry_run = dry_run
        self.interrupted = False

    @property
    def report(self) -> CopyReport:
        """Totals of the chunks that were copied so far."""
        counts = self._counts
        return CopyReport(
            store=self._target.url,
            copied=counts[CopyOutcome.COPIED],
            replaced=counts[CopyOutcome.REPLACED],
            found=counts[CopyOutcome.FOUND],
            there=counts[CopyOutcome.THERE],
            own=counts[CopyOutcome.OWN],
            adopted=counts["adopted"],
            damaged=counts["damaged"],
            bytes_copied=counts["bytes_copied"],
            chunks_failed=counts["chunks_failed"],
            failed=tuple(self._failed),
            interrupted=self.interrupted,
            dry_run=self._dry_run,
        )

    def plan(self, selection: Selection) -> None:
        """Count what `copy` would do with the chunks of a selection. No object is read.

        Raises:
            NotFound: No chunk has a file below the prefix, or with this path.
            StoreFailed, AccessDenied: The target fails.
            CatalogUnavailable, CatalogOutdated: The database does not answer, or has another schema.
        """
        for chunk in self.chunks(selection):
            self.interrupted = self._session.should_end()
            if self.interrupted:
                return
            outcome = self.outcome_without_copy(chunk)
            if outcome is None and chunk.copy_state == "committed" and not chunk.is_copy_retired:
                outcome = CopyOutcome.REPLACED
            if outcome is None:
                outcome = CopyOutcome.FOUND if has(self._target, chunk.object_key) else CopyOutcome.COPIED
            self._session.emit(self.count(chunk, outcome))

    def copy(self, selection: Selection) -> Iterator[ChunkCopied]:
        """Copy the chunks of a selection, and yield each chunk when its copy is committed, or none is needed.

        A chunk that fails is noted in the report, and the others are copied. A store that is out of reach is noted
        once, and its chunks are left out. No further chunk is copied after the user has ended the operation.

        Raises:
            NotFound: No chunk has a file below the prefix, or with this path.
            StoreFailed, AccessDenied: The target fails.
            CatalogUnavailable, CatalogOutdated: The database does not answer, or has another schema.
        """
        for chunk in self.chunks(selection):
            self.interrupted = self._session.should_end()
            if self.interrupted:
                return
            if (outcome := self._copy_one(chunk)) is not None:
                yield self.count(chunk, outcome)

    def enter_forgotten(self, selection: Selection) -> None:
        """Enter the copies of retired chunks that the target has, and the catalog does not.

        The catalog lacks such a copy if it was rebuilt without the target. `prune` removes only copies in the
        catalog. Costs a request for each retired chunk without a copy.

        Args:
            selection: The chunks that were copied. For others than all chunks, nothing is entered.

        Raises:
            StoreFailed, AccessDenied: The target fails.
            CatalogUnavailable, CatalogOutdated: The database does not answer, or has another schema.
        """
        if selection != Selection():
            return
        for chunk in self._pages(Selection(not_in=self._target.url)):
            self.interrupted = self.interrupted or self._session.should_end()
            if self.interrupted:
                return
            if has(self._target, chunk.object_key):
                self._enter(chunk)

    def _enter(self, chunk: ChunkToCopy) -> None:
        """Enter the copy of a retired chunk. If it cannot be entered, this is a warning: no live file needs it."""
        if (source := self._source(chunk.store)) is None:
            return
        try:
            self._session.emit(self.count(chunk, self._copy(source, chunk)))
        except (_Unreadable, RecordUnreadable) as unreadable:
            self._warn(chunk, unreadable.error)
        except (Conflict, Locked) as error:
            self._warn(chunk, error)

    def _warn(self, chunk: ChunkToCopy, error: CafcatError) -> None:
        self._session.warn(f"chunk {chunk.uuid}, without live files: its copy was not entered: {error}")

    def chunks(self, selection: Selection) -> Iterator[ChunkToCopy]:
        """Yield the chunks of a selection, after the totals were passed to the progress.

        Raises:
            NotFound: No chunk has a file below the prefix, or with this path.
            InvalidInput: Only adopted archives have such a file.
        """
        copies, target = self._catalog.copies, self._target.url
        if selection.uuids is None and selection.store is None:
            self._counts["adopted"] = copies.count_adopted(selection.prefix)
        files, size_bytes = copies.totals(selection, target)
        self._session.progress.begin("copy", files=files, size_bytes=size_bytes)
        found = False
        for chunk in self._pages(selection):
            found = True
            yield chunk
        if not found and selection.prefix and self._counts["adopted"]:
            raise InvalidInput(
                "all its files are in adopted archives, which cannot be copied",
                path=selection.prefix,
                hint=_ADOPTED,
            )
        if not found and selection.prefix:
            raise NotFound(NO_SUCH_PREFIX, path=selection.prefix)

    def _pages(self, selection: Selection) -> Iterator[ChunkToCopy]:
        after = 0
        while page := self._catalog.copies.page(selection, self._target.url, after=after):
            yield from page
            after = page[-1].id

    def _copy_one(self, chunk: ChunkToCopy) -> CopyOutcome | None:
        """Copy one chunk, unless the target has it, and return the outcome.

        Returns:
            None if the chunk or its store failed. The failure is noted in the report.
        """
        if (outcome := self.outcome_without_copy(chunk)) is not None:
            return outcome
        if (source := self._source(chunk.store)) is None:
            self._counts["chunks_failed"] += 1
            return None
        try:
            if chunk.copy_state == "committed":
                replace = self._adopt_left_copy if chunk.is_copy_retired else self._replace
                return replace(source, chunk)
            return self._copy(source, chunk)
        except (_Unreadable, RecordUnreadable) as unreadable:
            if self._is_present(source):
                self._fail(chunk, unreadable.error)
            else:
                self._counts["chunks_failed"] += 1
        except (Conflict, Locked) as error:
            self._fail(chunk, error)
        return None

    def outcome_without_copy(self, chunk: ChunkToCopy) -> CopyOutcome | None:
        """Return OWN or THERE if the target has the chunk already, by the catalog; else None."""
        if chunk.store == self._target.url:
            return CopyOutcome.OWN
        is_there = chunk.copy_state == "committed" and not chunk.is_copy_retired and not chunk.is_copy_broken
        return CopyOutcome.THERE if is_there else None

    def _source(self, url: str) -> Store | None:
        """Return a store with chunks to copy; None if it is out of reach, which the report notes once.

        The empty folder of a disk that is not mounted lacks all chunks, but none of them is damaged.
        """
        if url not in self._sources:
            self._sources[url] = None
            with note_failure(self._failed, f"store {url}"):
                self._sources[url] = self._reachable.check_place(url)
        return self._sources[url]

    def _is_present(self, source: Store) -> bool:
        """Return False if a store went out of reach after it was opened, which the report notes once."""
        is_present = False
        with note_failure(self._failed, f"store {source.url}"):
            check_present(source, self._catalog)
            is_present = True
        if not is_present:
            self._sources[source.url] = None
        return is_present

    def count(self, chunk: ChunkToCopy, outcome: CopyOutcome) -> ChunkCopied:
        """Count a chunk that needs no further work in the report, and return the event for it."""
        self._counts[outcome] += 1
        if outcome in (CopyOutcome.COPIED, CopyOutcome.REPLACED):
            self._counts["bytes_copied"] += chunk.size_bytes
        if outcome not in (CopyOutcome.OWN, CopyOutcome.THERE):
            self._session.progress.advance(chunk.file_count, 0)
        return ChunkCopied(chunk.uuid, self._target.url, outcome, chunk.size_bytes)

    def _fail(self, chunk: ChunkToCopy, error: CafcatError) -> None:
        is_damage = isinstance(error, Corrupt | NotFound)
        self._counts.update(chunks_failed=1, damaged=is_damage)
        if is_damage and chunk.state == ChunkState.RETIRED:
            error.hint = "no live file is in this chunk: cafcat prune removes it after the grace period"
        elif is_damage:
            error.hint = f"run cafcat repair --chunk {chunk.uuid}"
        self._failed.append(f"chunk {chunk.uuid}: {error}")

    def _adopt_left_copy(self, source: Store, chunk: ChunkToCopy) -> CopyOutcome:
        """Turn a copy that a migration left into a regular copy, after its bytes were checked.

        Raises:
            Conflict: This copy is missing or damaged, or prune is removing it.
            _Unreadable: The catalog has no checksum of the chunk, and the chunk cannot be read.
        """
        self._check_place(chunk)
        is_same = self._compare(chunk, self._checksum(source, chunk))
        if not is_same:
            state = "missing" if is_same is None else "damaged"
            hint = "after its grace period, `cafcat prune --yes` removes it: then run this command again"
            raise Conflict(f"the copy that a migration left in {self._target.url} is {state}", hint=hint)
        self._catalog.copies.reactivate(chunk.uuid, self._target.url)
        return CopyOutcome.FOUND

    def _replace(self, source: Store, chunk: ChunkToCopy) -> CopyOutcome:
        """Copy a chunk again whose copy in the target `verify` found damaged or missing.

        The chunk itself is read first, from end to end. If it is damaged, too, the damaged copy stays, because it
        may have the only right bytes of a file.

        Raises:
            Conflict: Another process has removed the copy, or copies the chunk, too.
            _Unreadable: The chunk cannot be read or is damaged, or both objects are the same.
            RecordUnreadable: A journal record that the target needs cannot be read.
        """
        expected = self._checksum(source, chunk)
        if self._compare(chunk, expected):
            return CopyOutcome.THERE
        with _of_source():
            progress = StopOnly(self._session.progress)
            checksum = object_crc64nvme(source, chunk.object_key, chunk.size_bytes, progress)
        if checksum != expected:
            raise _Unreadable(_damage(checksum, expected))
        with _of_source():
            self._replicas.prove(self._target, chunk.uuid, chunk.object_key, is_listed=True)
        copy_id = self._catalog.copies.mark_deleted(chunk.uuid, self._target.url)
        self._target.delete(chunk.object_key)
        remove_journal(self._catalog.journal, self._target, chunk.id)
        self._catalog.copies.record_removed(copy_id)
        self._copy(source, chunk._replace(copy_state=None))
        return CopyOutcome.REPLACED

    def _copy(self, source: Store, chunk: ChunkToCopy) -> CopyOutcome:
        """Write the object of a chunk into the target, or use an equal object there, and commit the copy.

        The copy's row is inserted first: every removal from then on is written to the target's journal, too.

        Raises:
            Locked: The catalog has a copy of the chunk in the target that is unfinished or not removed yet.
            Conflict: The target has an object with this key and other bytes.
            _Unreadable: The chunk cannot be read, or the copy would not be a new object.
            RecordUnreadable: A journal record that the target needs cannot be read.
        """
        if chunk.copy_state is not None:
            hint = "if its writer died, run `cafcat recover`"
            raise Locked(
                f"the catalog has a copy of the chunk in {self._target.url} that is {chunk.copy_state}", hint=hint
            )
        self._check_place(chunk)
        expected = self._checksum(source, chunk)
        key = chunk.object_key
        is_there = self._compare(chunk, expected)
        if is_there is not None and self._catalog.copies.is_adopted(key):
            # As a copy, the object would be removed with the chunk.
            raise Conflict(f"an adopted archive has this key: {self._target.locate(key)}", hint=_COPY_ELSEWHERE)
        if is_there is False:
            hint = "its bytes are not those of the chunk: move it away, or copy to another store"
            raise Conflict(f"another object has the same key: {self._target.locate(key)}", hint=hint)
        copies = self._catalog.copies
        copy_id = copies.begin(chunk.id, self._target.url, key, self._owner, LEASE_SECONDS)
        copy = _OpenCopy(self._catalog, self._target, key, copy_id, self._owner)
        try:
            self._journal.bring(source, chunk.sequence)
            if not is_there:
                with contextlib.closing(self._blocks(source, chunk)) as blocks:
                    copy.write(blocks, expected)
            copy.commit()
        except BaseException:
            self._journal.restart()
            copy.abandon()
            raise
        # The copy is committed even if this fails: `recover` writes the missing journal records.
        with contextlib.suppress(CafcatError):
            write_journal(self._catalog.journal, self._target)
        return CopyOutcome.FOUND if is_there else CopyOutcome.COPIED

    def _check_place(self, chunk: ChunkToCopy) -> None:
        """Raise _Unreadable if the copy would not be a new object, or if that cannot be found out.

        The target may be the store of the chunk, or of a copy of it, under another name; or both objects are one
        file.
        """
        try:
            self._replicas.check(self._target, chunk.uuid, chunk.object_key)
        except (InvalidInput, Unproven) as error:
            raise _Unreadable(error) from error

    def _checksum(self, source: Store, chunk: ChunkToCopy) -> int:
        """Return the CRC-64/NVME of a chunk as the catalog has it.

        If the catalog has none, the chunk is read from its store, and checked against its own index.

        Raises:
            _Unreadable: The catalog has no checksum, and the chunk cannot be read or is damaged.
        """
        if chunk.crc64nvme is not None:
            return from_base64(chunk.crc64nvme)
        archive_format = formats.by_name(chunk.format)
        with _of_source():
            whole = WholeObject(source, chunk.object_key, archive_format, StopOnly(self._session.progress))
            for _ in whole.entries():
                pass
        return whole.summary.crc64nvme

    def _compare(self, chunk: ChunkToCopy, expected: int) -> bool | None:
        """Return True if the target has the bytes of a chunk under its key; False if it has other bytes there.

        Args:
            chunk: The chunk.
            expected: CRC-64/NVME of the chunk.

        Returns:
            None if the target has no object with this key.
        """
        key = chunk.object_key
        try:
            size_bytes = self._target.stat(key).size_bytes
        except NotFound:
            return None
        is_same = size_bytes == chunk.size_bytes
        progress = StopOnly(self._session.progress)
        return is_same and object_crc64nvme(self._target, key, size_bytes, progress) == expected

    def _blocks(self, source: Store, chunk: ChunkToCopy) -> Generator[bytes, None, None]:
        with _of_source():
            for block in object_blocks(source, chunk.object_key, chunk.size_bytes):
                self._advance(len(block))
                yield block

    def _advance(self, size_bytes: int) -> None:
        self._session.checkpoint()
        self._session.progress.advance(0, size_bytes)


def _damage(checksum: int, expected: int) -> Corrupt:
    return Corrupt(f"its bytes are damaged: CRC-64/NVME {checksum:016x} instead of {expected:016x}")


class _OpenCopy:
    """A copy that is being written: its row has the state `writing`. Call `commit`; after any error, `abandon`."""

    def __init__(self, catalog: Catalog, target: Store, key: str, copy_id: int, owner: str) -> None:
        self._catalog = catalog
        self._target = target
        self._key = key
        self._id = copy_id
        self._lease = Lease(catalog.copies, copy_id, owner)
        self._upload: Upload | None = None
        self._is_ours = False

    def write(self, blocks: Iterator[bytes], expected: int) -> None:
        """Write the object of the copy into the target.

        Args:
            blocks: Bytes of the chunk.
            expected: CRC-64/NVME of the chunk.

        Raises:
            _Unreadable: The blocks have another checksum. Errors of the store are raised unchanged.
        """
        upload = self._upload = self._target.create(self._key)
        if upload.upload_id is not None:
            self._catalog.copies.record_upload(self._id, upload.upload_id)
        sink = BlockSink(upload)
        try:
            for block in blocks:
                sink.write(block)
                self._lease.check()
        except BaseException:
            sink.abort()
            raise
        checksum = sink.finish()
        if checksum != expected:
            raise _Unreadable(_damage(checksum, expected))
        self._is_ours = True
        try:
            upload.commit(checksum)
        except Conflict:
            self._is_ours = False  # another object has the key now
            raise

    def commit(self) -> None:
        """Set the state of the copy, whose object is complete, to `committed`.

        Raises:
            Conflict: Another process changed the copy or the chunk meanwhile.
        """
        self._lease.end()
        self._catalog.copies.commit(self._id, None if self._upload is None else self._upload.etag)

    def abandon(self) -> None:
        """Set the state of the copy to `abandoned`, then remove its object, then record that nothing is left.

        The row is changed first: if the copy was committed after all, or its row cannot be changed, the object
        stays. Errors are suppressed, because `recover` does the steps that fail here.
        """
        self._lease.end()
        with contextlib.suppress(CafcatError):
            if self._upload is not None:
                self._upload.abort()
        with contextlib.suppress(CafcatError):
            self._catalog.copies.abandon(self._id)
            if self._upload is not None:
                self._target.discard(self._key, self._upload.upload_id)
            if self._is_ours:
                self._target.delete(self._key)
            self._catalog.copies.record_removed(self._id)


@contextlib.contextmanager
def _of_source() -> Iterator[None]:
    """Turn errors of reading into _Unreadable: they concern the chunk or its store, not the target."""
    try:
        yield
    except (CatalogUnavailable, CatalogOutdated):
        raise
    except CafcatError as error:
        raise _Unreadable(error) from error
