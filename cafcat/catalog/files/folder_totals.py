"""Queries on the totals of folders: number and size of all files in a folder and below it.

A total is the row of folder_totals plus the rows of folder_deltas, which commits add. A query reads only the rows
of the folders that it returns, and no file.
"""

from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from cafcat.catalog.connection import Connection
from cafcat.catalog.files import folder_counts
from cafcat.catalog.files.scope import folder_range
from cafcat.errors import CatalogLocked, CatalogUnavailable
from cafcat.model import FolderTotal

__all__ = ["FolderTotals"]

_FOLD_ROWS: Final = 100_000
"""Largest number of rows of folder_deltas that one transaction adds to folder_totals."""
_FOLD_LOCK: Final = "1667327587, 9"
"""Advisory lock ("cafc", 9) of the process that folds."""
_PAGE_ROWS: Final = 5000
_BELOW_HIGH: Final = " AND folder_path < %(high)s"
_TOTALS: Final = """
SELECT folder_path, depth, sum(files)::bigint AS files, sum(bytes)::bigint AS bytes FROM (
    SELECT folder_path, depth, files, bytes FROM folder_totals WHERE {condition}
    UNION ALL SELECT folder_path, depth, files, bytes FROM folder_deltas WHERE {condition}) AS changes
GROUP BY folder_path, depth
"""
# Each table gives its first folders. The first ones of both together are among them. The changes of a folder are
# added up before the LIMIT, because there may be many of them.
_PAGE: Final = """
SELECT folder_path, depth, sum(files)::bigint, sum(bytes)::bigint FROM (
    (SELECT folder_path, depth, files::numeric, bytes::numeric FROM folder_totals WHERE {condition}
     ORDER BY folder_path LIMIT %(limit)s)
    UNION ALL
    (SELECT folder_path, depth, sum(files), sum(bytes) FROM folder_deltas WHERE {condition}
     GROUP BY folder_path, depth ORDER BY folder_path LIMIT %(limit)s)) AS changes
GROUP BY folder_path, depth ORDER BY folder_path LIMIT %(limit)s
"""
_FOLD: Final = f"""
WITH taken AS (DELETE FROM folder_deltas WHERE id <= (
    SELECT max(id) FROM (SELECT id FROM folder_deltas ORDER BY id LIMIT {_FOLD_ROWS}) AS first)
    RETURNING {folder_counts.COLUMNS}),
added AS (INSERT INTO folder_totals AS t ({folder_counts.COLUMNS})
    SELECT sum(files), sum(bytes), depth, folder_path FROM taken GROUP BY depth, folder_path ORDER BY 3, 4
    ON CONFLICT (depth, folder_path)
    DO UPDATE SET files = t.files + excluded.files, bytes = t.bytes + excluded.bytes)
SELECT count(*) FROM taken
"""  # noqa: S608


class FolderTotals:
    """Queries on folder_totals and folder_deltas. Every method is one transaction, or one for each page."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def total(self, folder: str) -> FolderTotal:
        """Return the total of a folder. It is 0 if the folder has no file, or does not exist.

        Args:
            folder: The folder, with a slash at its end; "" for the whole catalog.
        """
        statement = _TOTALS.format(condition="depth = %(depth)s AND folder_path = %(folder)s")
        parameters = {"depth": folder.count("/"), "folder": folder}
        with self._connection.by_index() as connection:
            row = connection.execute(statement.encode(), parameters).fetchone()
        return FolderTotal(*row) if row else FolderTotal(folder, folder.count("/"), 0, 0)

    def below(self, folder: str, levels: int = 1) -> Iterator[FolderTotal]:
        """Yield the totals of the folders below a folder that have files: level by level, each level in path order.

        Args:
            folder: The folder, with a slash at its end; "" for the whole catalog.
            levels: Number of levels; 1 for the direct subfolders.
        """
        depth = folder.count("/")
        for level in range(depth + 1, depth + 1 + levels):
            yield from self.level(level, *folder_range(folder))

    def level(self, depth: int, low: str, high: str | None) -> Iterator[FolderTotal]:
        """Yield the totals of the folders of one level in a range of paths that have files, in path order.

        Args:
            depth: Number of slashes in the folders.
            low: First path of the range.
            high: First path after the range; None for no upper end.
        """
        while True:
            page = self._page(depth, low, high)
            yield from (total for total in page if total.files > 0)
            if len(page) < _PAGE_ROWS:
                return
            low = page[-1].path + "\x01"

    def _page(self, depth: int, low: str, high: str | None) -> list[FolderTotal]:
        condition = "depth = %(depth)s AND folder_path >= %(low)s" + ("" if high is None else _BELOW_HIGH)
        parameters = {"depth": depth, "low": low, "high": high, "limit": _PAGE_ROWS}
        with self._connection.by_index() as connection:
            rows = connection.execute(_PAGE.format(condition=condition).encode(), parameters).fetchall()
        return [FolderTotal(*row) for row in rows]

    def largest(self, folder: str, levels: int = 1) -> Iterator[FolderTotal]:
        """Yield the totals of the folders below a folder that have files, the largest first.

        Args:
            folder: The folder, with a slash at its end; "" for the whole catalog.
            levels: Number of levels; 1 for the direct subfolders.
        """
        low, high = folder_range(folder)
        depth = folder.count("/")
        condition = "depth = ANY(%(depths)s) AND folder_path >= %(low)s" + ("" if high is None else _BELOW_HIGH)
        statement = _TOTALS.format(condition=condition) + "HAVING sum(files) > 0 ORDER BY bytes DESC, folder_path"
        parameters = {"depths": list(range(depth + 1, depth + 1 + levels)), "low": low, "high": high}
        with self._connection.transaction() as connection, connection.cursor() as cursor:
            for row in cursor.stream(statement.encode(), parameters):
                yield FolderTotal(*row)

    def fold(self) -> None:
        """Add all rows of folder_deltas to folder_totals, in transactions of 100,000 rows.

        If another process does so at the same time, this method leaves the work to that process. It also leaves the
        work to a later call if the database fails, because the totals are right without it.
        """
        with suppress(CatalogUnavailable, CatalogLocked):
            while self._fold_batch() == _FOLD_ROWS:
                pass

    def _fold_batch(self) -> int:
        with self._connection.transaction() as connection:
            [(is_alone,)] = connection.execute(
                f"SELECT pg_try_advisory_xact_lock({_FOLD_LOCK})".encode()
            ).fetchall()
            if not is_alone:
                return 0
            [(rows,)] = connection.execute(_FOLD.encode()).fetchall()
            if rows:
                connection.execute("DELETE FROM folder_totals WHERE files = 0")
        return int(rows)
