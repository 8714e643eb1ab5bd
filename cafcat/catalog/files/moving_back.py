"""Returns live files from a lost chunk to the chunks from which `repack` or `repair` had moved them.

A moved file keeps its former location in retired_locations until `prune` deletes the former chunk. A copy of that
chunk in another store still has the bytes of the file.
"""

from typing import Final, NamedTuple

from cafcat.catalog.by_key import BY_INDEX
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

__all__ = ["MovedBack", "MovingBack"]

# Where a former chunk can be read: its own object, and its copies. A missing object has no bytes, a damaged one
# has most of them.
_OBJECTS: Final = """
SELECT c.store, NULL::bigint AS copy_id WHERE c.store <> %(lost)s
UNION ALL
SELECT k.store, k.id FROM chunk_copies AS k
WHERE k.chunk_id = c.id AND k.store <> %(lost)s AND k.state = 'committed' AND k.deleted_at IS NULL
"""
_LAST_FAILURE: Final = """
SELECT v.verdict FROM verifications AS v
WHERE v.chunk_id = c.id AND v.copy_id IS NOT DISTINCT FROM o.copy_id AND v.verdict IN ('damaged', 'missing')
ORDER BY v.id DESC LIMIT 1
"""
# An archive of logs is found by its log files, which `repack` moved to the new archive.
_READABLE: Final = f"""
SELECT c.id, bool_and(cafcat_ops.is_broken(c.id, o.copy_id)) AS is_damaged
FROM (SELECT DISTINCT caf_file_id FROM former) AS f
JOIN chunks AS c ON c.id = f.caf_file_id CROSS JOIN LATERAL ({_OBJECTS}) AS o
WHERE c.state IN ('committed', 'retired')
  AND NOT EXISTS (SELECT FROM ingestion_units AS u WHERE u.chunk_id = c.id)
  AND NOT (cafcat_ops.is_broken(c.id, o.copy_id) AND 'missing' = ({_LAST_FAILURE}))
GROUP BY c.id
"""  # noqa: S608
# A row of `former` has the former place, and all else of the live row: an ingest may have changed the time since.
_FORMER_PLACE: Final = ("caf_file_id", "start_byte", "end_byte", "content_bytes", "decoding")
_FORMER_COLUMNS: Final = ", ".join(
    f"{'r' if name in _FORMER_PLACE else 'l'}.{name}" for name in ALL_COLUMNS.split(", ")
)
_FOUND: Final = f"""
WITH former AS MATERIALIZED (
    SELECT r.id AS retired_id, {_FORMER_COLUMNS}
    FROM (SELECT * FROM file_locations WHERE caf_file_id = %(chunk)s OFFSET 0) AS l
    CROSS JOIN LATERAL (SELECT * FROM retired_locations WHERE file_path = l.file_path OFFSET 0) AS r
    WHERE r.reason = 'moved' AND r.crc32c = l.crc32c AND {size_of("r.")} = {size_of("l.")}
), readable AS MATERIALIZED ({_READABLE})
SELECT DISTINCT ON (file_path) retired_id, {ALL_COLUMNS}
FROM former JOIN readable ON readable.id = former.caf_file_id
ORDER BY file_path, readable.is_damaged, retired_id DESC
"""  # noqa: S608
_COUNT: Final = f"SELECT count(*), coalesce(sum({size_of()}), 0)::bigint FROM ({_FOUND}) AS found"  # noqa: S608
_WANTED: Final = f"INSERT INTO wanted (retired_id, {ALL_COLUMNS}) {_FOUND}"
_LEAVE: Final = f"""
INSERT INTO retired_locations ({ALL_COLUMNS}, reason)
SELECT {ALL_COLUMNS}, 'moved'
FROM (SELECT * FROM file_locations WHERE caf_file_id = %(chunk)s OFFSET 0) AS l
WHERE EXISTS (SELECT FROM wanted WHERE wanted.file_path = l.file_path) ORDER BY file_path
"""  # noqa: S608
# Each path in `wanted` has a row in file_locations, so this INSERT only updates rows.
_RETURN: Final = f"""
INSERT INTO file_locations ({COLUMNS}) SELECT {COLUMNS} FROM wanted ORDER BY file_path
ON CONFLICT (file_path) DO UPDATE SET
    (caf_file_id, start_byte, end_byte, content_bytes, decoding, ingest_run_id, current_since) =
    (excluded.caf_file_id, excluded.start_byte, excluded.end_byte, excluded.content_bytes, excluded.decoding,
     {KEPT_RUN}, {KEPT_TIME})
"""  # noqa: S608


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

    def count(self, chunk_id: int, lost_store: str) -> MovedBack:
        """Count the files that `move_back` would return to former chunks.

        Args:
            chunk_id: chunks.id of the lost chunk.
            lost_store: URL of the lost store.
        """
        with self._connection.by_index() as connection:
            row = connection.execute(_COUNT.encode(), {"chunk": chunk_id, "lost": lost_store}).fetchone()
        assert row is not None  # noqa: S101 - an aggregate gives one row
        return MovedBack(*row)

    def move_back(self, chunk_id: int, lost_store: str) -> MovedBack:
        """Let the live files of a lost chunk point to former chunks that another store has.

        A former location must have the same size and checksum. Undamaged chunks are preferred to damaged ones.

        Args:
            chunk_id: chunks.id of the lost chunk.
            lost_store: URL of the lost store.

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
            connection.execute(_WANTED.encode(), {"chunk": chunk_id, "lost": lost_store})
            connection.execute(statements.USABLE_TABLE)
            connection.execute("DELETE FROM wanted WHERE caf_file_id NOT IN (SELECT id FROM usable)")
            connection.execute("ANALYZE wanted")
            [(files, size_bytes)] = connection.execute(statements.TOTALS.format(table="wanted").encode()).fetchall()
            stores = _move(connection, chunk_id, files, size_bytes) if files else ()
        return MovedBack(files, size_bytes, tuple(url for url in stores if url != lost_store))


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
