-- How much did the catalog grow each day?
-- Days in UTC. Files that repack or repair moved do not count, removed files count as negative. After a rebuild, files that
-- prune had deleted before do not count, nor do removals that undelete took back.
SELECT day, files, bytes, total_files, total_bytes FROM cafcat_ops.growth_by_day ORDER BY day DESC LIMIT 60;
