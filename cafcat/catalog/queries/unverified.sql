-- Which chunks were never found whole by a check of level data?
-- `cafcat query damaged` also has chunks that were found whole first, and damaged later.
-- A chunk without last_checked_at was never checked at any level.
SELECT chunk, run_id, store, size_bytes, live_files, committed_at, last_checked_at, last_level, last_verdict
FROM cafcat_ops.unverified ORDER BY committed_at;
