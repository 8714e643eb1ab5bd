-- Which chunks and copies were not ok at their last check, and what was found?
SELECT c.uuid AS chunk, v.copy_id IS NOT NULL AS is_copy, v.level, v.verdict, v.finished_at, f.kind, f.file_path,
       f.file_count, f.is_live, f.detail
FROM (SELECT DISTINCT ON (chunk_id, copy_id) * FROM verifications
      WHERE chunk_id IS NOT NULL ORDER BY chunk_id, copy_id, id DESC) AS v
JOIN chunks AS c ON c.id = v.chunk_id AND c.state IN ('committed', 'retired')
LEFT JOIN findings AS f ON f.verification_id = v.id
WHERE v.verdict <> 'ok' ORDER BY c.id, f.id;
