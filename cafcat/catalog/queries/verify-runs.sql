-- Which verifies ran, and what did they find?
-- A verify without finished_at can be continued: run the same command again. Objects in a store that is out_of_reach were
-- not checked.
SELECT r.id, r.level, r.scope - 'out_of_reach' AS scope, r.host, r.started_at, r.finished_at, count(v.id) AS checked,
       count(v.id) FILTER (WHERE v.verdict <> 'ok') AS not_ok, sum(v.bytes_read) AS bytes_read,
       r.scope -> 'out_of_reach' AS out_of_reach
FROM verify_runs AS r LEFT JOIN verifications AS v ON v.run_id = r.id
GROUP BY r.id ORDER BY r.id DESC LIMIT 20;
