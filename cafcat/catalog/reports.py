"""Totals, histories, findings, and the reader's own queries."""

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any, Final

import psycopg
from psycopg.types.string import TextLoader

from cafcat.catalog.connection import Connection, PgConnection, primary, translated
from cafcat.catalog.lookup import LOCATION
from cafcat.catalog.mapping import to_nanoseconds
from cafcat.catalog.runs import iso
from cafcat.errors import InvalidInput
from cafcat.model import Location, RetiredLocation, Stats

__all__ = ["Reports"]

_HISTORY: Final = f"""
SELECT {LOCATION}, {iso("l.retired_at")}, l.run_id, l.reason
FROM retired_locations AS l JOIN chunks AS c ON c.id = l.caf_file_id
WHERE l.file_path = %s
ORDER BY l.id DESC
"""  # noqa: S608

_STATS: Final = """
SELECT coalesce(sum(live_file_count) FILTER (WHERE state = 'committed'), 0)::bigint,
       coalesce(sum(live_bytes) FILTER (WHERE state = 'committed'), 0)::bigint,
       coalesce(sum(size_bytes) FILTER (WHERE state = 'committed'), 0)::bigint,
       coalesce(sum(data_bytes - live_bytes) FILTER (WHERE state = 'committed'), 0)::bigint,
       (SELECT count(*) FROM retired_locations),
       (SELECT count(*) FROM ingest_runs),
       pg_database_size(current_database())
FROM chunks
"""

_FINDINGS: Final = {
    "files that point to no committed chunk": (
        "SELECT count(*) FROM file_locations AS l LEFT JOIN chunks AS c ON c.id = l.caf_file_id "
        "WHERE c.state IS DISTINCT FROM 'committed'"
    ),
    "files that end outside the data of their chunk": (
        "SELECT count(*) FROM file_locations AS l JOIN chunks AS c ON c.id = l.caf_file_id "
        "WHERE l.end_byte > c.index_start_byte"
    ),
    "chunks whose live counters differ from their files": (
        "SELECT count(*) FROM chunks AS c LEFT JOIN (SELECT caf_file_id, count(*) AS files, "
        "sum(end_byte - start_byte) AS bytes FROM file_locations GROUP BY 1) AS l ON l.caf_file_id = c.id "
        "WHERE c.state = 'committed' "
        "AND (c.live_file_count, c.live_bytes) <> (coalesce(l.files, 0), coalesce(l.bytes, 0))"
    ),
    "chunks whose entries are not all either live or retired": (
        "SELECT count(*) FROM chunks AS c WHERE c.state = 'committed' AND c.file_count <> c.live_file_count "
        "+ (SELECT count(*) FROM retired_locations AS r WHERE r.caf_file_id = c.id)"
    ),
    "chunks left behind by a writer whose lease is over: run `cafcat recover`": (
        "SELECT count(*) FROM chunks WHERE state = 'writing' AND lease_expires_at < now()"
    ),
    "abandoned chunks that the store may still have something of: run `cafcat recover`": (
        "SELECT count(*) FROM chunks WHERE state = 'abandoned' AND deleted_at IS NULL"
    ),
}


class Reports:
    """Every method is one transaction."""

    def __init__(self, connection: Connection, connect: Callable[[], PgConnection]) -> None:
        self._connection = connection
        self._connect = connect

    def history(self, path: str) -> list[RetiredLocation]:
        """What a path pointed to before, newest first."""
        with self._connection.statement() as connection:
            rows = connection.execute(_HISTORY.encode(), [path]).fetchall()
        return [_retired(row) for row in rows]

    def stats(self) -> Stats:
        """Totals; from the counters of chunks, so its cost does not depend on the number of files."""
        with self._connection.transaction() as connection:
            row = connection.execute(_STATS).fetchone()
            states = connection.execute("SELECT state, count(*) FROM chunks GROUP BY 1 ORDER BY 1").fetchall()
        assert row is not None  # noqa: S101 - an aggregate gives one row
        files, size_bytes, chunk_bytes, dead_bytes, retired, runs, catalog_bytes = row
        return Stats(files, size_bytes, dict(states), chunk_bytes, dead_bytes, retired, runs, catalog_bytes)

    def findings(self) -> list[str]:
        """What SQL alone can see to be wrong, in words; empty if all is well."""
        found = []
        with self._connection.transaction() as connection:
            for what, statement in _FINDINGS.items():
                row = connection.execute(statement.encode()).fetchone()
                if row and row[0]:
                    found.append(f"{row[0]} {what}")
        return found

    def query(self, statement: str) -> tuple[list[str], Iterator[tuple[Any, ...]]]:
        """Runs one statement of the user's in a transaction that cannot write, and without a superuser's powers.
        Column names, and rows that stream on a connection of their own: integers and booleans as such, all
        else as Postgres' text. Raises InvalidInput with Postgres' message."""
        rows = self._query(statement)
        columns = next(rows)
        return [str(name) for name in columns], rows

    def _query(self, statement: str) -> Iterator[tuple[Any, ...]]:
        with closing(self._connect()) as connection, translated():
            if connection.info.parameter_status("is_superuser") == "on":
                # Who may read every table, and nothing of the server's files or programs.
                connection.execute("SET ROLE pg_read_all_data")
            connection.read_only = True
            connection.autocommit = False
            cursor = connection.cursor()
            _texts_only(cursor)
            try:
                # stream() speaks the extended protocol, in which the server takes one statement only.
                rows = cursor.stream(statement.encode())
                first = next(rows, None)
                yield tuple(column.name for column in cursor.description or ())
                if first is not None:
                    yield first
                    yield from rows
            except (psycopg.ProgrammingError, psycopg.DataError, psycopg.InternalError) as error:
                if error.sqlstate is None:  # what psycopg says of a COMMIT, a COPY, nothing at all
                    raise InvalidInput("give one query that returns rows") from error
                raise InvalidInput(f"the database says: {primary(error)}") from error


def _texts_only(cursor: psycopg.Cursor[Any]) -> None:
    """Every value as Postgres prints it: Python has no word for infinity, the year -44, or 1.50."""
    for kind in cursor.connection.adapters.types:
        if kind.name not in ("bool", "int2", "int4", "int8", "oid"):
            cursor.adapters.register_loader(kind.oid, TextLoader)
        if kind.array_oid:
            cursor.adapters.register_loader(kind.array_oid, TextLoader)


def _retired(row: tuple[Any, ...]) -> RetiredLocation:
    path, start, end, crc32c, microseconds, chunk, store, key, retired_at, run, reason = row
    location = Location(path, start, end, crc32c, to_nanoseconds(microseconds), chunk, store, key)
    return RetiredLocation(location, retired_at, run, reason)
