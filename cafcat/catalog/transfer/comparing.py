"""Reads the rows of one catalog that another catalog of the same stores should have, too, in a fixed order."""

from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Final

from cafcat.catalog.connection import Connector
from cafcat.catalog.history.runs import iso
from cafcat.catalog.repeatable_read import RepeatableRead, repeatable_read

__all__ = ["ComparedCatalog", "ComparedTable", "Comparing"]


class ComparedTable(StrEnum):
    """A table whose rows are compared. The values are the names of the tables."""

    CHUNKS = "chunks"
    """Committed and retired chunks."""
    FILE_LOCATIONS = "file_locations"
    """The live locations of all files."""
    RETIRED_LOCATIONS = "retired_locations"
    """The retired locations in committed and retired chunks."""
    INGESTION_UNITS = "ingestion_units"
    """The log files in committed and retired archives of logs."""
    CHUNK_TIMES = "chunk_times"
    """The times of committed and retired archives of logs."""


_LOCATION: Final = f"l.start_byte, l.end_byte, l.crc32c, {iso('l.modified_at')}, l.content_bytes, l.decoding"
_COLUMNS: Final = {
    ComparedTable.CHUNKS: (
        "uuid",
        "state",
        "format",
        "size_bytes",
        "data_bytes",
        "index_start_byte",
        "index_end_byte",
        "file_count",
        "live_file_count",
        "live_bytes",
        "crc64nvme",
        "index_crc32c",
    ),
    ComparedTable.FILE_LOCATIONS: (
        "path", "chunk", "start_byte", "end_byte", "crc32c", "modified_at", "content_bytes", "decoding",
    ),
    ComparedTable.RETIRED_LOCATIONS: (
        "path", "chunk", "start_byte", "end_byte", "crc32c", "modified_at", "content_bytes", "decoding", "reason",
    ),
    ComparedTable.INGESTION_UNITS: (
        "chunk", "number", "file_name", "first_record", "end_record", "source_bytes", "modified_at", "fields",
    ),
    ComparedTable.CHUNK_TIMES: ("chunk", "timestamp_key", "begin_ms", "end_ms"),
}  # fmt: skip
_QUERIES: Final = {
    ComparedTable.CHUNKS: (
        f"SELECT {', '.join(_COLUMNS[ComparedTable.CHUNKS])} FROM chunks "  # noqa: S608
        "WHERE state IN ('committed', 'retired') ORDER BY uuid"
    ),
    ComparedTable.FILE_LOCATIONS: (
        f"SELECT l.file_path, c.uuid, {_LOCATION} "  # noqa: S608
        "FROM file_locations AS l LEFT JOIN chunks AS c ON c.id = l.caf_file_id ORDER BY l.file_path"
    ),
    ComparedTable.RETIRED_LOCATIONS: (
        f"SELECT l.file_path, c.uuid, {_LOCATION}, l.reason "  # noqa: S608
        "FROM retired_locations AS l JOIN chunks AS c ON c.id = l.caf_file_id "
        "WHERE c.state IN ('committed', 'retired') ORDER BY l.file_path, c.uuid, l.start_byte"
    ),
    # The number is padded, so that its text sorts like the number.
    ComparedTable.INGESTION_UNITS: (
        "SELECT c.uuid, lpad(u.number::text, 10, '0'), u.file_name, u.first_record, u.end_record, "  # noqa: S608
        f"u.source_bytes, {iso('u.modified_at')}, u.fields "
        "FROM ingestion_units AS u JOIN chunks AS c ON c.id = u.chunk_id "
        "WHERE c.state IN ('committed', 'retired') ORDER BY c.uuid, u.number"
    ),
    ComparedTable.CHUNK_TIMES: (
        "SELECT c.uuid, t.timestamp_key, t.begin_ms, t.end_ms "
        "FROM chunk_times AS t JOIN chunks AS c ON c.id = t.chunk_id "
        "WHERE c.state IN ('committed', 'retired') ORDER BY c.uuid, t.timestamp_key"
    ),
}
_KEY_COLUMNS: Final = {
    ComparedTable.CHUNKS: 1,
    ComparedTable.FILE_LOCATIONS: 1,
    ComparedTable.RETIRED_LOCATIONS: 2,
    ComparedTable.INGESTION_UNITS: 2,
    ComparedTable.CHUNK_TIMES: 2,
}


class ComparedCatalog:
    """Reads the compared rows of one catalog, in one repeatable-read transaction."""

    def __init__(self, transaction: RepeatableRead) -> None:
        self._transaction = transaction

    def rows(self, table: ComparedTable) -> Iterator[bytes]:
        """Yield the compared columns of the table's compared rows, as lines in the text format of COPY.

        The lines are sorted by their first columns (`Comparing.key_columns`). Retired locations with the same key
        are sorted by start_byte.
        """
        for lines in self._transaction.copy(_QUERIES[table]):
            yield from lines.splitlines(keepends=True)  # COPY escapes line breaks in values


class Comparing:
    """Access to one of the two catalogs that `cafcat compare` compares."""

    def __init__(self, database: Connector) -> None:
        self._database = database

    @contextmanager
    def reading(self) -> Iterator[ComparedCatalog]:
        """Open a repeatable-read transaction on a new connection, to read the rows that are compared.

        Raises:
            CatalogUnavailable: The database cannot be reached.
            AccessDenied: The server rejects user and password.
            InvalidInput: The URL of the database cannot be read.
            CatalogOutdated: The database has no schema, or one of another revision.
        """
        with repeatable_read(self._database) as transaction:
            yield ComparedCatalog(transaction)

    @staticmethod
    def columns(table: ComparedTable) -> tuple[str, ...]:
        """Return the column names of the rows that `ComparedCatalog.rows` yields for a table, in order."""
        return _COLUMNS[table]

    @staticmethod
    def key_columns(table: ComparedTable) -> int:
        """Return how many of the first columns form the key by which rows of two catalogs are paired.

        Only retired_locations can have several rows with the same key: path and chunk.
        """
        return _KEY_COLUMNS[table]
