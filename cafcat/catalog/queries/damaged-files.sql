-- Which live files were found damaged at the last check of their chunk?
SELECT DISTINCT l.file_path, c.uuid AS chunk, v.finished_at
FROM (SELECT DISTINCT ON (chunk_id) * FROM verifications
      WHERE copy_id IS NULL AND chunk_id IS NOT NULL ORDER BY chunk_id, id DESC) AS v
JOIN findings AS f ON f.verification_id = v.id AND f.kind IN ('file', 'size', 'missing')
JOIN chunks AS c ON c.id = v.chunk_id AND c.state = 'committed'
CROSS JOIN LATERAL (SELECT file_path FROM file_locations AS l WHERE l.caf_file_id = v.chunk_id
                    AND (f.start_byte IS NULL OR l.start_byte < f.end_byte AND l.end_byte > f.start_byte) OFFSET 0) AS l
WHERE v.verdict <> 'ok' ORDER BY l.file_path;
