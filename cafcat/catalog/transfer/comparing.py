"""What of a catalog is the same in any catalog of the same stores: in one order, whoever has it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Final

from cafcat.catalog.connection import PgConnection
from cafcat.catalog.history.runs import iso
from cafcat.catalog.repeatable_read import RepeatableRead, repeatable_read

__all__ = ["ComparedCatalog", "ComparedTable", "Comparing"]


class ComparedTable(StrEnum):
    """What is compared. The names are those of the tables."""

    CHUNKS = "chunks"
    """Those that have files: committed, or retired and not deleted."""
    FILE_LOCATIONS = "file_locations"
    RETIRED_LOCATIONS = "retired_locations"
    """Of the same chunks: what was replaced, skipped, removed, moved."""
    INGESTION_UNITS = "ingestion_units"
    """Of the same chunks: log files in archives of logs."""
    CHUNK_TIMES = "chunk_times"


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
    # The number as text that sorts as it does.
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
    """One catalog at one moment."""

    def __init__(self, found: RepeatableRead) -> None:
        self._read = found

    def rows(self, table: ComparedTable) -> Iterator[bytes]:
        """The rows in order of their key, as lines in the text format of COPY."""
        return self._read.copy(_QUERIES[table])


class Comparing:
    """One side of a comparison."""

    def __init__(self, connect: Callable[[], PgConnection]) -> None:
        self._connect = connect

    @contextmanager
    def reading(self) -> Iterator[ComparedCatalog]:
        """Raises CatalogUnavailable, CatalogOutdated."""
        with repeatable_read(self._connect) as found:
            yield ComparedCatalog(found)

    @staticmethod
    def columns(table: ComparedTable) -> tuple[str, ...]:
        """Names of the values of a row."""
        return _COLUMNS[table]

    @staticmethod
    def key_columns(table: ComparedTable) -> int:
        """So many of the first columns say which row it is."""
        return _KEY_COLUMNS[table]
