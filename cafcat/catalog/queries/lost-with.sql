-- Which files are lost if a chunk is lost?
-- :chunk UUID The chunk. Example: 00000000-0000-0000-0000-000000000000
-- None, if the chunk has a copy in another store that no check found damaged or missing.
SELECT file_path, size_bytes FROM cafcat_ops.lost_with(:chunk) ORDER BY file_path;
