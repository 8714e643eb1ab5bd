"""Locks of the catalog: how long a transaction waits for a lock, and which session holds it.

A writer that is suspended inside its commit holds its locks until its process continues or its connection ends.
Other writers report the holder of the lock, wait for a limited time, and then fail with an error.
"""

import time
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import psycopg
from psycopg import errors as pg

from cafcat.errors import CatalogLocked
from cafcat.progress import Progress

__all__ = ["DEFAULT_LIMIT_SECONDS", "LockWait", "acquire", "lock_timeout_sql", "locked_error", "set_lock_timeout"]

DEFAULT_LIMIT_SECONDS: Final = 600
"""How long a transaction waits for a lock by default, in seconds."""
ATTEMPT_SECONDS: Final = 5.0
"""How long one attempt waits for a lock before the holder is reported, in seconds."""
_REPORT_SECONDS: Final = 60.0
"""Shortest time between two reports of the same holder, in seconds."""

# Sessions that hold an advisory lock, or a stronger lock than a reader on one of these tables, and that do not wait
# for a lock themselves.
_HOLDERS: Final = """
SELECT a.pid, a.usename::text, a.application_name, host(a.client_addr), a.state,
       to_char(min(a.xact_start) AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')
FROM pg_locks AS l JOIN pg_stat_activity AS a USING (pid)
WHERE l.granted AND l.pid <> pg_backend_pid() AND a.datname = current_database()
  AND (l.locktype = 'advisory' OR (l.locktype = 'relation' AND l.mode <> 'AccessShareLock' AND l.relation IN (
       SELECT c.oid FROM pg_class AS c LEFT JOIN pg_inherits AS i ON i.inhrelid = c.oid
       LEFT JOIN pg_class AS p ON p.oid = i.inhparent
       WHERE c.relkind IN ('r', 'p') AND coalesce(p.relname, c.relname) IN
       ('chunks', 'file_locations', 'retired_locations', 'journal', 'ingestion_units', 'chunk_copies'))))
  AND NOT EXISTS (SELECT FROM pg_locks AS w WHERE w.pid = l.pid AND NOT w.granted)
GROUP BY 1, 2, 3, 4, 5
ORDER BY min(a.xact_start) NULLS LAST
LIMIT 3
"""


class LockWait:
    """How long a connection waits for locks, and how it reports a long wait.

    Attributes:
        limit_seconds: Longest wait for one lock, in seconds. None: the default of the operation, usually 600
            seconds.
        progress: Receives a warning with the holder of the lock after 5 seconds of waiting, then each minute, and
            when the holder changes.
    """

    def __init__(self, limit_seconds: float | None = None) -> None:
        self.limit_seconds = limit_seconds
        self.progress = Progress()


class _Holder(NamedTuple):
    """A session that holds a lock. Fields are None if the role of this connection may not see them.

    Attributes:
        pid: Process id on the server.
        role: Role of the session.
        application: Its application_name.
        host: Address of its client.
        state: Its state in pg_stat_activity.
        since: Start of its transaction: RFC 3339, UTC.
    """

    pid: int
    role: str
    application: str | None
    host: str | None
    state: str | None
    since: str | None


def set_lock_timeout(connection: psycopg.Connection[Any], seconds: float) -> None:
    """Limit how long each later statement of the open transaction waits for a lock: `seconds`, at least 0.001."""
    connection.execute(lock_timeout_sql(seconds).encode())


def lock_timeout_sql(seconds: float) -> str:
    """Return the statement with which `set_lock_timeout` limits the wait."""
    return f"SET LOCAL lock_timeout = {max(1, int(seconds * 1000))}"


def acquire(
    connection: psycopg.Connection[Any],
    statement: str,
    parameters: Sequence[Any] = (),
    *,
    default_seconds: float = DEFAULT_LIMIT_SECONDS,
) -> psycopg.Cursor[Any]:
    """Execute a statement that acquires a lock, in the open transaction. Report the holder while waiting.

    The limit of the wait also holds for each later statement of the transaction.

    Args:
        connection: A connection with an open transaction.
        statement: The statement. It is tried repeatedly; each attempt waits for at most 5 seconds.
        parameters: Parameters of the statement.
        default_seconds: Longest wait in all, if the connection's `lock_wait` has no limit.

    Returns:
        The cursor of the statement.

    Raises:
        CatalogLocked: The lock was not free within the limit.
    """
    lock_wait: LockWait = getattr(connection, "lock_wait", None) or LockWait()
    limit = default_seconds if lock_wait.limit_seconds is None else lock_wait.limit_seconds
    begun = reported = time.monotonic()
    reported_holders = ""
    while True:
        left = max(0.0, begun + limit - time.monotonic())
        # Statements without parameters share a round trip to the server.
        connection.execute(f"SAVEPOINT attempt; {lock_timeout_sql(min(left, ATTEMPT_SECONDS))}".encode())
        try:
            cursor = connection.execute(statement.encode(), parameters or None)
            connection.execute(f"RELEASE SAVEPOINT attempt; {lock_timeout_sql(limit)}".encode())
            return cursor
        except pg.LockNotAvailable as error:
            connection.execute(b"ROLLBACK TO SAVEPOINT attempt; RELEASE SAVEPOINT attempt")
            holders = _holders(connection)
            now = time.monotonic()
            if now >= begun + limit:
                raise locked_error(holders, limit) from error
            if holders != reported_holders or now >= reported + _REPORT_SECONDS:
                lock_wait.progress.warn(
                    f"waiting for a lock of the catalog, for {now - begun:.0f} s so far: {holders}"
                )
                reported, reported_holders = now, holders


def locked_error(holders: str | psycopg.Connection[Any], seconds: float | None) -> CatalogLocked:
    """Return the CatalogLocked error for a lock that was not free in time.

    Args:
        holders: Description of the sessions that hold the lock; or a connection without an open transaction, on
            which this queries them.
        seconds: Length of the wait, if it is known.
    """
    if isinstance(holders, psycopg.Connection):
        holders = _holders(holders)
    waited = "" if seconds is None else f" within {seconds:g} s"
    return CatalogLocked(
        f"a lock of the catalog was not free{waited}: {holders}",
        hint="let the holder continue, or end it; --lock-timeout sets how long to wait",
    )


def _holders(connection: psycopg.Connection[Any]) -> str:
    """Return a text that describes the other sessions that hold locks on the catalog.

    The text names at most three sessions, those with the oldest transactions first. If no session is found, it is
    "its holder is unknown".
    """
    rows = connection.execute(_HOLDERS.encode()).fetchall()
    return "; ".join(_description(_Holder._make(row)) for row in rows) or "its holder is unknown"


def _description(holder: _Holder) -> str:
    program = holder.application or "a program without a name"
    session = f"{program}, host {holder.host or 'local'}, role {holder.role}"
    since = holder.since or "an unknown time"
    return f"held by server process {holder.pid} ({session}) since {since}, {holder.state or 'state unknown'}"
