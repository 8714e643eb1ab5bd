-- Which files of a folder came from a bucket, with which entity tags?
-- :folder FOLDER The folder; empty for everything. Example: photos/
-- Compare them with an S3 Inventory.
SELECT file_path, size_bytes, source, source_etag FROM cafcat_ops.files
WHERE file_path >= :folder AND (:folder = '' OR file_path < left(:folder, -1) || '0') AND source_etag IS NOT NULL
ORDER BY file_path;
