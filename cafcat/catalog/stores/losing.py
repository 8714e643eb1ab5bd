"""The rows of a store that is lost: which chunks have copies elsewhere, and the end of all other objects there."""

from collections.abc import Iterator
from typing import Final, NamedTuple
from uuid import UUID

from cafcat.catalog.by_key import BY_INDEX
from cafcat.catalog.chunks.copies import drop_copies
from cafcat.catalog.chunks.failed_checks import IS_MISSING
from cafcat.catalog.connection import Connection
from cafcat.catalog.files.log_units import drop_units
from cafcat.catalog.files.path_list import VersionList
from cafcat.catalog.history.events import record_event
from cafcat.catalog.stores.moving import check_not_written, no_such_store
from cafcat.errors import Conflict
from cafcat.support.paging import pages_of

__all__ = ["Losing", "LostChunk"]

_COPY: Final = f"""
SELECT k.store, cafcat_ops.is_broken(k.chunk_id, k.id) AS is_damaged FROM chunk_copies AS k
WHERE k.chunk_id = c.id AND k.store <> c.store AND k.state = 'committed' AND k.deleted_at IS NULL
  AND NOT {IS_MISSING.format(chunk="k.chunk_id", copy="k.id")}
ORDER BY 2, k.retired_at IS NOT NULL, k.id LIMIT 1
"""  # noqa: S608
_CHUNKS: Final = f"""
SELECT c.id, c.uuid, c.live_file_count, c.live_bytes,
       (SELECT count(*) FROM retired_locations AS r WHERE r.caf_file_id = c.id AND r.reason = 'removed'),
       (SELECT count(*) FROM retired_locations AS r WHERE r.caf_file_id = c.id AND r.reason = 'replaced'),
       copy.store, coalesce(copy.is_damaged, false)
FROM chunks AS c LEFT JOIN LATERAL ({_COPY}) AS copy ON true
WHERE c.store = %(store)s AND c.state IN ('committed', 'retired') AND c.id > %(after)s
ORDER BY c.id LIMIT %(limit)s
"""  # noqa: S608
_PAGE_ROWS: Final = 1000
_VERSIONS: Final = "SELECT file_path, start_byte FROM file_locations WHERE caf_file_id = %s ORDER BY file_path"
_COUNTS: Final = """
SELECT (SELECT count(*) FROM chunk_copies WHERE store = %(store)s AND state = 'committed' AND retired_at IS NULL),
       (SELECT count(*) FROM backups WHERE store = %(store)s AND state = 'committed')
"""
_LOCK_CHUNKS: Final = """
SELECT id FROM chunks WHERE store = %s AND state IN ('committed', 'retired') ORDER BY id FOR UPDATE
"""
_HAS_FILES: Final = """
SELECT EXISTS (SELECT FROM file_locations AS l WHERE l.caf_file_id = ANY(%s) OFFSET 0)
"""
_END_CHUNKS: Final = """
UPDATE chunks SET state = 'deleted', retired_at = coalesce(retired_at, now()), deleted_at = now() WHERE id = ANY(%s)
"""
# An object that is being written there belongs to a dead writer: `check_not_written` found no other.
_END_OBJECTS: Final = """
UPDATE {table} SET
       state = CASE state WHEN 'committed' THEN 'deleted' WHEN 'writing' THEN 'abandoned' ELSE state END,
       abandoned_at = CASE WHEN state = 'writing' THEN now() ELSE abandoned_at END,
       lease_owner = NULL, lease_expires_at = NULL, deleted_at = now()
WHERE store = %s AND deleted_at IS NULL
"""
_END_RECORDS: Final = """
WITH done AS (
    UPDATE journal SET unwritten = array_remove(unwritten, %(store)s)
    WHERE unwritten <> '{}' AND unwritten @> ARRAY[%(store)s] RETURNING id, unwritten
)
DELETE FROM journal_files WHERE journal_id IN (SELECT id FROM done WHERE unwritten = '{}')
"""


class LostChunk(NamedTuple):
    """A chunk in a lost store.

    Attributes:
        id: chunks.id.
        uuid: UUID of the chunk.
        files: Number of its live files.
        bytes: Their total size.
        removed_files: Number of its removed files.
        old_versions: Number of older versions of files in it, which newer versions have replaced.
        copy_store: URL of another store that has a copy; None if no store has one, or `verify` found all missing.
        is_damaged: True if `verify` found this copy damaged, and no other store has an undamaged one.
    """

    id: int
    uuid: UUID
    files: int
    bytes: int
    removed_files: int
    old_versions: int
    copy_store: str | None
    is_damaged: bool


class Losing:
    """Queries about a lost store. Every method is one transaction, or one for each page."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def chunks(self, store_url: str) -> Iterator[LostChunk]:
        """Yield the committed and retired chunks of a store, in the order of chunks.id."""
        for page in pages_of(lambda last: self._page(store_url, last.id if last else 0), _PAGE_ROWS):
            yield from page

    def _page(self, store_url: str, after: int) -> list[LostChunk]:
        parameters = {"store": store_url, "after": after, "limit": _PAGE_ROWS}
        with self._connection.by_index() as connection:
            return [LostChunk(*row) for row in connection.execute(_CHUNKS.encode(), parameters).fetchall()]

    def add_versions(self, chunk_id: int, versions: VersionList) -> None:
        """Append the live files of a chunk to a list."""
        with self._connection.by_index() as connection, connection.cursor() as cursor:
            for path, start_byte in cursor.stream(_VERSIONS, (chunk_id,)):
                versions.add(path, chunk_id, start_byte)

    def copies_and_backups(self, store_url: str) -> tuple[int, int]:
        """Return the numbers of active copies of other stores' chunks, and of backups, in a store."""
        with self._connection.statement() as connection:
            row = connection.execute(_COUNTS, {"store": store_url}).fetchone()
        assert row is not None  # noqa: S101 - two subqueries give one row
        return int(row[0]), int(row[1])

    def end(self, store_url: str) -> None:
        """Record that all objects of a store are gone, and that no journal record has to be written there any more.

        Raises:
            NotFound: The catalog has no such store.
            Conflict: A chunk of the store has live files.
            Locked: A command writes to the store, or may do so: its lease has not expired, and it may be alive.
        """
        with self._connection.transaction() as connection:
            connection.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED; SET LOCAL statement_timeout = 0")
            connection.execute(BY_INDEX)
            if connection.execute("SELECT FROM stores WHERE url = %s FOR UPDATE", [store_url]).fetchone() is None:
                raise no_such_store(store_url)
            check_not_written(connection, store_url)
            chunks = [chunk for (chunk,) in connection.execute(_LOCK_CHUNKS, [store_url]).fetchall()]
            [(has_files,)] = connection.execute(_HAS_FILES, [chunks]).fetchall()
            if has_files:
                raise Conflict(f"files came back to {store_url} meanwhile", hint="run the same command again")
            connection.execute(_END_CHUNKS, [chunks])
            drop_copies(connection, chunks)
            for chunk in chunks:
                drop_units(connection, chunk)
                record_event(connection, "chunk_deleted", "its store is lost", chunk_id=chunk)
            for table in ("chunks", "chunk_copies", "backups"):
                connection.execute(_END_OBJECTS.format(table=table).encode(), [store_url])
            connection.execute(_END_RECORDS, {"store": store_url})
            record_event(connection, "store_lost", store_url)
