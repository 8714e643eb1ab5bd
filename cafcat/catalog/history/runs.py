"""The rows of ingest runs, and the events of files that failed."""

import os
import socket
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from psycopg.types.json import Jsonb

from cafcat.catalog.chunks.owners import is_dead, owner_name
from cafcat.catalog.connection import Connection, PgConnection
from cafcat.catalog.history.events import actor, record_event
from cafcat.errors import NotFound
from cafcat.model import FileChange, FileProblem, ProblemKind, Run, RunState

__all__ = ["COUNTERS", "Runs", "iso"]

COUNTERS: Final = (
    "files_added",
    "files_replaced",
    "files_removed",
    "files_unchanged",
    "files_skipped",
    "files_failed",
    "bytes_added",
    "chunks_committed",
)
"""Columns of `ingest_runs` that count what a run did, and attributes of Run. No journal record has them."""

# What runs have committed until now. The detail of a commit's event is that of ChunkCommit.detail.
_COMMITTED: Final = r"""
SELECT c.run_id, count(*) AS chunks, sum(d.numbers[1]::bigint)::bigint AS added,
       sum(d.numbers[2]::bigint)::bigint AS replaced, sum(d.numbers[3]::bigint)::bigint AS bytes
FROM chunks AS c JOIN events AS e ON e.chunk_id = c.id AND e.kind = 'chunk_committed'
CROSS JOIN LATERAL (
    SELECT regexp_match(e.detail, '^([0-9]+) added, ([0-9]+) replaced, .* ([0-9]+) live_bytes') AS numbers) AS d
WHERE c.run_id = ANY(%(runs)s) GROUP BY c.run_id
"""
_FAIL_DEAD: Final = f"""
WITH counted AS ({_COMMITTED})
UPDATE ingest_runs AS r SET state = 'failed', error = 'its process died', finished_at = coalesce((
           SELECT max(e.happened_at) FROM events AS e WHERE e.run_id = r.id AND e.kind IN
               ('run_begun', 'chunk_begun', 'chunk_committed', 'chunk_adopted', 'files_removed', 'file_failed')
       ), r.started_at),
       chunks_committed = coalesce(n.chunks, 0), files_added = coalesce(n.added, 0),
       files_replaced = coalesce(n.replaced, 0), bytes_added = coalesce(n.bytes, 0)
FROM unnest(%(runs)s::bigint[]) AS dead (id) LEFT JOIN counted AS n ON n.run_id = dead.id
WHERE r.id = dead.id AND r.state = 'running'
"""  # noqa: S608


def iso(column: str) -> str:
    """Return an SQL expression for a time as ISO 8601 in UTC, with microseconds."""
    return f"""to_char({column} AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')"""


class Runs:
    """Queries on the rows of `ingest_runs`. Every method is one transaction."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def begin_run(self, *, sources: Iterable[str], options: Mapping[str, Any], version: str) -> int:
        """Insert the row of an ingest run by this process, in the state `running`, and the event `run_begun`.

        The event has the user, also of a run that packs nothing.

        Args:
            sources: Names of the sources (Source.name), as the user typed them, with unprintable characters
                escaped.
            options: Options of the run, as JSON values.
            version: Version of cafcat.

        Returns:
            ingest_runs.id.
        """
        statement = (
            "INSERT INTO ingest_runs (sources, options, host, process_id, cafcat_version, owner) "
            "VALUES (%s, %s, %s, %s, %s, %s) RETURNING id"
        )
        host, process = socket.gethostname(), os.getpid()
        values = (list(sources), Jsonb(dict(options)), host, process, version, owner_name("ingest"))
        with self._connection.transaction() as connection:
            row = connection.execute(statement, values).fetchone()
            assert row is not None  # noqa: S101 - RETURNING of one inserted row
            record_event(connection, "run_begun", f"cafcat {version}, process {process}", run_id=row[0])
        return int(row[0])

    def finish_run(self, run_id: int, state: RunState, counts: Mapping[str, int], error: str | None = None) -> None:
        """Record the end of an ingest run, and the event `run_failed` with the error if the run failed.

        Args:
            run_id: ingest_runs.id.
            state: Final state of the run.
            counts: All counters of the run, under the names of their columns of `ingest_runs`.
            error: Why the run failed; None otherwise.
        """
        columns = ", ".join(f"{name} = %({name})s" for name in COUNTERS)
        statement = (
            f"UPDATE ingest_runs SET state = %(state)s, finished_at = now(), error = %(error)s, {columns} "  # noqa: S608
            "WHERE id = %(run)s"
        )
        parameters = {"run": run_id, "state": state, "error": error} | dict(counts)
        with self._connection.transaction() as connection:
            connection.execute(statement.encode(), parameters)
            if state is RunState.FAILED and error is not None:
                record_event(connection, "run_failed", error, run_id=run_id)

    def set_paused(self, run_id: int, *, is_paused: bool) -> bool:
        """Record that a run is to be paused, or is to go on. Return False if no running run has this id."""
        statement = (
            "UPDATE ingest_runs SET paused_at = CASE WHEN %s THEN coalesce(paused_at, now()) END "
            "WHERE id = %s AND state = 'running'"
        )
        with self._connection.statement() as connection:
            return connection.execute(statement, (is_paused, run_id)).rowcount == 1

    def fail_dead_runs(self) -> int:
        """Set the state of running ingest runs to `failed` if their process is certainly dead.

        The counts of what such a run has committed are those of the events of its chunks. The last event of the run
        is its end.

        Returns:
            The number of these runs.
        """
        with self._connection.transaction() as connection:
            dead = _dead_runs(connection)
            return connection.execute(_FAIL_DEAD, {"runs": dead}).rowcount if dead else 0

    def count_dead_runs(self) -> int:
        """Return the number of running ingest runs whose process is certainly dead."""
        with self._connection.statement() as connection:
            return len(_dead_runs(connection))

    def record_failed_files(self, run_id: int, problems: Iterable[FileProblem]) -> None:
        """Insert an event `file_failed` for each of these problems of an ingest run."""
        rows = [(run_id, problem.path, f"{problem.kind}: {problem.message}", actor()) for problem in problems]
        statement = (
            "INSERT INTO events (run_id, kind, file_path, detail, actor) VALUES (%s, 'file_failed', %s, %s, %s)"
        )
        with self._connection.transaction() as connection:
            connection.cursor().executemany(statement, rows)

    def failed_files(self, run_id: int, after: int) -> list[tuple[int, FileProblem]]:
        """Return failures of files of an ingest run, in the order of their events, at most 1,000.

        Args:
            run_id: ingest_runs.id.
            after: events.id of the last failure before them; 0 for the first ones.

        Returns:
            For each failure its events.id, and the failure.
        """
        statement = (
            "SELECT id, file_path, detail FROM events "
            "WHERE run_id = %s AND id > %s AND kind = 'file_failed' ORDER BY id LIMIT 1000"
        )
        with self._connection.statement() as connection:
            rows = connection.execute(statement, (run_id, after)).fetchall()
        problems = []
        for event_id, path, detail in rows:
            kind, _, message = detail.partition(": ")
            problems.append((event_id, FileProblem(path, ProblemKind(kind), message)))
        return problems

    def runs(self, limit: int) -> list[Run]:
        """Return the ingest runs that began last, newest first, at most `limit` of them.

        A running one has the counts of its committed chunks. Its other counts are known when it ends.
        """
        return self._select("ORDER BY id DESC LIMIT %s", limit)

    def run(self, run_id: int) -> Run:
        """Return an ingest run as `runs` does. Raises NotFound if there is no run with this ingest_runs.id."""
        found = self._select("WHERE id = %s", run_id)
        if not found:
            raise NotFound(f"there is no run {run_id}", hint="`cafcat runs` lists the latest ones")
        return found[0]

    def has_rebuilt(self) -> bool:
        """Return True if the catalog has a run from before a rebuild."""
        statement = "SELECT EXISTS (SELECT FROM ingest_runs WHERE state = 'rebuilt')"
        with self._connection.statement() as connection:
            [(has_rebuilt,)] = connection.execute(statement).fetchall()
        return bool(has_rebuilt)

    def changes_between(self, first_run: int, last_run: int) -> Iterator[FileChange]:
        """Yield the files that changed after the end of one run, until the end of a later one, in path order.

        Args:
            first_run: ingest_runs.id of the earlier run.
            last_run: ingest_runs.id of the later run.
        """
        statement = (
            "SELECT change, file_path, old_bytes, new_bytes, run_id FROM cafcat_ops.changes_between(%s, %s) "
            "ORDER BY file_path"
        )
        with self._connection.transaction() as connection, connection.cursor() as cursor:
            for row in cursor.stream(statement, (first_run, last_run)):
                yield FileChange(*row)

    def _select(self, condition: str, value: int) -> list[Run]:
        statement = (
            f"SELECT id, state, sources, coalesce(options->>'prefix', ''), {iso('started_at')}, "  # noqa: S608
            f"{iso('finished_at')}, {', '.join(COUNTERS)}, CASE state WHEN 'failed' THEN error END "
            f"FROM ingest_runs {condition}"
        )
        with self._connection.statement() as connection:
            rows = connection.execute(statement.encode(), [value]).fetchall()
            runs = [Run(row[0], RunState(row[1]), tuple(row[2]), *row[3:]) for row in rows]
            running = [run.id for run in runs if run.state is RunState.RUNNING]
            committed = connection.execute(_COMMITTED.encode(), {"runs": running}).fetchall() if running else ()
        counts = {run_id: numbers for run_id, *numbers in committed}
        return [_with_counts(run, *counts[run.id]) if run.id in counts else run for run in runs]


def _with_counts(run: Run, chunks: int, added: int, replaced: int, size_bytes: int) -> Run:
    return run._replace(chunks_committed=chunks, files_added=added, files_replaced=replaced, bytes_added=size_bytes)


def _dead_runs(connection: PgConnection) -> list[int]:
    """Return ingest_runs.id of the running ingest runs whose process is certainly dead."""
    rows = connection.execute("SELECT id, owner FROM ingest_runs WHERE state = 'running'").fetchall()
    return [run_id for run_id, owner in rows if is_dead(owner)]
