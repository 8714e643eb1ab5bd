"""Reports on the catalog: totals, retired locations of a path, contradictions between rows, queries of the user."""

from collections.abc import Iterator
from typing import Any, Final

from cafcat.catalog.connection import Connection, Connector
from cafcat.catalog.files.folder_changes import COUNTED_FOLDERS
from cafcat.catalog.files.lookup import LOCATION, location_of, size_of
from cafcat.catalog.history.runs import iso
from cafcat.catalog.user_query import user_query
from cafcat.model import RetiredLocation, Stats

__all__ = ["Reports"]

_HISTORY: Final = f"""
SELECT {LOCATION}, {iso("l.retired_at")}, l.run_id, l.reason, c.state IN ('committed', 'retired')
FROM (SELECT * FROM retired_locations WHERE file_path = %s OFFSET 0) AS l JOIN chunks AS c ON c.id = l.caf_file_id
ORDER BY l.id DESC
"""  # noqa: S608

_STATS: Final = """
SELECT coalesce(sum(live_file_count) FILTER (WHERE state = 'committed'), 0)::bigint,
       coalesce(sum(live_bytes) FILTER (WHERE state = 'committed'), 0)::bigint,
       coalesce(sum(size_bytes) FILTER (WHERE state = 'committed'), 0)::bigint,
       coalesce(sum(data_bytes - live_bytes) FILTER (WHERE state = 'committed'), 0)::bigint,
       coalesce(sum(size_bytes) FILTER (WHERE state = 'retired'), 0)::bigint,
       (SELECT count(*) FROM retired_locations),
       (SELECT count(*) FROM ingest_runs),
       pg_database_size(current_database())
FROM chunks
"""

_ENTRIES: Final = (
    "SELECT caf_file_id, start_byte, end_byte, file_path FROM file_locations "
    "UNION ALL SELECT caf_file_id, start_byte, end_byte, file_path FROM retired_locations"
)
_HAS_OBJECT: Final = "state IN ('committed', 'retired')"
_RECOVER: Final = "run `cafcat recover`"

_FINDINGS: Final = {
    "files that point to no committed chunk": (
        "SELECT count(*) FROM file_locations AS l LEFT JOIN chunks AS c ON c.id = l.caf_file_id "
        "WHERE c.state IS DISTINCT FROM 'committed'"
    ),
    "retired files that point to no chunk that was ever committed": (
        "SELECT count(*) FROM retired_locations AS r LEFT JOIN chunks AS c ON c.id = r.caf_file_id "
        "WHERE c.committed_at IS NULL"
    ),
    "files that end outside the data of their chunk": (
        f"SELECT count(*) FROM ({_ENTRIES}) AS l JOIN chunks AS c ON c.id = l.caf_file_id "  # noqa: S608
        "WHERE l.end_byte > c.index_start_byte"
    ),
    "files that share bytes with another file of their chunk": (
        "SELECT count(*) FROM (SELECT start_byte, max(end_byte) OVER (PARTITION BY caf_file_id "  # noqa: S608
        "ORDER BY start_byte, end_byte ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS end_before "
        f"FROM ({_ENTRIES}) AS l JOIN chunks AS c ON c.id = l.caf_file_id AND c.adopted_prefix IS NULL "
        "WHERE end_byte > start_byte) AS l WHERE start_byte < end_before"
    ),
    "chunks whose live counters differ from their files": (
        "SELECT count(*) FROM chunks AS c LEFT JOIN (SELECT caf_file_id, count(*) AS files, "  # noqa: S608
        f"sum({size_of()}) AS bytes FROM file_locations GROUP BY 1) AS l ON l.caf_file_id = c.id "
        "WHERE (c.live_file_count, c.live_bytes) <> (coalesce(l.files, 0), coalesce(l.bytes, 0))"
    ),
    "folders whose totals differ from their files": (
        f"SELECT count(*) FROM ({COUNTED_FOLDERS}) AS counted (files, bytes, depth, folder_path) "  # noqa: S608
        "FULL JOIN (SELECT depth, folder_path, sum(files)::bigint AS files, sum(bytes)::bigint AS bytes FROM "
        "(SELECT depth, folder_path, files, bytes FROM folder_totals "
        "UNION ALL SELECT depth, folder_path, files, bytes FROM folder_deltas) AS changes "
        "GROUP BY 1, 2 HAVING sum(files) <> 0 OR sum(bytes) <> 0) AS t USING (depth, folder_path) "
        "WHERE (counted.files, counted.bytes) IS DISTINCT FROM (t.files, t.bytes)"
    ),
    "chunks whose entries are not all either live or retired": (
        "SELECT count(*) FROM chunks AS c LEFT JOIN (SELECT caf_file_id, count(*) AS files "  # noqa: S608
        "FROM retired_locations GROUP BY 1) AS r ON r.caf_file_id = c.id "
        f"WHERE c.{_HAS_OBJECT} AND c.file_count <> c.live_file_count + coalesce(r.files, 0)"
    ),
    "chunks whose state contradicts their number of live files or their time of retirement": (
        "SELECT count(*) FROM chunks "
        "WHERE (state = 'committed' AND (live_file_count = 0 OR retired_at IS NOT NULL)) "
        "OR (state = 'retired' AND (live_file_count <> 0 OR retired_at IS NULL)) "
        "OR (state IN ('writing', 'abandoned', 'deleted') AND live_file_count <> 0)"
    ),
    "chunks whose commit is not in the journal": (
        f"SELECT count(*) FROM chunks AS c WHERE c.{_HAS_OBJECT} "  # noqa: S608
        "AND c.adopted_prefix IS NULL AND NOT EXISTS (SELECT FROM journal AS j WHERE j.chunk_id = c.id)"
    ),
    f"journal records that are missing in a store after 15 minutes ({_RECOVER})": (
        "SELECT count(*) FROM journal WHERE unwritten <> '{}' AND happened_at < now() - interval '15 minutes'"
    ),
    f"unfinished chunks of a writer whose lease has expired ({_RECOVER})": (
        "SELECT count(*) FROM chunks WHERE state = 'writing' AND lease_expires_at < now()"
    ),
    f"abandoned chunks whose object or upload may still be in the store ({_RECOVER})": (
        "SELECT count(*) FROM chunks WHERE state = 'abandoned' AND deleted_at IS NULL"
    ),
    f"unfinished copies and backups of a writer whose lease has expired ({_RECOVER})": (
        "SELECT count(*) FROM (SELECT state, lease_expires_at FROM chunk_copies "
        "UNION ALL SELECT state, lease_expires_at FROM backups) AS o "
        "WHERE state = 'writing' AND lease_expires_at < now()"
    ),
    f"abandoned copies and backups whose object or upload may still be in the store ({_RECOVER})": (
        "SELECT count(*) FROM (SELECT state, deleted_at FROM chunk_copies "
        "UNION ALL SELECT state, deleted_at FROM backups) AS o WHERE state = 'abandoned' AND deleted_at IS NULL"
    ),
    "committed copies of chunks that are neither committed nor retired": (
        "SELECT count(*) FROM chunk_copies AS k JOIN chunks AS c ON c.id = k.chunk_id "  # noqa: S608
        f"WHERE k.state = 'committed' AND NOT c.{_HAS_OBJECT}"
    ),
}
"""Description of each contradiction, and the query that counts its occurrences."""


class Reports:
    """Reports on the catalog. Each report is one transaction; that of `query` ends when its rows have been read."""

    def __init__(self, connection: Connection, database: Connector) -> None:
        """Create reports on a catalog. This sends no query yet.

        Args:
            connection: Connection of the catalog.
            database: Opens a connection for each query of the user.
        """
        self._connection = connection
        self._database = database

    def history(self, path: str) -> list[RetiredLocation]:
        """Return the retired locations of a path, the last retired first, with those of skipped files.

        The list is empty if there are none.
        """
        with self._connection.by_index() as connection:
            rows = connection.execute(_HISTORY.encode(), [path]).fetchall()
        return [_retired(row) for row in rows]

    def stats(self) -> Stats:
        """Return totals of the catalog.

        The numbers of live files are sums of counters of chunks, so the cost does not grow with these numbers.
        """
        with self._connection.transaction() as connection:
            row = connection.execute(_STATS).fetchone()
            states = connection.execute("SELECT state, count(*) FROM chunks GROUP BY 1 ORDER BY 1").fetchall()
        assert row is not None  # noqa: S101 - an aggregate gives one row
        files, size_bytes, *rest = row
        return Stats(files, size_bytes, dict(states), *rest)

    def findings(self) -> list[str]:
        """Check the rows of the catalog. Return a line for each kind of contradiction that exists.

        Each line ends with the number of cases. Leftovers that `cafcat recover` should process count, too.

        Returns:
            The lines; an empty list if nothing was found.
        """
        found = []
        with self._connection.transaction() as connection:
            # Each query compares whole tables. The planner would choose a nested loop, which suits few rows only,
            # if outdated statistics show too few rows.
            connection.execute("SET LOCAL enable_nestloop = off")
            for description, statement in _FINDINGS.items():
                row = connection.execute(statement.encode()).fetchone()
                if row and row[0]:
                    found.append(f"{description}: {row[0]}")
        return found

    def query(self, statement: str) -> tuple[list[str], Iterator[tuple[Any, ...]]]:
        """Run one SELECT, VALUES, TABLE or WITH query of the user, which can only read.

        Returns:
            The column names, and the rows, which stream on a connection of their own. Integers, booleans and NULL
            are Python's int, bool and None. All other values are text, as PostgreSQL prints them.

        Raises:
            InvalidInput: The statement is of another kind, or fails, or the role could do harm in spite of a
                read-only transaction.
            CatalogUnavailable: The server does not answer, or broke off the query.
            AccessDenied: The server rejects user and password.
        """
        rows = user_query(self._database, statement)
        columns = next(rows)
        return [str(name) for name in columns], rows


def _retired(row: tuple[Any, ...]) -> RetiredLocation:
    *location, retired_at, run_id, reason, is_kept = row
    return RetiredLocation(location_of(location), retired_at, run_id, reason, is_kept)
