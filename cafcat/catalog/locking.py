"""Locks of the catalog: how long a transaction waits for one, and who holds it.

A writer that is stopped inside its commit holds its locks until its process goes on or its connection ends. Others
wait for a limited time, report who holds the lock, and give up with an error.
"""

import os
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import psycopg
from psycopg import errors as pg

from cafcat.errors import CatalogLocked

__all__ = ["DEFAULT_LIMIT_SECONDS", "Patience", "acquire", "application_name", "limit_waiting", "locked_error"]

DEFAULT_LIMIT_SECONDS: Final = 600
"""How long a verb waits for a lock if nothing else is set."""
ATTEMPT_SECONDS: Final = 5.0
"""How long one attempt waits for a lock, before the holder is reported."""
_REPORT_SECONDS: Final = 60.0
"""The same holder is reported once in so many seconds."""
_NAME_BYTES: Final = 63
"""Longest application_name of PostgreSQL (NAMEDATALEN - 1)."""

# Sessions that hold more than a reader's lock on a table of the catalog, and do not wait for a lock themselves.
_HOLDERS: Final = """
SELECT a.pid, a.usename::text, a.application_name, host(a.client_addr), a.state,
       to_char(min(a.xact_start) AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')
FROM pg_locks AS l JOIN pg_stat_activity AS a USING (pid)
WHERE l.granted AND l.pid <> pg_backend_pid() AND a.datname = current_database()
  AND (l.locktype = 'advisory' OR (l.locktype = 'relation' AND l.mode <> 'AccessShareLock' AND l.relation IN (
       SELECT oid FROM pg_class WHERE relkind = 'r' AND relname IN
       ('chunks', 'file_locations', 'retired_locations', 'journal', 'ingestion_units', 'chunk_copies'))))
  AND NOT EXISTS (SELECT FROM pg_locks AS w WHERE w.pid = l.pid AND NOT w.granted)
GROUP BY 1, 2, 3, 4, 5
ORDER BY min(a.xact_start) NULLS LAST
LIMIT 3
"""


@dataclass(slots=True)
class Patience:
    """How long a connection waits for locks, and how it reports that.

    Attributes:
        limit_seconds: how long in all for one lock; None if nobody has set a limit.
        warn: is called with a message when the lock is held for long.
    """

    limit_seconds: float | None = None
    warn: Callable[[str], object] = lambda _: None


class _Holder(NamedTuple):
    """A session with a lock; since: start of its transaction, RFC 3339 in UTC. None: the role may not see it."""

    pid: int
    role: str
    application: str | None
    host: str | None
    state: str | None
    since: str | None


def application_name() -> str:
    """Return the name of our connections in pg_stat_activity: process id and host."""
    name = f"cafcat {os.getpid()}@{socket.gethostname()}"
    return name.encode("ascii", "replace").decode()[:_NAME_BYTES]


def limit_waiting(connection: psycopg.Connection[Any], seconds: float) -> None:
    """Let each statement of the open transaction wait for a lock for so long. 0 seconds: not at all."""
    connection.execute(f"SET LOCAL lock_timeout = {max(1, int(seconds * 1000))}".encode())


def acquire(
    connection: psycopg.Connection[Any],
    statement: str,
    parameters: Sequence[Any] = (),
    *,
    default_seconds: float = DEFAULT_LIMIT_SECONDS,
) -> psycopg.Cursor[Any]:
    """Execute a statement that takes a lock, in the open transaction, and report who holds the lock meanwhile.

    Args:
        connection: in a transaction.
        statement: it is tried again and again; each attempt waits for some seconds.
        parameters: of the statement.
        default_seconds: how long to wait in all, unless the connection's patience has a limit.

    Raises:
        CatalogLocked: the limit is over.
    """
    patience: Patience = getattr(connection, "patience", None) or Patience()
    limit = default_seconds if patience.limit_seconds is None else patience.limit_seconds
    begun = reported = time.monotonic()
    reported_holders = ""
    while True:
        left = max(0.0, begun + limit - time.monotonic())
        try:
            with connection.transaction():
                limit_waiting(connection, min(left, ATTEMPT_SECONDS))
                cursor = connection.execute(statement.encode(), parameters or None)
            limit_waiting(connection, limit)
            return cursor
        except pg.LockNotAvailable as error:
            holders = _holders(connection)
            now = time.monotonic()
            if now >= begun + limit:
                raise locked_error(holders, limit) from error
            if holders != reported_holders or now >= reported + _REPORT_SECONDS:
                patience.warn(f"waiting for a lock of the catalog, for {now - begun:.0f} s so far: {holders}")
                reported, reported_holders = now, holders


def locked_error(holders: str | psycopg.Connection[Any], seconds: float | None) -> CatalogLocked:
    """Return the error for a lock that was not free in time.

    Args:
        holders: in words, or a connection without an open transaction to ask.
        seconds: how long was waited, if that is known.
    """
    if isinstance(holders, psycopg.Connection):
        holders = _holders(holders)
    waited = "" if seconds is None else f" within {seconds:g} s"
    return CatalogLocked(
        f"a lock of the catalog was not free{waited}: {holders}",
        hint="let that process go on, or end it; --lock-timeout sets how long to wait",
    )


def _holders(connection: psycopg.Connection[Any]) -> str:
    """Return who holds locks on the catalog's tables, in words: the oldest transactions first, three at most."""
    rows = connection.execute(_HOLDERS.encode()).fetchall()
    return "; ".join(_holder(_Holder._make(row)) for row in rows) or "its holder cannot be seen"


def _holder(found: _Holder) -> str:
    what = f"{found.application or 'a program without a name'}, host {found.host or 'local'}, role {found.role}"
    since = found.since or "an unknown time"
    return f"held by server process {found.pid} ({what}) since {since}, {found.state or 'state unknown'}"
