"""One kept connection to the catalog, and psycopg's exceptions in cafcat's words."""

import select
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import RLock
from typing import Any

import psycopg
from psycopg import errors as pg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from cafcat.catalog.schema import HEAD_REVISION, outdated, revision_of
from cafcat.errors import AccessDenied, CafcatError, CatalogUnavailable, InvalidInput

__all__ = ["Connection", "PgConnection", "connect", "one_line", "primary", "split_password", "translated"]

PgConnection = psycopg.Connection[tuple[Any, ...]]

_DEFAULTS = {
    "connect_timeout": "10",
    # A peer that vanished without a word is noticed within a minute or two, not after hours.
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "60000",
}
"""Connection parameters of libpq, where the URL does not say otherwise."""


def connect(url: str) -> PgConnection:
    """A new connection in autocommit mode. Raises CatalogUnavailable, AccessDenied, InvalidInput.

    Nothing is prepared on the server: a plan made for a small table would stay when it has grown, and poolers
    do not keep prepared statements.
    """
    try:
        given = conninfo_to_dict(url)
        conninfo = make_conninfo(url, **{name: value for name, value in _DEFAULTS.items() if name not in given})
    except psycopg.ProgrammingError as error:
        hint = "write postgresql://user:password@host/name, with @ : / ? % in a password as %40 %3A %2F %3F %25"
        raise InvalidInput("the database URL cannot be read", hint=hint) from error
    try:
        return psycopg.connect(conninfo, autocommit=True, prepare_threshold=None)
    except psycopg.OperationalError as error:
        raise _cannot_connect(one_line(error)) from error


def _cannot_connect(text: str) -> CafcatError:
    """libpq gives no codes for what goes wrong before there is a connection, only words."""
    if "authentication failed" in text or "no password supplied" in text or "no pg_hba.conf entry" in text:
        return AccessDenied(f"the database does not let us in: {text}", hint="check user and password of its URL")
    if "FATAL:" in text:
        return CatalogUnavailable(f"the database does not let us in: {text}")
    return CatalogUnavailable(f"no answer from the database: {text}", hint="is it up, and its URL right?")


class Connection:
    """Connects at first use, and again when the server closed the connection in between. Thread-safe: one
    transaction at a time."""

    def __init__(self, connect: Callable[[], PgConnection]) -> None:
        self._connect = connect
        self._lock = RLock()
        self._connection: PgConnection | None = None
        self._checked = False
        self._in_transaction = False

    @contextmanager
    def transaction(self) -> Iterator[PgConnection]:
        """One transaction, or a part of the one that this thread is in: then it counts when that is left. Raises
        CatalogOutdated if the schema is not ours; looked at once per connection."""
        with self.statement() as connection, connection.transaction():
            is_outermost, self._in_transaction = not self._in_transaction, True
            try:
                yield connection
            finally:
                self._in_transaction = not is_outermost

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
        if self._in_transaction and self._connection is not None:
            return self._connection  # whatever became of it: another connection would be another transaction
        if self._connection is None or self._connection.closed or self._is_stale(self._connection):
            self.close()
            self._connection = self._connect()
        return self._connection

    def _is_stale(self, connection: PgConnection) -> bool:
        """Whether the server has gone, as far as the socket knows; costs no round trip. An idle connection has
        nothing to say: what there is to read is the server's farewell."""
        if connection.pgconn.transaction_status != psycopg.pq.TransactionStatus.IDLE:
            return True
        poll = select.poll()
        poll.register(connection.fileno(), select.POLLIN)
        return bool(poll.poll(0))

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
        hint = "make room there and run it again"
        raise CatalogUnavailable(f"the database ran out of room: {primary(error)}", hint=hint) from error
    except pg.InsufficientPrivilege as error:
        raise CatalogUnavailable(f"the database refused: {primary(error)}") from error
    except (pg.QueryCanceled, pg.LockNotAvailable, pg.SerializationFailure, pg.DeadlockDetected) as error:
        hint = "run it again"
        raise CatalogUnavailable(f"the database broke off: {primary(error)}", hint=hint) from error
    except psycopg.DataError as error:
        raise InvalidInput(f"the catalog cannot hold or find this: {primary(error)}") from error
    except (psycopg.OperationalError, psycopg.InterfaceError) as error:
        hint = "is it up, and its URL right?"
        raise CatalogUnavailable(f"no answer from the database: {primary(error)}", hint=hint) from error
    except UnicodeEncodeError as error:
        raise InvalidInput("a name that is not valid UTF-8 cannot be in the catalog") from error
    except psycopg.Error as error:
        raise CafcatError(f"the database refused a statement: {primary(error)}") from error


def primary(error: psycopg.Error) -> str:
    """What Postgres says in its first sentence, without the statement that it is about."""
    return error.diag.message_primary or one_line(error)


def one_line(error: BaseException) -> str:
    """The message of an exception without line breaks."""
    return " ".join(str(error).split())


def split_password(url: str) -> tuple[str, str | None]:
    """A libpq conninfo without its password, and the password: that must not be seen in a process list."""
    parts = conninfo_to_dict(url)
    password = parts.pop("password", None)
    return make_conninfo("", **parts), None if password is None else str(password)
