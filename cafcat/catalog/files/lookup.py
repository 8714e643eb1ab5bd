"""Look-ups and listings of paths. All queries here are read-only."""

from collections.abc import Collection, Generator, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from cafcat.catalog.by_key import join_by_key
from cafcat.catalog.connection import Connection, PreparedLookup
from cafcat.catalog.files.scope import FindFilter, PathPart, folder_range, successor
from cafcat.errors import CatalogDenied, NotFound
from cafcat.model import NO_SUCH_FILE, NO_SUCH_PREFIX, ChunkFiles, Folder, Location
from cafcat.support.paging import pages_of
from cafcat.support.paths import file_of, folder_of
from cafcat.support.quantities import to_nanoseconds

if TYPE_CHECKING:
    from cafcat.catalog.files.path_page import PathPage
    from cafcat.catalog.files.ranges import PathRange

__all__ = [
    "PAGE_ROWS",
    "PATHS",
    "Lookup",
    "location_of",
    "paths_of_page",
    "size_of",
]

PAGE_ROWS: Final = 1000
PATHS: Final = 20_000
"""Default number of paths that one query returns."""
_MOST_PATHS: Final = 100_000
_PATHS_BYTES: Final = 4 << 20
"""Limits of the later queries of `path_pages`: a query takes about a millisecond, and the time for its paths."""


def paths_of_page(page: "PathPage") -> int:
    """Return how many paths the query after a page should return, by the length of the paths in the page."""
    return min(_MOST_PATHS, max(1, _PATHS_BYTES * len(page) // page.size_bytes))


def size_of(alias: str = "") -> str:
    """Return an SQL expression for the size of a file in bytes.

    Args:
        alias: Alias of the file's table, followed by a dot; "" for none.
    """
    return f"coalesce({alias}content_bytes, {alias}end_byte - {alias}start_byte)"


MICROSECONDS: Final = "(extract(epoch FROM l.modified_at) * 1000000)::bigint"
LOCATION: Final = (
    f"l.file_path, l.start_byte, l.end_byte, l.crc32c, {MICROSECONDS}, c.uuid, c.store, c.object_key, "
    "c.format, l.content_bytes, l.decoding"
)

# OFFSET 0 makes the server look up the path first. Without it, the planner could start from the chunks and use the
# index on file_locations.caf_file_id.
_ROWS: Final = (
    "(SELECT * FROM file_locations WHERE {condition} OFFSET 0) AS l JOIN chunks AS c ON c.id = l.caf_file_id"
)
_FOUND: Final = f"SELECT {LOCATION} FROM {_ROWS}"  # noqa: S608
_FOUND_FIRST: Final = f"SELECT r.version_num, {LOCATION} FROM alembic_version AS r LEFT JOIN ({_ROWS}) ON true"  # noqa: S608


def _selection(condition: str) -> PreparedLookup:
    found, found_first = _FOUND.format(condition=condition), _FOUND_FIRST.format(condition=condition)
    return PreparedLookup(found.encode(), found_first.encode())


# The subquery hides the path from the planner. Otherwise a plan for all paths would look as if it read all
# partitions, and the server would plan each look-up anew: 186 µs with 16 partitions, not 88 µs. In a plain table,
# both take 52 µs.
_LOCATE_ONE: Final = _selection("file_path = (SELECT %s::text)")
# The planner cannot estimate the length of an array from a subquery. It therefore uses the index, as for few paths.
# The LATERAL join takes half as long again for a thousand adjacent paths in a plain table (PostgreSQL 18). But the
# array is looked up in every partition: 32 ms for a thousand paths in 16 partitions, where the join needs 9 ms. And
# the planner may read whole partitions for it. The first look-up does not know the layout yet.
_FILES: Final = "SELECT * FROM file_locations WHERE file_path = ANY (ARRAY(SELECT unnest(%s::text[])))"
_FILES_PARTITIONED: Final = (
    f"SELECT l.* FROM (SELECT unnest(%s::text[]) AS path) AS asked {join_by_key('asked.path')}"  # noqa: S608
)
_REVISION_AND_KIND: Final = (
    "concat_ws(' ', r.version_num, (SELECT relkind FROM pg_class WHERE oid = 'file_locations'::regclass))"
)


def _of_many(statement: str) -> tuple[PreparedLookup, PreparedLookup]:
    """Return the look-ups of many paths in a plain table and in one with partitions."""
    partitioned = statement.format(files=_FILES_PARTITIONED)
    first = (
        f"SELECT {_REVISION_AND_KIND}, found.* FROM alembic_version AS r "  # noqa: S608
        f"LEFT JOIN ({partitioned}) AS found ON true"
    ).encode()
    return PreparedLookup(statement.format(files=_FILES).encode(), first), PreparedLookup(
        partitioned.encode(), first
    )


# A row for each file, and one for each chunk of these files. A join would send the texts of the chunk with every
# file: it takes 2.5 instead of 1.5 µs a file for a thousand files.
_LOCATE_MANY, _LOCATE_MANY_PARTITIONED = _of_many(f"""
WITH found AS MATERIALIZED ({{files}})
SELECT l.caf_file_id, l.file_path, l.start_byte, l.end_byte, l.crc32c, {MICROSECONDS}, l.content_bytes,
       l.decoding, NULL::uuid, NULL, NULL, NULL
FROM found AS l
UNION ALL SELECT id, NULL, NULL, NULL, NULL, NULL, NULL, NULL, uuid, store, object_key, format
FROM chunks WHERE id = ANY (ARRAY(SELECT DISTINCT caf_file_id FROM found))
""")  # noqa: S608
# Arrays, because psycopg takes a third of the time for them that it takes for rows: 0.9 instead of 1.5 µs a file.
_LOCATE_PLAIN, _LOCATE_PLAIN_PARTITIONED = _of_many("""
SELECT c.uuid, c.store, c.object_key, c.format, l.paths, l.starts, l.ends, l.checksums
FROM (SELECT caf_file_id, array_agg(file_path ORDER BY start_byte, end_byte) AS paths,
             array_agg(start_byte ORDER BY start_byte, end_byte) AS starts,
             array_agg(end_byte ORDER BY start_byte, end_byte) AS ends,
             array_agg(crc32c ORDER BY start_byte, end_byte) AS checksums
      FROM ({files} OFFSET 0) AS found WHERE content_bytes IS NULL AND decoding IS NULL
      GROUP BY caf_file_id OFFSET 0) AS l
JOIN chunks AS c ON c.id = l.caf_file_id
""")

# A snapshot has all transactions that are not finished. On a standby server it lacks some of them, but these finish
# only when the standby replays more of the log. The start of the server differs if another one has taken its place.
_STATE: Final = b"""
SELECT pg_postmaster_start_time(), pg_current_snapshot()::text,
       CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn()::text END
"""

# The paths below a folder sort between its name followed by "/" and its name followed by "0", the next character.
_FOLDERS_AMONG: Final = """
SELECT name FROM unnest(%s::text[]) AS name CROSS JOIN LATERAL (
    SELECT file_path FROM file_locations WHERE file_path >= (name || '/') COLLATE "C" ORDER BY file_path LIMIT 1
) AS next
WHERE next.file_path < (name || '0') COLLATE "C"
"""

_PAGE: Final = f"""
SELECT {LOCATION}
FROM (SELECT * FROM file_locations AS l WHERE {{conditions}} ORDER BY l.file_path LIMIT %(limit)s) AS l
JOIN chunks AS c ON c.id = l.caf_file_id
ORDER BY l.file_path
"""  # noqa: S608

_PATHS_IN_ORDER: Final = (
    "SELECT l.file_path FROM file_locations AS l WHERE {conditions} ORDER BY l.file_path LIMIT %(limit)s"
)
# One value, because a row for each path takes a client as much time as the server.
_PATHS_AS_TEXT: Final = f"SELECT count(*), string_agg(file_path, E'\\n') FROM ({_PATHS_IN_ORDER}) AS page"  # noqa: S608

# Paths at which the server has divided the table into parts of equal numbers of rows, when it last analyzed it.
_BOUNDS: Final = b"""
SELECT s.histogram_bounds::text::text[], c.reltuples
FROM pg_class AS c
JOIN pg_stats AS s ON s.schemaname = c.relnamespace::regnamespace::text AND s.tablename = c.relname
WHERE c.oid = 'file_locations'::regclass AND s.attname = 'file_path'
"""

_CONDITIONS: Final = {
    "path": "l.file_path = %(path)s",
    "low": "l.file_path >= %(low)s",
    "high": "l.file_path < %(high)s",
    "name_regex": "l.file_path ~ %(name_regex)s",
    "newer": f"{MICROSECONDS} > %(newer)s",
    "older": f"{MICROSECONDS} < %(older)s",
    "min_size": f"{size_of('l.')} >= %(min_size)s",
    "max_size": f"{size_of('l.')} <= %(max_size)s",
}

# OFFSET 0 makes the server find the rows of the chunk before it sorts them. Without it, the planner could read the
# index on the paths of all files, which has the wanted order.
_CHUNK_PAGE: Final = f"""
SELECT {LOCATION}
FROM chunks AS c
CROSS JOIN LATERAL (SELECT * FROM file_locations WHERE caf_file_id = c.id AND file_path >= %(low)s OFFSET 0) AS l
WHERE c.uuid = %(chunk)s
ORDER BY l.file_path
LIMIT %(limit)s
"""  # noqa: S608


class Lookup:
    """Look-ups and listings of files. Every query, such as that for one page of a listing, is one transaction.

    A prefix is a name as the user typed it: "" and "." mean the whole catalog. "a" means the file "a" and all files
    below the folder "a", "a/" only the files below the folder.

    Attributes:
        no_such_prefix: Message of the error for a name that is neither a file nor a folder.
    """

    no_such_prefix = NO_SUCH_PREFIX

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def locate(self, path: str) -> Location:
        """Return the location of a path. Costs one query.

        Raises:
            NotFound: The catalog has no such file.
            InvalidInput: No path can have this name.
            CatalogOutdated, CatalogUnavailable, AccessDenied: As `Connection.select` raises them.
        """
        rows = self._connection.select(_LOCATE_ONE, path)
        if not rows:
            raise NotFound(NO_SUCH_FILE, path=path)
        return location_of(rows[0])

    def locate_many(self, paths: Collection[str]) -> dict[str, Location]:
        """Return the locations, by path, of those of these paths that the catalog has. Costs one query.

        Args:
            paths: Up to LOOKED_UP_PATHS paths.

        Raises:
            InvalidInput: One of the names cannot be a path.
            CatalogOutdated, CatalogUnavailable, AccessDenied: As `Connection.select` raises them.
        """
        if not paths:
            return {}
        selection = _LOCATE_MANY_PARTITIONED if self._connection.is_partitioned() else _LOCATE_MANY
        # Sorted, so that adjacent paths are looked up in the same pages of the index.
        rows = self._connection.select(selection, _array(sorted(paths)))
        chunks = {row[0]: row[8:] for row in rows if row[1] is None}
        locations = {}
        for chunk, path, start, end, crc32c, microseconds, content_bytes, decoding, _, _, _, _ in rows:
            if path is not None and chunk in chunks:
                uuid, store, key, archive_format = chunks[chunk]
                modified_ns = to_nanoseconds(
                    microseconds
                )  # after 2262, they do not fit into a bigint of the server
                locations[path] = Location(
                    path, start, end, crc32c, modified_ns, uuid, store, key, archive_format, content_bytes, decoding
                )
        return locations

    def locate_plain(self, paths: Collection[str]) -> list[ChunkFiles]:
        """Return the files with these paths whose bytes in the chunk need no decoding, by chunk. Costs one query.

        Raises:
            InvalidInput, CatalogOutdated, CatalogUnavailable, AccessDenied: As `locate_many` raises them.
        """
        if not paths:
            return []
        selection = _LOCATE_PLAIN_PARTITIONED if self._connection.is_partitioned() else _LOCATE_PLAIN
        rows = self._connection.select(selection, _array(sorted(paths)))
        return [ChunkFiles(*row) for row in rows]

    def folders_among(self, names: Collection[str]) -> set[str]:
        """Return those of these names, without a slash at the end, below which the catalog has a file.

        Costs one query.
        """
        if not names:
            return set()
        with self._connection.statement(read_only=True) as connection:
            rows = connection.execute(_FOLDERS_AMONG.encode(), [sorted(names)]).fetchall()
        return {row[0] for row in rows}

    def entry(self, path: str) -> Location | Folder | None:
        """Return the folder with a path, else the file with this path, else None. Costs one query.

        Args:
            path: A path without "/" at its end.
        """
        from cafcat.catalog.files.levels import entry

        return entry(self._connection, path)

    def state(self) -> tuple[Any, ...]:
        """Return a value that differs from an earlier one if a transaction has committed since. Costs one query.

        Transactions of other databases of the server change it, too. As long as the value is the same, every query
        has the same result.
        """
        with self._connection.statement(read_only=True) as connection:
            return connection.execute(_STATE).fetchall()[0]

    def level(self, prefix: str) -> Iterator[Location | Folder]:
        """Yield the file with a name, if there is one, and then the files and folders directly in this folder.

        Args:
            prefix: The name, as typed.
        """
        yield from self._file(prefix)
        yield from self.folder(folder_of(prefix))

    def folder(self, folder: str) -> Iterator[Location | Folder]:
        """Yield the files and folders directly in a folder, in path order.

        Args:
            folder: A folder that ends in "/"; "" for the top level.
        """
        for page in pages_of(lambda last: self.folder_page(folder, after=last), PAGE_ROWS):
            yield from page

    def pages(
        self, prefix: str, where: FindFilter | None = None, page_rows: int = PAGE_ROWS
    ) -> Iterator[Sequence[Location]]:
        """Yield the file with a name, and then all files below the folder with that name, in lists and path order.

        Args:
            prefix: The name, as typed.
            where: Conditions that the files have to meet; None for none.
            page_rows: Largest number of files in a list.
        """
        if file := self._file(prefix, where):
            yield file
        folder = folder_of(prefix)
        yield from pages_of(
            lambda last: self.page(folder, after=last and last.path, where=where, limit=page_rows), page_rows
        )

    def path_pages(self, prefix: str, where: FindFilter | None = None) -> "Generator[PathPage, None, None]":
        """Yield the paths of the files that `pages` yields for a name, in lists of up to 100,000.

        This takes a tenth of the time of `pages`. The first list has up to 20,000 paths. Each later one has as many
        as fit in about 4 MiB, by the length of the paths before it.

        Args:
            prefix: The name, as typed.
            where: Conditions that the files have to meet; None for none.
        """
        path = file_of(prefix)
        if path is not None and (page := self._paths({"path": path} | (where or FindFilter()).parameters(), 1)):
            yield page
        yield from self.path_pages_between(*folder_range(folder_of(prefix)), where, PATHS)

    def path_pages_between(
        self, low: str, high: str | None, where: FindFilter | None, most_paths: int
    ) -> Iterator["PathPage"]:
        """Yield the paths in a range, in lists as `path_pages` does.

        Args:
            low: Lowest path.
            high: The first path after the range; None for no end.
            where: Conditions that the files have to meet; None for none.
            most_paths: Largest number of paths in the first list.
        """
        while page := self.path_page_between(low, high, where, most_paths):
            yield page
            if len(page) < most_paths:
                return
            low = successor(page[-1])
            most_paths = paths_of_page(page)

    def path_page_between(
        self, low: str, high: str | None, where: FindFilter | None, most_paths: int
    ) -> "PathPage":
        """Return the first list of `path_pages_between`; an empty list if there are no paths."""
        return self._paths({"low": low, "high": high} | (where or FindFilter()).parameters(), most_paths)

    def parts(self, low: str, high: str | None, most_paths: int) -> list[PathPart]:
        """Split a range of paths into parts of about equal numbers of files, by the statistics of the server.

        The server estimates them from time to time, so a part may have many more files. Without statistics, or if
        the role may not read them, the result is the whole range.

        Args:
            low: Lowest path.
            high: The first path after the range; None for no end.
            most_paths: Largest number of files of a part, if the statistics are right.

        Raises:
            CatalogUnavailable, CatalogOutdated: The database does not answer, or has another schema.
        """
        row = None
        with suppress(CatalogDenied), self._connection.statement(read_only=True) as connection:
            row = connection.execute(_BOUNDS).fetchone()
        bounds, rows = row if row and row[0] and row[1] > 0 else ([], 0)
        step = max(1, int(most_paths * (len(bounds) - 1) / rows)) if rows else 1
        inside = [path for path in bounds[step::step] if low < path and (high is None or path < high)]
        return list(zip([low, *inside], [*inside, high], strict=True))

    def absent(self, groups: "Sequence[Sequence[PathRange]]") -> list[int]:
        """Return the indexes of the groups of ranges in which the catalog has no file. Costs one query.

        A range with a regular expression is read up to its first match.
        """
        from cafcat.catalog.files.ranges import PRESENT, parameters_of

        present = {number for (number,) in self._range(PRESENT, parameters_of(groups))}
        return [number for number in range(len(groups)) if number not in present]

    def pages_in(self, ranges: "Sequence[PathRange]", page_rows: int = PAGE_ROWS) -> Iterator[Sequence[Location]]:
        """Yield the files in ranges of paths, one range after the other, in lists and path order.

        Args:
            ranges: The ranges.
            page_rows: Largest number of files in a list.
        """
        for low, high, regex in ranges:
            bounds = {"low": low, "high": high, "name_regex": regex}
            yield from pages_of(
                lambda last, bounds=bounds: self._page(  # type: ignore[misc]
                    bounds | ({} if last is None else {"low": successor(last.path)}), page_rows
                ),
                page_rows,
            )

    def paths_in(self, ranges: "Sequence[PathRange]") -> Iterator[Sequence[str]]:
        """Yield the paths of the files that `pages_in` yields, in lists of up to 20,000, in a tenth of the time."""
        for low, high, regex in ranges:
            bounds = {"low": low, "high": high, "name_regex": regex}
            yield from pages_of(
                lambda last, bounds=bounds: self._paths(  # type: ignore[misc]
                    bounds | ({} if last is None else {"low": successor(last)}), PATHS
                ),
                PATHS,
            )

    def pruned_in(self, ranges: "Sequence[PathRange]") -> Iterator[Sequence[str]]:  # noqa: ARG002 - as PathListing
        """Yield nothing: `prune` keeps the chunks of live files."""
        return iter(())

    def totals_in(self, ranges: "Sequence[PathRange]") -> tuple[int, int]:
        """Return the number of the files that `pages_in` yields, and their total size in bytes.

        This reads the rows of all these files.
        """
        from cafcat.catalog.files.ranges import TOTALS, columns_of

        [(file_count, size_bytes)] = self._range(TOTALS, columns_of(ranges))
        return int(file_count), int(size_bytes)

    def chunks_in(self, ranges: "Sequence[PathRange]") -> set[UUID]:
        """Return the UUIDs of the chunks of the files that `pages_in` yields.

        This reads the rows of all these files.
        """
        from cafcat.catalog.files.ranges import CHUNKS, columns_of

        return {chunk for (chunk,) in self._range(CHUNKS, columns_of(ranges))}

    def _file(self, prefix: str, where: FindFilter | None = None) -> list[Location]:
        """Return the file with a name in a list; an empty list if there is none, or if it fails the conditions."""
        path = file_of(prefix)
        return [] if path is None else self._page({"path": path} | (where or FindFilter()).parameters(), 1)

    def page(
        self,
        folder: str,
        *,
        after: str | None = None,
        limit: int = PAGE_ROWS,
        where: FindFilter | None = None,
    ) -> list[Location]:
        """Return locations below a folder, in path order.

        Args:
            folder: A folder that ends in "/"; "" for all files.
            after: Return only paths after this one.
            limit: Largest number of locations.
            where: Conditions that the files have to meet; None for none.
        """
        low, high = folder_range(folder)
        low = low if after is None else successor(after)
        parameters = {"low": low, "high": high} | (where or FindFilter()).parameters()
        return self._page(parameters, limit)

    def folder_page(
        self, folder: str, *, after: Location | Folder | None = None, limit: int = PAGE_ROWS
    ) -> list[Location | Folder]:
        """Return entries of one level in path order: the files directly in a folder, and each of its folders once.

        Args:
            folder: A folder that ends in "/"; "" for the top level.
            after: Return only entries after this one.
            limit: Largest number of entries.
        """
        low, high = folder_range(folder)
        if after is not None:
            low = after.path[:-1] + "0" if isinstance(after, Folder) else successor(after.path)
        return self.level_page(low, high, skipped=len(folder), limit=limit)

    def level_page(
        self, low: str, high: str | None, *, skipped: int, delimiter: str = "/", limit: int = PAGE_ROWS
    ) -> list[Location | Folder]:
        """Return the files in a range of paths, and one Folder for all paths with the same text up to a delimiter.

        Each entry costs a look-up in the index, whatever the number of paths below a Folder.

        Args:
            low: Lowest path.
            high: The first path after the range; None for no end.
            skipped: Number of characters at the start of each path in which no delimiter is looked for.
            delimiter: Text at which a Folder ends. One of its characters must not be U+10FFFF.
            limit: Largest number of entries.
        """
        from cafcat.catalog.files.levels import level_page

        return level_page(self._connection, low, high, skipped=skipped, delimiter=delimiter, limit=limit)

    def range_page(self, low: str, high: str | None, limit: int = PAGE_ROWS) -> list[Location]:
        """Return the locations in a range of paths, in path order.

        Args:
            low: Lowest path.
            high: The first path after the range; None for no end.
            limit: Largest number of locations.
        """
        return self._page({"low": low, "high": high}, limit)

    def totals(self, prefix: str) -> tuple[int, int]:
        """Return the number of the files that `pages` yields for a name, and their total size in bytes.

        This reads the rows of all these files.

        Args:
            prefix: The name, as typed.

        Raises:
            NotFound: No file or folder has this name.
        """
        file, folder = self._file(prefix), folder_of(prefix)
        low, high = folder_range(folder)
        bound = "AND file_path < %(high)s" if high else ""
        statement = (
            f"SELECT count(*), coalesce(sum({size_of()}), 0)::bigint FROM file_locations "  # noqa: S608
            f"WHERE file_path >= %(low)s {bound}"
        )
        file_count, size_bytes = self._range(statement, {"low": low, "high": high})[0]
        if not file and not file_count and folder:
            raise NotFound(NO_SUCH_PREFIX, path=prefix)
        return int(file_count) + len(file), int(size_bytes) + sum(location.size_bytes for location in file)

    def chunk_page(self, chunk: UUID, *, after: str | None = None, limit: int = PAGE_ROWS) -> list[Location]:
        """Return live locations of a chunk, in path order; an empty list for an unknown chunk.

        Args:
            chunk: UUID of the chunk.
            after: Return only paths after this one.
            limit: Largest number of locations.
        """
        parameters = {"chunk": chunk, "low": "" if after is None else successor(after), "limit": limit}
        return [location_of(row) for row in self._range(_CHUNK_PAGE, parameters)]

    def _page(self, parameters: dict[str, Any], limit: int) -> list[Location]:
        """Return the locations that meet the conditions whose parameter is not None."""
        return [location_of(row) for row in self._met(_PAGE, parameters, limit)]

    def _paths(self, parameters: dict[str, Any], limit: int) -> "PathPage":
        """Return the paths that meet the conditions whose parameter is not None."""
        from cafcat.catalog.files.path_page import PathPage

        with self._connection.by_index(read_only=True) as connection:
            statement = _with_conditions(_PATHS_AS_TEXT, parameters, limit)
            result = connection.execute(*statement, prepare=False).pgresult
            is_utf8 = connection.info.encoding == "utf-8"
        assert result is not None  # noqa: S101 - an aggregate gives one row
        count, text = int(result.get_value(0, 0) or 0), result.get_value(0, 1) or b""
        if is_utf8 and text.count(b"\n") < max(1, count):
            return PathPage(text, count)
        return PathPage.of([path for (path,) in self._met(_PATHS_IN_ORDER, parameters, limit)])

    def _met(self, statement: str, parameters: dict[str, Any], limit: int) -> list[tuple[Any, ...]]:
        """Return the rows of a statement with the conditions whose parameter is not None."""
        with self._connection.by_index(read_only=True) as connection:
            return connection.execute(*_with_conditions(statement, parameters, limit)).fetchall()

    def _range(self, statement: str, parameters: Any) -> list[tuple[Any, ...]]:
        """Return the rows of a query on a range of an index, with the settings of by_key.BY_INDEX."""
        with self._connection.by_index(read_only=True) as connection:
            return connection.execute(statement.encode(), parameters).fetchall()


def _with_conditions(statement: str, parameters: dict[str, Any], limit: int) -> tuple[bytes, dict[str, Any]]:
    """Return a statement with the conditions whose parameter is not None, and these parameters.

    An index can serve such conditions, but not a condition with "IS NULL OR".
    """
    given = {name: value for name, value in parameters.items() if value is not None}
    conditions = " AND ".join(_CONDITIONS[name] for name in given)
    return statement.format(conditions=conditions).encode(), given | {"limit": limit}


def _array(texts: Sequence[str]) -> str:
    """Return texts as PostgreSQL writes an array of them. psycopg takes four times as long for a list."""
    joined = "".join(texts)
    if '"' in joined or "\\" in joined:
        texts = [text.replace("\\", "\\\\").replace('"', '\\"') for text in texts]
    return '{"' + '","'.join(texts) + '"}'


def location_of(row: Sequence[Any]) -> Location:
    """Return the Location that a row of a query with the columns LOCATION describes."""
    path, start, end, crc32c, microseconds, chunk, store, key, archive_format, content_bytes, decoding = row
    modified_ns = to_nanoseconds(microseconds)
    return Location(
        path, start, end, crc32c, modified_ns, chunk, store, key, archive_format, content_bytes, decoding
    )
