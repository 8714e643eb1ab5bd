"""Locations of the files of several folders, read in one transaction, in the order of their bytes in the chunks."""

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from cafcat.catalog.connection import Connector
from cafcat.catalog.files.lookup import MICROSECONDS, PathScope, location_of, size_of, successor
from cafcat.catalog.history.runs import iso
from cafcat.catalog.repeatable_read import RepeatableRead, repeatable_read
from cafcat.model import Location

__all__ = ["Export", "export"]

_IN_RANGES: Final = (
    "unnest(%(lows)s::text[], %(highs)s::text[]) AS r(low, high) CROSS JOIN LATERAL "
    "(SELECT * FROM file_locations WHERE file_path >= r.low AND file_path < r.high OFFSET 0) AS l"
)
_ALL: Final = "file_locations AS l"
_TOTALS: Final = f"SELECT count(*), coalesce(sum({size_of('l.')}), 0)::bigint FROM {{files}}"  # noqa: S608
_FILES: Final = f"""
SELECT l.caf_file_id, l.file_path, l.start_byte, l.end_byte, l.crc32c, {MICROSECONDS}, l.content_bytes, l.decoding
FROM {{files}} ORDER BY l.caf_file_id, l.start_byte, l.end_byte, l.file_path
"""  # noqa: S608
_ABSENT: Final = """
SELECT r.number FROM unnest(%(paths)s::text[], %(lows)s::text[], %(highs)s::text[])
    WITH ORDINALITY AS r(path, low, high, number)
WHERE NOT EXISTS (SELECT FROM file_locations AS l WHERE l.file_path = r.path OFFSET 0)
    AND NOT EXISTS (SELECT FROM file_locations AS l WHERE l.file_path >= r.low AND l.file_path < r.high OFFSET 0)
ORDER BY r.number LIMIT 1
"""
_CHUNK: Final = "SELECT uuid, store, object_key, format FROM chunks WHERE id = %(id)s"


class Export:
    """Reads the locations of the files in several folders in one transaction, which does not see later commits.

    Attributes:
        taken_at: Start of the transaction: ISO 8601, UTC.
    """

    def __init__(self, transaction: RepeatableRead) -> None:
        self._transaction = transaction
        transaction.read_by_index(everything=False)
        [(self.taken_at,)] = transaction.rows(f"SELECT {iso('now()')}")

    def first_absent(self, scopes: Sequence[PathScope]) -> int | None:
        """Return the index, in `scopes`, of the first scope without a file; None if each scope has a file.

        The scope of all files is never absent.
        """
        named = [(number, scope) for number, scope in enumerate(scopes) if scope.folder]
        ranges = [scope.range() for _, scope in named]
        parameters = {
            "paths": [scope.file for _, scope in named],
            "lows": [low for low, _ in ranges],
            "highs": [high for _, high in ranges],
        }
        rows = self._transaction.rows(_ABSENT, parameters)
        return named[int(rows[0][0]) - 1][0] if rows else None

    def totals(self, scopes: Sequence[PathScope]) -> tuple[int, int]:
        """Return how many files `files` yields for these scopes, and their total size in bytes."""
        source, parameters = self._source(scopes)
        [(file_count, size_bytes)] = self._transaction.rows(_TOTALS.format(files=source), parameters)
        return int(file_count), int(size_bytes)

    def files(self, scopes: Sequence[PathScope]) -> Generator[Location, None, None]:
        """Yield each file of the scopes once, in the order of chunks.id, then of the file's offset in the chunk.

        The rows stream from the server. The caller must read them to the end or close the generator.
        """
        source, parameters = self._source(scopes)
        current_id: int | None = None
        chunk: tuple[Any, ...] = ()
        for page in self._transaction.pages(_FILES.format(files=source), parameters):
            for chunk_id, path, start, end, checksum, microseconds, content_bytes, decoding in page:
                if chunk_id != current_id:
                    current_id, chunk = chunk_id, self._transaction.rows(_CHUNK, {"id": chunk_id})[0]
                file = (path, start, end, checksum, microseconds)
                yield location_of((*file, *chunk, content_bytes, decoding))

    def _source(self, scopes: Sequence[PathScope]) -> tuple[str, dict[str, Any]]:
        """Return SQL for a FROM clause that selects the files of the scopes, and its parameters by name."""
        everything = any(not scope.folder for scope in scopes)
        self._transaction.read_by_index(everything=everything)
        if everything:
            return _ALL, {}
        ranges = _disjoint_ranges(scopes)
        return _IN_RANGES, {"lows": [low for low, _ in ranges], "highs": [high for _, high in ranges]}


def _disjoint_ranges(scopes: Sequence[PathScope]) -> list[tuple[str, str]]:
    """Return disjoint half-open ranges of paths that contain the files of the scopes and no others.

    Python sorts by code points, PostgreSQL by the bytes of UTF-8. Both orders are the same.
    """
    ranges = [(scope.file, successor(scope.file)) for scope in scopes if scope.file is not None]
    ranges += [(scope.folder, f"{scope.folder[:-1]}0") for scope in scopes]
    merged: list[tuple[str, str]] = []
    for low, high in sorted(ranges):
        if merged and low <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], high))
        else:
            merged.append((low, high))
    return merged


@contextmanager
def export(database: Connector) -> Iterator[Export]:
    """Open a repeatable-read transaction on a new connection, to read the files of an export.

    Raises:
        CatalogUnavailable: The database cannot be reached.
        AccessDenied: The server rejects user and password.
        InvalidInput: The URL of the database cannot be read.
        CatalogOutdated: The database has no schema, or one of another revision.
    """
    with repeatable_read(database) as transaction:
        yield Export(transaction)
