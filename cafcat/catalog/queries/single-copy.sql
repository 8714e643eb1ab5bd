-- Which chunks have no second copy?
-- An adopted archive never has one. To copy its files, first move them into new chunks: `cafcat repack --chunk`.
SELECT chunk, store, size_bytes, live_files, is_adopted FROM cafcat_ops.single_copy ORDER BY committed_at;
