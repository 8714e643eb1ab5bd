"""A durable chunk and all its mappings in one transaction, all or nothing."""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from psycopg import errors as pg

from cafcat.catalog.by_key import BY_INDEX, NOT_BY_INDEX, exists_by_key, join_by_key
from cafcat.catalog.connection import Connection, PgConnection
from cafcat.catalog.files.log_units import add_units
from cafcat.catalog.files.lookup import size_of
from cafcat.catalog.files.mapping import COLUMNS, Mapping
from cafcat.catalog.history.events import record_event
from cafcat.catalog.history.journal import append
from cafcat.catalog.locking import ATTEMPT_SECONDS, acquire, set_lock_timeout
from cafcat.catalog.unknown_outcome import commit_with_check
from cafcat.errors import Conflict
from cafcat.model import NO_UNITS, ArchiveUnits, ChunkState, ChunkSummary, JournalKind, OnConflict
from cafcat.support.checksums import to_base64

__all__ = ["ChunkCommit", "Commit", "map_files", "stage", "subtract_from_chunks"]

_INSTEAD: Final = {
    OnConflict.REPLACE: "DO UPDATE SET (caf_file_id, start_byte, end_byte, crc32c, modified_at, source_etag, "
    "content_bytes, decoding, source_id) = (excluded.caf_file_id, excluded.start_byte, excluded.end_byte, "
    "excluded.crc32c, excluded.modified_at, excluded.source_etag, excluded.content_bytes, excluded.decoding, "
    "excluded.source_id)",
    OnConflict.SKIP: "DO NOTHING",
}
_FOUND: Final = f"staged {join_by_key('staged.file_path')}"
_IS_FOUND: Final = exists_by_key("file_locations", "staged")
_LIVE: Final = f"""
SELECT l.caf_file_id, count(*) AS files, sum({size_of("l.")}) AS bytes FROM {_FOUND} GROUP BY 1
"""  # noqa: S608


class ChunkCommit(NamedTuple):
    """What committing a chunk did, in files; skipped are those whose path another run had taken meanwhile."""

    added: int
    replaced: int
    skipped: int
    live_bytes: int


class _Rules(NamedTuple):
    """How a commit deals with what is there already: see commit_chunk."""

    on_conflict: OnConflict
    all_new: bool
    is_late: bool


class Commit:
    """Every method is one transaction, or several attempts at one."""

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
        """Commits a durable chunk and all its mappings: one transaction, all or nothing. The mapping's paths
        are distinct; `all_new` says that none of them was in the catalog when last seen: the fast way. `is_late`
        says that the chunk comes late: a path that a chunk begun after it has stays there, whatever on_conflict
        says, and counts as skipped.

        A lost connection is handled by `commit_with_check`: if the server had committed, that is success; if not,
        it is tried again. Raises Conflict if a path is there already under OnConflict.FAIL, if a log file of
        `units` is in another archive, or if the chunk is no longer being written; CatalogUnavailable if it could
        not be committed or nobody can tell: then the chunk stays adoptable.
        """
        rules = _Rules(on_conflict, all_new, is_late)
        try:
            return self._settled(
                chunk_id,
                summary,
                JournalKind.COMMIT,
                lambda connection: _enter(connection, chunk_id, mapping, rules, units),
            )
        except Conflict:
            # A recover that saw the whole object before its writer came to this has committed it for the writer.
            done = None if is_late else self.done(chunk_id)
            if done is None:
                raise
            return done

    def commit_moved(
        self, chunk_id: int, summary: ChunkSummary, mapping: Mapping, sources: Sequence[int]
    ) -> ChunkCommit:
        """Commits a durable chunk into which live files of other chunks (`sources`: chunks.id) were copied. Each
        path that still points to one of them, to bytes of the same size and checksum, points to the new chunk
        from now on, with the time and entity tag that it has; any other (replaced, removed meanwhile) counts as
        skipped. Chunks that have no live file any more are retired. Otherwise as commit_chunk."""
        return self._settled(
            chunk_id, summary, JournalKind.MOVE, lambda connection: _move(connection, chunk_id, mapping, sources)
        )

    def _settled(
        self,
        chunk_id: int,
        summary: ChunkSummary,
        kind: JournalKind,
        change: Callable[[PgConnection], ChunkCommit],
    ) -> ChunkCommit:
        return commit_with_check(lambda: self._commit(chunk_id, summary, kind, change), lambda: self.done(chunk_id))

    def _commit(
        self,
        chunk_id: int,
        summary: ChunkSummary,
        kind: JournalKind,
        change: Callable[[PgConnection], ChunkCommit],
    ) -> ChunkCommit:
        with self._connection.transaction() as connection:
            # Whatever the role or database is set to: a long commit is not an error, and each statement has to
            # see what others have committed.
            connection.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED; SET LOCAL statement_timeout = 0")
            store = _lock_writing(connection, chunk_id)
            commit = change(connection)
            _set_committed(connection, chunk_id, summary, commit)
            # Last: what committed the same paths before us has the lower number.
            journal_id = append(connection, kind, [store], chunk_id)
            if commit.skipped:
                _note_skipped(connection, journal_id, chunk_id)
            counts = ", ".join(f"{count} {name}" for name, count in commit._asdict().items())
            record_event(connection, "chunk_committed", chunk_id, counts)
        return commit

    def done(self, chunk_id: int) -> ChunkCommit | None:
        """What a commit did whose answer was lost; None if the chunk is not committed."""
        return self._counted(chunk_id) if self._is_committed(chunk_id) else None

    def _is_committed(self, chunk_id: int) -> bool:
        """Looks under a lock on the row: that waits for a commit that is still under way on the server."""
        statement = "SELECT committed_at IS NOT NULL FROM chunks WHERE id = %s FOR UPDATE"
        with self._connection.transaction() as connection:
            connection.execute("SET LOCAL lock_timeout = '60s'")
            row = connection.execute(statement, [chunk_id]).fetchone()
        return row is not None and bool(row[0])

    def _counted(self, chunk_id: int) -> ChunkCommit:
        """From what the commit wrote down."""
        statement = "SELECT detail FROM events WHERE chunk_id = %s AND kind = 'chunk_committed'"
        with self._connection.statement() as connection:
            row = connection.execute(statement, [chunk_id]).fetchone()
        words = str(row[0] if row else "0 added, 0 replaced, 0 skipped, 0 live_bytes").split()
        return ChunkCommit(*(int(word) for word in words if word.isdigit()))


def subtract_from_chunks(connection: PgConnection, gone: str, parameters: Sequence[object] = ()) -> None:
    """Takes files off the counters of their chunks; a chunk whose last one it was is retired. `gone`: a query for
    (caf_file_id, files, bytes). The caller holds the lock on file_locations."""
    statement = (
        "UPDATE chunks SET live_file_count = live_file_count - gone.files, "  # noqa: S608
        "live_bytes = live_bytes - gone.bytes, "
        "state = CASE WHEN live_file_count = gone.files THEN 'retired' ELSE state END, "
        "retired_at = CASE WHEN live_file_count = gone.files THEN now() ELSE retired_at END "
        f"FROM ({gone}) AS gone WHERE chunks.id = gone.caf_file_id"
    )
    connection.execute(statement.encode(), parameters)


def _lock_writing(connection: PgConnection, chunk_id: int) -> str:
    """The store of a chunk that is being written. Raises Conflict if it is in another state, or nobody has its
    lease: then its store was moved without what we wrote."""
    statement = "SELECT state, store, lease_owner FROM chunks WHERE id = %s FOR UPDATE"
    row = acquire(connection, statement, [chunk_id]).fetchone()
    if row is None or row[0] != ChunkState.WRITING:
        state = row[0] if row else "gone"
        raise Conflict(f"the chunk is {state}, not being written by us", chunk=str(chunk_id))
    if row[2] is None:
        raise Conflict("the chunk was taken from its writer: its store has moved", chunk=str(chunk_id))
    return str(row[1])


def map_files(connection: PgConnection, chunk_id: int, mapping: Mapping, on_conflict: OnConflict) -> ChunkCommit:
    """Enters the mapping of a chunk, whose row is there, in the caller's transaction. Raises Conflict as
    commit_chunk does."""
    return _map(connection, chunk_id, mapping, _Rules(on_conflict, all_new=True, is_late=False))


def _enter(
    connection: PgConnection, chunk_id: int, mapping: Mapping, rules: _Rules, units: ArchiveUnits
) -> ChunkCommit:
    commit = _map(connection, chunk_id, mapping, rules)
    if units != NO_UNITS:
        add_units(connection, chunk_id, units, exclusive=True)
    return commit


def _map(connection: PgConnection, chunk_id: int, mapping: Mapping, rules: _Rules) -> ChunkCommit:
    commit = None
    if rules.all_new and mapping.ascending and not (rules.is_late and _removed_since(connection, chunk_id)):
        commit = _copy_new(connection, mapping)
    return _merge(connection, chunk_id, mapping, rules) if commit is None else commit


def _copy_new(connection: PgConnection, mapping: Mapping) -> ChunkCommit | None:
    """The fast way, for paths that are all new: straight into the table, in the order of its index. None if
    one of them was there; then nothing has happened."""
    try:
        with connection.transaction():
            # In this transaction, so that its end gives the lock back: two commits that went on to the general way
            # with it would each wait for the other.
            acquire(connection, "LOCK TABLE file_locations IN ROW EXCLUSIVE MODE")
            set_lock_timeout(connection, ATTEMPT_SECONDS)  # for the end of a transaction that has one of the paths
            _copy(connection, "file_locations", mapping)
    except (pg.UniqueViolation, pg.LockNotAvailable):
        return None
    return ChunkCommit(added=mapping.file_count, replaced=0, skipped=0, live_bytes=mapping.size_bytes)


def _copy(connection: PgConnection, table: str, mapping: Mapping) -> None:
    statement = f"COPY {table} ({COLUMNS}) FROM STDIN (FORMAT BINARY)".encode()
    with connection.cursor() as cursor, cursor.copy(statement) as copy:
        for block in mapping.blocks():
            copy.write(block)


def _stage(connection: PgConnection, mapping: Mapping) -> None:
    """Puts the mapping beside the table, under a lock that lets no other writer of file_locations in between;
    readers go on. So the statements that follow need no thought for concurrency, and two commits cannot
    deadlock."""
    acquire(connection, "LOCK TABLE file_locations IN SHARE ROW EXCLUSIVE MODE")
    stage(connection, mapping)


def stage(connection: PgConnection, mapping: Mapping) -> None:
    """Puts the mapping into the table `staged`, which is gone at the end of the transaction."""
    connection.execute("CREATE TEMPORARY TABLE staged (LIKE file_locations) ON COMMIT DROP")
    _copy(connection, "staged", mapping)
    connection.execute("ANALYZE staged")


def _merge(connection: PgConnection, chunk_id: int, mapping: Mapping, rules: _Rules) -> ChunkCommit:
    """The general way: what is there already is retired (or kept), exactly."""
    _stage(connection, mapping)
    outdated = _skip_outdated(connection, chunk_id) if rules.is_late else 0
    if rules.on_conflict is OnConflict.FAIL:
        _refuse_conflicts(connection)
    instead = OnConflict.REPLACE if rules.on_conflict is OnConflict.FAIL else rules.on_conflict
    retired = _retire(connection, chunk_id, instead)
    insert = f"INSERT INTO file_locations ({COLUMNS}) SELECT {COLUMNS} FROM staged ORDER BY file_path "  # noqa: S608
    connection.execute(f"{insert} ON CONFLICT (file_path) {_INSTEAD[instead]}".encode())
    added = mapping.file_count - retired - outdated
    replaced = 0 if instead is OnConflict.SKIP else retired
    skipped = mapping.file_count - added - replaced
    live_bytes = _live_bytes(connection, chunk_id) if skipped else mapping.size_bytes
    return ChunkCommit(added, replaced, skipped, live_bytes)


def _move(connection: PgConnection, chunk_id: int, mapping: Mapping, sources: Sequence[int]) -> ChunkCommit:
    _stage(connection, mapping)
    skipped = _skip_unmovable(connection, sources)
    columns = ", ".join(f"l.{name}" for name in COLUMNS.split(", "))
    moved = connection.execute(
        f"INSERT INTO retired_locations ({COLUMNS}, reason) SELECT {columns}, 'moved' "  # noqa: S608
        f"FROM {_FOUND} ORDER BY l.file_path".encode()
    ).rowcount
    subtract_from_chunks(connection, _LIVE)
    # Every path that is still staged has a row: this is an UPDATE that looks it up by key.
    connection.execute(
        f"INSERT INTO file_locations ({COLUMNS}) SELECT {COLUMNS} FROM staged ORDER BY file_path "  # noqa: S608
        "ON CONFLICT (file_path) DO UPDATE SET (caf_file_id, start_byte, end_byte, content_bytes, decoding) = "
        "(excluded.caf_file_id, excluded.start_byte, excluded.end_byte, excluded.content_bytes, "
        "excluded.decoding)".encode()
    )
    live_bytes = _live_bytes(connection, chunk_id) if skipped else mapping.size_bytes
    return ChunkCommit(0, moved, skipped, live_bytes)


def _skip_unmovable(connection: PgConnection, sources: Sequence[int]) -> int:
    """Moves what does not point to the sources any more from staged to retired_locations. Returns the number of
    files."""
    is_movable = (
        "there.caf_file_id = ANY(%s) AND there.crc32c = staged.crc32c "
        f"AND {size_of('there.')} = {size_of('staged.')}"
    )
    statement = (
        f"WITH left_alone AS (DELETE FROM staged WHERE NOT {exists_by_key('file_locations', 'staged', is_movable)} "  # noqa: S608
        "RETURNING staged.*) "
        f"INSERT INTO retired_locations ({COLUMNS}, reason) "
        f"SELECT {COLUMNS}, 'skipped' FROM left_alone ORDER BY file_path"
    )
    return connection.execute(statement.encode(), [list(sources)]).rowcount


def _removed_since(connection: PgConnection, chunk_id: int) -> bool:
    """Whether anything was removed after a chunk was begun."""
    statement = (
        "SELECT EXISTS (SELECT FROM journal WHERE kind = 'remove' "
        "AND happened_at >= (SELECT begun_at FROM chunks WHERE id = %s))"
    )
    row = connection.execute(statement, [chunk_id]).fetchone()
    return row is not None and bool(row[0])


def _skip_outdated(connection: PgConnection, chunk_id: int) -> int:
    """Moves what a chunk begun later has, too, or what was removed since, from staged to retired_locations. Returns
    the number of files."""
    removed_since = (
        "there.reason = 'removed' AND there.retired_at >= (SELECT begun_at FROM chunks WHERE id = %(id)s)"
    )
    statement = (
        "WITH outdated AS (DELETE FROM staged "  # noqa: S608
        f"WHERE {exists_by_key('file_locations', 'staged', 'there.caf_file_id > %(id)s')} "
        f"OR {exists_by_key('retired_locations', 'staged', removed_since)} RETURNING staged.*) "
        f"INSERT INTO retired_locations ({COLUMNS}, run_id, reason) "
        f"SELECT {COLUMNS}, (SELECT run_id FROM chunks WHERE id = %(id)s), 'skipped' "
        "FROM outdated ORDER BY file_path"
    )
    connection.execute(BY_INDEX)
    outdated = connection.execute(statement.encode(), {"id": chunk_id}).rowcount
    connection.execute(NOT_BY_INDEX)
    return outdated


def _refuse_conflicts(connection: PgConnection) -> None:
    row = connection.execute(f"SELECT min(file_path) FROM staged WHERE {_IS_FOUND}".encode()).fetchone()  # noqa: S608
    if row is not None and row[0] is not None:
        raise Conflict("another run committed this path meanwhile", path=row[0])


def _retire(connection: PgConnection, chunk_id: int, on_conflict: OnConflict) -> int:
    """Writes the losing side of each conflict to retired_locations and takes it off its chunk's counters.
    Returns their number."""
    keeps_older = on_conflict is OnConflict.SKIP
    losers = f"staged AS l WHERE {exists_by_key('file_locations', 'l')}" if keeps_older else _FOUND
    columns = ", ".join(f"l.{name}" for name in COLUMNS.split(", "))
    statement = (
        f"INSERT INTO retired_locations ({COLUMNS}, run_id, reason) "  # noqa: S608
        f"SELECT {columns}, (SELECT run_id FROM chunks WHERE id = %s), %s "
        f"FROM {losers} ORDER BY l.file_path"
    )
    retired = connection.execute(statement.encode(), (chunk_id, "skipped" if keeps_older else "replaced")).rowcount
    if retired and not keeps_older:
        subtract_from_chunks(connection, _LIVE)
    return retired


def _note_skipped(connection: PgConnection, journal_id: int, chunk_id: int) -> None:
    """What is retired of a chunk that was committed just now is what was skipped."""
    connection.execute(BY_INDEX)
    connection.execute(
        "INSERT INTO journal_files (journal_id, caf_file_id, start_byte, file_path) "
        "SELECT %s, caf_file_id, start_byte, file_path FROM retired_locations WHERE caf_file_id = %s",
        (journal_id, chunk_id),
    )
    connection.execute(NOT_BY_INDEX)


def _set_committed(connection: PgConnection, chunk_id: int, summary: ChunkSummary, commit: ChunkCommit) -> None:
    """A chunk of which every file was skipped is retired at once."""
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


def _live_bytes(connection: PgConnection, chunk_id: int) -> int:
    statement = f"SELECT coalesce(sum({size_of('l.')}), 0) FROM {_FOUND} WHERE l.caf_file_id = %s"  # noqa: S608
    row = connection.execute(statement, [chunk_id]).fetchone()
    return int(row[0]) if row else 0
