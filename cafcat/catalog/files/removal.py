"""Removal of files from the catalog, and their restoration: one transaction for all files that one call names."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final, NamedTuple, Self
from uuid import UUID

from cafcat.catalog.by_key import BY_INDEX, exists_by_key
from cafcat.catalog.chunks.file_rows import subtract_from_chunks
from cafcat.catalog.connection import Connection, PgConnection
from cafcat.catalog.files import removal_sql as statements
from cafcat.catalog.files.folder_changes import record_folders
from cafcat.catalog.files.log_units import logs_elsewhere
from cafcat.catalog.files.lookup import location_of, size_of
from cafcat.catalog.files.mapping import ALL_COLUMNS, COLUMNS
from cafcat.catalog.files.path_list import PathList, VersionList
from cafcat.catalog.files.scope import PathScope
from cafcat.catalog.history.events import record_event
from cafcat.catalog.history.journal import append
from cafcat.catalog.layout import is_partitioned
from cafcat.catalog.locking import acquire
from cafcat.catalog.unknown_outcome import commit_with_check, limit_wait_for_outcome
from cafcat.model import JournalKind, RetiredLocation
from cafcat.progress import Progress
from cafcat.support.quantities import plural

__all__ = ["Change", "Removal", "RemovedPage", "RepackedLogs", "lock_locations", "lock_stores"]

_LOCK_LOCATIONS: Final = "LOCK TABLE file_locations IN SHARE ROW EXCLUSIVE MODE"


class RepackedLogs(NamedTuple):
    """A removed file of an archive of logs that is not restored, because another archive has its log file by now.

    Attributes:
        path: Path of the removed file.
        log_file: Name of a log file that both archives have.
        archive: UUID of the other archive.
    """

    path: str
    log_file: str
    archive: UUID


@dataclass(slots=True)
class Change:
    """Result of one removal or restoration. As a context manager, it frees its lists at the end.

    Attributes:
        missing: In a removal, names that no file has. In a restoration, names without a removed file.
        live: Paths that were not restored, because they have a file again.
        pruned: Paths that were not restored, because their chunk was pruned.
        let_go: Paths that were not restored, because their adopted archive is not in the catalog any more.
        damaged: Restored paths whose bytes `verify` found damaged or missing.
        empty: Folders without a file to remove or restore.
        repacked_logs: Files of archives of logs that were not restored, because another archive has one of the log
            files of their archive by now.
        sequence: journal.id of the change; None if nothing changed.
        uuid: journal.uuid of the change; None if nothing changed.
        stores: URLs of the stores into which the journal record has to be written.
        files: Number of files removed or restored.
        bytes: Their total size.
        chunks: In a removal, number of chunks that were retired, because they lost their last live file. In a
            restoration, number of chunks of the restored files.
    """

    missing: PathList
    live: PathList
    pruned: PathList
    let_go: PathList
    damaged: PathList
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
        """Free the lists of paths and their temporary files. Idempotent."""
        for paths in (self.missing, self.live, self.pruned, self.let_go, self.damaged):
            paths.close()


class RemovedPage(NamedTuple):
    """A page of removed files that can be restored.

    Attributes:
        files: The files, in path order. There may be none, even if there are further pages.
        last: The last removed path that was examined; None if there are no further pages.
    """

    files: list[RetiredLocation]
    last: str | None


class Removal:
    """Removal and restoration of files. Every method is one transaction, or several attempts at one.

    The methods call `Progress.checkpoint` between their statements. If it raises, the transaction is rolled back,
    and nothing has changed.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def remove(self, names: PathList, folders: Sequence[PathScope], progress: Progress) -> Change:
        """Remove files from file_locations. `restore` can undo that until their chunks are pruned.

        If the connection is lost, `commit_with_check` finds out whether the server committed the transaction.

        Args:
            names: Paths of files.
            folders: Folders whose files are removed, too. No folder is within another.
            progress: Its checkpoint is called between statements; may raise.

        Returns:
            The number and size of the removed files, and the names and folders without a file. The caller closes
            the result.

        Raises:
            CatalogLocked: The lock on file_locations, or that on the rows of stores, was not free in time. The
                transaction was rolled back.
            CatalogUnavailable: The removal failed. Or its outcome is unknown: the connection was lost, and the
                database does not answer, or may still be executing the transaction 60 seconds later.
        """
        return self._change(lambda connection, change: _remove(connection, change, names, folders, progress))

    def remove_versions(self, versions: VersionList, run_id: int | None, progress: Progress) -> Change:
        """Remove certain versions of files, unless they changed meanwhile.

        A file is left alone if its path has another version by now: another process has replaced, removed or
        repacked the file since the list was made.

        Args:
            versions: The versions of the files that are removed.
            run_id: ingest_runs.id of the ingest that removes the files; None for other commands.
            progress: Its checkpoint is called between statements; may raise.

        Returns:
            The number and size of the removed files. The caller closes the result.

        Raises:
            CatalogLocked: The lock on file_locations, or that on the rows of stores, was not free in time. The
                transaction was rolled back.
            CatalogUnavailable: The removal failed. Or its outcome is unknown, as after `remove`.
        """
        return self._change(
            lambda connection, change: _remove_versions(connection, change, versions, run_id, progress)
        )

    def restore(self, names: PathList, folders: Sequence[PathScope], progress: Progress) -> Change:
        """Restore removed files to the location that each had when it was last removed.

        A path is left alone if it has a file again, or if its chunk was pruned. It is also left alone if its chunk
        is an archive of logs, and another archive has one of its log files by now.

        Args:
            names: Paths of removed files.
            folders: Folders whose removed files are restored, too. No folder is within another.
            progress: Its checkpoint is called between statements; may raise.

        Returns:
            The number and size of the restored files, and the names, folders and paths that were not restored. The
            caller closes the result.

        Raises:
            CatalogLocked: The lock on file_locations, or that on the rows of stores, was not free in time. The
                transaction was rolled back.
            CatalogUnavailable: The restoration failed. Or its outcome is unknown: the connection was lost, and the
                database does not answer, or may still be executing the transaction 60 seconds later.
        """
        return self._change(lambda connection, change: _restore(connection, change, names, folders, progress))

    def count(self, names: PathList, folders: Sequence[PathScope], progress: Progress) -> Change:
        """Return the numbers, missing names and empty folders that `remove` would return for these arguments.

        Nothing is removed. The caller closes the result.
        """
        change = _nothing()
        with self._connection.transaction() as connection:
            connection.execute("SET LOCAL statement_timeout = 0")
            _copy_names(connection, names, progress)
            connection.execute(BY_INDEX)
            connection.execute(statements.COUNTED_TABLE)
            change.empty = _for_each_folder(connection, statements.COUNT, folders, progress)
            _for_each_folder(connection, statements.DROP_COUNTED, folders, progress)
            connection.execute(statements.COUNT_NAMED.encode())
            [(change.files, change.bytes, change.chunks)] = connection.execute(statements.COUNTED_SUMS).fetchall()
            _read_paths(connection, statements.NOT_LIVE, change.missing)
        return change

    def removed(self, low: str, high: str | None, limit: int = 1000) -> RemovedPage:
        """Return a page of removed files that can be restored, in path order.

        The next page begins with the successor of this page's `last`.

        Args:
            low: First path of the range.
            high: First path after the range; None for no upper end.
            limit: Largest number of removed paths that are examined.
        """
        statement = statements.REMOVED_PAGE.format(upper_bound="AND file_path < %(high)s" if high else "")
        with self._connection.by_index() as connection:
            rows = connection.execute(statement.encode(), {"low": low, "high": high, "limit": limit}).fetchall()
        return RemovedPage([_retired(row) for row in rows if row[-1]], rows[-1][0] if len(rows) == limit else None)

    def is_unlisted(self, store_url: str) -> bool:
        """Return True if a store has chunks that cafcat wrote, and the journals of other stores do not list it."""
        with self._connection.by_index(read_only=True) as connection:
            row = connection.execute(statements.IS_UNLISTED, {"store": store_url}).fetchone()
        return row is not None and bool(row[0])

    def record_stores(self) -> tuple[str, ...]:
        """Append a journal record of a removal without files, because each record lists the stores of the catalog.

        Returns:
            URLs of the stores into which the record has to be written.
        """
        with self._connection.transaction() as connection:
            lock_stores(connection)
            stores = tuple(url for (url,) in connection.execute(statements.STORES).fetchall())
            append(connection, JournalKind.REMOVE, stores)
        return stores

    def stores_behind(self) -> list[str]:
        """Return the URLs of stores into which journal records still have to be written."""
        statement = "SELECT DISTINCT unnest(unwritten) FROM journal WHERE unwritten <> '{}' ORDER BY 1"
        with self._connection.statement() as connection:
            return [row[0] for row in connection.execute(statement).fetchall()]

    def _change(self, function: Callable[[PgConnection, Change], None]) -> Change:
        change = _nothing()

        def attempt() -> Change:
            nonlocal change
            change.close()  # the result of an attempt that was rolled back
            change = _nothing()
            self._attempt(function, change)
            return change

        try:
            return commit_with_check(attempt, lambda: change if self._is_committed(change) else None)
        except BaseException:
            change.close()
            raise

    def _attempt(self, function: Callable[[PgConnection, Change], None], change: Change) -> None:
        with self._connection.transaction() as connection:
            # As for the commit of a chunk: no time limit, and each statement sees the latest commits of others.
            connection.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED; SET LOCAL statement_timeout = 0")
            connection.execute(BY_INDEX)
            function(connection, change)

    def _is_committed(self, change: Change) -> bool:
        """Return True if the journal has the record of a change.

        The lock on file_locations waits for the transaction, if the server is still executing it. The record is
        looked up by its UUID, because a server that crashed may use a value of journal.id twice.
        """
        if change.uuid is None:
            return False
        with self._connection.transaction() as connection:
            limit_wait_for_outcome(connection)
            connection.execute(_LOCK_LOCATIONS)
            statement = "SELECT EXISTS (SELECT FROM journal WHERE uuid = %s)"
            row = connection.execute(statement, [change.uuid]).fetchone()
        return row is not None and bool(row[0])


def _nothing() -> Change:
    return Change(PathList(), PathList(), PathList(), PathList(), PathList(), [])


def _remove(
    connection: PgConnection,
    change: Change,
    names: PathList,
    folders: Sequence[PathScope],
    progress: Progress,
) -> None:
    _copy_names(connection, names, progress)
    connection.execute(statements.GONE_TABLE)
    lock_locations(connection)
    lock_stores(connection)
    change.empty = _for_each_folder(connection, statements.DELETE_BELOW, folders, progress)
    _delete_named(connection)
    _read_paths(connection, statements.NOT_FOUND.format(table="gone"), change.missing)
    _retire(connection, change, None, progress)


def _remove_versions(
    connection: PgConnection, change: Change, versions: VersionList, run_id: int | None, progress: Progress
) -> None:
    connection.execute(statements.LISTED_TABLE)
    _copy(connection, "listed", versions.blocks(), progress)
    connection.execute(statements.ASKED_TABLE)
    connection.execute(statements.GONE_TABLE)
    lock_locations(connection)
    lock_stores(connection)
    connection.execute(statements.STILL_LISTED)
    connection.execute("ANALYZE asked")
    _delete_named(connection)
    _retire(connection, change, run_id, progress)


def _retire(connection: PgConnection, change: Change, run_id: int | None, progress: Progress) -> None:
    """Move the files in the temporary table `gone` to retired_locations, and record the removal.

    Args:
        connection: A connection with an open transaction.
        change: Receives the counts and the journal record.
        run_id: ingest_runs.id of the ingest that removes the files; None for `rm`.
        progress: Its checkpoint is called between statements; may raise.
    """
    connection.execute("ANALYZE gone")
    progress.checkpoint()
    connection.execute(
        f"INSERT INTO retired_locations ({ALL_COLUMNS}, run_id, reason) "  # noqa: S608
        f"SELECT {ALL_COLUMNS}, %s, 'removed' FROM gone ORDER BY file_path".encode(),
        [run_id],
    )
    progress.checkpoint()
    subtract_from_chunks(connection, statements.PER_CHUNK.format(table="gone"))
    _record_change(connection, change, JournalKind.REMOVE, "gone", run_id)
    progress.checkpoint()


def _delete_named(connection: PgConnection) -> None:
    """Move the rows of the paths in `asked` from file_locations to `gone`."""
    if not is_partitioned(connection):
        connection.execute(statements.DELETE_NAMED.encode())
        return
    connection.execute(statements.FIND_NAMED.encode())
    for table_id, table in connection.execute(statements.FOUND_TABLES).fetchall():
        connection.execute(statements.delete_found(table, table_id).encode())


def _restore(
    connection: PgConnection,
    change: Change,
    names: PathList,
    folders: Sequence[PathScope],
    progress: Progress,
) -> None:
    _copy_names(connection, names, progress)
    connection.execute(statements.WANTED_TABLE)
    lock_locations(connection)
    lock_stores(connection)
    change.empty = _for_each_folder(connection, statements.SELECT_BELOW, folders, progress)
    connection.execute(statements.SELECT_NAMED.encode())
    connection.execute("ANALYZE wanted")
    progress.checkpoint()
    _read_paths(connection, statements.NOT_FOUND.format(table="wanted"), change.missing)
    _exclude(connection, exists_by_key("file_locations", "wanted"), change.live)
    connection.execute(statements.USABLE_TABLE)
    _exclude(connection, statements.LET_GO, change.let_go)
    _exclude(connection, "caf_file_id NOT IN (SELECT id FROM usable)", change.pruned)
    change.repacked_logs = _exclude_repacked_logs(connection)
    progress.checkpoint()
    _find_damage(connection, change)
    _restore_rows(connection)
    _record_change(connection, change, JournalKind.RESTORE, "wanted", None)
    progress.checkpoint()


def lock_locations(connection: PgConnection) -> None:
    """Lock file_locations against all other writers until the transaction ends. Readers do not wait.

    A commit (chunks/commit.py) acquires the same lock.
    """
    acquire(connection, _LOCK_LOCATIONS)


def lock_stores(connection: PgConnection) -> None:
    """Prevent moves of stores until the transaction ends.

    The journal record of this transaction names stores by URL. A move changes the URLs in all records that it sees,
    but it would not see this one. A move locks its store before the chunks there, so this lock must come before any
    change of a row of chunks.
    """
    acquire(connection, "SELECT FROM stores ORDER BY id FOR KEY SHARE")


def _copy_names(connection: PgConnection, names: PathList, progress: Progress) -> None:
    """Copy the paths that the user named into the temporary table `asked`."""
    connection.execute(statements.ASKED_TABLE)
    _copy(connection, "asked", names.blocks(), progress)


def _copy(connection: PgConnection, table: str, blocks: Iterator[bytes], progress: Progress) -> None:
    """Copy rows in the binary format of COPY into a temporary table."""
    with connection.cursor() as cursor, cursor.copy(f"COPY {table} FROM STDIN (FORMAT BINARY)".encode()) as copy:
        for block in blocks:
            copy.write(block)
            progress.checkpoint()
    connection.execute(f"ANALYZE {table}".encode())


def _for_each_folder(
    connection: PgConnection, statement: str, folders: Sequence[PathScope], progress: Progress
) -> list[PathScope]:
    """Execute a statement for each folder. Return the folders for which it changed no row.

    Args:
        connection: A connection with an open transaction.
        statement: Statement with the field {condition} for a WHERE clause.
        folders: The folders.
        progress: Its checkpoint is called after each execution; may raise.
    """
    empty = []
    for folder in folders:
        condition, parameters = folder.condition()
        if not connection.execute(statement.format(condition=f"WHERE {condition}").encode(), parameters).rowcount:
            empty.append(folder)
        progress.checkpoint()
    return empty


def _read_paths(connection: PgConnection, query: str, paths: PathList) -> None:
    """Append the paths that an SQL query returns to a list."""
    with connection.cursor() as cursor, cursor.copy(f"COPY ({query}) TO STDOUT (FORMAT BINARY)".encode()) as copy:
        copy.set_types(["text"])
        for row in copy.rows():
            paths.add(row[0])


def _exclude(connection: PgConnection, condition: str, paths: PathList) -> None:
    """Leave files out of a restoration: delete the rows of the temporary table `wanted` that meet a condition.

    The paths of these files are appended to a list.
    """
    _read_paths(connection, f"SELECT file_path FROM wanted WHERE {condition} ORDER BY 1", paths)  # noqa: S608
    if paths.count:
        connection.execute(f"DELETE FROM wanted WHERE {condition}".encode())  # noqa: S608


def _exclude_repacked_logs(connection: PgConnection) -> list[RepackedLogs]:
    """Leave the files of an archive out of a restoration if another archive has one of its log files by now.

    These files are deleted from the temporary table `wanted`, and returned; an empty list if there are none.

    A log file may be in one archive only. A commit of an archive with the same log file changes file_locations
    first, so it waits for this transaction. Of several removed archives with the same log file, the newest is
    restored.
    """
    repacked: list[RepackedLogs] = []
    restored: list[int] = []
    for (archive,) in connection.execute(statements.ARCHIVES_OF_LOGS).fetchall():
        found = logs_elsewhere(connection, archive, restored)
        if found is None:
            restored.append(archive)
            continue
        statement = "DELETE FROM wanted WHERE caf_file_id = %s RETURNING file_path"
        paths = sorted(path for (path,) in connection.execute(statement, [archive]).fetchall())
        repacked += [RepackedLogs(path, *found) for path in paths]
    return repacked


def _find_damage(connection: PgConnection, change: Change) -> None:
    """Find the files to restore that `verify` found damaged. Live files need the damaged bytes from now on."""
    if connection.execute(statements.BROKEN_TABLE).rowcount:
        _read_paths(connection, statements.RESTORED_DAMAGE, change.damaged)
        connection.execute(statements.DAMAGE_IS_LIVE)


def _restore_rows(connection: PgConnection) -> None:
    """Move the files in the temporary table `wanted` from retired_locations to file_locations.

    The counters of their chunks are updated.
    """
    connection.execute(
        f"INSERT INTO file_locations ({COLUMNS}, ingest_run_id, current_since) "  # noqa: S608
        f"SELECT {COLUMNS}, ingest_run_id, now() FROM wanted ORDER BY file_path".encode()
    )
    connection.execute(statements.RECORD_RESTORED.encode())
    connection.execute(statements.DELETE_RESTORED.encode())
    connection.execute(statements.ADD_TO_CHUNKS.encode())


def _record_change(
    connection: PgConnection, change: Change, kind: JournalKind, table: str, run_id: int | None
) -> None:
    """Count the changed files and chunks, and append the record of the change to the journal.

    This is the end of the transaction, as `append` requires. If no file changed, no record is appended.

    Args:
        connection: A connection with an open transaction.
        change: Receives the counts, the id and UUID of the journal record, and the stores that need the record.
        kind: Kind of the record.
        table: Temporary table with the changed files.
        run_id: ingest_runs.id of the ingest that makes the change; None for other commands.
    """
    row = connection.execute(statements.TOTALS.format(table=table).encode()).fetchone()
    assert row is not None  # noqa: S101 - an aggregate gives one row
    change.files, change.bytes = row
    if not change.files:
        return
    # With IN, the server may read the table once for each chunk: statistics are older than the new states.
    ids = f"SELECT DISTINCT caf_file_id FROM {table}"  # noqa: S608
    chunks = f"SELECT count(*) FROM chunks WHERE state = %s AND id = ANY (ARRAY({ids}))"  # noqa: S608
    sign, state = (-1, "retired") if kind is JournalKind.REMOVE else (1, "committed")
    [(change.chunks,)] = connection.execute(chunks.encode(), [state]).fetchall()
    record_folders(connection, f"SELECT file_path, {sign} AS files, {sign} * {size_of()} AS bytes FROM {table}")  # noqa: S608
    record_event(
        connection,
        f"files_{kind}d",
        f"{plural(change.files, 'file')}, {change.bytes} bytes",
        run_id=run_id,
        files_change=sign * change.files,
        bytes_change=sign * change.bytes,
    )
    change.stores = tuple(row[0] for row in connection.execute(statements.STORES).fetchall())
    change.sequence = append(connection, kind, change.stores)
    connection.execute(statements.RECORD_FILES.format(table=table).encode(), [change.sequence])
    [(change.uuid,)] = connection.execute("SELECT uuid FROM journal WHERE id = %s", [change.sequence]).fetchall()


def _retired(row: tuple[Any, ...]) -> RetiredLocation:
    *location, retired_at, run_id, reason, _ = row
    return RetiredLocation(location_of(location), retired_at, run_id, reason)
