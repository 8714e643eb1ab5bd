"""The lives of objects in a store that are no chunks themselves: copies of chunks, backups of the catalog.

As that of a chunk: the row `writing` first, with a lease; then the object; then `committed`. What a dead writer
left is found by its row.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from cafcat.catalog.chunks.owners import is_dead
from cafcat.catalog.connection import Connection
from cafcat.errors import Conflict

__all__ = ["LeftoverObject", "Objects"]

_COLUMNS: Final = "id, store, object_key, upload_id, lease_owner"


class LeftoverObject(NamedTuple):
    """An object that was begun. owner: who has, or had, its lease."""

    id: int
    store: str
    object_key: str
    upload_id: str | None
    owner: str | None


class Objects:
    """The rows of one table, `chunk_copies` or `backups`. Every method is one transaction; each is idempotent where
    it says nothing else."""

    def __init__(self, connection: Connection, table: str) -> None:
        self._connection = connection
        self._table = table

    def record_upload(self, object_id: int, upload_id: str) -> None:
        """Keeps what recover needs to remove the upload of a writer that died."""
        self._update("upload_id = %s", "state = 'writing'", object_id, [upload_id])

    def renew_lease(self, object_id: int, owner: str, lease_seconds: int) -> None:
        """Tells others that the writer lives. Raises Conflict if somebody else took the object over."""
        lease = "lease_expires_at = now() + make_interval(secs => %s)"
        if not self._update(lease, "state = 'writing' AND lease_owner = %s", object_id, [lease_seconds], [owner]):
            raise Conflict("the object was taken from its writer", chunk=str(object_id))

    def commit(self, object_id: int, etag: str | None) -> None:
        """The object is durable and whole. Raises Conflict if it is not being written, or nobody has its lease
        because its store was moved."""
        done = "state = 'committed', committed_at = now(), lease_expires_at = NULL, etag = %s"
        if not self._update(done, "state = 'writing' AND lease_owner IS NOT NULL", object_id, [etag]):
            raise Conflict("only an object that is being written can be committed", chunk=str(object_id))

    def abandon(self, object_id: int) -> None:
        """Gives up an object that is being written. Raises Conflict if it is in another state."""
        done = "state = 'abandoned', abandoned_at = now(), lease_expires_at = NULL"
        if not self._update(done, "state = 'writing'", object_id):
            raise Conflict("only an object that is being written can be abandoned", chunk=str(object_id))

    def drop(self, object_id: int) -> None:
        """Nobody reads the object from now on: it may be removed."""
        self._update("state = 'deleted'", "state = 'committed'", object_id)

    def record_removed(self, object_id: int) -> None:
        """Notes that the store has nothing of an abandoned or deleted object any more."""
        self._update("deleted_at = now()", "state IN ('abandoned', 'deleted') AND deleted_at IS NULL", object_id)

    def remains(self, store: str) -> list[LeftoverObject]:
        """Abandoned and deleted objects of which the store may still have something, oldest first."""
        return [
            found for found, _ in self._of_store(store, "state IN ('abandoned', 'deleted') AND deleted_at IS NULL")
        ]

    def overdue(self, store: str) -> list[LeftoverObject]:
        """Objects `writing` whose lease is over, or whose writer is known to be dead, oldest first."""
        return [
            found
            for found, is_over in self._of_store(store, "state = 'writing'")
            if is_over or is_dead(found.owner)
        ]

    def acquire(self, found: LeftoverObject, owner: str, lease_seconds: int) -> bool:
        """Takes the lease of an object that `overdue` found. False if somebody else did, or has settled it."""
        lease = "lease_owner = %s, lease_expires_at = now() + make_interval(secs => %s)"
        condition = "state = 'writing' AND (lease_expires_at < now() OR lease_owner = %s)"
        dead = found.owner if is_dead(found.owner) else None
        return self._update(lease, condition, found.id, [owner, lease_seconds], [dead])

    def keys(self, store: str) -> set[str]:
        """Keys of all objects that the store has, may have, or will have."""
        statement = f"SELECT object_key FROM {self._table} WHERE store = %s AND deleted_at IS NULL"  # noqa: S608
        with self._connection.statement() as connection:
            return {row[0] for row in connection.execute(statement.encode(), [store]).fetchall()}

    def _of_store(self, store: str, condition: str) -> list[tuple[LeftoverObject, bool]]:
        statement = (
            f"SELECT lease_expires_at < now(), {_COLUMNS} FROM {self._table} "  # noqa: S608
            f"WHERE store = %s AND {condition} ORDER BY id"
        )
        with self._connection.statement() as connection:
            rows = connection.execute(statement.encode(), [store]).fetchall()
        return [(LeftoverObject(*row[1:]), bool(row[0])) for row in rows]

    def _update(
        self,
        assignments: str,
        condition: str,
        object_id: int,
        values: Sequence[Any] = (),
        condition_values: Sequence[Any] = (),
    ) -> bool:
        """Whether the row was in that condition."""
        statement = f"UPDATE {self._table} SET {assignments} WHERE id = %s AND {condition}"  # noqa: S608
        with self._connection.statement() as connection:
            cursor = connection.execute(statement.encode(), [*values, object_id, *condition_values])
            return cursor.rowcount == 1
