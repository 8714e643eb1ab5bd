-- Which files did a run replace or remove?
-- :run RECORDED_RUN Number of the run. Example: 2
-- An ingest removes files with --delete. The run of files that rm removed is NULL.
SELECT ended_by, file_path, size_bytes, current_since, current_until FROM cafcat_ops.file_history
WHERE ended_by_run_id = :run
  AND current_until >= (SELECT started_at FROM cafcat_ops.runs WHERE run_id = :run)
  AND current_until <= (SELECT coalesce(finished_at, now()) FROM cafcat_ops.runs WHERE run_id = :run)
ORDER BY file_path;
