-- Which chunks has no check of level data found whole?
-- A chunk that such a check found damaged is among them. A chunk without last_checked_at was never checked at any level.
SELECT chunk, run_id, store, size_bytes, live_files, committed_at, last_checked_at, last_level, last_verdict
FROM cafcat_ops.unverified ORDER BY committed_at;
