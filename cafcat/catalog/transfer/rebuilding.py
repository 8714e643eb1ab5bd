"""The rebuild of a catalog: one transaction fills an empty catalog with chunks and journal records from stores.

The objects and records are copied into temporary tables first, in the order in which they are found. Then a few
statements on these tables determine the location of each path. docs/formats/journal.md has the rules.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple
from uuid import UUID

import psycopg

from cafcat.catalog.connection import Connection, PgConnection
from cafcat.catalog.files.log_units import copy_units
from cafcat.catalog.files.mapping import COLUMNS, Mapping
from cafcat.catalog.history.events import record_event
from cafcat.catalog.history.journal import JournalChunk, JournalFile, JournalOrigin, JournalRecord
from cafcat.catalog.locking import acquire
from cafcat.catalog.stores.identity import set_catalog_uuid
from cafcat.catalog.stores.stores import add_store
from cafcat.catalog.transfer import rebuilding_sql as statements
from cafcat.catalog.transfer.dump import HOW_TO_EMPTY
from cafcat.errors import CatalogLocked, Conflict, Locked
from cafcat.model import ArchiveUnits, ChunkSummary

__all__ = ["FoundObject", "FoundRecord", "PlannedChunk", "Rebuilding", "RebuiltCounts", "Stage"]

_PAGE_ROWS: Final = 500


class FoundObject(NamedTuple):
    """An object in a store with the name of a chunk.

    Attributes:
        store: Position of the store in the list of stores.
        uuid: UUID in the name of the object.
        object_key: Key of the object in its store.
        size_bytes: Size of the object.
    """

    store: int
    uuid: UUID
    object_key: str
    size_bytes: int


class FoundRecord(NamedTuple):
    """A journal record that was found in stores.

    Attributes:
        sequence: journal.id in its name.
        uuid: UUID in its name.
        stores: Positions of the stores that have it.
        sizes: Size of its object in each of these stores, in bytes.
    """

    sequence: int
    uuid: UUID
    stores: tuple[int, ...]
    sizes: tuple[int, ...]


class PlannedChunk(NamedTuple):
    """A chunk with an object or a journal record. The rebuilt catalog has it if an object's index can be read.

    All attributes except `id`, `uuid` and `objects` come from the journal record of its commit. They are None if
    there is no such record.

    Attributes:
        id: chunks.id in the rebuilt catalog.
        uuid: Name of the chunk outside SQL.
        sequence: journal.id of its commit.
        format: Format of the archive.
        size_bytes: Size of its object.
        index_start_byte: First byte of the object's own index.
        index_end_byte: One past the last byte of that index.
        file_count: Number of files in that index.
        index_crc32c: CRC-32C of the object from `index_start_byte` to its end.
        objects: The objects with its UUID in their names, in the order of the stores; empty if none was found.
    """

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
    """The contents of the rebuilt catalog.

    Attributes:
        chunks: Number of chunks.
        copies: Number of copies of chunks.
        files: Number of live files.
        bytes: Their total size.
        retired_files: Number of retired locations.
        journal_records: Number of journal records.
        files_lost: Number of paths whose last change is a restoration to a chunk that was not found or not read.
    """

    chunks: int
    copies: int
    files: int
    bytes: int
    retired_files: int
    journal_records: int
    files_lost: int


class Rebuilding:
    """Opens the transaction that fills this empty catalog from the contents of stores."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    @contextmanager
    def stage(self, stores: Sequence[str]) -> Iterator["Stage"]:
        """Open a transaction that fills the catalog. It is committed after `Stage.finalize`, else rolled back.

        It locks the tables of chunks, locations and the journal, so that no other command can commit, remove or
        restore files meanwhile.

        Args:
            stores: URLs of the stores.

        Raises:
            Conflict: The catalog has chunks, locations or journal records.
            Locked: Another session is writing to these tables, for longer than --lock-timeout if that is given.
        """
        with self._connection.transaction() as connection:
            _lock(connection)
            _check_empty(connection)
            connection.execute(statements.TABLES)
            stage = Stage(connection, stores)
            yield stage
            if not stage.is_finalized:
                raise psycopg.Rollback


class Stage:
    """The open transaction of a rebuild, with temporary tables of the rows found in the stores.

    The order of calls is: add_objects and add_record_objects; records with add_record for each;
    discard_other_catalogs, if the records have several catalogs; number_records; plan; chunks with add_chunk for
    each; order_changes; add_backups; finalize.

    Attributes:
        is_finalized: True after `finalize`: the transaction will be committed.
    """

    def __init__(self, connection: PgConnection, stores: Sequence[str]) -> None:
        self._connection = connection
        self._stores = list(stores)
        self.is_finalized = False

    def add_objects(self, objects: Sequence[FoundObject]) -> None:
        """Add found objects, whose names are those of chunks, to the temporary tables."""
        with self._connection.cursor() as cursor, cursor.copy(statements.COPY_OBJECTS) as copy:
            for found in objects:
                copy.write_row(found)

    def add_record_objects(self, objects: Sequence[tuple[int, UUID, int, int]]) -> None:
        """Add found objects, whose names are those of journal records, to the temporary tables.

        Args:
            objects: For each object, journal.id and UUID in its name, position of its store, and size in bytes.
        """
        with self._connection.cursor() as cursor, cursor.copy(statements.COPY_RECORD_OBJECTS) as copy:
            for found in objects:
                copy.write_row(found)

    def records(self) -> Iterator[FoundRecord]:
        """Yield each journal record once, with all stores that have it, ordered by the journal.id in its name."""
        after: tuple[int, UUID] = (0, UUID(int=0))
        while rows := self._connection.execute(statements.RECORDS, (*after, _PAGE_ROWS)).fetchall():
            yield from (FoundRecord(row[0], row[1], tuple(row[2]), tuple(row[3])) for row in rows)
            after = rows[-1][0], rows[-1][1]

    def add_record(
        self,
        record: JournalRecord,
        catalog: UUID | None,
        files: Iterator[JournalFile] | None,
        origins: Iterable[JournalOrigin] = (),
    ) -> None:
        """Add the content of a journal record, which was read from a store, to the temporary tables.

        Args:
            record: The record.
            catalog: UUID of the catalog that wrote the record; None if unknown.
            files: The files of the record; None if it has none.
            origins: Where the files of a moved chunk came from.
        """
        chunk: tuple[Any, ...] = record.chunk or (None,) * len(JournalChunk._fields)
        values = (record.sequence, record.uuid, catalog, record.kind, record.happened_at, *chunk)
        row = self._connection.execute(statements.ADD_RECORD, values).fetchone()
        assert row is not None  # noqa: S101 - RETURNING of one inserted row
        if record.run is not None:
            self._connection.execute(statements.ADD_RUN, (row[0], *record.run, True))
        self._add_origins(row[0], origins)
        if files is not None:
            with self._connection.cursor() as cursor, cursor.copy(statements.COPY_RECORD_FILES) as copy:
                for path, chunk_uuid, start_byte in files:
                    copy.write_row((row[0], start_byte, chunk_uuid, path))

    def _add_origins(self, number: int, origins: Iterable[JournalOrigin]) -> None:
        first = 0
        for files, run, since in origins:
            if run is not None:
                self._connection.execute(statements.ADD_RUN, (number, *run, False))
            run_id = None if run is None else run.id
            self._connection.execute(statements.ADD_ORIGIN, (number, first, first + files, run_id, since))
            first += files

    def discard_other_catalogs(self, catalog: UUID | None) -> list[UUID]:
        """Drop the records of all catalogs but one, and the objects of all chunks without a record of this catalog.

        They are dropped from the temporary tables only. The objects stay in the stores.

        Args:
            catalog: UUID of the catalog to rebuild; None to rebuild from the records of earlier versions, which
                have no UUID.

        Returns:
            UUIDs of the chunks without a record of any catalog, which are dropped, too.
        """
        self._connection.execute(statements.OTHER_RECORDS, {"catalog": catalog})
        unclaimed = [row[0] for row in self._connection.execute(statements.UNCLAIMED).fetchall()]
        for statement in statements.DISCARD_OTHERS:
            self._connection.execute(statement)
        return unclaimed

    def number_records(self) -> list[tuple[int, UUID]]:
        """Assign a journal.id to each record: the number in its name, or a higher one if that number is in use.

        Returns:
            Number in the name, and UUID, of the records that got another number.
        """
        return [(row[0], row[1]) for row in self._connection.execute(statements.NUMBER_RECORDS).fetchall()]

    def plan(self) -> tuple[int, int]:
        """Assign a value of chunks.id to each chunk with an object or a record, in the order of their begin.

        Chunks without a record come last.

        Returns:
            Number of chunks, and the total size of their indexes in bytes. Indexes of chunks without a record are
            not counted.
        """
        self._connection.execute(statements.PLAN)
        row = self._connection.execute(statements.PLANNED).fetchone()
        return (int(row[0]), int(row[1])) if row else (0, 0)

    def chunks(self) -> Iterator[PlannedChunk]:
        """Yield the chunks to which `plan` assigned values of chunks.id, in this order."""
        after = 0
        while rows := self._connection.execute(statements.CHUNKS, (after, _PAGE_ROWS)).fetchall():
            yield from (_planned(row) for row in rows)
            after = rows[-1][0]

    def add_chunk(
        self,
        chunk_id: int,
        found: FoundObject,
        copies: Sequence[FoundObject],
        summary: ChunkSummary,
        mapping: Mapping,
        *,
        archive_format: str,
        units: ArchiveUnits,
    ) -> None:
        """Add a chunk, whose index was read from a store, to the temporary tables.

        Args:
            chunk_id: chunks.id from the plan.
            found: The object that becomes the chunk itself.
            copies: Further objects with the same bytes.
            summary: Sizes and checksums of the object.
            mapping: The files of the chunk.
            archive_format: Name of its format.
            units: The log files and times of an archive of logs.
        """
        statement = f"COPY entries ({COLUMNS}) FROM STDIN (FORMAT BINARY)".encode()
        with self._connection.cursor() as cursor, cursor.copy(statement) as copy:
            for block in mapping.blocks():
                copy.write(block)
        values = summary._asdict() | {
            "id": chunk_id,
            "store": self._stores[found.store],
            "object_key": found.object_key,
            "format": archive_format,
        }
        self._connection.execute(statements.READ_CHUNK, values)
        copy_units(self._connection, chunk_id, units, "found_")
        for copied in copies:
            row = (chunk_id, self._stores[copied.store], copied.object_key)
            self._connection.execute(statements.ADD_COPY, row)

    def add_backups(self, backups: Sequence[tuple[int, str, int, str]]) -> None:
        """Insert rows of backups that were found in the stores, and rows of these stores, into the catalog.

        Args:
            backups: For each backup, position of its store, object key, size in bytes, and start (ISO 8601, UTC).
        """
        for store, key, size_bytes, begun_at in backups:
            add_store(self._connection, self._stores[store])
            self._connection.execute(
                statements.ADD_BACKUP, (self._stores[store], key, size_bytes, begun_at, begun_at)
            )

    def order_changes(self, last_sequence: int, left_out: Sequence[UUID]) -> Iterator[tuple[str, UUID]]:
        """Order all changes of each path.

        Args:
            last_sequence: Chunks without a record get a record with a higher journal.id than this.
            left_out: Chunks of the plan that could not be read, and are not reported as lost.

        Yields:
            Each path whose last change restored a file in an unknown chunk or in one of `left_out`, and the UUID of
            that chunk. Of an unknown chunk, neither a record of its commit nor an object was found.
        """
        self._connection.execute(statements.RECORDS_OF_ADOPTED, {"last": last_sequence})
        for statement in statements.ORDER_CHANGES:
            self._connection.execute(statement)
        with self._connection.cursor("lost_files") as cursor:
            yield from cursor.execute(statements.LOST_FILES, {"left_out": list(left_out)})

    def finalize(self, identity: UUID, last_sequence: int, losses: Sequence[str]) -> RebuiltCounts:
        """Fill the tables of the catalog from the temporary tables.

        Args:
            identity: UUID of the catalog from now on.
            last_sequence: Later journal records get a higher journal.id than this.
            losses: A line for each damaged or missing object whose content is lost. They are stored as events.

        Returns:
            The numbers of chunks, files and other rows that the catalog has now.
        """
        set_catalog_uuid(self._connection, identity)
        for (store,) in self._connection.execute(statements.STORES).fetchall():
            add_store(self._connection, store)
        for statement in statements.FINALIZE:
            self._connection.execute(statement)
        for loss in losses:
            record_event(self._connection, "rebuild_lost", loss)
        row = self._connection.execute(statements.COUNTS).fetchone()
        assert row is not None  # noqa: S101 - an aggregate gives one row
        counts = RebuiltCounts(*map(int, row))
        detail = ", ".join(f"{count} {name}" for name, count in counts._asdict().items())
        record_event(self._connection, "catalog_rebuilt", detail)
        self._connection.execute(statements.SEQUENCES, {"last": last_sequence})
        self.is_finalized = True
        return counts


def _lock(connection: PgConnection) -> None:
    """Lock chunks, locations and journal against other writers, in the order in which writers lock these tables."""
    connection.execute("SET LOCAL statement_timeout = 0; SET LOCAL idle_in_transaction_session_timeout = 0")
    connection.execute("SET LOCAL work_mem = '64MB'; SET LOCAL client_min_messages = warning")
    tables = "chunks, file_locations, retired_locations, journal, journal_files"
    try:
        acquire(connection, f"LOCK TABLE {tables} IN SHARE ROW EXCLUSIVE MODE", default_seconds=0)
    except CatalogLocked as error:
        raise Locked(f"another command is writing to the catalog: {error.message}", hint=error.hint) from error


def _check_empty(connection: PgConnection) -> None:
    row = connection.execute(statements.IS_FILLED).fetchone()
    if row is not None and row[0]:
        raise Conflict("the catalog is not empty: a rebuild needs an empty one", hint=HOW_TO_EMPTY)


def _planned(row: Sequence[Any]) -> PlannedChunk:
    *values, stores, keys, sizes = row
    objects = [FoundObject(store, row[1], key, size) for store, key, size in zip(stores, keys, sizes, strict=True)]
    return PlannedChunk._make((*values, tuple(objects)))
