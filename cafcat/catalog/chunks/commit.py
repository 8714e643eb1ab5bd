"""Commits a durable chunk: enters the locations of all its files into the catalog, in one transaction."""

from collections.abc import Sequence
from functools import partial
from typing import Final

from cafcat.catalog.by_key import BY_INDEX, NOT_BY_INDEX
from cafcat.catalog.chunks.file_rows import ChunkCommit, CommitRules, add_files, move_files
from cafcat.catalog.connection import Connection, PgConnection
from cafcat.catalog.files.log_units import add_units
from cafcat.catalog.files.mapping import Mapping
from cafcat.catalog.history.events import record_event
from cafcat.catalog.history.journal import append
from cafcat.catalog.locking import acquire
from cafcat.catalog.unknown_outcome import commit_with_check, limit_wait_for_outcome
from cafcat.errors import Conflict
from cafcat.model import NO_UNITS, ArchiveUnits, ChunkState, ChunkSummary, JournalKind, OnConflict
from cafcat.support.checksums import to_base64

__all__ = ["ChunkCommit", "Commit", "record_commit"]

# A worker that outlived the process of its run can commit a chunk after the counts of the run were recorded.
_COUNT_AFTER_END: Final = """
UPDATE ingest_runs SET chunks_committed = chunks_committed + 1, files_added = files_added + %s,
       files_replaced = files_replaced + %s, bytes_added = bytes_added + %s
WHERE id = (SELECT run_id FROM chunks WHERE id = %s) AND state IN ('failed', 'interrupted')
"""


class Commit:
    """Queries that commit chunks. Each commit is one transaction, tried again if the connection is lost."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def commit_chunk(
        self,
        chunk_id: int,
        summary: ChunkSummary,
        mapping: Mapping,
        on_conflict: OnConflict,
        *,
        all_new: bool,
        is_late: bool = False,
        units: ArchiveUnits = NO_UNITS,
    ) -> ChunkCommit:
        """Commit a durable chunk with the locations of all its files, in one transaction.

        If the connection is lost, `commit_with_check` finds out whether the server committed the transaction. If it
        did not, the transaction is tried again.

        Args:
            chunk_id: chunks.id.
            summary: Sizes and checksums of the object.
            mapping: The files of the chunk. Their paths are distinct.
            on_conflict: What to do with paths that the catalog has already.
            all_new: True if the catalog had none of the paths when it was last queried. Then rows in path order are
                copied directly into file_locations, which is faster.
            is_late: True if recover commits the chunk of a dead writer. Then a path keeps its location, whatever
                `on_conflict` is, if that location is in a chunk that was begun later. A path that was removed after
                this chunk was begun is not added. Both count as skipped.
            units: The log files and times of an archive of logs; NO_UNITS for other chunks.

        Returns:
            The counts of files. If recover has committed the chunk in place of this writer, those that it recorded.

        Raises:
            Conflict: The chunk is not in the state `writing` any more, or its store was moved, and recover did not
                commit the chunk. Or another archive has a log file of `units`. Or the catalog has a path of the
                mapping under OnConflict.FAIL.
            CatalogLocked: A lock was not free in time. The transaction was rolled back.
            CatalogUnavailable: The commit failed. Or its outcome is unknown: the connection was lost, and the
                database does not answer, or may still be executing the commit 60 seconds later. Recover can still
                commit the chunk.
        """
        rules = CommitRules(on_conflict, all_new, is_late)
        attempt = partial(self._commit, chunk_id, summary, mapping, rules, units)
        try:
            return commit_with_check(attempt, partial(self.committed_result, chunk_id))
        except Conflict:
            # If a recover found the complete object before its writer got here, it has committed the chunk.
            committed = None if is_late else self.committed_result(chunk_id)
            if committed is None:
                raise
            return committed

    def commit_moved(
        self, chunk_id: int, summary: ChunkSummary, mapping: Mapping, sources: Sequence[int]
    ) -> ChunkCommit:
        """Commit a durable chunk into which live files of other chunks were copied.

        A path moves to the new chunk if it still points to one of the sources, and to content of the same size and
        checksum. It keeps its modification time, entity tag and source. All other files (those that were replaced
        or removed meanwhile) count as skipped. Sources that lose their last live file are retired.

        Args:
            chunk_id: chunks.id of the new chunk.
            summary: Sizes and checksums of its object.
            mapping: Its files. Their paths are distinct.
            sources: chunks.id of the chunks from which the files were copied.

        Returns:
            The counts of files. Moved files count as replaced.

        Raises:
            Conflict: The chunk is no longer in the state `writing`, or its store was moved.
            CatalogLocked: A lock was not free in time. The transaction was rolled back.
            CatalogUnavailable: The commit failed. Or its outcome is unknown: the connection was lost, and the
                database does not answer, or may still be executing the commit 60 seconds later. Recover can still
                commit the chunk.
        """
        attempt = partial(self._commit_moved, chunk_id, summary, mapping, sources)
        return commit_with_check(attempt, partial(self.committed_result, chunk_id))

    def _commit(
        self, chunk_id: int, summary: ChunkSummary, mapping: Mapping, rules: CommitRules, units: ArchiveUnits
    ) -> ChunkCommit:
        with self._connection.transaction() as connection:
            store_url = _lock_writing(connection, chunk_id)
            commit = add_files(connection, chunk_id, mapping, rules)
            if units != NO_UNITS:
                add_units(connection, chunk_id, units, exclusive=True)
            _set_committed(connection, chunk_id, summary, commit)
            _record(connection, JournalKind.COMMIT, store_url, chunk_id, commit)
        return commit

    def _commit_moved(
        self, chunk_id: int, summary: ChunkSummary, mapping: Mapping, sources: Sequence[int]
    ) -> ChunkCommit:
        with self._connection.transaction() as connection:
            store_url = _lock_writing(connection, chunk_id)
            commit = move_files(connection, chunk_id, mapping, sources)
            _set_committed(connection, chunk_id, summary, commit)
            _record(connection, JournalKind.MOVE, store_url, chunk_id, commit)
        return commit

    def committed_result(self, chunk_id: int) -> ChunkCommit | None:
        """Return the result of a chunk's commit; None if the chunk was not committed.

        A caller whose connection was lost finds out with this whether its commit succeeded.

        Raises:
            CatalogLocked: The server was still executing the commit after 60 seconds.
            CatalogUnavailable: The database cannot be reached.
        """
        return self._recorded_result(chunk_id) if self._is_committed(chunk_id) else None

    def _is_committed(self, chunk_id: int) -> bool:
        """Return True if a chunk was committed.

        If the server is still executing the commit, the lock on the chunk's row waits for its end, up to 60
        seconds.
        """
        statement = "SELECT committed_at IS NOT NULL FROM chunks WHERE id = %s FOR UPDATE"
        with self._connection.transaction() as connection:
            limit_wait_for_outcome(connection)
            row = connection.execute(statement, [chunk_id]).fetchone()
        return row is not None and bool(row[0])

    def _recorded_result(self, chunk_id: int) -> ChunkCommit:
        """Return the counts of files that the commit of a chunk recorded as an event; all 0 without this event."""
        statement = "SELECT detail FROM events WHERE chunk_id = %s AND kind = 'chunk_committed'"
        with self._connection.statement() as connection:
            row = connection.execute(statement, [chunk_id]).fetchone()
        words = str(row[0] if row else "0 added, 0 replaced, 0 skipped, 0 live_bytes").split()
        return ChunkCommit(*(int(word) for word in words if word.isdigit()))


def _lock_writing(connection: PgConnection, chunk_id: int) -> str:
    """Begin the commit of a chunk: lock its row, and return the URL of its store.

    Raises:
        Conflict: The chunk is not in the state `writing`, or its lease has no owner. It has none if its store was
            moved; the object was not moved with the store.
        CatalogLocked: The lock was not free in time.
    """
    # Override settings of the role or database: a long commit is no error, and each statement has to see the latest
    # commits of others.
    connection.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED; SET LOCAL statement_timeout = 0")
    statement = "SELECT state, store, lease_owner FROM chunks WHERE id = %s FOR UPDATE"
    row = acquire(connection, statement, [chunk_id]).fetchone()
    if row is None or row[0] != ChunkState.WRITING:
        state = row[0] if row else "gone"
        raise Conflict(f"the chunk is {state}, so this process cannot commit it", chunk=str(chunk_id))
    if row[2] is None:
        raise Conflict("the chunk cannot be committed, because its store was moved", chunk=str(chunk_id))
    return str(row[1])


def _record(
    connection: PgConnection, kind: JournalKind, store_url: str, chunk_id: int, commit: ChunkCommit
) -> None:
    """Add a record to the journal and an event for the commit of a chunk, at the end of its transaction."""
    # The record comes last, so that an earlier commit of the same paths has the lower journal.id.
    journal_id = append(connection, kind, [store_url], chunk_id)
    if commit.skipped:
        _record_skipped(connection, journal_id, chunk_id)
    record_commit(connection, chunk_id, commit, moves=kind is JournalKind.MOVE)


def record_commit(connection: PgConnection, chunk_id: int, commit: ChunkCommit, *, moves: bool = False) -> None:
    """Insert the event of a commit, in the caller's transaction.

    Args:
        connection: A connection with an open transaction.
        chunk_id: chunks.id.
        commit: The counts of files.
        moves: True if the files were in other chunks before, so that the catalog does not grow.
    """
    growth = {} if moves else {"files_change": commit.added, "bytes_change": commit.bytes_change}
    record_event(connection, "chunk_committed", commit.detail(moves=moves), chunk_id=chunk_id, **growth)
    if not moves:
        values = (commit.added, commit.replaced, commit.live_bytes, chunk_id)
        connection.execute(_COUNT_AFTER_END, values)


def _record_skipped(connection: PgConnection, journal_id: int, chunk_id: int) -> None:
    """Insert the skipped files of a chunk into journal_files, for the journal record of its commit.

    The chunk is new, so all its rows in retired_locations are skipped files.
    """
    connection.execute(BY_INDEX)
    connection.execute(
        "INSERT INTO journal_files (journal_id, caf_file_id, start_byte, file_path) "
        "SELECT %s, caf_file_id, start_byte, file_path FROM retired_locations WHERE caf_file_id = %s",
        (journal_id, chunk_id),
    )
    connection.execute(NOT_BY_INDEX)


def _set_committed(connection: PgConnection, chunk_id: int, summary: ChunkSummary, commit: ChunkCommit) -> None:
    """Set the row of a chunk to `committed`, with its sizes; to `retired` if all its files were skipped."""
    live = commit.added + commit.replaced
    connection.execute(
        "UPDATE chunks SET state = %s, committed_at = now(), retired_at = CASE WHEN %s THEN NULL ELSE now() END, "
        "lease_expires_at = NULL, "
        "size_bytes = %s, data_bytes = %s, index_start_byte = %s, index_end_byte = %s, file_count = %s, "
        "live_file_count = %s, live_bytes = %s, crc64nvme = %s, etag = %s, index_crc32c = %s WHERE id = %s",
        (
            ChunkState.COMMITTED if live else ChunkState.RETIRED,
            bool(live),
            summary.size_bytes,
            summary.data_bytes,
            summary.index_start_byte,
            summary.index_end_byte,
            summary.file_count,
            live,
            commit.live_bytes,
            to_base64(summary.crc64nvme),
            summary.etag,
            summary.index_crc32c,
            chunk_id,
        ),
    )
