"""Runs the queries of the console's pages: for reading only, by index, and for a limited time."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from psycopg.rows import dict_row

from cafcat.catalog.by_key import BY_INDEX
from cafcat.catalog.connection import Connection

__all__ = ["PageQueries", "Row"]

Row = Mapping[str, Any]
"""A row of a result: values by the names of the columns. Times have the time zone of the session."""

_SETTINGS: Final = (
    f"{BY_INDEX}; SET LOCAL transaction_read_only = on; SET LOCAL TimeZone = 'UTC'; "
    "SET LOCAL statement_timeout = '5s'"  # a page that takes longer is of no use, and keeps other pages waiting
)


class PageQueries:
    """Runs queries of pages. Every call is one transaction."""

    def __init__(self, connection: Connection) -> None:
        """Create the object. This sends no query yet.

        Args:
            connection: Connection of the catalog.
        """
        self._connection = connection

    def rows(self, statement: str, parameters: Mapping[str, Any] | Sequence[Any] = ()) -> list[Row]:
        """Return the rows of a query.

        Args:
            statement: The query. Its columns must have names.
            parameters: Values of its placeholders.

        Raises:
            CatalogUnavailable, CatalogOutdated, AccessDenied: As `Connection.transaction` raises them. A query that
                takes longer than 5 seconds raises CatalogUnavailable.
        """
        with self._connection.transaction(read_only=True) as connection:
            connection.execute(_SETTINGS)
            with connection.cursor(row_factory=dict_row) as cursor:
                return list(cursor.execute(statement.encode(), parameters).fetchall())
