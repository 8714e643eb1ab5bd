"""The order of all changes of file_locations, and which stores still have to be told of them.

A chunk says which files it has. What it cannot say - which of two chunks came later, which files were skipped,
removed or brought back - is in the journal, and a copy of each of its records is beside the chunks: a rebuild needs
no more than a store (docs/decisions/0012).
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple
from uuid import UUID, uuid4

from cafcat.catalog.connection import Connection, PgConnection
from cafcat.catalog.history.runs import iso
from cafcat.catalog.locking import acquire
from cafcat.model import JournalKind

__all__ = ["Journal", "JournalChunk", "JournalFile", "JournalRecord", "append"]

_PAGE_ROWS: Final = 5000
_LOCK: Final = 0x6A6F726E
"""Of advisory locks (PostgreSQL documentation, 13.3.5): "jorn"."""
_RECORD: Final = f"""
SELECT j.id, j.uuid, j.kind, {iso("j.happened_at")}, j.unwritten, c.id, c.uuid, c.format, c.object_key,
       c.size_bytes, c.data_bytes, c.index_start_byte, c.index_end_byte, c.file_count, c.crc64nvme, c.index_crc32c,
       {iso("c.begun_at")}, (SELECT uuid FROM catalog_identity)
FROM journal AS j LEFT JOIN chunks AS c ON c.id = j.chunk_id
"""  # noqa: S608
_UNWRITTEN: Final = _RECORD + "WHERE j.unwritten <> '{}' AND j.unwritten && %s ORDER BY j.id LIMIT 1000"


class JournalChunk(NamedTuple):
    """The chunk that a journal record says was committed, as in `chunks`; begun_at: ISO 8601 in UTC. The names
    of the fields, in their order, are what is written (docs/formats/journal.md)."""

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


class JournalRecord(NamedTuple):
    """One change of file_locations. sequence: its place in the order; unwritten: URLs of stores that lack it.
    catalog: identity of the catalog that changed; None in objects of earlier versions."""

    sequence: int
    uuid: UUID
    kind: JournalKind
    happened_at: str
    unwritten: tuple[str, ...]
    chunk: JournalChunk | None
    catalog: UUID | None = None


class JournalFile(NamedTuple):
    """A file that a record is about: what its path pointed to, or points to again."""

    path: str
    chunk: UUID
    start_byte: int


def append(connection: PgConnection, kind: JournalKind, stores: Sequence[str], chunk_id: int | None = None) -> int:
    """Adds a record, at the end of the caller's transaction, when it has all its locks: then of two changes of one
    path the later one has the higher number. Returns journal.id."""
    statement = "INSERT INTO journal (chunk_id, uuid, kind, unwritten) VALUES (%s, %s, %s, %s) RETURNING id"
    row = connection.execute(statement, (chunk_id, uuid4(), kind, list(stores))).fetchone()
    assert row is not None  # noqa: S101 - RETURNING of one inserted row
    return int(row[0])


_WAIT_SECONDS: Final = 30.0
"""How long a writer of the journal waits for another one, in seconds, if no --lock-timeout is given."""


class Journal:
    """Every method is one transaction."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    @contextmanager
    def exclusively(self, store: str) -> Iterator[None]:
        """While it is entered, nobody else is in it for that store, nor after this process died. What is noted
        meanwhile counts when it is left. Raises CatalogUnavailable after half a minute of waiting."""
        with self._connection.transaction() as connection:
            acquire(
                connection,
                "SELECT pg_advisory_xact_lock(%s, hashtext(%s))",
                (_LOCK, store),
                default_seconds=_WAIT_SECONDS,
            )
            yield

    def unwritten(self, stores: Sequence[str]) -> list[JournalRecord]:
        """Records that one of these stores does not have yet, in order; a thousand at most."""
        with self._connection.statement() as connection:
            rows = connection.execute(_UNWRITTEN.encode(), [list(stores)]).fetchall()
        return [_record(row) for row in rows]

    def of_chunk(self, chunk_id: int) -> list[JournalRecord]:
        """The records that say that a chunk was committed; written or not."""
        statement = _RECORD + "WHERE j.chunk_id = %s ORDER BY j.id"
        with self._connection.statement() as connection:
            return [_record(row) for row in connection.execute(statement.encode(), [chunk_id]).fetchall()]

    def find_existing(self, records: Sequence[UUID]) -> set[UUID]:
        """Return those of these records (journal.uuid) that are changes of this catalog."""
        statement = "SELECT uuid FROM journal WHERE uuid = ANY(%s)"
        with self._connection.statement() as connection:
            return {row[0] for row in connection.execute(statement, [list(records)]).fetchall()}

    def files(self, sequence: int) -> Iterator[JournalFile]:
        """The files that a record is about, in path order."""
        statement = (
            "SELECT f.file_path, c.uuid, f.start_byte "
            "FROM (SELECT * FROM journal_files "
            "WHERE journal_id = %s AND file_path > %s ORDER BY file_path LIMIT %s) AS f "
            "JOIN chunks AS c ON c.id = f.caf_file_id ORDER BY f.file_path"
        )
        after = ""
        while True:
            with self._connection.by_index() as connection:
                rows = connection.execute(statement, (sequence, after, _PAGE_ROWS)).fetchall()
            yield from (JournalFile(*row) for row in rows)
            if len(rows) < _PAGE_ROWS:
                return
            after = rows[-1][0]

    def removals(self, after: int, until: int | None) -> Iterator[JournalRecord]:
        """The records that say what was removed or brought back, in order, of the places `(after, until]`; a page
        at a time."""
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

    def add_pending_store(self, sequence: int, store: str) -> bool:
        """Has a record written to a further store, if another still waits for it. False if none does: then its
        files are not known here any more."""
        statement = (
            "UPDATE journal SET unwritten = array_append(array_remove(unwritten, %s), %s) "
            "WHERE id = %s AND unwritten <> '{}'"
        )
        with self._connection.statement() as connection:
            return connection.execute(statement, (store, store, sequence)).rowcount == 1

    def record_written(self, sequence: int, store: str) -> None:
        """Notes that a store has a record. When all have it, its files need not be kept here."""
        note = "UPDATE journal SET unwritten = array_remove(unwritten, %s) WHERE id = %s RETURNING unwritten"
        with self._connection.by_index() as connection:
            row = connection.execute(note, (store, sequence)).fetchone()
            if row is not None and not row[0]:
                connection.execute("DELETE FROM journal_files WHERE journal_id = %s", [sequence])


def _record(row: Sequence[Any]) -> JournalRecord:
    sequence, uuid, kind, happened_at, unwritten, chunk_id, *chunk, catalog = row
    of = None if chunk_id is None else JournalChunk(*chunk)
    return JournalRecord(sequence, uuid, JournalKind(kind), happened_at, tuple(unwritten), of, catalog)
