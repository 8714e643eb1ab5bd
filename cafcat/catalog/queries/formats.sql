-- How many bytes does each archive format add to its files?
SELECT format, count(*) AS chunks, sum(file_count) AS files, sum(data_bytes) AS bytes,
       round(100.0 * sum(size_bytes - data_bytes) / nullif(sum(data_bytes), 0), 1) AS added_percent
FROM chunks WHERE state = 'committed' GROUP BY format ORDER BY format;
