"""Queries on the log files in archives of logs, and on the times that the records of these archives span."""

import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple
from uuid import UUID

from cafcat.catalog.by_key import BY_INDEX
from cafcat.catalog.connection import Connection, PgConnection
from cafcat.catalog.history.runs import iso
from cafcat.catalog.locking import acquire
from cafcat.errors import Conflict
from cafcat.model import ArchiveUnits, LogUnit, SourceFile
from cafcat.support.quantities import to_microseconds

__all__ = [
    "LOGS_ELSEWHERE",
    "ExistingLogs",
    "LogUnits",
    "SearchedArchive",
    "StoredUnit",
    "add_units",
    "copy_units",
    "drop_units",
    "logs_elsewhere",
]

_PAGE_ROWS: Final = 1000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_BEFORE_FIRST: Final = (0, -1)
"""Chunk and number before every row, for the first page. The first page's name is the prefix, so that the query
does not read the index from its beginning."""
UNIT_COLUMNS: Final = "chunk_id, first_record, end_record, source_bytes, modified_at, number, file_name, fields"
TIME_COLUMNS: Final = "chunk_id, begin_ms, end_ms, timestamp_key"

# "0" is the character after "/". The range contains the file with the name of the prefix and all files below it.
_BELOW: Final = """u.file_name >= %(prefix)s AND u.file_name < %(prefix)s || '0'
    AND (u.file_name = %(prefix)s OR u.file_name >= %(prefix)s || '/')"""
_CHUNK_OF: Final = "CROSS JOIN LATERAL (SELECT * FROM chunks WHERE id = u.chunk_id OFFSET 0) AS c"
_PAGE: Final = f"""
SELECT u.file_name, u.chunk_id, u.number, u.first_record, u.end_record, u.fields, u.source_bytes,
       {iso("u.modified_at")}, c.uuid, c.state, c.store, c.object_key,
       (SELECT min(t.begin_ms)::float8 FROM chunk_times AS t WHERE t.chunk_id = c.id),
       (SELECT max(t.end_ms)::float8 FROM chunk_times AS t WHERE t.chunk_id = c.id)
FROM ingestion_units AS u {_CHUNK_OF}
WHERE c.state <> 'deleted' {{below}} AND (u.file_name, u.chunk_id, u.number) > (%(name)s, %(chunk)s, %(number)s)
ORDER BY u.file_name, u.chunk_id, u.number LIMIT %(limit)s
"""  # noqa: S608

_HAS_TIMES: Final = "EXISTS (SELECT FROM chunk_times AS t WHERE t.chunk_id = c.id)"
# A search by time includes archives with unknown times, and archives without a timestamp key.
_IN_TIME: Final = f"""(%(from)s::numeric IS NULL AND %(to)s::numeric IS NULL OR NOT {_HAS_TIMES} OR EXISTS (
    SELECT FROM chunk_times AS t WHERE t.chunk_id = c.id
      AND coalesce(t.end_ms >= %(from)s::numeric, true) AND coalesce(t.begin_ms <= %(to)s::numeric, true)))"""
_ARCHIVES: Final = """
FROM chunks AS c WHERE c.state = 'committed' AND c.format = %(format)s
"""
_ARCHIVES_BELOW: Final = f"SELECT u.chunk_id FROM ingestion_units AS u WHERE {_BELOW} OFFSET 0"  # noqa: S608
_WITH_LOGS: Final = f"AND c.id = ANY (ARRAY(SELECT DISTINCT chunk_id FROM ({_ARCHIVES_BELOW}) AS below))"  # noqa: S608
_SEARCHED: Final = f"""
SELECT c.id, c.uuid, c.format, c.store, c.object_key, c.size_bytes, c.crc64nvme,
       (SELECT coalesce(array_agg(k.store ORDER BY k.id), '{{{{}}}}') FROM chunk_copies AS k
        WHERE k.chunk_id = c.id AND k.state = 'committed'), {_HAS_TIMES}
{_ARCHIVES} {{with_logs}} AND {_IN_TIME} AND c.id > %(after)s ORDER BY c.id LIMIT %(limit)s
"""  # noqa: S608
_COUNT: Final = f"SELECT count(*) {_ARCHIVES}"

_OF_NAME: Final = "CROSS JOIN LATERAL (SELECT * FROM ingestion_units WHERE file_name = {name} OFFSET 0) AS u"
_IN_OTHER_ARCHIVE: Final = f"""
SELECT u.file_name, c.uuid FROM unnest(%s::text[]) AS name {_OF_NAME.format(name="name")} {_CHUNK_OF}
WHERE c.state = 'committed' AND c.adopted_prefix IS NULL AND c.id <> %s LIMIT 1
"""  # noqa: S608
_ELSEWHERE: Final = f"""
SELECT u.file_name, o.uuid
FROM (SELECT file_name FROM ingestion_units WHERE chunk_id = c.id OFFSET 0) AS m
{_OF_NAME.format(name="m.file_name")}
CROSS JOIN LATERAL (SELECT * FROM chunks WHERE id = u.chunk_id OFFSET 0) AS o
WHERE c.state <> 'committed' AND c.adopted_prefix IS NULL
  AND o.id <> c.id AND o.adopted_prefix IS NULL AND {{is_there}}
OFFSET 0
"""  # noqa: S608
LOGS_ELSEWHERE: Final = _ELSEWHERE.format(is_there="o.state = 'committed'")
"""Query for the log files of an archive `c` that another archive has now, with the UUID of that archive.

It returns rows only if cafcat wrote both archives and no path points to `c` any more.
"""
_FIRST_ELSEWHERE: Final = f"""
SELECT e.* FROM chunks AS c CROSS JOIN LATERAL (
    {_ELSEWHERE.format(is_there="(o.state = 'committed' OR o.id = ANY(%(coming)s))")}
) AS e
WHERE c.id = %(chunk)s ORDER BY 1 LIMIT 1
"""  # noqa: S608
_EXISTING: Final = f"""
SELECT f.n, bool_or(u.source_bytes = (f.file->>1)::bigint
                    AND (extract(epoch FROM u.modified_at) * 1000000)::bigint = (f.file->>2)::bigint)
FROM json_array_elements(%s::json) WITH ORDINALITY AS f(file, n)
{_OF_NAME.format(name="f.file->>0")} {_CHUNK_OF}
WHERE c.state = 'committed' AND c.adopted_prefix IS NULL
GROUP BY f.n
"""  # noqa: S608


class StoredUnit(NamedTuple):
    """A log file in an archive of logs: records `[first_record, end_record)` of the archive, counted from 0.

    Attributes:
        log_file: Name of the log file in the archive; empty if it has none.
        first_record: Its first record.
        end_record: One past its last record.
        fields: All else that the archive records about the log file.
        source_bytes: Size of the log file when it was packed; None if unknown.
        modified_at: Modification time of the log file: ISO 8601, UTC; None if unknown.
        chunk: UUID of the archive.
        state: State of the archive (ChunkState).
        store: URL of the store that holds the archive.
        object_key: Key of the archive in that store.
        begin_ms: Earliest time of any record of the archive, in milliseconds since 1970 UTC; None if unknown.
        end_ms: Latest time of any record of the archive, in milliseconds since 1970 UTC; None if unknown.
    """

    log_file: str
    first_record: int
    end_record: int
    fields: dict[str, Any]
    source_bytes: int | None
    modified_at: str | None
    chunk: UUID
    state: str
    store: str
    object_key: str
    begin_ms: float | None
    end_ms: float | None


class SearchedArchive(NamedTuple):
    """An archive of logs that may contain matches of a search.

    Attributes:
        id: chunks.id.
        uuid: Name of the archive outside SQL.
        format: Its format.
        store: URL of the store that holds it.
        object_key: Its key in that store.
        size_bytes: Size of its object.
        crc64nvme: CRC-64/NVME of its object in base64; None if unknown.
        copies: URLs of the stores with a committed copy of it, active or retired, under the same key.
        has_times: False if it was made without a timestamp key, so that no search by time finds its records.
    """

    id: int
    uuid: UUID
    format: str
    store: str
    object_key: str
    size_bytes: int
    crc64nvme: str | None
    copies: Sequence[str]
    has_times: bool


class ExistingLogs(NamedTuple):
    """The log files of a batch that the catalog has, as positions in the batch. All others are new.

    Attributes:
        unchanged: Log files whose size and modification time are the same in the catalog.
        changed: Log files whose size or modification time differs, or is unknown in the catalog.
    """

    unchanged: frozenset[int]
    changed: frozenset[int]


class LogUnits:
    """Queries on the log files in archives of logs. Every method is one transaction, or one for each page."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def below(self, prefix: str, page_rows: int = _PAGE_ROWS) -> Iterator[StoredUnit]:
        """Yield the log files below a folder, and those with the folder's name, in the order of their names.

        A log file that is in several archives is yielded for each of them. Deleted archives are left out.

        Args:
            prefix: The folder, without a slash at its end; "" for all log files.
            page_rows: Largest number of rows that one query returns.
        """
        name, chunk, number = prefix, *_BEFORE_FIRST
        statement = _PAGE.format(below=f"AND {_BELOW}" if prefix else "")
        while True:
            values = {"prefix": prefix, "name": name, "chunk": chunk, "number": number, "limit": page_rows}
            with self._connection.by_index() as connection:
                rows = connection.execute(statement.encode(), values).fetchall()
            yield from (StoredUnit(row[0], *row[3:]) for row in rows)
            if len(rows) < page_rows:
                return
            name, chunk, number = rows[-1][:3]

    def archives(
        self, archive_format: str, prefix: str, from_ms: int | None, to_ms: int | None
    ) -> Iterator[SearchedArchive]:
        """Yield committed archives that may contain matches of a search, in the order of chunks.id.

        If from_ms or to_ms is given, archives with unknown times are yielded, too, and so are archives without
        times.

        Args:
            archive_format: Format of the archives.
            prefix: Folder of the log files, or name of one log file; "" for all.
            from_ms: Earliest time of the records, inclusive, in milliseconds since 1970 UTC; None for no limit.
            to_ms: Latest time of the records, inclusive, in milliseconds since 1970 UTC; None for no limit.
        """
        values = {"format": archive_format, "prefix": prefix, "from": from_ms, "to": to_ms, "limit": _PAGE_ROWS}
        statement = _SEARCHED.format(with_logs=_WITH_LOGS if prefix else "")
        after = 0
        while True:
            with self._connection.by_index() as connection:
                rows = connection.execute(statement.encode(), values | {"after": after}).fetchall()
            yield from (SearchedArchive(*row) for row in rows)
            if len(rows) < _PAGE_ROWS:
                return
            after = rows[-1][0]

    def has_any(self, prefix: str) -> bool:
        """Return True if there is a log file below a folder, or of that name. Deleted archives do not count."""
        return next(self.below(prefix, 1), None) is not None

    def count(self, archive_format: str) -> int:
        """Return the number of all committed archives of a format."""
        with self._connection.statement() as connection:
            row = connection.execute(_COUNT.encode(), {"format": archive_format}).fetchone()
        return int(row[0]) if row else 0

    def find_existing(self, files: Sequence[SourceFile]) -> ExistingLogs:
        """Return which log files of a batch are in committed archives that cafcat wrote.

        A log file is unchanged if one of these archives has it with the same size and modification time.
        """
        batch = [(file.path, file.size_bytes, to_microseconds(file.modified_ns)) for file in files]
        with self._connection.by_index() as connection:
            rows = connection.execute(_EXISTING.encode(), [json.dumps(batch)]).fetchall()
        same = frozenset(n - 1 for n, is_same in rows if is_same)
        return ExistingLogs(unchanged=same, changed=frozenset(n - 1 for n, is_same in rows if not is_same))

    def find_conflict(self, units: Sequence[LogUnit], chunk_id: int = 0) -> Conflict | None:
        """Return a Conflict error if another committed archive of cafcat has one of these log files, else None.

        Args:
            units: The log files.
            chunk_id: chunks.id of an archive that is ignored; 0 for none.
        """
        with self._connection.by_index() as connection:
            return _find_conflict(connection, units, chunk_id)


def add_units(connection: PgConnection, chunk_id: int, found: ArchiveUnits, *, exclusive: bool = False) -> None:
    """Insert the log files and times of an archive, in the caller's transaction.

    Args:
        connection: A connection with an open transaction.
        chunk_id: chunks.id of the archive.
        found: Its log files and times.
        exclusive: True to lock ingestion_units, and to raise Conflict if another committed archive of cafcat has
            one of the log files.

    Raises:
        Conflict: Another archive has one of the log files; only with `exclusive`.
        CatalogLocked: The lock was not free in time; only with `exclusive`.
    """
    if exclusive:
        acquire(connection, "LOCK TABLE ingestion_units IN SHARE ROW EXCLUSIVE MODE")
        connection.execute(BY_INDEX)
        if (conflict := _find_conflict(connection, found.units, chunk_id)) is not None:
            raise conflict
    copy_units(connection, chunk_id, found)


def copy_units(connection: PgConnection, chunk_id: int, found: ArchiveUnits, table_prefix: str = "") -> None:
    """Insert the log files and times of an archive, in the caller's transaction, without any check.

    Args:
        connection: A connection with an open transaction.
        chunk_id: chunks.id of the archive.
        found: Its log files and times.
        table_prefix: Text before the table names ingestion_units and chunk_times, for temporary tables.
    """
    units = f"COPY {table_prefix}ingestion_units ({UNIT_COLUMNS}) FROM STDIN"
    with connection.cursor() as cursor, cursor.copy(units.encode()) as copy:
        for number, unit in enumerate(found.units):
            name, first, end, fields, source_bytes, modified_ns = unit
            copy.write_row((chunk_id, first, end, source_bytes, _time(modified_ns), number, name, fields))
    times = f"COPY {table_prefix}chunk_times ({TIME_COLUMNS}) FROM STDIN"
    with connection.cursor() as cursor, cursor.copy(times.encode()) as copy:
        for key, begin_ms, end_ms in found.times:
            copy.write_row((chunk_id, begin_ms, end_ms, key))


def drop_units(connection: PgConnection, chunk_id: int) -> None:
    """Delete the rows of the log files and times of an archive that is about to be deleted.

    The caller has an open transaction with the settings of by_key.BY_INDEX.
    """
    connection.execute("DELETE FROM ingestion_units WHERE chunk_id = %s", [chunk_id])
    connection.execute("DELETE FROM chunk_times WHERE chunk_id = %s", [chunk_id])


def logs_elsewhere(connection: PgConnection, chunk_id: int, restored: Sequence[int]) -> tuple[str, UUID] | None:
    """Find a log file of an archive that another, committed archive has by now.

    Args:
        connection: A connection with an open transaction.
        chunk_id: chunks.id of an archive that cafcat wrote and to which no path points any more.
        restored: chunks.id of archives that this transaction is going to restore. They count as committed.

    Returns:
        Name of the log file, and UUID of the other archive, which cafcat wrote; None if there is no such log file.
    """
    return connection.execute(_FIRST_ELSEWHERE.encode(), {"chunk": chunk_id, "coming": list(restored)}).fetchone()


def _find_conflict(connection: PgConnection, units: Sequence[LogUnit], chunk_id: int) -> Conflict | None:
    row = connection.execute(_IN_OTHER_ARCHIVE.encode(), ([unit.file_name for unit in units], chunk_id)).fetchone()
    if row is None:
        return None
    return Conflict(f"another archive has records of this log file already: {row[1]}", path=row[0])


def _time(modified_ns: int | None) -> datetime | None:
    return None if modified_ns is None else _EPOCH + timedelta(microseconds=to_microseconds(modified_ns))
