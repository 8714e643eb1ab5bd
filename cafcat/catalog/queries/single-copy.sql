-- Which chunks have no second copy?
-- A copy that a check found damaged or missing does not count.
-- An adopted archive never has one. To copy its files, first move them into new chunks: `cafcat repack --chunk`.
SELECT chunk, store, size_bytes, live_files, is_adopted FROM cafcat_ops.single_copy ORDER BY committed_at;
