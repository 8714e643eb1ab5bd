"""The URL of a database that the user has given, and the connections to it."""

import os
import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from cafcat.catalog.connection import CHECK_SERVER, PgConnection, application_name, one_line, open_connection
from cafcat.catalog.silence import LiveCheck
from cafcat.errors import AccessDenied, CafcatError, CatalogUnavailable, InvalidInput

__all__ = ["DatabaseUrl", "connect", "has_secret", "is_readable", "split_password"]

_DEFAULTS = {
    "connect_timeout": "10",
    # Within two minutes, not after hours, libpq detects a server that vanished without closing the connection.
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "60000",
}
"""Values of libpq's connection parameters that the URL does not set. They override PG* environment variables."""


_MAKE_IT: Final = (
    "create role and database on the server (createuser ROLE, createdb --owner ROLE NAME), "
    "then run `cafcat db init`"
)
_CHECK_LOGIN: Final = "check user and password in the database URL, and the rules in the server's pg_hba.conf"
_FULL: Final = re.compile("too many (clients|connections)|remaining connection slots|no more connections")
"""Messages of PostgreSQL and PgBouncer if no further connection is allowed."""
_ALLOW_MORE: Final = (
    "use fewer workers (-j), end other programs that use the database, or let the server, the database or the role "
    "have more connections"
)
_PORTS: Final = re.compile(r"[0-9 ]*(?:,[0-9 ]*)*")


def connect(url: str, *, prepares: bool = True) -> PgConnection:
    """Return a new connection to the database at a URL, in autocommit mode.

    Args:
        url: A libpq URL or key=value string. Errors and their causes never quote an unreadable URL, since it may
            hold a password.
        prepares: True if look-ups are prepared on the server (`open_connection`).

    Raises:
        InvalidInput: The URL cannot be read.
        CatalogUnavailable: The server does not answer, or refuses the connection.
        AccessDenied: The server rejects user and password.
    """
    conninfo = _conninfo(url)
    try:
        connection = open_connection(conninfo, prepares=prepares)
    except psycopg.OperationalError as error:
        raise _connection_error(one_line(error)) from error
    silent_seconds = int(str(conninfo_to_dict(conninfo)["tcp_user_timeout"])) / 1000
    if silent_seconds:
        connection.live_check = LiveCheck(connection, conninfo, silent_seconds)
    return connection


def _conninfo(url: str) -> str:
    """Return a database URL as a libpq key=value string, with cafcat's defaults for parameters that are not given.

    Raises:
        InvalidInput: The URL cannot be read. The error has no cause, because libpq's error quotes the URL.
    """
    if not is_readable(url):
        hint = "write postgresql://user:password@host/name, with @ : / ? % in a password as %40 %3A %2F %3F %25"
        raise InvalidInput("the database URL cannot be read", hint=hint)
    given = conninfo_to_dict(url)
    defaults = _DEFAULTS if "PGAPPNAME" in os.environ else _DEFAULTS | {"application_name": application_name()}
    return make_conninfo(url, **{name: value for name, value in defaults.items() if name not in given})


class DatabaseUrl(NamedTuple):
    """Opens connections to the database at a URL, with one role for all statements: a Connector.

    Attributes:
        url: The libpq URL.
        prepares: True if look-ups are prepared on the server.
    """

    url: str
    prepares: bool = True

    def connect(self) -> PgConnection:
        """Return a new connection in autocommit mode.

        Raises:
            InvalidInput: The URL cannot be read.
            CatalogUnavailable: The server does not answer, or refuses the connection.
            AccessDenied: The server rejects user and password.
        """
        return connect(self.url, prepares=self.prepares)

    def connect_reader(self) -> PgConnection:
        """Return a new connection for a query of the user, with the same role as every other connection.

        Raises the errors of `connect`: InvalidInput, CatalogUnavailable and AccessDenied.
        """
        return self.connect()


def is_readable(url: str) -> bool:
    """Return True if libpq can parse this URL or key=value string, and reads the whole password as the password."""
    try:
        return not _is_garbled(conninfo_to_dict(url))
    except (psycopg.ProgrammingError, UnicodeError):
        return False


def _is_garbled(given: Mapping[str, Any]) -> bool:
    """Return True if libpq took a part of a password for another part of the URL, which messages would show.

    libpq reads "ss@host" as the host of "user:p@ss@host". In "user:pa/ss@host/name" it reads "pa" as the port, and
    "ss@host/name" as the database.
    """
    host, port, database = (str(given.get(name) or "") for name in ("host", "port", "dbname"))
    has_login = "user" in given or "password" in given
    return "@" in host[1:] or _PORTS.fullmatch(port) is None or ("@" in database and not has_login)


def _connection_error(text: str) -> CafcatError:
    """Return the error for a failed connection: AccessDenied for a rejected login, else CatalogUnavailable.

    Args:
        text: libpq's message. Before a connection is open, libpq has no error codes.
    """
    if "authentication failed" in text or "no password supplied" in text or "no pg_hba.conf entry" in text:
        return AccessDenied(f"the database refused the login: {text}", hint=_CHECK_LOGIN)
    if "FATAL:" in text:
        hint = _MAKE_IT if "does not exist" in text else _ALLOW_MORE if _FULL.search(text) else None
        return CatalogUnavailable(f"the database refused the connection: {text}", hint=hint)
    reason = text.partition(" Is the server running")[0]  # the hint of libpq has the same advice as CHECK_SERVER
    return CatalogUnavailable(f"no answer from the database: {reason}", hint=CHECK_SERVER)


def has_secret(url: str) -> bool:
    """Return True if a libpq URL or key=value string has a password. An unreadable one counts as having one."""
    try:
        return not {"password", "sslpassword"}.isdisjoint(conninfo_to_dict(url))
    except psycopg.ProgrammingError:
        return True


def split_password(url: str) -> tuple[str, str | None]:
    """Split a libpq URL or key=value string into a key=value string without the password, and the password.

    The password is None if there is none. It must not show up in a process list.
    """
    parts = conninfo_to_dict(url)
    password = parts.pop("password", None)
    return make_conninfo("", **parts), None if password is None else str(password)
