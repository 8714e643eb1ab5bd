"""Facts about the stores of the catalog, for checks of its health."""

from typing import Final, NamedTuple
from uuid import UUID

from cafcat.catalog.connection import Connection
from cafcat.catalog.health.brief import brief_read

__all__ = ["NewestRecord", "StoreFacts", "StoreHealth"]

_HAS: Final = " OR ".join(
    f"EXISTS (SELECT FROM {table} AS o WHERE o.store = s.url AND o.state = ANY(%(states)s){further})"
    for table, further in (("chunks", " AND o.adopted_prefix IS NULL"), ("chunk_copies", ""), ("backups", ""))
)
_STORES: Final = f"""
SELECT s.url, s.name, s.uuid, {_HAS}, EXISTS (SELECT FROM chunks AS o WHERE o.store = s.url
       AND o.state = ANY(%(states)s) AND o.adopted_prefix IS NOT NULL),
       s.checks IS NOT NULL, ARRAY(SELECT jsonb_array_elements_text(coalesce(s.checks -> 'failed', '[]')))
FROM stores AS s ORDER BY s.id
"""  # noqa: S608


_NEWEST_RECORDS: Final = """
WITH own AS (
    SELECT j.id, j.uuid, c.object_key FROM chunks AS c JOIN journal AS j ON j.chunk_id = c.id
    WHERE c.store = %(url)s AND c.state IN ('committed', 'retired') AND c.adopted_prefix IS NULL
      AND NOT j.unwritten @> ARRAY[%(url)s]
      AND EXISTS (SELECT FROM events AS e WHERE e.chunk_id = c.id AND e.kind = 'chunk_begun')
    ORDER BY c.id DESC LIMIT 1
)
SELECT id, uuid, object_key FROM own
UNION ALL
(SELECT j.id, j.uuid, own.object_key FROM journal AS j, own
 WHERE j.kind IN ('remove', 'restore') AND j.id > own.id AND NOT j.unwritten @> ARRAY[%(url)s]
 ORDER BY j.id DESC LIMIT 1)
"""


class NewestRecord(NamedTuple):
    """A journal record that a store must have, unless the newest chunk there is gone.

    Attributes:
        id: journal.id.
        uuid: journal.uuid.
        chunk_key: Key of the object of the newest chunk in the store.
    """

    id: int
    uuid: UUID
    chunk_key: str


class StoreFacts(NamedTuple):
    """Facts about a store in the catalog.

    Attributes:
        url: URL of the store.
        name: Short name of the store; None if it has none.
        uuid: UUID in the store's marker objects; None if the catalog has not recorded it.
        has_own: True if the catalog has objects there that cafcat wrote: chunks, copies or backups.
        has_adopted: True if the catalog has adopted archives there.
        is_tested: True if `cafcat store check` has tested the server, or a check failed during work.
        failed_checks: Names of the checks that the server failed.
    """

    url: str
    name: str | None
    uuid: UUID | None
    has_own: bool
    has_adopted: bool
    is_tested: bool
    failed_checks: list[str]


class StoreHealth:
    """Queries about the stores of the catalog."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def catalog(self) -> UUID:
        """Return the UUID of the catalog, which names its marker in each store."""
        with brief_read(self._connection) as connection:
            [(uuid,)] = connection.execute("SELECT uuid FROM catalog_identity").fetchall()
        return UUID(str(uuid))

    def newest_records(self, url: str) -> list[NewestRecord]:
        """Return the record of the newest chunk in a store, and that of the last removal or return of files since.

        Returns:
            An empty list if the store is not certain to have a record: its chunks are from before a rebuild, or it
            has none.
        """
        with brief_read(self._connection) as connection:
            rows = connection.execute(_NEWEST_RECORDS, {"url": url}).fetchall()
        return [NewestRecord(*row) for row in rows]

    def stores(self) -> list[StoreFacts]:
        """Return the stores, the oldest first. Their objects are not counted."""
        with brief_read(self._connection) as connection:
            rows = connection.execute(_STORES.encode(), {"states": ["committed", "retired"]}).fetchall()
        return [StoreFacts(*row) for row in rows]
