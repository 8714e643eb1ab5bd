"""The statements of a rebuild.

They fill temporary tables with the objects and records that were found in stores, and then the tables of the
catalog from these. `plan` has the chunks of the rebuilt catalog, `timeline` all changes of each path in order.
"""

from typing import Final

from cafcat.catalog.files.folder_changes import COUNT_FOLDERS
from cafcat.catalog.files.lookup import size_of

__all__: list[str] = []

IS_FILLED: Final = """
SELECT EXISTS (SELECT FROM chunks) OR EXISTS (SELECT FROM file_locations)
    OR EXISTS (SELECT FROM retired_locations) OR EXISTS (SELECT FROM journal)
"""

TABLES: Final = """
CREATE TEMPORARY TABLE found_objects (
    store int NOT NULL, uuid uuid NOT NULL, object_key text NOT NULL, size_bytes bigint NOT NULL
) ON COMMIT DROP;
CREATE TEMPORARY TABLE found_records (
    sequence bigint NOT NULL, uuid uuid NOT NULL, store int NOT NULL, size_bytes bigint NOT NULL
) ON COMMIT DROP;
CREATE TEMPORARY TABLE records (
    n bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, id bigint, sequence bigint NOT NULL, uuid uuid NOT NULL,
    catalog uuid, kind text NOT NULL, happened_at timestamptz NOT NULL,
    chunk uuid, format text, object_key text, size_bytes bigint, data_bytes bigint, index_start_byte bigint,
    index_end_byte bigint, file_count bigint, crc64nvme text, index_crc32c bigint, begun_at timestamptz
) ON COMMIT DROP;
CREATE TEMPORARY TABLE record_files (
    n bigint NOT NULL, start_byte bigint NOT NULL, chunk uuid NOT NULL, file_path text COLLATE "C" NOT NULL
) ON COMMIT DROP;
CREATE TEMPORARY TABLE record_runs (
    n bigint NOT NULL, id bigint NOT NULL, started_at timestamptz NOT NULL, host text NOT NULL,
    version text NOT NULL, of_chunk boolean NOT NULL
) ON COMMIT DROP;
CREATE TEMPORARY TABLE record_origins (
    n bigint NOT NULL, first_file bigint NOT NULL, end_file bigint NOT NULL, run_id bigint, since timestamptz
) ON COMMIT DROP;
CREATE TEMPORARY TABLE entries (LIKE file_locations) ON COMMIT DROP;
CREATE TEMPORARY TABLE found_ingestion_units (LIKE ingestion_units) ON COMMIT DROP;
CREATE TEMPORARY TABLE found_chunk_times (LIKE chunk_times) ON COMMIT DROP;
CREATE TEMPORARY TABLE copies (
    chunk_id bigint NOT NULL, store text NOT NULL, object_key text NOT NULL
) ON COMMIT DROP;
"""

COPY_OBJECTS: Final = "COPY found_objects (store, uuid, object_key, size_bytes) FROM STDIN"
COPY_RECORD_OBJECTS: Final = "COPY found_records (sequence, uuid, store, size_bytes) FROM STDIN"
COPY_RECORD_FILES: Final = "COPY record_files (n, start_byte, chunk, file_path) FROM STDIN"

RECORDS: Final = """
SELECT sequence, uuid, array_agg(store ORDER BY store), array_agg(size_bytes ORDER BY store)
FROM found_records WHERE (sequence, uuid) > (%s, %s) GROUP BY 1, 2 ORDER BY 1, 2 LIMIT %s
"""

ADD_RUN: Final = """
INSERT INTO record_runs (n, id, started_at, host, version, of_chunk) VALUES (%s, %s, %s, %s, %s, %s)
"""
ADD_ORIGIN: Final = """
INSERT INTO record_origins (n, first_file, end_file, run_id, since) VALUES (%s, %s, %s, %s, %s)
"""
ADD_RECORD: Final = """
INSERT INTO records (sequence, uuid, catalog, kind, happened_at, chunk, format, object_key, size_bytes, data_bytes,
                   index_start_byte, index_end_byte, file_count, crc64nvme, index_crc32c, begun_at)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s) RETURNING n
"""

OTHER_RECORDS: Final = """
CREATE TEMPORARY TABLE other_records ON COMMIT DROP AS
SELECT n FROM records WHERE catalog IS DISTINCT FROM %(catalog)s::uuid
"""
UNCLAIMED: Final = """
SELECT uuid FROM found_objects EXCEPT SELECT chunk FROM records ORDER BY 1
"""
DISCARD_OTHERS: Final = (
    "DELETE FROM record_files WHERE n IN (SELECT n FROM other_records)",
    "DELETE FROM record_runs WHERE n IN (SELECT n FROM other_records)",
    "DELETE FROM record_origins WHERE n IN (SELECT n FROM other_records)",
    "DELETE FROM records WHERE n IN (SELECT n FROM other_records)",
    "DELETE FROM found_objects WHERE uuid NOT IN (SELECT chunk FROM records WHERE chunk IS NOT NULL)",
)

# Each record gets the number in its name, or the number of the record before it plus one, whichever is higher.
NUMBER_RECORDS: Final = """
WITH ranked AS (
    SELECT n, sequence, row_number() OVER (ORDER BY sequence, happened_at, uuid) AS place FROM records
), numbered AS (
    SELECT n, place + max(sequence - place) OVER (ORDER BY place) AS id FROM ranked
), changed AS (
    UPDATE records SET id = numbered.id FROM numbered WHERE numbered.n = records.n RETURNING records.*
)
SELECT sequence, uuid FROM changed WHERE id <> sequence ORDER BY id
"""

# If two records describe the commit of the same chunk, the later one counts. There are two if the catalog was
# restored from a backup that is older than the commit, and then recover committed the chunk once more. Chunks
# without a record come after all others.
PLAN: Final = """
CREATE TEMPORARY TABLE plan ON COMMIT DROP AS
SELECT row_number() OVER (ORDER BY l.begun_at NULLS LAST, l.id NULLS LAST, uuid) AS id,
       uuid, l.n, l.id AS sequence, coalesce(l.kind, 'commit') AS kind,
       coalesce(l.happened_at, now()) AS happened_at, coalesce(l.begun_at, now()) AS begun_at, l.format,
       l.size_bytes, l.data_bytes, l.index_start_byte, l.index_end_byte, l.file_count, l.crc64nvme, l.index_crc32c,
       NULL::text AS store, NULL::text AS object_key, false AS adopted
FROM (SELECT DISTINCT ON (chunk) chunk AS uuid, records.n, records.id, kind, happened_at, begun_at, format,
             size_bytes, data_bytes, index_start_byte, index_end_byte, file_count, crc64nvme, index_crc32c
      FROM records WHERE chunk IS NOT NULL ORDER BY chunk, records.id DESC) AS l
FULL JOIN (SELECT DISTINCT uuid FROM found_objects) AS o USING (uuid);
ALTER TABLE plan ADD PRIMARY KEY (id);
CREATE INDEX ON found_objects (uuid);
ANALYZE plan, found_objects, records, record_files;
"""
PLANNED: Final = "SELECT count(*), coalesce(sum(index_end_byte - index_start_byte), 0) FROM plan"

CHUNKS: Final = """
SELECT p.id, p.uuid, p.sequence, p.format, p.size_bytes, p.index_start_byte, p.index_end_byte, p.file_count,
       p.index_crc32c, coalesce(array_agg(o.store ORDER BY o.store) FILTER (WHERE o.store IS NOT NULL), '{}'),
       coalesce(array_agg(o.object_key ORDER BY o.store) FILTER (WHERE o.store IS NOT NULL), '{}'),
       coalesce(array_agg(o.size_bytes ORDER BY o.store) FILTER (WHERE o.store IS NOT NULL), '{}')
FROM plan AS p LEFT JOIN found_objects AS o ON o.uuid = p.uuid
WHERE p.id IN (SELECT id FROM plan WHERE id > %s ORDER BY id LIMIT %s)
GROUP BY p.id ORDER BY p.id
"""

READ_CHUNK: Final = """
UPDATE plan SET store = %(store)s, object_key = %(object_key)s, format = coalesce(format, %(format)s),
       size_bytes = %(size_bytes)s, data_bytes = %(data_bytes)s, index_start_byte = %(index_start_byte)s,
       index_end_byte = %(index_end_byte)s, file_count = %(file_count)s, index_crc32c = %(index_crc32c)s,
       adopted = n IS NULL
WHERE id = %(id)s
"""
ADD_COPY: Final = "INSERT INTO copies (chunk_id, store, object_key) VALUES (%s, %s, %s)"
ADD_BACKUP: Final = """
INSERT INTO backups (state, store, object_key, size_bytes, begun_at, committed_at)
VALUES ('committed', %s, %s, %s, %s, %s) ON CONFLICT DO NOTHING
"""

_ENTRY: Final = (
    "caf_file_id, start_byte, end_byte, crc32c, modified_at, file_path, content_bytes, decoding, ingest_run_id"
)
_COLUMNS: Final = f"{_ENTRY}, current_since"

# If two runs have one number, because the catalog was restored from an older backup, the later run counts.
_RUNS: Final = """
INSERT INTO ingest_runs (id, state, started_at, host, cafcat_version, process_id, sources, options)
OVERRIDING SYSTEM VALUE
SELECT DISTINCT ON (id) id, 'rebuilt', started_at, host, version, 0, '{}', '{}' FROM record_runs
ORDER BY id, started_at DESC
"""
# Files of a chunk that repack or repair wrote have the runs and times that its record has.
_ORIGINS: Final = """
UPDATE entries SET ingest_run_id = o.run_id, current_since = o.since
FROM (SELECT e.ctid AS place, p.n, row_number() OVER (PARTITION BY e.caf_file_id
                                                     ORDER BY e.start_byte, e.end_byte, e.file_path) AS number
      FROM entries AS e JOIN plan AS p ON p.id = e.caf_file_id WHERE p.kind = 'move') AS numbered
JOIN record_origins AS o ON o.n = numbered.n AND numbered.number > o.first_file AND numbered.number <= o.end_file
WHERE entries.ctid = numbered.place
"""

# Insert a record for every chunk that has none, after all other records, even those that could not be read.
RECORDS_OF_ADOPTED: Final = """
INSERT INTO records (id, sequence, uuid, kind, happened_at, chunk)
SELECT id, id, gen_random_uuid(), 'commit', happened_at, uuid
FROM (SELECT uuid, happened_at,
             (SELECT greatest(%(last)s, coalesce(max(id), 0)) FROM records)
             + row_number() OVER (ORDER BY uuid) AS id
      FROM plan WHERE adopted) AS new
"""
_NUMBER_ADOPTED: Final = """
UPDATE plan SET n = records.n, sequence = records.id FROM records WHERE plan.adopted AND records.chunk = plan.uuid
"""
# Skip a file of a chunk without a record if another chunk has the same content and time under the same path. A
# killed repack may have copied this file, and the file may have been removed since.
_SKIPPED_OF_ADOPTED: Final = f"""
INSERT INTO record_files (n, start_byte, chunk, file_path)
SELECT DISTINCT p.n, e.start_byte, p.uuid, e.file_path
FROM plan AS p JOIN entries AS e ON e.caf_file_id = p.id JOIN entries AS other USING (file_path)
JOIN plan AS q ON q.id = other.caf_file_id
WHERE p.adopted AND NOT q.adopted AND other.crc32c = e.crc32c
  AND {size_of("other.")} = {size_of("e.")}
  AND other.modified_at IS NOT DISTINCT FROM e.modified_at
"""  # noqa: S608

# After each of these records, the number of a record is missing: its chunk was pruned, its store was not named, its
# transaction was rolled back, or two catalogs used the same numbers.
_GAPS: Final = """
CREATE TEMPORARY TABLE gaps ON COMMIT DROP AS
SELECT id FROM (SELECT id, sequence, lead(sequence) OVER (ORDER BY id) AS next_sequence FROM records) AS numbered
WHERE next_sequence <> sequence + 1
"""

# All changes of each path, in order. caf_file_id is the chunk of a commit, move or restoration, or the chunk from
# which the path was removed. end_byte is NULL if that chunk is missing. A file that `undelete` restored is current
# since then. A file that `store rm --lost` returned to a former chunk was not removed, and keeps its time.
_TIMELINE: Final = f"""
CREATE TEMPORARY TABLE timeline ON COMMIT DROP AS
SELECT {_ENTRY},
       CASE WHEN is_undelete THEN happened_at
            WHEN kind = 'restore' AND max(happened_at) FILTER (WHERE is_undelete) OVER later
                                      > coalesce(current_since, committed_at)
                THEN max(happened_at) FILTER (WHERE is_undelete) OVER later
            ELSE current_since END AS current_since,
       sequence, kind, lead(kind) OVER later AS next_kind, lead(happened_at) OVER later AS next_at,
       lead(current_since) OVER later AS next_since, lead(sequence) OVER later AS next_sequence,
       lead(caf_file_id) OVER later AS next_chunk, lead(end_byte) OVER later IS NOT NULL AS has_next_entry,
       (lead(crc32c) OVER later, lead({size_of()}) OVER later, lead(modified_at) OVER later)
           IS NOT DISTINCT FROM (crc32c, {size_of()}, modified_at) AS next_is_same
FROM (
  SELECT *, kind = 'restore' AND lag(kind, 1, 'commit') OVER later = 'remove' AS is_undelete
  FROM (
    SELECT e.caf_file_id, e.start_byte, e.end_byte, e.crc32c, e.modified_at, e.file_path, e.content_bytes,
           e.decoding, e.ingest_run_id, e.current_since, p.sequence, p.kind, p.happened_at,
           p.happened_at AS committed_at
    FROM entries AS e JOIN plan AS p ON p.id = e.caf_file_id
    WHERE NOT EXISTS (SELECT FROM record_files AS f WHERE f.n = p.n AND f.file_path = e.file_path)
    UNION ALL
    SELECT p.id, f.start_byte, e.end_byte, e.crc32c, e.modified_at, f.file_path, e.content_bytes, e.decoding,
           e.ingest_run_id, e.current_since, l.id, l.kind, l.happened_at, p.happened_at
    FROM record_files AS f JOIN records AS l USING (n) LEFT JOIN plan AS p ON p.uuid = f.chunk
    LEFT JOIN entries AS e
        ON e.caf_file_id = p.id AND e.file_path = f.file_path AND e.start_byte = f.start_byte
    WHERE l.kind IN ('remove', 'restore')
  ) AS happened
  WINDOW later AS (PARTITION BY file_path ORDER BY sequence)
) AS happened
WINDOW later AS (PARTITION BY file_path ORDER BY sequence)
"""  # noqa: S608

_LIVE: Final = f"""
INSERT INTO file_locations ({_COLUMNS})
SELECT {_COLUMNS} FROM timeline WHERE next_kind IS NULL AND kind <> 'remove' AND end_byte IS NOT NULL
ORDER BY file_path
"""  # noqa: S608

# True if the same entry was restored later. An entry that was retired several times gets a row for the last time
# only.
_RESTORED_LATER: Final = """
EXISTS (SELECT FROM record_files AS f JOIN records AS l USING (n) JOIN plan AS p ON p.uuid = f.chunk
        WHERE l.kind = 'restore' AND f.file_path = t.file_path AND p.id = t.caf_file_id
          AND f.start_byte = t.start_byte AND l.id > {after})
"""

# True if the restored entry comes again with its chunk: the chunk had lost its record, and got a later one.
_COMES_AGAIN: Final = """
EXISTS (SELECT FROM plan AS p WHERE t.kind = 'restore' AND p.id = t.caf_file_id AND p.sequence > t.sequence
        AND NOT EXISTS (SELECT FROM record_files AS s WHERE s.n = p.n AND s.file_path = t.file_path))
"""

# If a removal names an entry that is gone, and not that of the change before it, there was a chunk in between
# that was pruned since. A move of different bytes shows the same: the moved file keeps its time. In both cases,
# the entry of the earlier change was replaced. A removal can also name an older entry that exists, if the catalog
# was restored from a backup without the change in between. Then the newest version counts as removed.
#
# A replaced file gets the run that replaced it, if no record in between is missing. Without a run, an unknown
# version may have come in between, of which `--as-of` warns.
_RETIRED: Final = f"""
INSERT INTO retired_locations ({_COLUMNS}, run_id, retired_at, reason)
SELECT {_COLUMNS}, CASE WHEN reason = 'replaced' THEN run_id END, retired_at, reason FROM (
    SELECT {_COLUMNS},
           (SELECT r.id FROM records AS l JOIN record_runs AS r ON r.n = l.n AND r.of_chunk
            WHERE l.id = t.next_sequence AND NOT EXISTS (
                SELECT FROM gaps AS g WHERE g.id >= t.sequence AND g.id < t.next_sequence)) AS run_id,
           CASE WHEN next_kind = 'move' AND NOT next_is_same THEN coalesce(next_since, next_at) ELSE next_at END
               AS retired_at,
           CASE WHEN next_kind = 'remove' AND (next_chunk = caf_file_id OR has_next_entry) THEN 'removed'
                WHEN next_kind IN ('move', 'restore') AND next_is_same THEN 'moved' ELSE 'replaced' END AS reason
    FROM timeline AS t
    WHERE kind <> 'remove' AND end_byte IS NOT NULL AND next_kind IS NOT NULL
      AND NOT {_RESTORED_LATER.format(after="t.sequence")} AND NOT {_COMES_AGAIN}
    UNION ALL
    SELECT {", ".join(f"t.{name}" for name in _COLUMNS.split(", "))}, NULL, c.happened_at, 'skipped'
    FROM entries AS t JOIN plan AS c ON c.id = t.caf_file_id JOIN record_files AS s
        ON s.n = c.n AND s.file_path = t.file_path
    WHERE NOT {_RESTORED_LATER.format(after="0")}
) AS retired
ORDER BY retired_at, file_path
"""  # noqa: S608

STORES: Final = "SELECT store FROM plan WHERE store IS NOT NULL UNION SELECT store FROM copies ORDER BY 1"
_CHUNKS: Final = f"""
INSERT INTO chunks (id, run_id, uuid, format, store, object_key, state, size_bytes, data_bytes, index_start_byte,
                    index_end_byte, file_count, live_file_count, live_bytes, crc64nvme, index_crc32c, begun_at,
                    committed_at, retired_at)
OVERRIDING SYSTEM VALUE
SELECT p.id, r.id, p.uuid, p.format, p.store, p.object_key,
       CASE WHEN l.files > 0 THEN 'committed' ELSE 'retired' END, p.size_bytes, p.data_bytes, p.index_start_byte,
       p.index_end_byte, p.file_count, coalesce(l.files, 0), coalesce(l.bytes, 0), p.crc64nvme, p.index_crc32c,
       p.begun_at, p.happened_at,
       CASE WHEN l.files > 0 THEN NULL ELSE coalesce(gone.retired_at, p.happened_at) END
FROM plan AS p
LEFT JOIN (SELECT caf_file_id, count(*) AS files, sum({size_of()}) AS bytes
           FROM file_locations GROUP BY 1) AS l ON l.caf_file_id = p.id
LEFT JOIN (SELECT caf_file_id, max(retired_at) AS retired_at FROM retired_locations GROUP BY 1) AS gone
    ON gone.caf_file_id = p.id
LEFT JOIN record_runs AS r ON r.n = p.n AND r.of_chunk
WHERE p.store IS NOT NULL ORDER BY p.id
"""  # noqa: S608

# Records that were found are in their stores. The new records of chunks without one must still be written there.
_JOURNAL: Final = """
INSERT INTO journal (id, chunk_id, uuid, kind, happened_at, unwritten) OVERRIDING SYSTEM VALUE
SELECT l.id, c.id, l.uuid, l.kind, l.happened_at,
       CASE WHEN p.adopted THEN ARRAY[p.store] || (SELECT coalesce(array_agg(k.store ORDER BY k.store), '{}')
                                                   FROM copies AS k WHERE k.chunk_id = p.id) ELSE '{}' END
FROM records AS l LEFT JOIN plan AS p ON p.uuid = l.chunk LEFT JOIN chunks AS c ON c.id = p.id ORDER BY l.id
"""
_JOURNAL_FILES: Final = """
INSERT INTO journal_files (journal_id, caf_file_id, start_byte, file_path)
SELECT p.sequence, p.id, f.start_byte, f.file_path FROM record_files AS f JOIN plan AS p USING (n) WHERE p.adopted
"""
# Growth per day counts each version when it became current, and when a replacement or removal ended it. Versions of
# pruned chunks are unknown.
_GROWTH: Final = f"""
INSERT INTO events (kind, chunk_id, happened_at, detail, files_change, bytes_change)
SELECT 'chunk_rebuilt', c.id, coalesce(l.changed_at, c.committed_at),
       CASE WHEN l.sign > 0 THEN 'files, current since' ELSE 'files, replaced or removed at' END || ' this time: '
       || l.files, l.sign * l.files, l.sign * l.bytes
FROM (SELECT caf_file_id, changed_at, sign, count(*) AS files, sum({size_of()})::bigint AS bytes
      FROM (SELECT caf_file_id, current_since AS changed_at, 1 AS sign, content_bytes, start_byte, end_byte
            FROM file_locations
            UNION ALL
            SELECT caf_file_id, current_since, 1, content_bytes, start_byte, end_byte
            FROM retired_locations WHERE reason IN ('replaced', 'removed')
            UNION ALL
            SELECT caf_file_id, retired_at, -1, content_bytes, start_byte, end_byte
            FROM retired_locations WHERE reason IN ('replaced', 'removed')) AS versions
      GROUP BY 1, 2, 3) AS l JOIN chunks AS c ON c.id = l.caf_file_id ORDER BY 3, 2
"""  # noqa: S608
_COPIES: Final = """
INSERT INTO chunk_copies (chunk_id, state, committed_at, store, object_key)
SELECT chunk_id, 'committed', now(), store, object_key FROM copies ORDER BY chunk_id, store
"""

_UNITS: Final = "INSERT INTO ingestion_units SELECT * FROM found_ingestion_units ORDER BY chunk_id, number"
_TIMES: Final = "INSERT INTO chunk_times SELECT * FROM found_chunk_times ORDER BY chunk_id"

ORDER_CHANGES: Final = (
    _NUMBER_ADOPTED,
    "ANALYZE entries, plan, records, record_origins",
    _ORIGINS,
    _RUNS,
    _SKIPPED_OF_ADOPTED,
    _GAPS,
    "CREATE INDEX ON gaps (id); CREATE INDEX ON records (id); CREATE INDEX ON record_runs (n)",
    "ANALYZE gaps, records, record_files, record_runs",
    _TIMELINE,
)
# A chunk that is in the plan and could not be read is reported as a whole, unless it was left out.
LOST_FILES: Final = """
SELECT t.file_path, f.chunk FROM timeline AS t JOIN records AS l ON l.id = t.sequence
JOIN record_files AS f ON f.n = l.n AND f.file_path = t.file_path
WHERE t.next_kind IS NULL AND t.kind = 'restore' AND (t.caf_file_id IS NULL OR f.chunk = ANY (%(left_out)s))
ORDER BY t.file_path
"""
FINALIZE: Final = (
    _LIVE,
    _RETIRED,
    # Statistics for the statements that follow, and for queries after the rebuild.
    "ANALYZE file_locations, retired_locations",
    _CHUNKS,
    _UNITS,
    _TIMES,
    _JOURNAL,
    _JOURNAL_FILES,
    _COPIES,
    COUNT_FOLDERS,
    _GROWTH,
)

COUNTS: Final = """
SELECT (SELECT count(*) FROM chunks), (SELECT count(*) FROM chunk_copies), sum(live_file_count), sum(live_bytes),
       (SELECT count(*) FROM retired_locations), (SELECT count(*) FROM journal),
       (SELECT count(*) FROM timeline WHERE next_kind IS NULL AND kind = 'restore' AND end_byte IS NULL)
FROM (SELECT live_file_count, live_bytes FROM chunks UNION ALL SELECT 0, 0) AS chunks
"""

SEQUENCES: Final = """
SELECT setval(pg_get_serial_sequence('journal', 'id'), greatest(%(last)s, coalesce(max(id), 1))) FROM journal
UNION ALL
SELECT setval(pg_get_serial_sequence('chunks', 'id'), max(id)) FROM chunks HAVING max(id) IS NOT NULL
UNION ALL
SELECT setval(pg_get_serial_sequence('ingest_runs', 'id'), max(id)) FROM ingest_runs HAVING max(id) IS NOT NULL
"""
