"""Decides for each look-up whether a standby server may answer it, or the primary has to (docs/decisions/0033).

Three things are checked, with one small query on either server every few seconds:

* The standby follows this primary, and its database is this catalog.
* The standby has everything that the primary had at a time that is at most `max_staleness` seconds ago. Either it
  has replayed a position of the write-ahead log that the primary had at that time, or it has replayed a commit of
  that time. The first proof works on an idle primary, too. The standby's clock is not used.
* The standby has replayed everything that this process has written.
"""

import time
from collections import deque
from threading import Lock
from typing import Final, NamedTuple

from psycopg import errors as pg

from cafcat.catalog.connection import Connection, Connector, PgConnection
from cafcat.catalog.locking import LockWait
from cafcat.errors import CafcatError, CatalogLocked, CatalogOutdated, CatalogUnavailable, InvalidInput
from cafcat.support.forking import renew_after_fork

__all__ = ["Lag", "Standby", "lag_of"]

_LONGEST_INTERVAL: Final = 10.0
"""Longest time between two checks of the standby, in seconds."""
_OUT_SECONDS: Final = 30.0
"""How long a server that does not answer is not asked again, in seconds."""
_POLL_SECONDS: Final = 0.01
"""Time between two checks of a standby that has not replayed the last write of this process yet, in seconds."""
_FIRST_LOOKS: Final = 3
_FIRST_LOOK_SECONDS: Final = 0.1
"""A process that has just started looks so often, at such intervals, at a standby that lacks the latest commits."""
_LAG_LOOKS: Final = 10
"""How often `lag_of` looks at a standby that has not replayed everything yet, at the same intervals."""
_LOCK_SECONDS: Final = 5.0
"""How long a look-up waits for a lock on the standby, such as that of a replayed TRUNCATE, in seconds."""

# The position after the last record of the log that was replayed, or reserved for writing. The latter includes
# commits that are not on disk yet (synchronous_commit = off).
_STATE: Final = b"""
SELECT (SELECT system_identifier FROM pg_control_system()), (SELECT uuid::text FROM catalog_identity),
       pg_postmaster_start_time()::text, pg_is_in_recovery(),
       (CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_insert_lsn() END
        - '0/0'::pg_lsn)::bigint, current_setting('wal_block_size')::int,
       extract(epoch FROM CASE WHEN pg_is_in_recovery() THEN pg_last_xact_replay_timestamp()
                               ELSE clock_timestamp() END)::float8
"""


_PAGE_HEADERS: Final = (24, 40)
"""Sizes of the header of a page in the log, in bytes. The first page of a file has the longer one."""


class _State(NamedTuple):
    """The state of a server.

    Attributes:
        system: Identifier of the cluster: a standby has that of its primary.
        catalog: UUID of the catalog.
        started: When the server was started.
        is_standby: True if the server replays the log of another one.
        position: Position in the log, in bytes.
        committed: On a primary its clock, on a standby the time of the last replayed commit by the primary's clock,
            in seconds since 1970; None if there is none.
    """

    system: int
    catalog: str
    started: str
    is_standby: bool
    position: int
    committed: float | None


class Lag(NamedTuple):
    """How far a standby is behind its primary.

    Attributes:
        size_bytes: Bytes of the write-ahead log that the standby has not replayed yet.
        seconds: Age of the last commit that the standby has replayed; 0 if it has replayed everything, None if it
            has replayed none.
    """

    size_bytes: int
    seconds: float | None


class _NewConnections:
    """Opens connections to the standby: a Connector, which reports each new connection."""

    def __init__(self, standby: "Standby", database: Connector) -> None:
        self._standby = standby
        self._database = database

    def connect(self) -> PgConnection:
        """Return a new connection in autocommit mode. Raises the errors of the wrapped connector."""
        self._standby.forget()  # the URL may name several servers
        return self._database.connect()

    connect_reader = connect


class Standby:
    """A connection to a standby server, and the decision whether look-ups may use it.

    Threads may share this object.

    Attributes:
        connection: The connection for look-ups on the standby.
        generation: A number that changes when look-ups begin or cease to use the standby, or reach another server.
    """

    def __init__(
        self, database: Connector, primary: Connection, *, max_staleness: float, lock_wait: LockWait
    ) -> None:
        """Create the object. This does not connect yet.

        Args:
            database: Opens connections to the standby.
            primary: The connection to the primary.
            max_staleness: How far the standby may be behind the primary, in seconds.
            lock_wait: Its progress receives a warning when the standby cannot be used.
        """
        self.connection = Connection(_NewConnections(self, database), LockWait(_LOCK_SECONDS))
        self.generation = 0
        self._primary = primary
        self._max_staleness = max_staleness
        self._lock_wait = lock_wait
        self._lock = Lock()
        self._positions: deque[tuple[float, int]] = deque()
        self._out_until = self._check_at = float("-inf")
        self._look_at = float("-inf")
        self._own_position = self._asked_write = 0
        self._warned = self._was_usable = self._has_looked = False
        self.forget()
        renew_after_fork(self)

    def forget(self) -> None:
        """Forget what was found out about the standby, because the next look-up may reach another server."""
        self.generation += 1
        self._complete_until = self._check_at = float("-inf")
        self._replayed_write = -1

    def after_fork(self) -> None:
        """Renew the lock in a forked process: another thread of the parent may have held it."""
        self._lock = Lock()

    def is_usable(self) -> bool:
        """Return True if the standby may answer a look-up now.

        Raises:
            InvalidInput: The server does not follow the primary, or has another catalog.
            AccessDenied: The server rejects user and password.
        """
        now = time.monotonic()
        if now < self._out_until:
            return False
        is_due = now >= (self._look_at if self._replayed_write != Connection.last_write else self._check_at)
        if is_due and self._lock.acquire(blocking=False):
            try:
                self._check()
            finally:
                self._lock.release()
        is_fresh = self._is_fresh()
        if self._has_looked and not is_fresh:
            limit = f"at most {self._max_staleness:g} s behind the primary"
            self._warn(f"it is not certain that it is {limit}")
        usable = is_fresh and self._replayed_write == Connection.last_write
        if usable != self._was_usable:
            self.generation += 1
            self._was_usable = usable
            self._warned = self._warned and not usable
        return usable

    def failed(self, error: CafcatError) -> None:
        """Note that a look-up failed on the standby. It is asked again later, or at once after a conflict.

        Args:
            error: The error. If replaying the log has cancelled the query, the standby stays in use.
        """
        self.generation += 1
        if isinstance(error.__cause__, pg.SerializationFailure | pg.QueryCanceled):
            return
        if not isinstance(error, CatalogLocked):
            self._out_until = time.monotonic() + _OUT_SECONDS
        self._warn(error.message)

    def close(self) -> None:
        """Close the connection. Idempotent; the next look-up connects anew."""
        self.connection.close()

    def _is_fresh(self) -> bool:
        return self._complete_until >= time.monotonic() - self._max_staleness

    def _check(self) -> None:
        """Find out until when the standby is complete, and whether it has replayed this process's writes."""
        primary = self._ask_primary()
        self._look_at = time.monotonic() + _POLL_SECONDS
        try:
            for look in range(_FIRST_LOOKS):
                self._compare(primary, _state(self.connection))
                if self._has_looked or self._is_fresh():
                    break
                time.sleep(_FIRST_LOOK_SECONDS * (look < _FIRST_LOOKS - 1))
        except (CatalogOutdated, CatalogUnavailable) as error:
            self.failed(error)
            return
        self._has_looked = True

    def _ask_primary(self) -> _State | None:
        """Return the state of the primary; None if it is not needed now, or the primary does not answer.

        As long as the primary does not answer, the standby is used until `max_staleness` has passed.
        """
        now, written = time.monotonic(), Connection.last_write
        if now < self._check_at and written == self._asked_write:
            return None
        try:
            primary = _state(self._primary)
        except CatalogUnavailable:
            self._check_at = now + _OUT_SECONDS
            return None
        while self._positions and self._positions[0][0] < now - self._max_staleness:
            self._positions.popleft()  # to have replayed it would prove nothing
        self._positions.append((now, primary.position))
        self._check_at = now + min(_LONGEST_INTERVAL, self._max_staleness / 4)
        if written != self._asked_write:
            self._asked_write, self._own_position = written, primary.position
        return primary

    def _compare(self, primary: _State | None, standby: _State) -> None:
        asked = self._positions[-1][0] if self._positions else time.monotonic()
        if primary is not None:
            _check_origin(primary, standby)
            if standby.catalog != primary.catalog:
                if standby.position >= primary.position:
                    raise _other_catalog()
                return  # the UUID of the catalog was changed, and the standby has not replayed that yet
            if standby.committed is not None and primary.committed is not None:
                self._complete_until = max(self._complete_until, asked + standby.committed - primary.committed)
        elif self._complete_until == float("-inf"):
            return  # an unknown server, which was not compared with the primary
        while self._positions and self._positions[0][1] <= standby.position:
            self._complete_until = max(self._complete_until, self._positions.popleft()[0])
        if standby.position >= self._own_position:
            self._replayed_write = self._asked_write

    def _warn(self, reason: str) -> None:
        if not self._warned:
            self._warned = True
            self._lock_wait.progress.warn(f"the read replica is not used, the primary is: {reason}")


def lag_of(primary: Connection, standby: Connection) -> Lag:
    """Return how far a standby is behind the position that its primary has now. This takes up to a second.

    Raises:
        InvalidInput: The server does not follow the primary, or has another catalog.
        CatalogUnavailable, CatalogOutdated, AccessDenied: A server does not answer, or has no catalog.
    """
    ours, theirs = _state(primary), _state(standby)
    _check_origin(ours, theirs)
    for _ in range(_LAG_LOOKS):  # an idle server also writes records, so an old last commit alone means nothing
        if theirs.position >= ours.position:
            break
        time.sleep(_FIRST_LOOK_SECONDS)
        theirs = _state(standby)
    if ours.catalog != theirs.catalog and theirs.position >= ours.position:
        raise _other_catalog()
    size_bytes = max(0, ours.position - theirs.position)
    if not size_bytes:
        return Lag(0, 0.0)
    if ours.committed is None or theirs.committed is None:
        return Lag(size_bytes, None)
    return Lag(size_bytes, max(0.0, ours.committed - theirs.committed))


def _other_catalog() -> InvalidInput:
    return InvalidInput("the read replica has another catalog than the primary", hint=_CHECK_URLS)


_CHECK_URLS: Final = "compare database_url and read_database_url"


def _state(connection: Connection) -> _State:
    with connection.statement(read_only=True) as opened:
        [row] = opened.execute(_STATE).fetchall()
    system, catalog, started, is_standby, position, page_bytes, committed = row
    if position % page_bytes in _PAGE_HEADERS:
        # The page has no record yet. A standby that has replayed everything is at its start, until the next record.
        position -= position % page_bytes
    return _State(system, catalog, started, is_standby, position, committed)


def _check_origin(primary: _State, standby: _State) -> None:
    """Raise InvalidInput if a server neither follows the primary nor is the primary itself."""
    if standby.system != primary.system:
        message = "the read replica is not a standby of the primary: it belongs to another database cluster"
        raise InvalidInput(message, hint=_CHECK_URLS)
    if not standby.is_standby and standby.started != primary.started:
        message = "the read replica does not follow the primary any more: it was promoted to a primary itself"
        raise InvalidInput(message, hint="point read_database_url to a standby, or database_url to the new primary")
