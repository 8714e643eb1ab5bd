"""Numbers of the catalog: chunks, runs, open writers, backlog, verifications, backups.

They come from `chunks` and the other small tables. No statement reads `file_locations`: chunks count their files.
"""

from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from cafcat.catalog.chunks.failed_checks import FAILURE_COUNTS
from cafcat.catalog.chunks.owners import is_dead
from cafcat.catalog.chunks.verification import DAMAGED
from cafcat.catalog.connection import Connection, PgConnection
from cafcat.catalog.health.brief import brief_read

__all__ = ["CatalogTotals", "ChunkTotals", "LeaseTotals", "Totals"]

_CHUNKS: Final = """
SELECT state, count(*), coalesce(sum(size_bytes), 0)::bigint, coalesce(sum(live_file_count), 0)::bigint,
       coalesce(sum(live_bytes), 0)::bigint, coalesce(sum(data_bytes - live_bytes), 0)::bigint
FROM chunks GROUP BY 1
"""
_RUNS: Final = """
SELECT coalesce(sum(files_added), 0)::bigint, coalesce(sum(files_replaced), 0)::bigint,
       coalesce(sum(files_unchanged), 0)::bigint, coalesce(sum(files_skipped), 0)::bigint,
       coalesce(sum(files_failed), 0)::bigint, coalesce(sum(bytes_added), 0)::bigint,
       coalesce(sum(chunks_committed), 0)::bigint,
       extract(epoch FROM max(finished_at) FILTER (WHERE state = 'finished' AND files_failed = 0
                                                   AND options ->> 'command' IS DISTINCT FROM 'adopt'))::float8
FROM ingest_runs
"""
_LEASES: Final = " UNION ALL ".join(
    f"SELECT '{kind}', count(*) FILTER (WHERE lease_expires_at >= now()), "  # noqa: S608
    f"count(*) FILTER (WHERE lease_expires_at < now()) FROM {table} WHERE state = '{state}'"
    for kind, table, state in (
        ("chunk", "chunks", "writing"),
        ("copy", "chunk_copies", "writing"),
        ("backup", "backups", "writing"),
        ("shard", "shards", "running"),
    )
)
_LEFT: Final = " UNION ALL ".join(
    f"SELECT '{kind}', count(*) FROM {table} "  # noqa: S608
    "WHERE state IN ('abandoned', 'deleted') AND deleted_at IS NULL"
    for kind, table in (("chunk", "chunks"), ("copy", "chunk_copies"), ("backup", "backups"))
)
_SHARDS: Final = "SELECT state, count(*) FROM shards WHERE state IN ('waiting', 'running') GROUP BY 1"
_JOURNAL: Final = """
SELECT count(*), extract(epoch FROM min(happened_at))::float8 FROM journal WHERE unwritten <> '{}'
"""
_WITHOUT_COPY: Final = """
SELECT count(*) FILTER (WHERE c.adopted_prefix IS NULL), count(c.adopted_prefix) FROM chunks AS c
WHERE c.state = 'committed' AND NOT EXISTS (
    SELECT FROM chunk_copies AS k WHERE k.chunk_id = c.id AND k.state = 'committed' AND k.retired_at IS NULL
      AND NOT cafcat_ops.is_broken(k.chunk_id, k.id))
"""
_VERIFIED: Final = """
SELECT count(*) FILTER (WHERE v.finished_at IS NULL), extract(epoch FROM min(v.finished_at))::float8,
       extract(epoch FROM min(c.committed_at) FILTER (WHERE v.finished_at IS NULL))::float8
FROM chunks AS c LEFT JOIN LATERAL (
    SELECT finished_at FROM verifications AS v WHERE v.chunk_id = c.id AND v.copy_id IS NULL AND v.level = 'data'
    ORDER BY v.id DESC LIMIT 1) AS v ON true
WHERE c.state = 'committed'
"""
_VERDICTS: Final = f"""
SELECT CASE WHEN d.verdict = 'unreadable' OR (c.live_file_count > 0 AND EXISTS (
           SELECT FROM findings AS f WHERE f.verification_id = d.verification_id AND f.is_live))
       THEN d.verdict ELSE 'unneeded' END, count(*)
FROM ({DAMAGED}) AS d JOIN chunks AS c ON c.id = d.id GROUP BY 1
"""  # noqa: S608
_COPY_VERDICTS: Final = f"""
SELECT v.verdict, count(*) FROM chunk_copies AS k JOIN chunks AS c ON c.id = k.chunk_id, LATERAL (
    SELECT verdict FROM verifications AS v WHERE v.chunk_id = k.chunk_id AND v.copy_id = k.id
      AND {FAILURE_COUNTS} ORDER BY v.id DESC LIMIT 1) AS v
WHERE k.state = 'committed' AND k.retired_at IS NULL AND c.state = 'committed' GROUP BY 1
"""  # noqa: S608
_FINDINGS: Final = f"""
SELECT f.kind, count(*) FROM ({DAMAGED}) AS d JOIN findings AS f ON f.verification_id = d.verification_id GROUP BY 1
"""  # noqa: S608
# A rebuilt catalog has no journal_id of earlier backups: the changes after them are found by time.
_BACKUP: Final = """
SELECT extract(epoch FROM b.committed_at)::float8, b.size_bytes,
       (SELECT count(*) FROM (SELECT FROM journal AS j WHERE j.id > coalesce(b.journal_id, (
            SELECT o.id FROM journal AS o WHERE o.happened_at <= b.begun_at ORDER BY o.id DESC LIMIT 1
        ), 0) LIMIT 100000) AS newer)
FROM backups AS b WHERE b.state = 'committed' ORDER BY b.committed_at DESC LIMIT 1
"""
_RUNNING: Final = "SELECT id, owner FROM ingest_runs WHERE state = 'running' ORDER BY id"
_RUN_COUNTS: Final = ("added", "replaced", "unchanged", "skipped", "failed")


class ChunkTotals(NamedTuple):
    """Totals of the chunks in one state.

    Attributes:
        chunks: Number of chunks.
        size_bytes: Size of their objects.
        files: Number of their live files.
        file_bytes: Size of their live files.
        dead_bytes: Bytes of files to which no path points any more.
    """

    chunks: int
    size_bytes: int
    files: int
    file_bytes: int
    dead_bytes: int


class LeaseTotals(NamedTuple):
    """Numbers of leases of one kind: those of writers that may live, and those that have expired."""

    valid: int
    expired: int


@dataclass(frozen=True, slots=True)
class CatalogTotals:
    """Numbers of a catalog. Times are in seconds since 1970.

    Attributes:
        chunks: Totals of chunks by their state.
        runs: Number of ingests and adoptions by their state.
        run_files: Files of all runs that have ended, by result: added, replaced, unchanged, skipped or failed.
        run_bytes: Bytes of the files that these runs added and replaced.
        run_chunks: Chunks that these runs committed.
        last_run_at: When the last ingest without a failed file ended; None if none did. Adoptions do not count.
        leases: Leases of chunks, copies and backups that are being written, and of shards, by kind.
        left: Abandoned or deleted chunks, copies and backups whose object may still be in the store, by kind.
        shards: Number of waiting and running shards, by state.
        unwritten_records: Journal records that a store lacks.
        unwritten_since: When the oldest of these was made; None if there is none.
        without_copy: Committed chunks that have no second copy, without adopted archives. A copy that a check found
            damaged or missing does not count.
        adopted: Committed adopted archives, which never have a second copy.
        never_verified: Committed chunks that were never verified at level data.
        never_verified_since: When the oldest of these was committed; None if there is none.
        verified_since: When the chunk that was verified at level data longest ago was verified; None if none was.
        verdicts: Chunks whose failed check no later check refutes, by verdict; "unneeded" for damaged and missing
            chunks whose damage concerns no live file.
        copy_verdicts: Copies whose last check failed, by verdict.
        findings: Findings of the failed checks in `verdicts`, by kind.
        backup_at: When the last backup was made; None if there is none.
        backup_bytes: Its size.
        changes_since_backup: Changes since then, at most 100,000. Without a backup, 0.
        catalog_bytes: Size of the database.
        dead_runs: Numbers of ingest runs in state `running` whose process on this host has ended.
    """

    chunks: dict[str, ChunkTotals]
    runs: dict[str, int]
    run_files: dict[str, int]
    run_bytes: int
    run_chunks: int
    last_run_at: float | None
    leases: dict[str, LeaseTotals]
    left: dict[str, int]
    shards: dict[str, int]
    unwritten_records: int
    unwritten_since: float | None
    without_copy: int
    adopted: int
    never_verified: int
    never_verified_since: float | None
    verified_since: float | None
    verdicts: dict[str, int]
    copy_verdicts: dict[str, int]
    findings: dict[str, int]
    backup_at: float | None
    backup_bytes: int | None
    changes_since_backup: int
    catalog_bytes: int
    dead_runs: tuple[int, ...]


class Totals:
    """Reads the numbers of a catalog."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def read(self) -> CatalogTotals:
        """Return the numbers of the catalog, from one transaction.

        The cost grows with the number of chunks and of their verifications, not with that of files.

        Raises:
            CatalogUnavailable: The database does not answer, or one of the statements took more than 5 seconds.
            CatalogOutdated: The database has another schema.
        """
        with brief_read(self._connection) as connection:
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            return _read(connection)


def _read(connection: PgConnection) -> CatalogTotals:
    *run_files, run_bytes, run_chunks, last_run_at = _row(connection, _RUNS)
    records, unwritten_since = _row(connection, _JOURNAL)
    without_copy, adopted = _row(connection, _WITHOUT_COPY)
    never, verified_since, never_since = _row(connection, _VERIFIED)
    backups = _rows(connection, _BACKUP)
    backup_at, backup_bytes, changes = backups[0] if backups else (None, None, 0)
    return CatalogTotals(
        chunks={state: ChunkTotals(*totals) for state, *totals in _rows(connection, _CHUNKS)},
        runs=_counts(connection, "SELECT state, count(*) FROM ingest_runs GROUP BY 1"),
        run_files=dict(zip(_RUN_COUNTS, run_files, strict=True)),
        run_bytes=run_bytes,
        run_chunks=run_chunks,
        last_run_at=last_run_at,
        leases={kind: LeaseTotals(*leases) for kind, *leases in _rows(connection, _LEASES)},
        left=_counts(connection, _LEFT),
        shards=_counts(connection, _SHARDS),
        unwritten_records=records,
        unwritten_since=unwritten_since,
        without_copy=without_copy,
        adopted=adopted,
        never_verified=never,
        never_verified_since=never_since,
        verified_since=verified_since,
        verdicts=_counts(connection, _VERDICTS),
        copy_verdicts=_counts(connection, _COPY_VERDICTS),
        findings=_counts(connection, _FINDINGS),
        backup_at=backup_at,
        backup_bytes=backup_bytes,
        changes_since_backup=changes,
        catalog_bytes=_row(connection, "SELECT pg_database_size(current_database())")[0],
        dead_runs=tuple(run for run, owner in _rows(connection, _RUNNING) if is_dead(owner)),
    )


def _rows(connection: PgConnection, statement: str) -> list[tuple[Any, ...]]:
    return connection.execute(statement.encode(), {"chunks": None}).fetchall()  # of DAMAGED: all chunks


def _row(connection: PgConnection, statement: str) -> tuple[Any, ...]:
    [row] = _rows(connection, statement)
    return row


def _counts(connection: PgConnection, statement: str) -> dict[str, int]:
    return {str(name): count for name, count in _rows(connection, statement)}
