"""Dumps of the whole catalog: every table as text in the format of COPY, read in one consistent transaction."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple
from uuid import UUID

import psycopg
from psycopg import errors as pg

from cafcat.catalog.chunks.copies import drop_copies
from cafcat.catalog.chunks.objects import Objects
from cafcat.catalog.connection import Connection, Connector, PgConnection, primary_message
from cafcat.catalog.files.log_units import drop_units
from cafcat.catalog.history.events import record_event
from cafcat.catalog.history.runs import iso
from cafcat.catalog.locking import acquire
from cafcat.catalog.repeatable_read import RepeatableRead, repeatable_read
from cafcat.catalog.schema import HEAD_REVISION
from cafcat.catalog.stores.identity import catalog_uuid
from cafcat.catalog.stores.moving import reuse_url, set_url
from cafcat.catalog.stores.stores import add_store, has_objects, moved_meanwhile, replace_home
from cafcat.errors import CatalogLocked, Conflict, Corrupt, Locked
from cafcat.support.quantities import plural

__all__ = ["HOW_TO_EMPTY", "TABLES", "Backups", "Dump", "DumpReader", "Loader", "StoredBackup"]

TABLES: Final = (
    "catalog_identity",
    "ingest_runs",
    "stores",
    "sources",
    "chunks",
    "ingestion_units",
    "chunk_times",
    "file_locations",
    "retired_locations",
    "restored_locations",
    "folder_totals",
    "folder_deltas",
    "events",
    "listings",
    "shards",
    "journal",
    "journal_files",
    "chunk_copies",
    "backups",
    "verify_runs",
    "verifications",
    "findings",
    "access_keys",
    "limits",
)
"""All tables of cafcat.catalog.tables but limit_shares, which running processes fill. They are in an order in which
they can be filled: a table comes after those to which it refers."""

HOW_TO_EMPTY: Final = (
    "point --database-url to an empty database (cafcat db init), or --home to a new folder; to empty the database "
    "of a home, run `cafcat db stop`, and move the folder postgres in the home away"
)
"""Hint of the errors about a catalog that is not empty."""

_MAYBE_FILLED: Final = ("findings", "verifications", "verify_runs", "catalog_identity", "stores", "sources")
"""Tables that may have rows even in an empty catalog, in an order in which they can be emptied. Each new catalog
has rows, and a `verify` that found nothing to check leaves some. A restore replaces them all."""

_ORDER: Final = {
    "limits": "url",
    "access_keys": "access_key_id",
    "catalog_identity": "only_row",
    "file_locations": "file_path",
    "folder_totals": "depth, folder_path",
    "journal_files": "journal_id, file_path",
    "ingestion_units": "chunk_id, number",
    "chunk_times": "chunk_id, timestamp_key",
}
_COLUMNS: Final = """
SELECT column_name FROM information_schema.columns
WHERE table_schema = current_schema() AND table_name = '{table}' ORDER BY ordinal_position
"""
_IDENTITIES: Final = """
SELECT table_name FROM information_schema.columns
WHERE table_schema = current_schema() AND is_identity = 'YES' AND column_name = 'id' AND table_name = ANY(%s)
"""
_RETIRED_OBJECTS: Final = """
SELECT c.id, j.id, j.uuid, o.store, o.object_key
FROM chunks AS c JOIN journal AS j ON j.chunk_id = c.id
CROSS JOIN LATERAL (
    SELECT c.store, c.object_key
    UNION ALL
    SELECT k.store, k.object_key FROM chunk_copies AS k
    WHERE k.chunk_id = c.id AND k.state = 'committed' AND k.deleted_at IS NULL) AS o
WHERE c.state = 'retired' AND c.adopted_prefix IS NULL ORDER BY c.id
"""
_LACKING_CHANGES: Final = """
SELECT coalesce(substring(e.detail FROM 'which lacks ([0-9]+) later changes?$'), '0')
FROM (SELECT * FROM events WHERE kind = 'catalog_restored' ORDER BY id DESC LIMIT 1) AS e
WHERE %(chunks)s::uuid[] IS NULL
   OR EXISTS (SELECT FROM chunks WHERE uuid = ANY(%(chunks)s) AND committed_at < e.happened_at)
"""


class RetiredObject(NamedTuple):
    """An object of a chunk without live files: its own one, or a copy.

    Attributes:
        chunk_id: chunks.id.
        sequence: journal.id of the commit of the chunk.
        record: journal.uuid of this commit.
        store: URL of the store with the object.
        object_key: Key of the object in this store.
    """

    chunk_id: int
    sequence: int
    record: UUID
    store: str
    object_key: str


class StoredBackup(NamedTuple):
    """A committed backup of the catalog.

    Attributes:
        id: backups.id.
        store: URL of the store that holds it.
        object_key: Key of its object in that store.
        size_bytes: Size of its object; None if unknown.
        journal_id: journal.id of the last change in it; None if unknown.
        begun_at: When the backup was begun: ISO 8601, UTC.
    """

    id: int
    store: str
    object_key: str
    size_bytes: int | None
    journal_id: int | None
    begun_at: str


class Backups(Objects):
    """Queries on the rows of `backups`. Every method is one transaction."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection, "backups")

    def begin(
        self,
        store_url: str,
        object_key: str,
        journal_id: int | None,
        owner: str,
        lease_seconds: int,
        *,
        begun_at: str | None = None,
    ) -> int:
        """Insert the row of a backup in the state `writing`, before the first byte of its object is written.

        If the store had a backup with this key that was removed, the row of that backup is used again.

        Args:
            store_url: URL of the store.
            object_key: Key of the object in that store.
            journal_id: journal.id of the last change in the backup; None if unknown.
            owner: Name of the writer (owners.owner_name).
            lease_seconds: Length of the lease.
            begun_at: When the backup was begun, if it is copied from another store: ISO 8601, UTC. None: now.

        Returns:
            backups.id.

        Raises:
            Conflict: The store has, or may have, a backup with this key. Or the catalog does not have the store.
        """
        statement = (
            "INSERT INTO backups (store, object_key, journal_id, begun_at, lease_owner, lease_expires_at) "
            "VALUES (%s, %s, %s, coalesce(%s, now()), %s, now() + make_interval(secs => %s)) "
            # A backup may be migrated back to its former store.
            "ON CONFLICT (store, object_key) DO UPDATE SET state = 'writing', begun_at = excluded.begun_at, "
            "deleted_at = NULL, abandoned_at = NULL, lease_owner = excluded.lease_owner, upload_id = NULL, "
            "lease_expires_at = excluded.lease_expires_at "
            "WHERE backups.deleted_at IS NOT NULL RETURNING id"
        )
        with self._connection.transaction() as connection:
            try:
                values = (store_url, object_key, journal_id, begun_at, owner, lease_seconds)
                row = connection.execute(statement, values).fetchone()
            except pg.ForeignKeyViolation as error:
                raise moved_meanwhile(store_url) from error
        if row is None:
            hint = "`cafcat recover` removes the remains of killed commands"
            message = f"the catalog already has a backup of this name in {store_url}, complete or not"
            raise Conflict(message, chunk=object_key, hint=hint)
        return int(row[0])

    def record_size(self, backup_id: int, size_bytes: int) -> None:
        """Record the size in bytes of a backup's object in the catalog."""
        with self._connection.statement() as connection:
            connection.execute("UPDATE backups SET size_bytes = %s WHERE id = %s", (size_bytes, backup_id))

    def committed(self, store_url: str) -> list[StoredBackup]:
        """Return the committed backups in a store, newest first, by the times in their keys."""
        statement = (
            f"SELECT id, store, object_key, size_bytes, journal_id, {iso('begun_at')} FROM backups "  # noqa: S608
            "WHERE store = %s AND state = 'committed' ORDER BY object_key DESC"
        )
        with self._connection.statement() as connection:
            return [StoredBackup(*row) for row in connection.execute(statement.encode(), [store_url]).fetchall()]

    def lacking_changes(self, chunks: Iterable[UUID] | None = None) -> int:
        """Return how many changes the restored backup lacked, which the journals of stores had. Reads all events.

        Args:
            chunks: UUIDs of chunks of which a file is lost. One of these changes may have moved the file. None:
                whatever the changes concern.

        Returns:
            0 if the journals had no later changes, the catalog was not restored, or all these chunks are newer than
            the restore.
        """
        with self._connection.statement(read_only=True) as connection:
            row = connection.execute(_LACKING_CHANGES, {"chunks": chunks and list(chunks)}).fetchone()
        return 0 if row is None else int(row[0])


class DumpReader:
    """All tables of the catalog, in one repeatable-read transaction.

    Attributes:
        journal_id: journal.id of the last change that the transaction sees; 0 if there was no change.
        taken_at: Start of the transaction: ISO 8601, UTC.
        catalog: UUID of the catalog.
        revision: Revision of the schema.
        tables: Names of the columns of each table, by the name of the table.
    """

    def __init__(self, transaction: RepeatableRead) -> None:
        self._transaction = transaction
        [(self.journal_id, self.taken_at, self.catalog)] = transaction.rows(
            f"SELECT coalesce(max(id), 0), {iso('now()')}, (SELECT uuid::text FROM catalog_identity) "  # noqa: S608
            "FROM journal"
        )
        self.revision = HEAD_REVISION
        self.tables = {
            table: tuple(str(row[0]) for row in transaction.rows(_COLUMNS.format(table=table))) for table in TABLES
        }

    def rows(self, table: str) -> Iterator[bytes]:
        """Yield all rows of a table, in the order of its key: blocks of lines in the text format of COPY."""
        columns = ", ".join(self.tables[table])
        return self._transaction.copy(f"SELECT {columns} FROM {table} ORDER BY {_ORDER.get(table, 'id')}")  # noqa: S608


class Dump:
    """Dumps of this catalog, and loads of a dump into it if it is empty."""

    def __init__(self, connection: Connection, database: Connector) -> None:
        self._connection = connection
        self._database = database

    @contextmanager
    def reading(self) -> Iterator[DumpReader]:
        """Open a repeatable-read transaction on a new connection, to read all tables.

        Raises:
            CatalogUnavailable: The database cannot be reached.
            AccessDenied: The server rejects user and password.
            InvalidInput: The URL of the database cannot be read.
            CatalogOutdated: The database has no schema, or one of another revision.
        """
        with repeatable_read(self._database) as transaction:
            yield DumpReader(transaction)

    @contextmanager
    def load(self) -> Iterator["Loader"]:
        """Open a transaction that loads a dump. It is committed after `Loader.finish`, else rolled back.

        Raises:
            Conflict: The catalog is not empty.
            Locked: Another session is writing to the catalog, for longer than --lock-timeout if that is given.
            CatalogUnavailable: The database cannot be reached.
        """
        with self._connection.transaction() as connection:
            connection.execute("SET LOCAL statement_timeout = 0; SET LOCAL idle_in_transaction_session_timeout = 0")
            connection.execute("SET LOCAL DateStyle = 'ISO'; SET LOCAL TimeZone = 'UTC'")
            home = connection.execute("SELECT home FROM catalog_identity").fetchone()
            _lock_empty(connection)
            loader = Loader(connection, home=home[0] if home else None)
            yield loader
            if not loader.finished:
                raise psycopg.Rollback


class Loader:
    """The open transaction that loads a dump of a catalog into an empty catalog.

    Attributes:
        finished: True after `finish`: the transaction will be committed.
    """

    def __init__(self, connection: PgConnection, *, home: str | None) -> None:
        """Begin without rows.

        Args:
            connection: A connection with an open transaction.
            home: URL of the home of this embedded database; None if it is not one, or has not recorded its home.
        """
        self._connection = connection
        self._home = home
        self.finished = False

    def missing_columns(self, table: str, columns: Sequence[str]) -> list[str]:
        """Return those of these columns that a table of this catalog does not have.

        If there is no such table, all of them are returned.
        """
        if table not in TABLES:
            return list(columns)
        rows = self._connection.execute(_COLUMNS.format(table=table).encode()).fetchall()
        return [name for name in columns if name not in {row[0] for row in rows}]

    def load(self, table: str, columns: Sequence[str], blocks: Iterable[bytes]) -> int:
        """Insert rows of the dump into a table.

        Args:
            table: Name of the table.
            columns: Names of the values in each row. The table has all of them (`missing_columns`).
            blocks: The rows in the text format of COPY.

        Returns:
            The number of rows.

        Raises:
            Corrupt: PostgreSQL cannot read the rows, or they violate a constraint.
        """
        statement = f"COPY {table} ({', '.join(columns)}) FROM STDIN".encode()
        try:
            with self._connection.cursor() as cursor:
                with cursor.copy(statement) as copy:
                    for block in blocks:
                        copy.write(block)
                return cursor.rowcount
        except (psycopg.DataError, psycopg.IntegrityError, pg.BadCopyFileFormat) as error:
            raise Corrupt(f"the database cannot load the rows of {table}: {primary_message(error)}") from error

    def stores(self) -> list[str]:
        """Return the URLs of all stores that have, or had, chunks or copies, according to the loaded rows."""
        statement = "SELECT store FROM chunks UNION SELECT store FROM chunk_copies ORDER BY 1"
        return [row[0] for row in self._connection.execute(statement).fetchall()]

    def stores_of_backups(self) -> set[str]:
        """Return the URLs of all stores that have, or had, backups, according to the loaded rows."""
        return {row[0] for row in self._connection.execute("SELECT store FROM backups").fetchall()}

    def has_objects(self, url: str) -> bool:
        """Return True if a store has objects, according to the loaded rows; False for one that was given up."""
        return has_objects(self._connection, url)

    def has_marker(self, url: str) -> bool:
        """Return True if a store had a marker of the catalog when the backup was made."""
        statement = "SELECT FROM stores WHERE url = %s AND uuid IS NOT NULL"
        return self._connection.execute(statement, [url]).fetchone() is not None

    def store_with(self, uuid: UUID) -> str | None:
        """Return the URL of the loaded store with this UUID in its marker; None if no loaded store has it."""
        row = self._connection.execute("SELECT url FROM stores WHERE uuid = %s", [uuid]).fetchone()
        return None if row is None else str(row[0])

    def move_store(self, old: str, new: str) -> bool:
        """Change the URL of a loaded store, because the store was moved after the backup was made.

        Args:
            old: URL of the store in the backup.
            new: The present URL of the store.

        Returns:
            True if the URL was changed. False if the loaded rows also have chunks, copies or an unfinished backup
            at the present URL, or rows of chunks with the same object key at both URLs. Then nothing was changed.
        """
        try:
            reuse_url(self._connection, old, new)
        except Conflict:
            return False
        set_url(self._connection, old, new, None)
        return True

    def catalog(self) -> UUID:
        """Return the UUID of the loaded catalog. If the dump has none, insert a row with a new one first."""
        self._connection.execute("INSERT INTO catalog_identity DEFAULT VALUES ON CONFLICT DO NOTHING")
        return catalog_uuid(self._connection)

    def unknown_records(self, records: Sequence[UUID]) -> set[UUID]:
        """Return those of these values of journal.uuid that the loaded journal does not have."""
        statement = "SELECT uuid FROM journal WHERE uuid = ANY(%s)"
        return set(records) - {row[0] for row in self._connection.execute(statement, [list(records)]).fetchall()}

    def retired_objects(self) -> list[RetiredObject]:
        """Return the objects of the loaded chunks without live files that cafcat wrote: own ones, and copies."""
        return [RetiredObject(*row) for row in self._connection.execute(_RETIRED_OBJECTS).fetchall()]

    def keep_backups(self, store: str, object_keys: Sequence[str]) -> set[str]:
        """Record that a store has only these backups. `backup --keep` removes others after the dump was made.

        Returns:
            The keys of those backups that the loaded rows lack.
        """
        self._connection.execute(
            "UPDATE backups SET state = 'deleted', deleted_at = now() "
            "WHERE store = %s AND state = 'committed' AND object_key <> ALL (%s)",
            (store, list(object_keys)),
        )
        statement = "SELECT object_key FROM backups WHERE store = %s"
        return set(object_keys) - {key for (key,) in self._connection.execute(statement, [store]).fetchall()}

    def _add_backup(self, backup: StoredBackup) -> None:
        add_store(self._connection, backup.store)
        self._connection.execute(
            "INSERT INTO backups (state, store, object_key, size_bytes, journal_id, begun_at, committed_at) "
            "VALUES ('committed', %s, %s, %s, %s, %s, %s) ON CONFLICT DO NOTHING",
            (*backup[1:], backup.begun_at),
        )

    def finish(
        self,
        backup: StoredBackup,
        further: Sequence[StoredBackup],
        last_sequence: int,
        lacking_changes: int,
        pruned: Sequence[int] = (),
    ) -> None:
        """Finish the load, so that the transaction is committed at its end.

        This sets all sequences, so that new rows get higher ids than the loaded ones. It replaces the recorded home
        (`replace_home`), and adds rows for backups that the backup cannot contain: itself, and later ones.

        Args:
            backup: The backup that was loaded.
            further: Other backups that were found in stores.
            last_sequence: New journal records get a higher journal.id than this; 0 for no such limit.
            lacking_changes: Number of changes in the journals of stores that the backup lacks.
            pruned: chunks.id of the chunks that were pruned after the backup was made.
        """
        for (table,) in self._connection.execute(_IDENTITIES, [list(TABLES)]).fetchall():
            self._connection.execute(
                f"SELECT setval(pg_get_serial_sequence('{table}', 'id'), max(id)) FROM {table} "  # noqa: S608
                "HAVING max(id) IS NOT NULL".encode()
            )
        self._connection.execute(
            "SELECT setval(pg_get_serial_sequence('journal', 'id'), greatest(%s, max(id), 1)) FROM journal "
            "HAVING greatest(%s, max(id)) IS NOT NULL",
            (last_sequence or None, last_sequence or None),
        )
        replace_home(self._connection, self._home)
        for each in (backup, *further):
            self._add_backup(each)
        lacking = f", which lacks {plural(lacking_changes, 'later change')}" if lacking_changes else ""
        record_event(self._connection, "catalog_restored", f"from {backup.store} {backup.object_key}{lacking}")
        self._mark_pruned(pruned)
        self.finished = True

    def _mark_pruned(self, chunks: Sequence[int]) -> None:
        """Record that chunks (chunks.id) were pruned, and their copies, too, as `prune` does."""
        self._connection.execute(
            "UPDATE chunks SET state = 'deleted', deleted_at = now() WHERE id = ANY(%s)", [list(chunks)]
        )
        drop_copies(self._connection, chunks)
        self._connection.execute(
            "UPDATE chunk_copies SET deleted_at = now() WHERE chunk_id = ANY(%s) AND deleted_at IS NULL",
            [list(chunks)],
        )
        for chunk in chunks:
            drop_units(self._connection, chunk)
            record_event(self._connection, "chunk_deleted", "pruned after the restored backup", chunk_id=chunk)


def _lock_empty(connection: PgConnection) -> None:
    """Lock all tables against other writers. Check that they are empty, and empty those of _MAYBE_FILLED.

    Events of commands are no content: a restore that failed has left one. They are removed, too.

    Raises:
        Conflict: Another table has rows.
        Locked: Another session is writing to the catalog, for longer than --lock-timeout if that is given.
    """
    try:
        tables = ", ".join(TABLES)
        acquire(connection, f"LOCK TABLE {tables} IN SHARE ROW EXCLUSIVE MODE", default_seconds=0)
    except CatalogLocked as error:
        raise Locked(f"another command is writing to the catalog: {error.message}", hint=error.hint) from error
    connection.execute("DELETE FROM events WHERE kind = 'command'")
    for table in TABLES:
        if table in _MAYBE_FILLED:
            continue
        if connection.execute(f"SELECT FROM {table} LIMIT 1".encode()).fetchone() is not None:
            message = f"the catalog is not empty: a restore of the catalog needs an empty one, but {table} has rows"
            raise Conflict(message, hint=f"to copy files to disk, run `cafcat extract -C DIR`; {HOW_TO_EMPTY}")
    for table in _MAYBE_FILLED:
        connection.execute(f"DELETE FROM {table}".encode())  # noqa: S608
