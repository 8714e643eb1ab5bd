"""One kept connection to the catalog, and psycopg's exceptions in cafcat's words."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import RLock
from typing import Any

import psycopg
from psycopg import errors as pg

from cafcat.catalog.schema import HEAD_REVISION, outdated, revision_of
from cafcat.errors import CafcatError, CatalogUnavailable, InvalidInput

__all__ = ["Connection", "PgConnection", "connect", "one_line", "split_password", "translated"]

PgConnection = psycopg.Connection[tuple[Any, ...]]

CONNECT_TIMEOUT_SECONDS = 10


def connect(url: str) -> PgConnection:
    """A new connection in autocommit mode. Raises CatalogUnavailable."""
    with translated():
        try:
            return psycopg.connect(url, autocommit=True, connect_timeout=CONNECT_TIMEOUT_SECONDS)
        except psycopg.ProgrammingError as error:
            raise InvalidInput(f"the database URL cannot be read: {one_line(error)}") from error


class Connection:
    """Connects at first use, and again when the server closed the connection in between. Thread-safe: one
    transaction at a time."""

    def __init__(self, connect: Callable[[], PgConnection]) -> None:
        self._connect = connect
        self._lock = RLock()
        self._connection: PgConnection | None = None
        self._checked = False

    @contextmanager
    def transaction(self) -> Iterator[PgConnection]:
        """One transaction. Raises CatalogOutdated if the schema is not ours; looked at once per connection."""
        with self.statement() as connection, connection.transaction():
            yield connection

    @contextmanager
    def statement(self, *, check: bool = True) -> Iterator[PgConnection]:
        """A connection for a single statement, which is a transaction by itself: one round trip, not three.
        `check` as in transaction."""
        with self._lock, translated():
            connection = self._open()
            if check and not self._checked:
                self._check(connection)
            yield connection

    def _open(self) -> PgConnection:
        if self._connection is None or self._connection.closed or self._is_stale(self._connection):
            self.close()
            self._connection = self._connect()
        return self._connection

    def _is_stale(self, connection: PgConnection) -> bool:
        """Whether the server has gone, as far as the socket knows; costs no round trip."""
        if connection.pgconn.transaction_status != psycopg.pq.TransactionStatus.IDLE:
            return True
        try:
            connection.pgconn.consume_input()
        except psycopg.OperationalError:
            return True
        return connection.pgconn.status != psycopg.pq.ConnStatus.OK

    def _check(self, connection: PgConnection) -> None:
        revision = revision_of(connection)
        if revision != HEAD_REVISION:
            raise outdated(revision)
        self._checked = True

    def close(self) -> None:
        """Idempotent; the next transaction connects anew."""
        if self._connection is not None:
            self._connection.close()
        self._connection = None
        self._checked = False


@contextmanager
def translated() -> Iterator[None]:
    """psycopg's exceptions in cafcat's words."""
    try:
        yield
    except pg.UndefinedTable as error:
        raise outdated(None) from error
    except (pg.DiskFull, pg.OutOfMemory, pg.ConfigurationLimitExceeded) as error:
        raise CatalogUnavailable(f"the database ran out of room: {one_line(error)}") from error
    except pg.InsufficientPrivilege as error:
        raise CatalogUnavailable(f"the database refused: {one_line(error)}") from error
    except (psycopg.OperationalError, psycopg.InterfaceError) as error:
        hint = "is the server up and CAFCAT_DATABASE_URL right?"
        raise CatalogUnavailable(f"no answer from the database: {one_line(error)}", hint=hint) from error
    except UnicodeEncodeError as error:
        raise InvalidInput("a name that is not valid UTF-8 cannot be in the catalog") from error
    except psycopg.Error as error:
        raise CafcatError(f"the database refused a statement: {one_line(error)}") from error


def one_line(error: BaseException) -> str:
    """The message of an exception without line breaks."""
    return " ".join(str(error).split())


def split_password(url: str) -> tuple[str, str | None]:
    """A libpq conninfo without its password, and the password: that must not be seen in a process list."""
    parts = psycopg.conninfo.conninfo_to_dict(url)
    password = parts.pop("password", None)
    return psycopg.conninfo.make_conninfo("", **parts), None if password is None else str(password)
