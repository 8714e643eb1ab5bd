-- Which archives may have records of a log folder from a time on?
-- :folder LOGS The folder; empty for everything. Example: app/
-- :begin TIME Earliest time of the records. Example: 2026-11-21
-- :end TIME Time after the records. Example: 2026-11-22
-- The times are the range of all records of an archive, from all its log files. Archives without times are listed, too.
SELECT log_file, records, chunk, state, store, object_key, begin_at, end_at FROM units
WHERE log_file >= :folder AND (:folder = '' OR log_file < left(:folder, -1) || '0')
  AND coalesce(begin_at < :end, true) AND coalesce(end_at >= :begin, true)
ORDER BY log_file;
