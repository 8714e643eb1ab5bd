-- What changed between two runs?
-- :first RECORDED_RUN Number of the earlier run. Example: 1
-- :last RECORDED_RUN Number of the later run. Example: 2
-- The changes after the end of the first run, until the end of the last one, by whatever command. A file that was packed
-- again with the same content did not change.
SELECT change, file_path, old_bytes, new_bytes, run_id FROM cafcat_ops.changes_between(:first, :last)
ORDER BY file_path;
