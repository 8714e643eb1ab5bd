-- Which versions did a path have, and when?
-- :path FILE The file. Example: photos/2026/cat.jpg
-- The live version has no current_until. A version whose is_kept is false was deleted by prune, or lost with its store.
SELECT current_since, current_until, ended_by, ended_by_actor, size_bytes, run_id, chunk, is_kept
FROM cafcat_ops.file_history WHERE file_path = :path ORDER BY current_since DESC;
