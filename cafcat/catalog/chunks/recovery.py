"""The catalog's queries for recover: leftovers of dead writers, leases, and states of objects by their keys."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple
from uuid import UUID

from cafcat.catalog.chunks.chunks import RENEW_LEASE
from cafcat.catalog.chunks.owners import is_dead
from cafcat.catalog.connection import Connection
from cafcat.catalog.history.runs import iso
from cafcat.errors import Locked
from cafcat.model import ChunkState, OnConflict
from cafcat.support.paths import is_text

__all__ = ["Leases", "LeftoverChunk", "Leftovers", "Recovery"]


class LeftoverChunk(NamedTuple):
    """An unfinished, abandoned or deleted chunk.

    Attributes:
        id: chunks.id.
        uuid: Name of the chunk outside SQL.
        format: Format of the archive.
        store: URL of its store.
        object_key: Key of its object in that store.
        upload_id: Id of the multipart upload that writes the object; None for folders, or if none was recorded.
        owner: Name of the process that has, or had, the lease; None if a move of the store has ended the lease.
        moves_from: chunks.id of the chunks whose live files were copied into it; None for the chunk of an ingest.
        on_conflict: Whether the files of the chunk replace those that the catalog has (REPLACE) or not (SKIP), by
            the options of its run. A run with FAIL counts as SKIP; a chunk without a run has REPLACE.
    """

    id: int
    uuid: UUID
    format: str
    store: str
    object_key: str
    upload_id: str | None
    owner: str | None
    moves_from: tuple[int, ...] | None
    on_conflict: OnConflict


class Leases(NamedTuple):
    """The chunks that are being written into a store by writers that may be alive.

    Attributes:
        chunks: Number of these chunks.
        end_at: When the last of their leases expires: ISO 8601, UTC; None without chunks.
    """

    chunks: int
    end_at: str | None


class Leftovers(NamedTuple):
    """Whether dead writers left anything that an operation should recover before it writes into a store.

    Attributes:
        in_store: True if the store has chunks or copies of dead writers, may have remains of abandoned or deleted
            chunks or copies, or lacks journal records.
        of_runs: True if an ingest run of a dead process, into any store, still has the state `running`.
    """

    in_store: bool
    of_runs: bool


_COLUMNS: Final = (
    "id, uuid, format, store, object_key, upload_id, lease_owner, moves_from, "
    "(SELECT r.options->>'on_conflict' FROM ingest_runs AS r WHERE r.id = chunks.run_id)"
)
_LEASED: Final = "state = 'writing' AND lease_expires_at >= now()"
_OVERDUE: Final = "state = 'writing' AND lease_expires_at < now()"
_REMAINS: Final = "state IN ('abandoned', 'deleted') AND deleted_at IS NULL"
_STORES: Final = (
    "SELECT store FROM chunks WHERE adopted_prefix IS NULL UNION SELECT store FROM chunk_copies "
    "UNION SELECT store FROM backups ORDER BY 1"
)
_NEWEST: Final = " UNION ALL ".join(
    f"(SELECT object_key FROM {table} WHERE store = %(store)s AND state IN ('committed', 'retired') "  # noqa: S608
    "ORDER BY id DESC LIMIT %(limit)s)"
    for table in ("chunks", "chunk_copies", "backups")
)
_LEFTOVERS: Final = f"""
(SELECT 'store', NULL::text, true FROM chunks WHERE store = %(store)s AND {_OVERDUE})
UNION ALL (SELECT 'store', lease_owner, false FROM chunks WHERE store = %(store)s AND {_LEASED})
UNION ALL (SELECT 'store', NULL, true FROM chunks WHERE store = %(store)s AND {_REMAINS})
UNION ALL (SELECT 'store', lease_owner, lease_expires_at < now() FROM chunk_copies
           WHERE store = %(store)s AND state = 'writing')
UNION ALL (SELECT 'store', NULL, true FROM chunk_copies WHERE store = %(store)s AND {_REMAINS})
UNION ALL (SELECT 'store', NULL, true FROM journal
           WHERE unwritten <> '{{}}' AND unwritten && ARRAY[%(store)s] ORDER BY id LIMIT 1)
UNION ALL (SELECT 'runs', owner, false FROM ingest_runs WHERE state = 'running')
"""  # noqa: S608
_LAST_COUNTS: Final = ("abandoned", "deleted", "retired", "committed", None)
"""Final states, if a chunk and a copy have one key in a store: the last of their states in this order counts."""
# A store may have had several copies of a chunk, one after the other. The last one counts. After a migration, the
# row of the copy that exists may be older.
_FINAL_STATES: Final = " UNION ALL ".join(
    "(SELECT DISTINCT ON (object_key) object_key, "  # noqa: S608
    f"CASE WHEN state = 'writing' OR {_REMAINS} THEN NULL ELSE state END "
    f"FROM {table} WHERE store = %(store)s AND object_key = ANY(%(keys)s) "
    "ORDER BY object_key, deleted_at IS NOT NULL, id DESC)"
    for table in ("chunks", "chunk_copies", "backups")
)


class Recovery:
    """Queries for recover. Every method except `overdue` is one transaction."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def stores(self) -> list[str]:
        """Return the URLs of all stores that have, or had, chunks of cafcat, copies or backups.

        Stores that only have adopted archives are not among them.
        """
        with self._connection.statement() as connection:
            rows = connection.execute(_STORES.encode()).fetchall()
        return [row[0] for row in rows]

    def has_store(self, store_url: str) -> bool:
        """Return True if a store has, or had, a chunk, an adopted archive, a copy or a backup."""
        tables = ("chunks", "chunk_copies", "backups")
        statement = " OR ".join(f"EXISTS (SELECT FROM {table} WHERE store = %(store)s)" for table in tables)
        with self._connection.statement() as connection:
            [(found,)] = connection.execute(f"SELECT {statement}".encode(), {"store": store_url}).fetchall()
        return bool(found)

    def find_existing(self, chunks: Sequence[UUID]) -> set[UUID]:
        """Return the UUIDs, of those given, for which the catalog has a chunk, in any store and state."""
        with self._connection.statement() as connection:
            rows = connection.execute("SELECT uuid FROM chunks WHERE uuid = ANY(%s)", [list(chunks)]).fetchall()
        return {row[0] for row in rows}

    def find_needed(self, chunks: Sequence[UUID]) -> dict[UUID, bool]:
        """Return which of these chunks have live files.

        Returns:
            By UUID: True for a committed chunk, in any store, and False for a retired or deleted chunk. UUIDs of
            other chunks are left out.
        """
        statement = (
            "SELECT uuid, state = 'committed' FROM chunks "
            "WHERE uuid = ANY(%s) AND state IN ('committed', 'retired', 'deleted')"
        )
        with self._connection.statement() as connection:
            return dict(connection.execute(statement, [list(chunks)]).fetchall())

    def newest(self, store_url: str, limit: int) -> list[str]:
        """Return keys of chunks, copies and backups that a store should have: the newest of each kind.

        Args:
            store_url: URL of the store.
            limit: Largest number of keys of each kind.
        """
        with self._connection.statement() as connection:
            rows = connection.execute(_NEWEST.encode(), {"store": store_url, "limit": limit}).fetchall()
        return [row[0] for row in rows]

    def leftovers(self, store_url: str) -> Leftovers:
        """Return whether dead writers left chunks, copies or unwritten journal records in a store, or ingest runs.

        Ingest runs into any store count. Leftovers of backups are not included. Costs one query.
        """
        with self._connection.statement() as connection:
            rows = connection.execute(_LEFTOVERS.encode(), {"store": store_url}).fetchall()
        left = {kind for kind, owner, is_left in rows if is_left or is_dead(owner)}
        return Leftovers("store" in left, "runs" in left)

    def leases(self, store_url: str) -> Leases:
        """Return the number of chunks that are being written into a store, and the end of their leases.

        Chunks whose lease has expired, or whose writer is certainly dead, do not count.
        """
        statement = f"SELECT lease_owner, {iso('lease_expires_at')} FROM chunks WHERE store = %s AND {_LEASED}"  # noqa: S608
        with self._connection.statement() as connection:
            rows = connection.execute(statement.encode(), [store_url]).fetchall()
        ends = [end for owner, end in rows if not is_dead(owner)]
        return Leases(len(ends), max(ends, default=None))

    def leased(self, store_url: str) -> list[LeftoverChunk]:
        """Return chunks in the state `writing` with a valid lease, whose writer may be alive, oldest first."""
        return [chunk for chunk in self._chunks(store_url, _LEASED) if not is_dead(chunk.owner)]

    def overdue(self, store_url: str) -> list[LeftoverChunk]:
        """Return chunks in the state `writing` whose writer is dead or has lost its lease, oldest first.

        The lease has expired, or the process of the writer certainly does not exist any more.
        """
        dead = [chunk for chunk in self._chunks(store_url, _LEASED) if is_dead(chunk.owner)]
        return sorted(self._chunks(store_url, _OVERDUE) + dead)

    def remains(self, store_url: str) -> list[LeftoverChunk]:
        """Return abandoned and deleted chunks that may still have remains in a store, oldest first.

        Remains are the object and its multipart upload.
        """
        return self._chunks(store_url, _REMAINS)

    def _chunks(self, store_url: str, condition: str) -> list[LeftoverChunk]:
        statement = f"SELECT {_COLUMNS} FROM chunks WHERE {condition} AND store = %s ORDER BY id"  # noqa: S608
        with self._connection.statement() as connection:
            return [_leftover_chunk(row) for row in connection.execute(statement.encode(), [store_url]).fetchall()]

    def acquire(self, found: LeftoverChunk, owner: str, lease_seconds: int) -> LeftoverChunk | None:
        """Acquire the lease of a chunk that `overdue` returned.

        Returns:
            The chunk with its new owner. None if another process has acquired the lease, or its writer has renewed
            it, or the chunk is not being written any more, or another transaction changes its row right now, such
            as its commit.
        """
        dead = found.owner if is_dead(found.owner) else None
        statement = (
            "UPDATE chunks SET lease_owner = %s, lease_expires_at = now() + make_interval(secs => %s) "  # noqa: S608
            "WHERE id = (SELECT id FROM chunks WHERE id = %s "
            # A locked row is being committed right now, by a writer that is slow but not dead.
            f"AND (({_OVERDUE}) OR ({_LEASED} AND lease_owner = %s)) FOR UPDATE SKIP LOCKED) RETURNING {_COLUMNS}"
        )
        with self._connection.statement() as connection:
            row = connection.execute(statement.encode(), (owner, lease_seconds, found.id, dead)).fetchone()
        return None if row is None else _leftover_chunk(row)

    def renew(self, chunk_id: int, owner: str, lease_seconds: int) -> None:
        """Extend the lease that recover has acquired for a chunk.

        Raises:
            Locked: Another process has acquired the lease, or the chunk is not being written any more, or its store
                was moved.
        """
        self._set_lease(chunk_id, owner, lease_seconds)

    def release(self, chunk_id: int, owner: str) -> None:
        """End the lease that recover has acquired for a chunk, so that the next recover need not wait for it.

        Raises:
            Locked: Another process has acquired the lease, or the chunk is not being written any more, or its store
                was moved.
        """
        self._set_lease(chunk_id, owner, 0)

    def _set_lease(self, chunk_id: int, owner: str, lease_seconds: int) -> None:
        with self._connection.statement() as connection:
            if connection.execute(RENEW_LEASE, (lease_seconds, chunk_id, owner)).rowcount != 1:
                reason = "another command acquired it, committed or abandoned the chunk, or moved its store"
                message = f"the lease of the chunk is lost: {reason}"
                raise Locked(message, chunk=str(chunk_id))

    def final_states(self, store_url: str, keys: Sequence[str]) -> dict[str, ChunkState | None]:
        """Return the states of the chunks, copies and backups with these object keys in a store.

        Returns:
            State by key. None stands for an object that is being written, or whose remains have not been removed
            from the store yet. Keys without a row are left out.
        """
        # The catalog has no key that is not valid text.
        parameters = {"store": store_url, "keys": list(filter(is_text, keys))}
        with self._connection.statement() as connection:
            rows = connection.execute(_FINAL_STATES.encode(), parameters).fetchall()
        rows.sort(key=lambda row: _LAST_COUNTS.index(row[1]))
        return {key: ChunkState(state) if state else None for key, state in rows}


def _leftover_chunk(row: tuple[Any, ...]) -> LeftoverChunk:
    *chunk, sources, on_conflict = row
    moves_from = None if sources is None else tuple(sources)
    replaces = on_conflict in (None, OnConflict.REPLACE)
    return LeftoverChunk._make((*chunk, moves_from, OnConflict.REPLACE if replaces else OnConflict.SKIP))
