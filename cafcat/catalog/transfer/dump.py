"""The whole catalog as text, and back: every table at one moment, in the format of COPY."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple
from uuid import UUID

import psycopg
from psycopg import errors as pg

from cafcat.catalog.chunks.objects import Objects
from cafcat.catalog.connection import Connection, PgConnection, primary_message
from cafcat.catalog.history.runs import iso
from cafcat.catalog.locking import acquire
from cafcat.catalog.repeatable_read import RepeatableRead, repeatable_read
from cafcat.catalog.schema import HEAD_REVISION
from cafcat.catalog.stores.identity import catalog_uuid
from cafcat.catalog.stores.moving import reuse_url, set_url
from cafcat.catalog.stores.stores import add_store, forget_home, moved_meanwhile
from cafcat.errors import CatalogLocked, Conflict, Corrupt, Locked

__all__ = ["TABLES", "Backups", "Dump", "DumpReader", "Loader", "StoredBackup"]

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
    "events",
    "listings",
    "journal",
    "journal_files",
    "chunk_copies",
    "backups",
    "verify_runs",
    "verifications",
    "findings",
)
"""All that have rows, in an order in which they can be filled: what a row points to comes first."""

_ALWAYS_FILLED: Final = ("catalog_identity", "stores", "sources")
"""Tables that may have rows in a new catalog. The backup replaces them: no other table refers to them yet."""

_ORDER: Final = {
    "catalog_identity": "only_row",
    "file_locations": "file_path",
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


class StoredBackup(NamedTuple):
    """A committed row of `backups`. begun_at: ISO 8601 in UTC."""

    id: int
    store: str
    object_key: str
    size_bytes: int | None
    journal_id: int | None
    begun_at: str


class Backups(Objects):
    """The rows of `backups`. Every method is one transaction."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection, "backups")

    def begin(self, store: str, object_key: str, journal_id: int | None, owner: str, lease_seconds: int) -> int:
        """Inserts the row `writing`, before the first byte is written. Returns backups.id. Raises
        Conflict if the store has, or may have, a backup of that key, or if the catalog has no such store."""
        statement = (
            "INSERT INTO backups (store, object_key, journal_id, lease_owner, lease_expires_at) "
            "VALUES (%s, %s, %s, %s, now() + make_interval(secs => %s)) "
            # A migrated backup may come back to where it was.
            "ON CONFLICT (store, object_key) DO UPDATE SET state = 'writing', deleted_at = NULL, "
            "abandoned_at = NULL, lease_owner = excluded.lease_owner, upload_id = NULL, "
            "lease_expires_at = excluded.lease_expires_at "
            "WHERE backups.deleted_at IS NOT NULL RETURNING id"
        )
        with self._connection.transaction() as connection:
            try:
                row = connection.execute(
                    statement, (store, object_key, journal_id, owner, lease_seconds)
                ).fetchone()
            except pg.ForeignKeyViolation as error:
                raise moved_meanwhile(store) from error
        if row is None:
            hint = "`cafcat recover` settles what a killed command left"
            raise Conflict(f"a backup of this name is, or was, on its way to {store}", chunk=object_key, hint=hint)
        return int(row[0])

    def record_size(self, backup_id: int, size_bytes: int) -> None:
        """Notes how large the object is."""
        with self._connection.statement() as connection:
            connection.execute("UPDATE backups SET size_bytes = %s WHERE id = %s", (size_bytes, backup_id))

    def committed(self, store: str) -> list[StoredBackup]:
        """Those of a store (URL), the newest first."""
        statement = (
            f"SELECT id, store, object_key, size_bytes, journal_id, {iso('begun_at')} FROM backups "  # noqa: S608
            "WHERE store = %s AND state = 'committed' ORDER BY object_key DESC"
        )
        with self._connection.statement() as connection:
            return [StoredBackup(*row) for row in connection.execute(statement.encode(), [store]).fetchall()]


class DumpReader:
    """The catalog at one moment. journal_id: the last journal record that is in it, 0 for none; taken_at: ISO
    8601 in UTC; catalog: its identity; tables: the columns of each."""

    def __init__(self, found: RepeatableRead) -> None:
        self._read = found
        [(self.journal_id, self.taken_at, self.catalog)] = found.rows(
            f"SELECT coalesce(max(id), 0), {iso('now()')}, (SELECT uuid::text FROM catalog_identity) "  # noqa: S608
            "FROM journal"
        )
        self.revision = HEAD_REVISION
        self.tables = {
            table: tuple(str(row[0]) for row in found.rows(_COLUMNS.format(table=table))) for table in TABLES
        }

    def rows(self, table: str) -> Iterator[bytes]:
        """The rows as lines in the text format of COPY."""
        columns = ", ".join(self.tables[table])
        return self._read.copy(f"SELECT {columns} FROM {table} ORDER BY {_ORDER.get(table, 'id')}")  # noqa: S608


class Dump:
    """Out of a catalog, and into an empty one."""

    def __init__(self, connection: Connection, connect: Callable[[], PgConnection]) -> None:
        self._connection = connection
        self._connect = connect

    @contextmanager
    def reading(self) -> Iterator[DumpReader]:
        """On a connection of its own. Raises CatalogUnavailable, CatalogOutdated."""
        with repeatable_read(self._connect) as found:
            yield DumpReader(found)

    @contextmanager
    def load(self) -> Iterator["Loader"]:
        """One transaction: all that was loaded is in the catalog when it is left after `finish`, or nothing. Raises
        Conflict if the catalog is not empty, Locked if somebody writes to it."""
        with self._connection.transaction() as connection:
            connection.execute("SET LOCAL statement_timeout = 0; SET LOCAL idle_in_transaction_session_timeout = 0")
            connection.execute("SET LOCAL DateStyle = 'ISO'; SET LOCAL TimeZone = 'UTC'")
            _lock_empty(connection)
            loader = Loader(connection)
            yield loader
            if not loader.finished:
                raise psycopg.Rollback


class Loader:
    """The open transaction."""

    def __init__(self, connection: PgConnection) -> None:
        self._connection = connection
        self.finished = False

    def missing_columns(self, table: str, columns: Sequence[str]) -> list[str]:
        """Those of the columns that the table does not have; all, if there is no such table."""
        if table not in TABLES:
            return list(columns)
        rows = self._connection.execute(_COLUMNS.format(table=table).encode()).fetchall()
        return [name for name in columns if name not in {row[0] for row in rows}]

    def load(self, table: str, columns: Sequence[str], blocks: Iterable[bytes]) -> int:
        """Takes rows in the text format of COPY; the names are those of this catalog (missing_columns). Returns
        their number. Raises Corrupt if Postgres cannot read them, or they contradict each other."""
        statement = f"COPY {table} ({', '.join(columns)}) FROM STDIN".encode()
        try:
            with self._connection.cursor() as cursor:
                with cursor.copy(statement) as copy:
                    for block in blocks:
                        copy.write(block)
                return cursor.rowcount
        except (psycopg.DataError, psycopg.IntegrityError, pg.BadCopyFileFormat) as error:
            raise Corrupt(f"the database cannot take the rows of {table}: {primary_message(error)}") from error

    def stores(self) -> list[str]:
        """Every store that has, or had, chunks or copies of them."""
        statement = "SELECT store FROM chunks UNION SELECT store FROM chunk_copies ORDER BY 1"
        return [row[0] for row in self._connection.execute(statement).fetchall()]

    def store_with(self, uuid: UUID) -> str | None:
        """Return the URL of the store with this identity in its marker."""
        row = self._connection.execute("SELECT url FROM stores WHERE uuid = %s", [uuid]).fetchone()
        return None if row is None else str(row[0])

    def move_store(self, old: str, new: str) -> bool:
        """Give a store the URL where it is now. False if the backup has objects at that URL."""
        try:
            reuse_url(self._connection, old, new)
        except Conflict:
            return False
        set_url(self._connection, old, new, None)
        return True

    def catalog(self) -> UUID:
        """Return the identity that the backup gave this catalog. A backup without one gives it a new one."""
        self._connection.execute("INSERT INTO catalog_identity DEFAULT VALUES ON CONFLICT DO NOTHING")
        return catalog_uuid(self._connection)

    def unknown_records(self, records: Sequence[UUID]) -> set[UUID]:
        """Return those of these records (journal.uuid) that the journal does not have."""
        statement = "SELECT uuid FROM journal WHERE uuid = ANY(%s)"
        return set(records) - {row[0] for row in self._connection.execute(statement, [list(records)]).fetchall()}

    def finish(self, backup: StoredBackup, last_sequence: int) -> None:
        """Lets new rows get the numbers after those that were loaded; new journal records also come after
        `last_sequence`. Notes the backup itself, which cannot be in it."""
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
        forget_home(self._connection)
        add_store(self._connection, backup.store)
        self._connection.execute(
            "INSERT INTO backups (state, store, object_key, size_bytes, journal_id, begun_at, committed_at) "
            "VALUES ('committed', %s, %s, %s, %s, %s, %s) ON CONFLICT DO NOTHING",
            (*backup[1:], backup.begun_at),
        )
        detail = f"from {backup.store} {backup.object_key}"
        self._connection.execute("INSERT INTO events (kind, detail) VALUES ('catalog_restored', %s)", [detail])
        self.finished = True


def _lock_empty(connection: PgConnection) -> None:
    try:
        tables = ", ".join(TABLES)
        acquire(connection, f"LOCK TABLE {tables} IN SHARE ROW EXCLUSIVE MODE", default_seconds=0)
    except CatalogLocked as error:
        raise Locked(f"somebody else writes to the catalog: {error.message}", hint=error.hint) from error
    for table in TABLES:
        if table in _ALWAYS_FILLED:
            continue
        if connection.execute(f"SELECT FROM {table} LIMIT 1".encode()).fetchone() is not None:
            hint = "point --database-url to an empty database (cafcat db init), or --home to a new folder"
            raise Conflict(f"the catalog is not empty, {table} has rows: restore fills an empty one", hint=hint)
    for table in _ALWAYS_FILLED:
        connection.execute(f"DELETE FROM {table}".encode())  # noqa: S608
