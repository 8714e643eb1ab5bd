"""The catalog at one moment, read in one direction, on a connection of its own: however long that takes."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any, Final

import psycopg

from cafcat.catalog.by_key import BY_INDEX, NOT_BY_INDEX
from cafcat.catalog.connection import PgConnection, translated
from cafcat.catalog.schema import HEAD_REVISION, outdated, revision_of

__all__ = ["RepeatableRead", "repeatable_read"]

_PAGE_ROWS: Final = 10_000


class RepeatableRead:
    """Sees nothing that is committed after it was begun, and changes nothing."""

    def __init__(self, connection: PgConnection) -> None:
        self._connection = connection

    def read_by_index(self, *, everything: bool) -> None:
        """Chooses how the queries that follow read: whole tables, or by index a part of them (by_key.BY_INDEX)."""
        self._connection.execute(NOT_BY_INDEX if everything else BY_INDEX)

    def rows(self, statement: str, parameters: Mapping[str, Any] | None = None) -> list[tuple[Any, ...]]:
        """The rows of a query; few."""
        return self._connection.execute(statement.encode(), parameters).fetchall()

    def pages(self, query: str, parameters: Mapping[str, Any]) -> Iterator[list[Any]]:
        """The rows of a query, some thousands at a time. They stream: to be read to the end, or closed."""
        with translated(), self._connection.cursor(name="pages") as cursor:
            cursor.execute(query.encode(), parameters, binary=True)
            while page := cursor.fetchmany(_PAGE_ROWS):
                yield page

    def copy(self, query: str) -> Iterator[bytes]:
        """The rows of a query in the text format of COPY, one at a time, each with its line break. They stream: to
        be read to the end, or closed."""
        statement = f"COPY ({query}) TO STDOUT".encode()
        with translated(), self._connection.cursor() as cursor, cursor.copy(statement) as copy:
            for row in copy:
                yield bytes(row)


@contextmanager
def repeatable_read(connect: Callable[[], PgConnection]) -> Iterator[RepeatableRead]:
    """Raises CatalogUnavailable, CatalogOutdated."""
    with translated(), closing(connect()) as connection:
        revision = revision_of(connection)
        if revision != HEAD_REVISION:
            raise outdated(revision)
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        connection.read_only = True
        with connection.transaction():
            connection.execute(
                "SET LOCAL statement_timeout = 0; SET LOCAL idle_in_transaction_session_timeout = 0; "
                "SET LOCAL TimeZone = 'UTC'; SET LOCAL DateStyle = 'ISO'; SET LOCAL extra_float_digits = 1"
            )
            yield RepeatableRead(connection)
