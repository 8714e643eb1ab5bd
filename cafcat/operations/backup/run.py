"""Writes the whole catalog as one object of a store, and removes older backups if the user wants that."""

from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import version
from typing import NamedTuple
from uuid import uuid4

from cafcat.catalog.chunks.owners import owner_name
from cafcat.catalog.transfer.dump import TABLES, DumpReader
from cafcat.errors import CafcatError
from cafcat.operations.audit import recorded
from cafcat.operations.backup.keys import backup_key, backup_time
from cafcat.operations.backup.options import BackupOptions
from cafcat.operations.backup.report import BackupReport
from cafcat.operations.backup.tar import HEAD_NAME, MANIFEST_NAME, VERSION, TarWriter
from cafcat.operations.chosen_stores import check_folder, default_store, existing_store, store_to_write
from cafcat.operations.joining import join_store
from cafcat.operations.recover.left_backups import recover_backups, remove_backup
from cafcat.session import Session
from cafcat.stores.base import Store
from cafcat.stores.keys import BACKUP_PREFIX
from cafcat.writing.lease import LEASE_SECONDS, Lease
from cafcat.writing.sink import BlockSink

__all__ = ["FoundBackup", "backups_of", "find_backups", "run", "store_of_backups"]


class FoundBackup(NamedTuple):
    """A backup that was found by listing a store.

    Attributes:
        store: URL of the store.
        object_key: Key of the backup.
        size_bytes: Size of the object.
        begun_at: When the backup began, ISO 8601 in UTC.
    """

    store: str
    object_key: str
    size_bytes: int
    begun_at: str


@recorded
def run(session: Session, options: BackupOptions) -> BackupReport:
    """Write the whole catalog, as it is at one moment, into a store as one object.

    If `keep` is given, older backups of this catalog in the store are removed afterwards.

    Raises:
        Conflict: The store has chunks of another catalog, and `join_store` is false.
        Locked: Another catalog began to write into the store at the same moment, and `join_store` is false.
        InvalidInput: No store has this name, or no backup would stay.
        Unavailable: The store is not where its URL points.
        StoreFailed, AccessDenied: The backup cannot be written to the store.
        CatalogUnavailable, CatalogOutdated: The database does not answer, or has another schema.
    """
    options.check()
    store = store_to_write(session, options.to)
    join_store(session, store, allow_shared=options.join_store)
    try:
        return _Backup(session, store).run(options.keep)
    finally:
        session.progress.end()


class _Backup:
    """State and steps of one `cafcat backup`."""

    def __init__(self, session: Session, store: Store) -> None:
        self._catalog = session.catalog
        self._store = store
        self._owner = owner_name("backup")
        self._progress = session.progress

    def run(self, keep: int | None) -> BackupReport:
        """Write a backup, then remove older ones.

        The leftovers of earlier backups in the store are removed first. If this backup fails and its own leftovers
        cannot be removed at once, `recover` or the next backup removes them.

        Args:
            keep: Number of this catalog's newest backups in the store that stay, the new one included; None to
                remove none.
        """
        recover_backups(self._catalog, self._store, self._owner)
        # The consistent read begins before the row of the backup is inserted: the backup does not contain its own
        # row.
        with self._catalog.dump.reading() as reading:
            key = backup_key(datetime.now(UTC), uuid4())
            tar = self._write_object(reading, key)
        rows = dict.fromkeys(TABLES, 0)
        for member in tar.members:
            rows[member.name.partition("/")[0]] += member.rows
        removed = () if keep is None else tuple(self._remove_older(keep))
        return BackupReport(self._store.url, key, tar.size_bytes, reading.journal_id, rows, removed)

    def _write_object(self, reading: DumpReader, key: str) -> TarWriter:
        backups = self._catalog.backups
        backup = backups.begin(self._store.url, key, reading.journal_id, self._owner, LEASE_SECONDS)
        lease = Lease(backups, backup, self._owner)
        try:
            upload = self._store.create(key)
            try:
                if upload.upload_id is not None:
                    backups.record_upload(backup, upload.upload_id)
                sink = BlockSink(upload)
                try:
                    tar = self._write_tar(reading, sink)
                    checksum = sink.finish()
                except BaseException:
                    sink.abort()
                    raise
                lease.check()
                upload.commit(checksum)
            except BaseException:
                upload.abort()
                raise
            backups.record_size(backup, tar.size_bytes)
            backups.commit(backup, upload.etag)
        except BaseException:
            lease.end()
            # The next backup of this store does the steps that fail here.
            with suppress(CafcatError):
                backups.abandon(backup)
                remove_backup(self._catalog, self._store, backup, key)
            raise
        lease.end()
        return tar

    def _write_tar(self, reading: DumpReader, sink: BlockSink) -> TarWriter:
        moment = datetime.fromisoformat(reading.taken_at)
        tar = TarWriter(sink, int(moment.timestamp()))
        head = {
            "cafcat_backup": VERSION,
            "schema_revision": reading.revision,
            "cafcat_version": version("cafcat"),
            "taken_at": reading.taken_at,
            "journal_id": reading.journal_id,
            "catalog": reading.catalog,
            "tables": {table: list(columns) for table, columns in reading.tables.items()},
        }
        tar.add_document(HEAD_NAME, head)
        self._progress.begin("backup")
        for table in TABLES:
            tar.add_rows(table, reading.rows(table), self._progress)
        tar.add_document(MANIFEST_NAME, head | {"members": [member._asdict() for member in tar.members]})
        tar.finish()
        return tar

    def _remove_older(self, keep: int) -> Iterator[str]:
        backups = self._catalog.backups
        for old in backups.committed(self._store.url)[keep:]:
            backups.drop(old.id)
            remove_backup(self._catalog, self._store, old.id, old.object_key)
            yield old.object_key


def find_backups(session: Session, given: str | None) -> list[FoundBackup]:
    """Return the backups of all catalogs in the store that the user named, the oldest first.

    Args:
        session: The session.
        given: The store: a name, a URL or a folder; None for the store of the settings.

    Raises:
        NotFound, InvalidInput: As `store_of_backups` raises them; or the bucket does not exist.
        AccessDenied, StoreFailed: The store cannot be listed.
    """
    return backups_of(store_of_backups(session, given))


def store_of_backups(session: Session, given: str | None) -> Store:
    """Return the store that the user named for its backups; that of the settings for None.

    Raises:
        Unavailable: The catalog has the store, and the folder of the store does not exist.
        NotFound: The given folder does not exist.
        InvalidInput: The text is not a valid URL or path.
    """
    if given is not None:
        return existing_store(session, given)
    store = default_store(session)
    check_folder(session, store)
    return store


def backups_of(store: Store) -> list[FoundBackup]:
    """Return the backups of all catalogs in a store, the oldest first, by listing the store.

    This does not use the database.
    """
    found = ((key, size_bytes, backup_time(key)) for key, size_bytes, _ in store.list(BACKUP_PREFIX))
    return [FoundBackup(store.url, key, size_bytes, begun_at) for key, size_bytes, begun_at in found if begun_at]
