-- How many bytes would be saved if each content was stored once?
-- This reads all files.
SELECT count(*) AS contents, coalesce(sum(files - 1), 0)::bigint AS repeated_files,
       coalesce(sum(repeated_bytes), 0)::bigint AS repeated_bytes
FROM cafcat_ops.duplicates;
