"""Connections to the embedded server, and the setup of its database and roles."""

import contextlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path

from psycopg import sql
from psycopg.conninfo import make_conninfo

from cafcat.catalog.connection import PgConnection, open_connection
from cafcat.catalog.locking import application_name
from cafcat.embedded.roles import SUPERUSER, set_up_roles
from cafcat.embedded.sockets import PORT

__all__ = [
    "DATABASE",
    "connect_to",
    "is_database_missing",
    "server_conninfo",
    "set_up_database",
    "without_pg_variables",
]

DATABASE = "cafcat"
"""Name of the catalog's database on the embedded server."""

_environment_lock = threading.Lock()


def server_conninfo(sockets: Path, dbname: str, role: str) -> str:
    """Return libpq keywords for a connection, which override most PG* variables.

    Args:
        sockets: Folder of the server's socket.
        dbname: Name of the database.
        role: Role of the login.
    """
    return make_conninfo(
        host=str(sockets),
        hostaddr="",
        port=PORT,
        user=role,
        dbname=dbname,
        options="",
        sslmode="disable",
        gssencmode="disable",
        connect_timeout=30,
    )


def connect_to(sockets: Path, dbname: str, role: str) -> PgConnection:
    """Return a connection to the server. The caller has checked that the socket folder is private.

    In a folder that is not private, another user could pose as the server.

    Raises:
        psycopg.Error: The connection fails.
    """
    with without_pg_variables():
        conninfo = make_conninfo(server_conninfo(sockets, dbname, role), application_name=application_name())
        return open_connection(conninfo)


def is_database_missing(reason: str) -> bool:
    """Return whether a connection failed because the catalog's database does not exist yet."""
    return f'database "{DATABASE}" does not exist' in reason


def set_up_database(sockets: Path) -> None:
    """Create the database and the roles where they are missing, and set owners and privileges.

    Raises:
        psycopg.Error: The server reports an error.
    """
    with connect_to(sockets, "postgres", SUPERUSER) as connection:
        found = connection.execute("SELECT FROM pg_database WHERE datname = %s", [DATABASE]).fetchone()
        if found is None:
            # All properties are given, because a cluster that another program created may have other defaults.
            statement = sql.SQL("CREATE DATABASE {} TEMPLATE template0 ENCODING 'UTF8' LOCALE 'C'")
            connection.execute(statement.format(sql.Identifier(DATABASE)))
    with connect_to(sockets, DATABASE, SUPERUSER) as connection:
        set_up_roles(connection, DATABASE)


@contextlib.contextmanager
def without_pg_variables() -> Iterator[None]:
    """Remove all PG* variables from the environment while the context is active.

    A conninfo does not override some of libpq's variables, such as PGSERVICE and PGTZ.
    """
    with _environment_lock:
        removed = {name: value for name, value in os.environ.items() if name.startswith("PG")}
        for name in removed:
            del os.environ[name]
        try:
            yield
        finally:
            os.environ.update(removed)
