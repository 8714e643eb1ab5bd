-- How many removed files can undelete bring back?
-- This reads all versions that were removed or replaced.
SELECT count(*) AS files, coalesce(sum(size_bytes), 0)::bigint AS bytes FROM (
    SELECT DISTINCT ON (r.file_path) coalesce(r.content_bytes, r.end_byte - r.start_byte) AS size_bytes
    FROM retired_locations AS r
    CROSS JOIN LATERAL (SELECT FROM chunks WHERE id = r.caf_file_id AND state IN ('committed', 'retired') OFFSET 0) AS c
    WHERE r.reason = 'removed'
      AND NOT EXISTS (SELECT FROM file_locations AS l WHERE l.file_path = r.file_path OFFSET 0)
    ORDER BY r.file_path, r.id DESC
) AS removed;
