"""Chunks whose live files are worth copying into new ones."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple
from uuid import UUID

from cafcat.catalog.connection import Connection
from cafcat.errors import InvalidInput
from cafcat.model import ChunkState

__all__ = ["RewritableChunk", "Rewriting"]

_CHUNK: Final = """
SELECT c.id, c.uuid, c.store, c.object_key, c.size_bytes, c.data_bytes, c.live_bytes, c.live_file_count,
       EXISTS (SELECT FROM chunks AS w WHERE w.state = 'writing' AND w.lease_expires_at >= now()
               AND c.id = ANY(w.moves_from)), c.format, c.adopted_prefix IS NOT NULL
FROM chunks AS c
"""
_DEAD_SHARE: Final = "(c.data_bytes - c.live_bytes)::float8 / greatest(c.data_bytes, 1)"


class RewritableChunk(NamedTuple):
    """A committed chunk; sizes in bytes. live_bytes: of the files that the catalog points to in it. is_taken: its
    files are on their way into a new chunk right now. is_adopted: it is no object of
    cafcat's own."""

    id: int
    uuid: UUID
    store: str
    object_key: str
    size_bytes: int
    data_bytes: int
    live_bytes: int
    live_files: int
    is_being_rewritten: bool
    format: str
    is_adopted: bool

    @property
    def dead_bytes(self) -> int:
        return self.data_bytes - self.live_bytes


class Rewriting:
    """Every method is one transaction."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def wasteful(
        self,
        max_unused: float,
        small_bytes: int | None = None,
        store: str | None = None,
        not_format: str | None = None,
    ) -> list[RewritableChunk]:
        """Committed chunks of which a larger share than this (0 to 1) of the data is dead, the largest share first;
        then those of less than so many bytes, and those of another format than not_format. store: only its
        chunks. Adopted archives are not among them, nor archives of logs: their parts are worth nothing apart."""
        statement = (
            f"{_CHUNK} WHERE c.state = 'committed' AND c.store = coalesce(%(store)s, c.store) "
            "AND NOT EXISTS (SELECT FROM ingestion_units AS u WHERE u.chunk_id = c.id OFFSET 0) "
            f"AND c.adopted_prefix IS NULL AND ({_DEAD_SHARE} > %(share)s::float8 "
            "OR c.size_bytes < %(small)s::bigint OR c.format <> %(format)s) "
            f"ORDER BY {_DEAD_SHARE} DESC, c.size_bytes, c.id"
        )
        parameters = {"store": store, "share": max_unused, "small": small_bytes, "format": not_format}
        return self._chunks(statement, parameters)

    def by_id(self, ids: Sequence[int]) -> list[RewritableChunk]:
        """Those of these chunks (chunks.id) that are committed, the oldest first."""
        return self._chunks(f"{_CHUNK} WHERE c.state = 'committed' AND c.id = ANY(%s) ORDER BY c.id", [list(ids)])

    def by_uuid(self, uuids: Sequence[UUID]) -> list[RewritableChunk]:
        """The same by name. Raises InvalidInput for one that has no live file: there is nothing to copy."""
        statement = f"{_CHUNK} WHERE c.state = 'committed' AND c.uuid = ANY(%s) ORDER BY c.id"
        chunks = self._chunks(statement, [list(uuids)])
        found = {chunk.uuid for chunk in chunks}
        for uuid in uuids:
            if uuid not in found:
                message = f"the chunk is not {ChunkState.COMMITTED}: nothing points to it"
                raise InvalidInput(message, chunk=str(uuid), hint="cafcat chunks show tells its state")
        return chunks

    def retired(self, ids: Sequence[int]) -> int:
        """How many of these chunks nothing points to any more."""
        statement = "SELECT count(*) FROM chunks WHERE id = ANY(%s) AND state IN ('retired', 'deleted')"
        with self._connection.statement() as connection:
            row = connection.execute(statement, [list(ids)]).fetchone()
        return int(row[0]) if row else 0

    def _chunks(self, statement: str, parameters: Any) -> list[RewritableChunk]:
        with self._connection.by_index() as connection:
            return [RewritableChunk(*row) for row in connection.execute(statement.encode(), parameters).fetchall()]
