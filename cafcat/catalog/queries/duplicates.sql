-- Which files are there more than once?
-- Same size and checksum. 32 bits can collide, so compare the files before you remove one. This reads all files.
SELECT crc32c, size_bytes, files, repeated_bytes, first_path FROM cafcat_ops.duplicates
ORDER BY repeated_bytes DESC LIMIT 20;
