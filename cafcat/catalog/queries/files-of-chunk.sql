-- Which live files are in a chunk?
-- :chunk UUID The chunk. Example: 00000000-0000-0000-0000-000000000000
SELECT file_path, size_bytes, start_byte, end_byte FROM cafcat_ops.files WHERE chunk = :chunk ORDER BY start_byte;
