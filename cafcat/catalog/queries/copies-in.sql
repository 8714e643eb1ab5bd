-- Of which chunks does a store have copies?
-- :store STORE The store. Example: file:///mnt/second/chunks
-- A copy whose is_broken is true was found damaged or missing.
SELECT c.uuid AS chunk, k.object_key, c.size_bytes, k.committed_at AS copied_at, k.retired_at IS NOT NULL AS is_left_behind,
       cafcat_ops.is_broken(k.chunk_id, k.id) AS is_broken
FROM chunk_copies AS k JOIN chunks AS c ON c.id = k.chunk_id
WHERE k.store = :store AND k.state = 'committed' AND k.deleted_at IS NULL ORDER BY k.committed_at, c.id;
