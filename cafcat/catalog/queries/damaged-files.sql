-- Which live files are known to be damaged in their chunk?
-- A failed check counts until a later check of the same level, or of level data, was ok.
SELECT DISTINCT l.file_path, c.uuid AS chunk, v.finished_at
FROM (SELECT DISTINCT ON (b.chunk_id) * FROM verifications AS b
      WHERE b.chunk_id IS NOT NULL AND b.copy_id IS NULL AND b.verdict <> 'ok' AND NOT EXISTS (
          SELECT FROM verifications AS later
          WHERE later.chunk_id = b.chunk_id AND later.copy_id IS NULL AND later.id > b.id
            AND later.verdict = 'ok' AND (later.level IN (b.level, 'data') OR b.verdict = 'missing'))
      ORDER BY b.chunk_id, b.id DESC) AS v
JOIN findings AS f ON f.verification_id = v.id AND f.kind IN ('file', 'size', 'missing')
JOIN chunks AS c ON c.id = v.chunk_id AND c.state = 'committed'
CROSS JOIN LATERAL (SELECT file_path FROM file_locations AS l WHERE l.caf_file_id = v.chunk_id
                    AND l.start_byte < l.end_byte AND (f.start_byte IS NULL OR l.start_byte < f.end_byte AND l.end_byte > f.start_byte) OFFSET 0) AS l
ORDER BY l.file_path;
