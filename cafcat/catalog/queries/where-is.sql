-- Where is a file, and where are its copies?
-- :path FILE The file. Example: photos/2026/cat.jpg
-- The first row is the chunk from which files are read. If decoding is NULL, bytes [start_byte, end_byte) are the file.
-- A place whose is_broken is true was found damaged or missing.
SELECT f.file_path, f.size_bytes, f.chunk, f.url, f.start_byte, f.end_byte, f.crc32c, f.decoding,
       cafcat_ops.is_broken(c.id, NULL) AS is_broken
FROM cafcat_ops.files AS f JOIN chunks AS c ON c.uuid = f.chunk WHERE f.file_path = :path
UNION ALL
SELECT f.file_path, f.size_bytes, f.chunk, k.store || '/' || k.object_key, f.start_byte, f.end_byte, f.crc32c,
       f.decoding, cafcat_ops.is_broken(c.id, k.id)
FROM cafcat_ops.files AS f JOIN chunks AS c ON c.uuid = f.chunk
JOIN chunk_copies AS k ON k.chunk_id = c.id AND k.state = 'committed' AND k.retired_at IS NULL
WHERE f.file_path = :path;
