-- Which backups of the catalog are there, and how many changes came after each?
-- A change is a commit of a chunk, a removal or a restoration, however many files it has.
SELECT b.id, b.store, b.object_key, b.size_bytes, b.begun_at,
       (SELECT count(*) FROM journal AS j WHERE j.id > b.journal_id) AS later_changes
FROM backups AS b WHERE b.state = 'committed' ORDER BY b.begun_at DESC LIMIT 20;
