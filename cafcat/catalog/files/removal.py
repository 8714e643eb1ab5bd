"""Files out of the catalog and back: one transaction for all that one call names, whatever their number."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final, NamedTuple, Self
from uuid import UUID

from cafcat.catalog.by_key import BY_INDEX, delete_by_key, exists_by_key, join_by_key
from cafcat.catalog.chunks.commit import take_off_chunks
from cafcat.catalog.connection import Connection, PgConnection
from cafcat.catalog.files.log_units import LOGS_ELSEWHERE, logs_elsewhere
from cafcat.catalog.files.lookup import LOCATION, PathScope, location_of, size_of
from cafcat.catalog.files.mapping import COLUMNS
from cafcat.catalog.files.path_list import PathList
from cafcat.catalog.history.journal import append
from cafcat.catalog.history.runs import iso
from cafcat.catalog.locking import acquire
from cafcat.catalog.unknown_outcome import commit_with_check
from cafcat.model import JournalKind, RetiredLocation

__all__ = ["Change", "Removal", "RemovedPage", "RepackedLogs"]

_TOTALS: Final = f"SELECT count(*), coalesce(sum({size_of()}), 0)::bigint FROM {{table}}"  # noqa: S608
_PER_CHUNK: Final = f"SELECT caf_file_id, count(*) AS files, sum({size_of()}) AS bytes FROM {{table}} GROUP BY 1"  # noqa: S608
_COUNTED_TABLE: Final = (
    "CREATE TEMPORARY TABLE counted (caf_file_id bigint, files bigint, bytes bigint) ON COMMIT DROP"
)
_ASKED: Final = "(SELECT DISTINCT file_path FROM asked) AS names "
_LIVE: Final = _ASKED + join_by_key("names.file_path")
_LIVE_ROWS: Final = _ASKED + join_by_key("names.file_path", columns="ctid")
_RETIRED: Final = _ASKED + join_by_key("names.file_path", "retired_locations")
_COUNT: Final = "INSERT INTO counted " + _PER_CHUNK.format(table="file_locations {condition}")
_COUNT_NAMED: Final = "INSERT INTO counted " + _PER_CHUNK.format(table=_LIVE)
_COUNTED_ALREADY: Final = f"DELETE FROM asked {{condition}} AND {exists_by_key('file_locations', 'asked')}"  # noqa: S608
_COUNTED_SUMS: Final = """
SELECT coalesce(sum(g.files), 0)::bigint, coalesce(sum(g.bytes), 0)::bigint,
       count(*) FILTER (WHERE g.files = c.live_file_count)
FROM (SELECT caf_file_id, sum(files) AS files, sum(bytes) AS bytes FROM counted GROUP BY 1) AS g
JOIN chunks AS c ON c.id = g.caf_file_id
"""

# Whoever rebuilds a catalog from a store has to know what was removed of it, also of chunks that are about to go.
_STORES: Final = """
SELECT store FROM chunks
WHERE state IN ('committed', 'retired', 'deleted') AND deleted_at IS NULL AND adopted_prefix IS NULL
UNION
SELECT store FROM chunk_copies WHERE state <> 'abandoned' AND deleted_at IS NULL
"""

_NOT_FOUND: Final = (
    "SELECT DISTINCT asked.file_path FROM asked LEFT JOIN {table} AS t USING (file_path) "
    "WHERE t.start_byte IS NULL ORDER BY 1"
)
_NOT_LIVE: Final = (
    f"SELECT DISTINCT file_path FROM asked WHERE NOT {exists_by_key('file_locations', 'asked')} ORDER BY 1"  # noqa: S608
)

_TAKE: Final = f"""
WITH taken AS ({{delete}} RETURNING *) INSERT INTO gone ({COLUMNS}) SELECT {COLUMNS} FROM taken
"""  # noqa: S608
_TAKE_BELOW: Final = _TAKE.format(delete="DELETE FROM file_locations {condition}")
_TAKE_NAMED: Final = _TAKE.format(delete=delete_by_key("file_locations", _LIVE_ROWS))
_WANT: Final = f"""
INSERT INTO wanted (retired_id, {COLUMNS})
SELECT DISTINCT ON (file_path) id, {COLUMNS}
FROM (SELECT l.* FROM {{rows}} OFFSET 0) AS l WHERE reason = 'removed'
ORDER BY file_path, id DESC
ON CONFLICT DO NOTHING
"""  # noqa: S608
_WANT_BELOW: Final = _WANT.format(rows="retired_locations AS l {condition}")
_WANT_NAMED: Final = _WANT.format(rows=_RETIRED)
_PUT_BACK: Final = delete_by_key(
    "retired_locations",
    "wanted CROSS JOIN LATERAL (SELECT ctid FROM retired_locations WHERE id = wanted.retired_id OFFSET 0) AS l",
)

_OF_LOGS: Final = """
SELECT id FROM usable WHERE EXISTS (SELECT FROM ingestion_units AS u WHERE u.chunk_id = usable.id OFFSET 0)
ORDER BY id DESC
"""

_REMOVED_PAGE: Final = f"""
SELECT {LOCATION}, {iso("l.retired_at")}, l.run_id, l.reason,
       c.state IN ('committed', 'retired') AND NOT {exists_by_key("file_locations", "l")}
       AND NOT EXISTS ({LOGS_ELSEWHERE})
FROM (
    SELECT DISTINCT ON (file_path) * FROM retired_locations
    WHERE reason = 'removed' AND file_path >= %(low)s {{upper_bound}}
    ORDER BY file_path, id DESC
    LIMIT %(limit)s
) AS l JOIN chunks AS c ON c.id = l.caf_file_id
ORDER BY l.file_path
"""  # noqa: S608


class RepackedLogs(NamedTuple):
    """A section of an archive of logs that cannot come back: another archive (its uuid) has that log file now."""

    path: str
    log_file: str
    archive: UUID


@dataclass(slots=True)
class Change:
    """What a call did, in files, bytes, and chunks that were retired (or came back). sequence: its journal
    record, None if nothing changed; stores: URLs of those that have to be told.

    The lists have the names that nothing was done for: `missing` of which nothing is there, or was removed; `live`
    that have a file again; `pruned` whose bytes are gone; `taken` whose log files another archive has; empty:
    folders with nothing below. A context manager: leaving it closes it."""

    missing: PathList
    live: PathList
    pruned: PathList
    empty: list[PathScope]
    repacked_logs: list[RepackedLogs] = field(default_factory=list)
    sequence: int | None = None
    uuid: UUID | None = None
    stores: tuple[str, ...] = ()
    files: int = 0
    bytes: int = 0
    chunks: int = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Frees the lists. Idempotent."""
        for paths in (self.missing, self.live, self.pruned):
            paths.close()


class RemovedPage(NamedTuple):
    """Removed files that can be brought back, in path order; last: the last path that was looked at, None at the
    end."""

    files: list[RetiredLocation]
    last: str | None


class Removal:
    """Every method is one transaction, or several attempts at one. `checkpoint` is called between its statements:
    when it raises, nothing has happened."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def remove(self, names: PathList, folders: Sequence[PathScope], checkpoint: Callable[[], object]) -> Change:
        """Takes the files of these names, and all below these folders (none within another), out of
        file_locations. A lost connection is handled by `commit_with_check`, as by commit_chunk. Raises
        CatalogUnavailable if it could not be done or nobody can tell."""
        return self._settled(lambda connection, change: _remove(connection, change, names, folders, checkpoint))

    def restore(self, names: PathList, folders: Sequence[PathScope], checkpoint: Callable[[], object]) -> Change:
        """The way back, to what each path pointed to when it was removed last. A path that has a file is left
        alone, and so is one whose chunk was pruned, or is an archive of logs that another archive has by now.
        Errors as of remove."""
        return self._settled(lambda connection, change: _restore(connection, change, names, folders, checkpoint))

    def count(self, names: PathList, folders: Sequence[PathScope], checkpoint: Callable[[], object]) -> Change:
        """What remove would do; changes nothing."""
        change = _nothing()
        with self._connection.transaction() as connection:
            connection.execute("SET LOCAL statement_timeout = 0")
            _ask(connection, names, checkpoint)
            connection.execute(BY_INDEX)
            connection.execute(_COUNTED_TABLE)
            change.empty = _each(connection, _COUNT, folders, checkpoint)
            _each(connection, _COUNTED_ALREADY, folders, checkpoint)
            connection.execute(_COUNT_NAMED.encode())
            [(change.files, change.bytes, change.chunks)] = connection.execute(_COUNTED_SUMS).fetchall()
            _list(connection, _NOT_LIVE, change.missing)
        return change

    def removed(self, low: str, high: str | None, limit: int = 1000) -> RemovedPage:
        """What was removed and can be brought back, of the paths `[low, high)`: up to `limit` paths are looked at.
        The next page begins with the successor of `last`."""
        statement = _REMOVED_PAGE.format(upper_bound="AND file_path < %(high)s" if high else "")
        with self._connection.by_index() as connection:
            rows = connection.execute(statement.encode(), {"low": low, "high": high, "limit": limit}).fetchall()
        return RemovedPage([_retired(row) for row in rows if row[-1]], rows[-1][0] if len(rows) == limit else None)

    def stores_behind(self) -> list[str]:
        """Stores that lack journal records."""
        statement = "SELECT DISTINCT unnest(unwritten) FROM journal WHERE unwritten <> '{}' ORDER BY 1"
        with self._connection.statement() as connection:
            return [row[0] for row in connection.execute(statement).fetchall()]

    def _settled(self, act: Callable[[PgConnection, Change], None]) -> Change:
        change = _nothing()

        def attempt() -> Change:
            nonlocal change
            change.close()  # of an attempt that did nothing
            change = _nothing()
            self._attempt(act, change)
            return change

        try:
            return commit_with_check(attempt, lambda: change if self._happened(change) else None)
        except BaseException:
            change.close()
            raise

    def _attempt(self, act: Callable[[PgConnection, Change], None], change: Change) -> None:
        with self._connection.transaction() as connection:
            # As of a commit: however long it takes, and each statement sees what others have committed.
            connection.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED; SET LOCAL statement_timeout = 0")
            connection.execute(BY_INDEX)
            act(connection, change)

    def _happened(self, change: Change) -> bool:
        """Looks when nobody changes file_locations: that waits for a transaction that is still under way on the
        server. The uuid, not the number: a server that crashed may give a number twice."""
        if change.uuid is None:
            return False
        with self._connection.transaction() as connection:
            connection.execute("SET LOCAL lock_timeout = '60s'")
            _lock(connection)
            statement = "SELECT EXISTS (SELECT FROM journal WHERE uuid = %s)"
            row = connection.execute(statement, [change.uuid]).fetchone()
        return row is not None and bool(row[0])


def _nothing() -> Change:
    return Change(PathList(), PathList(), PathList(), [])


def _remove(
    connection: PgConnection,
    change: Change,
    names: PathList,
    folders: Sequence[PathScope],
    checkpoint: Callable[[], object],
) -> None:
    _ask(connection, names, checkpoint)
    connection.execute("CREATE TEMPORARY TABLE gone (LIKE file_locations) ON COMMIT DROP")
    _lock(connection)
    _hold_stores(connection)
    change.empty = _each(connection, _TAKE_BELOW, folders, checkpoint)
    connection.execute(_TAKE_NAMED.encode())
    connection.execute("ANALYZE gone")
    checkpoint()
    _list(connection, _NOT_FOUND.format(table="gone"), change.missing)
    connection.execute(
        f"INSERT INTO retired_locations ({COLUMNS}, reason) SELECT {COLUMNS}, 'removed' FROM gone "  # noqa: S608
        "ORDER BY file_path".encode()
    )
    checkpoint()
    take_off_chunks(connection, _PER_CHUNK.format(table="gone"))
    _finish(connection, change, JournalKind.REMOVE, "gone", "retired")
    checkpoint()


def _restore(
    connection: PgConnection,
    change: Change,
    names: PathList,
    folders: Sequence[PathScope],
    checkpoint: Callable[[], object],
) -> None:
    _ask(connection, names, checkpoint)
    connection.execute(
        "CREATE TEMPORARY TABLE wanted (LIKE file_locations, retired_id bigint, PRIMARY KEY (file_path)) "
        "ON COMMIT DROP"
    )
    _lock(connection)
    _hold_stores(connection)
    change.empty = _each(connection, _WANT_BELOW, folders, checkpoint)
    connection.execute(_WANT_NAMED.encode())
    connection.execute("ANALYZE wanted")
    checkpoint()
    _list(connection, _NOT_FOUND.format(table="wanted"), change.missing)
    _leave_alone(connection, exists_by_key("file_locations", "wanted"), change.live)
    # Prune changes these rows, or we do: whoever comes second sees what the first did.
    connection.execute(
        "CREATE TEMPORARY TABLE usable ON COMMIT DROP AS SELECT id FROM chunks "
        "WHERE id IN (SELECT caf_file_id FROM wanted) AND state IN ('committed', 'retired') "
        "ORDER BY id FOR NO KEY UPDATE"
    )
    _leave_alone(connection, "caf_file_id NOT IN (SELECT id FROM usable)", change.pruned)
    change.repacked_logs = _exclude_repacked_logs(connection)
    checkpoint()
    _put_back(connection)
    _finish(connection, change, JournalKind.RESTORE, "wanted", "committed")
    checkpoint()


def _lock(connection: PgConnection) -> None:
    """Readers go on; nobody else changes the table until we are done. As of a commit (commit.py)."""
    acquire(connection, "LOCK TABLE file_locations IN SHARE ROW EXCLUSIVE MODE")


def _hold_stores(connection: PgConnection) -> None:
    """No store moves until we are done: our journal record names stores by URL, and a move changes the records that
    it sees. Before any row of chunks is changed: a move holds its store first, then the chunks there."""
    acquire(connection, "SELECT FROM stores ORDER BY id FOR KEY SHARE")


def _ask(connection: PgConnection, names: PathList, checkpoint: Callable[[], object]) -> None:
    connection.execute('CREATE TEMPORARY TABLE asked (file_path text COLLATE "C") ON COMMIT DROP')
    with connection.cursor() as cursor, cursor.copy("COPY asked FROM STDIN (FORMAT BINARY)") as copy:
        for block in names.blocks():
            copy.write(block)
            checkpoint()
    connection.execute("ANALYZE asked")


def _each(
    connection: PgConnection, statement: str, folders: Sequence[PathScope], checkpoint: Callable[[], object]
) -> list[PathScope]:
    """Returns the folders with nothing below."""
    empty = []
    for below in folders:
        condition, parameters = below.condition()
        if not connection.execute(statement.format(condition=f"WHERE {condition}").encode(), parameters).rowcount:
            empty.append(below)
        checkpoint()
    return empty


def _list(connection: PgConnection, query: str, paths: PathList) -> None:
    with connection.cursor() as cursor, cursor.copy(f"COPY ({query}) TO STDOUT (FORMAT BINARY)".encode()) as copy:
        copy.set_types(["text"])
        for row in copy.rows():
            paths.add(row[0])


def _leave_alone(connection: PgConnection, condition: str, paths: PathList) -> None:
    _list(connection, f"SELECT file_path FROM wanted WHERE {condition} ORDER BY 1", paths)  # noqa: S608
    if paths.count:
        connection.execute(f"DELETE FROM wanted WHERE {condition}".encode())  # noqa: S608


def _exclude_repacked_logs(connection: PgConnection) -> list[RepackedLogs]:
    """A log file is in one archive. Whoever commits one changes file_locations first, which has to wait for us. Of
    several that have the same log files the newest comes back."""
    repacked: list[RepackedLogs] = []
    coming: list[int] = []
    for (archive,) in connection.execute(_OF_LOGS).fetchall():
        found = logs_elsewhere(connection, archive, coming)
        if found is None:
            coming.append(archive)
            continue
        statement = "DELETE FROM wanted WHERE caf_file_id = %s RETURNING file_path"
        paths = sorted(path for (path,) in connection.execute(statement, [archive]).fetchall())
        repacked += [RepackedLogs(path, *found) for path in paths]
    return repacked


def _put_back(connection: PgConnection) -> None:
    connection.execute(
        f"INSERT INTO file_locations ({COLUMNS}) SELECT {COLUMNS} FROM wanted ORDER BY file_path".encode()  # noqa: S608
    )
    connection.execute(_PUT_BACK.encode())
    connection.execute(
        "UPDATE chunks SET live_file_count = live_file_count + back.files, "  # noqa: S608
        "live_bytes = live_bytes + back.bytes, "
        "state = 'committed', retired_at = NULL "
        f"FROM ({_PER_CHUNK.format(table='wanted')}) AS back WHERE chunks.id = back.caf_file_id".encode()
    )


def _finish(connection: PgConnection, change: Change, kind: JournalKind, table: str, state: str) -> None:
    """Counts, and tells the journal; last, as `append` wants it."""
    row = connection.execute(_TOTALS.format(table=table).encode()).fetchone()
    assert row is not None  # noqa: S101 - an aggregate gives one row
    change.files, change.bytes = row
    if not change.files:
        return
    chunks = f"SELECT count(*) FROM chunks WHERE state = %s AND id IN (SELECT caf_file_id FROM {table})"  # noqa: S608
    [(change.chunks,)] = connection.execute(chunks.encode(), [state]).fetchall()
    detail = f"{change.files} files, {change.bytes} bytes"
    connection.execute("INSERT INTO events (kind, detail) VALUES (%s, %s)", (f"files_{kind}d", detail))
    change.stores = tuple(row[0] for row in connection.execute(_STORES).fetchall())
    change.sequence = append(connection, kind, change.stores)
    connection.execute(
        "INSERT INTO journal_files (journal_id, caf_file_id, start_byte, file_path) "  # noqa: S608
        f"SELECT %s, caf_file_id, start_byte, file_path FROM {table} ORDER BY file_path".encode(),
        [change.sequence],
    )
    [(change.uuid,)] = connection.execute("SELECT uuid FROM journal WHERE id = %s", [change.sequence]).fetchall()


def _retired(row: tuple[Any, ...]) -> RetiredLocation:
    *location, retired_at, run, reason, _ = row
    return RetiredLocation(location_of(location), retired_at, run, reason)
