"""Facts about the database server: settings, clock, link, tables, age of transactions. No schema is needed."""

import time
from typing import Any, Final, NamedTuple

import psycopg

from cafcat.catalog.connection import Connection, PgConnection
from cafcat.catalog.health.brief import brief_read
from cafcat.catalog.schema import revision_of

__all__ = ["Clock", "Link", "ServerFacts", "ServerIdentity", "TableFacts", "TransactionAge", "client_library"]

_SETTINGS: Final = (
    "autovacuum",
    "default_transaction_read_only",
    "fsync",
    "full_page_writes",
    "idle_in_transaction_session_timeout",
    "max_connections",
    "statement_timeout",
    "synchronous_commit",
)
_ROUND_TRIPS: Final = 5
_IDENTITY: Final = """
SELECT current_setting('server_version'), current_setting('server_version_num')::int,
       pg_encoding_to_char(encoding)::text, current_setting('TimeZone'), pg_is_in_recovery(),
       EXISTS (SELECT FROM pg_collation WHERE collname = 'C'),
       (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend')
FROM pg_database WHERE datname = current_database()
"""
# Tables of cafcat that need care: the statistics are those of the server, which cost nothing.
_TABLES: Final = """
SELECT s.relname::text, s.n_live_tup, s.n_dead_tup, s.n_ins_since_vacuum,
       coalesce(s.last_analyze, s.last_autoanalyze) IS NOT NULL, greatest(c.reltuples, 0)::bigint
FROM pg_stat_user_tables AS s JOIN pg_class AS c ON c.oid = s.relid
WHERE s.schemaname = current_schema() AND s.n_live_tup + s.n_dead_tup >= %s
ORDER BY s.n_dead_tup DESC LIMIT 1000
"""
_TRANSACTIONS: Final = """
SELECT age(datfrozenxid), mxid_age(datminmxid), current_setting('autovacuum_freeze_max_age')::bigint,
       (SELECT extract(epoch FROM clock_timestamp() - min(xact_start))::float8 FROM pg_stat_activity
        WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend')
FROM pg_database WHERE datname = current_database()
"""


class ServerIdentity(NamedTuple):
    """Version and properties of a database and its server.

    Attributes:
        version: Version of PostgreSQL, as text.
        version_number: The same as a number, such as 150004.
        encoding: Encoding of the database, such as "UTF8".
        time_zone: Time zone of the connection.
        is_standby: True if the server replays the log of another one, and can only be read.
        has_collation_c: True if the collation "C" exists.
        connections: Open connections of clients to the server, as far as the role sees them.
        revision: Revision of cafcat's schema; None if there is none.
    """

    version: str
    version_number: int
    encoding: str
    time_zone: str
    is_standby: bool
    has_collation_c: bool
    connections: int
    revision: str | None


class Clock(NamedTuple):
    """The clock of the server, compared with that of this host.

    Attributes:
        ahead_seconds: How far the server's clock is ahead; negative if it is behind.
        error_seconds: Largest error of this difference: half of the fastest round trip.
    """

    ahead_seconds: float
    error_seconds: float


class Link(NamedTuple):
    """How this process is connected to the server.

    Attributes:
        host: Name or address of the server, or the folder of its socket.
        is_local: True if the connection does not leave this host.
        is_encrypted: True if the connection uses TLS.
        sslmode: The sslmode of the connection: with verify-ca and verify-full, the certificate is checked.
        has_pooler: True if a pooler, such as PgBouncer, is between this process and the server.
    """

    host: str
    is_local: bool
    is_encrypted: bool
    sslmode: str
    has_pooler: bool


class TableFacts(NamedTuple):
    """Statistics of a table. All numbers of rows are estimates of the server.

    Attributes:
        name: Name of the table or partition.
        live_rows: Rows.
        dead_rows: Rows that are deleted or replaced, and still take room.
        new_rows: Rows that were inserted since the last vacuum.
        is_analyzed: True if the server has gathered statistics since its last crash or restore.
        planned_rows: Rows that the planner assumes.
    """

    name: str
    live_rows: int
    dead_rows: int
    new_rows: int
    is_analyzed: bool
    planned_rows: int


class TransactionAge(NamedTuple):
    """How old the oldest transactions are.

    Attributes:
        frozen: Transactions since the oldest one whose number is still needed. At 2^31, PostgreSQL stops writing.
        frozen_multixacts: The same for groups of transactions that share a lock.
        freeze_limit: Age at which PostgreSQL forces a vacuum.
        oldest_seconds: How long the oldest open transaction in the database has run; None if there is none, or the
            role may not see it.
    """

    frozen: int
    frozen_multixacts: int
    freeze_limit: int
    oldest_seconds: float | None


def client_library() -> tuple[str, str]:
    """Return how psycopg calls libpq ("c", "binary" or "python", which is slow), and the version of libpq."""
    number = psycopg.pq.version()
    return psycopg.pq.__impl__, f"{number // 10_000}.{number % 10_000}"


class ServerFacts:
    """Queries about a database server. Each takes 5 seconds at most, and costs the same in every catalog."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def identity(self) -> ServerIdentity:
        """Return version and properties of the server."""
        with brief_read(self._connection, check=False) as connection:
            row = _row(connection, _IDENTITY)
        with self._connection.statement(check=False, read_only=True) as connection:
            return ServerIdentity._make((*row, revision_of(connection)))

    def settings(self) -> dict[str, str]:
        """Return the settings of the server that matter to cafcat. Times are in milliseconds."""
        statement = "SELECT name, setting FROM pg_settings WHERE name = ANY(%s)"
        # Not in `brief_read`: that changes two of these settings.
        with self._connection.statement(check=False, read_only=True) as connection:
            return dict(connection.execute(statement, [list(_SETTINGS)]).fetchall())

    def may_write(self) -> bool:
        """Return False for a role that may only read the catalog, such as one of `db grant-reader`."""
        statement = "SELECT coalesce(has_table_privilege(to_regclass('chunks')::oid, 'INSERT'), true)"
        with self._connection.statement(check=False, read_only=True) as connection:
            [(may_write,)] = connection.execute(statement).fetchall()
        return bool(may_write)

    def clock(self) -> Clock:
        """Return the difference between the clocks, from the fastest of five round trips."""
        statement = "SELECT extract(epoch FROM clock_timestamp())::float8"
        found = []
        with self._connection.statement(check=False, read_only=True) as connection:
            for _ in range(_ROUND_TRIPS):
                before = time.time()
                [(server,)] = connection.execute(statement).fetchall()
                after = time.time()
                found.append(Clock(server - (before + after) / 2, (after - before) / 2))
        return min(found, key=lambda clock: clock.error_seconds)

    def link(self) -> Link:
        """Return how this process is connected."""
        with self._connection.statement(check=False, read_only=True) as connection:
            info = connection.info
            [(server_process,)] = connection.execute("SELECT pg_backend_pid()").fetchall()
            return Link(
                host=info.host,
                is_local=_is_local(info.host, info.hostaddr),
                is_encrypted=bool(connection.pgconn.ssl_in_use),
                sslmode=info.get_parameters().get("sslmode", "prefer"),
                # A pooler answers with a process id of its own, for requests to cancel a statement.
                has_pooler=server_process != info.backend_pid,
            )

    def tables(self, least_rows: int) -> list[TableFacts]:
        """Return the statistics of the tables with at least this number of rows, those with dead rows first."""
        with brief_read(self._connection, check=False) as connection:
            return [TableFacts(*row) for row in connection.execute(_TABLES, [least_rows]).fetchall()]

    def transactions(self) -> TransactionAge:
        """Return how old the oldest transactions are."""
        with brief_read(self._connection, check=False) as connection:
            return TransactionAge(*_row(connection, _TRANSACTIONS))


def _row(connection: PgConnection, statement: str) -> tuple[Any, ...]:
    [row] = connection.execute(statement.encode()).fetchall()
    return row


def _is_local(host: str, address: str) -> bool:
    """Return True for a socket in a folder, and for this host's own addresses."""
    return not host or host.startswith(("/", "@")) or host == "localhost" or (address or host).startswith(_LOOPBACK)


_LOOPBACK: Final = ("127.", "::1")
