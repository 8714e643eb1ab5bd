"""Log files in archives of logs, and the times that these archives span."""

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
_NOT_YET: Final = (0, -1)
"""Before the first archive and its first log file. The name before them is the prefix, so that the index is not
read from its beginning."""
UNIT_COLUMNS: Final = "chunk_id, first_record, end_record, source_bytes, modified_at, number, file_name, fields"
TIME_COLUMNS: Final = "chunk_id, begin_ms, end_ms, timestamp_key"

# "0" is the character after "/". The range has both a file of that name and all below the folder.
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

# An archive with unknown times is searched. An archive whose records have no times is not searched for times.
_IN_TIME: Final = """(%(from)s::numeric IS NULL AND %(to)s::numeric IS NULL OR EXISTS (
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
        WHERE k.chunk_id = c.id AND k.state = 'committed')
{_ARCHIVES} {{with_logs}} AND {_IN_TIME} AND c.id > %(after)s ORDER BY c.id LIMIT %(limit)s
"""  # noqa: S608
_COUNT: Final = f"SELECT count(*) {_ARCHIVES}"

_OF_NAME: Final = "CROSS JOIN LATERAL (SELECT * FROM ingestion_units WHERE file_name = {name} OFFSET 0) AS u"
_TAKEN: Final = f"""
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
"""Log files of an archive `c` of our own that nothing points to any more, and the archives that have them now."""
_FIRST_ELSEWHERE: Final = f"""
SELECT e.* FROM chunks AS c CROSS JOIN LATERAL (
    {_ELSEWHERE.format(is_there="(o.state = 'committed' OR o.id = ANY(%(coming)s))")}
) AS e
WHERE c.id = %(chunk)s ORDER BY 1 LIMIT 1
"""  # noqa: S608
_KNOWN: Final = f"""
SELECT f.n, bool_or(u.source_bytes = (f.file->>1)::bigint
                    AND (extract(epoch FROM u.modified_at) * 1000000)::bigint = (f.file->>2)::bigint)
FROM json_array_elements(%s::json) WITH ORDINALITY AS f(file, n)
{_OF_NAME.format(name="f.file->>0")} {_CHUNK_OF}
WHERE c.state = 'committed' AND c.adopted_prefix IS NULL
GROUP BY f.n
"""  # noqa: S608


class StoredUnit(NamedTuple):
    """Records `[first_record, end_record)` of an archive (chunk), those of one log file. fields: what else the
    archive says of it; source_bytes, modified_at (ISO 8601 in UTC): of the log file, None if unknown. begin_ms,
    end_ms: times of any record of the archive, in milliseconds since 1970, None if unknown."""

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
    """An archive that may have what is sought. size_bytes and crc64nvme (base64, None if unknown): of its object;
    copies: URLs of the stores that have it, too, under the same key."""

    id: int
    uuid: UUID
    format: str
    store: str
    object_key: str
    size_bytes: int
    crc64nvme: str | None
    copies: Sequence[str]


class ExistingLogs(NamedTuple):
    """What the catalog has of a batch of log files, as positions in the batch; the rest is new."""

    unchanged: frozenset[int]
    changed: frozenset[int]


class LogUnits:
    """Every method is one transaction."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def below(self, prefix: str) -> Iterator[StoredUnit]:
        """Log files below a folder, or of that name, by name; "": all. A page at a time."""
        name, chunk, number = prefix, *_NOT_YET
        statement = _PAGE.format(below=f"AND {_BELOW}" if prefix else "")
        while True:
            values = {"prefix": prefix, "name": name, "chunk": chunk, "number": number, "limit": _PAGE_ROWS}
            with self._connection.by_index() as connection:
                rows = connection.execute(statement.encode(), values).fetchall()
            yield from (StoredUnit(row[0], *row[3:]) for row in rows)
            if len(rows) < _PAGE_ROWS:
                return
            name, chunk, number = rows[-1][:3]

    def archives(
        self, archive_format: str, prefix: str, from_ms: int | None, to_ms: int | None
    ) -> Iterator[SearchedArchive]:
        """Committed archives that have log files below a folder, or of that name ("": any), and may have records of
        these times, both inclusive, oldest first. A page at a time."""
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

    def count(self, archive_format: str) -> int:
        """All committed archives."""
        with self._connection.statement() as connection:
            row = connection.execute(_COUNT.encode(), {"format": archive_format}).fetchone()
        return int(row[0]) if row else 0

    def find_existing(self, files: Sequence[SourceFile]) -> ExistingLogs:
        """Which log files of a batch are in archives of our own with the same size and time, and which with
        others."""
        batch = [(file.path, file.size_bytes, to_microseconds(file.modified_ns)) for file in files]
        with self._connection.by_index() as connection:
            rows = connection.execute(_KNOWN.encode(), [json.dumps(batch)]).fetchall()
        same = frozenset(n - 1 for n, is_same in rows if is_same)
        return ExistingLogs(unchanged=same, changed=frozenset(n - 1 for n, is_same in rows if not is_same))

    def find_conflict(self, units: Sequence[LogUnit], chunk_id: int = 0) -> Conflict | None:
        """The error that another archive of our own has one of these log files, if it is so."""
        with self._connection.by_index() as connection:
            return _taken(connection, units, chunk_id)


def add_units(connection: PgConnection, chunk_id: int, found: ArchiveUnits, *, exclusive: bool = False) -> None:
    """Enters what an archive has, in the caller's transaction. exclusive: raises Conflict if another archive of our
    own has one of the log files."""
    if exclusive:
        acquire(connection, "LOCK TABLE ingestion_units IN SHARE ROW EXCLUSIVE MODE")
        connection.execute(BY_INDEX)
        if (conflict := _taken(connection, found.units, chunk_id)) is not None:
            raise conflict
    copy_units(connection, chunk_id, found)


def copy_units(connection: PgConnection, chunk_id: int, found: ArchiveUnits, into: str = "") -> None:
    """into: what the names of the tables begin with."""
    units = f"COPY {into}ingestion_units ({UNIT_COLUMNS}) FROM STDIN"
    with connection.cursor() as cursor, cursor.copy(units.encode()) as copy:
        for number, unit in enumerate(found.units):
            name, first, end, fields, source_bytes, modified_ns = unit
            copy.write_row((chunk_id, first, end, source_bytes, _time(modified_ns), number, name, fields))
    times = f"COPY {into}chunk_times ({TIME_COLUMNS}) FROM STDIN"
    with connection.cursor() as cursor, cursor.copy(times.encode()) as copy:
        for key, begin_ms, end_ms in found.times:
            copy.write_row((chunk_id, begin_ms, end_ms, key))


def drop_units(connection: PgConnection, chunk_id: int) -> None:
    """Removes the log files of an archive that is going to be deleted. The caller's transaction is by_index."""
    connection.execute("DELETE FROM ingestion_units WHERE chunk_id = %s", [chunk_id])
    connection.execute("DELETE FROM chunk_times WHERE chunk_id = %s", [chunk_id])


def logs_elsewhere(connection: PgConnection, chunk_id: int, coming: Sequence[int]) -> tuple[str, UUID] | None:
    """A log file of an archive of our own that nothing points to any more, and the archive that has it now; None if
    there is none. coming: archives (chunks.id) that are about to be back."""
    return connection.execute(_FIRST_ELSEWHERE.encode(), {"chunk": chunk_id, "coming": list(coming)}).fetchone()


def _taken(connection: PgConnection, units: Sequence[LogUnit], chunk_id: int) -> Conflict | None:
    row = connection.execute(_TAKEN.encode(), ([unit.file_name for unit in units], chunk_id)).fetchone()
    if row is None:
        return None
    return Conflict(f"another archive has records of this log file already: {row[1]}", path=row[0])


def _time(modified_ns: int | None) -> datetime | None:
    return None if modified_ns is None else _EPOCH + timedelta(microseconds=to_microseconds(modified_ns))
