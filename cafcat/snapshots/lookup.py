"""Look up files and chunks in a snapshot, for FileReader."""

from collections.abc import Collection, Sequence
from typing import Any, Final
from uuid import UUID

from cafcat.errors import Corrupt, NotFound
from cafcat.model import Location
from cafcat.snapshots.database import Rows
from cafcat.snapshots.schema import SnapshotInfo
from cafcat.support.quantities import to_nanoseconds

__all__ = ["PAGE_ROWS", "SnapshotCatalog", "SnapshotCopies", "SnapshotFiles"]

PAGE_ROWS: Final = 1000

_LOCATE: Final = """
SELECT f.file_path, f.start_byte, f.end_byte, f.crc32c, f.modified_at, c.uuid, c.store, c.object_key, c.format,
       f.content_bytes, f.decoding
FROM files AS f JOIN chunks AS c ON c.id = f.chunk WHERE f.file_path = ?
"""
_LOCATE_1: Final = _LOCATE.replace("f.content_bytes, f.decoding", "NULL, NULL")
"""For a snapshot of version 1."""
_CHUNK_OF: Final = "SELECT chunk FROM files WHERE file_path = ?"
_PAGE: Final = "SELECT file_path FROM files WHERE file_path > ? AND file_path < ? ORDER BY file_path LIMIT ?"
_PAGE_TO_THE_END: Final = "SELECT file_path FROM files WHERE file_path > ? ORDER BY file_path LIMIT ?"
_REPLICAS: Final = """
SELECT store, object_key FROM chunks WHERE uuid = ?1
UNION ALL
SELECT k.store, k.object_key FROM copies AS k JOIN chunks AS c ON c.id = k.chunk WHERE c.uuid = ?1
"""
_INFO: Final = "SELECT made_at, prefix, files, bytes, journal_id, journal_uuid, cafcat_version FROM snapshot"


class SnapshotFiles:
    """Looks up the files of a snapshot by their paths."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._locate = _LOCATE_1 if rows.version == 1 else _LOCATE

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
        found = map(self._found, sorted(paths))
        return {rows[0][0]: _location(rows[0]) for rows in found if rows}

    def _found(self, path: str) -> list[tuple[Any, ...]]:
        """Return the row of a path as a list; an empty list if the snapshot does not have the path.

        Raises:
            Corrupt: The index of a damaged snapshot led to the row of another path.
        """
        rows = self._rows.select(self._locate, path)
        if rows and rows[0][0] != path:
            raise Corrupt("the snapshot is damaged: the index has the row of another path for this path", path=path)
        return rows

    def folders_among(self, names: Collection[str]) -> set[str]:
        """Return those of these names, without a slash at the end, below which the snapshot has a file."""
        return {name for name in names if self.page(f"{name}/", limit=1)}

    def page(self, folder: str, *, after: str | None = None, limit: int = PAGE_ROWS) -> list[str]:
        """Return a page of the paths below a folder, sorted by their bytes; an empty list after the last page.

        Args:
            folder: A path that ends in "/"; "" for all files.
            after: The last path of the page before; None for the first page.
            limit: Largest number of paths in the page.
        """
        low = folder if after is None else after
        if not folder:
            rows = self._rows.select(_PAGE_TO_THE_END, low, limit)
        else:
            rows = self._rows.select(_PAGE, low, f"{folder[:-1]}0", limit)
        return [path for (path,) in rows]

    def chunk_of(self, path: str) -> int:
        """Return chunks.id of the chunk that has a file. The snapshot must have the file."""
        return int(self._rows.select(_CHUNK_OF, path)[0][0])

    def info(self) -> SnapshotInfo:
        """Return when the snapshot was made, and its totals: the only row of the table `snapshot`."""
        rows = self._rows.select(_INFO)
        return SnapshotInfo(*rows[0])


class SnapshotCopies:
    """Looks up the copies of chunks, as they were when the snapshot was made."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    def replicas_of(self, chunk: UUID) -> list[tuple[str, str]]:
        """Return store URL and key of a chunk's own object, then those of each copy; empty for an unknown chunk."""
        return [(store, key) for store, key in self._rows.select(_REPLICAS, str(chunk))]


class SnapshotCatalog:
    """A LocationCatalog that supplies a FileReader with locations and copies from a snapshot.

    Attributes:
        files: Looks up files by their paths.
        copies: Looks up the copies of chunks.
    """

    def __init__(self, rows: Rows) -> None:
        self.files = SnapshotFiles(rows)
        self.copies = SnapshotCopies(rows)


def _location(row: Sequence[Any]) -> Location:
    path, start, end, crc32c, microseconds, chunk, *where = row
    return Location(path, start, end, crc32c, to_nanoseconds(microseconds), UUID(chunk), *where)
