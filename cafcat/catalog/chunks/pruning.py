"""Chunks that nothing points to any more: which may go, the decision that they go, and which still have objects."""

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
_COPY_LEFT: Final = "k.chunk_id = c.id AND k.deleted_at IS NULL AND k.state IN ('committed', 'deleted')"
_PRUNABLE: Final = f"""
SELECT c.id, c.uuid, c.store, c.size_bytes, c.file_count, c.state = 'deleted', {iso("c.retired_at")},
       c.adopted_prefix IS NOT NULL
FROM chunks AS c
WHERE c.id > %(after)s AND c.store = coalesce(%(store)s, c.store)
  AND ((c.state = 'retired' AND c.retired_at < now() - make_interval(secs => %(grace)s))
       OR (c.state = 'deleted'
           AND (c.deleted_at IS NULL OR EXISTS (SELECT FROM chunk_copies AS k WHERE {_COPY_LEFT}))))
ORDER BY c.id
LIMIT %(limit)s
"""  # noqa: S608
_OBJECTS: Final = f"""
SELECT NULL, c.store, c.object_key, c.size_bytes
FROM chunks AS c WHERE c.id = %(chunk)s AND c.deleted_at IS NULL AND c.adopted_prefix IS NULL
UNION ALL
SELECT k.id, k.store, k.object_key, c.size_bytes
FROM chunks AS c JOIN chunk_copies AS k ON {_COPY_LEFT} WHERE c.id = %(chunk)s
ORDER BY 1 NULLS FIRST
"""  # noqa: S608
# A live file in it would mean that its counters are wrong: it is looked for all the same, as nobody can give its
# bytes back. Undelete locks the row (removal.py): whoever comes second sees the state that the first left.
_DELETE: Final = """
UPDATE chunks AS c SET state = 'deleted'
WHERE c.id = %s AND c.state = 'retired' AND c.retired_at < now() - make_interval(secs => %s)
  AND c.live_file_count = 0 AND NOT EXISTS (SELECT FROM file_locations AS l WHERE l.caf_file_id = c.id OFFSET 0)
"""


# What a migration of a store left behind. The chunk must be elsewhere by now, and be kept.
_LEFT_COPIES: Final = """
SELECT k.id, k.store, k.object_key, c.id, c.uuid, c.store, c.object_key, c.size_bytes, {retired_at}
FROM chunk_copies AS k JOIN chunks AS c ON c.id = k.chunk_id
WHERE k.id > %(after)s AND k.state = 'committed' AND k.store = coalesce(%(store)s, k.store)
  AND k.retired_at < now() - make_interval(secs => %(grace)s) AND c.state IN ('committed', 'retired')
ORDER BY k.id LIMIT %(limit)s
"""
# A migration back makes the same row that of the other place. So it is the copy that was looked at only if both
# places are those that were looked at; both rows are locked until the decision is committed.
_LOCK_COPY: Final = """
SELECT FROM chunks AS c JOIN chunk_copies AS k ON k.chunk_id = c.id
WHERE k.id = %(id)s AND k.state = 'committed' AND k.retired_at < now() - make_interval(secs => %(grace)s)
  AND (k.store, k.object_key) = (%(store)s, %(object_key)s)
  AND (c.store, c.object_key) = (%(chunk_store)s, %(chunk_key)s) AND c.store <> k.store
  AND c.state IN ('committed', 'retired')
FOR UPDATE
"""
_DROP_COPY: Final = "UPDATE chunk_copies SET state = 'deleted' WHERE id = %s"


class RetiredCopy(NamedTuple):
    """A copy that a migration left behind, and where its chunk is now: chunk_store, chunk_key. Sizes in bytes;
    retired_at: ISO 8601 in UTC."""

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
    """A chunk that may go. is_deleted: it is `deleted` already, but objects of it may be left. retired_at: ISO 8601
    in UTC. is_adopted: its object is not cafcat's, and stays."""

    id: int
    uuid: UUID
    store: str
    size_bytes: int
    file_count: int
    is_deleted: bool
    retired_at: str | None
    is_adopted: bool


class ChunkObject(NamedTuple):
    """An object with the bytes of a chunk: a copy (chunk_copies.id), or the chunk itself (None)."""

    copy: int | None
    store: str
    object_key: str
    size_bytes: int


class Waiting(NamedTuple):
    """Chunks whose grace period is not over, and their bytes."""

    chunks: int
    bytes: int


class Pruning:
    """Every method is one transaction."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def prunable(self, grace_seconds: int, store: str | None) -> Iterator[PrunableChunk]:
        """Chunks that were retired longer ago, and those of earlier prunes of which objects may be left; in a store
        (URL) or, None, in any. A page at a time, by chunks.id."""
        after = 0
        while True:
            parameters = {"after": after, "store": store, "grace": grace_seconds, "limit": _PAGE_ROWS}
            with self._connection.statement() as connection:
                rows = connection.execute(_PRUNABLE.encode(), parameters).fetchall()
            yield from (PrunableChunk(*row) for row in rows)
            if len(rows) < _PAGE_ROWS:
                return
            after = rows[-1][0]

    def retired_copies(self, grace_seconds: int, store: str | None) -> Iterator[RetiredCopy]:
        """Copies that migrations left behind longer ago, in a store (URL) or, None, in any. A page at a time."""
        statement = _LEFT_COPIES.format(retired_at=iso("k.retired_at"))
        after = 0
        while True:
            parameters = {"after": after, "store": store, "grace": grace_seconds, "limit": _PAGE_ROWS}
            rows = self._rows(statement, parameters)
            yield from (RetiredCopy(*row) for row in rows)
            if len(rows) < _PAGE_ROWS:
                return
            after = rows[-1][0]

    def copies_waiting(self, grace_seconds: int, store: str | None) -> int:
        """Return the number of copies that `left_copies` leaves for later."""
        statement = (
            "SELECT count(*) FROM chunk_copies WHERE state = 'committed' "
            "AND retired_at >= now() - make_interval(secs => %s) AND store = coalesce(%s, store)"
        )
        return int(self._rows(statement, (grace_seconds, store))[0][0])

    def mark_copy_deleted(self, copy: RetiredCopy, grace_seconds: int) -> bool:
        """Decide that a copy is deleted. False if somebody needs it again meanwhile, or if the copy or its chunk is
        at another place than `left_copies` gave."""
        with self._connection.transaction() as connection:
            connection.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
            parameters = copy._asdict() | {"grace": grace_seconds}
            if connection.execute(_LOCK_COPY, parameters).fetchone() is None:
                return False
            connection.execute(_DROP_COPY, [copy.id])
        return True

    def waiting(self, grace_seconds: int, store: str | None) -> Waiting:
        """What `prunable` leaves for later."""
        statement = (
            "SELECT count(*), coalesce(sum(size_bytes), 0)::bigint FROM chunks WHERE state = 'retired' "
            "AND retired_at >= now() - make_interval(secs => %s) AND store = coalesce(%s, store)"
        )
        with self._connection.statement() as connection:
            row = connection.execute(statement, (grace_seconds, store)).fetchone()
        assert row is not None  # noqa: S101 - an aggregate gives one row
        return Waiting(*row)

    def mark_deleted(self, chunk_id: int, grace_seconds: int) -> bool:
        """`retired` becomes `deleted`, with all copies, and its log files are forgotten: then undelete cannot bring
        it back. False if it is not so any more, or a file points to it."""
        with self._connection.transaction() as connection:
            connection.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED; SET LOCAL statement_timeout = 0")
            connection.execute(BY_INDEX)
            if connection.execute(_DELETE, (chunk_id, grace_seconds)).rowcount != 1:
                return False
            drop_copies(connection, [chunk_id])
            drop_units(connection, chunk_id)
            record_event(connection, "chunk_deleted", chunk_id, "pruned")
        return True

    def objects(self, chunk_id: int) -> list[ChunkObject]:
        """The objects of a chunk that are there as far as the catalog knows, itself first, unless it was
        adopted."""
        return [ChunkObject(*row) for row in self._rows(_OBJECTS, {"chunk": chunk_id})]

    def _rows(self, statement: str, parameters: Any) -> Sequence[tuple[Any, ...]]:
        with self._connection.statement() as connection:
            return connection.execute(statement.encode(), parameters).fetchall()
