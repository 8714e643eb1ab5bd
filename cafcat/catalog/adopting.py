"""An archive that is there already, and all its mappings, in one transaction: all or nothing."""

from typing import Final, NamedTuple
from uuid import UUID

from psycopg import errors as pg

from cafcat.catalog.commit import ChunkCommit, Commit, map_files
from cafcat.catalog.connection import Connection, PgConnection
from cafcat.catalog.events import record_event
from cafcat.catalog.log_units import enter_units
from cafcat.catalog.mapping import Mapping
from cafcat.errors import CatalogUnavailable, Conflict
from cafcat.model import ArchiveUnits, OnConflict

__all__ = ["AdoptedArchive", "Adopting"]

_ATTEMPTS: Final = 3
_KNOWN: Final = """
SELECT uuid, state, adopted_prefix IS NOT NULL FROM chunks
WHERE store = %s AND object_key = %s AND (adopted_prefix IS NULL OR state <> 'deleted')
UNION ALL
SELECT c.uuid, k.state, false FROM chunk_copies AS k JOIN chunks AS c ON c.id = k.chunk_id
WHERE k.store = %s AND k.object_key = %s AND k.deleted_at IS NULL
LIMIT 1
"""
_INSERT: Final = """
INSERT INTO chunks (id, uuid, format, store, object_key, state, size_bytes, data_bytes, index_start_byte,
                    index_end_byte, file_count, etag, adopted_prefix)
OVERRIDING SYSTEM VALUE
VALUES (%(id)s, %(uuid)s, %(format)s, %(store)s, %(object_key)s, 'writing', %(size_bytes)s, %(data_bytes)s,
        %(size_bytes)s, %(size_bytes)s, %(file_count)s, %(etag)s, %(prefix)s)
"""
_COMMITTED: Final = """
UPDATE chunks SET state = CASE WHEN %(live)s > 0 THEN 'committed' ELSE 'retired' END, committed_at = now(),
       retired_at = CASE WHEN %(live)s > 0 THEN NULL ELSE now() END, live_file_count = %(live)s,
       live_bytes = %(bytes)s
WHERE id = %(id)s
"""


class AdoptedArchive(NamedTuple):
    """An object with its size in bytes. prefix: what paths begin with before the names in the archive. What of it
    is an index depends on its format, and is not noted."""

    id: int
    uuid: UUID
    format: str
    store: str
    object_key: str
    size_bytes: int
    prefix: str
    etag: str | None = None


class Adopting:
    """Every method is one transaction, or several attempts at one."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def next_id(self) -> int:
        """A number for chunks.id that nobody else has."""
        with self._connection.statement() as connection:
            row = connection.execute("SELECT nextval(pg_get_serial_sequence('chunks', 'id'))").fetchone()
        assert row is not None  # noqa: S101 - nextval gives one row
        return int(row[0])

    def check_new(self, store: str, object_key: str) -> None:
        """Raises Conflict if the catalog has this object, as a chunk or a copy of one."""
        with self._connection.statement() as connection:
            row = connection.execute(_KNOWN, (store, object_key, store, object_key)).fetchone()
        if row is not None:
            uuid, state, adopted = row
            was = "was adopted before" if adopted else "is a chunk of this catalog"
            raise Conflict(f"it {was}: {uuid} ({state})", hint=f"cafcat chunks show {str(uuid)[:8]}")

    def adopt(
        self, archive: AdoptedArchive, mapping: Mapping, on_conflict: OnConflict, units: ArchiveUnits
    ) -> ChunkCommit:
        """Enters an archive, its files and its log files; a mapping's paths have to be distinct. A lost connection
        is settled by looking. Raises Conflict if the object is in the catalog, or under OnConflict.FAIL a path;
        CatalogUnavailable if nobody can tell whether it was done."""
        commit = Commit(self._connection)
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                return self._adopt(archive, mapping, on_conflict, units)
            except CatalogUnavailable:
                if commit.is_committed(archive.id):
                    break
                if attempt == _ATTEMPTS:
                    raise
        return commit.counted(archive.id)

    def _adopt(
        self, archive: AdoptedArchive, mapping: Mapping, on_conflict: OnConflict, units: ArchiveUnits
    ) -> ChunkCommit:
        with self._connection.transaction() as connection:
            connection.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED; SET LOCAL statement_timeout = 0")
            values = archive._asdict() | {"file_count": mapping.file_count, "data_bytes": mapping.size_bytes}
            try:
                connection.execute(_INSERT, values)
            except pg.UniqueViolation as error:
                raise Conflict("somebody else adopted it meanwhile", chunk=archive.object_key) from error
            commit = _map(connection, archive.id, mapping, on_conflict)
            live = commit.added + commit.replaced
            connection.execute(_COMMITTED, {"id": archive.id, "live": live, "bytes": commit.live_bytes})
            enter_units(connection, archive.id, units)
            _record(connection, archive, commit)
        return commit


def _map(connection: PgConnection, chunk_id: int, mapping: Mapping, on_conflict: OnConflict) -> ChunkCommit:
    try:
        return map_files(connection, chunk_id, mapping, on_conflict)
    except Conflict as error:
        hint = "--on-conflict skip or replace, or another --prefix"
        raise Conflict("the catalog has a file of this name", path=error.path, hint=hint) from error


def _record(connection: PgConnection, archive: AdoptedArchive, commit: ChunkCommit) -> None:
    counts = ", ".join(f"{count} {name}" for name, count in commit._asdict().items())
    record_event(connection, "chunk_adopted", archive.id, f"{archive.store} {archive.object_key}")
    record_event(connection, "chunk_committed", archive.id, counts)
