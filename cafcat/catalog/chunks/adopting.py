"""An archive that is there already, and all its mappings, in one transaction: all or nothing."""

from typing import Final, NamedTuple
from uuid import UUID

from psycopg import errors as pg

from cafcat.catalog.chunks.commit import ChunkCommit, Commit, map_files, stage
from cafcat.catalog.connection import Connection, PgConnection
from cafcat.catalog.files.log_units import add_units
from cafcat.catalog.files.lookup import size_of
from cafcat.catalog.files.mapping import Mapping
from cafcat.catalog.history.events import record_event
from cafcat.catalog.stores.stores import add_store
from cafcat.catalog.unknown_outcome import commit_with_check
from cafcat.errors import Conflict
from cafcat.model import ArchiveUnits, ChunkState, OnConflict

__all__ = ["AdoptedArchive", "Adopting"]

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
_COMPARED: Final = f"""
SELECT count(l.file_path), min(l.file_path),
       coalesce(sum({size_of("s.")}) FILTER (WHERE l.file_path IS NULL), 0)::bigint
FROM staged AS s
LEFT JOIN LATERAL (SELECT file_path FROM file_locations WHERE file_path = s.file_path OFFSET 0) AS l ON true
"""  # noqa: S608


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
            hint = f"cafcat chunks show {str(uuid)[:8]}"
            if adopted and state == ChunkState.RETIRED:
                hint = "no path points to it any more: cafcat prune lets it go, and then it can be adopted again"
            raise Conflict(f"it {was}: {uuid} ({state})", hint=hint)

    def preview(self, mapping: Mapping, on_conflict: OnConflict) -> ChunkCommit:
        """What `adopt` would do now. Raises Conflict for a path, as that does; CatalogUnavailable."""
        with self._connection.transaction() as connection:
            connection.execute("SET LOCAL statement_timeout = 0")
            stage(connection, mapping)
            row = connection.execute(_COMPARED.encode()).fetchone()
        assert row is not None  # noqa: S101 - aggregates give one row
        there, first, new_bytes = row
        if there and on_conflict is OnConflict.FAIL:
            raise _taken(first)
        added = mapping.file_count - there
        if on_conflict is OnConflict.SKIP:
            return ChunkCommit(added, replaced=0, skipped=there, live_bytes=new_bytes)
        return ChunkCommit(added, replaced=there, skipped=0, live_bytes=mapping.size_bytes)

    def adopt(
        self, archive: AdoptedArchive, mapping: Mapping, on_conflict: OnConflict, units: ArchiveUnits
    ) -> ChunkCommit:
        """Enters an archive, its files and its log files; a mapping's paths have to be distinct. A lost connection
        is handled by `commit_with_check`. Raises Conflict if the object is in the catalog, or under
        OnConflict.FAIL a path; CatalogUnavailable if nobody can tell whether it was done."""
        commit = Commit(self._connection)
        return commit_with_check(
            lambda: self._adopt(archive, mapping, on_conflict, units), lambda: commit.done(archive.id)
        )

    def _adopt(
        self, archive: AdoptedArchive, mapping: Mapping, on_conflict: OnConflict, units: ArchiveUnits
    ) -> ChunkCommit:
        with self._connection.transaction() as connection:
            connection.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED; SET LOCAL statement_timeout = 0")
            values = archive._asdict() | {"file_count": mapping.file_count, "data_bytes": mapping.size_bytes}
            add_store(connection, archive.store)
            try:
                connection.execute(_INSERT, values)
            except pg.UniqueViolation as error:
                raise Conflict("somebody else adopted it meanwhile", chunk=archive.object_key) from error
            commit = _map(connection, archive.id, mapping, on_conflict)
            live = commit.added + commit.replaced
            connection.execute(_COMMITTED, {"id": archive.id, "live": live, "bytes": commit.live_bytes})
            add_units(connection, archive.id, units)
            _record(connection, archive, commit)
        return commit


def _map(connection: PgConnection, chunk_id: int, mapping: Mapping, on_conflict: OnConflict) -> ChunkCommit:
    try:
        return map_files(connection, chunk_id, mapping, on_conflict)
    except Conflict as error:
        raise _taken(error.path) from error


def _taken(path: str | None) -> Conflict:
    hint = "--on-conflict skip or replace, or another --prefix"
    return Conflict("the catalog has a file of this name", path=path, hint=hint)


def _record(connection: PgConnection, archive: AdoptedArchive, commit: ChunkCommit) -> None:
    counts = ", ".join(f"{count} {name}" for name, count in commit._asdict().items())
    record_event(connection, "chunk_adopted", archive.id, f"{archive.store} {archive.object_key}")
    record_event(connection, "chunk_committed", archive.id, counts)
