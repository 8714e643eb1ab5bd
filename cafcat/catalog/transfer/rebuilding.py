"""Filling an empty catalog with what was found in stores: one transaction, so that there is all of it or nothing.

What was found goes into temporary tables first, as it comes; who won each path is then settled by a few statements
over all of them. The rules are in docs/formats/journal.md.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple
from uuid import UUID

import psycopg

from cafcat.catalog.connection import Connection, PgConnection
from cafcat.catalog.files.log_units import copy_units
from cafcat.catalog.files.mapping import COLUMNS, Mapping
from cafcat.catalog.history.journal import JournalChunk, JournalFile, JournalRecord
from cafcat.catalog.locking import acquire
from cafcat.catalog.stores.identity import set_catalog_uuid
from cafcat.catalog.stores.stores import add_store
from cafcat.catalog.transfer import rebuilding_sql as statements
from cafcat.errors import CatalogLocked, Conflict, Locked
from cafcat.model import ArchiveUnits, ChunkSummary

__all__ = ["FoundObject", "FoundRecord", "PlannedChunk", "Rebuilding", "RebuiltCounts", "Stage"]

_PAGE_ROWS: Final = 500


class FoundObject(NamedTuple):
    """An object named like a chunk. store: position among the stores."""

    store: int
    uuid: UUID
    object_key: str
    size_bytes: int


class FoundRecord(NamedTuple):
    """A journal record, and the stores that have it: their positions, and the sizes in bytes there."""

    sequence: int
    uuid: UUID
    stores: tuple[int, ...]
    sizes: tuple[int, ...]


class PlannedChunk(NamedTuple):
    """A chunk that is to be in the catalog. sequence and format: as its journal record says, None if there is
    none; then the sizes and file_count are None, too. objects: what the stores have under its name, the first store
    first."""

    id: int
    uuid: UUID
    sequence: int | None
    format: str | None
    size_bytes: int | None
    index_start_byte: int | None
    index_end_byte: int | None
    file_count: int | None
    index_crc32c: int | None
    objects: tuple[FoundObject, ...]


class RebuiltCounts(NamedTuple):
    """What the catalog has now; files_lost: paths that, as the journal says, were in chunks that are not there."""

    chunks: int
    copies: int
    files: int
    bytes: int
    retired_files: int
    journal_records: int
    files_lost: int


class Rebuilding:
    """The way from stores to a catalog."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    @contextmanager
    def stage(self, stores: Sequence[str]) -> Iterator["Stage"]:
        """One transaction: what the stage was told is in the catalog when it is left after `settle`, or nothing.
        Nobody else may write meanwhile. stores: their URLs. Raises Conflict if the catalog is not empty, Locked if
        somebody writes to it."""
        with self._connection.transaction() as connection:
            _lock(connection)
            _check_empty(connection)
            connection.execute(statements.TABLES)
            stage = Stage(connection, stores)
            yield stage
            if not stage.is_finalized:
                raise psycopg.Rollback


class Stage:
    """The open transaction. First add_objects and records, then plan, then chunks, then settle."""

    def __init__(self, connection: PgConnection, stores: Sequence[str]) -> None:
        self._connection = connection
        self._stores = list(stores)
        self.is_finalized = False

    def add_objects(self, objects: Sequence[FoundObject]) -> None:
        """Takes objects named like chunks."""
        with self._connection.cursor() as cursor, cursor.copy(statements.COPY_OBJECTS) as copy:
            for found in objects:
                copy.write_row(found)

    def add_record_objects(self, objects: Sequence[tuple[int, UUID, int, int]]) -> None:
        """Takes objects named like journal records: sequence, uuid, store, size in bytes."""
        with self._connection.cursor() as cursor, cursor.copy(statements.COPY_RECORD_OBJECTS) as copy:
            for found in objects:
                copy.write_row(found)

    def records(self) -> Iterator[FoundRecord]:
        """The records that were found, each once, in order."""
        after: tuple[int, UUID] = (0, UUID(int=0))
        while rows := self._connection.execute(statements.RECORDS, (*after, _PAGE_ROWS)).fetchall():
            yield from (FoundRecord(row[0], row[1], tuple(row[2]), tuple(row[3])) for row in rows)
            after = rows[-1][0], rows[-1][1]

    def add_record(self, record: JournalRecord, catalog: UUID | None, files: Iterator[JournalFile] | None) -> None:
        """Takes a record of a catalog, and its files if it has any."""
        chunk: tuple[Any, ...] = record.chunk or (None,) * len(JournalChunk._fields)
        values = (record.sequence, record.uuid, catalog, record.kind, record.happened_at, *chunk)
        row = self._connection.execute(statements.ADD_RECORD, values).fetchone()
        if files is not None and row is not None:
            with self._connection.cursor() as cursor, cursor.copy(statements.COPY_RECORD_FILES) as copy:
                for path, of, start_byte in files:
                    copy.write_row((row[0], start_byte, of, path))

    def discard_other_catalogs(self, catalog: UUID | None) -> list[UUID]:
        """Drop the records of all other catalogs, and every chunk without a record of this one. Returns the chunks
        that no catalog has a record of."""
        self._connection.execute(statements.OTHER_RECORDS, {"catalog": catalog})
        unclaimed = [row[0] for row in self._connection.execute(statements.UNCLAIMED).fetchall()]
        for statement in statements.LEAVE_OTHERS:
            self._connection.execute(statement)
        return unclaimed

    def number_records(self) -> list[tuple[int, UUID]]:
        """Gives each record its journal.id: the number in its name; where two have the same one, the next that is
        free. Returns number and uuid of those that got another one."""
        return [(row[0], row[1]) for row in self._connection.execute(statements.NUMBER_RECORDS).fetchall()]

    def plan(self) -> tuple[int, int]:
        """Decides which chunks are to be in the catalog, and their numbers: in the order in which they were begun.
        Returns how many, and the bytes of the indexes that the journal knows of."""
        self._connection.execute(statements.PLAN)
        row = self._connection.execute(statements.PLANNED).fetchone()
        return (int(row[0]), int(row[1])) if row else (0, 0)

    def chunks(self) -> Iterator[PlannedChunk]:
        """The chunks of the plan, by number."""
        after = 0
        while rows := self._connection.execute(statements.CHUNKS, (after, _PAGE_ROWS)).fetchall():
            yield from (_planned(row) for row in rows)
            after = rows[-1][0]

    def add_chunk(
        self,
        chunk_id: int,
        first: FoundObject,
        copies: Sequence[FoundObject],
        summary: ChunkSummary,
        mapping: Mapping,
        *,
        archive_format: str,
        units: ArchiveUnits,
    ) -> None:
        """Takes a chunk whose index was read: where it is, where its copies are, all its files and log files."""
        statement = f"COPY entries ({COLUMNS}) FROM STDIN (FORMAT BINARY)".encode()
        with self._connection.cursor() as cursor, cursor.copy(statement) as copy:
            for block in mapping.blocks():
                copy.write(block)
        values = summary._asdict() | {
            "id": chunk_id,
            "store": self._stores[first.store],
            "object_key": first.object_key,
            "format": archive_format,
        }
        self._connection.execute(statements.READ_CHUNK, values)
        copy_units(self._connection, chunk_id, units, "found_")
        for copied in copies:
            row = (chunk_id, self._stores[copied.store], copied.object_key)
            self._connection.execute(statements.ADD_COPY, row)

    def add_backups(self, backups: Sequence[tuple[int, str, int, str]]) -> None:
        """Takes backups of catalogs that are in the stores: store, key, size in bytes, when begun (ISO 8601)."""
        for store, key, size_bytes, begun_at in backups:
            add_store(self._connection, self._stores[store])
            self._connection.execute(
                statements.ADD_BACKUP, (self._stores[store], key, size_bytes, begun_at, begun_at)
            )

    def finalize(self, identity: UUID, last_sequence: int, losses: Sequence[str]) -> RebuiltCounts:
        """Fills the catalog. identity: the one that it has from now on; last_sequence: no later record may have
        this number or a lower one; losses: what could not be taken, a line each."""
        set_catalog_uuid(self._connection, identity)
        self._connection.execute(statements.RECORDS_OF_ADOPTED, {"last": last_sequence})
        for statement in statements.SETTLE:
            self._connection.execute(statement)
        for loss in losses:
            self._connection.execute("INSERT INTO events (kind, detail) VALUES ('rebuild_lost', %s)", [loss])
        row = self._connection.execute(statements.COUNTS).fetchone()
        assert row is not None  # noqa: S101 - an aggregate gives one row
        counts = RebuiltCounts(*map(int, row))
        detail = ", ".join(f"{count} {name}" for name, count in counts._asdict().items())
        self._connection.execute("INSERT INTO events (kind, detail) VALUES ('catalog_rebuilt', %s)", [detail])
        self._connection.execute(statements.SEQUENCES, {"last": last_sequence})
        self.is_finalized = True
        return counts


def _lock(connection: PgConnection) -> None:
    """The order is that of those who write."""
    connection.execute("SET LOCAL statement_timeout = 0; SET LOCAL idle_in_transaction_session_timeout = 0")
    connection.execute("SET LOCAL work_mem = '64MB'; SET LOCAL client_min_messages = warning")
    tables = "chunks, file_locations, retired_locations, journal, journal_files"
    try:
        acquire(connection, f"LOCK TABLE {tables} IN SHARE ROW EXCLUSIVE MODE", default_seconds=0)
    except CatalogLocked as error:
        raise Locked(f"somebody else writes to the catalog: {error.message}", hint=error.hint) from error


def _check_empty(connection: PgConnection) -> None:
    row = connection.execute(statements.IS_FILLED).fetchone()
    if row is not None and row[0]:
        hint = "point --database-url to an empty database (cafcat db init), or --home to a new folder"
        raise Conflict("the catalog is not empty: a rebuild fills an empty one", hint=hint)


def _planned(row: Sequence[Any]) -> PlannedChunk:
    *values, stores, keys, sizes = row
    objects = [FoundObject(store, row[1], key, size) for store, key, size in zip(stores, keys, sizes, strict=True)]
    return PlannedChunk._make((*values, tuple(objects)))
