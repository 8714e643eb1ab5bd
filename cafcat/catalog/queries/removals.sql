-- When were files removed or brought back, and by whom?
-- A removal with a run_id is that of an ingest with --delete. `cafcat query history` has the same for one file. A rebuild
-- loses these events.
SELECT happened_at, kind, actor, run_id, detail FROM events WHERE kind IN ('files_removed', 'files_restored')
AND files_change IS NOT NULL ORDER BY happened_at DESC LIMIT 50;
