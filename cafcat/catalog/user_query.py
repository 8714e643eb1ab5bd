"""One query of the user, which can only read.

In the embedded database, the connection's role owns nothing and can only read. In a database of the user, cafcat
has only the role of the URL. Three rules confine the query there, and they hold for every role except a superuser,
which is refused:

* The query is sent as one statement in the extended protocol. The server refuses several statements in one message.
* The query is that of a cursor (DECLARE). The server's grammar allows only SELECT, VALUES, TABLE and WITH there. It
  refuses DO, SET, COPY, CALL, PREPARE, COMMIT and all other commands, including those that change data.
* The transaction is READ ONLY and acquires its snapshot before the query runs. From then on, PostgreSQL refuses to
  make it READ WRITE. It is never committed.

A role that can read or write the server's files, or run programs there, could do so with a SELECT. Such a role is
refused, too, also if it has the power only as a member of another role.
"""

from collections.abc import Iterator
from contextlib import closing
from typing import Any, Final

import psycopg
from psycopg.types.string import TextLoader

from cafcat.catalog.connection import Connector, PgConnection, primary_message, translated_errors
from cafcat.errors import InvalidInput

__all__ = ["JsonText", "Numeric", "user_query"]


class Numeric(str):
    """A value of PostgreSQL's types numeric, real or double precision, as the text that PostgreSQL prints."""

    __slots__ = ()


class JsonText(str):
    """A value of one of PostgreSQL's types json and jsonb, as the text that PostgreSQL prints."""

    __slots__ = ()


class _NumericLoader(TextLoader):
    def load(self, data: Any) -> Numeric:
        return Numeric(super().load(data))


class _JsonLoader(TextLoader):
    def load(self, data: Any) -> JsonText:
        return JsonText(super().load(data))


_LOADERS: Final = dict.fromkeys(("numeric", "float4", "float8"), _NumericLoader) | dict.fromkeys(
    ("json", "jsonb"), _JsonLoader
)


_PLAN_FOR_ALL_ROWS: Final = "SET LOCAL cursor_tuple_fraction = 1"
"""Plan for all rows of a cursor. By default the server plans for the first tenth."""

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


def user_query(database: Connector, statement: str) -> Iterator[tuple[Any, ...]]:
    """Yield the column names of a query in one tuple, and then each of its rows.

    Args:
        database: Opens a new connection, which is closed at the end.
        statement: One SELECT, VALUES, TABLE or WITH query.

    Raises:
        InvalidInput: The statement is of another kind, or fails. Or the connection's role could change data or
            reach files and programs of the server in spite of a read-only transaction.
        CatalogUnavailable: The server does not answer, or broke off the query.
        AccessDenied: The server rejects user and password.
    """
    with closing(database.connect_reader()) as connection, translated_errors():
        connection.read_only = True
        connection.autocommit = False
        connection.execute(_PLAN_FOR_ALL_ROWS)
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
            hint = (
                "give one SELECT, VALUES, TABLE or WITH query, which changes nothing; `cafcat sql` alone opens psql"
            )
            is_no_query = isinstance(error, psycopg.errors.SyntaxError | psycopg.NotSupportedError)
            message = f"the database refused the query: {primary_message(error)}"
            first_word = next(iter(statement.split()), "")
            if first_word and error.diag.statement_position == str(len(_DECLARE) + statement.index(first_word) + 1):
                message = f"this is no query: it begins with {first_word!r}"
            raise InvalidInput(message, hint=hint if is_no_query else None) from error


def _refuse_dangerous_role(connection: PgConnection) -> None:
    """Raise InvalidInput if the role of a connection could do harm in a read-only transaction.

    This query is the first of the transaction, so it also acquires the snapshot.
    """
    row = connection.execute(_DANGEROUS_ROLE.encode()).fetchone()
    if row is None:
        return
    role, is_superuser = row
    power = "has a superuser's powers" if is_superuser else "can reach the server's files or programs"
    raise InvalidInput(
        f"the role of the database URL {power} (through {role}), and cafcat runs no query with such a role",
        hint="give --database-url with another role, such as one of `cafcat db grant-reader ROLE`, or use psql, "
        "which `cafcat sql` starts",
    )


def _fetched(connection: PgConnection) -> Iterator[tuple[Any, ...]]:
    columns = connection.execute(_FETCH_NONE).description or ()
    yield tuple(column.name for column in columns)
    cursor = connection.cursor()
    _texts_only(cursor)
    yield from cursor.stream(_FETCH_ALL)


def _texts_only(cursor: psycopg.Cursor[Any]) -> None:
    """Make a cursor return values as the text that PostgreSQL prints, except single booleans, integers and oids.

    Python's types cannot represent an infinite date, the year -44, or the trailing zero of 1.50.
    """
    for kind in cursor.connection.adapters.types:
        if kind.name not in ("bool", "int2", "int4", "int8", "oid"):
            cursor.adapters.register_loader(kind.oid, _LOADERS.get(kind.name, TextLoader))
        if kind.array_oid:
            cursor.adapters.register_loader(kind.array_oid, TextLoader)
