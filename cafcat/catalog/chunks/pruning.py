"""The catalog's queries for prune: chunks to which no path points, retired copies, and their objects."""

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple
from uuid import UUID

from cafcat.catalog.by_key import BY_INDEX
from cafcat.catalog.chunks.copies import drop_copies
from cafcat.catalog.connection import Connection
from cafcat.catalog.files.log_units import drop_units
from cafcat.catalog.history.events import record_event
from cafcat.catalog.history.runs import iso

__all__ = ["ChunkObject", "PrunableChunk", "Pruning", "RetiredCopy", "Waiting"]

_PAGE_ROWS: Final = 1000
_HAS_COPY: Final = "k.chunk_id = c.id AND k.deleted_at IS NULL AND k.state IN ('committed', 'deleted')"
_PRUNABLE: Final = f"""
SELECT c.id, c.uuid, c.store, c.size_bytes, c.file_count, c.state = 'deleted', {iso("c.retired_at")},
       c.adopted_prefix IS NOT NULL
FROM chunks AS c
WHERE c.id > %(after)s AND c.store = coalesce(%(store)s, c.store)
  AND ((c.state = 'retired' AND c.retired_at < now() - make_interval(secs => %(grace)s))
       OR (c.state = 'deleted'
           AND (c.deleted_at IS NULL OR EXISTS (SELECT FROM chunk_copies AS k WHERE {_HAS_COPY}))))
ORDER BY c.id
LIMIT %(limit)s
"""  # noqa: S608
_OBJECTS: Final = f"""
SELECT NULL, c.store, c.object_key, c.size_bytes
FROM chunks AS c WHERE c.id = %(chunk)s AND c.deleted_at IS NULL AND c.adopted_prefix IS NULL
UNION ALL
SELECT k.id, k.store, k.object_key, c.size_bytes
FROM chunks AS c JOIN chunk_copies AS k ON {_HAS_COPY} WHERE c.id = %(chunk)s
ORDER BY 1 NULLS FIRST
"""  # noqa: S608
# Deleted bytes cannot be restored. So this also looks for a live file in the chunk, in case its counters are wrong.
# Undelete locks the same row (removal.py), so the second of both transactions sees the state that the first one
# set.
_DELETE: Final = """
UPDATE chunks AS c SET state = 'deleted'
WHERE c.id = %s AND c.state = 'retired' AND c.retired_at < now() - make_interval(secs => %s)
  AND c.live_file_count = 0 AND NOT EXISTS (SELECT FROM file_locations AS l WHERE l.caf_file_id = c.id OFFSET 0)
"""


# Copies that a migration of a store has retired. The chunk itself has to be in another store and must have its
# object.
_RETIRED_COPIES: Final = """
SELECT k.id, k.store, k.object_key, c.id, c.uuid, c.store, c.object_key, c.size_bytes, {retired_at}
FROM chunk_copies AS k JOIN chunks AS c ON c.id = k.chunk_id
WHERE k.id > %(after)s AND k.state = 'committed' AND k.store = coalesce(%(store)s, k.store)
  AND k.retired_at < now() - make_interval(secs => %(grace)s) AND c.state IN ('committed', 'retired')
ORDER BY k.id LIMIT %(limit)s
"""
# If the store is migrated back, the chunk and its copy exchange their places, but the rows keep their ids.
# Therefore the places of both must be those that were read before. Both rows are locked until the transaction ends.
_LOCK_COPY: Final = """
SELECT FROM chunks AS c JOIN chunk_copies AS k ON k.chunk_id = c.id
WHERE k.id = %(id)s AND k.state = 'committed' AND k.retired_at < now() - make_interval(secs => %(grace)s)
  AND (k.store, k.object_key) = (%(store)s, %(object_key)s)
  AND (c.store, c.object_key) = (%(chunk_store)s, %(chunk_key)s) AND c.store <> k.store
  AND c.state IN ('committed', 'retired')
FOR UPDATE
"""
_LOST_FILES: Final = (
    "SELECT count(*) FROM retired_locations WHERE caf_file_id = %s AND reason IN ('removed', 'replaced')"
)
_DROP_COPY: Final = "UPDATE chunk_copies SET state = 'deleted' WHERE id = %s"


class RetiredCopy(NamedTuple):
    """A copy that a migration has retired, and the place of its chunk.

    Attributes:
        id: chunk_copies.id.
        store: URL of the store that holds the copy.
        object_key: Key of the copy in that store.
        chunk_id: chunks.id of the chunk.
        uuid: UUID of the chunk.
        chunk_store: URL of the store that holds the chunk itself.
        chunk_key: Key of the chunk in that store.
        size_bytes: Size of the object.
        retired_at: When the copy was retired: ISO 8601, UTC.
    """

    id: int
    store: str
    object_key: str
    chunk_id: int
    uuid: UUID
    chunk_store: str
    chunk_key: str
    size_bytes: int
    retired_at: str


class PrunableChunk(NamedTuple):
    """A chunk that prune may delete, or whose deletion by an earlier prune is not complete.

    Attributes:
        id: chunks.id.
        uuid: Name of the chunk outside SQL.
        store: URL of the store that holds it.
        size_bytes: Size of its object.
        file_count: Number of files in it.
        is_deleted: True if its state is `deleted` already, but its object, or a copy of it, may still exist.
        retired_at: When it was retired: ISO 8601, UTC; None if unknown.
        is_adopted: True for an archive that was adopted in place. Prune does not remove its object.
    """

    id: int
    uuid: UUID
    store: str
    size_bytes: int
    file_count: int
    is_deleted: bool
    retired_at: str | None
    is_adopted: bool


class ChunkObject(NamedTuple):
    """An object that prune removes: the own object of a chunk, or a copy. An earlier prune may have removed it.

    Attributes:
        copy: chunk_copies.id of the copy; None for the chunk's own object.
        store: URL of the store that holds the object.
        object_key: Key of the object in that store.
        size_bytes: Size of the object.
    """

    copy: int | None
    store: str
    object_key: str
    size_bytes: int


class Waiting(NamedTuple):
    """Totals of the retired chunks whose grace period is not over.

    Attributes:
        chunks: Number of these chunks.
        bytes: Total size of their objects.
    """

    chunks: int
    bytes: int


class Pruning:
    """Queries for prune. Every method is one transaction, or one for each page."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def prunable(self, grace_seconds: int, store_url: str | None) -> Iterator[PrunableChunk]:
        """Yield chunks that prune may delete, and deleted chunks that may still have objects, ordered by chunks.id.

        An earlier prune that was interrupted leaves such deleted chunks.

        Args:
            grace_seconds: Retired chunks are yielded only if they were retired more than this many seconds ago.
            store_url: Yield only chunks in this store; None for all stores.
        """
        after = 0
        while True:
            parameters = {"after": after, "store": store_url, "grace": grace_seconds, "limit": _PAGE_ROWS}
            with self._connection.statement() as connection:
                rows = connection.execute(_PRUNABLE.encode(), parameters).fetchall()
            yield from (PrunableChunk(*row) for row in rows)
            if len(rows) < _PAGE_ROWS:
                return
            after = rows[-1][0]

    def retired_copies(self, grace_seconds: int, store_url: str | None) -> Iterator[RetiredCopy]:
        """Yield copies that migrations have retired, of chunks that are not deleted, ordered by chunk_copies.id.

        Args:
            grace_seconds: Yield only copies that were retired more than this many seconds ago.
            store_url: Yield only copies in this store; None for all stores.
        """
        statement = _RETIRED_COPIES.format(retired_at=iso("k.retired_at"))
        after = 0
        while True:
            parameters = {"after": after, "store": store_url, "grace": grace_seconds, "limit": _PAGE_ROWS}
            rows = self._rows(statement, parameters)
            yield from (RetiredCopy(*row) for row in rows)
            if len(rows) < _PAGE_ROWS:
                return
            after = rows[-1][0]

    def copies_waiting(self, grace_seconds: int, store_url: str | None) -> int:
        """Return the number of retired copies whose grace period is not over.

        Args:
            grace_seconds: Length of the grace period, which begins when a migration retires the copy.
            store_url: Count only copies in this store; None for all stores.
        """
        statement = (
            "SELECT count(*) FROM chunk_copies WHERE state = 'committed' "
            "AND retired_at >= now() - make_interval(secs => %s) AND store = coalesce(%s, store)"
        )
        return int(self._rows(statement, (grace_seconds, store_url))[0][0])

    def mark_copy_deleted(self, copy: RetiredCopy, grace_seconds: int) -> bool:
        """Set the state of a retired copy to `deleted`, so that its object may be removed.

        Returns:
            True if the state was set. False if the copy is not retired any more, or its grace period is not over,
            or its chunk was deleted, or the store or key of copy or chunk has changed since `retired_copies`.
        """
        with self._connection.transaction() as connection:
            connection.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
            parameters = copy._asdict() | {"grace": grace_seconds}
            if connection.execute(_LOCK_COPY, parameters).fetchone() is None:
                return False
            connection.execute(_DROP_COPY, [copy.id])
        return True

    def waiting(self, grace_seconds: int, store_url: str | None) -> Waiting:
        """Return totals of retired chunks whose grace period is not over.

        Args:
            grace_seconds: Length of the grace period, which begins when a chunk is retired.
            store_url: Count only chunks in this store; None for all stores.
        """
        statement = (
            "SELECT count(*), coalesce(sum(size_bytes), 0)::bigint FROM chunks WHERE state = 'retired' "
            "AND retired_at >= now() - make_interval(secs => %s) AND store = coalesce(%s, store)"
        )
        with self._connection.statement() as connection:
            row = connection.execute(statement, (grace_seconds, store_url)).fetchone()
        assert row is not None  # noqa: S101 - an aggregate gives one row
        return Waiting(*row)

    def mark_deleted(self, chunk_id: int, grace_seconds: int) -> bool:
        """Set the state of a retired chunk and of its copies to `deleted`, and delete the rows of its log files.

        From then on, undelete cannot restore its files.

        Returns:
            True if the state was set. False if the chunk is not retired any more, or its grace period is not over,
            or a path points to it.
        """
        with self._connection.transaction() as connection:
            connection.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED; SET LOCAL statement_timeout = 0")
            connection.execute(BY_INDEX)
            if connection.execute(_DELETE, (chunk_id, grace_seconds)).rowcount != 1:
                return False
            drop_copies(connection, [chunk_id])
            drop_units(connection, chunk_id)
            record_event(connection, "chunk_deleted", "pruned", chunk_id=chunk_id)
        return True

    def lost_files(self, chunk_id: int) -> int:
        """Return the number of removed and replaced files of a chunk, which cannot be read after its deletion."""
        with self._connection.by_index(read_only=True) as connection:
            row = connection.execute(_LOST_FILES.encode(), [chunk_id]).fetchone()
        assert row is not None  # noqa: S101 - an aggregate gives one row
        return int(row[0])

    def objects(self, chunk_id: int) -> list[ChunkObject]:
        """Return the objects of a chunk that may still be in their stores: the chunk itself, then its copies.

        The object of an adopted archive is left out, because prune does not remove it.
        """
        return [ChunkObject(*row) for row in self._rows(_OBJECTS, {"chunk": chunk_id})]

    def _rows(self, statement: str, parameters: Any) -> Sequence[tuple[Any, ...]]:
        with self._connection.statement() as connection:
            return connection.execute(statement.encode(), parameters).fetchall()
