"""Consistent reads: one repeatable-read transaction on a connection of its own, however long the reading takes."""

from collections.abc import Generator, Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any, Final

import psycopg

from cafcat.catalog.by_key import BY_INDEX, NOT_BY_INDEX
from cafcat.catalog.connection import Connector, PgConnection, translated_errors
from cafcat.catalog.copy_out import copied_blocks
from cafcat.catalog.schema import HEAD_REVISION, outdated, revision_of

__all__ = ["RepeatableRead", "repeatable_read"]

_PAGE_ROWS: Final = 10_000


class RepeatableRead:
    """A read-only transaction that sees the catalog as of its first query. Later commits stay invisible."""

    def __init__(self, connection: PgConnection) -> None:
        self._connection = connection
        self._copying: Generator[bytes, None, None] | None = None

    def read_by_index(self, *, everything: bool) -> None:
        """Set whether the planner may choose to scan whole tables in the next queries of this transaction.

        Args:
            everything: True for queries on all rows of a table. False for queries on a part, which are answered by
                index (by_key.BY_INDEX).
        """
        self._connection.execute(NOT_BY_INDEX if everything else BY_INDEX)

    def rows(self, statement: str, parameters: Mapping[str, Any] | None = None) -> list[tuple[Any, ...]]:
        """Return all rows of a query in one list, for queries with few rows."""
        return self._connection.execute(statement.encode(), parameters).fetchall()

    def pages(self, query: str, parameters: Mapping[str, Any]) -> Iterator[list[Any]]:
        """Yield the rows of a query in lists of up to 10,000.

        The rows stream from the server. The caller must read them to the end or close the generator.
        """
        with translated_errors(), self._connection.cursor(name="pages") as cursor:
            cursor.execute(query.encode(), parameters, binary=True)
            while page := cursor.fetchmany(_PAGE_ROWS):
                yield page

    def copy(self, query: str) -> Iterator[bytes]:
        """Yield the rows of a query in the text format of COPY, in blocks of whole lines.

        The rows stream from the server. The caller reads them to the end, or `close` ends the COPY.
        """
        with translated_errors():
            self._copying = copied_blocks(self._connection, f"COPY ({query}) TO STDOUT".encode())
            yield from self._copying

    def close(self) -> None:
        """End a COPY that was not read to its end. The rollback would wait for the lock that it holds."""
        if self._copying is not None:
            self._copying.close()


@contextmanager
def repeatable_read(database: Connector) -> Iterator[RepeatableRead]:
    """Open a read-only repeatable-read transaction on a new connection.

    The server's time limits for statements and for idle transactions are off. Times are in UTC.

    Raises:
        CatalogUnavailable: The database cannot be reached.
        AccessDenied: The server rejects user and password.
        InvalidInput: The URL of the database cannot be read.
        CatalogOutdated: The database has no schema, or one of another revision.
    """
    with translated_errors(), closing(database.connect()) as connection:
        revision = revision_of(connection)
        if revision != HEAD_REVISION:
            raise outdated(revision)
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        connection.read_only = True
        with connection.transaction():
            connection.execute(
                "SET LOCAL statement_timeout = 0; SET LOCAL idle_in_transaction_session_timeout = 0; "
                "SET LOCAL TimeZone = 'UTC'; SET LOCAL DateStyle = 'ISO'; SET LOCAL extra_float_digits = 1; "
                # Before the first query, and so before the snapshot. A change of the layout replaces the table, and
                # an older snapshot would not see all rows of the new one.
                "LOCK TABLE ONLY file_locations IN ACCESS SHARE MODE"
            )
            with closing(RepeatableRead(connection)) as reading:
                yield reading
