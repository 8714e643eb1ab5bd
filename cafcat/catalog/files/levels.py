"""Lists one level of a hierarchy of paths, whose parts end with any delimiter."""

from typing import Final

from cafcat.catalog.connection import Connection, PreparedLookup
from cafcat.catalog.files.lookup import LOCATION, location_of
from cafcat.model import Folder, Location
from cafcat.support.paths import end_of_prefix

__all__ = ["entry", "level_page"]

# One level: after each entry, skip all paths below it and find the next one (a "loose index scan"). With the
# delimiter "/", the paths below a folder end before its name with "0", the next character, instead of the last "/".
_LEVEL_PAGE: Final = f"""
WITH RECURSIVE walk(entry, is_folder, n) AS (
    SELECT NULL::text COLLATE "C", false, 0
  UNION ALL
    SELECT step.entry, step.is_folder, walk.n + 1
    FROM walk CROSS JOIN LATERAL (
        SELECT CASE WHEN found.place > 0 THEN left(path, %(length)s + found.place + %(ending)s - 1) ELSE path END,
               found.place > 0
        FROM (
            SELECT file_path, position(%(delimiter)s::text in substr(file_path, %(length)s + 1))
            FROM file_locations
            WHERE file_path >= CASE WHEN walk.n = 0 THEN %(from)s
                                    WHEN walk.is_folder THEN left(walk.entry, -%(ending)s::int) || %(after)s::text
                                    ELSE walk.entry || chr(1) END COLLATE "C"
              {{upper_bound}}
            ORDER BY file_path
            LIMIT 1
        ) AS found(path, place)
    ) AS step(entry, is_folder)
    WHERE walk.n < %(limit)s
)
SELECT walk.is_folder, walk.entry, {LOCATION}
FROM walk
LEFT JOIN LATERAL (SELECT * FROM file_locations WHERE file_path = walk.entry OFFSET 0) AS l ON NOT walk.is_folder
LEFT JOIN chunks AS c ON c.id = l.caf_file_id
WHERE walk.n > 0
ORDER BY walk.n
"""  # noqa: S608

# ORDER BY and LIMIT make the server use the index on the paths, whatever its statistics say.
_ENTRY: Final = f"""
coalesce(next.file_path < (asked.path || '0') COLLATE "C", false), {LOCATION}
FROM (SELECT %s::text AS path) AS asked
LEFT JOIN LATERAL (SELECT * FROM file_locations WHERE file_path = asked.path OFFSET 0) AS l ON true
LEFT JOIN chunks AS c ON c.id = l.caf_file_id
LEFT JOIN LATERAL (
    SELECT file_path FROM file_locations
    WHERE file_path >= (asked.path || '/') COLLATE "C" ORDER BY file_path LIMIT 1
) AS next ON true
"""  # noqa: S608
_FIND_ENTRY: Final = PreparedLookup(
    f"SELECT {_ENTRY}".encode(),
    f"SELECT (SELECT version_num FROM alembic_version), {_ENTRY}".encode(),  # noqa: S608
)


def entry(connection: Connection, path: str) -> Location | Folder | None:
    """Return the entry of a level that has a path, as `Lookup.entry` describes it.

    Args:
        connection: Connection of the catalog.
        path: A path without "/" at its end.
    """
    is_folder, *location = connection.select(_FIND_ENTRY, path)[0]
    if is_folder:
        return Folder(f"{path}/")
    return None if location[0] is None else location_of(location)


def level_page(
    connection: Connection, low: str, high: str | None, *, skipped: int, delimiter: str, limit: int
) -> list[Location | Folder]:
    """Return the entries of one level, as `Lookup.level_page` describes them.

    Args:
        connection: Connection of the catalog.
        low: Lowest path.
        high: The first path after the range; None for no end.
        skipped: Number of characters at the start of each path in which no delimiter is looked for.
        delimiter: Text at which a Folder ends.
        limit: Largest number of entries.
    """
    statement = _LEVEL_PAGE.format(upper_bound="" if high is None else "AND file_path < %(high)s")
    parameters = {"from": low, "high": high, "length": skipped, "limit": limit}
    parameters |= {"delimiter": delimiter, "ending": len(delimiter), "after": end_of_prefix(delimiter)}
    with connection.statement(read_only=True) as opened:
        rows = opened.execute(statement.encode(), parameters).fetchall()
    return [Folder(row[1]) if row[0] else location_of(row[2:]) for row in rows]
