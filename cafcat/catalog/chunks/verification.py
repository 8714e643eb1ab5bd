"""The catalog's queries for verify: the objects to check, the results of checks, and the damaged chunks."""

import os
import socket
from collections.abc import Collection, Generator, Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from psycopg.types.json import Jsonb

from cafcat.catalog.chunks.check_types import (
    CheckResult,
    CheckTarget,
    DamagedChunk,
    TargetKey,
    TargetTotals,
    VerifyRun,
    VerifyScope,
    VerifyTally,
)
from cafcat.catalog.chunks.failed_checks import FAILURE_COUNTS
from cafcat.catalog.chunks.owners import owner_name
from cafcat.catalog.chunks.rows import COPY_ROWS, ChunkRows
from cafcat.catalog.connection import Connection, PgConnection
from cafcat.catalog.copy_out import copied_blocks
from cafcat.catalog.files.scope import folder_range
from cafcat.model import ChunkState, Finding, FindingKind, Verdict, VerifyLevel

__all__ = [
    "DAMAGED",
    "CheckResult",
    "CheckTarget",
    "DamagedChunk",
    "TargetKey",
    "TargetTotals",
    "Verification",
    "VerifyRun",
    "VerifyScope",
    "VerifyTally",
]

_COVERING: Final = {VerifyLevel.INDEX: ["index", "data"], VerifyLevel.DATA: ["data"]}
"""For each level, the levels that check at least as much."""

_TARGET: Final = (
    "t.chunk_id, t.copy_id, t.store, t.object_key, c.uuid, c.format, c.size_bytes, c.index_start_byte, "
    "c.index_end_byte, c.file_count, c.crc64nvme, c.index_crc32c, c.adopted_prefix, c.state"
)

# The chunks and copies that a run still has to check. Neither the results of the run nor objects that were written
# after its start may change the selection. So the run can be resumed, and its sample stays the same. A resumed run
# checks objects again that it found damaged: they may have been repaired since.
_CHOSEN: Final = """
WITH run AS (SELECT id, started_at FROM verify_runs WHERE id = %(run)s),
objects AS (
    SELECT c.id AS chunk_id, NULL::bigint AS copy_id, c.store, c.object_key
    FROM chunks AS c, run
    WHERE c.state IN ('committed', 'retired') AND c.committed_at <= run.started_at
  UNION ALL
    SELECT k.chunk_id, k.id, k.store, k.object_key
    FROM chunk_copies AS k JOIN chunks AS c ON c.id = k.chunk_id, run
    WHERE k.state = 'committed' AND k.retired_at IS NULL AND k.committed_at <= run.started_at
      AND c.state IN ('committed', 'retired')
),
eligible AS (
    SELECT t.*, row_number() OVER (ORDER BY md5(concat_ws(' ', run.id, t.chunk_id, t.copy_id))) AS place,
           count(*) OVER () AS total
    FROM objects AS t JOIN chunks AS c ON c.id = t.chunk_id, run
    WHERE true {conditions}
),
chosen AS (
    SELECT t.* FROM eligible AS t, run
    WHERE (%(sample)s::float8 IS NULL OR t.place <= ceil(t.total * %(sample)s::float8))
      AND NOT EXISTS (SELECT FROM verifications AS v WHERE v.run_id = run.id AND v.chunk_id = t.chunk_id
                      AND v.copy_id IS NOT DISTINCT FROM t.copy_id AND v.verdict = 'ok')
)
"""
_CHUNKS_WITH_PREFIX: Final = [
    f"SELECT caf_file_id FROM {table} WHERE {condition}"  # noqa: S608
    for condition in ("file_path = %(prefix)s", "file_path >= %(low)s AND file_path < %(high)s")
    for table in ("file_locations", "retired_locations")
]
_CONDITIONS: Final = {
    "chunks": "AND c.uuid = ANY(%(chunks)s)",
    "store": "AND t.store = %(store)s",
    "prefix": f"AND t.chunk_id = ANY (ARRAY({' UNION '.join(_CHUNKS_WITH_PREFIX)}))",
    "older_than": """
      AND NOT EXISTS (
          SELECT FROM verifications AS v
          WHERE v.chunk_id = t.chunk_id AND v.copy_id IS NOT DISTINCT FROM t.copy_id AND v.run_id <> run.id
            AND v.verdict = 'ok' AND v.level = ANY(%(covering)s)
            AND v.finished_at >= run.started_at - make_interval(secs => %(older_than)s)
            AND NOT EXISTS (
                SELECT FROM verifications AS later
                WHERE later.chunk_id = t.chunk_id AND later.copy_id IS NOT DISTINCT FROM t.copy_id
                  AND later.run_id <> run.id AND later.id > v.id AND later.verdict <> 'ok'))
""",
}
# The last check of each object counts. Results without a chunk are those of sources and of the catalog. Damage in a
# chunk that was deleted since is not needed by any file.
_TALLY: Final = """
WITH last AS (
    SELECT DISTINCT ON (chunk_id, copy_id, CASE WHEN chunk_id IS NULL THEN id END) *
    FROM verifications WHERE run_id = %s
    ORDER BY chunk_id, copy_id, CASE WHEN chunk_id IS NULL THEN id END, id DESC
)
SELECT count(*) FILTER (WHERE verdict = 'ok'), count(*) FILTER (WHERE verdict = 'damaged' AND live),
       count(*) FILTER (WHERE verdict = 'missing' AND live), count(*) FILTER (WHERE verdict = 'unreadable'),
       count(*) FILTER (WHERE verdict IN ('damaged', 'missing') AND NOT live),
       coalesce(sum(files_checked), 0)::bigint, coalesce(sum(bytes_read), 0)::bigint,
       coalesce(sum(finding_count), 0)::bigint
FROM last AS v LEFT JOIN chunks AS c ON c.id = v.chunk_id, LATERAL (
    SELECT EXISTS (SELECT FROM findings AS f WHERE f.verification_id = v.id AND f.is_live)
           AND c.state IS DISTINCT FROM 'deleted' AS live) AS needed
"""
DAMAGED: Final = f"""
SELECT DISTINCT ON (c.id) c.id, c.uuid, v.level, v.verdict, v.id AS verification_id
FROM verifications AS v JOIN chunks AS c ON c.id = v.chunk_id
WHERE v.copy_id IS NULL AND c.state IN ('committed', 'retired')
  AND (%(chunks)s::uuid[] IS NULL OR c.uuid = ANY(%(chunks)s)) AND {FAILURE_COUNTS}
ORDER BY c.id, v.id DESC
"""  # noqa: S608
"""The failed checks of `Verification.damaged`. Its parameter `chunks` has the UUIDs of the chunks; NULL for all."""


_WRONG_ROWS: Final = f"""
SELECT v.chunk_id FROM verifications AS v
WHERE v.chunk_id = ANY(%s) AND v.copy_id IS NULL AND {FAILURE_COUNTS}
  AND EXISTS (SELECT FROM findings AS f WHERE f.verification_id = v.id AND f.kind = 'mapping')
"""  # noqa: S608
_REMOVED: Final = f"""
SELECT count(DISTINCT r.id) FROM verifications AS v JOIN findings AS f ON f.verification_id = v.id
JOIN retired_locations AS r ON r.file_path = f.file_path AND r.caf_file_id = v.chunk_id AND r.reason = 'removed'
WHERE v.chunk_id = ANY(%s) AND v.copy_id IS NULL AND {FAILURE_COUNTS}
"""  # noqa: S608


def _prefix_parameters(prefix: str) -> dict[str, str | None]:
    """Return the parameters of _CHUNKS_WITH_PREFIX."""
    low, high = folder_range(f"{prefix}/")
    return {"prefix": prefix, "low": low, "high": high}


class Verification:
    """Queries for verify. Every method is one transaction."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def begin(self, level: VerifyLevel, scope: Mapping[str, Any], *, restart: bool) -> VerifyRun:
        """Resume the unfinished `cafcat verify` run of a level and scope, or insert a new one into verify_runs.

        Args:
            level: Depth of the checks.
            scope: Scope of the run (VerifyScope.as_scope).
            restart: Always insert a new run. The unfinished run can then not be resumed any more.

        Returns:
            The run, and whether it was resumed.
        """
        process = (os.getpid(), socket.gethostname())
        with self._connection.transaction() as connection:
            if restart:
                # This changes the scope of the unfinished run, so that it will never be resumed.
                connection.execute(
                    "UPDATE verify_runs SET scope = scope || '{\"superseded\": true}' "
                    "WHERE finished_at IS NULL AND level = %s AND scope = %s",
                    (level, Jsonb(dict(scope))),
                )
            row = connection.execute(
                "UPDATE verify_runs SET process_id = %s, host = %s WHERE id = (SELECT max(id) FROM verify_runs "
                "WHERE finished_at IS NULL AND level = %s AND scope = %s) RETURNING id",
                (*process, level, Jsonb(dict(scope))),
            ).fetchone()
            if row is not None:
                return VerifyRun(row[0], resumed=True)
            row = connection.execute(
                "INSERT INTO verify_runs (process_id, host, level, scope) VALUES (%s, %s, %s, %s) RETURNING id",
                (*process, level, Jsonb(dict(scope))),
            ).fetchone()
        assert row is not None  # noqa: S101 - RETURNING of one inserted row
        return VerifyRun(row[0], resumed=False)

    def finish(self, run_id: int, out_of_reach: Collection[str] = ()) -> None:
        """Record that a verify run ended without an interruption, so that no later command resumes it.

        Args:
            run_id: verify_runs.id.
            out_of_reach: URLs of the stores whose objects could not be checked.
        """
        added = Jsonb({"out_of_reach": sorted(out_of_reach)} if out_of_reach else {})
        statement = "UPDATE verify_runs SET finished_at = now(), scope = scope || %s WHERE id = %s"
        with self._connection.statement() as connection:
            connection.execute(statement, [added, run_id])

    def totals(self, run_id: int, scope: VerifyScope) -> TargetTotals:
        """Return totals of all objects without an "ok" in a verify run, which `targets` returns."""
        select = (
            "SELECT count(*), coalesce(sum(c.file_count), 0)::bigint, coalesce(sum(c.size_bytes), 0)::bigint "
            "FROM chosen AS t JOIN chunks AS c ON c.id = t.chunk_id"
        )
        [row] = self._select_targets(run_id, scope, select, {})
        return TargetTotals(*row)

    def stores(self, run_id: int, scope: VerifyScope) -> list[str]:
        """Return the URLs of the stores with objects without an "ok" in a verify run, which `targets` returns."""
        return [url for (url,) in self._select_targets(run_id, scope, "SELECT DISTINCT store FROM chosen", {})]

    def targets(self, run_id: int, scope: VerifyScope, after: TargetKey, limit: int = 1000) -> list[CheckTarget]:
        """Return objects without an "ok" in a verify run, in the order of chunks.id, each chunk before its copies.

        An object with an error in this run is among them, because it may have been repaired since.

        Args:
            run_id: verify_runs.id.
            scope: Scope of the run.
            after: Return only objects after this position; TargetKey(0, 0) for all.
            limit: Largest number of objects.
        """
        select = (
            f"SELECT {_TARGET} FROM chosen AS t JOIN chunks AS c ON c.id = t.chunk_id "  # noqa: S608
            "WHERE (t.chunk_id, coalesce(t.copy_id, 0)) > (%(chunk_id)s, %(copy_id)s) "
            "ORDER BY t.chunk_id, coalesce(t.copy_id, 0) LIMIT %(limit)s"
        )
        rows = self._select_targets(run_id, scope, select, after._asdict() | {"limit": limit})
        return [CheckTarget._make((*row[:-1], ChunkState(row[-1]))) for row in rows]

    def _select_targets(
        self, run_id: int, scope: VerifyScope, select: str, parameters: dict[str, Any]
    ) -> list[tuple[Any, ...]]:
        """Return the rows of a query on `chosen`, the table expression of the objects without an "ok" in this run.

        Args:
            run_id: verify_runs.id.
            scope: Scope of the run.
            select: The query, after the table expressions.
            parameters: Further parameters of the query.
        """
        limits = {
            "chunks": list(scope.chunks) or None,
            "store": scope.store,
            "prefix": scope.prefix,
            "older_than": scope.older_than_seconds,
        }
        conditions = " ".join(_CONDITIONS[name] for name, value in limits.items() if value is not None)
        values = limits | {"run": run_id, "sample": scope.sample, "covering": _COVERING.get(scope.level)}
        values |= parameters | (_prefix_parameters(scope.prefix) if scope.prefix else {})
        with self._connection.by_index() as connection:
            statement = _CHOSEN.format(conditions=conditions) + select
            return connection.execute(statement.encode(), values).fetchall()

    def has_prefix(self, prefix: str) -> bool:
        """Return True if a file below this folder, or with the folder's name, has a live or retired location."""
        statement = f"SELECT EXISTS ({' UNION ALL '.join(_CHUNKS_WITH_PREFIX)})"
        with self._connection.by_index() as connection:
            [(exists,)] = connection.execute(statement.encode(), _prefix_parameters(prefix)).fetchall()
        return bool(exists)

    def rows(self, chunk_id: int) -> ChunkRows:
        """Return all entries of a chunk, live and retired, in the order of their bytes.

        The caller closes the result, which has a temporary file if the entries need more than 8 MiB. Another thread
        has the connection until all entries have arrived.
        """
        return ChunkRows(self._row_blocks(chunk_id))

    def _row_blocks(self, chunk_id: int) -> Generator[bytes, None, None]:
        with self._connection.by_index() as connection:
            connection.execute("SET LOCAL work_mem = '32MB'; SET LOCAL statement_timeout = 0")
            yield from copied_blocks(connection, COPY_ROWS.encode(), {"chunk": chunk_id})

    def should_exist(self, target: CheckTarget) -> bool:
        """Return True if an object should exist in its store now, by the states of its chunk and copy.

        Prune may delete a chunk or copy while verify checks its object.
        """
        statement = (
            "SELECT EXISTS (SELECT FROM chunks WHERE id = %(chunk)s AND state IN ('committed', 'retired')) "
            "AND (%(copy)s::bigint IS NULL "
            "OR EXISTS (SELECT FROM chunk_copies WHERE id = %(copy)s AND state = 'committed'))"
        )
        with self._connection.statement() as connection:
            row = connection.execute(statement, {"chunk": target.chunk_id, "copy": target.copy_id}).fetchone()
        return row is not None and bool(row[0])

    def record(self, run_id: int, level: VerifyLevel, target: CheckTarget | None, result: CheckResult) -> None:
        """Insert the result of the check of one object, and its findings.

        Args:
            run_id: verify_runs.id.
            level: Level of the check.
            target: The object that was checked; None for the catalog as a whole, or a source.
            result: The result.
        """
        insert = (
            "INSERT INTO verifications (run_id, chunk_id, copy_id, files_checked, bytes_read, finding_count, "
            "started_at, finished_at, level, verdict, checked_by) "
            "VALUES (%s, %s, %s, %s, %s, %s, %s, clock_timestamp(), %s, %s, %s) RETURNING id"
        )
        values = (
            run_id,
            target and target.chunk_id,
            target and target.copy_id,
            result.files_checked,
            result.bytes_read,
            len(result.findings),
            result.started_at,
            level,
            result.verdict,
            owner_name("verify"),
        )
        with self._connection.transaction() as connection:
            row = connection.execute(insert, values).fetchone()
            assert row is not None  # noqa: S101 - RETURNING of one inserted row
            _insert_findings(connection, row[0], result.findings)

    def checked(self, run_id: int) -> int:
        """Return how many checks of a verify run are recorded, including those before it was resumed."""
        with self._connection.statement() as connection:
            row = connection.execute("SELECT count(*) FROM verifications WHERE run_id = %s", [run_id]).fetchone()
        return int(row[0]) if row else 0

    def tally(self, run_id: int) -> VerifyTally:
        """Return totals of the recorded checks of a verify run. For each object, only its last check counts.

        Checks before the run was resumed are included.
        """
        with self._connection.statement() as connection:
            row = connection.execute(_TALLY, [run_id]).fetchone()
        assert row is not None  # noqa: S101 - an aggregate gives one row
        return VerifyTally(*row)

    def findings(self, verification_id: int) -> list[Finding]:
        """Return the findings of a recorded check, in the order in which they were found.

        Args:
            verification_id: verifications.id of the check.
        """
        statement = (
            "SELECT kind, detail, file_path, start_byte, end_byte, file_count, is_live FROM findings "
            "WHERE verification_id = %s ORDER BY id"
        )
        with self._connection.statement() as connection:
            rows = connection.execute(statement, [verification_id]).fetchall()
        return [Finding(FindingKind(kind), *rest) for kind, *rest in rows]

    def damaged(self, chunks: Sequence[UUID] | None = None) -> list[DamagedChunk]:
        """Return chunks with a failed check that no later successful check refutes, oldest chunk first.

        A successful check refutes a failed one if both have the same level, or the successful one has the level
        `data`, or the failed one found no object. Checks of copies do not count. Only committed and retired chunks
        are returned, each with its last failed check of this kind.

        Args:
            chunks: UUIDs of the chunks to return; None for all.
        """
        with self._connection.statement() as connection:
            rows = connection.execute(DAMAGED, {"chunks": None if chunks is None else list(chunks)}).fetchall()
        return [DamagedChunk(row[0], row[1], VerifyLevel(row[2]), Verdict(row[3]), row[4]) for row in rows]

    def with_wrong_rows(self, chunk_ids: Sequence[int]) -> set[int]:
        """Return those of these chunks (chunks.id) whose rows `verify` found missing or wrong."""
        with self._connection.by_index() as connection:
            rows = connection.execute(_WRONG_ROWS.encode(), [list(chunk_ids)]).fetchall()
        return {chunk for (chunk,) in rows}

    def damaged_removed_files(self, chunk_ids: Sequence[int]) -> int:
        """Return the number of removed files in these chunks (chunks.id) that verify found damaged."""
        with self._connection.by_index() as connection:
            [(count,)] = connection.execute(_REMOVED.encode(), [list(chunk_ids)]).fetchall()
        return int(count)


def _insert_findings(connection: PgConnection, verification_id: int, findings: Sequence[Finding]) -> None:
    statement = (
        "INSERT INTO findings (verification_id, kind, detail, file_path, start_byte, end_byte, file_count, "
        "is_live) VALUES (%s, %s, %s, %s, %s, %s, %s, %s)"
    )
    rows = [
        (verification_id, kind, _storable(detail), path and _storable(path), *rest)
        for kind, detail, path, *rest in findings
    ]
    connection.cursor().executemany(statement, rows)


def _storable(text: str) -> str:
    """Return a text with each NUL escaped: PostgreSQL cannot store NUL, but a damaged index may contain it."""
    return text.replace("\0", "\\x00")
