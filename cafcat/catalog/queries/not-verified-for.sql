-- Which chunks were not found whole by a check of level data for some days?
-- :days DAYS Number of days. Example: 90
-- Chunks that were never found whole come first.
SELECT chunk, store, size_bytes, last_whole_at FROM cafcat_ops.chunk_health
WHERE last_whole_at IS NULL OR last_whole_at < now() - make_interval(days => :days) ORDER BY last_whole_at NULLS FIRST;
