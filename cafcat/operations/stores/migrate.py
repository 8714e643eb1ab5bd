"""Migrates a store to another one, chunk by chunk.

Each chunk is copied and read back; then the catalog points to the new object. The objects in the old store become
copies, which `prune` removes after its grace period. A reader that looked up a location before the change therefore
still finds the bytes. An interrupted migration continues when it is called again.
"""

from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from cafcat.catalog.chunks.copies import Selection
from cafcat.catalog.chunks.owners import owner_name
from cafcat.catalog.stores.stores import moved_meanwhile
from cafcat.catalog.transfer.dump import StoredBackup
from cafcat.errors import CafcatError, Conflict, Corrupt, InvalidInput
from cafcat.events import ChunkCopied, ChunkMigrated, CopyOutcome
from cafcat.operations.audit import audited
from cafcat.operations.chosen_stores import store_for_new_objects
from cafcat.operations.cluster_calls import ClusterCalls
from cafcat.operations.copy.run import ChunkCopier
from cafcat.operations.failures import note_failure
from cafcat.operations.joining import join_store as join
from cafcat.operations.object_bytes import object_crc64nvme
from cafcat.operations.reachable_stores import ReachableStores
from cafcat.operations.recover.before import recover_before
from cafcat.operations.recover.left_backups import remove_backup
from cafcat.operations.removing import Removing
from cafcat.operations.stores.rows import store_row
from cafcat.progress import StopOnly
from cafcat.reading.fetch import object_blocks
from cafcat.session import Session
from cafcat.stores.base import Store, has
from cafcat.stores.distinct import DistinctStores
from cafcat.support.checksums import from_base64
from cafcat.writing.lease import LEASE_SECONDS, Lease
from cafcat.writing.sink import BlockSink

__all__ = ["MigrateReport", "Migration", "migrate_store"]


@dataclass(frozen=True, slots=True)
class MigrateReport:
    """Result of one `cafcat store migrate`.

    Attributes:
        old: URL of the old store.
        new: URL of the new store.
        chunks: Number of objects in the old store that the new store has from now on, so that `prune` may remove
            them: chunks, and copies of chunks.
        size_bytes: Size of these objects in bytes.
        backups: Number of backups that this migration moved to the new store.
        left: Number of objects that the catalog still has in the old store: adopted archives, failed objects, and
            objects that were written meanwhile.
        failed: One message for each object that could not be migrated.
        interrupted: True if the user ended the operation.
    """

    old: str
    new: str
    chunks: int
    size_bytes: int
    backups: int
    left: int
    failed: tuple[str, ...]
    interrupted: bool


def migrate_store(
    session: Session,
    old: str,
    new: str,
    *,
    join_store: bool = False,
    share_password: bool = False,
    executor: Executor | None = None,
) -> MigrateReport:
    """Copy all chunks, copies and backups of a store to another store, which the catalog points to from then on.

    Each object is copied, read back and compared with its checksum; then its row is changed to the new store.
    `prune` removes the old chunks and copies after its grace period; an old backup is removed at once. Adopted
    archives stay where they are. A copy of a chunk whose own object is in the new store is not copied; `prune`
    removes it, too. An interrupted migration continues when it is called again. An object that fails is reported;
    the others are migrated.

    Args:
        session: The session.
        old: A store of the catalog: a name, a URL or a folder.
        new: The new store: a name, a URL or a folder.
        join_store: Write into a store that has chunks of another catalog.
        share_password: With an executor: send the URL of the database to the workers even if it has a password.
        executor: Migrates chunks on the workers of this executor, on any number of hosts. None: this process
            migrates them.

    Raises:
        NotFound: The catalog has no such store.
        InvalidInput: Both are the same store, or one place under two names, or `new` is a bare word that names
            neither a store nor a folder.
        Conflict: The new store has chunks of another catalog, and join_store is false.
        Locked: Another catalog began to write into the new store at the same moment, and join_store is false.
        Unavailable, StoreFailed, AccessDenied: One of the stores cannot be used.
    """
    with audited(session, "store migrate", {"old": old, "new": new}):
        source, target = _prepare(session, old, new, join_store=join_store)
        return _migrate(session, source, target, executor, share_password=share_password)


def _migrate(
    session: Session, source: Store, target: Store, executor: Executor | None, *, share_password: bool
) -> MigrateReport:
    try:
        migration = Migration(session, source, target)
        if executor is None:
            migration.migrate_chunks(Selection(store=source.url))
        else:
            from cafcat.operations.stores.migrate_cluster import migrate_on_cluster

            calls = ClusterCalls(session, executor, share_password=share_password)
            migrate_on_cluster(session, calls, migration, source, target)
        migration.migrate_backups()
        report = migration.report()
        if not report.interrupted:
            Removing(session).record_stores()
        return report
    finally:
        session.progress.end()


def _prepare(session: Session, old: str, new: str, *, join_store: bool) -> tuple[Store, Store]:
    """Check the old and the new store, enter the new one into the catalog, and recover leftovers in both.

    Returns:
        The old store and the new store.
    """
    url, target = store_row(session, old).url, store_for_new_objects(session, new)
    if url == target.url:
        raise InvalidInput(f"both names mean the store {url}", hint="name another store to migrate to")
    known = ReachableStores(session)
    source = known.open(url)
    known.check_place(target.url)
    # A refused store must not get a row. Its bucket must exist, although some servers make that of a first upload.
    join(session, target, allow_shared=join_store, dry_run=True)
    DistinctStores().check(target, source)
    join(session, target, allow_shared=join_store)
    for store in (source, target):
        recover_before(session, store.url)
    return source, target


class _KeyTaken(Conflict):
    """Another writer created an object with the same key in the new store, during the copy."""


@contextmanager
def _key_taken() -> Iterator[None]:
    """Raise a Conflict of the store from the `with` block as _KeyTaken."""
    try:
        yield
    except Conflict as error:
        raise _KeyTaken(error.message, chunk=error.chunk, hint=error.hint) from error


class Migration:
    """State and steps of one `cafcat store migrate`. Readers and writers may work at the same time.

    Attributes:
        interrupted: True if the user ended the operation.
    """

    def __init__(self, session: Session, old: Store, new: Store) -> None:
        self._session = session
        self._catalog = session.catalog
        self._old = old
        self._new = new
        self._distinct = DistinctStores()
        self._owner = owner_name("migrate")
        self._chunks = self._bytes = self._backups = 0
        self._failed: list[str] = []
        self.interrupted = False

    def migrate_chunks(self, selection: Selection) -> None:
        """Migrate chunks and copies of the old store, until the user ends the operation.

        Raises:
            StoreFailed, AccessDenied: The new store cannot be used.
            CatalogUnavailable, CatalogOutdated: The database does not answer, or has another schema.
        """
        copier = ChunkCopier(self._session, self._new, self._owner)
        for copied in copier.copy(selection):
            self._switch(copied)
        self.interrupted = copier.interrupted
        self._failed = [*copier.report.failed, *self._failed]

    def add(self, report: MigrateReport) -> None:
        """Add the chunks that a worker has migrated. A message that several workers have is listed once."""
        self._chunks += report.chunks
        self._bytes += report.size_bytes
        self._failed += [message for message in report.failed if message not in self._failed]

    def migrate_backups(self) -> None:
        """Migrate the backups of the old store, unless the user has ended the operation."""
        for backup in [] if self.interrupted else self._catalog.backups.committed(self._old.url):
            if self._session.should_end():
                self.interrupted = True
                break
            with note_failure(self._failed, f"backup {backup.object_key}"):
                self._migrate_backup(backup)

    def report(self) -> MigrateReport:
        """Return the totals of the migration so far."""
        return MigrateReport(
            self._old.url,
            self._new.url,
            self._chunks,
            self._bytes,
            self._backups,
            self._catalog.stores.count(self._old.url),
            tuple(self._failed),
            self.interrupted,
        )

    def _switch(self, copied: ChunkCopied) -> None:
        """Change the row of a chunk, or of its copy in the old store, to the object in the new store.

        The object in the new store is read back first, unless its bytes were compared when it was found there. A
        failure is noted.
        """
        with note_failure(self._failed, f"chunk {copied.uuid}"):
            if copied.outcome is not CopyOutcome.FOUND:
                self._check(copied)
            copies = self._catalog.copies
            switch = copies.retire if copied.outcome is CopyOutcome.OWN else copies.switch
            switch(copied.uuid, self._old.url, self._new.url)
            self._chunks += 1
            self._bytes += copied.size_bytes
            self._session.emit(ChunkMigrated(*copied))

    def _check(self, copied: ChunkCopied) -> None:
        """Read an object in the new store, and raise Corrupt unless it has the size and checksum of its chunk."""
        chunk = self._catalog.chunks.chunk(str(copied.uuid))
        keys = dict(self._catalog.copies.replicas_of(copied.uuid))
        for store in (self._new, self._old):
            if store.url not in keys:
                raise moved_meanwhile(store.url)
        new_key = keys[self._new.url]
        expected = self._checksum(copied, chunk.crc64nvme, keys[self._old.url])
        size_bytes = self._new.stat(new_key).size_bytes
        if size_bytes != copied.size_bytes or self._crc(self._new, new_key, size_bytes) != expected:
            hint = "the object in the old store stays where it is"
            raise Corrupt(f"its object in {self._new.url} is damaged", hint=hint)

    def _checksum(self, copied: ChunkCopied, in_catalog: str | None, key: str) -> int:
        return from_base64(in_catalog) if in_catalog is not None else self._crc(self._old, key, copied.size_bytes)

    def _crc(self, store: Store, key: str, size_bytes: int) -> int:
        return object_crc64nvme(store, key, size_bytes, StopOnly(self._session.progress))

    def _migrate_backup(self, backup: StoredBackup) -> None:
        """Copy a backup of the catalog to the new store, and remove the old object at once.

        Backups are found by listing a store, so the old object would be found, too.
        """
        key = backup.object_key
        self._distinct.prove(self._old, self._new, (key, key))
        size_bytes = self._old.stat(key).size_bytes
        checksum = self._crc(self._old, key, size_bytes)
        if key not in self._catalog.backups.keys(self._new.url):
            self._copy_backup(backup, size_bytes, checksum)
        if self._crc(self._new, key, self._new.stat(key).size_bytes) != checksum:
            raise Corrupt(f"its copy in {self._new.url} is damaged", hint="the backup stays where it is")
        self._catalog.backups.drop(backup.id)
        remove_backup(self._catalog, self._old, backup.id, key)
        self._backups += 1

    def _copy_backup(self, backup: StoredBackup, size_bytes: int, checksum: int) -> None:
        backups, key = self._catalog.backups, backup.object_key
        if has(self._new, key):
            message = f"the new store has another object with the key of the backup: {self._new.locate(key)}"
            raise Conflict(message, hint="move it away")
        new = backups.begin(
            self._new.url, key, backup.journal_id, self._owner, LEASE_SECONDS, begun_at=backup.begun_at
        )
        lease = Lease(backups, new, self._owner)
        try:
            etag = self._write(key, size_bytes, checksum, lease, new)
            backups.record_size(new, size_bytes)
            backups.commit(new, etag)
        except _KeyTaken:
            with suppress(CafcatError):
                backups.abandon(new)
                backups.record_removed(new)  # the object is another writer's
            raise
        except BaseException:
            with suppress(CafcatError):
                backups.abandon(new)
                remove_backup(self._catalog, self._new, new, key)
            raise
        finally:
            lease.end()

    def _write(self, key: str, size_bytes: int, checksum: int, lease: Lease, backup_id: int) -> str | None:
        with _key_taken():
            upload = self._new.create(key)
        try:
            if upload.upload_id is not None:
                self._catalog.backups.record_upload(backup_id, upload.upload_id)
            sink = BlockSink(upload)
            try:
                for block in object_blocks(self._old, key, size_bytes):
                    sink.write(block)
                    lease.check()
                    self._session.checkpoint()
            except BaseException:
                sink.abort()
                raise
            if sink.finish() != checksum:
                message = f"its object in {self._old.url} changed while it was copied"
                raise Corrupt(message, hint="the backup stays where it is")
            with _key_taken():
                upload.commit(checksum)
        except BaseException:
            upload.abort()
            raise
        return upload.etag
