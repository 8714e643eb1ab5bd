"""Verifications: what is to be checked, what checks found, which chunks are known to be damaged."""

import os
import socket
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple
from uuid import UUID

from psycopg.types.json import Jsonb

from cafcat.catalog.chunks.owners import owner_name
from cafcat.catalog.chunks.rows import COPY_ROWS, ChunkRows
from cafcat.catalog.connection import Connection, PgConnection
from cafcat.catalog.files.lookup import folder_range
from cafcat.model import ChunkState, Finding, FindingKind, Verdict, VerifyLevel

__all__ = [
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
"""Levels that look at all that a level looks at."""


class VerifyRun(NamedTuple):
    """A row of `verify_runs`. resumed: it was begun before, and goes on."""

    id: int
    resumed: bool


class VerifyScope(NamedTuple):
    """Which objects a run is to check: of these chunks, of chunks with a file below this folder (or of that name),
    in this store; only what was not found whole within these seconds before the run; this fraction (0 to 1) of
    them. None does not ask."""

    level: VerifyLevel
    chunks: Sequence[UUID] = ()
    prefix: str | None = None
    store: str | None = None
    older_than_seconds: int | None = None
    sample: float | None = None

    def as_scope(self) -> dict[str, Any]:
        """For `verify_runs.scope`: equal if the same is wanted."""
        given = self._asdict() | {"chunks": sorted(map(str, self.chunks)) or None}
        return {name: value for name, value in given.items() if value is not None and name != "level"}


class TargetKey(NamedTuple):
    """A place in the order in which objects are checked; copy_id is 0 for the chunk itself."""

    chunk_id: int
    copy_id: int


class CheckTarget(NamedTuple):
    """An object to be checked: a chunk, or a copy of one (copy_id). Sizes in bytes; crc64nvme in base64.
    adopted_prefix: as in `chunks`."""

    chunk_id: int
    copy_id: int | None
    store: str
    object_key: str
    uuid: UUID
    format: str
    size_bytes: int
    index_start_byte: int
    index_end_byte: int
    file_count: int
    crc64nvme: str | None
    index_crc32c: int | None
    adopted_prefix: str | None
    state: ChunkState

    @property
    def key(self) -> TargetKey:
        return TargetKey(self.chunk_id, self.copy_id or 0)


class TargetTotals(NamedTuple):
    """What is still to be checked."""

    objects: int
    files: int
    size_bytes: int


class CheckResult(NamedTuple):
    """The result of a check.

    started_at: when the check began. is_known: False if a library is missing that the format needs: then the result
    is not stored. unchecked_blocks: blocks of a CAR with a hash function that is not checked; not stored.
    """

    verdict: Verdict
    findings: Sequence[Finding]
    files_checked: int
    bytes_read: int
    started_at: datetime
    is_conclusive: bool = True
    unchecked_blocks: int = 0


class VerifyTally(NamedTuple):
    """What a run found up to now, its earlier parts included: objects (or sources) by verdict, then totals.

    damaged and missing count objects with something wrong that a live file needs; unneeded counts damaged or
    missing objects of which no live file needs what is wrong.
    """

    ok: int
    damaged: int
    missing: int
    unreadable: int
    unneeded: int
    files_checked: int
    bytes_read: int
    findings: int


class DamagedChunk(NamedTuple):
    """A chunk that was not found whole, and not found whole again since at that level or a higher one."""

    id: int
    uuid: UUID
    level: VerifyLevel
    verdict: Verdict
    verification_id: int


_TARGET: Final = (
    "t.chunk_id, t.copy_id, t.store, t.object_key, c.uuid, c.format, c.size_bytes, c.index_start_byte, "
    "c.index_end_byte, c.file_count, c.crc64nvme, c.index_crc32c, c.adopted_prefix, c.state"
)

# Chunks and copies that are to be checked. What a run finds must not change what it is to check, nor what was
# written since it began: so it can go on, and its sample stays the same.
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
                      AND v.copy_id IS NOT DISTINCT FROM t.copy_id)
)
"""
_OF_PREFIX: Final = [
    f"SELECT caf_file_id FROM {table} WHERE {condition}"  # noqa: S608
    for condition in ("file_path = %(prefix)s", "file_path >= %(low)s AND file_path < %(high)s")
    for table in ("file_locations", "retired_locations")
]
_CONDITIONS: Final = {
    "chunks": "AND c.uuid = ANY(%(chunks)s)",
    "store": "AND t.store = %(store)s",
    "prefix": f"AND t.chunk_id = ANY (ARRAY({' UNION '.join(_OF_PREFIX)}))",
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
_TALLY: Final = """
SELECT count(*) FILTER (WHERE verdict = 'ok'), count(*) FILTER (WHERE verdict = 'damaged' AND live),
       count(*) FILTER (WHERE verdict = 'missing' AND live), count(*) FILTER (WHERE verdict = 'unreadable'),
       count(*) FILTER (WHERE verdict IN ('damaged', 'missing') AND NOT live),
       coalesce(sum(files_checked), 0)::bigint, coalesce(sum(bytes_read), 0)::bigint,
       coalesce(sum(finding_count), 0)::bigint
FROM verifications AS v, LATERAL (
    SELECT EXISTS (SELECT FROM findings AS f WHERE f.verification_id = v.id AND f.is_live) AS live) AS needed
WHERE run_id = %s
"""
_DAMAGED: Final = """
SELECT DISTINCT ON (c.id) c.id, c.uuid, v.level, v.verdict, v.id
FROM verifications AS v JOIN chunks AS c ON c.id = v.chunk_id
WHERE v.copy_id IS NULL AND v.verdict <> 'ok' AND c.state IN ('committed', 'retired')
  AND (%(chunks)s::uuid[] IS NULL OR c.uuid = ANY(%(chunks)s))
  AND NOT EXISTS (
      SELECT FROM verifications AS later
      WHERE later.chunk_id = v.chunk_id AND later.copy_id IS NULL AND later.id > v.id AND later.verdict = 'ok'
        AND (later.level = v.level OR later.level = 'data' OR v.verdict = 'missing'))
ORDER BY c.id, v.id DESC
"""


def _of_prefix(prefix: str) -> dict[str, str | None]:
    """The parameters of _OF_PREFIX."""
    low, high = folder_range(f"{prefix}/")
    return {"prefix": prefix, "low": low, "high": high}


class Verification:
    """Every method is one transaction."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def begin(self, level: VerifyLevel, scope: Mapping[str, Any], *, restart: bool) -> VerifyRun:
        """The run of that scope that was not finished; with restart, or if there is none, a new one."""
        process = (os.getpid(), socket.gethostname())
        with self._connection.transaction() as connection:
            if restart:
                # It has not finished, and never will: no run has that scope.
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

    def finish(self, run: int) -> None:
        """All was checked."""
        with self._connection.statement() as connection:
            connection.execute("UPDATE verify_runs SET finished_at = now() WHERE id = %s", [run])

    def totals(self, run: int, wanted: VerifyScope) -> TargetTotals:
        """What `targets` gives, summed."""
        ends = (
            "SELECT count(*), coalesce(sum(c.file_count), 0)::bigint, coalesce(sum(c.size_bytes), 0)::bigint "
            "FROM chosen AS t JOIN chunks AS c ON c.id = t.chunk_id"
        )
        [row] = self._chosen(run, wanted, ends, {})
        return TargetTotals(*row)

    def targets(self, run: int, wanted: VerifyScope, after: TargetKey, limit: int = 1000) -> list[CheckTarget]:
        """What the run is still to check, beginning after an object, each chunk before its copies."""
        ends = (
            f"SELECT {_TARGET} FROM chosen AS t JOIN chunks AS c ON c.id = t.chunk_id "  # noqa: S608
            "WHERE (t.chunk_id, coalesce(t.copy_id, 0)) > (%(chunk_id)s, %(copy_id)s) "
            "ORDER BY t.chunk_id, coalesce(t.copy_id, 0) LIMIT %(limit)s"
        )
        rows = self._chosen(run, wanted, ends, after._asdict() | {"limit": limit})
        return [CheckTarget._make((*row[:-1], ChunkState(row[-1]))) for row in rows]

    def _chosen(
        self, run: int, wanted: VerifyScope, ends: str, parameters: dict[str, Any]
    ) -> list[tuple[Any, ...]]:
        given = {
            "chunks": list(wanted.chunks) or None,
            "store": wanted.store,
            "prefix": wanted.prefix,
            "older_than": wanted.older_than_seconds,
        }
        conditions = " ".join(_CONDITIONS[name] for name, value in given.items() if value is not None)
        values = given | {"run": run, "sample": wanted.sample, "covering": _COVERING.get(wanted.level)}
        values |= parameters | (_of_prefix(wanted.prefix) if wanted.prefix else {})
        with self._connection.by_index() as connection:
            statement = _CHOSEN.format(conditions=conditions) + ends
            return connection.execute(statement.encode(), values).fetchall()

    def has_prefix(self, prefix: str) -> bool:
        """Whether there is, or was, a file below this folder, or of that name."""
        statement = f"SELECT EXISTS ({' UNION ALL '.join(_OF_PREFIX)})"
        with self._connection.by_index() as connection:
            [(found,)] = connection.execute(statement.encode(), _of_prefix(prefix)).fetchall()
        return bool(found)

    def rows(self, chunk_id: int) -> ChunkRows:
        """All entries that the catalog has of a chunk, live and retired, in order of their bytes; to be closed."""
        with self._connection.by_index() as connection:
            connection.execute("SET LOCAL work_mem = '32MB'; SET LOCAL statement_timeout = 0")
            with connection.cursor() as cursor, cursor.copy(COPY_ROWS.encode(), {"chunk": chunk_id}) as copy:
                return ChunkRows(copy)

    def should_exist(self, target: CheckTarget) -> bool:
        """Whether the object is still to be there: a chunk may be deleted, a copy dropped, while it is checked."""
        statement = (
            "SELECT EXISTS (SELECT FROM chunks WHERE id = %(chunk)s AND state IN ('committed', 'retired')) "
            "AND (%(copy)s::bigint IS NULL "
            "OR EXISTS (SELECT FROM chunk_copies WHERE id = %(copy)s AND state = 'committed'))"
        )
        with self._connection.statement() as connection:
            row = connection.execute(statement, {"chunk": target.chunk_id, "copy": target.copy_id}).fetchone()
        return row is not None and bool(row[0])

    def record(self, run: int, level: VerifyLevel, target: CheckTarget | None, result: CheckResult) -> None:
        """Adds a check to the history. target None: the catalog as a whole, or a source."""
        insert = (
            "INSERT INTO verifications (run_id, chunk_id, copy_id, files_checked, bytes_read, finding_count, "
            "started_at, finished_at, level, verdict, checked_by) "
            "VALUES (%s, %s, %s, %s, %s, %s, %s, clock_timestamp(), %s, %s, %s) RETURNING id"
        )
        values = (
            run,
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

    def checked(self, run: int) -> int:
        """How many checks a run has in the history."""
        with self._connection.statement() as connection:
            row = connection.execute("SELECT count(*) FROM verifications WHERE run_id = %s", [run]).fetchone()
        return int(row[0]) if row else 0

    def tally(self, run: int) -> VerifyTally:
        """What a run found up to now."""
        with self._connection.statement() as connection:
            row = connection.execute(_TALLY, [run]).fetchone()
        assert row is not None  # noqa: S101 - an aggregate gives one row
        return VerifyTally(*row)

    def findings(self, verification_id: int) -> list[Finding]:
        """What a check found."""
        statement = (
            "SELECT kind, detail, file_path, start_byte, end_byte, file_count, is_live FROM findings "
            "WHERE verification_id = %s ORDER BY id"
        )
        with self._connection.statement() as connection:
            rows = connection.execute(statement, [verification_id]).fetchall()
        return [Finding(FindingKind(kind), *rest) for kind, *rest in rows]

    def damaged(self, chunks: Sequence[UUID] | None = None) -> list[DamagedChunk]:
        """Chunks (not copies), all or of these, that were not found whole (damaged, missing, unreadable), and not
        found whole since: a later check counts if it looked at least as closely. Oldest chunk first."""
        with self._connection.statement() as connection:
            rows = connection.execute(_DAMAGED, {"chunks": None if chunks is None else list(chunks)}).fetchall()
        return [DamagedChunk(row[0], row[1], VerifyLevel(row[2]), Verdict(row[3]), row[4]) for row in rows]


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
    """Postgres has no NUL in texts; an index that is checked may have."""
    return text.replace("\0", "\\x00")
