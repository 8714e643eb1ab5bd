-- Which chunks have no live file any more, so that prune can delete them?
-- A deleted chunk without deleted_at may still have an object.
SELECT uuid AS chunk, state, store, size_bytes, retired_at, now() - retired_at AS without_files_for
FROM chunks WHERE state = 'retired' OR (state = 'deleted' AND deleted_at IS NULL) ORDER BY retired_at;
