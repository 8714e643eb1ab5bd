-- Which live files did a run bring?
-- :run RUN Number of the run. Example: 1
-- Files stay with their run when repack or repair moves them.
SELECT file_path, size_bytes, chunk FROM cafcat_ops.files_of_run(:run) ORDER BY file_path;
