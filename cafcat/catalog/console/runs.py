"""Queries of the pages of ingests."""

from collections.abc import Sequence
from typing import Final

from cafcat.catalog.console.reading import PageQueries, Row

__all__ = ["chunks_of_run", "events_of_run", "run", "runs_page", "shard_states", "written"]

_RUN: Final = """
SELECT id, state, sources, started_at, finished_at, files_added, files_replaced, files_removed,
       files_unchanged, files_skipped, files_failed, bytes_added,
       chunks_committed, host, process_id, cafcat_version, options, error, paused_at,
       extract(epoch FROM CASE WHEN state = 'running' THEN now() ELSE finished_at END
                          - started_at)::float AS seconds
FROM ingest_runs
"""
_WRITTEN: Final = """
SELECT sum(file_count)::bigint AS files, sum(data_bytes)::bigint AS bytes, count(*) AS chunks
FROM chunks WHERE run_id = %(run)s AND committed_at IS NOT NULL
"""
_CHUNKS: Final = """
SELECT uuid, state, size_bytes, file_count, begun_at, committed_at, lease_expires_at < now() AS is_expired FROM (
    SELECT * FROM chunks WHERE run_id = %(run)s OFFSET 0
) AS c ORDER BY id DESC LIMIT 100
"""
_EVENTS: Final = """
SELECT id, happened_at, kind, file_path, detail FROM (
    SELECT * FROM events WHERE run_id = %(run)s AND id < %(before)s OFFSET 0
) AS e ORDER BY id DESC LIMIT %(limit)s
"""
_SHARDS: Final = """
SELECT state, count(*) AS shards,
       sum(coalesce((report->>'files')::bigint, 0) + coalesce((progress->>'files')::bigint, 0))::bigint AS files
FROM shards WHERE run_id = %(run)s GROUP BY state ORDER BY state
"""


def runs_page(queries: PageQueries, before: int, limit: int) -> Sequence[Row]:
    """Return ingests with a lower number than `before`, the latest first."""
    return queries.rows(
        f"{_RUN} WHERE id < %(before)s ORDER BY id DESC LIMIT %(limit)s", {"before": before, "limit": limit}
    )


def run(queries: PageQueries, run_id: int) -> Row | None:
    """Return an ingest by its number; None if the catalog has no such ingest."""
    rows = queries.rows(f"{_RUN} WHERE id = %(run)s", {"run": run_id})
    return rows[0] if rows else None


def written(queries: PageQueries, run_id: int) -> Row:
    """Return files, bytes and number of the chunks that an ingest has committed until now."""
    return queries.rows(_WRITTEN, {"run": run_id})[0]


def chunks_of_run(queries: PageQueries, run_id: int) -> Sequence[Row]:
    """Return the latest 100 chunks of an ingest, newest first."""
    return queries.rows(_CHUNKS, {"run": run_id})


def events_of_run(queries: PageQueries, run_id: int, before: int, limit: int) -> Sequence[Row]:
    """Return events of an ingest with a lower number than `before`, newest first."""
    return queries.rows(_EVENTS, {"run": run_id, "before": before, "limit": limit})


def shard_states(queries: PageQueries, run_id: int) -> Sequence[Row]:
    """Return how many shards of an ingest by many workers are in each state, with the files that are dealt with."""
    return queries.rows(_SHARDS, {"run": run_id})
