"""A reused connection to the catalog's database, and the translation of psycopg's exceptions into cafcat's."""

import itertools
import logging
import os
import select
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import RLock
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, Protocol

import psycopg
from psycopg import errors as pg

from cafcat.catalog.by_key import BY_INDEX, IN_ORDER
from cafcat.catalog.locking import (
    DEFAULT_LIMIT_SECONDS,
    LockWait,
    lock_timeout_sql,
    locked_error,
)
from cafcat.catalog.schema import HEAD_REVISION, outdated, revision_of
from cafcat.errors import CafcatError, CatalogDenied, CatalogLocked, CatalogUnavailable, InvalidInput
from cafcat.support.forking import keep_open, renew_after_fork

if TYPE_CHECKING:
    from cafcat.catalog.silence import LiveCheck

__all__ = [
    "Connection",
    "Connector",
    "PgConnection",
    "PreparedLookup",
    "application_name",
    "one_line",
    "open_connection",
    "primary_message",
    "translated_errors",
]


# psycopg logs an error that a rollback meets after another error, which is raised. In a program that does not
# configure logging, Python would print this log on stderr.
logging.getLogger("psycopg").addHandler(logging.NullHandler())


class PgConnection(psycopg.Connection[tuple[Any, ...]]):
    """A psycopg connection, with three attributes that cafcat needs.

    Attributes:
        lock_wait: How long to wait for locks, and where to report long waits. None: `locking.acquire` uses its
            defaults.
        revision: Revision of the schema when the connection was made; None if it was not queried.
        live_check: Finds out during a long wait whether the server still answers. None: the wait has no limit.
    """

    lock_wait: LockWait | None = None
    revision: str | None = None
    live_check: "LiveCheck | None" = None

    def wait(self, gen: Any, *args: Any, **kwargs: Any) -> Any:
        """Wait until a statement has been sent or answered, as psycopg does, or until `live_check` raises."""
        if self.live_check is not None:
            gen = self.live_check.watched(gen)
        return super().wait(gen, *args, **kwargs)


_PREPARE_ON_REQUEST: Final = 1 << 62
"""Executions after which psycopg prepares a statement by itself: so many that it never does."""
_PREPARED_STATEMENTS: Final = 4
"""Largest number of prepared statements of one connection on the server."""
_PLAN_SECONDS: Final = 60
"""How long a prepared statement is used before it is planned anew, in seconds.

A plan that was made for a small table may be slow after the table has grown. A server that does not gather
statistics by itself would keep such a plan for ever.
"""

_NAME_BYTES: Final = 63
"""Longest application_name of PostgreSQL (NAMEDATALEN - 1)."""


class PreparedLookup(NamedTuple):
    """One SELECT with one parameter that is executed often, in two variants.

    Attributes:
        prepared: The statement for every later look-up on a connection. The server prepares it, except within a
            transaction, or if preparing was disabled or has failed.
        first: The statement for the first look-up on a connection, where preparing would cost another round trip.
            Its first column is the revision of the schema, maybe with a space and pg_class.relkind of
            file_locations. It returns a row even if nothing is found.
    """

    prepared: bytes
    first: bytes


def application_name() -> str:
    """Return the name of this process's connections in pg_stat_activity, such as "cafcat 4711@host"."""
    name = f"cafcat {os.getpid()}@{socket.gethostname()}"
    return name.encode("ascii", "replace").decode()[:_NAME_BYTES]


def open_connection(conninfo: str, *, prepares: bool = True) -> PgConnection:
    """Return a new connection to a PostgreSQL database in autocommit mode.

    Args:
        conninfo: libpq keywords.
        prepares: True if look-ups are prepared on the server. A pooler between client and server must then keep the
            prepared statements of its clients apart. Other statements are never prepared.

    Raises:
        psycopg.Error: The connection fails. The exception is not translated.
    """
    threshold = _PREPARE_ON_REQUEST if prepares else None
    connection = PgConnection.connect(conninfo, autocommit=True, prepare_threshold=threshold)
    connection.prepared_max = _PREPARED_STATEMENTS
    # psycopg numbers the statements of each connection from 0. A pooler that shares sessions between its clients,
    # and does not keep their statements apart, would execute the statement that another client has prepared as 0.
    connection._prepared._prepared_idx = int.from_bytes(os.urandom(7))
    return connection


class Connector(Protocol):
    """Opens connections to the catalog's database."""

    def connect(self) -> PgConnection:
        """Return a new connection in autocommit mode, which can read and write.

        Raises:
            InvalidInput: The URL of the database cannot be read.
            CatalogUnavailable: The server does not answer, or refuses the connection.
            AccessDenied: The server rejects user and password.
        """

    def connect_reader(self) -> PgConnection:
        """Return a new connection in autocommit mode for queries of the user. Raises the errors of `connect`."""


class Connection:
    """A connection to the catalog's database, opened at first use, and again if the server closed it in between.

    It is thread-safe: other threads wait while one thread executes a statement or has a transaction open. A forked
    process opens a connection of its own.

    Attributes:
        last_write: A number that changes when a statement or transaction of any Connection of this process has
            ended, unless it was announced as one that only reads.
    """

    last_write: ClassVar[int] = 0

    def __init__(self, database: Connector, lock_wait: LockWait | None = None) -> None:
        """Create the object. This does not connect yet.

        Args:
            database: Opens the connection.
            lock_wait: How long transactions wait for locks, and what receives warnings about long waits. None: the
                database's setting lock_timeout decides, except in `locking.acquire`, which has a default. A single
                `statement` outside a transaction always follows the database's setting.
        """
        self._database = database
        self._lock_wait = lock_wait
        self._lock = RLock()
        self._connection: PgConnection | None = None
        self._cursor: psycopg.Cursor[tuple[Any, ...]] | None = None
        self._poll = select.poll()
        self._checked = False
        self._in_transaction = False
        self._prepares = True
        self._numbered: dict[bytes, bytes] = {}
        self._planned_until = self._layout_until = 0.0
        self._is_partitioned = False
        renew_after_fork(self)

    @contextmanager
    def transaction(self, *, read_only: bool = False, settings: str = "") -> Iterator[PgConnection]:
        """Open a transaction, or a savepoint if this thread has a transaction open. The outermost context commits.

        Args:
            read_only: True if the transaction changes nothing. The server does not check that.
            settings: Statements that change settings of the server for this transaction.

        Raises:
            CatalogOutdated: The database has no schema, or one of another revision. This is checked once per
                connection.
            CatalogLocked: A lock was not free in time.
            CatalogUnavailable: The database cannot be reached, or refused or broke off a statement.
            AccessDenied: The server rejects user and password.
            InvalidInput: The database cannot store or look up a value, or its URL cannot be read.
        """
        with self.statement(read_only=read_only) as connection:
            is_outermost = not self._in_transaction
            try:
                with connection.transaction():
                    self._in_transaction = True
                    try:
                        has_limit = is_outermost and self._lock_wait is not None
                        limit = lock_timeout_sql(self._limit_seconds) if has_limit else ""
                        if statements := [text for text in (limit, settings) if text]:
                            connection.execute("; ".join(statements).encode())
                        yield connection
                    finally:
                        self._in_transaction = not is_outermost
            except pg.LockNotAvailable as error:
                if not is_outermost:
                    raise
                raise locked_error(connection, None) from error

    @property
    def _limit_seconds(self) -> float:
        limit = None if self._lock_wait is None else self._lock_wait.limit_seconds
        return DEFAULT_LIMIT_SECONDS if limit is None else limit

    @contextmanager
    def by_index(self, *, read_only: bool = False, in_order: bool = False) -> Iterator[PgConnection]:
        """Open a transaction in which the server reads tables by index wherever an index can answer a query.

        Args:
            read_only: True if the transaction changes nothing.
            in_order: True to read an index in its order, too, for the first rows of a range.

        Raises the errors of `transaction`, such as CatalogUnavailable.
        """
        settings = f"{BY_INDEX}; {IN_ORDER}" if in_order else BY_INDEX
        with self.transaction(read_only=read_only, settings=settings) as connection:
            yield connection

    @contextmanager
    def statement(self, *, check: bool = True, read_only: bool = False) -> Iterator[PgConnection]:
        """Open a context with the connection for a single statement, which is a transaction by itself.

        This costs one round trip to the server, not three as `transaction` does. If this thread has a transaction
        open, the statement belongs to that transaction.

        Args:
            check: Check the revision of the schema, once per connection.
            read_only: True if the statement changes nothing.

        Raises:
            CatalogOutdated: The database has no schema, or one of another revision.
            CatalogLocked: A lock was not free in time.
            CatalogUnavailable: The database cannot be reached, or refused the statement.
            AccessDenied: The server rejects user and password.
            InvalidInput: The database cannot store or look up a value, or its URL cannot be read.
        """
        with self._lock, translated_errors():
            connection = self._open()
            if check and not self._checked:
                self._check(connection)
            try:
                yield connection
            finally:
                if not read_only:
                    Connection.last_write = next(_WRITES)

    def select(self, selection: PreparedLookup, parameter: str) -> list[tuple[Any, ...]]:
        """Return the rows that a look-up finds, usually in one round trip to the server; empty if it finds none.

        Args:
            selection: The look-up.
            parameter: The value of its one parameter.

        Raises:
            CatalogOutdated: The database has no schema, or one of another revision.
            CatalogUnavailable: The database cannot be reached.
            AccessDenied: The server rejects user and password.
            InvalidInput: The parameter is not valid UTF-8 or contains NUL, or the database's URL cannot be read.
        """
        with self._lock:
            try:
                connection = self._open()
                if self._cursor is None:
                    return self._select_first(connection, selection.first, parameter)
                return self._select(self._cursor, selection.prepared, parameter)
            except (psycopg.Error, UnicodeEncodeError):
                with translated_errors():
                    raise

    def is_partitioned(self) -> bool:
        """Return True if file_locations had partitions when this connection last looked, up to 60 seconds ago.

        Every statement is right with both layouts: this only tells which one is faster. It is False before the
        first look-up, and costs at most one query in 60 seconds.

        Raises:
            CatalogOutdated, CatalogUnavailable, AccessDenied, InvalidInput: As `select` raises them.
        """
        with self._lock:
            if self._cursor is None:
                return False
            now = time.monotonic()
            if now >= self._layout_until:
                from cafcat.catalog.layout import is_partitioned

                self._layout_until = now + _PLAN_SECONDS
                with self.statement(read_only=True) as connection:
                    self._is_partitioned = is_partitioned(connection)
            return self._is_partitioned

    def _select_first(self, connection: PgConnection, statement: bytes, parameter: str) -> list[tuple[Any, ...]]:
        rows = connection.execute(statement, (parameter,)).fetchall()
        revision, _, kind = str(rows[0][0] or "").partition(" ") if rows else ("", "", "")
        if revision != HEAD_REVISION:
            raise outdated(revision or None)
        if kind:
            self._is_partitioned = kind == "p"
            self._layout_until = time.monotonic() + _PLAN_SECONDS
        self._checked = True
        self._cursor = connection.cursor(binary=True)
        return [row[1:] for row in rows if row[1] is not None]

    def _select(
        self, cursor: psycopg.Cursor[tuple[Any, ...]], statement: bytes, parameter: str
    ) -> list[tuple[Any, ...]]:
        if self._in_transaction or not self._prepares:
            return cursor.execute(statement, (parameter,), prepare=False).fetchall()
        try:
            return cursor.execute(self._with_plan_number(statement), (parameter,), prepare=True).fetchall()
        except _PREPARED_STATEMENT_LOST:
            # A pooler mixed up the statements of its clients, or the table was changed meanwhile.
            self._prepares = False
            return self._select(cursor, statement, parameter)

    def _with_plan_number(self, statement: bytes) -> bytes:
        """Return the statement with a number in a comment, which changes every 60 seconds to force a new plan."""
        now = time.monotonic()
        if now >= self._planned_until:
            self._planned_until = now + _PLAN_SECONDS
            self._numbered.clear()
        numbered = self._numbered.get(statement)
        if numbered is None:
            numbered = self._numbered[statement] = b"%b -- %d" % (statement, now)
        return numbered

    def _open(self) -> PgConnection:
        if self._in_transaction and self._connection is not None:
            return self._connection  # even if it is closed: another connection would be another transaction
        if self._connection is None or self._connection.closed or self._is_stale(self._connection):
            self.close()
            self._connection = self._database.connect()
            self._connection.lock_wait = self._lock_wait
            self._checked = self._connection.revision == HEAD_REVISION
            self._poll = select.poll()
            self._poll.register(self._connection.fileno(), select.POLLIN)
        return self._connection

    def _is_stale(self, connection: PgConnection) -> bool:
        """Return True if the server has closed the connection, or the connection is not idle. Costs no round trip.

        A server usually sends nothing on an idle connection. Data in the socket thus counts as its last message.
        """
        if connection.pgconn.transaction_status != psycopg.pq.TransactionStatus.IDLE:
            return True
        return bool(self._poll.poll(0))

    def _check(self, connection: PgConnection) -> None:
        revision = revision_of(connection)
        if revision != HEAD_REVISION:
            raise outdated(revision)
        self._checked = True

    def close(self) -> None:
        """Close the connection. Idempotent; the next query connects anew."""
        if self._connection is not None:
            self._connection.close()
        self._connection = self._cursor = None
        self._checked = False
        self._layout_until = 0.0

    def after_fork(self) -> None:
        """Forget the connection of the parent in a forked process. The next query connects anew."""
        keep_open(self._connection, self._cursor)
        self._lock = RLock()  # another thread of the parent may have held the lock
        self._connection = self._cursor = None
        self._checked = self._in_transaction = False


_PREPARED_STATEMENT_LOST: Final = (
    pg.InvalidSqlStatementName,
    pg.DuplicatePreparedStatement,
    pg.FeatureNotSupported,
)
_WRITES: Final = itertools.count(1)
_RUN_AGAIN: Final = "run the command again"
CHECK_SERVER: Final = "check that the database server is running and that its URL is right"


@contextmanager
def translated_errors() -> Iterator[None]:
    """Raise psycopg's exceptions from the `with` block as cafcat's.

    Raises:
        CatalogOutdated: A table does not exist.
        CatalogDenied: The role has no permission, or the role or the server can only read.
        CatalogLocked: A lock was not free in time.
        CatalogUnavailable: The server does not answer, is out of disk space or memory, or cancelled a statement.
        InvalidInput: The catalog cannot store or look up a value, or a text is not valid UTF-8.
        CafcatError: Any other error of psycopg.
    """
    try:
        yield
    except pg.UndefinedTable as error:
        raise outdated(None) from error
    except (pg.DiskFull, pg.OutOfMemory, pg.ConfigurationLimitExceeded) as error:
        hint = "free disk space or memory on the database server, or raise its limit; then run the command again"
        message = f"the database ran out of room on disk or in memory: {primary_message(error)}"
        raise CatalogUnavailable(message, hint=hint) from error
    except pg.ReadOnlySqlTransaction as error:
        hint = "use the --database-url of a role that may change the catalog, on the primary server"
        raise CatalogDenied(f"the catalog can only be read here: {primary_message(error)}", hint=hint) from error
    except pg.InsufficientPrivilege as error:
        hint = "use the --database-url of a role that may do this; a role of `cafcat db grant-reader` only reads"
        message = f"the database refused permission: {primary_message(error)}"
        raise CatalogDenied(message, hint=hint) from error
    except pg.LockNotAvailable as error:
        message = f"a lock of the catalog was not free: {primary_message(error)}"
        raise CatalogLocked(message, hint=_RUN_AGAIN) from error
    except (pg.QueryCanceled, pg.SerializationFailure, pg.DeadlockDetected) as error:
        message = f"the database cancelled a statement: {primary_message(error)}"
        raise CatalogUnavailable(message, hint=_RUN_AGAIN) from error
    except psycopg.DataError as error:
        raise InvalidInput(f"the catalog cannot store or look up a value: {primary_message(error)}") from error
    except (psycopg.OperationalError, psycopg.InterfaceError) as error:
        message = f"no answer from the database: {primary_message(error)}"
        raise CatalogUnavailable(message, hint=CHECK_SERVER) from error
    except UnicodeEncodeError as error:
        raise InvalidInput("a name that is not valid UTF-8 cannot be in the catalog") from error
    except psycopg.Error as error:
        raise CafcatError(f"the database refused a statement: {primary_message(error)}") from error


def primary_message(error: psycopg.Error) -> str:
    """Return the primary message of a server's error, without details and without the statement that failed.

    An error without a primary message, such as a lost connection, gives its whole text in one line.
    """
    return error.diag.message_primary or one_line(error)


def one_line(error: BaseException) -> str:
    """Return the message of an exception without line breaks."""
    return " ".join(str(error).split())
