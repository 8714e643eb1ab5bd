"""Queries of the pages of files: totals of folders, searching paths."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from cafcat.catalog.console.reading import PageQueries, Row

__all__ = ["Matches", "search", "totals"]

_TOTALS: Final = """
SELECT folder_path, sum(files)::bigint AS files, sum(bytes)::bigint AS bytes FROM (
    SELECT folder_path, files, bytes FROM folder_totals
    WHERE depth = ANY(%(depths)s) AND folder_path = ANY(%(folders)s)
  UNION ALL
    SELECT folder_path, files, bytes FROM folder_deltas
    WHERE depth = ANY(%(depths)s) AND folder_path = ANY(%(folders)s)
) AS changes GROUP BY folder_path
"""
_SEARCH: Final = """
WITH scanned AS MATERIALIZED (
    SELECT file_path FROM file_locations WHERE file_path >= %(low)s {below} ORDER BY file_path LIMIT %(scan)s
)
(SELECT file_path, false AS is_last FROM scanned WHERE {matches} ORDER BY file_path LIMIT %(limit)s)
UNION ALL
(SELECT file_path, true FROM scanned ORDER BY file_path DESC LIMIT 1)
"""
_SCANNED: Final = 20_000
"""Most paths that one query compares with a pattern."""


class Matches(NamedTuple):
    """One page of the result of a search.

    Attributes:
        paths: The paths that match, in order.
        last: Last path that was compared. None if there is none after these: the search is complete.
    """

    paths: list[str]
    last: str | None


def totals(queries: PageQueries, folders: Sequence[str]) -> Mapping[str, Row]:
    """Return the number and the bytes of all files below each of these folders that has files.

    Args:
        queries: Runs the query, which reads the rows of these folders and no file.
        folders: Folders, each with a slash at its end; "" for the whole catalog.
    """
    depths = sorted({folder.count("/") for folder in folders})
    rows = queries.rows(_TOTALS, {"depths": depths, "folders": list(folders)})
    return {row["folder_path"]: row for row in rows}


def search(queries: PageQueries, low: str, high: str | None, regex: str | None, limit: int) -> Matches:
    """Return the first paths in a range that match.

    Args:
        queries: Runs the query, which reads at most 20,000 paths.
        low: Lowest path.
        high: First path after the range; None for no end.
        regex: Regular expression of PostgreSQL; None for all paths.
        limit: Most matches.
    """
    scan = _SCANNED if regex is not None else limit
    statement = _SEARCH.format(
        below="" if high is None else "AND file_path < %(high)s",
        matches="true" if regex is None else "file_path ~ %(regex)s",
    )
    given = {"low": low, "high": high, "regex": regex, "limit": limit, "scan": scan}
    rows = queries.rows(statement, given)
    paths = [row["file_path"] for row in rows if not row["is_last"]]
    last = next((row["file_path"] for row in rows if row["is_last"]), None)
    if len(paths) == limit:
        last = paths[-1]
    return Matches(paths, last if last is not None and _may_go_on(queries, last, high) else None)


def _may_go_on(queries: PageQueries, last: str, high: str | None) -> bool:
    """Return True if the catalog has a path after `last` and below `high`."""
    below = "" if high is None else "AND file_path < %(high)s"
    statement = (
        f"SELECT 1 AS found FROM file_locations WHERE file_path > %(last)s {below} ORDER BY file_path LIMIT 1"  # noqa: S608
    )
    return bool(queries.rows(statement, {"last": last, "high": high}))
