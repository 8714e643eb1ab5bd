-- When were files removed or brought back, and by whom?
SELECT happened_at, kind, actor, detail FROM events WHERE kind IN ('files_removed', 'files_restored')
AND files_change IS NOT NULL ORDER BY happened_at DESC LIMIT 50;
