"""Queries of the pages of files: searching paths."""

from typing import Final, NamedTuple

from cafcat.catalog.console.reading import PageQueries

__all__ = ["Matches", "search"]

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
