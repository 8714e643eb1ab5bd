-- The schema cafcat_ops: views and functions for people and programs that query the catalog (docs/sql.md).
--
-- Every migration ends with this file, and so does a change of the layout of file_locations, which makes a new table.
-- CREATE OR REPLACE VIEW keeps permissions, and PostgreSQL refuses to remove, rename or reorder columns in it. So views
-- only ever gain columns, at their end. Test: tests/migrations/test_ops_views.py.

CREATE OR REPLACE FUNCTION cafcat_ops.is_broken(chunk_id bigint, copy_id bigint) RETURNS boolean
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT EXISTS (
        SELECT FROM verifications AS v
        WHERE v.chunk_id = is_broken.chunk_id AND v.copy_id IS NOT DISTINCT FROM is_broken.copy_id
          AND v.verdict IN ('damaged', 'missing') AND NOT EXISTS (
              SELECT FROM verifications AS later
              WHERE later.chunk_id = v.chunk_id AND later.copy_id IS NOT DISTINCT FROM v.copy_id AND later.id > v.id
                AND later.verdict = 'ok' AND (later.level IN (v.level, 'data') OR v.verdict = 'missing')));
END;
COMMENT ON FUNCTION cafcat_ops.is_broken IS 'True if a check found a chunk (chunks.id; copy_id is NULL) or a copy of it (chunk_copies.id) damaged or missing, and no later check found it whole.';

CREATE OR REPLACE VIEW cafcat_ops.files AS
SELECT l.file_path, coalesce(l.content_bytes, l.end_byte - l.start_byte) AS size_bytes, l.modified_at,
       coalesce(l.current_since, c.committed_at) AS current_since, coalesce(l.ingest_run_id, c.run_id) AS run_id,
       c.uuid AS chunk, c.format, c.store, c.object_key, c.store || '/' || c.object_key AS url,
       l.start_byte, l.end_byte, lpad(to_hex(l.crc32c), 8, '0') AS crc32c, l.decoding,
       s.url AS source, l.source_etag
FROM file_locations AS l JOIN chunks AS c ON c.id = l.caf_file_id LEFT JOIN sources AS s ON s.id = l.source_id;

COMMENT ON VIEW cafcat_ops.files IS 'The live files. Select by file_path or by chunk; files_of_run() has those of a run.';
COMMENT ON COLUMN cafcat_ops.files.file_path IS 'Path of the file.';
COMMENT ON COLUMN cafcat_ops.files.size_bytes IS 'Size of the file in bytes.';
COMMENT ON COLUMN cafcat_ops.files.modified_at IS 'Modification time at the source; NULL where the source has none.';
COMMENT ON COLUMN cafcat_ops.files.current_since IS 'Since when the path has this content.';
COMMENT ON COLUMN cafcat_ops.files.run_id IS 'Run that brought the file, also after repack or repair; NULL if no run is known.';
COMMENT ON COLUMN cafcat_ops.files.chunk IS 'UUID of the chunk that contains the file.';
COMMENT ON COLUMN cafcat_ops.files.format IS 'Format of that archive: caf, car, chunkio, ...';
COMMENT ON COLUMN cafcat_ops.files.store IS 'URL of the store that contains the chunk.';
COMMENT ON COLUMN cafcat_ops.files.object_key IS 'Key of the chunk in its store.';
COMMENT ON COLUMN cafcat_ops.files.url IS 'URL of the chunk: store and key.';
COMMENT ON COLUMN cafcat_ops.files.start_byte IS 'First byte of the file in the chunk.';
COMMENT ON COLUMN cafcat_ops.files.end_byte IS 'One past the last byte of the file in the chunk.';
COMMENT ON COLUMN cafcat_ops.files.crc32c IS 'CRC-32C (Castagnoli) of the file: 8 hexadecimal digits.';
COMMENT ON COLUMN cafcat_ops.files.decoding IS 'How the format makes the file of these bytes; NULL where the bytes are the file.';
COMMENT ON COLUMN cafcat_ops.files.source IS 'Folder, bucket or server that the file was read from; NULL if unknown.';
COMMENT ON COLUMN cafcat_ops.files.source_etag IS 'Entity tag of the file at its source; NULL where the source has none.';

CREATE OR REPLACE VIEW cafcat_ops.file_history AS
SELECT v.file_path, coalesce(v.content_bytes, v.end_byte - v.start_byte) AS size_bytes, v.modified_at,
       coalesce(v.current_since, c.committed_at) AS current_since, v.retired_at AS current_until, v.reason AS ended_by,
       v.retiring_run_id AS ended_by_run_id, coalesce(v.ingest_run_id, c.run_id) AS run_id,
       c.uuid AS chunk, c.state IN ('committed', 'retired') AS is_kept, c.store, c.object_key,
       v.start_byte, v.end_byte, lpad(to_hex(v.crc32c), 8, '0') AS crc32c,
       (SELECT e.actor FROM events AS e
        WHERE e.files_change IS NOT NULL AND e.happened_at = v.retired_at
          AND e.kind = CASE v.reason WHEN 'removed' THEN 'files_removed' ELSE 'chunk_committed' END
        LIMIT 1) AS ended_by_actor
FROM (
    SELECT file_path, content_bytes, start_byte, end_byte, modified_at, current_since, NULL::timestamptz AS retired_at,
           NULL::text AS reason, NULL::bigint AS retiring_run_id, ingest_run_id, caf_file_id, crc32c
    FROM file_locations
    UNION ALL
    SELECT file_path, content_bytes, start_byte, end_byte, modified_at, current_since, retired_at,
           reason, run_id, ingest_run_id, caf_file_id, crc32c
    FROM retired_locations WHERE reason IN ('replaced', 'removed')
    UNION ALL
    SELECT file_path, content_bytes, start_byte, end_byte, modified_at, current_since, removed_at,
           'removed', removed_by_run_id, ingest_run_id, caf_file_id, crc32c
    FROM restored_locations
) AS v JOIN chunks AS c ON c.id = v.caf_file_id;

COMMENT ON VIEW cafcat_ops.file_history IS 'All versions of files: the live one, and those that were replaced or removed. Select by file_path.';
COMMENT ON COLUMN cafcat_ops.file_history.file_path IS 'Path of the file.';
COMMENT ON COLUMN cafcat_ops.file_history.size_bytes IS 'Size of the version in bytes.';
COMMENT ON COLUMN cafcat_ops.file_history.modified_at IS 'Modification time at the source; NULL where the source has none.';
COMMENT ON COLUMN cafcat_ops.file_history.current_since IS 'Since when the path had this content. Of an undeleted file, the time of the undelete: the time before is another row.';
COMMENT ON COLUMN cafcat_ops.file_history.current_until IS 'Until when; NULL for the live version.';
COMMENT ON COLUMN cafcat_ops.file_history.ended_by IS 'replaced (by a newer version) or removed; NULL for the live version.';
COMMENT ON COLUMN cafcat_ops.file_history.ended_by_run_id IS 'Run that replaced the version, or removed it with --delete; NULL if none did.';
COMMENT ON COLUMN cafcat_ops.file_history.run_id IS 'Run that brought the version; NULL if no run is known.';
COMMENT ON COLUMN cafcat_ops.file_history.chunk IS 'UUID of the chunk that contains the version.';
COMMENT ON COLUMN cafcat_ops.file_history.is_kept IS 'True while the catalog still has the chunk; false after prune deleted it, or it was lost with its store.';
COMMENT ON COLUMN cafcat_ops.file_history.store IS 'URL of the store of the chunk.';
COMMENT ON COLUMN cafcat_ops.file_history.object_key IS 'Key of the chunk in its store.';
COMMENT ON COLUMN cafcat_ops.file_history.start_byte IS 'First byte of the version in the chunk.';
COMMENT ON COLUMN cafcat_ops.file_history.end_byte IS 'One past its last byte.';
COMMENT ON COLUMN cafcat_ops.file_history.crc32c IS 'CRC-32C (Castagnoli) of the version: 8 hexadecimal digits.';
COMMENT ON COLUMN cafcat_ops.file_history.ended_by_actor IS 'User and host that replaced or removed the version; NULL for the live version, and after a rebuild.';

CREATE OR REPLACE VIEW cafcat_ops.chunk_health AS
SELECT c.uuid AS chunk, c.state, c.format, c.store, c.object_key, c.committed_at, c.size_bytes,
       c.file_count AS files, c.live_file_count AS live_files, c.live_bytes, c.data_bytes - c.live_bytes AS dead_bytes,
       round(100.0 * c.live_bytes / nullif(c.data_bytes, 0), 1) AS live_percent,
       (SELECT count(*) FROM chunk_copies AS k
        WHERE k.chunk_id = c.id AND k.state = 'committed' AND k.retired_at IS NULL
          AND NOT cafcat_ops.is_broken(k.chunk_id, k.id)) AS copies,
       last.finished_at AS last_checked_at, last.level AS last_level, last.verdict AS last_verdict,
       whole.finished_at AS last_whole_at,
       CASE WHEN last.verdict IS NULL AND copy.verdict IS NULL THEN NULL
            ELSE coalesce(last.verdict = 'ok', false) OR coalesce(copy.verdict = 'ok', false) END AS is_readable,
       c.run_id, c.adopted_prefix IS NOT NULL AS is_adopted
FROM chunks AS c
LEFT JOIN LATERAL (
    SELECT v.finished_at, v.level, v.verdict FROM verifications AS v
    WHERE v.chunk_id = c.id AND v.copy_id IS NULL
    ORDER BY (v.verdict <> 'ok' AND NOT EXISTS (
        SELECT FROM verifications AS later
        WHERE later.chunk_id = v.chunk_id AND later.copy_id IS NOT DISTINCT FROM v.copy_id AND later.id > v.id
          AND later.verdict = 'ok' AND (later.level IN (v.level, 'data') OR v.verdict = 'missing'))) DESC, v.id DESC
    LIMIT 1) AS last ON true
LEFT JOIN LATERAL (SELECT finished_at FROM verifications
                   WHERE chunk_id = c.id AND copy_id IS NULL AND level = 'data' AND verdict = 'ok'
                   ORDER BY id DESC LIMIT 1) AS whole ON true
LEFT JOIN LATERAL (
    SELECT min(v.verdict) FILTER (WHERE v.verdict = 'ok') AS verdict, count(*) AS checked
    FROM chunk_copies AS k CROSS JOIN LATERAL (
        SELECT v.verdict FROM verifications AS v
        WHERE v.chunk_id = c.id AND v.copy_id = k.id
        ORDER BY (v.verdict <> 'ok' AND NOT EXISTS (
            SELECT FROM verifications AS later
            WHERE later.chunk_id = v.chunk_id AND later.copy_id IS NOT DISTINCT FROM v.copy_id AND later.id > v.id
              AND later.verdict = 'ok' AND (later.level IN (v.level, 'data') OR v.verdict = 'missing'))) DESC, v.id DESC
        LIMIT 1) AS v
    WHERE k.chunk_id = c.id AND k.state = 'committed' AND k.retired_at IS NULL) AS copy ON true
WHERE c.state IN ('committed', 'retired');

COMMENT ON VIEW cafcat_ops.chunk_health IS 'Each chunk that a store should have: how much of it is live, its copies, and its last check.';
COMMENT ON COLUMN cafcat_ops.chunk_health.chunk IS 'UUID of the chunk.';
COMMENT ON COLUMN cafcat_ops.chunk_health.state IS 'committed (it has live files) or retired (it has none; prune deletes it later).';
COMMENT ON COLUMN cafcat_ops.chunk_health.format IS 'Format of the archive.';
COMMENT ON COLUMN cafcat_ops.chunk_health.store IS 'URL of its store.';
COMMENT ON COLUMN cafcat_ops.chunk_health.object_key IS 'Key of its object in the store.';
COMMENT ON COLUMN cafcat_ops.chunk_health.committed_at IS 'When its files were committed.';
COMMENT ON COLUMN cafcat_ops.chunk_health.size_bytes IS 'Size of its object.';
COMMENT ON COLUMN cafcat_ops.chunk_health.files IS 'Number of files in its own index.';
COMMENT ON COLUMN cafcat_ops.chunk_health.live_files IS 'Number of these files that are live.';
COMMENT ON COLUMN cafcat_ops.chunk_health.live_bytes IS 'Total size of the live files.';
COMMENT ON COLUMN cafcat_ops.chunk_health.dead_bytes IS 'Bytes of files that were replaced, removed or moved: repack regains them.';
COMMENT ON COLUMN cafcat_ops.chunk_health.live_percent IS 'Share of the live files in the bytes of all files.';
COMMENT ON COLUMN cafcat_ops.chunk_health.copies IS 'Number of further copies in other stores, without those that a check found damaged or missing.';
COMMENT ON COLUMN cafcat_ops.chunk_health.last_checked_at IS 'End of the last check of the chunk; NULL if it was never checked. A failed check stays the last one until a check of the same level, or of level data, is ok.';
COMMENT ON COLUMN cafcat_ops.chunk_health.last_level IS 'Level of that check: catalog, index, data or source.';
COMMENT ON COLUMN cafcat_ops.chunk_health.last_verdict IS 'Its verdict: ok, damaged, missing or unreadable.';
COMMENT ON COLUMN cafcat_ops.chunk_health.last_whole_at IS 'End of the last check that read every byte and found the chunk whole; NULL if none did.';
COMMENT ON COLUMN cafcat_ops.chunk_health.is_readable IS 'True if the last check of the chunk (last_checked_at), or of one of its copies, was ok; NULL if none was checked.';
COMMENT ON COLUMN cafcat_ops.chunk_health.run_id IS 'Run that wrote or adopted the chunk; NULL for repack and repair.';
COMMENT ON COLUMN cafcat_ops.chunk_health.is_adopted IS 'True if another program wrote the archive, and cafcat adopted it in place.';

CREATE OR REPLACE VIEW cafcat_ops.runs AS
SELECT id AS run_id, state, started_at, finished_at,
       extract(epoch FROM CASE WHEN state = 'running' THEN coalesce(finished_at, now()) ELSE finished_at END
                          - started_at)::numeric(20, 3) AS seconds, host,
       CASE WHEN state <> 'rebuilt' THEN sources END AS sources,
       CASE WHEN state <> 'rebuilt' THEN files_added END AS files_added,
       CASE WHEN state <> 'rebuilt' THEN files_replaced END AS files_replaced,
       CASE WHEN state <> 'rebuilt' THEN files_unchanged END AS files_unchanged,
       CASE WHEN state <> 'rebuilt' THEN files_skipped END AS files_skipped,
       CASE WHEN state <> 'rebuilt' THEN files_failed END AS files_failed,
       CASE WHEN state <> 'rebuilt' THEN bytes_added END AS bytes_added,
       CASE WHEN state <> 'rebuilt' THEN chunks_committed END AS chunks_committed,
       CASE WHEN state <> 'rebuilt' THEN options END AS options,
       error, cafcat_version, CASE WHEN state <> 'rebuilt' THEN files_removed END AS files_removed,
       (SELECT e.actor FROM events AS e WHERE e.run_id = ingest_runs.id AND e.actor IS NOT NULL
        ORDER BY e.id LIMIT 1) AS actor
FROM ingest_runs;

COMMENT ON VIEW cafcat_ops.runs IS 'Each ingest and each adoption of archives: what it brought, replaced and could not pack. Counts are written when the run ends.';
COMMENT ON COLUMN cafcat_ops.runs.run_id IS 'Number of the run.';
COMMENT ON COLUMN cafcat_ops.runs.state IS 'running, finished, interrupted, failed, or rebuilt (counts, sources and options are lost: NULL).';
COMMENT ON COLUMN cafcat_ops.runs.started_at IS 'When the run began.';
COMMENT ON COLUMN cafcat_ops.runs.finished_at IS 'When the run ended; NULL while it runs, or if its process died.';
COMMENT ON COLUMN cafcat_ops.runs.seconds IS 'How long the run took, or takes until now. NULL if nobody knows when it ended, as in a rebuilt catalog.';
COMMENT ON COLUMN cafcat_ops.runs.host IS 'Host of the command.';
COMMENT ON COLUMN cafcat_ops.runs.sources IS 'Folders, buckets, archives or lists that were ingested, as typed.';
COMMENT ON COLUMN cafcat_ops.runs.files_added IS 'Files with a new path.';
COMMENT ON COLUMN cafcat_ops.runs.files_replaced IS 'Files whose path had an older version.';
COMMENT ON COLUMN cafcat_ops.runs.files_unchanged IS 'Files that the catalog had already, unchanged.';
COMMENT ON COLUMN cafcat_ops.runs.files_skipped IS 'Links, sockets and devices, and files that conflicts skipped.';
COMMENT ON COLUMN cafcat_ops.runs.files_failed IS 'Files that could not be packed: see events of the kind file_failed.';
COMMENT ON COLUMN cafcat_ops.runs.bytes_added IS 'Total size of the files that were added and replaced.';
COMMENT ON COLUMN cafcat_ops.runs.chunks_committed IS 'Chunks that the run committed.';
COMMENT ON COLUMN cafcat_ops.runs.options IS 'Options of the run.';
COMMENT ON COLUMN cafcat_ops.runs.error IS 'Why the run failed; NULL otherwise.';
COMMENT ON COLUMN cafcat_ops.runs.cafcat_version IS 'Version of the program.';
COMMENT ON COLUMN cafcat_ops.runs.files_removed IS 'Files that --delete removed, because they were gone at the source.';
COMMENT ON COLUMN cafcat_ops.runs.actor IS 'User and host that packed, from the events of the run; NULL if the run has none.';

CREATE OR REPLACE VIEW cafcat_ops.folders AS
SELECT folder_path, depth, sum(files)::bigint AS files, sum(bytes)::bigint AS bytes
FROM (SELECT folder_path, depth, files, bytes FROM folder_totals
      UNION ALL SELECT folder_path, depth, files, bytes FROM folder_deltas) AS changes
GROUP BY depth, folder_path
HAVING sum(files) > 0;

COMMENT ON VIEW cafcat_ops.folders IS 'Total of each folder, with all folders below it. Select by depth and folder_path: nothing is counted.';
COMMENT ON COLUMN cafcat_ops.folders.folder_path IS 'The folder, with a slash at its end; empty for the whole catalog.';
COMMENT ON COLUMN cafcat_ops.folders.depth IS 'Number of slashes in folder_path; 0 for the whole catalog.';
COMMENT ON COLUMN cafcat_ops.folders.files IS 'Number of live files in the folder and all below it.';
COMMENT ON COLUMN cafcat_ops.folders.bytes IS 'Total size of these files in bytes.';

CREATE OR REPLACE VIEW cafcat_ops.growth_by_day AS
SELECT day, files, bytes, sum(files) OVER (ORDER BY day)::bigint AS total_files,
       sum(bytes) OVER (ORDER BY day)::bigint AS total_bytes
FROM (SELECT (happened_at AT TIME ZONE 'UTC')::date AS day, sum(files_change)::bigint AS files,
             sum(bytes_change)::bigint AS bytes
      FROM events WHERE files_change IS NOT NULL GROUP BY 1) AS days;

COMMENT ON VIEW cafcat_ops.growth_by_day IS 'By how much the live files of each day (UTC) grew. Moves by repack and repair do not count; removals are negative.';
COMMENT ON COLUMN cafcat_ops.growth_by_day.day IS 'Day in UTC.';
COMMENT ON COLUMN cafcat_ops.growth_by_day.files IS 'New live files on that day, less the removed ones.';
COMMENT ON COLUMN cafcat_ops.growth_by_day.bytes IS 'Growth of the total size of all live files on that day.';
COMMENT ON COLUMN cafcat_ops.growth_by_day.total_files IS 'Live files at the end of the day.';
COMMENT ON COLUMN cafcat_ops.growth_by_day.total_bytes IS 'Total size of all live files at the end of the day.';

CREATE OR REPLACE VIEW cafcat_ops.unverified AS
SELECT chunk, state, store, object_key, size_bytes, live_files, committed_at, last_checked_at, last_level, last_verdict,
       run_id, is_adopted
FROM cafcat_ops.chunk_health WHERE last_whole_at IS NULL;

COMMENT ON VIEW cafcat_ops.unverified IS 'Chunks that no check at level data has found whole. chunk_health.last_whole_at has the others.';
COMMENT ON COLUMN cafcat_ops.unverified.chunk IS 'UUID of the chunk.';
COMMENT ON COLUMN cafcat_ops.unverified.state IS 'committed or retired.';
COMMENT ON COLUMN cafcat_ops.unverified.store IS 'URL of its store.';
COMMENT ON COLUMN cafcat_ops.unverified.object_key IS 'Key of its object in the store.';
COMMENT ON COLUMN cafcat_ops.unverified.size_bytes IS 'Size of its object.';
COMMENT ON COLUMN cafcat_ops.unverified.live_files IS 'Number of its live files.';
COMMENT ON COLUMN cafcat_ops.unverified.committed_at IS 'When its files were committed.';
COMMENT ON COLUMN cafcat_ops.unverified.last_checked_at IS 'End of its last check, at any level; NULL if it was never checked.';
COMMENT ON COLUMN cafcat_ops.unverified.last_level IS 'Level of that check.';
COMMENT ON COLUMN cafcat_ops.unverified.last_verdict IS 'Verdict of that check.';
COMMENT ON COLUMN cafcat_ops.unverified.run_id IS 'Run that wrote or adopted the chunk; NULL for repack and repair.';
COMMENT ON COLUMN cafcat_ops.unverified.is_adopted IS 'True if another program wrote the archive, and cafcat adopted it in place.';

CREATE OR REPLACE VIEW cafcat_ops.single_copy AS
SELECT c.uuid AS chunk, c.store, c.object_key, c.size_bytes, c.live_file_count AS live_files, c.live_bytes,
       c.committed_at, c.adopted_prefix IS NOT NULL AS is_adopted
FROM chunks AS c
WHERE c.state = 'committed' AND NOT EXISTS (
    SELECT FROM chunk_copies AS k WHERE k.chunk_id = c.id AND k.state = 'committed' AND k.retired_at IS NULL
      AND NOT cafcat_ops.is_broken(k.chunk_id, k.id));

COMMENT ON VIEW cafcat_ops.single_copy IS 'Chunks with live files and without a copy in another store. A copy that a check found damaged or missing does not count.';
COMMENT ON COLUMN cafcat_ops.single_copy.chunk IS 'UUID of the chunk.';
COMMENT ON COLUMN cafcat_ops.single_copy.store IS 'URL of its only store.';
COMMENT ON COLUMN cafcat_ops.single_copy.object_key IS 'Key of its object in that store.';
COMMENT ON COLUMN cafcat_ops.single_copy.size_bytes IS 'Size of its object.';
COMMENT ON COLUMN cafcat_ops.single_copy.live_files IS 'Number of its live files.';
COMMENT ON COLUMN cafcat_ops.single_copy.live_bytes IS 'Total size of its live files.';
COMMENT ON COLUMN cafcat_ops.single_copy.committed_at IS 'When its files were committed.';
COMMENT ON COLUMN cafcat_ops.single_copy.is_adopted IS 'True if another program wrote the archive: cafcat copy leaves it out.';

CREATE OR REPLACE VIEW cafcat_ops.duplicates AS
SELECT lpad(to_hex(crc32c), 8, '0') AS crc32c, coalesce(content_bytes, end_byte - start_byte) AS size_bytes,
       count(*) AS files, (count(*) - 1) * coalesce(content_bytes, end_byte - start_byte) AS repeated_bytes,
       min(file_path) AS first_path
FROM file_locations
WHERE coalesce(content_bytes, end_byte - start_byte) > 0
GROUP BY file_locations.crc32c, coalesce(content_bytes, end_byte - start_byte)
HAVING count(*) > 1;

COMMENT ON VIEW cafcat_ops.duplicates IS 'Live files with the same size and checksum; files without bytes do not count. This reads all files. 32 bits can collide: compare before you remove.';
COMMENT ON COLUMN cafcat_ops.duplicates.crc32c IS 'Their CRC-32C: 8 hexadecimal digits.';
COMMENT ON COLUMN cafcat_ops.duplicates.size_bytes IS 'Their size.';
COMMENT ON COLUMN cafcat_ops.duplicates.files IS 'How many there are.';
COMMENT ON COLUMN cafcat_ops.duplicates.repeated_bytes IS 'Size of all of them but one.';
COMMENT ON COLUMN cafcat_ops.duplicates.first_path IS 'Path of one of them, the first in order.';

CREATE OR REPLACE VIEW cafcat_ops.writers AS
SELECT 'chunk' AS kind, uuid::text AS name, store, object_key, lease_owner AS owner, begun_at, lease_expires_at,
       lease_expires_at < now() AS is_stale, run_id
FROM chunks WHERE state = 'writing'
UNION ALL
SELECT 'copy', (SELECT c.uuid::text FROM chunks AS c WHERE c.id = k.chunk_id), k.store, k.object_key, k.lease_owner,
       k.begun_at, k.lease_expires_at, k.lease_expires_at < now(), NULL
FROM chunk_copies AS k WHERE k.state = 'writing'
UNION ALL
SELECT 'backup', id::text, store, object_key, lease_owner, begun_at, lease_expires_at, lease_expires_at < now(), NULL
FROM backups WHERE state = 'writing';

COMMENT ON VIEW cafcat_ops.writers IS 'Objects that are being written, and those of dead writers, which recover cleans up.';
COMMENT ON COLUMN cafcat_ops.writers.kind IS 'chunk, copy or backup.';
COMMENT ON COLUMN cafcat_ops.writers.name IS 'UUID of the chunk, or number of the backup.';
COMMENT ON COLUMN cafcat_ops.writers.store IS 'URL of the store that gets the object.';
COMMENT ON COLUMN cafcat_ops.writers.object_key IS 'Key of the object in the store.';
COMMENT ON COLUMN cafcat_ops.writers.owner IS 'Host, process and task of the writer.';
COMMENT ON COLUMN cafcat_ops.writers.begun_at IS 'When it began.';
COMMENT ON COLUMN cafcat_ops.writers.lease_expires_at IS 'When it is taken for dead, unless it renews its lease.';
COMMENT ON COLUMN cafcat_ops.writers.is_stale IS 'True if that time is over: run cafcat recover.';
COMMENT ON COLUMN cafcat_ops.writers.run_id IS 'Run of the writer of a chunk; NULL for others.';

CREATE OR REPLACE FUNCTION cafcat_ops.files_of_run(run bigint) RETURNS SETOF cafcat_ops.files
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT f.* FROM chunks AS c
    CROSS JOIN LATERAL (SELECT l.file_path FROM file_locations AS l
                        WHERE l.caf_file_id = c.id AND l.ingest_run_id IS NULL OFFSET 0) AS brought
    CROSS JOIN LATERAL (SELECT * FROM cafcat_ops.files AS f WHERE f.file_path = brought.file_path OFFSET 0) AS f
    WHERE c.run_id = files_of_run.run AND c.state = 'committed'
    UNION ALL
    SELECT f.* FROM file_locations AS moved
    CROSS JOIN LATERAL (SELECT * FROM cafcat_ops.files AS f WHERE f.file_path = moved.file_path OFFSET 0) AS f
    WHERE moved.ingest_run_id = files_of_run.run;
END;
COMMENT ON FUNCTION cafcat_ops.files_of_run IS 'The live files that a run brought, wherever they are now.';

CREATE OR REPLACE FUNCTION cafcat_ops.lost_with(chunk uuid) RETURNS TABLE (file_path text, size_bytes bigint)
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT l.file_path, coalesce(l.content_bytes, l.end_byte - l.start_byte)
    FROM file_locations AS l
    WHERE l.caf_file_id = (SELECT c.id FROM chunks AS c WHERE c.uuid = lost_with.chunk)
      AND NOT EXISTS (SELECT FROM chunk_copies AS k JOIN chunks AS c ON c.id = k.chunk_id
                      WHERE c.uuid = lost_with.chunk AND k.state = 'committed' AND k.retired_at IS NULL
                        AND NOT cafcat_ops.is_broken(k.chunk_id, k.id));
END;
COMMENT ON FUNCTION cafcat_ops.lost_with IS 'The live files that are lost if this chunk is lost: none if it has a copy in another store that no check found damaged or missing.';

CREATE OR REPLACE FUNCTION cafcat_ops.changes_between(first_run bigint, last_run bigint)
RETURNS TABLE (change text, file_path text, old_bytes bigint, new_bytes bigint, run_id bigint)
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    WITH times AS MATERIALIZED (
        SELECT (SELECT coalesce(r.finished_at, now()) FROM ingest_runs AS r WHERE r.id = first_run) AS low,
               (SELECT coalesce(r.finished_at, now()) FROM ingest_runs AS r WHERE r.id = last_run) AS high
    ), came AS (
        SELECT l.file_path, coalesce(l.content_bytes, l.end_byte - l.start_byte) AS size_bytes, l.crc32c,
               coalesce(l.ingest_run_id, c.run_id) AS run_id
        FROM chunks AS c CROSS JOIN LATERAL (SELECT * FROM file_locations AS n
            WHERE n.caf_file_id = c.id AND n.current_since IS NULL OFFSET 0) AS l
        WHERE c.committed_at > (SELECT low FROM times) AND c.committed_at <= (SELECT high FROM times)
          AND c.live_file_count > 0
        UNION ALL
        SELECT l.file_path, coalesce(l.content_bytes, l.end_byte - l.start_byte), l.crc32c,
               coalesce(l.ingest_run_id, c.run_id)
        FROM file_locations AS l JOIN chunks AS c ON c.id = l.caf_file_id
        WHERE l.current_since > (SELECT low FROM times) AND l.current_since <= (SELECT high FROM times)
        UNION ALL
        SELECT l.file_path, coalesce(l.content_bytes, l.end_byte - l.start_byte), l.crc32c,
               coalesce(l.ingest_run_id, c.run_id)
        FROM retired_locations AS l JOIN chunks AS c ON c.id = l.caf_file_id
        WHERE l.retired_at > (SELECT high FROM times) AND l.reason IN ('replaced', 'removed')
          AND coalesce(l.current_since, c.committed_at) > (SELECT low FROM times)
          AND coalesce(l.current_since, c.committed_at) <= (SELECT high FROM times)
        UNION ALL
        SELECT l.file_path, coalesce(l.content_bytes, l.end_byte - l.start_byte), l.crc32c,
               coalesce(l.ingest_run_id, c.run_id)
        FROM restored_locations AS l JOIN chunks AS c ON c.id = l.caf_file_id
        WHERE l.removed_at > (SELECT high FROM times)
          AND coalesce(l.current_since, c.committed_at) > (SELECT low FROM times)
          AND coalesce(l.current_since, c.committed_at) <= (SELECT high FROM times)
    ), went AS (
        SELECT l.file_path, coalesce(l.content_bytes, l.end_byte - l.start_byte) AS size_bytes, l.crc32c
        FROM retired_locations AS l JOIN chunks AS c ON c.id = l.caf_file_id
        WHERE l.retired_at > (SELECT low FROM times) AND l.retired_at <= (SELECT high FROM times)
          AND l.reason IN ('replaced', 'removed')
          AND coalesce(l.current_since, c.committed_at) <= (SELECT low FROM times)
        UNION ALL
        SELECT l.file_path, coalesce(l.content_bytes, l.end_byte - l.start_byte), l.crc32c
        FROM restored_locations AS l JOIN chunks AS c ON c.id = l.caf_file_id
        WHERE l.removed_at > (SELECT low FROM times) AND l.removed_at <= (SELECT high FROM times)
          AND coalesce(l.current_since, c.committed_at) <= (SELECT low FROM times)
    )
    SELECT CASE WHEN went.file_path IS NULL THEN 'added' WHEN came.file_path IS NULL THEN 'removed' ELSE 'replaced' END,
           coalesce(came.file_path, went.file_path), went.size_bytes, came.size_bytes, came.run_id
    FROM came FULL JOIN went ON went.file_path = came.file_path
    WHERE (came.size_bytes, came.crc32c) IS DISTINCT FROM (went.size_bytes, went.crc32c);
END;
COMMENT ON FUNCTION cafcat_ops.changes_between IS 'What changed from the end of one run to the end of a later one: files that were added, replaced or removed, by whatever command. run_id is the run of the new content. There are no rows if a run does not exist, or the first run did not end before the last one.';
