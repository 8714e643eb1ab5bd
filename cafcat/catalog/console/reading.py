"""Runs the queries of the console's pages: for reading only, by index, and for a limited time."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Any, Final

from psycopg import Cursor
from psycopg.rows import dict_row
from psycopg.sql import Composed
from psycopg.types.string import TextLoader

from cafcat.catalog.by_key import BY_INDEX
from cafcat.catalog.connection import Connection, Connector, translated_errors

__all__ = ["PageQueries", "Row"]

Row = Mapping[str, Any]
"""A row of a result: values by the names of the columns. Times have the time zone of the session."""

_SETTINGS: Final = (
    f"{BY_INDEX}; SET LOCAL transaction_read_only = on; SET LOCAL TimeZone = 'UTC'; "
    "SET LOCAL statement_timeout = '5s'"  # a page that takes longer is of no use, and keeps other pages waiting
)
_FETCHED_ROWS: Final = 1000


class PageQueries:
    """Runs queries of pages. Every call is one transaction."""

    def __init__(self, connection: Connection, database: Connector) -> None:
        """Create the object. This sends no query yet.

        Args:
            connection: Connection of the catalog.
            database: Opens further connections, for long results.
        """
        self._connection = connection
        self._database = database

    def rows(self, statement: str, parameters: Mapping[str, Any] | Sequence[Any] = ()) -> list[Row]:
        """Return the rows of a query.

        Args:
            statement: The query. Its columns must have names.
            parameters: Values of its placeholders.

        Raises:
            CatalogUnavailable, CatalogOutdated, AccessDenied: As `Connection.transaction` raises them. A query that
                takes longer than 5 seconds raises CatalogUnavailable.
        """
        with self._cursor() as cursor:
            return list(cursor.execute(statement.encode(), parameters).fetchall())

    def composed(self, statement: Composed) -> list[Row]:
        """Return the rows of a query with names and values in it, as `rows` does."""
        with self._cursor() as cursor:
            return list(cursor.execute(statement).fetchall())

    @contextmanager
    def _cursor(self) -> Iterator[Cursor[Row]]:
        with self._connection.transaction(read_only=True) as connection:
            connection.execute(_SETTINGS)
            with connection.cursor(row_factory=dict_row) as cursor:
                yield cursor

    def stream(self, statement: Composed) -> Iterator[Sequence[Any]]:
        """Yield the names of the columns, and then the rows of a query, on a connection of its own.

        The rows are fetched a thousand at a time, so the result may have any size. Values are text, as PostgreSQL
        prints them, or None. Close the iterator to close the connection.

        Raises:
            CatalogUnavailable, AccessDenied: As `Connection.transaction` raises them.
        """
        with closing(self._database.connect()) as connection, translated_errors(), connection.transaction():
            connection.execute("SET LOCAL transaction_read_only = on; SET LOCAL TimeZone = 'UTC'")
            with connection.cursor("cafcat_rows") as cursor:
                cursor.adapters.register_loader("text", TextLoader)
                for kind in connection.adapters.types:
                    cursor.adapters.register_loader(kind.oid, TextLoader)
                    if kind.array_oid:
                        cursor.adapters.register_loader(kind.array_oid, TextLoader)
                cursor.itersize = _FETCHED_ROWS
                cursor.execute(statement)
                yield [column.name for column in cursor.description or ()]
                yield from cursor
