-- What did the latest ingests bring?
-- The latest twenty, adoptions of archives included. A killed run has counts after the next ingest or `cafcat recover`.
SELECT run_id, state, actor, started_at, finished_at, seconds, sources, files_added, files_replaced, files_removed, files_failed,
       bytes_added,
       round(bytes_added / nullif(seconds, 0)) AS bytes_per_second, error
FROM cafcat_ops.runs ORDER BY run_id DESC LIMIT 20;
