"""The catalog's queries for repack and repair: chunks whose live files can be copied into new chunks."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple
from uuid import UUID

from cafcat.catalog.by_key import join_by_key
from cafcat.catalog.connection import Connection
from cafcat.catalog.files.lookup import size_of
from cafcat.errors import InvalidInput
from cafcat.model import ChunkState, Entry

__all__ = ["RewritableChunk", "Rewriting"]

_CHUNK: Final = """
SELECT c.id, c.uuid, c.store, c.object_key, c.size_bytes, c.data_bytes, c.live_bytes, c.live_file_count,
       EXISTS (SELECT FROM chunks AS w WHERE w.state = 'writing' AND w.lease_expires_at >= now()
               AND c.id = ANY(w.moves_from)), c.format, c.adopted_prefix IS NOT NULL
FROM chunks AS c
"""
_DEAD_SHARE: Final = "(c.data_bytes - c.live_bytes)::float8 / greatest(c.data_bytes, 1)"
_FORMER: Final = f"""
SELECT l.caf_file_id, l.file_path, l.start_byte, l.end_byte, l.content_bytes, l.decoding
FROM unnest(%(paths)s::text[], %(checksums)s::bigint[], %(sizes)s::bigint[]) AS asked (path, crc32c, size_bytes)
{join_by_key("asked.path", "retired_locations")}
WHERE l.reason = 'moved' AND l.crc32c = asked.crc32c AND {size_of("l.")} = asked.size_bytes
ORDER BY l.caf_file_id DESC, l.start_byte
"""  # noqa: S608


class RewritableChunk(NamedTuple):
    """A chunk whose files can be copied into a new one.

    Attributes:
        id: chunks.id.
        uuid: Name of the chunk outside SQL.
        store: URL of the store that holds it.
        object_key: Key of its object in that store.
        size_bytes: Size of its object.
        data_bytes: Total size of the files' bytes in it, live or not.
        live_bytes: Total size of the files that the catalog locates in it.
        live_files: Number of these files.
        is_being_rewritten: True if a command with a valid lease is copying its files into a new chunk.
        format: Format of the archive.
        is_adopted: True if cafcat did not write it, but adopted it in place.
    """

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
        """Bytes of files in the chunk that are not live."""
        return self.data_bytes - self.live_bytes


class Rewriting:
    """Queries for repack and repair. Every method is one transaction."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def wasteful(
        self,
        max_unused: float,
        small_bytes: int | None = None,
        store_url: str | None = None,
        not_format: str | None = None,
    ) -> list[RewritableChunk]:
        """Return committed chunks that repack should rewrite, those with the largest share of dead data first.

        A chunk is returned if it meets one of the three conditions. Adopted archives are excluded, and so are
        archives of logs, because their files are useless without each other.

        Args:
            max_unused: First condition: more than this share of the data is dead (0 to 1).
            small_bytes: Second condition: the object has fewer bytes than this; None for no such condition.
            store_url: Return only chunks in this store; None for all stores.
            not_format: Third condition: the format is another one than this; None for no such condition.
        """
        statement = (
            f"{_CHUNK} WHERE c.state = 'committed' AND c.store = coalesce(%(store)s, c.store) "
            "AND NOT EXISTS (SELECT FROM ingestion_units AS u WHERE u.chunk_id = c.id OFFSET 0) "
            f"AND c.adopted_prefix IS NULL AND ({_DEAD_SHARE} > %(share)s::float8 "
            "OR c.size_bytes < %(small)s::bigint OR c.format <> %(format)s) "
            f"ORDER BY {_DEAD_SHARE} DESC, c.size_bytes, c.id"
        )
        parameters = {"store": store_url, "share": max_unused, "small": small_bytes, "format": not_format}
        return self._chunks(statement, parameters)

    def by_id(self, ids: Sequence[int]) -> list[RewritableChunk]:
        """Return the committed chunks with these values of chunks.id, the oldest first."""
        return self._chunks(f"{_CHUNK} WHERE c.state = 'committed' AND c.id = ANY(%s) ORDER BY c.id", [list(ids)])

    def by_uuid(self, uuids: Sequence[UUID]) -> list[RewritableChunk]:
        """Return the chunks with these UUIDs, which must be committed, the oldest first.

        Raises:
            InvalidInput: A chunk is not committed, so it has no live file to copy, or the catalog does not have it.
        """
        statement = f"{_CHUNK} WHERE c.state = 'committed' AND c.uuid = ANY(%s) ORDER BY c.id"
        chunks = self._chunks(statement, [list(uuids)])
        found = {chunk.uuid for chunk in chunks}
        for uuid in uuids:
            if uuid not in found:
                message = f"the chunk is not {ChunkState.COMMITTED}, so no path points to it"
                raise InvalidInput(message, chunk=str(uuid), hint="`cafcat chunks show` prints its state")
        return chunks

    def former(self, files: Mapping[str, Entry]) -> list[tuple[RewritableChunk, list[Entry]]]:
        """Return the chunks that had certain live files before repack or repair moved the files.

        Args:
            files: The live files by path.

        Returns:
            The former chunks that are not deleted, the newest first, each with its entries of these files in the
            order of their bytes. The contents are the same as now.
        """
        parameters = {
            "paths": list(files),
            "checksums": [file.crc32c for file in files.values()],
            "sizes": [file.size_bytes for file in files.values()],
        }
        with self._connection.by_index() as connection:
            rows = connection.execute(_FORMER.encode(), parameters).fetchall()
        entries: dict[int, list[Entry]] = defaultdict(list)
        for chunk_id, path, start, end, content_bytes, decoding in rows:
            place = {"start_byte": start, "end_byte": end, "content_bytes": content_bytes, "decoding": decoding}
            entries[chunk_id].append(files[path]._replace(**place))
        statement = f"{_CHUNK} WHERE c.state IN ('committed', 'retired') AND c.id = ANY(%s) ORDER BY c.id DESC"
        return [(chunk, entries[chunk.id]) for chunk in self._chunks(statement, [list(entries)])]

    def retired(self, ids: Sequence[int]) -> int:
        """Return how many of the chunks with these values of chunks.id are retired or deleted."""
        statement = "SELECT count(*) FROM chunks WHERE id = ANY(%s) AND state IN ('retired', 'deleted')"
        with self._connection.statement() as connection:
            row = connection.execute(statement, [list(ids)]).fetchone()
        return int(row[0]) if row else 0

    def _chunks(self, statement: str, parameters: Any) -> list[RewritableChunk]:
        with self._connection.by_index() as connection:
            return [RewritableChunk(*row) for row in connection.execute(statement.encode(), parameters).fetchall()]
