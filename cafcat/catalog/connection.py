"""One kept connection to the catalog, and psycopg's exceptions in cafcat's words."""

import os
import re
import select
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from threading import RLock
from typing import Any, Final, NamedTuple

import psycopg
from psycopg import errors as pg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from cafcat.catalog.by_key import BY_INDEX
from cafcat.catalog.locking import (
    DEFAULT_LIMIT_SECONDS,
    Patience,
    application_name,
    limit_waiting,
    locked_error,
)
from cafcat.catalog.schema import HEAD_REVISION, outdated, revision_of
from cafcat.errors import AccessDenied, CafcatError, CatalogLocked, CatalogUnavailable, InvalidInput

__all__ = [
    "Connection",
    "PgConnection",
    "PreparedLookup",
    "connect",
    "is_readable",
    "one_line",
    "open_connection",
    "primary",
    "split_password",
    "translated",
]


class PgConnection(psycopg.Connection[tuple[Any, ...]]):
    """A connection of psycopg that has a limit for how long it waits for locks."""

    patience: Patience | None = None


_ONLY_WHEN_ASKED: Final = 1 << 62
"""So often a statement has to come before psycopg prepares it unasked: never."""
_PREPARED_STATEMENTS: Final = 4
"""So many are kept on the server for each connection."""
_PLANNED_SECONDS: Final = 60
"""A plan holds at most so long. One that was made for a small table may be a bad one when that has grown, and a
server that does not gather statistics by itself would never make another."""

_DEFAULTS = {
    "connect_timeout": "10",
    # A peer that vanished without a word is noticed within a minute or two, not after hours.
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "60000",
}
"""Connection parameters of libpq, where the URL does not say otherwise."""


_PORTS: Final = re.compile(r"[0-9 ]*(?:,[0-9 ]*)*")


class PreparedLookup(NamedTuple):
    """A look-up that is made again and again: one SELECT, in two ways."""

    prepared: bytes
    """To be prepared on the server."""
    first: bytes
    """For a new connection, where preparing would be a round trip more: it gives the schema's revision along, as
    a first column, and a row even if there is nothing."""


def connect(url: str, *, prepares: bool = True) -> PgConnection:
    """Return a new connection in autocommit mode.

    Args:
        url: a libpq URL or key=value string. No part of one that cannot be read is in an error or its causes.
        prepares: see `open_connection`.

    Raises:
        InvalidInput: the URL cannot be read.
        CatalogUnavailable: the server does not answer, or refuses the connection.
        AccessDenied: the server does not accept user and password.
    """
    conninfo = _conninfo(url)
    try:
        return open_connection(conninfo, prepares=prepares)
    except psycopg.OperationalError as error:
        raise _cannot_connect(one_line(error)) from error


def _conninfo(url: str) -> str:
    """Return libpq keywords, with our defaults. Raises InvalidInput, without the cause: libpq quotes the URL."""
    if not is_readable(url):
        hint = "write postgresql://user:password@host/name, with @ : / ? % in a password as %40 %3A %2F %3F %25"
        raise InvalidInput("the database URL cannot be read", hint=hint)
    given = conninfo_to_dict(url)
    defaults = _DEFAULTS if "PGAPPNAME" in os.environ else _DEFAULTS | {"application_name": application_name()}
    return make_conninfo(url, **{name: value for name, value in defaults.items() if name not in given})


def is_readable(url: str) -> bool:
    """Return whether libpq reads this URL or key=value string as its author meant it, as far as one can see."""
    try:
        return not _is_garbled(conninfo_to_dict(url))
    except (psycopg.ProgrammingError, UnicodeError):
        return False


def _is_garbled(given: Mapping[str, Any]) -> bool:
    """Return whether libpq reads the end of a password as something else, which messages would then show.

    "user:p@ss@host" has the host "ss@host", "user:pa/ss@host/name" the port "pa" or the database "ss@host/name".
    """
    host, port, database = (str(given.get(name) or "") for name in ("host", "port", "dbname"))
    has_login = "user" in given or "password" in given
    return "@" in host[1:] or _PORTS.fullmatch(port) is None or ("@" in database and not has_login)


def open_connection(conninfo: str, *, prepares: bool = True) -> PgConnection:
    """A new connection in autocommit mode, by libpq's keywords. Raises psycopg's exceptions. `prepares`: whether
    look-ups are prepared on the server, which is possible where a pooler in between keeps prepared statements
    apart. Other statements never are."""
    threshold = _ONLY_WHEN_ASKED if prepares else None
    connection = PgConnection.connect(conninfo, autocommit=True, prepare_threshold=threshold)
    connection.prepared_max = _PREPARED_STATEMENTS
    return connection


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

    def __init__(self, connect: Callable[[], PgConnection], patience: Patience | None = None) -> None:
        """Create one that connects at first use; `patience`: for locks, of transactions."""
        self._connect = connect
        self._patience = patience
        self._lock = RLock()
        self._connection: PgConnection | None = None
        self._cursor: psycopg.Cursor[tuple[Any, ...]] | None = None
        self._poll = select.poll()
        self._checked = False
        self._in_transaction = False
        self._prepares = True
        self._texts: dict[bytes, bytes] = {}
        self._planned_until = 0.0

    @contextmanager
    def transaction(self) -> Iterator[PgConnection]:
        """One transaction, or a part of the one that this thread is in: then it counts when that is left. Raises
        CatalogOutdated if the schema is not ours; looked at once per connection."""
        with self.statement() as connection:
            is_outermost = not self._in_transaction
            try:
                with connection.transaction():
                    self._in_transaction = True
                    try:
                        if is_outermost and self._patience is not None:
                            limit_waiting(connection, self._limit_seconds)
                        yield connection
                    finally:
                        self._in_transaction = not is_outermost
            except pg.LockNotAvailable as error:
                if not is_outermost:
                    raise
                raise locked_error(connection, None) from error

    @property
    def _limit_seconds(self) -> float:
        limit = None if self._patience is None else self._patience.limit_seconds
        return DEFAULT_LIMIT_SECONDS if limit is None else limit

    @contextmanager
    def by_index(self) -> Iterator[PgConnection]:
        """One transaction in which tables are read by index only: see by_key.BY_INDEX."""
        with self.transaction() as connection:
            connection.execute(BY_INDEX)
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

    def select(self, selection: PreparedLookup, parameter: str | list[str]) -> list[tuple[Any, ...]]:
        """The rows that a look-up gives for its one parameter: one round trip. Raises CatalogOutdated."""
        with self._lock:
            try:
                connection = self._open()
                if not self._checked:
                    return self._select_first(connection, selection.first, parameter)
                return self._select(connection, selection.prepared, parameter)
            except (psycopg.Error, UnicodeEncodeError):
                with translated():
                    raise

    def _select_first(
        self, connection: PgConnection, statement: bytes, parameter: str | list[str]
    ) -> list[tuple[Any, ...]]:
        rows = connection.execute(statement, (parameter,)).fetchall()
        revision = rows[0][0] if rows else None
        if revision != HEAD_REVISION:
            raise outdated(revision)
        self._checked = True
        return [row[1:] for row in rows if row[1] is not None]

    def _select(
        self, connection: PgConnection, statement: bytes, parameter: str | list[str]
    ) -> list[tuple[Any, ...]]:
        if self._cursor is None:
            self._cursor = connection.cursor()
        if self._in_transaction or not self._prepares:
            return self._cursor.execute(statement, (parameter,), prepare=False).fetchall()
        try:
            return self._cursor.execute(self._planned(statement), (parameter,), prepare=True).fetchall()
        except _NOT_KEPT:
            # A pooler that does not keep them apart, or a table that was changed meanwhile.
            self._prepares = False
            return self._select(connection, statement, parameter)

    def _planned(self, statement: bytes) -> bytes:
        """The statement with a number behind it that changes, so that it is planned anew now and then."""
        now = time.monotonic()
        if now >= self._planned_until:
            self._planned_until = now + _PLANNED_SECONDS
            self._texts.clear()
        text = self._texts.get(statement)
        if text is None:
            text = self._texts[statement] = b"%b -- %d" % (statement, now)
        return text

    def _open(self) -> PgConnection:
        if self._in_transaction and self._connection is not None:
            return self._connection  # whatever became of it: another connection would be another transaction
        if self._connection is None or self._connection.closed or self._is_stale(self._connection):
            self.close()
            self._connection = self._connect()
            self._connection.patience = self._patience
            self._poll = select.poll()
            self._poll.register(self._connection.fileno(), select.POLLIN)
        return self._connection

    def _is_stale(self, connection: PgConnection) -> bool:
        """Whether the server has gone, as far as the socket knows; costs no round trip. An idle connection has
        nothing to say: what there is to read is the server's farewell."""
        if connection.pgconn.transaction_status != psycopg.pq.TransactionStatus.IDLE:
            return True
        return bool(self._poll.poll(0))

    def _check(self, connection: PgConnection) -> None:
        revision = revision_of(connection)
        if revision != HEAD_REVISION:
            raise outdated(revision)
        self._checked = True

    def close(self) -> None:
        """Idempotent; the next transaction connects anew."""
        if self._connection is not None:
            self._connection.close()
        self._connection = self._cursor = None
        self._checked = False


_NOT_KEPT: Final = (pg.InvalidSqlStatementName, pg.DuplicatePreparedStatement, pg.FeatureNotSupported)


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
    except pg.LockNotAvailable as error:
        hint = "run it again"
        raise CatalogLocked(f"a lock of the catalog was not free: {primary(error)}", hint=hint) from error
    except (pg.QueryCanceled, pg.SerializationFailure, pg.DeadlockDetected) as error:
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
