-- Which archives were adopted, when, and by whom?
SELECT h.chunk, h.format, h.store || '/' || h.object_key AS url, h.committed_at AS adopted_at, h.run_id,
       (SELECT e.actor FROM events AS e JOIN chunks AS c ON c.id = e.chunk_id
        WHERE c.uuid = h.chunk AND e.kind = 'chunk_adopted' LIMIT 1) AS actor, h.files, h.live_files
FROM cafcat_ops.chunk_health AS h WHERE h.is_adopted ORDER BY h.committed_at;
