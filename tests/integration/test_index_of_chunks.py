"""The index on the chunk of a file finds few other files, also after many files were replaced."""

import psycopg

import cafcat
from tests.worlds.catalog_world import sql

ROWS, OF_CHUNK = 60_000, 1_000
TWO_RANGES = 15_000
"""More rows than two ranges of 128 pages have."""


def test_rows_of_later_chunks_between_others_do_not_spoil_the_index(local: cafcat.Repository) -> None:
    """New rows fill the pages of removed rows. One interval for each range would then have nearly all chunks."""
    insert = "INSERT INTO file_locations (caf_file_id, start_byte, end_byte, crc32c, file_path) SELECT"
    path = "lpad(n::text, 60, '0')"
    sql(local, f"{insert} 1 + n / {OF_CHUNK}, 0, 0, 0, {path} FROM generate_series(0, {ROWS - 1}) AS n")
    vacuum(local)
    sql(local, "DELETE FROM file_locations WHERE file_path::bigint % 50 = 0")
    vacuum(local)
    sql(local, f"{insert} {ROWS}, 0, 0, 0, 'new ' || {path} FROM generate_series(1, {ROWS // 50}) AS n")
    vacuum(local)
    assert rows_of_others(local, 30) < TWO_RANGES


def vacuum(repository: cafcat.Repository) -> None:
    """Free the space of removed rows, and summarize new pages in the index."""
    with psycopg.connect(str(repository.settings.database_url), autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE file_locations")


def rows_of_others(repository: cafcat.Repository, chunk_id: int) -> int:
    """Return how many rows of other chunks the search for the rows of a chunk reads."""
    with psycopg.connect(str(repository.settings.database_url)) as connection:
        connection.execute("SET LOCAL enable_seqscan = off")
        query = f"EXPLAIN (ANALYZE, FORMAT JSON) SELECT FROM file_locations WHERE caf_file_id = {chunk_id}"
        [(plans,)] = connection.execute(query).fetchall()
    [plan] = plans
    assert plan["Plan"]["Node Type"] == "Bitmap Heap Scan"
    assert plan["Plan"]["Actual Rows"] == OF_CHUNK * 49 // 50
    return int(plan["Plan"]["Rows Removed by Index Recheck"])
