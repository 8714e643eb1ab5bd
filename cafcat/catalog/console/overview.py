"""Queries of the overview: sums over chunks and runs, never over files."""

from collections.abc import Sequence
from typing import Final

from cafcat.catalog.console.reading import PageQueries, Row

__all__ = ["chunk_states", "growth", "most_dead", "rates", "running", "verification_ages"]

_STATES: Final = """
SELECT state, count(*) AS chunks, coalesce(sum(size_bytes), 0)::bigint AS size_bytes,
       coalesce(sum(data_bytes), 0)::bigint AS data_bytes, sum(live_bytes)::bigint AS live_bytes,
       sum(live_file_count)::bigint AS files
FROM chunks GROUP BY state
"""
_GROWTH: Final = """
WITH grown AS (
    SELECT (happened_at AT TIME ZONE 'UTC')::date AS day, sum(bytes_change)::bigint AS bytes,
           sum(files_change)::bigint AS files
    FROM events WHERE files_change IS NOT NULL AND happened_at >= current_date - %(days)s::int + 1 GROUP BY 1
)
SELECT series.day::date AS day, coalesce(grown.bytes, 0) AS bytes, coalesce(grown.files, 0) AS files
FROM generate_series(current_date - %(days)s::int + 1, current_date, interval '1 day') AS series(day)
LEFT JOIN grown ON grown.day = series.day::date ORDER BY 1
"""
_RATES: Final = """
SELECT id, started_at, bytes_added, seconds, (bytes_added / seconds)::bigint AS bytes_per_second,
       ((files_added + files_replaced) / seconds)::bigint AS files_per_second
FROM (SELECT *, extract(epoch FROM finished_at - started_at)::float AS seconds FROM (
    SELECT * FROM ingest_runs ORDER BY id DESC LIMIT 200
) AS r) AS latest
WHERE seconds > 0 AND bytes_added > 0 ORDER BY id DESC LIMIT %(limit)s
"""
_RUNNING: Final = """
SELECT id, started_at, host, sources, paused_at
FROM (SELECT * FROM ingest_runs ORDER BY id DESC LIMIT 200) AS latest
WHERE state = 'running' ORDER BY id DESC LIMIT 10
"""
_AGES: Final = """
SELECT age, count(*) AS chunks, sum(size_bytes)::bigint AS bytes FROM (
    SELECT c.size_bytes, CASE
        WHEN v.finished_at IS NULL THEN 'never'
        WHEN v.finished_at >= now() - interval '7 days' THEN 'week'
        WHEN v.finished_at >= now() - interval '30 days' THEN 'month'
        WHEN v.finished_at >= now() - interval '90 days' THEN 'quarter'
        ELSE 'older' END AS age
    FROM chunks AS c LEFT JOIN LATERAL (
        SELECT finished_at FROM verifications
        WHERE chunk_id = c.id AND copy_id IS NULL AND level = 'data' AND verdict = 'ok' ORDER BY id DESC LIMIT 1
    ) AS v ON true
    WHERE c.state = 'committed'
) AS checked GROUP BY age
"""
_MOST_DEAD: Final = """
SELECT uuid, store, data_bytes, live_bytes, data_bytes - live_bytes AS dead_bytes FROM chunks
WHERE state = 'committed' AND data_bytes > live_bytes ORDER BY data_bytes - live_bytes DESC, id LIMIT %(limit)s
"""


def chunk_states(queries: PageQueries) -> Sequence[Row]:
    """Return number, sizes in bytes and live files of the chunks in each state. This reads one row per chunk."""
    return queries.rows(_STATES)


def growth(queries: PageQueries, days: int) -> Sequence[Row]:
    """Return by how many bytes and files the live files grew on each of the last days (UTC), the last one today."""
    return queries.rows(_GROWTH, {"days": days})


def rates(queries: PageQueries, limit: int) -> Sequence[Row]:
    """Return bytes, seconds and rates of the latest ingests that have packed something, newest first."""
    return queries.rows(_RATES, {"limit": limit})


def running(queries: PageQueries) -> Sequence[Row]:
    """Return the ingests that are running, newest first."""
    return queries.rows(_RUNNING)


def verification_ages(queries: PageQueries) -> Sequence[Row]:
    """Return number and bytes of the committed chunks by the age of their last good check of all bytes.

    The ages are "week", "month", "quarter", "older" and "never".
    """
    return queries.rows(_AGES)


def most_dead(queries: PageQueries, limit: int) -> Sequence[Row]:
    """Return the committed chunks with the most dead bytes."""
    return queries.rows(_MOST_DEAD, {"limit": limit})
