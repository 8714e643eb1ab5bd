-- Which other files have the content of a file?
-- :path FILE Path of the file. Example: photos/2026/cat.jpg
-- Same size and checksum. 32 bits can collide. This reads all files.
SELECT o.file_path, o.size_bytes, o.crc32c, o.chunk
FROM cafcat_ops.files AS f JOIN cafcat_ops.files AS o ON o.size_bytes = f.size_bytes AND o.crc32c = f.crc32c
WHERE f.file_path = :path AND o.file_path <> f.file_path ORDER BY o.file_path;
