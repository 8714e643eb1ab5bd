"""Returns live files from a lost chunk to the chunks from which `repack` or `repair` had moved them.

A moved file keeps its former location in retired_locations until `prune` deletes the former chunk. A copy of that
chunk in another store still has the bytes of the file.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from cafcat.catalog.by_key import BY_INDEX
from cafcat.catalog.chunks.failed_checks import CONCERNS_FILE, FAILURE_COUNTS, IS_MISSING
from cafcat.catalog.chunks.file_rows import KEPT_RUN, KEPT_TIME, subtract_from_chunks
from cafcat.catalog.connection import Connection, PgConnection
from cafcat.catalog.files import removal_sql as statements
from cafcat.catalog.files.lookup import size_of
from cafcat.catalog.files.mapping import ALL_COLUMNS, COLUMNS
from cafcat.catalog.files.removal import lock_locations, lock_stores
from cafcat.catalog.history.events import record_event
from cafcat.catalog.history.journal import append
from cafcat.model import JournalKind
from cafcat.support.quantities import plural

__all__ = ["FormerObject", "MovedBack", "MovingBack"]

# The former location must be that of the same version, not only of the same bytes: a rebuild takes the time and the
# run of a returned file from the former chunk, and its index has the time of modification.
_FORMER: Final = f"""
FROM (SELECT l.*, coalesce(l.current_since, c.committed_at) AS since FROM file_locations AS l
      JOIN chunks AS c ON c.id = l.caf_file_id WHERE l.caf_file_id = %(chunk)s OFFSET 0) AS l
CROSS JOIN LATERAL (SELECT * FROM retired_locations WHERE file_path = l.file_path OFFSET 0) AS r
JOIN chunks AS c ON c.id = r.caf_file_id
WHERE r.reason = 'moved' AND r.crc32c = l.crc32c AND {size_of("r.")} = {size_of("l.")}
  AND r.modified_at IS NOT DISTINCT FROM l.modified_at AND coalesce(r.current_since, c.committed_at) = l.since
  AND c.state IN ('committed', 'retired')
"""  # noqa: S608
# The log files of an archive of logs cannot be searched any more after `repack` to another format.
_OBJECTS: Final = f"""
SELECT c.id, o.copy_id, o.store, o.object_key, cafcat_ops.is_broken(c.id, o.copy_id), c.adopted_prefix IS NOT NULL
FROM (SELECT DISTINCT c.id {_FORMER}) AS f JOIN chunks AS c ON c.id = f.id
CROSS JOIN LATERAL (
    SELECT NULL::bigint AS copy_id, c.store, c.object_key
    UNION ALL
    SELECT k.id, k.store, k.object_key FROM chunk_copies AS k
    WHERE k.chunk_id = c.id AND k.state = 'committed' AND k.deleted_at IS NULL) AS o
WHERE o.store <> %(lost)s AND NOT EXISTS (SELECT FROM ingestion_units AS u WHERE u.chunk_id = c.id)
  AND NOT {IS_MISSING.format(chunk="c.id", copy="o.copy_id")}
ORDER BY 1, 2 NULLS FIRST
"""  # noqa: S608
# A finding without a span concerns the whole object, or is one of too many findings.
_DAMAGE: Final = f"""
SELECT FROM findings AS f JOIN verifications AS v ON v.id = f.verification_id
WHERE v.chunk_id = o.chunk_id AND v.copy_id IS NOT DISTINCT FROM o.copy_id AND {FAILURE_COUNTS}
  AND {CONCERNS_FILE.format(file="l")}
"""  # noqa: S608
_FORMER_COLUMNS: Final = ", ".join(f"r.{name}" for name in ALL_COLUMNS.split(", "))
_FOUND: Final = f"""
WITH former AS MATERIALIZED (SELECT r.id AS retired_id, {_FORMER_COLUMNS} {_FORMER})
SELECT DISTINCT ON (file_path) retired_id, {ALL_COLUMNS}
FROM former AS l JOIN unnest(%(chunks)s::bigint[], %(copies)s::bigint[], %(damaged)s::boolean[])
     AS o (chunk_id, copy_id, is_damaged) ON o.chunk_id = l.caf_file_id
WHERE NOT (o.is_damaged AND EXISTS ({_DAMAGE}))
ORDER BY file_path, o.is_damaged, retired_id DESC
"""  # noqa: S608
_COUNT: Final = f"SELECT count(*), coalesce(sum({size_of()}), 0)::bigint FROM ({_FOUND}) AS found"  # noqa: S608
_WANTED: Final = f"INSERT INTO wanted (retired_id, {ALL_COLUMNS}) {_FOUND}"
_LEAVE: Final = f"""
INSERT INTO retired_locations ({ALL_COLUMNS}, reason)
SELECT {ALL_COLUMNS}, 'moved'
FROM (SELECT * FROM file_locations WHERE caf_file_id = %(chunk)s OFFSET 0) AS l
WHERE EXISTS (SELECT FROM wanted WHERE wanted.file_path = l.file_path) ORDER BY file_path
"""  # noqa: S608
# Each path in `wanted` has a row in file_locations, so this INSERT only updates rows. It keeps the entity tag and
# the source, which a later ingest may have entered.
_RETURN: Final = f"""
INSERT INTO file_locations ({COLUMNS}) SELECT {COLUMNS} FROM wanted ORDER BY file_path
ON CONFLICT (file_path) DO UPDATE SET
    (caf_file_id, start_byte, end_byte, content_bytes, decoding, ingest_run_id, current_since) =
    (excluded.caf_file_id, excluded.start_byte, excluded.end_byte, excluded.content_bytes, excluded.decoding,
     {KEPT_RUN}, {KEPT_TIME})
"""  # noqa: S608


class FormerObject(NamedTuple):
    """An object of a chunk from which files were moved into a lost chunk.

    Attributes:
        chunk_id: chunks.id of the former chunk.
        copy_id: chunk_copies.id; None for the chunk's own object.
        store: URL of the store that has the object.
        object_key: Key of the object in this store.
        is_damaged: True if a check found the object damaged, and no later check found it whole.
        is_adopted: True if cafcat adopted the archive in place: its owner may have deleted the object.
    """

    chunk_id: int
    copy_id: int | None
    store: str
    object_key: str
    is_damaged: bool
    is_adopted: bool


class MovedBack(NamedTuple):
    """The files of a lost chunk that are in their former chunks again, or could be.

    Attributes:
        files: Number of the files.
        bytes: Their total size.
        stores: URLs of the stores into which the journal record has to be written; empty for a count.
    """

    files: int
    bytes: int
    stores: tuple[str, ...] = ()


class MovingBack:
    """Queries that return the live files of a lost chunk to former chunks. Each method is one transaction."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def objects(self, chunk_id: int, lost_store: str) -> list[FormerObject]:
        """Return the objects in other stores of the chunks that had live files of a lost chunk in the same version.

        Args:
            chunk_id: chunks.id of the lost chunk.
            lost_store: URL of the lost store.
        """
        with self._connection.by_index() as connection:
            rows = connection.execute(_OBJECTS.encode(), {"chunk": chunk_id, "lost": lost_store}).fetchall()
        return [FormerObject(*row) for row in rows]

    def count(self, chunk_id: int, objects: Sequence[FormerObject]) -> MovedBack:
        """Count the files that `move_back` would return to the chunks of some objects.

        Args:
            chunk_id: chunks.id of the lost chunk.
            objects: The objects that exist.
        """
        with self._connection.by_index() as connection:
            row = connection.execute(_COUNT.encode(), _parameters(chunk_id, objects)).fetchone()
        assert row is not None  # noqa: S101 - an aggregate gives one row
        return MovedBack(*row)

    def move_back(self, chunk_id: int, objects: Sequence[FormerObject]) -> MovedBack:
        """Let the live files of a lost chunk point to the chunks of some objects, which had them before.

        Undamaged objects are preferred. A damaged object does not have the files that a check found damaged in it.

        Args:
            chunk_id: chunks.id of the lost chunk.
            objects: The objects that exist.

        Returns:
            The files that moved. All others stay where they are.

        Raises:
            CatalogLocked: A lock was not free in time. The transaction was rolled back.
            CatalogUnavailable: The database does not answer.
        """
        with self._connection.transaction() as connection:
            connection.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED; SET LOCAL statement_timeout = 0")
            connection.execute(BY_INDEX)
            connection.execute(statements.WANTED_TABLE)
            lock_locations(connection)
            lock_stores(connection)
            connection.execute(_WANTED.encode(), _parameters(chunk_id, objects))
            connection.execute(statements.USABLE_TABLE)
            connection.execute("DELETE FROM wanted WHERE caf_file_id NOT IN (SELECT id FROM usable)")
            connection.execute("ANALYZE wanted")
            [(files, size_bytes)] = connection.execute(statements.TOTALS.format(table="wanted").encode()).fetchall()
            stores = _move(connection, chunk_id, files, size_bytes) if files else ()
        return MovedBack(files, size_bytes, stores)


def _parameters(chunk_id: int, objects: Sequence[FormerObject]) -> dict[str, Any]:
    return {
        "chunk": chunk_id,
        "chunks": [former.chunk_id for former in objects],
        "copies": [former.copy_id for former in objects],
        "damaged": [former.is_damaged for former in objects],
    }


def _move(connection: PgConnection, chunk_id: int, files: int, size_bytes: int) -> tuple[str, ...]:
    """Move the files in the temporary table `wanted`. Return the stores that need the journal record."""
    connection.execute(_LEAVE.encode(), {"chunk": chunk_id})
    subtract_from_chunks(
        connection, "SELECT %s::bigint AS caf_file_id, %s AS files, %s AS bytes", (chunk_id, files, size_bytes)
    )
    connection.execute(_RETURN.encode())
    connection.execute(statements.DELETE_RESTORED.encode())
    connection.execute(statements.ADD_TO_CHUNKS.encode())
    if connection.execute(statements.BROKEN_TABLE).rowcount:
        connection.execute(statements.DAMAGE_IS_LIVE)
    record_event(connection, "files_moved_back", f"{plural(files, 'file')}, {size_bytes} bytes", chunk_id=chunk_id)
    stores = tuple(url for (url,) in connection.execute(statements.STORES).fetchall())
    sequence = append(connection, JournalKind.RESTORE, stores)
    connection.execute(statements.RECORD_FILES.format(table="wanted").encode(), [sequence])
    return stores
