-- Which chunks and copies are known to be damaged, missing or unreadable, and what was found?
-- A failed check counts until a later check of the same level, or of level data, was ok, or the copy was replaced.
-- is_live is true if a live file needs the damaged bytes now.
SELECT c.uuid AS chunk, v.copy_id IS NOT NULL AS is_copy, v.level, v.verdict, v.finished_at, f.kind, f.file_path,
       f.file_count, f.is_live AND c.live_file_count > 0 AND (f.kind <> 'file' OR f.file_path IS NULL OR EXISTS (
           SELECT FROM file_locations AS l WHERE l.file_path = f.file_path AND l.caf_file_id = c.id OFFSET 0)) AS is_live,
       f.detail
FROM (SELECT DISTINCT ON (b.chunk_id, b.copy_id) * FROM verifications AS b
      WHERE b.chunk_id IS NOT NULL AND b.verdict <> 'ok' AND NOT EXISTS (
          SELECT FROM verifications AS later
          WHERE later.chunk_id = b.chunk_id AND later.copy_id IS NOT DISTINCT FROM b.copy_id AND later.id > b.id
            AND later.verdict = 'ok' AND (later.level IN (b.level, 'data') OR b.verdict = 'missing'))
      ORDER BY b.chunk_id, b.copy_id, b.id DESC) AS v
JOIN chunks AS c ON c.id = v.chunk_id AND c.state IN ('committed', 'retired')
LEFT JOIN chunk_copies AS k ON k.id = v.copy_id
LEFT JOIN findings AS f ON f.verification_id = v.id
WHERE v.copy_id IS NULL OR k.state = 'committed' AND k.retired_at IS NULL
ORDER BY c.id, f.id;
