-- Which chunks may have left objects or uploads in a store, which cost money?
-- recover examines them and removes what is not needed.
SELECT uuid AS chunk, state, store, object_key, upload_id, lease_owner, lease_expires_at
FROM chunks WHERE state = 'writing' OR (state = 'abandoned' AND deleted_at IS NULL) ORDER BY id;
