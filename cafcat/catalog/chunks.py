"""The life of a chunk in the catalog: begun, committed with all its mappings, or abandoned."""

import base64
import json
from collections.abc import Sequence
from typing import Any, Final, NamedTuple
from uuid import UUID

import psycopg
from psycopg import errors as pg

from cafcat.catalog.connection import Connection, PgConnection
from cafcat.catalog.mapping import COLUMNS, Mapping, to_microseconds
from cafcat.catalog.runs import iso
from cafcat.errors import CatalogUnavailable, Conflict, InvalidInput, NotFound
from cafcat.model import Chunk, ChunkState, ChunkSummary, OnConflict, SourceFile

__all__ = ["ChunkCommit", "Chunks", "Known"]

_INSTEAD: Final = {
    OnConflict.REPLACE: "DO UPDATE SET (caf_file_id, start_byte, end_byte, crc32c, modified_at, source_etag) = "
    "(excluded.caf_file_id, excluded.start_byte, excluded.end_byte, excluded.crc32c, excluded.modified_at, "
    "excluded.source_etag)",
    OnConflict.SKIP: "DO NOTHING",
}

# A batch goes over as JSON, which is encoded in C: psycopg makes an array element by element in Python. Where
# both sides have an entity tag it decides, else the time does.
_KNOWN: Final = """
SELECT u.n, l.end_byte - l.start_byte = (u.file->>1)::bigint
            AND coalesce(l.source_etag = u.file->>3,
                         (extract(epoch FROM l.modified_at) * 1000000)::bigint = (u.file->>2)::bigint)
FROM json_array_elements(%s::json) WITH ORDINALITY AS u(file, n)
JOIN file_locations AS l ON l.file_path = u.file->>0
"""

_CHUNK: Final = f"""
SELECT uuid, state, format, store, object_key, size_bytes, file_count, live_file_count, live_bytes,
       crc64nvme, run_id, {iso("begun_at")}, {iso("committed_at")}, id
FROM chunks
"""  # noqa: S608


_COMMIT_ATTEMPTS: Final = 3


class Known(NamedTuple):
    """What the catalog has of a batch of files, as positions in the batch; the rest is new."""

    unchanged: frozenset[int]
    changed: frozenset[int]


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
    yields: bool


class Chunks:
    """Every method is one transaction."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def known(self, files: Sequence[SourceFile]) -> Known:
        """Which files of a batch the catalog has with the same size and entity tag (or time, where either side
        has no tag), and which with others."""
        batch = [(file.path, file.size_bytes, to_microseconds(file.modified_ns), file.etag) for file in files]
        with self._connection.transaction() as connection:
            # A batch is small beside the table: probing the primary key for each row is never the wrong plan,
            # and a planner without fresh statistics would otherwise read the whole table for every batch.
            connection.execute(
                "SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; SET LOCAL enable_seqscan = off"
            )
            rows = connection.execute(_KNOWN, [json.dumps(batch)]).fetchall()
        same = frozenset(n - 1 for n, is_same in rows if is_same)
        return Known(unchanged=same, changed=frozenset(n - 1 for n, is_same in rows if not is_same))

    def begin_chunk(
        self,
        *,
        uuid: UUID,
        run: int | None,
        archive_format: str,
        store: str,
        object_key: str,
        owner: str,
        lease_seconds: int,
    ) -> int:
        """Inserts the row `writing`, before the first byte is written. Returns chunks.id."""
        statement = (
            "INSERT INTO chunks (uuid, run_id, format, store, object_key, lease_owner, lease_expires_at) "
            "VALUES (%s, %s, %s, %s, %s, %s, now() + make_interval(secs => %s)) RETURNING id"
        )
        values = (uuid, run, archive_format, store, object_key, owner, lease_seconds)
        with self._connection.transaction() as connection:
            row = connection.execute(statement, values).fetchone()
            assert row is not None  # noqa: S101 - RETURNING of one inserted row
            _record(connection, "chunk_begun", row[0], f"{store} {object_key}")
        return int(row[0])

    def record_upload(self, chunk_id: int, upload_id: str) -> None:
        """Keeps what recover needs to remove the upload of a chunk whose writer died."""
        statement = "UPDATE chunks SET upload_id = %s WHERE id = %s AND state = 'writing'"
        with self._connection.statement() as connection:
            connection.execute(statement, (upload_id, chunk_id))

    def renew_lease(self, chunk_id: int, lease_seconds: int) -> None:
        """Tells others that the writer lives. Raises Conflict if the chunk is no longer being written."""
        statement = (
            "UPDATE chunks SET lease_expires_at = now() + make_interval(secs => %s) "
            "WHERE id = %s AND state = 'writing'"
        )
        with self._connection.statement() as connection:
            if connection.execute(statement, (lease_seconds, chunk_id)).rowcount != 1:
                raise Conflict("the chunk was taken from its writer", chunk=str(chunk_id))

    def commit_chunk(
        self,
        chunk_id: int,
        summary: ChunkSummary,
        mapping: Mapping,
        on_conflict: OnConflict,
        *,
        all_new: bool,
        yields: bool = False,
    ) -> ChunkCommit:
        """Commits a durable chunk and all its mappings: one transaction, all or nothing. The mapping's paths
        are distinct; `all_new` says that none of them was in the catalog when last seen: the fast way. `yields`
        says that the chunk comes late: a path that a chunk begun after it has stays there, whatever on_conflict
        says, and counts as skipped.

        A lost connection is settled by looking: if the server had committed, that is success; if not, it is
        tried again. Raises Conflict if a path is there already under OnConflict.FAIL, or if the chunk is no
        longer being written; CatalogUnavailable if it could not be committed or nobody can tell: then the chunk
        stays adoptable.
        """
        for attempt in range(1, _COMMIT_ATTEMPTS + 1):
            try:
                return self._commit(chunk_id, summary, mapping, _Rules(on_conflict, all_new, yields))
            except CatalogUnavailable:
                if self._is_committed(chunk_id):
                    break
                if attempt == _COMMIT_ATTEMPTS:
                    raise
        return self._counted(chunk_id)

    def _commit(self, chunk_id: int, summary: ChunkSummary, mapping: Mapping, rules: _Rules) -> ChunkCommit:
        with self._connection.transaction() as connection:
            # Whatever the role or database is set to: a long commit is not an error, and each statement has to
            # see what others have committed.
            connection.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED; SET LOCAL statement_timeout = 0")
            _lock_writing(connection, chunk_id)
            commit = _copy_new(connection, mapping) if rules.all_new and mapping.ascending else None
            if commit is None:
                commit = _merge(connection, chunk_id, mapping, rules)
            _set_committed(connection, chunk_id, summary, commit)
            counts = ", ".join(f"{count} {name}" for name, count in commit._asdict().items())
            _record(connection, "chunk_committed", chunk_id, counts)
        return commit

    def _is_committed(self, chunk_id: int) -> bool:
        """Looks under a lock on the row: that waits for a commit that is still under way on the server."""
        statement = "SELECT state FROM chunks WHERE id = %s FOR UPDATE"
        with self._connection.transaction() as connection:
            connection.execute("SET LOCAL lock_timeout = '60s'")
            row = connection.execute(statement, [chunk_id]).fetchone()
        return row is not None and row[0] == ChunkState.COMMITTED

    def _counted(self, chunk_id: int) -> ChunkCommit:
        """What a commit did whose answer was lost, from what it wrote down."""
        statement = "SELECT detail FROM events WHERE chunk_id = %s AND kind = 'chunk_committed'"
        with self._connection.statement() as connection:
            row = connection.execute(statement, [chunk_id]).fetchone()
        words = str(row[0] if row else "0 added, 0 replaced, 0 skipped, 0 live_bytes").split()
        return ChunkCommit(*(int(word) for word in words if word.isdigit()))

    def abandon_chunk(self, chunk_id: int, reason: str) -> None:
        """Gives up a chunk that is being written. Raises Conflict if it is in another state."""
        statement = (
            "UPDATE chunks SET state = 'abandoned', abandoned_at = now(), lease_expires_at = NULL "
            "WHERE id = %s AND state = 'writing'"
        )
        with self._connection.transaction() as connection:
            if connection.execute(statement, [chunk_id]).rowcount != 1:
                raise Conflict("only a chunk that is being written can be abandoned", chunk=str(chunk_id))
            _record(connection, "chunk_abandoned", chunk_id, reason)

    def record_removed(self, chunk_id: int) -> None:
        """Notes that the store has nothing of an abandoned chunk any more."""
        statement = "UPDATE chunks SET deleted_at = now() WHERE id = %s AND state = 'abandoned'"
        with self._connection.statement() as connection:
            connection.execute(statement, [chunk_id])

    def page(self, state: ChunkState | None, *, after: int = 0, limit: int = 1000) -> list[tuple[int, Chunk]]:
        """Chunks by chunks.id, beginning after one."""
        condition = "WHERE id > %s AND state = coalesce(%s, state) ORDER BY id LIMIT %s"
        with self._connection.statement() as connection:
            rows = connection.execute((_CHUNK + condition).encode(), (after, state, limit)).fetchall()
        return [(row[-1], _chunk(row)) for row in rows]

    def chunk(self, prefix: str) -> Chunk:
        """By uuid, or a prefix of it of at least 8 characters. Raises NotFound, InvalidInput if ambiguous."""
        if len(prefix) < 8:
            raise InvalidInput("a chunk is named by its uuid, or at least the first 8 characters", chunk=prefix)
        condition = "WHERE starts_with(uuid::text, lower(%s)) LIMIT 2"
        with self._connection.statement() as connection:
            rows = connection.execute((_CHUNK + condition).encode(), [prefix]).fetchall()
        if not rows:
            raise NotFound("the catalog has no such chunk", chunk=prefix)
        if len(rows) > 1:
            raise InvalidInput("more than one chunk begins like that", chunk=prefix)
        return _chunk(rows[0])


def _lock_writing(connection: PgConnection, chunk_id: int) -> None:
    row = connection.execute("SELECT state FROM chunks WHERE id = %s FOR UPDATE", [chunk_id]).fetchone()
    if row is None or row[0] != ChunkState.WRITING:
        state = row[0] if row else "gone"
        raise Conflict(f"the chunk is {state}, not being written by us", chunk=str(chunk_id))


def _copy_new(connection: PgConnection, mapping: Mapping) -> ChunkCommit | None:
    """The fast way, for paths that are all new: straight into the table, in the order of its index. None if
    one of them was there; then nothing has happened."""
    try:
        with connection.transaction():
            _copy(connection, "file_locations", mapping)
    except pg.UniqueViolation:
        return None
    return ChunkCommit(added=mapping.file_count, replaced=0, skipped=0, live_bytes=mapping.size_bytes)


def _copy(connection: PgConnection, table: str, mapping: Mapping) -> None:
    statement = f"COPY {table} ({COLUMNS}) FROM STDIN (FORMAT BINARY)".encode()
    with connection.cursor() as cursor, cursor.copy(statement) as copy:
        for block in mapping.blocks():
            copy.write(block)


def _merge(connection: PgConnection, chunk_id: int, mapping: Mapping, rules: _Rules) -> ChunkCommit:
    """The general way: what is there already is retired (or kept), exactly.

    The lock lets no other writer of file_locations in between; readers go on. So the statements below need no
    thought for concurrency, and two commits cannot deadlock.
    """
    connection.execute("LOCK TABLE file_locations IN SHARE ROW EXCLUSIVE MODE")
    connection.execute("CREATE TEMPORARY TABLE staged (LIKE file_locations) ON COMMIT DROP")
    _copy(connection, "staged", mapping)
    connection.execute("ANALYZE staged")
    outdated = _skip_outdated(connection, chunk_id) if rules.yields else 0
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


def _skip_outdated(connection: PgConnection, chunk_id: int) -> int:
    """Moves what a chunk begun later has, too, from staged to retired_locations. Returns the number of files."""
    statement = (
        "WITH outdated AS (DELETE FROM staged USING file_locations AS l "  # noqa: S608
        "WHERE l.file_path = staged.file_path AND l.caf_file_id > %s RETURNING staged.*) "
        f"INSERT INTO retired_locations ({COLUMNS}, run_id, reason) "
        f"SELECT {COLUMNS}, (SELECT run_id FROM chunks WHERE id = %s), 'skipped' FROM outdated ORDER BY file_path"
    )
    return connection.execute(statement.encode(), (chunk_id, chunk_id)).rowcount


def _refuse_conflicts(connection: PgConnection) -> None:
    statement = "SELECT file_path FROM staged JOIN file_locations USING (file_path) ORDER BY 1 LIMIT 1"
    row = connection.execute(statement).fetchone()
    if row is not None:
        raise Conflict("another run committed this path meanwhile", path=row[0])


def _retire(connection: PgConnection, chunk_id: int, on_conflict: OnConflict) -> int:
    """Writes the losing side of each conflict to retired_locations and takes it off its chunk's counters.
    Returns their number."""
    loser = "staged" if on_conflict is OnConflict.SKIP else "file_locations"
    reason = "skipped" if on_conflict is OnConflict.SKIP else "replaced"
    columns = ", ".join(f"l.{name}" for name in COLUMNS.split(", "))
    statement = (
        f"INSERT INTO retired_locations ({COLUMNS}, run_id, reason) "  # noqa: S608
        f"SELECT {columns}, (SELECT run_id FROM chunks WHERE id = %s), %s "
        f"FROM {loser} AS l JOIN {'file_locations' if loser == 'staged' else 'staged'} USING (file_path) "
        "ORDER BY file_path"
    )
    retired = connection.execute(statement.encode(), (chunk_id, reason)).rowcount
    if retired and loser == "file_locations":
        connection.execute(
            "UPDATE chunks SET live_file_count = live_file_count - gone.files, "
            "live_bytes = live_bytes - gone.bytes "
            "FROM (SELECT l.caf_file_id, count(*) AS files, sum(l.end_byte - l.start_byte) AS bytes "
            "FROM file_locations AS l JOIN staged USING (file_path) GROUP BY 1) AS gone "
            "WHERE chunks.id = gone.caf_file_id"
        )
    return retired


def _set_committed(connection: PgConnection, chunk_id: int, summary: ChunkSummary, commit: ChunkCommit) -> None:
    connection.execute(
        "UPDATE chunks SET state = 'committed', committed_at = now(), lease_expires_at = NULL, "
        "size_bytes = %s, data_bytes = %s, index_start_byte = %s, index_end_byte = %s, file_count = %s, "
        "live_file_count = %s, live_bytes = %s, crc64nvme = %s, etag = %s WHERE id = %s",
        (
            summary.size_bytes,
            summary.data_bytes,
            summary.index_start_byte,
            summary.index_end_byte,
            summary.file_count,
            commit.added + commit.replaced,
            commit.live_bytes,
            base64.b64encode(summary.crc64nvme.to_bytes(8)).decode(),
            summary.etag,
            chunk_id,
        ),
    )


def _live_bytes(connection: PgConnection, chunk_id: int) -> int:
    statement = (
        "SELECT coalesce(sum(l.end_byte - l.start_byte), 0) FROM file_locations AS l "
        "JOIN staged USING (file_path) WHERE l.caf_file_id = %s"
    )
    row = connection.execute(statement, [chunk_id]).fetchone()
    return int(row[0]) if row else 0


def _record(connection: psycopg.Connection[Any], kind: str, chunk_id: int, detail: str) -> None:
    connection.execute(
        "INSERT INTO events (kind, chunk_id, run_id, detail) SELECT %s, id, run_id, %s FROM chunks WHERE id = %s",
        (kind, detail, chunk_id),
    )


def _chunk(row: Sequence[Any]) -> Chunk:
    uuid, state, *rest, _ = row
    return Chunk(uuid, ChunkState(state), *rest)
