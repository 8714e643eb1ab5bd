-- Which verifies ran, and what did they find?
-- A verify without finished_at can be continued: run the same command again.
SELECT r.id, r.level, r.scope, r.host, r.started_at, r.finished_at, count(v.id) AS checked,
       count(v.id) FILTER (WHERE v.verdict <> 'ok') AS not_ok, sum(v.bytes_read) AS bytes_read
FROM verify_runs AS r LEFT JOIN verifications AS v ON v.run_id = r.id
GROUP BY r.id ORDER BY r.id DESC LIMIT 20;
