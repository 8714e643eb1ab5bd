-- Which chunks did no check ever read as a whole?
SELECT chunk, run_id, store, size_bytes, live_files, committed_at, last_checked_at, last_level, last_verdict
FROM cafcat_ops.unverified ORDER BY committed_at;
