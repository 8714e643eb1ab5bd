-- Which parts of a run by many workers are open, and who works on them?
-- :run RUN Number of the run. Example: 1
SELECT id, state, host, attempts, source, after_position, through_position, position, error
FROM shards WHERE run_id = :run AND state IN ('waiting', 'running') ORDER BY id;
