-- What did the latest ingests bring?
SELECT run_id, state, started_at, seconds, sources, files_added, files_replaced, files_removed, files_failed,
       bytes_added,
       round(bytes_added / nullif(seconds, 0)) AS bytes_per_second
FROM cafcat_ops.runs ORDER BY run_id DESC LIMIT 20;
