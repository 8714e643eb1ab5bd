-- Which files below a folder are the largest?
-- :folder FOLDER The folder; empty for everything. Example: photos/
-- This reads the whole folder.
SELECT file_path, size_bytes, chunk FROM cafcat_ops.files
WHERE file_path >= :folder AND (:folder = '' OR file_path < left(:folder, -1) || '0')
ORDER BY size_bytes DESC, file_path LIMIT 20;
