"""Changes the rows of file_locations and retired_locations when a chunk is committed."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from psycopg import errors as pg

from cafcat.catalog.by_key import BY_INDEX, NOT_BY_INDEX, exists_by_key, join_by_key
from cafcat.catalog.connection import PgConnection
from cafcat.catalog.files.folder_changes import copy_folders, record_folders
from cafcat.catalog.files.lookup import size_of
from cafcat.catalog.files.mapping import ALL_COLUMNS, COLUMNS, Mapping
from cafcat.catalog.locking import ATTEMPT_SECONDS, acquire, set_lock_timeout
from cafcat.errors import Conflict
from cafcat.model import OnConflict
from cafcat.support.tracing import begin

__all__ = [
    "KEPT_RUN",
    "KEPT_TIME",
    "ChunkCommit",
    "CommitRules",
    "add_files",
    "move_files",
    "stage_mapping",
    "subtract_from_chunks",
]

_ON_CONFLICT: Final = {
    OnConflict.REPLACE: "DO UPDATE SET (caf_file_id, start_byte, end_byte, crc32c, modified_at, source_etag, "
    "content_bytes, decoding, source_id, ingest_run_id, current_since) = (excluded.caf_file_id, "
    "excluded.start_byte, excluded.end_byte, excluded.crc32c, excluded.modified_at, excluded.source_etag, "
    "excluded.content_bytes, excluded.decoding, excluded.source_id, NULL, NULL)",
    OnConflict.SKIP: "DO NOTHING",
}
_ALL_OF_L: Final = ", ".join(f"l.{name}" for name in ALL_COLUMNS.split(", "))
_FOUND: Final = f"staged {join_by_key('staged.file_path')}"
_IS_FOUND: Final = exists_by_key("file_locations", "staged")
# The new chunk of moved files has no run, and a later commit. The files keep run and time of their former chunk.
_OF_FORMER_CHUNK: Final = (
    "coalesce(file_locations.{kept}, (SELECT {of_chunk} FROM chunks WHERE id = file_locations.caf_file_id))"
)
KEPT_RUN: Final = _OF_FORMER_CHUNK.format(kept="ingest_run_id", of_chunk="run_id")
KEPT_TIME: Final = _OF_FORMER_CHUNK.format(kept="current_since", of_chunk="committed_at")
_LIVE: Final = f"""
SELECT l.caf_file_id, count(*) AS files, sum({size_of("l.")}) AS bytes FROM {_FOUND} GROUP BY 1
"""  # noqa: S608
_NEW: Final = f"SELECT file_path, 1 AS files, {size_of()} AS bytes FROM staged"  # noqa: S608
_CHANGES: Final = {
    OnConflict.REPLACE: f"{_NEW} UNION ALL SELECT l.file_path, -1, -{size_of('l.')} FROM {_FOUND}",  # noqa: S608
    OnConflict.SKIP: f"{_NEW} WHERE NOT {_IS_FOUND}",
}
"""Queries of the changes of files for `record_folders`, before file_locations is changed."""


class ChunkCommit(NamedTuple):
    """Result of the commit of a chunk: how many files now have their location in it, and how many do not.

    Attributes:
        added: Number of files with a new path.
        replaced: Number of files whose path had another location before.
        skipped: Number of files whose path keeps another location.
        live_bytes: Total size of the added and replaced files, in bytes.
        bytes_change: By how much the total size of all live files changed, in bytes.
    """

    added: int
    replaced: int
    skipped: int
    live_bytes: int
    bytes_change: int = 0

    def detail(self, *, moves: bool) -> str:
        """Return the counts as text for an event, such as "3 added, 1 replaced, 0 skipped, 120 live_bytes".

        Args:
            moves: True if the files were in other chunks before: then they are moved, not replaced.
        """
        changed = "moved" if moves else "replaced"
        return (
            f"{self.added} added, {self.replaced} {changed}, {self.skipped} skipped, {self.live_bytes} live_bytes"
        )


class CommitRules(NamedTuple):
    """How the commit of a chunk handles paths that the catalog has already.

    Attributes:
        on_conflict: Replace the location in the catalog, skip the file of the chunk, or refuse the commit.
        all_new: True if the catalog had none of the paths when it was last queried.
        is_late: True if recover commits the chunk of a dead writer: newer locations and removals stay.
    """

    on_conflict: OnConflict
    all_new: bool = True
    is_late: bool = False


def add_files(connection: PgConnection, chunk_id: int, mapping: Mapping, rules: CommitRules) -> ChunkCommit:
    """Add the files of a chunk to file_locations, in the caller's transaction. The row of the chunk exists.

    Args:
        connection: A connection with an open transaction.
        chunk_id: chunks.id.
        mapping: The files of the chunk. Their paths are distinct.
        rules: What to do with paths that the catalog has already.

    Returns:
        The counts of files.

    Raises:
        Conflict: The catalog has a path of the mapping, under OnConflict.FAIL.
        CatalogLocked: A lock was not free in time.
    """
    commit = None
    if rules.all_new and mapping.ascending and not (rules.is_late and _removed_since(connection, chunk_id)):
        commit = _copy_new(connection, mapping)
    return _merge(connection, chunk_id, mapping, rules) if commit is None else commit


def _copy_new(connection: PgConnection, mapping: Mapping) -> ChunkCommit | None:
    """Copy the rows of new paths directly into file_locations, in the order of its primary key.

    Returns:
        The result. None if the catalog has one of the paths, or another transaction that inserts one takes longer
        than 5 seconds. Then nothing has changed.

    Raises:
        CatalogLocked: The lock on file_locations was not free in time.
    """
    try:
        with connection.transaction():
            # The lock is acquired inside this savepoint, so that a rollback to the savepoint releases it. Otherwise
            # two commits that both continue with `_merge` would each wait for the other's lock.
            acquire(connection, "LOCK TABLE file_locations IN ROW EXCLUSIVE MODE")
            # The COPY waits for an open transaction that inserts one of the paths.
            set_lock_timeout(connection, ATTEMPT_SECONDS)
            _copy(connection, "file_locations", mapping)
            copy_folders(connection, mapping.folders)
    except (pg.UniqueViolation, pg.LockNotAvailable):
        return None
    return ChunkCommit(mapping.file_count, 0, 0, live_bytes=mapping.size_bytes, bytes_change=mapping.size_bytes)


def _merge(connection: PgConnection, chunk_id: int, mapping: Mapping, rules: CommitRules) -> ChunkCommit:
    """Add the files of a chunk to file_locations, some of whose paths the catalog may have.

    A path that both the chunk and the catalog have keeps one of two locations. The other one is copied to
    retired_locations.

    Raises:
        Conflict: The catalog has a path of the mapping, under OnConflict.FAIL.
        CatalogLocked: A lock was not free in time.
    """
    _lock_and_stage(connection, mapping)
    outdated = _skip_outdated(connection, chunk_id) if rules.is_late else 0
    if rules.on_conflict is OnConflict.FAIL:
        _refuse_conflicts(connection)
    on_conflict = OnConflict.REPLACE if rules.on_conflict is OnConflict.FAIL else rules.on_conflict
    bytes_change = record_folders(connection, _CHANGES[on_conflict])
    retired = _retire(connection, chunk_id, on_conflict)
    insert = f"INSERT INTO file_locations ({COLUMNS}) SELECT {COLUMNS} FROM staged ORDER BY file_path "  # noqa: S608
    connection.execute(f"{insert} ON CONFLICT (file_path) {_ON_CONFLICT[on_conflict]}".encode())
    added = mapping.file_count - retired - outdated
    replaced = 0 if on_conflict is OnConflict.SKIP else retired
    skipped = mapping.file_count - added - replaced
    live_bytes = _live_bytes(connection, chunk_id) if skipped else mapping.size_bytes
    return ChunkCommit(added, replaced, skipped, live_bytes, bytes_change)


def move_files(connection: PgConnection, chunk_id: int, mapping: Mapping, sources: Sequence[int]) -> ChunkCommit:
    """Let paths point to a new chunk into which their files were copied, in the caller's transaction.

    A path is skipped if it now points to none of the sources, or to other content.

    Args:
        connection: A connection with an open transaction.
        chunk_id: chunks.id of the new chunk.
        mapping: The files of the new chunk. Their paths are distinct.
        sources: chunks.id of the chunks from which the files were copied.

    Returns:
        The result: moved files count as `replaced`, all others as `skipped`, also those whose path was removed.

    Raises:
        CatalogLocked: The lock on file_locations was not free in time.
    """
    _lock_and_stage(connection, mapping)
    skipped = _skip_unmovable(connection, sources)
    moved = connection.execute(
        f"INSERT INTO retired_locations ({ALL_COLUMNS}, reason) SELECT {_ALL_OF_L}, 'moved' "  # noqa: S608
        f"FROM {_FOUND} ORDER BY l.file_path".encode()
    ).rowcount
    subtract_from_chunks(connection, _LIVE)
    # Each path in `staged` has a row in file_locations here, so this INSERT only updates rows. It finds them by
    # key.
    connection.execute(
        f"INSERT INTO file_locations ({COLUMNS}) SELECT {COLUMNS} FROM staged ORDER BY file_path "  # noqa: S608
        "ON CONFLICT (file_path) DO UPDATE SET (caf_file_id, start_byte, end_byte, content_bytes, decoding, "
        "ingest_run_id, current_since) = (excluded.caf_file_id, excluded.start_byte, excluded.end_byte, "
        f"excluded.content_bytes, excluded.decoding, {KEPT_RUN}, {KEPT_TIME})".encode()
    )
    live_bytes = _live_bytes(connection, chunk_id) if skipped else mapping.size_bytes
    return ChunkCommit(0, moved, skipped, live_bytes, bytes_change=0)


def subtract_from_chunks(connection: PgConnection, gone: str, parameters: Sequence[object] = ()) -> None:
    """Subtract files that are no longer live from the counters of their chunks. Retire chunks without live files.

    The caller holds the lock on file_locations.

    Args:
        connection: A connection with an open transaction.
        gone: SQL query with a row for each chunk: its id (caf_file_id), and the number (files) and total size
            (bytes) of the files to subtract.
        parameters: Parameters of that query.
    """
    statement = (
        "UPDATE chunks SET live_file_count = live_file_count - gone.files, "  # noqa: S608
        "live_bytes = live_bytes - gone.bytes, "
        "state = CASE WHEN live_file_count = gone.files THEN 'retired' ELSE state END, "
        "retired_at = CASE WHEN live_file_count = gone.files THEN now() ELSE retired_at END "
        f"FROM ({gone}) AS gone WHERE chunks.id = gone.caf_file_id"
    )
    connection.execute(statement.encode(), parameters)


def stage_mapping(connection: PgConnection, mapping: Mapping) -> None:
    """Copy the files of a chunk into the temporary table `staged`, which exists until the transaction ends."""
    connection.execute("CREATE TEMPORARY TABLE staged (LIKE file_locations) ON COMMIT DROP")
    _copy(connection, "staged", mapping)
    connection.execute("ANALYZE staged")


def _lock_and_stage(connection: PgConnection, mapping: Mapping) -> None:
    """Lock file_locations against all other writers, and copy the files of a chunk into the table `staged`.

    Raises CatalogLocked if the lock was not free in time. Readers do not wait for this lock. Because of it, no
    other transaction can change file_locations between the statements that follow, and two commits cannot deadlock.
    """
    acquire(connection, "LOCK TABLE file_locations IN SHARE ROW EXCLUSIVE MODE")
    stage_mapping(connection, mapping)


def _copy(connection: PgConnection, table: str, mapping: Mapping) -> None:
    statement = f"COPY {table} ({COLUMNS}) FROM STDIN (FORMAT BINARY)".encode()
    with begin("copy_rows", rows=mapping.file_count), connection.cursor() as cursor, cursor.copy(statement) as copy:
        for block in mapping.blocks():
            copy.write(block)


def _skip_unmovable(connection: PgConnection, sources: Sequence[int]) -> int:
    """Move files that cannot be moved to a new chunk from the table `staged` to retired_locations.

    These are files whose path does not point to one of the sources any more, or points to other content.

    Returns:
        The number of these files.
    """
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
    """Return True if any file of the catalog was removed after a chunk was begun."""
    statement = (
        "SELECT EXISTS (SELECT FROM journal WHERE kind = 'remove' "
        "AND happened_at >= (SELECT begun_at FROM chunks WHERE id = %s))"
    )
    row = connection.execute(statement, [chunk_id]).fetchone()
    return row is not None and bool(row[0])


def _skip_outdated(connection: PgConnection, chunk_id: int) -> int:
    """Move outdated files from the table `staged` to retired_locations.

    A file is outdated if its path points to a chunk that was begun later, or to a content that came or was restored
    after this chunk was begun, or was removed after that.

    Returns:
        The number of outdated files.
    """
    # A file that repack, repair or `store rm --lost` moved keeps its time, and undelete gives it a new one.
    begun = "(SELECT begun_at FROM chunks WHERE id = %(id)s)"
    points_later = f"there.caf_file_id > %(id)s OR there.current_since >= {begun}"
    removed_since = f"there.reason = 'removed' AND there.retired_at >= {begun}"
    statement = (
        "WITH outdated AS (DELETE FROM staged "  # noqa: S608
        f"WHERE {exists_by_key('file_locations', 'staged', points_later)} "
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
        raise Conflict("another command committed a file with this path meanwhile", path=row[0])


def _retire(connection: PgConnection, chunk_id: int, on_conflict: OnConflict) -> int:
    """Copy one of the two locations of each path in both file_locations and `staged` to retired_locations.

    With OnConflict.REPLACE, these are the locations in file_locations, and they are subtracted from the counters of
    their chunks. With OnConflict.SKIP, they are the staged locations.

    Returns:
        The number of copied locations.
    """
    keeps_older = on_conflict is OnConflict.SKIP
    losers = f"staged AS l WHERE {exists_by_key('file_locations', 'l')}" if keeps_older else _FOUND
    statement = (
        f"INSERT INTO retired_locations ({ALL_COLUMNS}, run_id, reason) "  # noqa: S608
        f"SELECT {_ALL_OF_L}, (SELECT run_id FROM chunks WHERE id = %s), %s "
        f"FROM {losers} ORDER BY l.file_path"
    )
    retired = connection.execute(statement.encode(), (chunk_id, "skipped" if keeps_older else "replaced")).rowcount
    if retired and not keeps_older:
        subtract_from_chunks(connection, _LIVE)
    return retired


def _live_bytes(connection: PgConnection, chunk_id: int) -> int:
    statement = f"SELECT coalesce(sum({size_of('l.')}), 0) FROM {_FOUND} WHERE l.caf_file_id = %s"  # noqa: S608
    row = connection.execute(statement, [chunk_id]).fetchone()
    return int(row[0]) if row else 0
