"""The statements of a removal and of a restoration of files.

They use temporary tables. `asked` has the paths that a call names, `gone` the removed rows of file_locations, and
`wanted` the rows to restore. `usable` has the chunks to which restored rows may point, and `broken` the failed
checks of these chunks that no later check refutes. `listed` has the versions
that an ingest did not find at their source. In a dry run, `counted` has the number and size of the files that each
chunk would lose.
"""

from typing import Final

from cafcat.catalog.by_key import delete_by_key, exists_by_key, join_by_key
from cafcat.catalog.chunks.failed_checks import CONCERNS_FILE, FAILURE_COUNTS
from cafcat.catalog.files.log_units import LOGS_ELSEWHERE
from cafcat.catalog.files.lookup import LOCATION, size_of
from cafcat.catalog.files.mapping import ALL_COLUMNS
from cafcat.catalog.history.runs import iso

__all__: list[str] = []

TOTALS: Final = f"SELECT count(*), coalesce(sum({size_of()}), 0)::bigint FROM {{table}}"  # noqa: S608
PER_CHUNK: Final = f"SELECT caf_file_id, count(*) AS files, sum({size_of()}) AS bytes FROM {{table}} GROUP BY 1"  # noqa: S608
ASKED_TABLE: Final = 'CREATE TEMPORARY TABLE asked (file_path text COLLATE "C") ON COMMIT DROP'
GONE_TABLE: Final = "CREATE TEMPORARY TABLE gone (LIKE file_locations) ON COMMIT DROP"
WANTED_TABLE: Final = (
    "CREATE TEMPORARY TABLE wanted (LIKE file_locations, retired_id bigint, PRIMARY KEY (file_path)) ON COMMIT DROP"
)
# Prune locks these rows, too: the second of both transactions sees the result of the first.
USABLE_TABLE: Final = """
CREATE TEMPORARY TABLE usable ON COMMIT DROP AS SELECT id FROM chunks
WHERE id = ANY (ARRAY(SELECT DISTINCT caf_file_id FROM wanted)) AND state IN ('committed', 'retired')
ORDER BY id FOR NO KEY UPDATE
"""
LISTED_TABLE: Final = (
    'CREATE TEMPORARY TABLE listed (caf_file_id bigint, start_byte bigint, file_path text COLLATE "C") '
    "ON COMMIT DROP"
)
_IS_LISTED: Final = exists_by_key(
    "file_locations",
    "listed",
    "there.caf_file_id = listed.caf_file_id AND there.start_byte = listed.start_byte",
)
STILL_LISTED: Final = f"INSERT INTO asked SELECT listed.file_path FROM listed WHERE {_IS_LISTED}"  # noqa: S608
COUNTED_TABLE: Final = (
    "CREATE TEMPORARY TABLE counted (caf_file_id bigint, files bigint, bytes bigint) ON COMMIT DROP"
)
_NAMES: Final = "(SELECT DISTINCT file_path FROM asked) AS names "
_LIVE: Final = _NAMES + join_by_key("names.file_path")
_LIVE_ROWS: Final = _NAMES + join_by_key("names.file_path", columns="ctid")
_RETIRED: Final = _NAMES + join_by_key("names.file_path", "retired_locations")
COUNT: Final = "INSERT INTO counted " + PER_CHUNK.format(table="file_locations {condition}")
COUNT_NAMED: Final = "INSERT INTO counted " + PER_CHUNK.format(table=_LIVE)
DROP_COUNTED: Final = f"DELETE FROM asked {{condition}} AND {exists_by_key('file_locations', 'asked')}"  # noqa: S608
COUNTED_SUMS: Final = """
SELECT coalesce(sum(g.files), 0)::bigint, coalesce(sum(g.bytes), 0)::bigint,
       count(*) FILTER (WHERE g.files = c.live_file_count)
FROM (SELECT caf_file_id, sum(files) AS files, sum(bytes) AS bytes FROM counted GROUP BY 1) AS g
JOIN chunks AS c ON c.id = g.caf_file_id
"""

# A rebuild from a store needs the records of all removals from its chunks, even of chunks that are about to be
# deleted.
STORES: Final = """
SELECT store FROM chunks
WHERE state IN ('committed', 'retired', 'deleted') AND deleted_at IS NULL AND adopted_prefix IS NULL
UNION
SELECT store FROM chunk_copies WHERE state <> 'abandoned' AND deleted_at IS NULL
"""

# Each record lists the stores of its time. Another store lists this one if it has a later record than that of the
# first chunk here, or that record itself. Records of removals and returns are written into all stores.
IS_UNLISTED: Final = """
SELECT NOT EXISTS (SELECT FROM journal AS j WHERE j.id > first.id AND j.kind IN ('remove', 'restore'))
   AND EXISTS (
    SELECT FROM stores AS s WHERE s.url <> %(store)s AND (
        EXISTS (SELECT FROM chunks WHERE store = s.url AND adopted_prefix IS NULL
                AND state IN ('committed', 'retired') OFFSET 0)
        OR EXISTS (SELECT FROM chunk_copies WHERE store = s.url AND state = 'committed' OFFSET 0))
    AND NOT EXISTS (SELECT FROM chunks AS c JOIN journal AS j ON j.chunk_id = c.id
                    WHERE c.store = s.url AND c.id > first.chunk_id AND j.id > first.id)
    AND NOT EXISTS (SELECT FROM chunk_copies AS k JOIN journal AS j ON j.chunk_id = k.chunk_id
                    WHERE k.store = s.url AND k.state = 'committed' AND k.chunk_id >= first.chunk_id))
FROM (SELECT c.id AS chunk_id, j.id FROM chunks AS c JOIN journal AS j ON j.chunk_id = c.id
      WHERE c.store = %(store)s AND c.state IN ('committed', 'retired') AND c.adopted_prefix IS NULL
      ORDER BY c.id LIMIT 1) AS first
"""

NOT_FOUND: Final = (
    "SELECT DISTINCT asked.file_path FROM asked LEFT JOIN {table} AS t USING (file_path) "
    "WHERE t.start_byte IS NULL ORDER BY 1"
)
NOT_LIVE: Final = (
    f"SELECT DISTINCT file_path FROM asked WHERE NOT {exists_by_key('file_locations', 'asked')} ORDER BY 1"  # noqa: S608
)

_DELETE_INTO_GONE: Final = f"""
WITH taken AS ({{delete}} RETURNING *) INSERT INTO gone ({ALL_COLUMNS}) SELECT {ALL_COLUMNS} FROM taken
"""  # noqa: S608
DELETE_BELOW: Final = _DELETE_INTO_GONE.format(delete="DELETE FROM file_locations {condition}")
DELETE_NAMED: Final = _DELETE_INTO_GONE.format(delete=delete_by_key("file_locations", _LIVE_ROWS))
# With partitions, a ctid is unique only together with the partition. A DELETE that names all partitions would
# search each of them for all rows, so each partition gets a DELETE of its own.
FIND_NAMED: Final = (
    "CREATE TEMPORARY TABLE found ON COMMIT DROP AS SELECT l.tableoid AS table_id, l.ctid AS place "  # noqa: S608
    f"FROM {_NAMES} {join_by_key('names.file_path', columns='tableoid, ctid')}"
)
FOUND_TABLES: Final = "SELECT DISTINCT table_id, table_id::regclass::text FROM found ORDER BY 1"


def delete_found(table: str, table_id: int) -> str:
    """Return the statement that moves the rows of one partition that FIND_NAMED found into `gone`.

    Args:
        table: The partition, as SQL names it.
        table_id: Its oid.
    """
    rows = f"(SELECT place AS ctid FROM found WHERE table_id = {table_id}) AS l"  # noqa: S608
    return _DELETE_INTO_GONE.format(delete=delete_by_key(table, rows))


_SELECT_LAST_REMOVED: Final = f"""
INSERT INTO wanted (retired_id, {ALL_COLUMNS})
SELECT DISTINCT ON (file_path) id, {ALL_COLUMNS}
FROM (SELECT l.* FROM {{rows}} OFFSET 0) AS l WHERE reason = 'removed'
ORDER BY file_path, id DESC
ON CONFLICT DO NOTHING
"""  # noqa: S608
SELECT_BELOW: Final = _SELECT_LAST_REMOVED.format(rows="retired_locations AS l {condition}")
SELECT_NAMED: Final = _SELECT_LAST_REMOVED.format(rows=_RETIRED)
RECORD_RESTORED: Final = f"""
INSERT INTO restored_locations ({ALL_COLUMNS}, removed_at, removed_by_run_id)
SELECT {ALL_COLUMNS}, l.retired_at, l.run_id FROM wanted
CROSS JOIN LATERAL (SELECT retired_at, run_id FROM retired_locations WHERE id = wanted.retired_id OFFSET 0) AS l
ORDER BY file_path
"""  # noqa: S608
DELETE_RESTORED: Final = delete_by_key(
    "retired_locations",
    "wanted CROSS JOIN LATERAL (SELECT ctid FROM retired_locations WHERE id = wanted.retired_id OFFSET 0) AS l",
)
ADD_TO_CHUNKS: Final = f"""
UPDATE chunks SET live_file_count = live_file_count + back.files, live_bytes = live_bytes + back.bytes,
       state = 'committed', retired_at = NULL
FROM ({PER_CHUNK.format(table="wanted")}) AS back WHERE chunks.id = back.caf_file_id
"""  # noqa: S608
RECORD_FILES: Final = """
INSERT INTO journal_files (journal_id, caf_file_id, start_byte, file_path)
SELECT %s, caf_file_id, start_byte, file_path FROM {table} ORDER BY file_path
"""

LET_GO: Final = """
caf_file_id NOT IN (SELECT id FROM usable)
AND EXISTS (SELECT FROM chunks AS c WHERE c.id = wanted.caf_file_id AND c.adopted_prefix IS NOT NULL OFFSET 0)
"""
BROKEN_TABLE: Final = f"""
CREATE TEMPORARY TABLE broken ON COMMIT DROP AS
SELECT v.id, v.chunk_id, v.verdict FROM verifications AS v
WHERE v.chunk_id IN (SELECT id FROM usable) AND v.copy_id IS NULL AND {FAILURE_COUNTS}
"""  # noqa: S608
RESTORED_DAMAGE: Final = f"""
SELECT DISTINCT w.file_path FROM wanted AS w JOIN broken AS b ON b.chunk_id = w.caf_file_id
WHERE b.verdict = 'missing'
   OR EXISTS (SELECT FROM findings AS f WHERE f.verification_id = b.id AND {CONCERNS_FILE.format(file="w")})
ORDER BY 1
"""  # noqa: S608
DAMAGE_IS_LIVE: Final = f"""
UPDATE findings AS f SET is_live = true FROM broken AS b
WHERE f.verification_id = b.id AND NOT f.is_live
  AND (b.verdict = 'missing'
       OR EXISTS (SELECT FROM wanted AS w WHERE w.caf_file_id = b.chunk_id AND {CONCERNS_FILE.format(file="w")}))
"""  # noqa: S608

ARCHIVES_OF_LOGS: Final = """
SELECT id FROM usable WHERE EXISTS (SELECT FROM ingestion_units AS u WHERE u.chunk_id = usable.id OFFSET 0)
ORDER BY id DESC
"""

REMOVED_PAGE: Final = f"""
SELECT {LOCATION}, {iso("l.retired_at")}, l.run_id, l.reason,
       c.state IN ('committed', 'retired') AND NOT {exists_by_key("file_locations", "l")}
       AND NOT EXISTS ({LOGS_ELSEWHERE})
FROM (
    SELECT DISTINCT ON (file_path) * FROM retired_locations
    WHERE reason = 'removed' AND file_path >= %(low)s {{upper_bound}}
    ORDER BY file_path, id DESC
    LIMIT %(limit)s
) AS l JOIN chunks AS c ON c.id = l.caf_file_id
ORDER BY l.file_path
"""  # noqa: S608
