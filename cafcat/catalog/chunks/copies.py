"""The rows of copies of chunks in further stores."""

from collections.abc import Collection, Sequence
from typing import Any, Final, NamedTuple
from uuid import UUID

from psycopg import errors as pg

from cafcat.catalog.by_key import BY_INDEX
from cafcat.catalog.chunks.objects import Objects
from cafcat.catalog.connection import Connection, PgConnection
from cafcat.catalog.files.scope import folder_range
from cafcat.catalog.history.events import record_event
from cafcat.catalog.history.runs import iso
from cafcat.catalog.locking import acquire
from cafcat.catalog.stores.stores import moved_meanwhile
from cafcat.errors import Conflict
from cafcat.model import ChunkState

__all__ = ["ChunkToCopy", "CopiedChunk", "Copies", "CopyStatus", "LastCheck", "Selection", "drop_copies"]

_PAGE_ROWS: Final = 1000
_WITH_OBJECT: Final = (ChunkState.COMMITTED, ChunkState.RETIRED)

# A chunk has one journal record of its commit. Its journal.id is the position of the commit in the order of
# changes.
_CHUNK: Final = """
SELECT c.id, c.uuid, c.state, c.format, c.store, c.object_key, c.size_bytes, c.file_count,
       c.crc64nvme, coalesce((SELECT min(j.id) FROM journal AS j WHERE j.chunk_id = c.id), 0), k.state,
       k.retired_at IS NOT NULL, cafcat_ops.is_broken(k.chunk_id, k.id)
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
_NOT_IN_STORE: Final = (
    "c.state = 'retired' AND c.adopted_prefix IS NULL AND c.store <> %(not_in)s AND NOT EXISTS "
    "(SELECT FROM chunk_copies AS x WHERE x.chunk_id = c.id AND x.store = %(not_in)s AND x.deleted_at IS NULL)"
)

_COPY_AND_CHUNK: Final = """
SELECT c.id, c.state, k.store, k.state, c.uuid, c.size_bytes, c.crc64nvme
FROM chunk_copies AS k JOIN chunks AS c ON c.id = k.chunk_id
WHERE k.id = %s
"""

# A failed check counts as the last one until a later check has refuted it, as in the view chunk_health.
_OWN_CHECK: Final = f"""
SELECT {iso("v.finished_at")}, v.level, v.verdict FROM chunks AS c JOIN verifications AS v ON v.chunk_id = c.id
WHERE c.uuid = %s AND v.copy_id IS NULL
ORDER BY (v.verdict IN ('damaged', 'missing') AND cafcat_ops.is_broken(c.id, NULL)) DESC, v.id DESC LIMIT 1
"""  # noqa: S608
_STATUSES: Final = f"""
SELECT k.store, k.object_key,
       CASE WHEN k.state = 'committed' AND k.retired_at IS NOT NULL THEN 'retired' ELSE k.state END,
       {iso("k.committed_at")}, {iso("v.finished_at")}, v.level, v.verdict
FROM chunks AS c JOIN chunk_copies AS k ON k.chunk_id = c.id AND k.deleted_at IS NULL
LEFT JOIN LATERAL (
    SELECT * FROM verifications AS x WHERE x.chunk_id = k.chunk_id AND x.copy_id = k.id
    ORDER BY (x.verdict IN ('damaged', 'missing') AND cafcat_ops.is_broken(k.chunk_id, k.id)) DESC, x.id DESC
    LIMIT 1
) AS v ON true
WHERE c.uuid = %s ORDER BY k.id
"""  # noqa: S608

# The journal record of the chunk's commit is also written into the store of the copy. The record lists the skipped
# files. Their rows in journal_files may have been deleted after all stores had the record, so they are copied again
# from retired_locations.
_ADD_PENDING_STORE: Final = """
UPDATE journal SET unwritten = array_append(unwritten, %(store)s)
WHERE chunk_id = %(chunk)s AND NOT unwritten @> ARRAY[%(store)s]
"""
_INSERT_SKIPPED_FILES: Final = """
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
_MAKE_RETIRED_COPY: Final = (
    "UPDATE chunk_copies SET store = %s, object_key = %s, etag = %s, upload_id = NULL, retired_at = now() "
    "WHERE id = %s"
)
_STORES_OF: Final = (
    "SELECT DISTINCT store FROM chunk_copies "
    "WHERE chunk_id = ANY(%s) AND state = 'committed' AND retired_at IS NULL AND deleted_at IS NULL ORDER BY 1"
)
_STORES_OF_CHUNKS: Final = (
    "SELECT DISTINCT c.store, ARRAY(SELECT k.store FROM chunk_copies AS k "
    "WHERE k.chunk_id = c.id AND k.state = 'committed' ORDER BY 1) FROM chunks AS c WHERE c.uuid = ANY(%s)"
)
_REPLICAS: Final = (
    "SELECT place > 0, store, object_key FROM (SELECT c.store, c.object_key, 0 AS place, c.id FROM chunks AS c "
    "WHERE c.uuid = %(uuid)s AND c.state IN ('committed', 'retired') UNION ALL "
    "SELECT k.store, k.object_key, CASE WHEN k.retired_at IS NULL THEN 1 ELSE 2 END, k.id "
    "FROM chunk_copies AS k JOIN chunks AS c ON c.id = k.chunk_id "
    "WHERE c.uuid = %(uuid)s AND k.state = 'committed') AS places WHERE place <= %(last)s ORDER BY place, id"
)
_HAS_COPIES: Final = (
    "SELECT EXISTS (SELECT FROM chunk_copies AS k JOIN chunks AS c ON c.id = k.chunk_id "
    "WHERE k.state = 'committed' AND c.state IN ('committed', 'retired') AND c.store = %s AND k.store <> c.store)"
)
_HAS_ANY: Final = b"SELECT FROM chunk_copies WHERE state = 'committed' LIMIT 1"
# The object of the chunk and that of the copy change their places.
_SWAP_CHECKS: Final = """
UPDATE verifications SET copy_id = CASE WHEN copy_id IS NULL THEN %(copy)s::bigint END
WHERE chunk_id = %(chunk)s AND (copy_id IS NULL OR copy_id = %(copy)s) AND level <> 'catalog'
"""
_MAKE_CHUNK: Final = "UPDATE chunks SET store = %s, object_key = %s, etag = %s, upload_id = NULL WHERE id = %s"


class ChunkToCopy(NamedTuple):
    """A chunk that may be copied into a target store, and the state of its copy there.

    Attributes:
        id: chunks.id.
        uuid: Name of the chunk outside SQL.
        state: State of the chunk (ChunkState).
        format: Format of the archive.
        store: URL of the store that holds the chunk itself.
        object_key: Key of its object in that store.
        size_bytes: Size of its object.
        file_count: Number of files in the chunk.
        crc64nvme: CRC-64/NVME of its object in base64; None if unknown.
        sequence: journal.id of its commit; 0 if it has no record.
        copy_state: State of its copy in the target store: writing, committed, abandoned or deleted; None if the
            catalog has no copy there, or has recorded that the object of an abandoned or deleted copy is gone.
        is_copy_retired: True if a migration has retired this copy. Prune removes it later.
        is_copy_broken: True if `verify` found this copy damaged or missing, and has not found it undamaged since.
    """

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
    is_copy_broken: bool


class CopiedChunk(NamedTuple):
    """The chunk of which a row of `chunk_copies` is a copy.

    Attributes:
        id: chunks.id.
        uuid: Name of the chunk outside SQL.
        size_bytes: Size of its object.
        crc64nvme: CRC-64/NVME of its object in base64; None if unknown.
    """

    id: int
    uuid: UUID
    size_bytes: int
    crc64nvme: str | None


class LastCheck(NamedTuple):
    """The last check of an object.

    Attributes:
        checked_at: When the check ended: ISO 8601, UTC.
        level: Level of the check.
        verdict: ok, damaged, missing or unreadable.
    """

    checked_at: str
    level: str
    verdict: str


class CopyStatus(NamedTuple):
    """A copy of a chunk, with its last check.

    Attributes:
        store: URL of the store with the copy.
        object_key: Key of the copy in that store.
        state: State of the copy (ChunkState). A migration of the store makes a copy `retired`.
        committed_at: When the copy was committed: ISO 8601, UTC; None if it was not.
        checked_at: When the last check of the copy ended: ISO 8601, UTC; None if the copy was never checked. A
            failed check stays the last one until a later check has refuted it.
        level: Level of this check; None if the copy was never checked.
        verdict: ok, damaged, missing or unreadable; None if the copy was never checked.
    """

    store: str
    object_key: str
    state: str
    committed_at: str | None
    checked_at: str | None
    level: str | None
    verdict: str | None


class Selection(NamedTuple):
    """A selection of chunks by at most one of its attributes; without any, all committed chunks.

    Adopted archives are selected by UUID only.

    Attributes:
        uuids: The chunks with these UUIDs, in any state.
        prefix: Committed chunks with a live file that is below this folder or has the folder's name. The text has
            no slash at either end.
        store: Committed and retired chunks that the store with this URL holds, either themselves or as a copy.
        not_in: Retired chunks that the store with this URL does not hold, neither themselves nor as a copy.
    """

    uuids: Sequence[UUID] | None = None
    prefix: str | None = None
    store: str | None = None
    not_in: str | None = None

    def condition(self, *, adopted: bool = False) -> str:
        """Return an SQL condition that selects these chunks, where `c` is a row of the table `chunks`.

        Args:
            adopted: True to select adopted archives instead of chunks. This changes only a selection by prefix, or
                of all chunks.
        """
        if self.uuids is not None:
            return "c.uuid = ANY(%(uuids)s)"
        if self.store is not None:
            return _IN_STORE
        if self.not_in is not None:
            return _NOT_IN_STORE
        kind = "IS NOT NULL" if adopted else "IS NULL"
        return f"c.state = 'committed' AND c.adopted_prefix {kind}" + (f" AND {_BELOW}" if self.prefix else "")

    def parameters(self) -> dict[str, Any]:
        """Return the parameters of the SQL condition that `condition` returns, by name."""
        low, high = folder_range(f"{self.prefix}/" if self.prefix else "")
        return {
            "uuids": list(self.uuids or ()),
            "path": self.prefix,
            "low": low,
            "high": high,
            "in_store": self.store,
            "not_in": self.not_in,
        }


class Copies(Objects):
    """Queries on the rows of `chunk_copies`. Every method is one transaction."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection, "chunk_copies")

    def of_chunk(self, chunk: UUID) -> list[tuple[str, str]]:
        """Return store URL and key of each committed copy of a chunk, active or retired, oldest copy first."""
        statement = (
            "SELECT k.store, k.object_key FROM chunk_copies AS k JOIN chunks AS c ON c.id = k.chunk_id "
            "WHERE c.uuid = %s AND k.state = 'committed' ORDER BY k.id"
        )
        with self._connection.statement() as connection:
            return [(store, key) for store, key in connection.execute(statement, [chunk]).fetchall()]

    def own_check(self, chunk: UUID) -> LastCheck | None:
        """Return the last check of a chunk's own object; None if it was never checked.

        A failed check stays the last one until a later check has refuted it.
        """
        with self._connection.statement() as connection:
            row = connection.execute(_OWN_CHECK.encode(), [chunk]).fetchone()
        return None if row is None else LastCheck(*row)

    def statuses(self, chunk: UUID) -> list[CopyStatus]:
        """Return each copy of a chunk, oldest first, except those whose object is gone."""
        with self._connection.statement() as connection:
            rows = connection.execute(_STATUSES.encode(), [chunk]).fetchall()
        return [CopyStatus(*row) for row in rows]

    def stores_of(self, chunk_ids: Sequence[int]) -> list[str]:
        """Return the URLs of the stores that have active copies of at least one of some chunks, in their order.

        Args:
            chunk_ids: Values of chunks.id.
        """
        with self._connection.by_index() as connection:
            rows = connection.execute(_STORES_OF, [list(chunk_ids)]).fetchall()
        return [store for (store,) in rows]

    def stores_of_chunks(self, chunks: Collection[UUID]) -> list[tuple[str, list[str]]]:
        """Return for each chunk the URL of its store, and those of its committed copies; each combination once."""
        with self._connection.by_index() as connection:
            return connection.execute(_STORES_OF_CHUNKS, [list(chunks)]).fetchall()

    def replicas_of(self, chunk: UUID) -> list[tuple[str, str]]:
        """Return the current store URL and object key of a chunk itself, then those of each committed copy.

        Copies that a migration has retired come last. The list is empty if the catalog has no such chunk, or the
        chunk was deleted.
        """
        return [(store_url, key) for _, store_url, key in self._replicas(chunk, last=2)]

    def has_copies_of(self, store_url: str) -> bool:
        """Return True if another store has a committed copy of any chunk of a store."""
        with self._connection.statement(read_only=True) as connection:
            row = connection.execute(_HAS_COPIES, [store_url]).fetchone()
        return row is not None and bool(row[0])

    def has_any(self) -> bool:
        """Return True if the catalog has a committed copy of any chunk."""
        with self._connection.statement(read_only=True) as connection:
            return bool(connection.execute(_HAS_ANY).fetchall())

    def lacking_changes(self, chunk: UUID) -> int:
        """Return how many changes the restored backup lacked that may concern a chunk: see `Backups`."""
        from cafcat.catalog.transfer.dump import Backups

        return Backups(self._connection).lacking_changes([chunk])

    def active_replicas(self, chunk: UUID) -> list[tuple[bool, str, str]]:
        """Return the objects of a chunk: its own, and its copies, except those that a migration has retired.

        Returns:
            For each object: True if it is a copy, False for the chunk's own object; store URL; object key. The
            chunk's own object comes first. The list is empty if the catalog has no such chunk, or the chunk was
            deleted.
        """
        return self._replicas(chunk, last=1)

    def _replicas(self, chunk: UUID, *, last: int) -> list[tuple[bool, str, str]]:
        with self._connection.statement() as connection:
            rows = connection.execute(_REPLICAS, {"uuid": chunk, "last": last}).fetchall()
        return [(is_copy, store_url, key) for is_copy, store_url, key in rows]

    def totals(self, selection: Selection, store_url: str) -> tuple[int, int]:
        """Return totals of the selected chunks that still need a copy in a store.

        These are the chunks of which the store has neither the chunk's own object nor a committed copy.

        Returns:
            Number of files in these chunks, and total size of their objects in bytes.
        """
        statement = (
            "SELECT coalesce(sum(c.file_count), 0)::bigint, coalesce(sum(c.size_bytes), 0)::bigint "  # noqa: S608
            f"FROM chunks AS c WHERE {selection.condition()} AND c.store <> %(store)s "
            "AND NOT EXISTS (SELECT FROM chunk_copies AS k "
            "WHERE k.chunk_id = c.id AND k.store = %(store)s AND k.state = 'committed')"
        )
        with self._connection.by_index() as connection:
            row = connection.execute(statement.encode(), selection.parameters() | {"store": store_url}).fetchone()
        return (int(row[0]), int(row[1])) if row else (0, 0)

    def count_adopted(self, prefix: str | None) -> int:
        """Return the number of committed adopted archives, which get no copies.

        Args:
            prefix: Count only archives with a live file below this folder, or with its name; None for all.
        """
        selection = Selection(prefix=prefix)
        statement = f"SELECT count(*) FROM chunks AS c WHERE {selection.condition(adopted=True)}"  # noqa: S608
        with self._connection.by_index() as connection:
            row = connection.execute(statement.encode(), selection.parameters()).fetchone()
        return int(row[0]) if row else 0

    def is_adopted(self, object_key: str) -> bool:
        """Return True if the catalog has an adopted archive whose name is the key of a chunk, in any store.

        Two URLs may mean one place, and the store of an adopted archive may be a folder above it.

        Args:
            object_key: Key of the chunk.
        """
        statement = (
            "SELECT EXISTS (SELECT FROM chunks WHERE adopted_prefix IS NOT NULL AND state <> 'deleted' "
            "AND right(object_key, length(%(key)s)) = %(key)s)"
        )
        with self._connection.statement(read_only=True) as connection:
            row = connection.execute(statement, {"key": object_key}).fetchone()
        return row is not None and bool(row[0])

    def stores(self, selection: Selection) -> list[str]:
        """Return the URLs of the stores that hold the selected chunks themselves."""
        statement = f"SELECT DISTINCT c.store FROM chunks AS c WHERE {selection.condition()}"  # noqa: S608
        with self._connection.by_index() as connection:
            return [url for (url,) in connection.execute(statement.encode(), selection.parameters()).fetchall()]

    def page(self, selection: Selection, store_url: str, *, after: int = 0) -> list[ChunkToCopy]:
        """Return up to 1,000 selected chunks in the order of chunks.id, with the state of their copies in a store.

        Args:
            selection: The chunks.
            store_url: URL of the target store.
            after: Return only chunks with a higher chunks.id.
        """
        statement = _CHUNK + f"WHERE c.id > %(after)s AND {selection.condition()} ORDER BY c.id LIMIT {_PAGE_ROWS}"
        parameters = selection.parameters() | {"store": store_url, "after": after}
        with self._connection.by_index() as connection:
            return [ChunkToCopy(*row) for row in connection.execute(statement.encode(), parameters).fetchall()]

    def begin(self, chunk_id: int, store_url: str, object_key: str, owner: str, lease_seconds: int) -> int:
        """Insert the row of a copy in the state `writing`, before the first byte of its object is written.

        From then on, journal records of removals and restorations are also written into that store.

        Args:
            chunk_id: chunks.id.
            store_url: URL of the store.
            object_key: Key of the copy in that store.
            owner: Name of the writer (owners.owner_name).
            lease_seconds: Length of the lease.

        Returns:
            chunk_copies.id.

        Raises:
            Conflict: The store has a copy of the chunk, or may still have the remains of one. Or the catalog does
                not have the store.
        """
        statement = (
            "INSERT INTO chunk_copies (chunk_id, store, object_key, lease_owner, lease_expires_at) "
            "VALUES (%s, %s, %s, %s, now() + make_interval(secs => %s)) ON CONFLICT DO NOTHING RETURNING id"
        )
        with self._connection.transaction() as connection:
            # This lock waits for removals, not for commits of new files. A removal then is either over before this
            # row is inserted, or sees the row and writes its record into this store, too.
            acquire(connection, "LOCK TABLE file_locations IN ROW EXCLUSIVE MODE")
            values = (chunk_id, store_url, object_key, owner, lease_seconds)
            try:
                row = connection.execute(statement, values).fetchone()
            except pg.ForeignKeyViolation as error:
                raise moved_meanwhile(store_url) from error
        if row is None:
            message = f"the catalog already has a copy of the chunk in {store_url}, complete or not"
            raise Conflict(message, chunk=object_key)
        return int(row[0])

    def commit(self, object_id: int, etag: str | None) -> None:
        """Set the state of a copy to `committed`, after its object is durable and has the bytes of the chunk.

        This also adds the store to those into which the record of the chunk's commit has to be written.

        Args:
            object_id: chunk_copies.id.
            etag: Entity tag of the object; None for folders.

        Raises:
            Conflict: The copy is not being written, or its store was moved, or the chunk was deleted meanwhile.
        """
        update = (
            "UPDATE chunk_copies SET state = 'committed', committed_at = now(), lease_expires_at = NULL, etag = %s "
            "WHERE id = %s AND lease_owner IS NOT NULL"
        )
        with self._connection.transaction() as connection:
            select = f"{_COPY_AND_CHUNK} FOR SHARE OF c FOR UPDATE OF k"
            row = connection.execute(select.encode(), [object_id]).fetchone()
            if row is None or row[3] != ChunkState.WRITING or row[1] not in _WITH_OBJECT:
                state = "gone" if row is None else f"{row[3]}, its chunk {row[1]}"
                raise Conflict(f"copy {object_id} cannot be committed: it is {state}")
            if not connection.execute(update, (etag, object_id)).rowcount:
                raise Conflict(f"copy {object_id} cannot be committed: its store has moved meanwhile")
            connection.execute(BY_INDEX)
            parameters = {"store": row[2], "chunk": row[0]}
            connection.execute(_ADD_PENDING_STORE, parameters)
            connection.execute(_INSERT_SKIPPED_FILES, parameters)

    def reactivate(self, chunk: UUID, store_url: str) -> None:
        """Make a copy that a migration has retired an active copy again, which prune does not remove.

        Raises:
            Conflict: The store has no committed copy of the chunk: prune has marked it as deleted meanwhile.
        """
        statement = (
            "UPDATE chunk_copies AS k SET retired_at = NULL FROM chunks AS c "
            "WHERE c.id = k.chunk_id AND c.uuid = %s AND k.store = %s AND k.state = 'committed'"
        )
        with self._connection.statement() as connection:
            is_changed = connection.execute(statement, (chunk, store_url)).rowcount
        if not is_changed:
            message = f"prune is removing the retired copy in {store_url}"
            raise Conflict(message, hint="copy the chunk again later")

    def mark_deleted(self, chunk: UUID, store_url: str) -> int:
        """Set the state of an active copy to `deleted`, before its object is removed. It is not read any more.

        Args:
            chunk: UUID of the chunk.
            store_url: URL of the store of the copy.

        Returns:
            chunk_copies.id.

        Raises:
            Conflict: The store has no active copy of the chunk: another process has removed or retired it.
        """
        statement = (
            "UPDATE chunk_copies AS k SET state = 'deleted' FROM chunks AS c WHERE c.id = k.chunk_id "
            "AND c.uuid = %s AND k.store = %s AND k.state = 'committed' AND k.retired_at IS NULL RETURNING k.id"
        )
        with self._connection.statement() as connection:
            row = connection.execute(statement, (chunk, store_url)).fetchone()
        if row is None:
            raise Conflict(f"the copy in {store_url} was removed meanwhile", hint="run the same command again")
        return int(row[0])

    def switch(self, chunk: UUID, old: str, new: str, *, is_unchecked: bool = False) -> None:
        """Make the copy in one store the chunk itself, and the object in another store a retired copy.

        Reads then use the object in `new` first, and prune removes the retired copy later. If `old` has only a copy
        of the chunk, this copy is retired, the copy in `new` becomes active, and the chunk itself is not changed.

        Args:
            chunk: UUID of the chunk.
            old: URL of the store that holds the chunk or a copy now.
            new: URL of the store with a committed copy.
            is_unchecked: True if the copy was not compared with the chunk now. Then the results of earlier checks
                stay with their objects.

        Raises:
            Conflict: The chunk or its copies have changed meanwhile, for instance because one of the stores was
                moved.
        """
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
            connection.execute(_MAKE_RETIRED_COPY, (old, key, etag, copy_id))
            connection.execute(_MAKE_CHUNK, (new, copy_key, copy_etag, chunk_id))
            if is_unchecked:
                connection.execute(_SWAP_CHECKS, {"chunk": chunk_id, "copy": copy_id})
            record_event(connection, "chunk_migrated", f"{old} {new}", chunk_id=chunk_id)

    def retire(self, chunk: UUID, old: str, new: str) -> None:
        """Make the copy of a chunk in one store a retired copy, which prune removes later.

        Args:
            chunk: UUID of the chunk.
            old: URL of the store with the copy.
            new: URL of the store that holds the chunk itself.

        Raises:
            Conflict: The chunk or its copies have changed meanwhile, for instance because one of the stores was
                moved.
        """
        statement = (
            "SELECT id FROM chunks WHERE uuid = %s AND store = %s AND state IN ('committed', 'retired') FOR UPDATE"
        )
        with self._connection.transaction() as connection:
            row = connection.execute(statement, (chunk, new)).fetchone()
            if row is None:
                raise Conflict("the chunk was removed meanwhile, or its store was moved", chunk=str(chunk))
            if not connection.execute(_RETIRE_COPY, (row[0], old)).rowcount:
                raise moved_meanwhile(old)

    def chunk(self, copy_id: int) -> CopiedChunk:
        """Return the chunk of which a row of `chunk_copies` is a copy.

        Args:
            copy_id: chunk_copies.id.

        Raises:
            Conflict: There is no such copy.
        """
        with self._connection.statement() as connection:
            row = connection.execute(_COPY_AND_CHUNK.encode(), [copy_id]).fetchone()
        if row is None:
            raise Conflict(f"the catalog has no copy {copy_id}")
        return CopiedChunk(row[0], row[4], row[5], row[6])


def drop_copies(connection: PgConnection, chunk_ids: Sequence[int]) -> None:
    """Set the committed copies of chunks to `deleted`, in the caller's transaction, which deletes these chunks.

    From then on, the copies are not read any more, and prune or recover removes their objects. A copy that is still
    being written cannot be committed any more.

    Args:
        connection: A connection with an open transaction.
        chunk_ids: Values of chunks.id.
    """
    statement = "UPDATE chunk_copies SET state = 'deleted' WHERE chunk_id = ANY(%s) AND state = 'committed'"
    connection.execute(statement, [list(chunk_ids)])
