-- Which backups of the catalog are there, and how many changes came after each?
-- A change is a commit of a chunk, a removal or a restoration, however many files it has. After a rebuild, the catalog has no
-- journal_id of earlier backups: their later changes are found by time. A restored catalog lacks the changes after its backup, and
-- does not count them.
SELECT b.id, b.store, b.object_key, b.size_bytes, b.begun_at,
       (SELECT count(*) FROM journal AS j WHERE j.id > coalesce(b.journal_id, (
            SELECT o.id FROM journal AS o WHERE o.happened_at <= b.begun_at ORDER BY o.id DESC LIMIT 1
        ), 0)) AS later_changes
FROM backups AS b WHERE b.state = 'committed' ORDER BY b.begun_at DESC LIMIT 20;
