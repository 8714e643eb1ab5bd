"""Copies of chunks in further stores: which there are, and how one comes to be."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple
from uuid import UUID

from cafcat.catalog.connection import Connection, PgConnection
from cafcat.catalog.lookup import folder_range
from cafcat.catalog.objects import Objects
from cafcat.errors import Conflict
from cafcat.model import ChunkState

__all__ = ["ChunkToCopy", "Copies", "CopyOf", "Selection", "drop_copies"]

_PAGE_ROWS: Final = 1000
_READABLE: Final = (ChunkState.COMMITTED, ChunkState.RETIRED)

# A chunk has one journal record that says that it was committed: its place in the order of changes.
_CHUNK: Final = """
SELECT c.id, c.uuid, c.state, c.format, c.store, c.object_key, c.size_bytes, c.file_count,
       c.crc64nvme,       coalesce((SELECT min(j.id) FROM journal AS j WHERE j.chunk_id = c.id), 0), k.state
FROM chunks AS c
LEFT JOIN chunk_copies AS k ON k.chunk_id = c.id AND k.store = %(store)s AND k.deleted_at IS NULL
"""
_BELOW: Final = (
    "c.id IN (SELECT caf_file_id FROM file_locations WHERE file_path = %(path)s "
    "UNION SELECT caf_file_id FROM file_locations WHERE file_path >= %(low)s AND file_path < %(high)s)"
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
FROM journal AS j JOIN retired_locations AS r ON r.caf_file_id = j.chunk_id AND r.reason = 'skipped'
WHERE j.chunk_id = %(chunk)s
ON CONFLICT DO NOTHING
"""


class ChunkToCopy(NamedTuple):
    """A chunk as copying it needs it: size in bytes, crc64nvme in base64. sequence: its place in the journal.
    copy_state: of its copy in the store that was asked for: writing, committed, abandoned, deleted, or None."""

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


class CopyOf(NamedTuple):
    """The chunk that a copy is of; size in bytes, crc64nvme in base64."""

    id: int
    uuid: UUID
    size_bytes: int
    crc64nvme: str | None


class Selection(NamedTuple):
    """Which chunks: of these uuids, or committed ones with live files below a folder (or of that name; without a
    slash at either end), or all that are committed. An adopted
    archive is one only if it is named."""

    uuids: Sequence[UUID] | None = None
    prefix: str | None = None

    def condition(self) -> str:
        if self.uuids is not None:
            return "c.uuid = ANY(%(uuids)s)"
        return "c.state = 'committed' AND c.adopted_prefix IS NULL" + (f" AND {_BELOW}" if self.prefix else "")

    def parameters(self) -> dict[str, Any]:
        low, high = folder_range(f"{self.prefix}/" if self.prefix else "")
        return {"uuids": list(self.uuids or ()), "path": self.prefix, "low": low, "high": high}


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

    def totals(self, selection: Selection, store: str) -> tuple[int, int]:
        """Files in, and bytes of, the chunks that have to be copied into a store: those that are neither there nor
        have a copy there."""
        statement = (
            "SELECT coalesce(sum(c.file_count), 0)::bigint, coalesce(sum(c.size_bytes), 0)::bigint "  # noqa: S608
            f"FROM chunks AS c WHERE {selection.condition()} AND c.store <> %(store)s "
            "AND NOT EXISTS (SELECT FROM chunk_copies AS k "
            "WHERE k.chunk_id = c.id AND k.store = %(store)s AND k.state = 'committed')"
        )
        with self._connection.statement() as connection:
            row = connection.execute(statement.encode(), selection.parameters() | {"store": store}).fetchone()
        return (int(row[0]), int(row[1])) if row else (0, 0)

    def page(self, selection: Selection, store: str, *, after: int = 0) -> list[ChunkToCopy]:
        """Chunks by chunks.id, beginning after one, and how it stands with their copies in a store."""
        statement = _CHUNK + f"WHERE c.id > %(after)s AND {selection.condition()} ORDER BY c.id LIMIT {_PAGE_ROWS}"
        parameters = selection.parameters() | {"store": store, "after": after}
        with self._connection.statement() as connection:
            return [ChunkToCopy(*row) for row in connection.execute(statement.encode(), parameters).fetchall()]

    def begin(self, chunk_id: int, store: str, object_key: str, owner: str, lease_seconds: int) -> int:
        """Inserts the row `writing`, before the first byte is written. From now on the journal is written into
        that store, too. Returns chunk_copies.id. Raises Conflict if it has, or had and may still have, a copy."""
        statement = (
            "INSERT INTO chunk_copies (chunk_id, store, object_key, lease_owner, lease_expires_at) "
            "VALUES (%s, %s, %s, %s, now() + make_interval(secs => %s)) ON CONFLICT DO NOTHING RETURNING id"
        )
        with self._connection.transaction() as connection:
            # Whoever removes files holds a lock that this waits for: it has sent its record before this row is
            # seen, or sees it. Commits of new files are not waited for.
            connection.execute("LOCK TABLE file_locations IN ROW EXCLUSIVE MODE")
            row = connection.execute(statement, (chunk_id, store, object_key, owner, lease_seconds)).fetchone()
        if row is None:
            raise Conflict(f"another copy of the chunk is, or was, on its way to {store}", chunk=object_key)
        return int(row[0])

    def commit(self, object_id: int, etag: str | None) -> None:
        """The copy is durable and has the bytes of its chunk. The chunk's journal record has to be written to
        its store now. Raises Conflict if it is not being written, or the chunk was deleted meanwhile."""
        done = (
            "UPDATE chunk_copies SET state = 'committed', committed_at = now(), lease_expires_at = NULL, etag = %s "
            "WHERE id = %s"
        )
        with self._connection.transaction() as connection:
            row = connection.execute(f"{_OF_COPY} FOR SHARE OF c FOR UPDATE OF k".encode(), [object_id]).fetchone()
            if row is None or row[3] != ChunkState.WRITING or row[1] not in _READABLE:
                state = "gone" if row is None else f"{row[3]}, its chunk {row[1]}"
                raise Conflict(f"the copy cannot be committed: it is {state}", chunk=str(object_id))
            connection.execute(done, (etag, object_id))
            where = {"store": row[2], "chunk": row[0]}
            connection.execute(_SEND_LINE, where)
            connection.execute(_SEND_FILES, where)

    def chunk(self, copy_id: int) -> CopyOf:
        """Of which chunk a copy is. Raises Conflict if there is no such copy."""
        with self._connection.statement() as connection:
            row = connection.execute(_OF_COPY.encode(), [copy_id]).fetchone()
        if row is None:
            raise Conflict("there is no such copy", chunk=str(copy_id))
        return CopyOf(row[0], row[4], row[5], row[6])


def drop_copies(connection: PgConnection, chunks: Sequence[int]) -> None:
    """In the caller's transaction, which has just decided that chunks (chunks.id) are deleted: nobody reads their
    copies from now on, and recover removes them. Those still on their way cannot be committed any more."""
    statement = "UPDATE chunk_copies SET state = 'deleted' WHERE chunk_id = ANY(%s) AND state = 'committed'"
    connection.execute(statement, [list(chunks)])
