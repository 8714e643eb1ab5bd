"""Queries on the names of the checks of S3 features that the servers of stores failed."""

from collections.abc import Collection
from typing import Final

from cafcat.catalog.connection import Connection

__all__ = ["ServerVerdicts"]

_FAILED: Final = "coalesce(checks -> 'failed', '[]')"
_ADD_FAILED_CHECK: Final = f"""
UPDATE stores
SET checks = coalesce(checks, '{{}}') || jsonb_build_object('failed', {_FAILED} || to_jsonb(%(check)s::text))
WHERE url = %(url)s AND NOT {_FAILED} ? %(check)s
"""  # noqa: S608


class ServerVerdicts:
    """Queries on `stores.checks`: which checks the server of each store failed, as `{"failed": ["entity_tag"]}`."""

    def __init__(self, connection: Connection) -> None:
        """Create the queries. This sends no query yet.

        Args:
            connection: Connection of the catalog. It should have no open transaction: a check may fail during a
                transaction of an operation, and its result must be stored independently of that transaction.
        """
        self._connection = connection

    def failed(self, store_url: str) -> Collection[str]:
        """Return the names of the checks that the server of a store failed; empty if the catalog has none.

        Raises:
            CatalogUnavailable, CatalogOutdated, AccessDenied: As `Connection.statement` raises them.
        """
        with self._connection.statement() as connection:
            row = connection.execute("SELECT checks -> 'failed' FROM stores WHERE url = %s", [store_url]).fetchone()
        return [] if row is None or row[0] is None else row[0]

    def replace(self, store_url: str, checks: Collection[str]) -> bool:
        """Replace the failed checks of a store after all checks were repeated.

        Args:
            store_url: URL of the store.
            checks: Names of the checks that failed.

        Returns:
            True if the failed checks were replaced. False if the catalog has no such store.

        Raises:
            CatalogUnavailable, CatalogOutdated, AccessDenied: As `Connection.transaction` raises them.
        """
        statement = "UPDATE stores SET checks = jsonb_build_object('failed', %s::text[]) WHERE url = %s"
        with self._connection.transaction() as connection:
            return connection.execute(statement, (sorted(checks), store_url)).rowcount == 1

    def remember(self, store_url: str, check: str) -> bool:
        """Add a failed check to the row of a store, if the catalog has the store.

        Returns:
            False if the catalog had this failed check of the store before. True if it was added, or if the catalog
            does not have the store.

        Raises:
            CatalogLocked: Another transaction has locked the row for 10 seconds.
            CatalogUnavailable, CatalogOutdated, AccessDenied: As `Connection.transaction` raises them.
        """
        with self._connection.transaction() as connection:
            connection.execute("SET LOCAL lock_timeout = '10s'")
            if connection.execute(_ADD_FAILED_CHECK.encode(), {"check": check, "url": store_url}).rowcount:
                return True
            return connection.execute("SELECT FROM stores WHERE url = %s", [store_url]).fetchone() is None
