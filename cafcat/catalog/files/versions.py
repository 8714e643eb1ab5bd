"""The present and former contents of paths, which the S3 protocol calls versions, and removals: delete markers."""

from collections.abc import Collection
from datetime import datetime
from typing import Any, Final, NamedTuple
from uuid import UUID

from cafcat.catalog.connection import Connection
from cafcat.catalog.files.lookup import LOCATION, location_of
from cafcat.catalog.files.ranges import PathRange
from cafcat.catalog.files.scope import successor
from cafcat.model import Location

__all__ = ["DeleteMarker", "Version", "VersionPage", "Versions"]

_REMOVED_SECONDS: Final = "CASE WHEN l.reason = 'removed' THEN floor(extract(epoch FROM l.retired_at))::bigint END"
_LIVE: Final = f"""
SELECT {LOCATION}
FROM (SELECT * FROM file_locations WHERE file_path >= %(low)s {{upper_bound}}
      ORDER BY file_path LIMIT %(limit)s) AS l
JOIN chunks AS c ON c.id = l.caf_file_id
"""  # noqa: S608
# The content of a skipped file was never at its path, and a moved file has the same content in its new chunk. No
# condition on that is in the subquery: there, any number of rows could be read before `limit` of them are found.
_FORMER: Final = f"""
SELECT {LOCATION}, l.id, l.reason IN ('replaced', 'removed') AND c.state IN ('committed', 'retired'),
       {_REMOVED_SECONDS}
FROM (SELECT * FROM retired_locations WHERE file_path >= %(low)s {{upper_bound}}
      ORDER BY file_path LIMIT %(limit)s) AS l
JOIN chunks AS c ON c.id = l.caf_file_id
"""  # noqa: S608
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
# The row of the latest removal has the highest id.
_REMOVAL: Final = f"""
SELECT {LOCATION}, {_REMOVED_SECONDS}
FROM (SELECT * FROM retired_locations WHERE file_path = %(path)s AND reason = 'removed' OFFSET 0) AS l
JOIN chunks AS c ON c.id = l.caf_file_id
{{condition}}
ORDER BY l.id DESC LIMIT 1
"""  # noqa: S608
_LAST_REMOVAL: Final = _REMOVAL.format(condition="")
_REMOVAL_OF: Final = _REMOVAL.format(
    condition="WHERE c.uuid = %(chunk)s AND l.start_byte = %(start)s AND l.end_byte = %(end)s"
)

_VERSION_COLUMNS: Final = (
    "file_path, start_byte, end_byte, crc32c, modified_at, content_bytes, decoding, caf_file_id, current_since, "
    "ingest_run_id"
)
# The same three tables as in cafcat_ops.file_history. OFFSET 0: see cafcat.catalog.by_key. Only a rebuild inserts
# replaced files without the run that replaced them: it may not have found the version that did.
_AS_OF: Final = f"""
SELECT {LOCATION}, l.by_no_run AND r.state = 'rebuilt'
FROM unnest(%(paths)s::text[]) AS asked (path) CROSS JOIN LATERAL (
    SELECT {_VERSION_COLUMNS}, NULL::timestamptz AS current_until, false AS by_no_run
    FROM file_locations WHERE file_path = asked.path
    UNION ALL
    SELECT {_VERSION_COLUMNS}, retired_at, reason = 'replaced' AND run_id IS NULL
    FROM retired_locations WHERE file_path = asked.path AND reason IN ('replaced', 'removed')
    UNION ALL
    SELECT {_VERSION_COLUMNS}, removed_at, false FROM restored_locations WHERE file_path = asked.path
    OFFSET 0) AS l
JOIN chunks AS c ON c.id = l.caf_file_id
LEFT JOIN ingest_runs AS r ON r.id = coalesce(l.ingest_run_id, c.run_id)
WHERE coalesce(l.current_since, c.committed_at) <= %(moment)s
  AND (l.current_until IS NULL OR l.current_until > %(moment)s) AND c.state IN ('committed', 'retired')
"""  # noqa: S608

_BELOW: Final = """
(SELECT DISTINCT file_path FROM {table} WHERE file_path >= %(low)s AND file_path < %(high)s {regex}
 ORDER BY file_path LIMIT %(limit)s)
"""
_PATHS: Final = " UNION ".join(
    _BELOW.replace("{table}", table) for table in ("file_locations", "retired_locations", "restored_locations")
)

_PRUNED_BELOW: Final = """
(SELECT DISTINCT l.file_path FROM {table} AS l JOIN chunks AS c ON c.id = l.caf_file_id
 WHERE l.file_path >= %(low)s AND l.file_path < %(high)s {{regex}}
   AND coalesce(l.current_since, c.committed_at) <= %(moment)s AND l.{until} > %(moment)s {reasons}
   AND c.state NOT IN ('committed', 'retired')
 ORDER BY l.file_path LIMIT %(limit)s)
"""
# No live file is in a chunk that was pruned.
_PRUNED: Final = " UNION ".join((
    _PRUNED_BELOW.format(
        table="retired_locations", until="retired_at", reasons="AND l.reason IN ('replaced', 'removed')"
    ),
    _PRUNED_BELOW.format(table="restored_locations", until="removed_at", reasons=""),
))  # fmt: skip


class Version(NamedTuple):
    """One content of a path.

    Attributes:
        location: Where the content is.
        is_live: True if the path has this content now.
    """

    location: Location
    is_live: bool


class DeleteMarker(NamedTuple):
    """The removal of a file. The S3 protocol lists removals between the versions of a path.

    A removal is recorded as long as the catalog exists, even if the removed content was pruned. `undelete` deletes
    the record.

    Attributes:
        location: Where the removed content is, or was until it was pruned.
        removed_seconds: When the file was removed, in seconds since 1970.
    """

    location: Location
    removed_seconds: int


class VersionPage(NamedTuple):
    """Versions and delete markers of some paths.

    Attributes:
        versions: All versions and delete markers of these paths.
        following: Lowest path of the next page; None if there is no other page.
    """

    versions: list[Version | DeleteMarker]
    following: str | None


class Versions:
    """Queries on present and former contents of paths, and on removals.

    A content whose chunk was pruned is left out, but not the removal of such a content.
    """

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
        with self._connection.by_index(read_only=True) as connection:
            for statement in (_LIVE_AT, _FORMER_AT):
                row = connection.execute(statement.encode(), parameters).fetchone()
                if row is not None:
                    return location_of(row)
        return None

    def as_of(self, paths: Collection[str], moment: datetime) -> list[tuple[Location, bool]]:
        """Return the locations that those of these paths had that had a file at some time. Costs one query.

        Args:
            paths: Paths of files.
            moment: The time, with a time zone.

        Returns:
            Each location, and True if its end is uncertain: a rebuild found the version and the next one, but not
            those between them that had been pruned.
        """
        parameters = {"paths": sorted(paths), "moment": moment}
        with self._connection.by_index(read_only=True) as connection:
            rows = connection.execute(_AS_OF.encode(), parameters).fetchall()
        return [(location_of(row[:-1]), row[-1] is True) for row in rows]

    def paths(self, within: PathRange, limit: int) -> list[str]:
        """Return the first paths of a range that have or had a file at any time, in path order.

        Args:
            within: The range.
            limit: Largest number of paths.
        """
        regex = "" if within.regex is None else "AND file_path ~ %(regex)s"
        statement = f"{_PATHS.format(regex=regex)} ORDER BY file_path LIMIT %(limit)s"
        with self._connection.by_index(read_only=True, in_order=True) as connection:
            rows = connection.execute(statement.encode(), within._asdict() | {"limit": limit}).fetchall()
        return [path for (path,) in rows]

    def pruned(self, within: PathRange, moment: datetime, limit: int) -> list[str]:
        """Return the first paths of a range that had a file at some time whose chunk is gone since.

        All versions in the range up to the last of these paths are read.

        Args:
            within: The range.
            moment: The time, with a time zone.
            limit: Largest number of paths.
        """
        regex = "" if within.regex is None else "AND l.file_path ~ %(regex)s"
        statement = f"{_PRUNED.format(regex=regex)} ORDER BY file_path LIMIT %(limit)s"
        with self._connection.by_index(read_only=True, in_order=True) as connection:
            parameters = within._asdict() | {"moment": moment, "limit": limit}
            rows = connection.execute(statement.encode(), parameters).fetchall()
        return [path for (path,) in rows]

    def last_removal(self, path: str) -> DeleteMarker | None:
        """Return the latest removal of a path; None if the path was never removed, or was restored since."""
        return self._removal(_LAST_REMOVAL, {"path": path})

    def find_removal(self, path: str, chunk: UUID, start: int, end: int) -> DeleteMarker | None:
        """Return the removal of a content from its path; None if there is none.

        Args:
            path: Path of the file.
            chunk: UUID of the chunk with the removed content.
            start: First byte of the content in the chunk.
            end: One past its last byte.
        """
        return self._removal(_REMOVAL_OF, {"path": path, "chunk": chunk, "start": start, "end": end})

    def _removal(self, statement: str, parameters: dict[str, Any]) -> DeleteMarker | None:
        with self._connection.by_index(read_only=True) as connection:
            row = connection.execute(statement.encode(), parameters).fetchone()
        return None if row is None else DeleteMarker(location_of(row[:-1]), row[-1])

    def page(self, low: str, high: str | None, limit: int) -> VersionPage:
        """Return versions and delete markers of paths in a range: in path order, and of each path the newest first.

        Args:
            low: Lowest path.
            high: The first path after the range; None for no end.
            limit: Largest number of rows to read of each of two tables, unless a single path has more.
        """
        parameters = {"low": low, "high": high, "limit": limit}
        with self._connection.by_index(read_only=True, in_order=True) as connection:
            live = connection.execute(_bounded(_LIVE, high), parameters).fetchall()
            former = connection.execute(_bounded(_FORMER, high), parameters).fetchall()
        # The former versions of the last path may continue after the last row.
        ends = [successor(max(row[0] for row in live))] if len(live) == limit else []
        ends += [max(row[0] for row in former)] if len(former) == limit else []
        following = min(ends, default=None)
        if following == low:
            return self.page(low, high, 2 * limit)
        found: list[Version | DeleteMarker] = [Version(location_of(row), is_live=True) for row in live]
        former.sort(key=lambda row: row[-3], reverse=True)  # the row of the newest has the highest id
        for row in former:
            found += _former(location_of(row[:-3]), has_content=row[-2], removed_seconds=row[-1])
        found.sort(key=lambda version: version.location.path)
        complete = [version for version in found if following is None or version.location.path < following]
        return VersionPage(complete, following)


def _former(location: Location, *, has_content: bool, removed_seconds: int | None) -> list[Version | DeleteMarker]:
    """Return the removal of a content, if it was removed, and the content, if it can still be read."""
    found: list[Version | DeleteMarker] = []
    if removed_seconds is not None:
        found.append(DeleteMarker(location, removed_seconds))
    return [*found, Version(location, is_live=False)] if has_content else found


def _bounded(statement: str, high: str | None) -> bytes:
    return statement.format(upper_bound="" if high is None else "AND file_path < %(high)s").encode()
