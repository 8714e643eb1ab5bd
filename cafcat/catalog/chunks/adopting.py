"""Adoption of an existing archive with the locations of all its files, in one transaction."""

from typing import Final, NamedTuple
from uuid import UUID

from psycopg import errors as pg

from cafcat.catalog.chunks.commit import Commit, record_commit
from cafcat.catalog.chunks.file_rows import ChunkCommit, CommitRules, add_files, stage_mapping
from cafcat.catalog.connection import Connection, PgConnection
from cafcat.catalog.files.log_units import add_units
from cafcat.catalog.files.lookup import size_of
from cafcat.catalog.files.mapping import Mapping
from cafcat.catalog.history.events import record_event
from cafcat.catalog.stores.stores import add_store
from cafcat.catalog.unknown_outcome import commit_with_check
from cafcat.errors import Conflict
from cafcat.model import DEFAULT_GRACE_SECONDS, ArchiveUnits, ChunkState, OnConflict

__all__ = ["AdoptedArchive", "Adopting"]

_SAME_OBJECT: Final = """
SELECT uuid, state, adopted_prefix IS NOT NULL FROM chunks
WHERE store = %s AND object_key = %s AND (adopted_prefix IS NULL OR state <> 'deleted')
UNION ALL
SELECT c.uuid, k.state, false FROM chunk_copies AS k JOIN chunks AS c ON c.id = k.chunk_id
WHERE k.store = %s AND k.object_key = %s AND k.deleted_at IS NULL
LIMIT 1
"""
_INSERT: Final = """
INSERT INTO chunks (id, uuid, format, store, object_key, state, size_bytes, data_bytes, index_start_byte,
                    index_end_byte, file_count, etag, adopted_prefix, run_id)
OVERRIDING SYSTEM VALUE
VALUES (%(id)s, %(uuid)s, %(format)s, %(store)s, %(object_key)s, 'writing', %(size_bytes)s, %(data_bytes)s,
        %(size_bytes)s, %(size_bytes)s, %(file_count)s, %(etag)s, %(prefix)s, %(run_id)s)
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
    """An archive that `cafcat adopt` adopts. The place of the index in its object is not recorded.

    Attributes:
        id: chunks.id.
        uuid: Name of the chunk outside SQL.
        format: Format of the archive.
        store: URL of the store that holds the object.
        object_key: Key of the object in that store.
        size_bytes: Size of the object.
        prefix: Text before each of the archive's own names in the paths of the catalog.
        etag: Entity tag of the object; None for folders.
        run_id: ingest_runs.id of the run that adopts the archive; None in a dry run.
    """

    id: int
    uuid: UUID
    format: str
    store: str
    object_key: str
    size_bytes: int
    prefix: str
    etag: str | None = None
    run_id: int | None = None


class Adopting:
    """Queries of `cafcat adopt`. Every method is one transaction, or several attempts at one."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def next_id(self) -> int:
        """Return a new value of chunks.id from its sequence."""
        with self._connection.statement() as connection:
            row = connection.execute("SELECT nextval(pg_get_serial_sequence('chunks', 'id'))").fetchone()
        assert row is not None  # noqa: S101 - nextval gives one row
        return int(row[0])

    def check_new(self, store_url: str, object_key: str) -> None:
        """Check that an object can be adopted: the catalog has it neither as a chunk nor as a copy.

        Raises:
            Conflict: The catalog has this object. A chunk that cafcat wrote counts even after it was deleted.
        """
        with self._connection.statement() as connection:
            row = connection.execute(_SAME_OBJECT, (store_url, object_key, store_url, object_key)).fetchone()
        if row is not None:
            uuid, state, is_adopted = row
            reason = "was adopted before" if is_adopted else "is a chunk of this catalog"
            hint = f"`cafcat chunks show {str(uuid)[:8]}` shows it"
            if is_adopted and state == ChunkState.RETIRED:
                days = DEFAULT_GRACE_SECONDS // 86_400
                hint = (
                    "no path points to it any more: `cafcat undelete` brings its files back; "
                    f"`cafcat prune` lets it go after {days} days, or with `--grace 0` at once, "
                    "and it can be adopted again"
                )
            elif not is_adopted and state == ChunkState.DELETED:
                hint = "its object can be adopted in another folder: move it there"
            raise Conflict(f"the archive {reason}: {uuid} ({state})", hint=hint)

    def preview(self, mapping: Mapping, on_conflict: OnConflict) -> ChunkCommit:
        """Return how many files `adopt` would add, replace and skip. The catalog is not changed.

        Args:
            mapping: The files of the archive. Their paths are distinct.
            on_conflict: What to do with paths that the catalog has already.

        Raises:
            Conflict: The catalog has a path of the mapping, under OnConflict.FAIL.
            CatalogUnavailable: The database cannot be reached.
        """
        with self._connection.transaction() as connection:
            connection.execute("SET LOCAL statement_timeout = 0")
            stage_mapping(connection, mapping)
            row = connection.execute(_COMPARED.encode()).fetchone()
        assert row is not None  # noqa: S101 - aggregates give one row
        existing, first, new_bytes = row
        if existing and on_conflict is OnConflict.FAIL:
            raise _path_conflict(first)
        added = mapping.file_count - existing
        if on_conflict is OnConflict.SKIP:
            return ChunkCommit(added, replaced=0, skipped=existing, live_bytes=new_bytes)
        return ChunkCommit(added, replaced=existing, skipped=0, live_bytes=mapping.size_bytes)

    def adopt(
        self, archive: AdoptedArchive, mapping: Mapping, on_conflict: OnConflict, units: ArchiveUnits
    ) -> ChunkCommit:
        """Insert the rows of an archive, of its files and of its log files. Its object is neither read nor changed.

        If the connection is lost, `commit_with_check` finds out whether the server committed the transaction.

        Args:
            archive: The archive.
            mapping: Its files. Their paths are distinct.
            on_conflict: What to do with paths that the catalog has already.
            units: The log files and times of an archive of logs.

        Returns:
            The numbers of files that were added, replaced and skipped.

        Raises:
            Conflict: The catalog has a chunk with this object, or a path of the mapping under OnConflict.FAIL.
            CatalogLocked: A lock was not free in time. The transaction was rolled back.
            CatalogUnavailable: The adoption failed, or its outcome cannot be found out.
        """
        commit = Commit(self._connection)
        return commit_with_check(
            lambda: self._adopt(archive, mapping, on_conflict, units), lambda: commit.committed_result(archive.id)
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
                raise Conflict("another command adopted the archive meanwhile", chunk=archive.object_key) from error
            commit = _add_files(connection, archive.id, mapping, on_conflict)
            live = commit.added + commit.replaced
            connection.execute(_COMMITTED, {"id": archive.id, "live": live, "bytes": commit.live_bytes})
            add_units(connection, archive.id, units)
            _record_events(connection, archive, commit)
        return commit


def _add_files(connection: PgConnection, chunk_id: int, mapping: Mapping, on_conflict: OnConflict) -> ChunkCommit:
    try:
        return add_files(connection, chunk_id, mapping, CommitRules(on_conflict))
    except Conflict as error:
        raise _path_conflict(error.path) from error


def _path_conflict(path: str | None) -> Conflict:
    hint = "use --on-conflict skip or replace, or another --prefix"
    return Conflict("the catalog has a file of this name", path=path, hint=hint)


def _record_events(connection: PgConnection, archive: AdoptedArchive, commit: ChunkCommit) -> None:
    record_event(connection, "chunk_adopted", f"{archive.store} {archive.object_key}", chunk_id=archive.id)
    record_commit(connection, archive.id, commit)
