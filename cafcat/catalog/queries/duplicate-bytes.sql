-- How many bytes would be saved if each content was stored once?
-- This reads all files.
SELECT count(*) AS contents, sum(files - 1)::bigint AS repeated_files, sum(repeated_bytes)::bigint AS repeated_bytes
FROM cafcat_ops.duplicates;
