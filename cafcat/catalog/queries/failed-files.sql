-- Which files could a run not pack, and why?
-- :run RECORDED_RUN Number of the run. Example: 1
SELECT happened_at, file_path, detail FROM events WHERE run_id = :run AND kind = 'file_failed' ORDER BY id;
