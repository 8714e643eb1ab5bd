-- Which removed files can undelete bring back? The latest first.
-- The latest twenty; `cafcat undelete --list` lists all.
SELECT r.retired_at, r.file_path, coalesce(r.content_bytes, r.end_byte - r.start_byte) AS size_bytes, c.uuid AS chunk
FROM retired_locations AS r
CROSS JOIN LATERAL (SELECT uuid FROM chunks WHERE id = r.caf_file_id AND state IN ('committed', 'retired') OFFSET 0) AS c
WHERE r.reason = 'removed'
  AND NOT EXISTS (SELECT FROM file_locations AS l WHERE l.file_path = r.file_path OFFSET 0)
  AND NOT EXISTS (SELECT FROM retired_locations AS n
                  WHERE n.file_path = r.file_path AND n.reason = 'removed' AND n.id > r.id OFFSET 0)
ORDER BY r.id DESC LIMIT 20;
