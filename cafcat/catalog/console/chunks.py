"""Queries of the pages of chunks: the list, and one chunk with its live and dead ranges."""

from collections.abc import Sequence
from typing import Final
from uuid import UUID

from cafcat.catalog.console.reading import PageQueries, Row
from cafcat.catalog.files.lookup import size_of

__all__ = ["checks", "chunk", "chunks_page", "copies", "dead_spans", "events", "files", "live_spans"]

_COLUMNS: Final = """
id, uuid, state, format, store, object_key, size_bytes, data_bytes, index_start_byte, index_end_byte, file_count,
live_file_count, live_bytes, run_id, begun_at, committed_at, abandoned_at, retired_at, deleted_at, lease_expires_at,
lease_owner, crc64nvme, etag, adopted_prefix, lease_expires_at < now() AS is_expired
"""
_PAGE: Final = """
SELECT {columns} FROM chunks WHERE id < %(before)s {condition} ORDER BY id DESC LIMIT %(limit)s
"""
_COPIES: Final = """
SELECT id, store, object_key, state, begun_at, committed_at, retired_at, deleted_at
FROM chunk_copies WHERE chunk_id = %(chunk)s ORDER BY id LIMIT 100
"""
_EVENTS: Final = """
SELECT id, happened_at, kind, file_path, detail, run_id FROM (
    SELECT * FROM events WHERE chunk_id = %(chunk)s OFFSET 0
) AS e ORDER BY id DESC LIMIT 100
"""
_CHECKS: Final = """
SELECT v.id, v.run_id, k.store AS copy_store, v.level, v.verdict, v.files_checked, v.bytes_read, v.finding_count,
       v.finished_at, v.checked_by
FROM verifications AS v LEFT JOIN chunk_copies AS k ON k.id = v.copy_id
WHERE v.chunk_id = %(chunk)s ORDER BY v.id DESC LIMIT 50
"""
_SPANS: Final = """
SELECT start_byte, end_byte FROM {table} WHERE caf_file_id = %(chunk)s AND end_byte > start_byte LIMIT %(limit)s
"""
_FILES: Final = f"""
SELECT file_path, start_byte, end_byte, {size_of()} AS size_bytes, modified_at
FROM file_locations WHERE caf_file_id = %(chunk)s
"""  # noqa: S608
# OFFSET 0 makes the server find the rows of the chunk before it sorts them. Without it, the planner reads the index
# on the paths of all files, which has the wanted order: 2 seconds in 10 million rows.
_SORTED: Final = f"""
SELECT * FROM ({_FILES} AND file_path > %(after)s OFFSET 0) AS found ORDER BY file_path LIMIT %(limit)s
"""  # noqa: S608


def chunks_page(queries: PageQueries, state: str | None, before: int, limit: int) -> Sequence[Row]:
    """Return chunks with a lower number than `before`, the latest first.

    Args:
        queries: Runs the query.
        state: Only chunks in this state; None for all.
        before: chunks.id of the last chunk of the page before.
        limit: Most chunks.
    """
    condition = "" if state is None else "AND state = %(state)s"
    statement = _PAGE.format(columns=_COLUMNS, condition=condition)
    return queries.rows(statement, {"state": state, "before": before, "limit": limit})


def chunk(queries: PageQueries, uuid: UUID) -> Row | None:
    """Return a chunk by its UUID; None if the catalog has no such chunk."""
    rows = queries.rows(f"SELECT {_COLUMNS} FROM chunks WHERE uuid = %(uuid)s", {"uuid": uuid})  # noqa: S608
    return rows[0] if rows else None


def copies(queries: PageQueries, chunk_id: int) -> Sequence[Row]:
    """Return the copies of a chunk, the oldest first."""
    return queries.rows(_COPIES, {"chunk": chunk_id})


def events(queries: PageQueries, chunk_id: int) -> Sequence[Row]:
    """Return the latest 100 events of a chunk, newest first."""
    return queries.rows(_EVENTS, {"chunk": chunk_id})


def checks(queries: PageQueries, chunk_id: int) -> Sequence[Row]:
    """Return the latest 50 checks of a chunk and its copies, newest first."""
    return queries.rows(_CHECKS, {"chunk": chunk_id})


def live_spans(queries: PageQueries, chunk_id: int, limit: int) -> Sequence[tuple[int, int]]:
    """Return the spans of up to `limit` live files of a chunk, in bytes, in no order. Empty files are left out."""
    return _spans(queries, "file_locations", chunk_id, limit)


def dead_spans(queries: PageQueries, chunk_id: int, limit: int) -> Sequence[tuple[int, int]]:
    """Return the spans of up to `limit` replaced or removed files of a chunk, as `live_spans` does."""
    return _spans(queries, "retired_locations", chunk_id, limit)


def _spans(queries: PageQueries, table: str, chunk_id: int, limit: int) -> Sequence[tuple[int, int]]:
    rows = queries.rows(_SPANS.format(table=table), {"chunk": chunk_id, "limit": limit})
    return [(row["start_byte"], row["end_byte"]) for row in rows]


def files(queries: PageQueries, chunk_id: int, *, after: str | None, limit: int) -> Sequence[Row]:
    """Return live files of a chunk.

    Args:
        queries: Runs the query.
        chunk_id: chunks.id.
        after: Only files after this path, sorted by path: the query then reads the rows of all files of the chunk.
            None: any files, in no order, however many the chunk has.
        limit: Most files.
    """
    statement = f"{_FILES} LIMIT %(limit)s" if after is None else _SORTED
    return queries.rows(statement, {"chunk": chunk_id, "after": after, "limit": limit})
