"""The rows of chunks: begin a chunk, renew its lease, give it up, list chunks. Commits are in commit.py."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple
from uuid import UUID

from psycopg import errors as pg

from cafcat.catalog.connection import Connection
from cafcat.catalog.files.lookup import size_of
from cafcat.catalog.history.events import record_event
from cafcat.catalog.history.runs import iso
from cafcat.errors import Conflict, InvalidInput, NotFound
from cafcat.model import Chunk, ChunkState, Comparison, SourceFile
from cafcat.support.quantities import to_microseconds

__all__ = ["RENEW_LEASE", "Chunks", "ExistingFiles"]

# The batch is sent as JSON, because Python encodes JSON in C, while psycopg encodes an array element by element in
# Python. If both sides have an entity tag, the tags are compared, otherwise the times. A file whose source is
# unknown counts as one of the same source: docs/decisions/0024 has the reason.
_EXISTING: Final = f"""
SELECT u.n, l.crc32c, {size_of("l.")} = (u.file->>1)::bigint,
       coalesce(l.source_etag = u.file->>3,
                (extract(epoch FROM l.modified_at) * 1000000)::bigint = (u.file->>2)::bigint, false),
       coalesce(l.source_id = (u.file->>4)::int, l.source_id IS NULL)
FROM json_array_elements(%s::json) WITH ORDINALITY AS u(file, n)
CROSS JOIN LATERAL (SELECT * FROM file_locations WHERE file_path = u.file->>0 OFFSET 0) AS l
"""  # noqa: S608

_CHUNK: Final = f"""
SELECT uuid, state, format, store, object_key, size_bytes, file_count, live_file_count, live_bytes,
       crc64nvme, run_id, {iso("begun_at")}, {iso("committed_at")}, adopted_prefix, id
FROM chunks
"""  # noqa: S608

RENEW_LEASE: Final = (
    "UPDATE chunks SET lease_expires_at = now() + make_interval(secs => %s) "
    "WHERE id = %s AND state = 'writing' AND lease_owner = %s"
)


_LEASE_LOST: Final = (
    "the chunk cannot be written any further: another command abandoned it, committed it, has its lease, or moved "
    "its store"
)


class ExistingFiles(NamedTuple):
    """The files of a batch that the catalog has, as positions in the batch. All others are new.

    Attributes:
        unchanged: Files that count as unchanged. `find_existing` decides this without reading them.
        changed: Files that differ, or are to be packed anew in any case.
        doubtful: CRC-32C in the catalog of each file that has to be read to compare it, by its position.
    """

    unchanged: frozenset[int]
    changed: frozenset[int]
    doubtful: Mapping[int, int]


class Chunks:
    """Queries on the rows of `chunks`. Every method except `find_existing` is one transaction."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def find_existing(
        self,
        files: Sequence[SourceFile],
        source_ids: Sequence[int | None],
        comparison: Comparison = Comparison.TIME,
    ) -> ExistingFiles:
        """Return which files of a batch the catalog has, and which of them must be read to detect a change.

        Args:
            files: The batch.
            source_ids: sources.id of each file; None for a source that is not in the catalog.
            comparison: TIME: a file is unchanged if size, source, and entity tag are the same as in the catalog. If
                either side has no tag, the times are compared. A file whose source the catalog does not know counts
                as one of the same source. A file is doubtful if only the source differs, else changed. CHECKSUM:
                every file of the same size is doubtful, every other one changed. NOTHING: every file that the
                catalog has is changed.
        """
        paths = [file.path for file in files]
        # Python sorts by code points, which gives the order of the bytes in UTF-8.
        if not paths or not self.has_path_between(min(paths), max(paths)):
            return ExistingFiles(frozenset(), frozenset(), {})
        batch = [
            (file.path, file.size_bytes, to_microseconds(file.modified_ns), file.etag, source_id)
            for file, source_id in zip(files, source_ids, strict=True)
        ]
        with self._connection.statement() as connection:
            rows = connection.execute(_EXISTING, [json.dumps(batch)]).fetchall()
        unchanged, changed, doubtful = set(), set(), {}
        for n, checksum, same_size, same_time, same_source in rows:
            if comparison is Comparison.NOTHING or not same_size:
                changed.add(n - 1)
            elif comparison is Comparison.CHECKSUM or (same_time and not same_source):
                doubtful[n - 1] = checksum
            elif same_time:
                unchanged.add(n - 1)
            else:
                changed.add(n - 1)
        return ExistingFiles(frozenset(unchanged), frozenset(changed), doubtful)

    def has_path_between(self, first: str, last: str) -> bool:
        """Return True if the catalog has any path from `first` to `last`, bytewise.

        For a new folder, this one query answers for a whole batch of files.
        """
        # For this form of the query, the plan reads one row of the index even without statistics.
        statement = "SELECT file_path FROM file_locations WHERE file_path >= %s ORDER BY file_path LIMIT 1"
        with self._connection.statement() as connection:
            row = connection.execute(statement, [first]).fetchone()
        return row is not None and row[0] <= last

    def begin_chunk(
        self,
        *,
        uuid: UUID,
        run_id: int | None,
        archive_format: str,
        store_url: str,
        object_key: str,
        owner: str,
        lease_seconds: int,
        moves: bool = False,
    ) -> int:
        """Insert the row of a chunk in the state `writing`, before the first byte of its object is written.

        Args:
            uuid: Name of the chunk outside SQL.
            run_id: ingest_runs.id of the run that writes the chunk; None if no run does.
            archive_format: Name of the format.
            store_url: URL of the store.
            object_key: Key of the object in that store.
            owner: Name of the writer (owners.owner_name).
            lease_seconds: Length of the lease.
            moves: True if live files of other chunks will be copied into the chunk.

        Returns:
            chunks.id.

        Raises:
            Conflict: The catalog does not have the store, or not any more.
        """
        statement = (
            "INSERT INTO chunks "
            "(uuid, run_id, format, store, object_key, lease_owner, moves_from, lease_expires_at) "
            "VALUES (%s, %s, %s, %s, %s, %s, %s, now() + make_interval(secs => %s)) RETURNING id"
        )
        moves_from: list[int] | None = [] if moves else None
        values = (uuid, run_id, archive_format, store_url, object_key, owner, moves_from, lease_seconds)
        with self._connection.transaction() as connection:
            try:
                row = connection.execute(statement, values).fetchone()
            except pg.ForeignKeyViolation as error:
                from cafcat.catalog.stores.stores import moved_meanwhile

                raise moved_meanwhile(store_url) from error
            assert row is not None  # noqa: S101 - RETURNING of one inserted row
            record_event(connection, "chunk_begun", f"{store_url} {object_key}", chunk_id=row[0])
        return int(row[0])

    def record_upload(self, chunk_id: int, upload_id: str) -> None:
        """Store the id of a chunk's multipart upload, so that recover can abort the upload if the writer dies."""
        statement = "UPDATE chunks SET upload_id = %s WHERE id = %s AND state = 'writing'"
        with self._connection.statement() as connection:
            connection.execute(statement, (upload_id, chunk_id))

    def record_move(self, chunk_id: int, source_id: int) -> None:
        """Record from which chunk the next files are copied into a new chunk.

        If the writer dies, recover needs this to commit the new chunk.

        Args:
            chunk_id: chunks.id of the chunk that is being written.
            source_id: chunks.id of the chunk from which the files are copied.

        Raises:
            Conflict: The state of the chunk is no longer `writing`.
        """
        statement = "UPDATE chunks SET moves_from = moves_from || %s::bigint WHERE id = %s AND state = 'writing'"
        with self._connection.statement() as connection:
            if connection.execute(statement, (source_id, chunk_id)).rowcount != 1:
                raise Conflict(_LEASE_LOST, chunk=str(chunk_id))

    def renew_lease(self, chunk_id: int, owner: str, lease_seconds: int) -> None:
        """Extend the lease of a chunk, which shows other processes that its writer is alive.

        Raises:
            Conflict: The state of the chunk is no longer `writing`, or another process acquired its lease, or its
                store was moved.
        """
        with self._connection.statement() as connection:
            if connection.execute(RENEW_LEASE, (lease_seconds, chunk_id, owner)).rowcount != 1:
                raise Conflict(_LEASE_LOST, chunk=str(chunk_id))

    def abandon_chunk(self, chunk_id: int, reason: str) -> None:
        """Set the state of a chunk from `writing` to `abandoned`, and record the reason as an event.

        Raises:
            Conflict: The chunk is in another state.
        """
        statement = (
            "UPDATE chunks SET state = 'abandoned', abandoned_at = now(), lease_expires_at = NULL "
            "WHERE id = %s AND state = 'writing'"
        )
        with self._connection.transaction() as connection:
            if connection.execute(statement, [chunk_id]).rowcount != 1:
                raise Conflict("only a chunk that is being written can be abandoned", chunk=str(chunk_id))
            record_event(connection, "chunk_abandoned", reason, chunk_id=chunk_id)

    def record_removed(self, chunk_id: int) -> None:
        """Record that the object and the upload of an abandoned or deleted chunk are no longer in the store."""
        statement = "UPDATE chunks SET deleted_at = now() WHERE id = %s AND state IN ('abandoned', 'deleted')"
        with self._connection.statement() as connection:
            connection.execute(statement, [chunk_id])

    def page(self, state: ChunkState | None, *, after: int = 0, limit: int = 1000) -> list[tuple[int, Chunk]]:
        """Return chunks with their chunks.id, in the order of chunks.id.

        Args:
            state: Return only chunks in this state; None for all.
            after: Return only chunks with a higher chunks.id.
            limit: Largest number of chunks.
        """
        condition = "WHERE id > %s AND state = coalesce(%s, state) ORDER BY id LIMIT %s"
        with self._connection.statement() as connection:
            rows = connection.execute((_CHUNK + condition).encode(), (after, state, limit)).fetchall()
        return [(row[-1], _chunk(row)) for row in rows]

    def chunk(self, prefix: str | UUID) -> Chunk:
        """Return the chunk whose UUID begins with a text.

        Args:
            prefix: The UUID, or at least the first 8 characters of its text.

        Raises:
            NotFound: The catalog has no such chunk.
            InvalidInput: The prefix is too short, or fits several chunks.
        """
        prefix = str(prefix)
        if len(prefix) < 8:
            raise InvalidInput("name a chunk by its uuid, or at least its first 8 characters", chunk=prefix)
        condition = "WHERE starts_with(uuid::text, lower(%s)) LIMIT 2"
        with self._connection.statement() as connection:
            rows = connection.execute((_CHUNK + condition).encode(), [prefix]).fetchall()
        if not rows:
            raise NotFound("the catalog has no such chunk", chunk=prefix)
        if len(rows) > 1:
            raise InvalidInput("the uuids of several chunks begin with this text", chunk=prefix)
        return _chunk(rows[0])


def _chunk(row: Sequence[Any]) -> Chunk:
    uuid, state, *rest, _ = row
    return Chunk(uuid, ChunkState(state), *rest)
