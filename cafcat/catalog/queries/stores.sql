-- What is in each store?
SELECT s.name, s.url, s.home_path IS NOT NULL AS moves_with_home,
       (SELECT count(*) FROM chunks AS c WHERE c.store = s.url AND c.state IN ('committed', 'retired')) AS chunks,
       (SELECT coalesce(sum(c.size_bytes), 0) FROM chunks AS c
        WHERE c.store = s.url AND c.state IN ('committed', 'retired')) AS bytes,
       (SELECT count(*) FROM chunk_copies AS k WHERE k.store = s.url AND k.state = 'committed') AS copies,
       (SELECT coalesce(sum(c.size_bytes), 0) FROM chunk_copies AS k JOIN chunks AS c ON c.id = k.chunk_id
        WHERE k.store = s.url AND k.state = 'committed') AS copy_bytes,
       (SELECT count(*) FROM backups AS b WHERE b.store = s.url AND b.state = 'committed') AS backups
FROM stores AS s ORDER BY s.id;
