"""The present and former contents of paths, which the S3 protocol calls versions."""

from typing import Final, NamedTuple
from uuid import UUID

from cafcat.catalog.connection import Connection
from cafcat.catalog.files.lookup import LOCATION, location_of, successor
from cafcat.model import Location

__all__ = ["Version", "VersionPage", "Versions"]

_LIVE: Final = f"""
SELECT {LOCATION}
FROM (SELECT * FROM file_locations WHERE file_path >= %(low)s {{upper_bound}}
      ORDER BY file_path LIMIT %(limit)s) AS l
JOIN chunks AS c ON c.id = l.caf_file_id
"""  # noqa: S608
# The content of a skipped file was never at its path, and a moved file has the same content in its new chunk. No
# condition on that is in the subquery: there, any number of rows could be read before `limit` of them are found.
_FORMER: Final = f"""
SELECT {LOCATION}, l.id, l.reason IN ('replaced', 'removed') AND c.state IN ('committed', 'retired')
FROM (SELECT * FROM retired_locations WHERE file_path >= %(low)s {{upper_bound}}
      ORDER BY file_path LIMIT %(limit)s) AS l
JOIN chunks AS c ON c.id = l.caf_file_id
"""  # noqa: S608
_IN_ORDER: Final = "SET LOCAL enable_sort = off"
"""Read an index in its order. With wrong statistics, the server would sort all rows of a range to return a few."""
_AT: Final = f"""
SELECT {LOCATION}
FROM (SELECT * FROM {{table}} WHERE file_path = %(path)s AND start_byte = %(start)s AND end_byte = %(end)s
      {{condition}} OFFSET 0) AS l
JOIN chunks AS c ON c.id = l.caf_file_id
WHERE c.uuid = %(chunk)s AND c.state IN ('committed', 'retired')
LIMIT 1
"""  # noqa: S608
_LIVE_AT: Final = _AT.format(table="file_locations", condition="")
_FORMER_AT: Final = _AT.format(table="retired_locations", condition="AND reason <> 'skipped'")


class Version(NamedTuple):
    """One content of a path.

    Attributes:
        location: Where the content is.
        is_live: True if the path has this content now.
    """

    location: Location
    is_live: bool


class VersionPage(NamedTuple):
    """Versions of some paths.

    Attributes:
        versions: All versions of these paths.
        following: Lowest path of the next page; None if there is no other page.
    """

    versions: list[Version]
    following: str | None


class Versions:
    """Queries on present and former contents of paths. A content whose chunk was pruned is left out."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def find(self, path: str, chunk: UUID, start: int, end: int) -> Location | None:
        """Return the location of a content that a path has or had; None if there is none, or it was pruned.

        Args:
            path: Path of the file.
            chunk: UUID of the chunk with the content.
            start: First byte of the content in the chunk.
            end: One past its last byte.
        """
        parameters = {"path": path, "chunk": chunk, "start": start, "end": end}
        with self._connection.by_index() as connection:
            for statement in (_LIVE_AT, _FORMER_AT):
                row = connection.execute(statement.encode(), parameters).fetchone()
                if row is not None:
                    return location_of(row)
        return None

    def page(self, low: str, high: str | None, limit: int) -> VersionPage:
        """Return versions of paths in a range: in path order, and of each path the newest first.

        Args:
            low: Lowest path.
            high: The first path after the range; None for no end.
            limit: Largest number of rows to read of each of two tables, unless a single path has more.
        """
        parameters = {"low": low, "high": high, "limit": limit}
        with self._connection.by_index() as connection:
            connection.execute(_IN_ORDER)
            live = connection.execute(_bounded(_LIVE, high), parameters).fetchall()
            former = connection.execute(_bounded(_FORMER, high), parameters).fetchall()
        # The former versions of the last path may continue after the last row.
        ends = [successor(max(row[0] for row in live))] if len(live) == limit else []
        ends += [max(row[0] for row in former)] if len(former) == limit else []
        following = min(ends, default=None)
        if following == low:
            return self.page(low, high, 2 * limit)
        found = [Version(location_of(row), is_live=True) for row in live]
        former.sort(key=lambda row: row[-2], reverse=True)  # the row of the newest has the highest id
        found += [Version(location_of(row[:-2]), is_live=False) for row in former if row[-1]]
        found.sort(key=lambda version: version.location.path)
        complete = [version for version in found if following is None or version.location.path < following]
        return VersionPage(complete, following)


def _bounded(statement: str, high: str | None) -> bytes:
    return statement.format(upper_bound="" if high is None else "AND file_path < %(high)s").encode()
