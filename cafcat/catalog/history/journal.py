"""The journal: an ordered record of each commit of a chunk, removal and restoration, and the stores that need it.

A chunk lists its own files. The journal has all that a chunk cannot have: which of two chunks came later, and which
files were skipped, removed or restored. Each record is also written into stores, beside the chunks. Therefore a
rebuild needs only the stores (docs/decisions/0012). `cafcat adopt` writes no record.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple
from uuid import UUID, uuid4

from cafcat.catalog.connection import Connection, PgConnection
from cafcat.catalog.history.runs import iso
from cafcat.catalog.locking import acquire
from cafcat.model import JournalKind

__all__ = [
    "MOST_UNWRITTEN",
    "Journal",
    "JournalChunk",
    "JournalFile",
    "JournalOrigin",
    "JournalRecord",
    "JournalRun",
    "JournalStore",
    "append",
]

_PAGE_ROWS: Final = 5000
_LOCK: Final = 0x6A6F726E
"""First key of the journal's advisory locks (PostgreSQL documentation, 13.3.5): "jorn" in ASCII."""
_STORES: Final = """
SELECT coalesce(json_agg(json_build_array(uuid, url, has_chunks, name) ORDER BY id), '[]')
FROM (SELECT id, uuid, url, name,
             EXISTS (SELECT FROM chunks WHERE store = url AND adopted_prefix IS NULL
                     AND state IN ('committed', 'retired') OFFSET 0) AS has_chunks,
             EXISTS (SELECT FROM chunk_copies WHERE store = url AND state = 'committed' AND retired_at IS NULL
                     AND deleted_at IS NULL OFFSET 0) AS has_copies
      FROM stores WHERE uuid IS NOT NULL) AS used WHERE has_chunks OR has_copies
"""
_MOST_RETIRED: Final = 500
"""Largest number of damaged retired chunks in a record. A line of a record has at most 64 KiB."""
_DAMAGED_RETIRED: Final = f"""
SELECT coalesce(array_agg(uuid ORDER BY id), '{{}}')
FROM (SELECT id, uuid FROM chunks WHERE state = 'retired' AND cafcat_ops.is_broken(id, NULL)
      ORDER BY retired_at DESC LIMIT {_MOST_RETIRED}) AS damaged
"""  # noqa: S608
_RECORD: Final = f"""
SELECT j.id, j.uuid, j.kind, {iso("j.happened_at")}, j.unwritten, r.id, {iso("r.started_at")}, r.host,
       r.cafcat_version, c.id, c.uuid, c.format, c.object_key,
       c.size_bytes, c.data_bytes, c.index_start_byte, c.index_end_byte, c.file_count, c.crc64nvme, c.index_crc32c,
       {iso("c.begun_at")}, (SELECT uuid FROM catalog_identity), ({_STORES}),
       ({_DAMAGED_RETIRED})
FROM journal AS j LEFT JOIN chunks AS c ON c.id = j.chunk_id LEFT JOIN ingest_runs AS r ON r.id = c.run_id
"""  # noqa: S608
# Files are numbered in the order of their bytes. Among neighbours with one run and time, the number grows as fast
# as the number among all files with this run and time, so the difference is the same for all of them.
_ORIGINS: Final = f"""
SELECT o.files, {iso("o.since")}, r.id, {iso("r.started_at")}, r.host, r.cafcat_version
FROM (SELECT count(*) AS files, run_id, since, min(number) AS first
      FROM (SELECT ingest_run_id AS run_id, current_since AS since,
                   row_number() OVER (ORDER BY start_byte, end_byte, file_path) AS number,
                   row_number() OVER (ORDER BY start_byte, end_byte, file_path)
                   - row_number() OVER (PARTITION BY ingest_run_id, current_since
                                        ORDER BY start_byte, end_byte, file_path) AS neighbours
            FROM (SELECT ingest_run_id, current_since, start_byte, end_byte, file_path, caf_file_id FROM
            file_locations
                  WHERE caf_file_id = (SELECT id FROM chunks WHERE uuid = %s)
                  UNION ALL
                  SELECT ingest_run_id, current_since, start_byte, end_byte, file_path, caf_file_id
                  FROM retired_locations WHERE caf_file_id = (SELECT id FROM chunks WHERE uuid = %s)) AS entries
           ) AS numbered
      GROUP BY run_id, since, neighbours) AS o
LEFT JOIN ingest_runs AS r ON r.id = o.run_id ORDER BY o.first
"""  # noqa: S608
MOST_UNWRITTEN: Final = 1000
"""Largest number of records that `Journal.unwritten` returns."""
_OF_STORES: Final = "WHERE j.unwritten <> '{}' AND j.unwritten && %s"
_UNWRITTEN: Final = _RECORD + f"{_OF_STORES} ORDER BY j.id LIMIT {MOST_UNWRITTEN}"
_HAS_UNWRITTEN: Final = f"SELECT EXISTS (SELECT FROM journal AS j {_OF_STORES})"  # noqa: S608


class JournalChunk(NamedTuple):
    """The chunk whose commit a journal record describes, with columns of `chunks`.

    The journal's objects contain these fields under these names and in this order (docs/formats/journal.md).

    Attributes:
        uuid: UUID of the chunk.
        format: Format of the chunk.
        object_key: Key of the chunk's object.
        size_bytes: Size of that object.
        data_bytes: Total size of the files' bytes in it.
        index_start_byte: First byte of the object's own index.
        index_end_byte: One past the last byte of that index.
        file_count: Number of files in that index.
        crc64nvme: CRC-64/NVME of the object in base64; None if unknown.
        index_crc32c: CRC-32C of the object from `index_start_byte` to its end; None if unknown.
        begun_at: When the chunk was begun: ISO 8601, UTC.
    """

    uuid: UUID
    format: str
    object_key: str
    size_bytes: int
    data_bytes: int
    index_start_byte: int
    index_end_byte: int
    file_count: int
    crc64nvme: str | None
    index_crc32c: int | None
    begun_at: str


class JournalRun(NamedTuple):
    """The ingest that brought a chunk or a file, with columns of `ingest_runs`.

    Attributes:
        id: Number of the run.
        started_at: When the run began: ISO 8601, UTC.
        host: Host name of the writer.
        version: Version of cafcat.
    """

    id: int
    started_at: str
    host: str
    version: str


class JournalStore(NamedTuple):
    """A store in which a catalog has chunks or copies.

    Attributes:
        uuid: Identity of the store, as in its markers.
        url: URL of the store.
        chunks: True if chunks are read from the store. False if the store only has copies of chunks.
        name: Name of the store in the catalog; None if it has none, and in objects of earlier versions.
    """

    uuid: UUID
    url: str
    chunks: bool
    name: str | None = None


class JournalRecord(NamedTuple):
    """A journal record: the commit of one chunk, or one removal or restoration of files.

    Attributes:
        sequence: journal.id, the position of the change in the order of changes.
        uuid: UUID of the record.
        kind: Kind of the change.
        happened_at: Start of the transaction that made the change: ISO 8601, UTC.
        unwritten: URLs of the stores into which the record still has to be written.
        chunk: The chunk that was committed; None if the record is about removed or restored files.
        catalog: UUID of the catalog that changed; None in objects that earlier versions of cafcat wrote.
        run: The ingest that wrote the chunk; None if none did, and in objects of earlier versions.
        stores: The stores of the catalog at the time when the record was written; empty in objects of earlier
            versions.
        damaged_retired: Chunks without live files that a check had found damaged or missing when the record was
            written: the last 500 of them. A rebuild does not need these chunks.
    """

    sequence: int
    uuid: UUID
    kind: JournalKind
    happened_at: str
    unwritten: tuple[str, ...]
    chunk: JournalChunk | None
    catalog: UUID | None = None
    run: JournalRun | None = None
    stores: tuple[JournalStore, ...] = ()
    damaged_retired: tuple[UUID, ...] = ()


class JournalOrigin(NamedTuple):
    """Where consecutive files of a moved chunk came from, in the order of their bytes and then of their paths.

    Attributes:
        files: Number of files.
        run: The ingest that brought them; None if no ingest did.
        since: Since when their paths have this content: ISO 8601, UTC. None for files that were skipped.
    """

    files: int
    run: JournalRun | None
    since: str | None


class JournalFile(NamedTuple):
    """A file of a journal record: one that was skipped, removed or restored.

    Attributes:
        path: Path of the file.
        chunk: UUID of the chunk that contains the file.
        start_byte: First byte of the file in that chunk.
    """

    path: str
    chunk: UUID
    start_byte: int


def append(connection: PgConnection, kind: JournalKind, stores: Sequence[str], chunk_id: int | None = None) -> int:
    """Append a record to the journal, at the end of the caller's transaction.

    The transaction must have acquired all its locks before. Therefore, of two changes of the same path, the later
    one has the higher journal.id.

    Args:
        connection: A connection with an open transaction.
        kind: Kind of the change.
        stores: URLs of the stores into which the record has to be written.
        chunk_id: chunks.id of the chunk that is committed; None for removals and restorations.

    Returns:
        journal.id of the record.
    """
    statement = "INSERT INTO journal (chunk_id, uuid, kind, unwritten) VALUES (%s, %s, %s, %s) RETURNING id"
    row = connection.execute(statement, (chunk_id, uuid4(), kind, list(stores))).fetchone()
    assert row is not None  # noqa: S101 - RETURNING of one inserted row
    return int(row[0])


_WAIT_SECONDS: Final = 30.0
"""How long a process waits by default for another one that writes records into the same store, in seconds."""


class Journal:
    """Queries on the rows of `journal`. Every method is one transaction, or one for each page."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    @contextmanager
    def exclusively(self, store_url: str) -> Iterator[None]:
        """Open a transaction in which no other process writes journal records into this store.

        The transaction holds an advisory lock. The server releases the lock when the transaction ends, or if this
        process dies. Changes by `record_written` inside the `with` block are committed at its end.

        Raises:
            CatalogLocked: The lock was not free within --lock-timeout, by default within 30 seconds.
            CatalogUnavailable, CatalogOutdated: The database does not answer, or has another schema.
        """
        with self._connection.transaction() as connection:
            acquire(
                connection,
                "SELECT pg_advisory_xact_lock(%s, hashtext(%s))",
                (_LOCK, store_url),
                default_seconds=_WAIT_SECONDS,
            )
            yield

    def has_unwritten(self, store: str) -> bool:
        """Return True if a store does not have all records yet. This is faster than `unwritten`.

        Args:
            store: URL of the store.
        """
        with self._connection.statement(read_only=True) as connection:
            [(found,)] = connection.execute(_HAS_UNWRITTEN.encode(), [[store]]).fetchall()
        return bool(found)

    def unwritten(self, stores: Sequence[str]) -> list[JournalRecord]:
        """Return the first 1,000 records that at least one of these stores does not have yet, by journal.id.

        Args:
            stores: URLs of the stores.
        """
        with self._connection.statement() as connection:
            rows = connection.execute(_UNWRITTEN.encode(), [list(stores)]).fetchall()
        return list(map(_record, rows))

    def of_chunk(self, chunk_id: int) -> list[JournalRecord]:
        """Return the journal records of the chunk with this chunks.id, whether stores have the records or not."""
        statement = _RECORD + "WHERE j.chunk_id = %s ORDER BY j.id"
        with self._connection.statement() as connection:
            return [_record(row) for row in connection.execute(statement.encode(), [chunk_id]).fetchall()]

    def find_existing(self, records: Sequence[UUID]) -> set[UUID]:
        """Return the UUIDs, of those given, for which this catalog has a journal record."""
        statement = "SELECT uuid FROM journal WHERE uuid = ANY(%s)"
        with self._connection.statement() as connection:
            return {row[0] for row in connection.execute(statement, [list(records)]).fetchall()}

    def files(self, sequence: int) -> Iterator[JournalFile]:
        """Yield the files that a record lists as removed, restored or skipped, in path order.

        The list is deleted when all stores that need the record have it (`record_written`). Each query returns at
        most 5,000 files.

        Args:
            sequence: journal.id.
        """
        statement = (
            "SELECT f.file_path, c.uuid, f.start_byte "
            "FROM (SELECT * FROM journal_files "
            "WHERE journal_id = %s AND file_path > %s ORDER BY file_path LIMIT %s) AS f "
            "JOIN chunks AS c ON c.id = f.caf_file_id ORDER BY f.file_path"
        )
        after = ""
        while True:
            with self._connection.by_index(in_order=True) as connection:
                rows = connection.execute(statement, (sequence, after, _PAGE_ROWS)).fetchall()
            yield from map(JournalFile._make, rows)
            if len(rows) < _PAGE_ROWS:
                return
            after = rows[-1][0]

    def origins(self, chunk: UUID) -> list[JournalOrigin]:
        """Return where the files of a chunk came from that repack or repair wrote.

        Args:
            chunk: UUID of the chunk.

        Returns:
            The origins, each of as many consecutive files as possible: often one for each former chunk.
        """
        with self._connection.by_index() as connection:
            rows = connection.execute(_ORIGINS.encode(), (chunk, chunk)).fetchall()
        return [
            JournalOrigin(files, None if run_id is None else JournalRun(run_id, *run), since)
            for files, since, run_id, *run in rows
        ]

    def removals(self, after: int, until: int | None) -> Iterator[JournalRecord]:
        """Yield the records of removed and of restored files, in order of journal.id.

        Args:
            after: Yield only records with a higher journal.id.
            until: Highest journal.id; None for no limit.
        """
        kinds = [JournalKind.REMOVE, JournalKind.RESTORE]
        statement = _RECORD + (
            "WHERE j.kind = ANY(%s) AND j.id > %s AND j.id <= coalesce(%s, j.id) ORDER BY j.id LIMIT 1000"
        )
        while True:
            with self._connection.statement() as connection:
                rows = connection.execute(statement.encode(), (kinds, after, until)).fetchall()
            if not rows:
                return
            yield from map(_record, rows)
            after = rows[-1][0]

    def add_pending_store(self, sequence: int, store_url: str) -> bool:
        """Add a store to those into which a record must still be written.

        Args:
            sequence: journal.id of the record.
            store_url: URL of the store.

        Returns:
            True if the record must be written into the store now. False if the record is already written into all
            its stores. Then the catalog has deleted the record's list of files, and cannot write the record again.
        """
        statement = (
            "UPDATE journal SET unwritten = array_append(array_remove(unwritten, %s), %s) "
            "WHERE id = %s AND unwritten <> '{}'"
        )
        with self._connection.statement() as connection:
            return connection.execute(statement, (store_url, store_url, sequence)).rowcount == 1

    def record_written(self, sequence: int, store_url: str) -> None:
        """Note in the catalog that a journal record was written into a store.

        When all stores that need the record have it, the catalog's list of the record's files is deleted.

        Args:
            sequence: journal.id of the record.
            store_url: URL of the store.
        """
        update = "UPDATE journal SET unwritten = array_remove(unwritten, %s) WHERE id = %s RETURNING unwritten"
        with self._connection.by_index() as connection:
            row = connection.execute(update, (store_url, sequence)).fetchone()
            if row is not None and not row[0]:
                connection.execute("DELETE FROM journal_files WHERE journal_id = %s", [sequence])


def _record(row: Sequence[Any]) -> JournalRecord:
    sequence, uuid, kind, happened_at, unwritten, *of_chunk, catalog, stores, damaged = row
    run_id, started_at, host, version, chunk_id, *columns = of_chunk
    chunk = None if chunk_id is None else JournalChunk(*columns)
    run = None if run_id is None else JournalRun(run_id, started_at, host, version)
    used = tuple(JournalStore(UUID(identity), *columns) for identity, *columns in stores)
    return JournalRecord(
        sequence, uuid, JournalKind(kind), happened_at, tuple(unwritten), chunk, catalog, run, used, tuple(damaged)
    )
