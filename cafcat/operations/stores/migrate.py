"""Migration of a store to another one, chunk by chunk: each is copied, read back, and only then switched.

The objects in the old store become copies that prune removes after its grace period. Whoever read a location before
the switch still finds the bytes there. A migration that was interrupted goes on when it is asked for again.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from cafcat.catalog.catalog import Catalog
from cafcat.catalog.chunks.copies import Selection
from cafcat.catalog.stores.stores import moved_meanwhile
from cafcat.catalog.transfer.dump import StoredBackup
from cafcat.checksums import from_base64
from cafcat.errors import CafcatError, Conflict, Corrupt
from cafcat.operations.copy.run import CopiedChunk, CopyChunks, CopyOutcome
from cafcat.operations.failures import reported
from cafcat.operations.object_bytes import object_blocks, object_crc64nvme
from cafcat.operations.recover.left_backups import remove_backup
from cafcat.progress import Progress
from cafcat.stores.base import Store, has
from cafcat.stores.distinct import DistinctStores
from cafcat.writing.lease import LEASE_SECONDS, Lease
from cafcat.writing.sink import BlockSink

__all__ = ["Migrate", "MigrateReport"]


@dataclass(frozen=True, slots=True)
class MigrateReport:
    """Result of a migration. old, new: URLs. chunks: switched to the new store, of size_bytes in all; copies of
    other stores' chunks among them. backups: brought there. left: objects that the catalog still has in the old
    store: adopted archives, those that failed, new ones. failed: objects that could not be migrated, and why."""

    old: str
    new: str
    chunks: int
    size_bytes: int
    backups: int
    left: int
    failed: tuple[str, ...]
    interrupted: bool


class Migrate:
    """One migration. Readers and writers may be at work beside it."""

    def __init__(
        self,
        catalog: Catalog,
        store_of: Callable[[str], Store],
        old: Store,
        new: Store,
        *,
        owner: str,
        progress: Progress,
        on_switched: Callable[[CopiedChunk], object],
        should_stop: Callable[[], bool],
    ) -> None:
        """Args: owner: of leases; on_switched: called with each chunk; should_stop: as of CopyChunks."""
        self._catalog = catalog
        self._old = old
        self._new = new
        self._distinct = DistinctStores()
        self._owner = owner
        self._on_switched = on_switched
        self._should_stop = should_stop
        self._chunks = self._bytes = self._backups = 0
        self._failed: list[str] = []
        self._interrupted = False
        self._copy = CopyChunks(
            catalog,
            store_of,
            new,
            owner=owner,
            progress=progress,
            on_taken=self._copied,
            should_stop=should_stop,
        )

    def run(self) -> MigrateReport:
        """Migrate all chunks and backups. A failure of one leaves the others unharmed, and is reported.

        Raises:
            CatalogUnavailable, CatalogOutdated: and all errors of the new store.
        """
        self._copy.take(Selection(store=self._old.url))
        self._interrupted = self._copy.report.interrupted
        for backup in [] if self._interrupted else self._catalog.backups.committed(self._old.url):
            if self._should_stop():
                self._interrupted = True
                break
            with reported(self._failed, f"backup {backup.object_key}"):
                self._migrate_backup(backup)
        return MigrateReport(
            self._old.url,
            self._new.url,
            self._chunks,
            self._bytes,
            self._backups,
            self._catalog.stores.count(self._old.url),
            (*self._copy.report.failed, *self._failed),
            self._interrupted,
        )

    def _copied(self, taken: CopiedChunk) -> None:
        """A copy is in the new store. One that was written just now is read back, and so is one from before."""
        if taken.outcome is CopyOutcome.OWN:
            return
        with reported(self._failed, f"chunk {taken.uuid}"):
            if taken.outcome is not CopyOutcome.FOUND:
                self._check(taken)
            self._catalog.copies.switch(taken.uuid, self._old.url, self._new.url)
            self._chunks += 1
            self._bytes += taken.size_bytes
            self._on_switched(taken)

    def _check(self, taken: CopiedChunk) -> None:
        chunk = self._catalog.chunks.chunk(str(taken.uuid))
        keys = dict(self._catalog.copies.of_chunk(taken.uuid))
        if (key := keys.get(self._new.url)) is None:
            raise moved_meanwhile(self._new.url)
        expected = self._checksum(taken, chunk.crc64nvme, key)
        size_bytes = self._new.stat(key).size_bytes
        if size_bytes != taken.size_bytes or self._crc(self._new, key, size_bytes) != expected:
            raise Corrupt(f"its copy in {self._new.url} is damaged", hint="the chunk stays where it is")

    def _checksum(self, taken: CopiedChunk, noted: str | None, key: str) -> int:
        return from_base64(noted) if noted is not None else self._crc(self._old, key, taken.size_bytes)

    def _crc(self, store: Store, key: str, size_bytes: int) -> int:
        return object_crc64nvme(store, key, size_bytes, lambda _: self._should_stop())

    def _migrate_backup(self, backup: StoredBackup) -> None:
        """Remove the old object at once: backups are found by listing a store, not by their rows."""
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
            raise Conflict(f"another object has its key: {self._new.locate(key)}", hint="move it away")
        new = backups.begin(self._new.url, key, backup.journal_id, self._owner, LEASE_SECONDS)
        lease = Lease(partial(backups.renew_lease, new, self._owner, LEASE_SECONDS))
        try:
            etag = self._write(key, size_bytes, checksum, lease, partial(backups.record_upload, new))
            backups.record_size(new, size_bytes)
            backups.commit(new, etag)
        except BaseException:
            with suppress(CafcatError):
                backups.abandon(new)
                remove_backup(self._catalog, self._new, new, key)
            raise
        finally:
            lease.end()

    def _write(
        self, key: str, size_bytes: int, checksum: int, lease: Lease, record: Callable[[str], object]
    ) -> str | None:
        upload = self._new.create(key)
        try:
            if upload.upload_id is not None:
                record(upload.upload_id)
            sink = BlockSink(upload)
            try:
                for block in object_blocks(self._old, key, size_bytes):
                    sink.write(block)
                    lease.check()
                    self._should_stop()
            except BaseException:
                sink.abort()
                raise
            if sink.finish() != checksum:
                raise Corrupt("its bytes changed while they were copied")
            upload.commit(checksum)
        except BaseException:
            upload.abort()
            raise
        return upload.etag
