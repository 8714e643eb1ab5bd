"""Ranges of paths, some with a regular expression: the files that prefixes and patterns of the user mean."""

from collections import Counter
from collections.abc import Collection, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, Final, NamedTuple

from cafcat.catalog.files.lookup import size_of
from cafcat.catalog.files.scope import PathScope, successor
from cafcat.model import MAX_PATH_BYTES
from cafcat.support.paths import end_of_prefix

__all__ = [
    "CHUNKS",
    "FILES_IN",
    "PRESENT",
    "TOTALS",
    "PathRange",
    "columns_of",
    "disjoint",
    "parameters_of",
    "prefix_range",
    "scope_ranges",
]

_AFTER_ALL: Final = "\U0010ffff" * (MAX_PATH_BYTES // 4 + 1)
"""A text after all paths: it has only the last character, and is longer than any path."""

PRESENT: Final = """
SELECT DISTINCT r.number
FROM unnest(%(numbers)s::int[], %(lows)s::text[], %(highs)s::text[], %(regexes)s::text[])
    AS r(number, low, high, regex)
WHERE EXISTS (
    SELECT FROM file_locations AS l
    WHERE l.file_path >= r.low AND l.file_path < r.high AND (r.regex IS NULL OR l.file_path ~ r.regex) OFFSET 0
)
"""
"""Query for the numbers of those ranges in which the catalog has a file."""
FILES_IN: Final = """
unnest(%(lows)s::text[], %(highs)s::text[], %(regexes)s::text[]) AS r(low, high, regex) CROSS JOIN LATERAL (
    SELECT * FROM file_locations AS l
    WHERE l.file_path >= r.low AND l.file_path < r.high AND (r.regex IS NULL OR l.file_path ~ r.regex) OFFSET 0
) AS l
"""
"""FROM item with the rows of the files in disjoint ranges, under the alias `l`. Its parameters: `columns_of`."""
TOTALS: Final = f"SELECT count(*), coalesce(sum({size_of('l.')}), 0)::bigint FROM {FILES_IN}"  # noqa: S608
"""Query for the number of the files in disjoint ranges, and their total size in bytes."""
CHUNKS: Final = f"SELECT uuid FROM chunks WHERE id IN (SELECT l.caf_file_id FROM {FILES_IN})"  # noqa: S608
"""Query for the UUIDs of the chunks of the files in disjoint ranges."""


class PathRange(NamedTuple):
    """The paths of a half-open range, or those of them that match a regular expression.

    Attributes:
        low: Lowest path.
        high: The first text after the range.
        regex: Regular expression of PostgreSQL that the paths match; None for all paths of the range.
    """

    low: str
    high: str
    regex: str | None = None

    @property
    def is_everything(self) -> bool:
        """True for the range of all paths."""
        return self == ("", _AFTER_ALL, None)


def prefix_range(prefix: str, regex: str | None = None) -> PathRange:
    """Return the range of all paths that begin with a text, or those of them that match a regular expression."""
    return PathRange(prefix, end_of_prefix(prefix) or _AFTER_ALL, regex)


def scope_ranges(scope: PathScope) -> list[PathRange]:
    """Return the ranges of the files of a scope: the file, if there is one, then the files below the folder."""
    low, high = scope.range()
    below = PathRange(low, _AFTER_ALL if high is None else high)
    return [below] if scope.file is None else [PathRange(scope.file, successor(scope.file)), below]


def disjoint(ranges: Sequence[PathRange]) -> list[PathRange]:
    """Return ranges with the same paths, of which no two have a path in common, in the order of paths.

    Python sorts by code points, PostgreSQL by the bytes of UTF-8. Both orders are the same.
    """
    edges = [(one.low, 1, one.regex) for one in ranges] + [(one.high, -1, one.regex) for one in ranges]
    found: list[PathRange] = []
    active: Counter[str | None] = Counter()
    low = ""
    for edge, changes in groupby(sorted(edges, key=itemgetter(0)), key=itemgetter(0)):
        if active and low < edge:
            regex = _either(active)
            if found and found[-1].high == low and found[-1].regex == regex:
                low = found.pop().low
            found.append(PathRange(low, edge, regex))
        for _, change, changed in changes:
            active[changed] += change
            if not active[changed]:
                del active[changed]
        low = edge
    return found


def _either(regexes: Collection[str | None]) -> str | None:
    """Return a regular expression that matches what one of several matches; None if one of them is None."""
    given = [regex for regex in regexes if regex is not None]
    return "|".join(sorted(given)) if len(given) == len(regexes) else None


def parameters_of(groups: Sequence[Sequence[PathRange]]) -> dict[str, Any]:
    """Return the parameters of PRESENT for groups of ranges. The number of a range is that of its group."""
    numbered = [(number, one) for number, group in enumerate(groups) for one in group]
    return {"numbers": [number for number, _ in numbered]} | columns_of([one for _, one in numbered])


def columns_of(ranges: Sequence[PathRange]) -> dict[str, Any]:
    """Return ranges as arrays for SQL: `lows`, `highs` and `regexes`."""
    return {
        "lows": [one.low for one in ranges],
        "highs": [one.high for one in ranges],
        "regexes": [one.regex for one in ranges],
    }
