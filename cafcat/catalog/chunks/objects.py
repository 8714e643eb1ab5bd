"""The rows of objects that are no chunks themselves: copies of chunks, and backups of the catalog.

The order of steps is that of a chunk. First the row is inserted in the state `writing`, with a lease. Then the
object is written, and then the state becomes `committed`. If a writer dies, recover finds its remains by the row.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from cafcat.catalog.chunks.owners import is_dead
from cafcat.catalog.connection import Connection
from cafcat.errors import Conflict

__all__ = ["LeftoverObject", "Objects"]

_COLUMNS: Final = "id, store, object_key, upload_id, lease_owner"


class LeftoverObject(NamedTuple):
    """A copy or backup that is unfinished, abandoned or deleted, so that its store may have remains of it.

    Attributes:
        id: Id of its row.
        store: URL of its store.
        object_key: Key of the object in that store.
        upload_id: Id of the multipart upload that writes the object; None for folders, or if none was recorded.
        owner: Name of the process that has, or had, the lease; None if a move of the store has ended the lease.
    """

    id: int
    store: str
    object_key: str
    upload_id: str | None
    owner: str | None


class Objects:
    """Queries on the rows of one table, `chunk_copies` or `backups`.

    Every method is one transaction. `record_upload`, `drop` and `record_removed` are idempotent.
    """

    def __init__(self, connection: Connection, table: str) -> None:
        self._connection = connection
        self._table = table

    def record_upload(self, object_id: int, upload_id: str) -> None:
        """Store the id of a copy's or backup's multipart upload. If the writer dies, recover aborts the upload."""
        self._update("upload_id = %s", "state = 'writing'", object_id, [upload_id])

    def renew_lease(self, object_id: int, owner: str, lease_seconds: int) -> None:
        """Extend the lease of a copy or backup, which shows other processes that its writer is alive.

        Raises:
            Conflict: The state of the object is no longer `writing`, or another process acquired its lease, or its
                store was moved.
        """
        lease = "lease_expires_at = now() + make_interval(secs => %s)"
        if not self._update(lease, "state = 'writing' AND lease_owner = %s", object_id, [lease_seconds], [owner]):
            reason = "another command abandoned it, has its lease, or moved its store"
            raise Conflict(f"object {object_id} of {self._table} cannot be written any further: {reason}")

    def commit(self, object_id: int, etag: str | None) -> None:
        """Set the state of a copy or backup from `writing` to `committed`.

        The caller has made its object durable and complete before.

        Raises:
            Conflict: The object is in another state, or its lease has no owner because its store was moved.
        """
        changes = "state = 'committed', committed_at = now(), lease_expires_at = NULL, etag = %s"
        if not self._update(changes, "state = 'writing' AND lease_owner IS NOT NULL", object_id, [etag]):
            reason = "it was abandoned, or its store was moved"
            raise Conflict(f"row {object_id} of {self._table} cannot be committed: {reason}")

    def abandon(self, object_id: int) -> None:
        """Set the state of a copy or backup from `writing` to `abandoned`.

        Raises:
            Conflict: The object is in another state.
        """
        changes = "state = 'abandoned', abandoned_at = now(), lease_expires_at = NULL"
        if not self._update(changes, "state = 'writing'", object_id):
            raise Conflict(f"row {object_id} of {self._table} cannot be abandoned: it is not being written")

    def drop(self, object_id: int) -> None:
        """Set the state of a copy or backup from `committed` to `deleted`, so that its object may be removed.

        In any other state, nothing changes.
        """
        self._update("state = 'deleted'", "state = 'committed'", object_id)

    def record_removed(self, object_id: int) -> None:
        """Record that object and upload of an abandoned or deleted copy or backup are no longer in the store."""
        self._update("deleted_at = now()", "state IN ('abandoned', 'deleted') AND deleted_at IS NULL", object_id)

    def remains(self, store_url: str) -> list[LeftoverObject]:
        """Return abandoned and deleted copies or backups that may still have remains in a store, oldest first.

        Remains are the object and its multipart upload.
        """
        condition = "state IN ('abandoned', 'deleted') AND deleted_at IS NULL"
        return [found for found, _ in self._in_store(store_url, condition)]

    def overdue(self, store_url: str) -> list[LeftoverObject]:
        """Return copies or backups in the state `writing` whose writer is dead or has lost its lease, oldest first.

        The lease has expired, or the process of the writer certainly does not exist any more.
        """
        return [
            found
            for found, is_expired in self._in_store(store_url, "state = 'writing'")
            if is_expired or is_dead(found.owner)
        ]

    def acquire(self, found: LeftoverObject, owner: str, lease_seconds: int) -> bool:
        """Acquire the lease of a copy or backup that `overdue` returned.

        Returns:
            False if another process has acquired the lease, or the object is not being written any more.
        """
        lease = "lease_owner = %s, lease_expires_at = now() + make_interval(secs => %s)"
        condition = "state = 'writing' AND (lease_expires_at < now() OR lease_owner = %s)"
        dead = found.owner if is_dead(found.owner) else None
        return self._update(lease, condition, found.id, [owner, lease_seconds], [dead])

    def keys(self, store_url: str) -> set[str]:
        """Return the keys of all copies or backups that a store has, may have, or will have."""
        statement = f"SELECT object_key FROM {self._table} WHERE store = %s AND deleted_at IS NULL"  # noqa: S608
        with self._connection.statement() as connection:
            return {row[0] for row in connection.execute(statement.encode(), [store_url]).fetchall()}

    def _in_store(self, store_url: str, condition: str) -> list[tuple[LeftoverObject, bool]]:
        """Return the objects in a store that meet an SQL condition, each with whether its lease has expired."""
        statement = (
            f"SELECT lease_expires_at < now(), {_COLUMNS} FROM {self._table} "  # noqa: S608
            f"WHERE store = %s AND {condition} ORDER BY id"
        )
        with self._connection.statement() as connection:
            rows = connection.execute(statement.encode(), [store_url]).fetchall()
        return [(LeftoverObject(*row[1:]), bool(row[0])) for row in rows]

    def _update(
        self,
        assignments: str,
        condition: str,
        object_id: int,
        values: Sequence[Any] = (),
        condition_values: Sequence[Any] = (),
    ) -> bool:
        """Update the row of an object if the row meets an SQL condition. Return whether it was updated."""
        statement = f"UPDATE {self._table} SET {assignments} WHERE id = %s AND {condition}"  # noqa: S608
        with self._connection.statement() as connection:
            cursor = connection.execute(statement.encode(), [*values, object_id, *condition_values])
            return cursor.rowcount == 1
