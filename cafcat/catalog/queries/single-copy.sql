-- Which chunks have no second copy?
SELECT chunk, store, size_bytes, live_files FROM cafcat_ops.single_copy ORDER BY committed_at;
