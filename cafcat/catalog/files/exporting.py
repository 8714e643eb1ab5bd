"""Locations of the files of several folders, read in one transaction, in the order of their bytes in the chunks."""

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from cafcat.catalog.connection import Connector
from cafcat.catalog.files.lookup import MICROSECONDS, location_of, size_of
from cafcat.catalog.files.ranges import FILES_IN, PRESENT, PathRange, columns_of, parameters_of
from cafcat.catalog.history.runs import iso
from cafcat.catalog.repeatable_read import RepeatableRead, repeatable_read
from cafcat.model import Location

__all__ = ["Export", "export"]

_ALL: Final = "file_locations AS l"
_TOTALS: Final = f"SELECT count(*), coalesce(sum({size_of('l.')}), 0)::bigint FROM {{files}}"  # noqa: S608
_FILES: Final = f"""
SELECT l.caf_file_id, l.file_path, l.start_byte, l.end_byte, l.crc32c, {MICROSECONDS}, l.content_bytes, l.decoding
FROM {{files}} ORDER BY l.caf_file_id, l.start_byte, l.end_byte, l.file_path
"""  # noqa: S608
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

    def absent(self, groups: Sequence[Sequence[PathRange]]) -> list[int]:
        """Return the indexes of the groups of ranges in which the catalog has no file."""
        present = {number for (number,) in self._transaction.rows(PRESENT, parameters_of(groups))}
        return [number for number in range(len(groups)) if number not in present]

    def totals(self, ranges: Sequence[PathRange]) -> tuple[int, int]:
        """Return how many files `files` yields for these ranges, and their total size in bytes."""
        source, parameters = self._source(ranges)
        [(file_count, size_bytes)] = self._transaction.rows(_TOTALS.format(files=source), parameters)
        return int(file_count), int(size_bytes)

    def files(self, ranges: Sequence[PathRange]) -> Generator[Location, None, None]:
        """Yield the files of disjoint ranges, in the order of chunks.id, then of the file's offset in the chunk.

        The rows stream from the server. The caller must read them to the end or close the generator.
        """
        source, parameters = self._source(ranges)
        current_id: int | None = None
        chunk: tuple[Any, ...] = ()
        for page in self._transaction.pages(_FILES.format(files=source), parameters):
            for chunk_id, path, start, end, checksum, microseconds, content_bytes, decoding in page:
                if chunk_id != current_id:
                    current_id, chunk = chunk_id, self._transaction.rows(_CHUNK, {"id": chunk_id})[0]
                file = (path, start, end, checksum, microseconds)
                yield location_of((*file, *chunk, content_bytes, decoding))

    def _source(self, ranges: Sequence[PathRange]) -> tuple[str, dict[str, Any]]:
        """Return SQL for a FROM clause that selects the files of disjoint ranges, and its parameters by name."""
        everything = any(one.is_everything for one in ranges)
        self._transaction.read_by_index(everything=everything)
        return (_ALL, {}) if everything else (FILES_IN, columns_of(ranges))


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
