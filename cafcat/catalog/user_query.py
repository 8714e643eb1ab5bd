"""One query of the user: it can read, and do nothing else.

In the embedded database the role of the connection owns nothing and can only read. For a database that was given
there is only its role, so the query is confined by rules that hold for any role but a superuser:

* It is sent as one statement in the extended protocol, in which the server refuses several statements at once.
* It is the query of a cursor (DECLARE): the server's grammar takes SELECT, VALUES, TABLE and WITH there. It refuses
  DO, SET, COPY, CALL, PREPARE, COMMIT and all other commands, also those that change data.
* The transaction is READ ONLY, and has taken a snapshot before the query runs: from then on, PostgreSQL does not
  let it become READ WRITE. It is never committed.

A role that can read the server's files or run programs there needs nothing but a SELECT, and is refused.
"""

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any, Final

import psycopg
from psycopg.types.string import TextLoader

from cafcat.catalog.connection import PgConnection, primary, translated
from cafcat.errors import InvalidInput

__all__ = ["user_query"]

_PLANNED_TO_THE_END: Final = "SET LOCAL cursor_tuple_fraction = 1"
"""By default the server plans for the first tenth of a cursor's rows."""

_DANGEROUS_ROLE: Final = """
SELECT r.rolname, r.rolsuper FROM pg_catalog.pg_roles AS r
WHERE pg_catalog.pg_has_role(session_user, r.oid, 'MEMBER') AND (r.rolsuper OR r.rolname IN
      ('pg_read_server_files', 'pg_write_server_files', 'pg_execute_server_program'))
ORDER BY r.rolsuper DESC, r.rolname <> session_user, r.rolname
LIMIT 1
"""
_DECLARE: Final = b"DECLARE cafcat_query NO SCROLL CURSOR FOR\n"
_FETCH_NONE: Final = b"FETCH 0 FROM cafcat_query"
_FETCH_ALL: Final = b"FETCH ALL FROM cafcat_query"


def user_query(connect: Callable[[], PgConnection], statement: str) -> Iterator[tuple[Any, ...]]:
    """Yield the column names of a query, and then its rows, one at a time. Raises InvalidInput."""
    with closing(connect()) as connection, translated():
        connection.read_only = True
        connection.autocommit = False
        connection.execute(_PLANNED_TO_THE_END)
        _refuse_dangerous_role(connection)
        try:
            connection.execute(_DECLARE + statement.encode(), binary=True)  # binary: the extended protocol
            yield from _fetched(connection)
        except (
            psycopg.ProgrammingError,
            psycopg.DataError,
            psycopg.InternalError,
            psycopg.NotSupportedError,
        ) as error:
            hint = "give one SELECT, VALUES or WITH query, which returns rows and changes nothing"
            is_another = isinstance(error, psycopg.errors.SyntaxError | psycopg.NotSupportedError)
            raise InvalidInput(f"the database says: {primary(error)}", hint=hint if is_another else None) from error


def _refuse_dangerous_role(connection: PgConnection) -> None:
    """Raise InvalidInput for a role that could do harm in a read-only transaction. Takes the snapshot."""
    row = connection.execute(_DANGEROUS_ROLE.encode()).fetchone()
    if row is None:
        return
    role, is_superuser = row
    power = "has a superuser's powers" if is_superuser else "can reach the server's files or programs"
    raise InvalidInput(
        f"queries run as a role that can only read, and the role of the database URL {power} (by {role})",
        hint="give --database-url with a role that only has SELECT, or use psql: `cafcat sql`",
    )


def _fetched(connection: PgConnection) -> Iterator[tuple[Any, ...]]:
    columns = connection.execute(_FETCH_NONE).description or ()
    yield tuple(column.name for column in columns)
    cursor = connection.cursor()
    _texts_only(cursor)
    yield from cursor.stream(_FETCH_ALL)


def _texts_only(cursor: psycopg.Cursor[Any]) -> None:
    """Every value as Postgres prints it: Python has no word for infinity, the year -44, or 1.50."""
    for kind in cursor.connection.adapters.types:
        if kind.name not in ("bool", "int2", "int4", "int8", "oid"):
            cursor.adapters.register_loader(kind.oid, TextLoader)
        if kind.array_oid:
            cursor.adapters.register_loader(kind.array_oid, TextLoader)
