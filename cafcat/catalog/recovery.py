"""What recover asks the catalog: chunks whose writer died, and whose an object or upload is."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple
from uuid import UUID

from cafcat.catalog.connection import Connection
from cafcat.catalog.runs import iso
from cafcat.errors import Locked
from cafcat.model import ChunkState, OnConflict

__all__ = ["Leases", "LeftChunk", "Recovery"]


class LeftChunk(NamedTuple):
    """A chunk that was left behind. on_conflict: REPLACE or SKIP, as its run was told; FAIL counts as SKIP: it
    replaces nothing either."""

    id: int
    uuid: UUID
    format: str
    store: str
    object_key: str
    upload_id: str | None
    on_conflict: OnConflict


class Leases(NamedTuple):
    """How many chunks are being written, and when the last of their leases ends: ISO 8601 in UTC, None without
    any."""

    chunks: int
    end_at: str | None


_LEFT: Final = (
    "id, uuid, format, store, object_key, upload_id, "
    "(SELECT r.options->>'on_conflict' FROM ingest_runs AS r WHERE r.id = chunks.run_id)"
)
_OVERDUE: Final = "state = 'writing' AND lease_expires_at < now()"
_REMAINS: Final = "state = 'abandoned' AND deleted_at IS NULL"


class Recovery:
    """Every method is one transaction. Stores are URLs as in `chunks.store`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def stores(self) -> list[str]:
        """Every store that has, or had, a chunk."""
        with self._connection.statement() as connection:
            rows = connection.execute("SELECT DISTINCT store FROM chunks ORDER BY 1").fetchall()
        return [row[0] for row in rows]

    def newest(self, store: str, limit: int) -> list[str]:
        """Keys of committed objects, the newest first."""
        statement = (
            "SELECT object_key FROM chunks WHERE store = %s AND state = 'committed' ORDER BY id DESC LIMIT %s"
        )
        with self._connection.statement() as connection:
            return [row[0] for row in connection.execute(statement, (store, limit)).fetchall()]

    def leases(self, store: str) -> Leases:
        """What is being written, by writers that live."""
        statement = (
            f"SELECT count(*), {iso('max(lease_expires_at)')} FROM chunks "  # noqa: S608
            "WHERE store = %s AND state = 'writing' AND lease_expires_at >= now()"
        )
        with self._connection.statement() as connection:
            row = connection.execute(statement.encode(), [store]).fetchone()
        assert row is not None  # noqa: S101 - an aggregate gives one row
        return Leases(*row)

    def overdue(self, store: str) -> list[LeftChunk]:
        """Chunks `writing` whose lease is over, oldest first."""
        return self._left(store, _OVERDUE)

    def remains(self, store: str) -> list[LeftChunk]:
        """Abandoned chunks of which the store may still have something, oldest first."""
        return self._left(store, _REMAINS)

    def _left(self, store: str, condition: str) -> list[LeftChunk]:
        statement = f"SELECT {_LEFT} FROM chunks WHERE {condition} AND store = %s ORDER BY id"  # noqa: S608
        with self._connection.statement() as connection:
            return [_left_chunk(row) for row in connection.execute(statement.encode(), [store]).fetchall()]

    def take(self, chunk_id: int, owner: str, lease_seconds: int) -> LeftChunk | None:
        """Takes the lease of an overdue chunk: then nobody else does. None if somebody did, or its writer has
        settled it after all."""
        statement = (
            "UPDATE chunks SET lease_owner = %s, lease_expires_at = now() + make_interval(secs => %s) "  # noqa: S608
            f"WHERE id = %s AND {_OVERDUE} RETURNING {_LEFT}"
        )
        with self._connection.statement() as connection:
            row = connection.execute(statement.encode(), (owner, lease_seconds, chunk_id)).fetchone()
        return None if row is None else _left_chunk(row)

    def renew(self, chunk_id: int, owner: str, lease_seconds: int) -> None:
        """Keeps the lease. Raises Locked if somebody else has it now."""
        self._move_lease(chunk_id, owner, lease_seconds)

    def give_back(self, chunk_id: int, owner: str) -> None:
        """Ends the lease, so that the next recover need not wait for it. Raises Locked as renew does."""
        self._move_lease(chunk_id, owner, 0)

    def _move_lease(self, chunk_id: int, owner: str, lease_seconds: int) -> None:
        statement = (
            "UPDATE chunks SET lease_expires_at = now() + make_interval(secs => %s) "
            "WHERE id = %s AND state = 'writing' AND lease_owner = %s"
        )
        with self._connection.statement() as connection:
            if connection.execute(statement, (lease_seconds, chunk_id, owner)).rowcount != 1:
                raise Locked("somebody else took over the chunk", chunk=str(chunk_id))

    def settled(self, store: str, keys: Sequence[str]) -> dict[str, ChunkState | None]:
        """The states of the chunks that have these keys; None where the store may still have to do with it: it is
        being written, or its remains were not removed. Keys that no chunk has are missing."""
        statement = (
            f"SELECT object_key, CASE WHEN state = 'writing' OR {_REMAINS} THEN NULL ELSE state END "  # noqa: S608
            "FROM chunks WHERE store = %s AND object_key = ANY(%s)"
        )
        with self._connection.statement() as connection:
            rows = connection.execute(statement.encode(), (store, list(filter(_is_text, keys)))).fetchall()
        return {key: ChunkState(state) if state else None for key, state in rows}


def _left_chunk(row: tuple[Any, ...]) -> LeftChunk:
    *chunk, asked = row
    replaces = asked in (None, OnConflict.REPLACE)
    return LeftChunk._make((*chunk, OnConflict.REPLACE if replaces else OnConflict.SKIP))


def _is_text(key: str) -> bool:
    """Whether Postgres can have such a text at all: other names in a store are not ours."""
    try:
        return "\0" not in key and bool(key.encode())
    except UnicodeEncodeError:
        return False
