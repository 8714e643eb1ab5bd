-- Which files are lost if a store is lost?
-- :store STORE The store. Example: file:///mnt/second/chunks
-- Files of the chunks that have an object in this store, and in no other store an object that no check found damaged or missing.
SELECT l.file_path, coalesce(l.content_bytes, l.end_byte - l.start_byte) AS size_bytes, c.uuid AS chunk
FROM chunks AS c JOIN file_locations AS l ON l.caf_file_id = c.id
WHERE c.state = 'committed'
  AND (c.store = :store OR EXISTS (
    SELECT FROM chunk_copies AS k WHERE k.chunk_id = c.id AND k.store = :store
      AND k.state = 'committed' AND k.retired_at IS NULL))
  AND (c.store = :store OR cafcat_ops.is_broken(c.id, NULL)) AND NOT EXISTS (
    SELECT FROM chunk_copies AS k WHERE k.chunk_id = c.id AND k.state = 'committed' AND k.retired_at IS NULL
      AND k.store <> :store AND NOT cafcat_ops.is_broken(k.chunk_id, k.id))
ORDER BY c.id, l.file_path;
