"""Look up files and chunks in a snapshot, for FileReader."""

from collections.abc import Collection, Iterator, Sequence
from functools import lru_cache
from typing import Any, Final
from uuid import UUID

from cafcat.errors import Corrupt, NotFound
from cafcat.model import ChunkFiles, Folder, Location
from cafcat.snapshots.database import PooledRows, Rows
from cafcat.snapshots.schema import SnapshotInfo
from cafcat.support.paging import pages_of
from cafcat.support.paths import file_of, folder_of
from cafcat.support.quantities import to_nanoseconds

__all__ = ["PAGE_ROWS", "SnapshotCatalog", "SnapshotCopies", "SnapshotFiles"]

PAGE_ROWS: Final = 1000

_LOCATION: Final = """f.file_path, f.start_byte, f.end_byte, f.crc32c, f.modified_at, c.uuid, c.store, c.object_key,
       c.format, f.content_bytes, f.decoding"""
_DECODED: Final = "f.content_bytes, f.decoding"
_NOT_DECODED: Final = "NULL, NULL"
"""In place of _DECODED for a snapshot of version 1, which has no such columns."""
_LOCATE: Final = f"SELECT {_LOCATION} FROM files AS f JOIN chunks AS c ON c.id = f.chunk WHERE f.file_path = ?"  # noqa: S608
_LOCATE_SOME: Final = f"""
SELECT {_LOCATION} FROM files AS f JOIN chunks AS c ON c.id = f.chunk WHERE f.file_path IN ({{marks}})
"""  # noqa: S608
_LOCATED_TOGETHER: Final = 100
"""Most paths of one query of `locate_many`. A query of a single path takes twice as long per path."""
_LOCATIONS: Final = f"""
SELECT {_LOCATION} FROM files AS f JOIN chunks AS c ON c.id = f.chunk
WHERE f.file_path >= ?1 {{upper_bound}} ORDER BY f.file_path LIMIT ?2
"""  # noqa: S608
# One level of a folder: after each entry, skip all paths below it and find the next one, as `Lookup.folder_page`
# does in the catalog. `slash` is the position of the first slash after the folder's name; 0 for a file of it.
_NEXT: Final = "SELECT file_path FROM files WHERE file_path >= {low} {{upper_bound}} ORDER BY file_path LIMIT 1"
_LOW: Final = """CASE instr(substr(walk.path, ?3), '/') WHEN 0 THEN walk.path || char(1)
                 ELSE substr(walk.path, 1, ?3 + instr(substr(walk.path, ?3), '/') - 2) || '0' END"""
_FOLDER_PAGE: Final = f"""
WITH RECURSIVE walk(path, n) AS (
    SELECT ({_NEXT.format(low="?1")}), 1
  UNION ALL
    SELECT ({_NEXT.format(low=_LOW)}), n + 1 FROM walk WHERE walk.path IS NOT NULL AND n < ?2
), entries(path, slash, n) AS (SELECT path, instr(substr(path, ?3), '/'), n FROM walk WHERE path IS NOT NULL)
SELECT e.path, e.slash, {_LOCATION}
FROM entries AS e
LEFT JOIN files AS f ON e.slash = 0 AND f.file_path = e.path
LEFT JOIN chunks AS c ON c.id = f.chunk
ORDER BY e.n
"""  # noqa: S608
_CHUNK_OF: Final = "SELECT chunk FROM files WHERE file_path = ?"
_PAGE: Final = "SELECT file_path FROM files WHERE file_path >= ? AND file_path < ? ORDER BY file_path LIMIT ?"
_PAGE_TO_THE_END: Final = "SELECT file_path FROM files WHERE file_path >= ? ORDER BY file_path LIMIT ?"
_REPLICAS: Final = """
SELECT store, object_key FROM chunks WHERE uuid = ?1
UNION ALL
SELECT k.store, k.object_key FROM copies AS k JOIN chunks AS c ON c.id = k.chunk WHERE c.uuid = ?1
"""
_HAS_COPIES: Final = """
SELECT 1 FROM copies AS k JOIN chunks AS c ON c.id = k.chunk WHERE c.store = ?1 AND k.store <> c.store LIMIT 1
"""
_STORES: Final = "SELECT DISTINCT store FROM chunks"
_INFO: Final = "SELECT made_at, prefix, files, bytes, journal_id, journal_uuid, cafcat_version FROM snapshot"


class SnapshotFiles:
    """Looks up the files of a snapshot by their paths."""

    def __init__(self, rows: Rows | PooledRows) -> None:
        self._rows = rows

    def _statement(self, text: str) -> str:
        """Return a statement as it is for the version of the snapshot."""
        return text.replace(_DECODED, _NOT_DECODED) if self._rows.version == 1 else text

    def locate(self, path: str) -> Location:
        """Return the location of a file.

        Raises:
            NotFound: The snapshot has no such file.
            InvalidInput: No path can have this name.
            Corrupt: The snapshot is damaged.
            Unavailable: The snapshot file cannot be read.
        """
        rows = self._found(path)
        if not rows:
            raise NotFound("the snapshot has no such file", path=path)
        return _location(rows[0])

    def locate_many(self, paths: Collection[str]) -> dict[str, Location]:
        """Return the locations, by path, of those of these paths that the snapshot has."""
        found: dict[str, Location] = {}
        in_order = sorted(paths)  # near paths are in one page of the file
        for start in range(0, len(in_order), _LOCATED_TOGETHER):
            found |= self._locate_some(in_order[start : start + _LOCATED_TOGETHER])
        return found

    def _locate_some(self, paths: Sequence[str]) -> dict[str, Location]:
        """Return the locations of paths that are looked up by one query.

        Raises:
            Corrupt: The index of a damaged snapshot led to the row of another path.
        """
        statement = self._statement(_LOCATE_SOME.format(marks=",".join("?" * len(paths))))
        rows = self._rows.select(statement, *paths)
        found = {row[0]: _location(row) for row in rows}
        for path in found.keys() - set(paths):
            raise Corrupt("the snapshot is damaged: the index has the row of another path", path=path)
        if len(found) != len(rows):
            raise Corrupt("the snapshot is damaged: the index has the row of one path for two paths")
        return found

    def _found(self, path: str) -> list[tuple[Any, ...]]:
        """Return the row of a path as a list; an empty list if the snapshot does not have the path.

        Raises:
            Corrupt: The index of a damaged snapshot led to the row of another path.
        """
        rows = self._rows.select(self._statement(_LOCATE), path)
        if rows and rows[0][0] != path:
            raise Corrupt("the snapshot is damaged: the index has the row of another path for this path", path=path)
        return rows

    def locate_plain(self, paths: Collection[str]) -> list[ChunkFiles]:  # noqa: ARG002 - as PathLookup has it
        """Return no files: the caller finds them with `locate_many`."""
        return []

    def folders_among(self, names: Collection[str]) -> set[str]:
        """Return those of these names, without a slash at the end, below which the snapshot has a file."""
        return {name for name in names if self.page(f"{name}/", limit=1)}

    def entry(self, path: str) -> Location | Folder | None:
        """Return the folder with a path, else the file with this path, else None.

        Args:
            path: A path without "/" at its end.
        """
        if self.page(f"{path}/", limit=1):
            return Folder(f"{path}/")
        rows = self._found(path)
        return _location(rows[0]) if rows else None

    def state(self) -> None:
        """Return None: a snapshot never changes."""

    def page(self, folder: str, *, after: str | None = None, limit: int = PAGE_ROWS) -> list[str]:
        """Return a page of the paths below a folder, sorted by their bytes; an empty list after the last page.

        Args:
            folder: A path that ends in "/"; "" for all files.
            after: The last path of the page before; None for the first page.
            limit: Largest number of paths in the page.
        """
        low = folder if after is None else f"{after}\x01"
        if not folder:
            rows = self._rows.select(_PAGE_TO_THE_END, low, limit)
        else:
            rows = self._rows.select(_PAGE, low, f"{folder[:-1]}0", limit)
        return [path for (path,) in rows]

    def location_page(self, folder: str, *, after: str | None = None, limit: int = PAGE_ROWS) -> list[Location]:
        """Return a page of the locations of the files below a folder, in path order.

        Args:
            folder: A path that ends in "/"; "" for all files.
            after: The last path of the page before; None for the first page.
            limit: Largest number of locations in the page.
        """
        low = folder if after is None else f"{after}\x01"
        return self.range_page(low, f"{folder[:-1]}0" if folder else None, limit)

    def range_page(self, low: str, high: str | None, limit: int = PAGE_ROWS) -> list[Location]:
        """Return the locations in a range of paths, in path order.

        Args:
            low: Lowest path.
            high: The first path after the range; None for no end.
            limit: Largest number of locations.
        """
        bound, values = ("", ()) if high is None else ("AND f.file_path < ?3", (high,))
        statement = self._statement(_LOCATIONS.format(upper_bound=bound))
        return [_location(row) for row in self._rows.select(statement, low, limit, *values)]

    def folder_page(
        self, folder: str, *, after: Location | Folder | None = None, limit: int = PAGE_ROWS
    ) -> list[Location | Folder]:
        """Return entries of one level: the files directly in a folder, and each of its folders once.

        Args:
            folder: A folder that ends in "/"; "" for the top level.
            after: Return only entries after this one.
            limit: Largest number of entries.

        Raises:
            Corrupt: The snapshot is damaged.
        """
        low = folder
        if after is not None:
            low = f"{after.path[:-1]}0" if isinstance(after, Folder) else f"{after.path}\x01"
        bound, high = ("AND file_path < ?4", (f"{folder[:-1]}0",)) if folder else ("", ())
        statement = self._statement(_FOLDER_PAGE.format(upper_bound=bound))
        rows = self._rows.select(statement, low, limit, len(folder) + 1, *high)
        return [self._entry(folder, *row) for row in rows]

    def folder(self, folder: str) -> Iterator[Location | Folder]:
        """Yield the files and folders directly in a folder, in path order.

        Args:
            folder: A folder that ends in "/"; "" for the top level.
        """
        for page in pages_of(lambda last: self.folder_page(folder, after=last), PAGE_ROWS):
            yield from page

    def pages(self, prefix: str) -> Iterator[Sequence[Location]]:
        """Yield the file with a name, and then all files below the folder with that name, in lists and path order.

        Args:
            prefix: The name, as typed.
        """
        file, folder = file_of(prefix), folder_of(prefix)
        if file is not None and (found := self.locate_many([file])):
            yield list(found.values())
        yield from pages_of(lambda last: self.location_page(folder, after=last and last.path), PAGE_ROWS)

    def _entry(self, folder: str, path: str, slash: int, *location: Any) -> Location | Folder:
        if slash:
            return Folder(path[: len(folder) + slash])
        if location[0] != path or location[5] is None:
            raise Corrupt("the snapshot is damaged: the row of a listed path is missing", path=path)
        return _location(location)

    def chunk_of(self, path: str) -> int:
        """Return chunks.id of the chunk that has a file. The snapshot must have the file."""
        return int(self._rows.select(_CHUNK_OF, path)[0][0])

    def stores(self) -> list[str]:
        """Return the URLs of the stores that have the chunks, without those that only have copies."""
        return [store for (store,) in self._rows.select(_STORES)]

    def info(self) -> SnapshotInfo:
        """Return when the snapshot was made, and its totals: the only row of the table `snapshot`."""
        rows = self._rows.select(_INFO)
        return SnapshotInfo(*rows[0])


class SnapshotCopies:
    """Looks up the copies of chunks, as they were when the snapshot was made."""

    def __init__(self, rows: Rows | PooledRows) -> None:
        self._rows = rows

    def replicas_of(self, chunk: UUID) -> list[tuple[str, str]]:
        """Return store URL and key of a chunk's own object, then those of each copy; empty for an unknown chunk."""
        return [(store, key) for store, key in self._rows.select(_REPLICAS, str(chunk))]

    def has_copies_of(self, store: str) -> bool:
        """Return True if another store has a copy of any chunk of a store."""
        return bool(self._rows.select(_HAS_COPIES, store))

    def lacking_changes(self, chunk: UUID) -> int:  # noqa: ARG002 - as LocationCatalog has it
        """Return 0: a snapshot has no events."""
        return 0


class SnapshotCatalog:
    """A LocationCatalog that supplies a FileReader with locations and copies from a snapshot.

    Attributes:
        files: Looks up files by their paths.
        copies: Looks up the copies of chunks.
        is_snapshot: True: see LocationCatalog.
    """

    is_snapshot = True

    def __init__(self, rows: Rows | PooledRows) -> None:
        self.files = SnapshotFiles(rows)
        self.copies = SnapshotCopies(rows)


def _location(row: Sequence[Any]) -> Location:
    path, start, end, crc32c, microseconds, chunk, *where = row
    return Location(path, start, end, crc32c, to_nanoseconds(microseconds), _uuid(chunk), *where)


@lru_cache(maxsize=1024)
def _uuid(text: str) -> UUID:
    """Return a UUID. Thousands of files are in one chunk, so that its UUID is parsed once."""
    return UUID(text)
