"""What recover asks the catalog: chunks whose writer died, and whose an object or upload is."""

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

__all__ = ["Leases", "LeftoverChunk", "Recovery"]


class LeftoverChunk(NamedTuple):
    """A chunk that was left behind. owner: who has, or had, its lease. on_conflict: REPLACE or SKIP, as its run was
    told; FAIL counts as SKIP: it replaces nothing either. moves_from: None, or the chunks (chunks.id) whose live
    files were copied into it."""

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
    """How many chunks are being written, and when the last of their leases ends: ISO 8601 in UTC, None without
    any."""

    chunks: int
    end_at: str | None


_LEFT: Final = (
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
# A store may have had several copies of a chunk, one after the other: the last one counts.
_SETTLED: Final = " UNION ALL ".join(
    "(SELECT DISTINCT ON (object_key) object_key, "  # noqa: S608
    f"CASE WHEN state = 'writing' OR {_REMAINS} THEN NULL ELSE state END "
    f"FROM {table} WHERE store = %(store)s AND object_key = ANY(%(keys)s) ORDER BY object_key, id DESC)"
    for table in ("chunks", "chunk_copies", "backups")
)


class Recovery:
    """Every method is one transaction. Stores are URLs as in `chunks.store`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def stores(self) -> list[str]:
        """Every store that has, or had, a chunk, a copy of one, or a backup; not those of adopted archives."""
        with self._connection.statement() as connection:
            rows = connection.execute(_STORES.encode()).fetchall()
        return [row[0] for row in rows]

    def has_store(self, store: str) -> bool:
        """Whether it has, or had, a chunk (adopted ones too), a copy of one, or a backup."""
        tables = ("chunks", "chunk_copies", "backups")
        statement = " OR ".join(f"EXISTS (SELECT FROM {table} WHERE store = %(store)s)" for table in tables)
        with self._connection.statement() as connection:
            [(found,)] = connection.execute(f"SELECT {statement}".encode(), {"store": store}).fetchall()
        return bool(found)

    def find_existing(self, chunks: Sequence[UUID]) -> set[UUID]:
        """Return those of these chunks (chunks.uuid) that have a row, in whatever store."""
        with self._connection.statement() as connection:
            rows = connection.execute("SELECT uuid FROM chunks WHERE uuid = ANY(%s)", [list(chunks)]).fetchall()
        return {row[0] for row in rows}

    def newest(self, store: str, limit: int) -> list[str]:
        """Keys of objects that are there, of each kind so many, the newest first."""
        with self._connection.statement() as connection:
            rows = connection.execute(_NEWEST.encode(), {"store": store, "limit": limit}).fetchall()
        return [row[0] for row in rows]

    def leases(self, store: str) -> Leases:
        """What is being written, by writers that live as far as anybody can tell."""
        statement = f"SELECT lease_owner, {iso('lease_expires_at')} FROM chunks WHERE store = %s AND {_LEASED}"  # noqa: S608
        with self._connection.statement() as connection:
            rows = connection.execute(statement.encode(), [store]).fetchall()
        ends = [end for owner, end in rows if not is_dead(owner)]
        return Leases(len(ends), max(ends, default=None))

    def leased(self, store: str) -> list[LeftoverChunk]:
        """Chunks `writing` whose writers live as far as anybody can tell, oldest first."""
        return [chunk for chunk in self._left(store, _LEASED) if not is_dead(chunk.owner)]

    def overdue(self, store: str) -> list[LeftoverChunk]:
        """Chunks `writing` whose lease is over, or whose writer is known to be dead, oldest first."""
        dead = [chunk for chunk in self._left(store, _LEASED) if is_dead(chunk.owner)]
        return sorted(self._left(store, _OVERDUE) + dead)

    def remains(self, store: str) -> list[LeftoverChunk]:
        """Abandoned and deleted chunks of which the store may still have something, oldest first."""
        return self._left(store, _REMAINS)

    def _left(self, store: str, condition: str) -> list[LeftoverChunk]:
        statement = f"SELECT {_LEFT} FROM chunks WHERE {condition} AND store = %s ORDER BY id"  # noqa: S608
        with self._connection.statement() as connection:
            return [_left_chunk(row) for row in connection.execute(statement.encode(), [store]).fetchall()]

    def acquire(self, found: LeftoverChunk, owner: str, lease_seconds: int) -> LeftoverChunk | None:
        """Takes the lease of a chunk that `overdue` found: then nobody else does. None if somebody did, or its
        writer has settled it after all."""
        dead = found.owner if is_dead(found.owner) else None
        statement = (
            "UPDATE chunks SET lease_owner = %s, lease_expires_at = now() + make_interval(secs => %s) "  # noqa: S608
            "WHERE id = (SELECT id FROM chunks WHERE id = %s "
            # A row that is locked is being committed just now: by a writer that is slow, not dead.
            f"AND (({_OVERDUE}) OR ({_LEASED} AND lease_owner = %s)) FOR UPDATE SKIP LOCKED) RETURNING {_LEFT}"
        )
        with self._connection.statement() as connection:
            row = connection.execute(statement.encode(), (owner, lease_seconds, found.id, dead)).fetchone()
        return None if row is None else _left_chunk(row)

    def renew(self, chunk_id: int, owner: str, lease_seconds: int) -> None:
        """Keeps the lease. Raises Locked if somebody else has it now."""
        self._move_lease(chunk_id, owner, lease_seconds)

    def release(self, chunk_id: int, owner: str) -> None:
        """Ends the lease, so that the next recover need not wait for it. Raises Locked as renew does."""
        self._move_lease(chunk_id, owner, 0)

    def _move_lease(self, chunk_id: int, owner: str, lease_seconds: int) -> None:
        with self._connection.statement() as connection:
            if connection.execute(RENEW_LEASE, (lease_seconds, chunk_id, owner)).rowcount != 1:
                raise Locked("somebody else took over the chunk", chunk=str(chunk_id))

    def final_states(self, store: str, keys: Sequence[str]) -> dict[str, ChunkState | None]:
        """The states of the chunks, copies and backups that have these keys; None where the store may still have to
        do with it: it is being written, or its remains were not removed. Keys that none has are missing."""
        parameters = {"store": store, "keys": list(filter(is_text, keys))}  # others are not ours
        with self._connection.statement() as connection:
            rows = connection.execute(_SETTLED.encode(), parameters).fetchall()
        return {key: ChunkState(state) if state else None for key, state in rows}


def _left_chunk(row: tuple[Any, ...]) -> LeftoverChunk:
    *chunk, sources, asked = row
    moves_from = None if sources is None else tuple(sources)
    replaces = asked in (None, OnConflict.REPLACE)
    return LeftoverChunk._make((*chunk, moves_from, OnConflict.REPLACE if replaces else OnConflict.SKIP))
