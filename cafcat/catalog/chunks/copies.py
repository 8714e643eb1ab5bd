"""Copies of chunks in further stores: which there are, and how one comes to be."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple
from uuid import UUID

from psycopg import errors as pg

from cafcat.catalog.by_key import BY_INDEX
from cafcat.catalog.chunks.objects import Objects
from cafcat.catalog.connection import Connection, PgConnection
from cafcat.catalog.files.lookup import folder_range
from cafcat.catalog.history.events import record_event
from cafcat.catalog.locking import acquire
from cafcat.catalog.stores.stores import moved_meanwhile
from cafcat.errors import Conflict
from cafcat.model import ChunkState

__all__ = ["ChunkToCopy", "CopiedChunk", "Copies", "Selection", "drop_copies"]

_PAGE_ROWS: Final = 1000
_READABLE: Final = (ChunkState.COMMITTED, ChunkState.RETIRED)

# A chunk has one journal record that says that it was committed: its place in the order of changes.
_CHUNK: Final = """
SELECT c.id, c.uuid, c.state, c.format, c.store, c.object_key, c.size_bytes, c.file_count,
       c.crc64nvme, coalesce((SELECT min(j.id) FROM journal AS j WHERE j.chunk_id = c.id), 0), k.state,
       k.retired_at IS NOT NULL
FROM chunks AS c
LEFT JOIN chunk_copies AS k ON k.chunk_id = c.id AND k.store = %(store)s AND k.deleted_at IS NULL
"""
_BELOW: Final = (
    "c.id = ANY (ARRAY(SELECT caf_file_id FROM file_locations WHERE file_path = %(path)s "
    "UNION SELECT caf_file_id FROM file_locations WHERE file_path >= %(low)s AND file_path < %(high)s))"
)

_IN_STORE: Final = (
    "c.state IN ('committed', 'retired') AND c.adopted_prefix IS NULL "
    "AND (c.store = %(in_store)s OR EXISTS (SELECT FROM chunk_copies AS x WHERE x.chunk_id = c.id "
    "AND x.store = %(in_store)s AND x.state = 'committed' AND x.retired_at IS NULL))"
)

_OF_COPY: Final = """
SELECT c.id, c.state, k.store, k.state, c.uuid, c.size_bytes, c.crc64nvme
FROM chunk_copies AS k JOIN chunks AS c ON c.id = k.chunk_id
WHERE k.id = %s
"""

# That record goes into the store of the copy, too. What it says beside the chunk's columns, the files that were
# skipped, may have been forgotten here when every store had it: it is still in retired_locations.
_SEND_LINE: Final = """
UPDATE journal SET unwritten = array_append(unwritten, %(store)s)
WHERE chunk_id = %(chunk)s AND NOT unwritten @> ARRAY[%(store)s]
"""
_SEND_FILES: Final = """
INSERT INTO journal_files (journal_id, caf_file_id, start_byte, file_path)
SELECT j.id, r.caf_file_id, r.start_byte, r.file_path
FROM journal AS j CROSS JOIN LATERAL (SELECT * FROM retired_locations WHERE caf_file_id = j.chunk_id OFFSET 0) AS r
WHERE j.chunk_id = %(chunk)s AND r.reason = 'skipped'
ON CONFLICT DO NOTHING
"""


_SWITCHABLE: Final = """
SELECT c.id, c.store, c.object_key, c.etag, k.id, k.object_key, k.etag
FROM chunks AS c JOIN chunk_copies AS k ON k.chunk_id = c.id
WHERE c.uuid = %(uuid)s AND c.state IN ('committed', 'retired') AND c.adopted_prefix IS NULL
  AND k.store = %(new)s AND k.state = 'committed'
FOR UPDATE
"""
_RETIRE_COPY: Final = (
    "UPDATE chunk_copies SET retired_at = now() WHERE chunk_id = %s AND store = %s AND state = 'committed'"
)
_MAKE_COPY: Final = (
    "UPDATE chunk_copies SET store = %s, object_key = %s, etag = %s, upload_id = NULL, retired_at = now() "
    "WHERE id = %s"
)
_PLACES: Final = (
    "SELECT place > 0, store, object_key FROM (SELECT c.store, c.object_key, 0 AS place, c.id FROM chunks AS c "
    "WHERE c.uuid = %(uuid)s AND c.state IN ('committed', 'retired') UNION ALL "
    "SELECT k.store, k.object_key, CASE WHEN k.retired_at IS NULL THEN 1 ELSE 2 END, k.id "
    "FROM chunk_copies AS k JOIN chunks AS c ON c.id = k.chunk_id "
    "WHERE c.uuid = %(uuid)s AND k.state = 'committed') AS places WHERE place <= %(last)s ORDER BY place, id"
)
_MAKE_CHUNK: Final = "UPDATE chunks SET store = %s, object_key = %s, etag = %s, upload_id = NULL WHERE id = %s"


class ChunkToCopy(NamedTuple):
    """A chunk as copying it needs it: size in bytes, crc64nvme in base64. sequence: its place in the journal.
    copy_state: of its copy in the store that was asked for: writing, committed, abandoned, deleted, or None.
    is_left: a migration left this copy behind, and prune is to remove it."""

    id: int
    uuid: UUID
    state: str
    format: str
    store: str
    object_key: str
    size_bytes: int
    file_count: int
    crc64nvme: str | None
    sequence: int
    copy_state: str | None
    is_copy_retired: bool


class CopiedChunk(NamedTuple):
    """The chunk that a copy is of; size in bytes, crc64nvme in base64."""

    id: int
    uuid: UUID
    size_bytes: int
    crc64nvme: str | None


class Selection(NamedTuple):
    """Which chunks: of these uuids, or committed ones with live files below a folder (or of that name; without a
    slash at either end), or those of which a store (URL) has the chunk itself or a copy, or all that are committed.
    An adopted archive is one only if it is named."""

    uuids: Sequence[UUID] | None = None
    prefix: str | None = None
    store: str | None = None

    def condition(self) -> str:
        if self.uuids is not None:
            return "c.uuid = ANY(%(uuids)s)"
        if self.store is not None:
            return _IN_STORE
        return "c.state = 'committed' AND c.adopted_prefix IS NULL" + (f" AND {_BELOW}" if self.prefix else "")

    def parameters(self) -> dict[str, Any]:
        low, high = folder_range(f"{self.prefix}/" if self.prefix else "")
        return {
            "uuids": list(self.uuids or ()),
            "path": self.prefix,
            "low": low,
            "high": high,
            "in_store": self.store,
        }


class Copies(Objects):
    """The rows of `chunk_copies`. Every method is one transaction. Stores are URLs as in `chunks.store`."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection, "chunk_copies")

    def of_chunk(self, chunk: UUID) -> list[tuple[str, str]]:
        """Store and key of every committed copy, the oldest first."""
        statement = (
            "SELECT k.store, k.object_key FROM chunk_copies AS k JOIN chunks AS c ON c.id = k.chunk_id "
            "WHERE c.uuid = %s AND k.state = 'committed' ORDER BY k.id"
        )
        with self._connection.statement() as connection:
            return [(store, key) for store, key in connection.execute(statement, [chunk]).fetchall()]

    def replicas_of(self, chunk: UUID) -> list[tuple[str, str]]:
        """Return store and key of the chunk itself, as they are now, then those of its copies: the ones that a
        migration left behind come last."""
        return [(store, key) for _, store, key in self._places(chunk, last=2)]

    def active_replicas(self, chunk: UUID) -> list[tuple[bool, str, str]]:
        """Return the same without what a migration left behind: whether it is a copy, store and key."""
        return self._places(chunk, last=1)

    def _places(self, chunk: UUID, *, last: int) -> list[tuple[bool, str, str]]:
        with self._connection.statement() as connection:
            rows = connection.execute(_PLACES, {"uuid": chunk, "last": last}).fetchall()
        return [(is_copy, store, key) for is_copy, store, key in rows]

    def totals(self, selection: Selection, store: str) -> tuple[int, int]:
        """Files in, and bytes of, the chunks that have to be copied into a store: those that are neither there nor
        have a copy there."""
        statement = (
            "SELECT coalesce(sum(c.file_count), 0)::bigint, coalesce(sum(c.size_bytes), 0)::bigint "  # noqa: S608
            f"FROM chunks AS c WHERE {selection.condition()} AND c.store <> %(store)s "
            "AND NOT EXISTS (SELECT FROM chunk_copies AS k "
            "WHERE k.chunk_id = c.id AND k.store = %(store)s AND k.state = 'committed')"
        )
        with self._connection.by_index() as connection:
            row = connection.execute(statement.encode(), selection.parameters() | {"store": store}).fetchone()
        return (int(row[0]), int(row[1])) if row else (0, 0)

    def page(self, selection: Selection, store: str, *, after: int = 0) -> list[ChunkToCopy]:
        """Chunks by chunks.id, beginning after one, and how it stands with their copies in a store."""
        statement = _CHUNK + f"WHERE c.id > %(after)s AND {selection.condition()} ORDER BY c.id LIMIT {_PAGE_ROWS}"
        parameters = selection.parameters() | {"store": store, "after": after}
        with self._connection.by_index() as connection:
            return [ChunkToCopy(*row) for row in connection.execute(statement.encode(), parameters).fetchall()]

    def begin(self, chunk_id: int, store: str, object_key: str, owner: str, lease_seconds: int) -> int:
        """Inserts the row `writing`, before the first byte is written. From now on the journal is written into
        that store, too. Returns chunk_copies.id. Raises Conflict if it has, or had and may
        still have, a copy, or if the catalog has no such store."""
        statement = (
            "INSERT INTO chunk_copies (chunk_id, store, object_key, lease_owner, lease_expires_at) "
            "VALUES (%s, %s, %s, %s, now() + make_interval(secs => %s)) ON CONFLICT DO NOTHING RETURNING id"
        )
        with self._connection.transaction() as connection:
            # Whoever removes files holds a lock that this waits for: it has sent its record before this row is
            # seen, or sees it. Commits of new files are not waited for.
            acquire(connection, "LOCK TABLE file_locations IN ROW EXCLUSIVE MODE")
            try:
                row = connection.execute(statement, (chunk_id, store, object_key, owner, lease_seconds)).fetchone()
            except pg.ForeignKeyViolation as error:
                raise moved_meanwhile(store) from error
        if row is None:
            raise Conflict(f"another copy of the chunk is, or was, on its way to {store}", chunk=object_key)
        return int(row[0])

    def commit(self, object_id: int, etag: str | None) -> None:
        """The copy is durable and has the bytes of its chunk. The chunk's journal record has to be written to
        its store now. Raises Conflict if it is not being written, or the chunk was deleted meanwhile."""
        done = (
            "UPDATE chunk_copies SET state = 'committed', committed_at = now(), lease_expires_at = NULL, etag = %s "
            "WHERE id = %s AND lease_owner IS NOT NULL"
        )
        with self._connection.transaction() as connection:
            row = connection.execute(f"{_OF_COPY} FOR SHARE OF c FOR UPDATE OF k".encode(), [object_id]).fetchone()
            if row is None or row[3] != ChunkState.WRITING or row[1] not in _READABLE:
                state = "gone" if row is None else f"{row[3]}, its chunk {row[1]}"
                raise Conflict(f"the copy cannot be committed: it is {state}", chunk=str(object_id))
            if not connection.execute(done, (etag, object_id)).rowcount:
                raise Conflict("the copy was taken from its writer: its store has moved", chunk=str(object_id))
            connection.execute(BY_INDEX)
            where = {"store": row[2], "chunk": row[0]}
            connection.execute(_SEND_LINE, where)
            connection.execute(_SEND_FILES, where)

    def reactivate(self, chunk: UUID, store: str) -> None:
        """Let a copy stay that a migration left behind for prune. Raises Conflict if prune has decided meanwhile to
        remove it."""
        statement = (
            "UPDATE chunk_copies AS k SET retired_at = NULL FROM chunks AS c "
            "WHERE c.id = k.chunk_id AND c.uuid = %s AND k.store = %s AND k.state = 'committed'"
        )
        with self._connection.statement() as connection:
            kept = connection.execute(statement, (chunk, store)).rowcount
        if not kept:
            raise Conflict(f"prune removes the copy that a migration left in {store}", hint="copy it again later")

    def switch(self, chunk: UUID, old: str, new: str) -> None:
        """Make the copy in one store the place where a chunk is read from; its place in the other one becomes a
        copy that prune removes later. If only a copy is in the old store, that one is retired. One transaction.
        Raises Conflict if the chunk or its copy are not what they were when they were looked at, as when one of the
        stores was moved."""
        with self._connection.transaction() as connection:
            row = connection.execute(_SWITCHABLE, {"uuid": chunk, "new": new}).fetchone()
            if row is None:
                raise Conflict("the chunk or its new copy was removed meanwhile", chunk=str(chunk))
            chunk_id, store, key, etag, copy_id, copy_key, copy_etag = row
            if store != old:
                if not connection.execute(_RETIRE_COPY, (chunk_id, old)).rowcount:
                    raise moved_meanwhile(old)
                connection.execute("UPDATE chunk_copies SET retired_at = NULL WHERE id = %s", [copy_id])
                return
            connection.execute(_MAKE_COPY, (old, key, etag, copy_id))
            connection.execute(_MAKE_CHUNK, (new, copy_key, copy_etag, chunk_id))
            record_event(connection, "chunk_migrated", chunk_id, f"{old} {new}")

    def chunk(self, copy_id: int) -> CopiedChunk:
        """Of which chunk a copy is. Raises Conflict if there is no such copy."""
        with self._connection.statement() as connection:
            row = connection.execute(_OF_COPY.encode(), [copy_id]).fetchone()
        if row is None:
            raise Conflict("there is no such copy", chunk=str(copy_id))
        return CopiedChunk(row[0], row[4], row[5], row[6])


def drop_copies(connection: PgConnection, chunks: Sequence[int]) -> None:
    """In the caller's transaction, which has just decided that chunks (chunks.id) are deleted: nobody reads their
    copies from now on, and recover removes them. Those still on their way cannot be committed any more."""
    statement = "UPDATE chunk_copies SET state = 'deleted' WHERE chunk_id = ANY(%s) AND state = 'committed'"
    connection.execute(statement, [list(chunks)])
