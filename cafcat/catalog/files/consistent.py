"""The files of a folder and their chunks at one moment, streamed in path order: what a snapshot file is made of."""

from collections.abc import Callable, Collection, Generator, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple
from uuid import UUID

from cafcat.catalog.connection import PgConnection
from cafcat.catalog.files.lookup import MICROSECONDS, folder_range, size_of
from cafcat.catalog.history.runs import iso
from cafcat.catalog.repeatable_read import RepeatableRead, repeatable_read
from cafcat.model import ChunkState

__all__ = ["ConsistentFiles", "FileRow", "SnapshotChunk", "SnapshotCopy", "consistent_read"]

FileRow = tuple[str, int, int, int, int, int | None, int | None, str | None]
"""Path, chunks.id, start_byte, end_byte, CRC-32C, modification time in microseconds since 1970 UTC; content_bytes
and decoding, as in Location."""

_FILES: Final = f"""
SELECT l.file_path, l.caf_file_id, l.start_byte, l.end_byte, l.crc32c, {MICROSECONDS}, l.content_bytes, l.decoding
FROM file_locations AS l WHERE {{condition}} ORDER BY l.file_path
"""  # noqa: S608
_ONE: Final = "l.file_path = %(path)s"
_BELOW: Final = "l.file_path >= %(low)s AND l.file_path < %(high)s"
_TOTALS_BELOW: Final = (
    f"SELECT count(*), coalesce(sum({size_of('l.')}), 0)::bigint FROM file_locations AS l "  # noqa: S608
    f"WHERE {_ONE} OR {_BELOW}"
)
# The counters of the chunks say it without a look at every row.
_TOTALS: Final = (
    "SELECT coalesce(sum(live_file_count), 0)::bigint, coalesce(sum(live_bytes), 0)::bigint FROM chunks"
)
_CHUNKS: Final = """
SELECT id, uuid, format, store, object_key, size_bytes, crc64nvme FROM chunks WHERE id = ANY(%(ids)s) ORDER BY id
"""
_COPIES: Final = """
SELECT chunk_id, store, object_key FROM chunk_copies
WHERE chunk_id = ANY(%(ids)s) AND state = %(state)s AND retired_at IS NULL ORDER BY chunk_id, id
"""


class SnapshotChunk(NamedTuple):
    """What it takes to open a chunk; size in bytes, crc64nvme of the whole object in base64."""

    id: int
    uuid: UUID
    format: str
    store: str
    object_key: str
    size_bytes: int
    crc64nvme: str | None


class SnapshotCopy(NamedTuple):
    """Where else a chunk (chunks.id) is."""

    chunk: int
    store: str
    object_key: str


class ConsistentFiles:
    """Sees nothing that is committed later. taken_at: ISO 8601 in UTC; journal_id, journal_uuid: the last change
    that is in it, None if there was none."""

    def __init__(self, found: RepeatableRead) -> None:
        self._read = found
        [(self.taken_at,)] = found.rows(f"SELECT {iso('now()')}")
        last = found.rows("SELECT id, uuid FROM journal ORDER BY id DESC LIMIT 1")
        self.journal_id: int | None
        self.journal_uuid: UUID | None
        self.journal_id, self.journal_uuid = last[0] if last else (None, None)

    def totals(self, path: str | None, folder: str) -> tuple[int, int]:
        """Number and bytes of what `files` gives."""
        self._read.read_by_index(everything=not folder)
        [(files, size_bytes)] = self._read.rows(
            _TOTALS_BELOW if folder else _TOTALS, _bounds(path, folder) if folder else None
        )
        return int(files), int(size_bytes)

    def files(self, path: str | None, folder: str) -> Generator[list[FileRow], None, None]:
        """Pages of the file of that path, if one is asked for, and of all below a folder ("" is everything), in
        path order. They stream: to be read to the end, or closed."""
        parameters = _bounds(path, folder)
        self._read.read_by_index(everything=not folder)
        if path is not None:
            yield from self._read.pages(_FILES.format(condition=_ONE), parameters)
        yield from self._read.pages(_FILES.format(condition=_BELOW if folder else "true"), parameters)

    def chunks(self, ids: Collection[int]) -> list[SnapshotChunk]:
        """By chunks.id."""
        return [SnapshotChunk(*row) for row in self._read.rows(_CHUNKS, {"ids": list(ids)})]

    def copies(self, ids: Collection[int]) -> list[SnapshotCopy]:
        """The copies that these chunks have, the oldest first."""
        parameters = {"ids": list(ids), "state": str(ChunkState.COMMITTED)}
        return [SnapshotCopy(*row) for row in self._read.rows(_COPIES, parameters)]


def _bounds(path: str | None, folder: str) -> dict[str, str | None]:
    low, high = folder_range(folder)
    return {"path": path, "low": low, "high": high}


@contextmanager
def consistent_read(connect: Callable[[], PgConnection]) -> Iterator[ConsistentFiles]:
    """One transaction on a connection of its own. Raises CatalogUnavailable, CatalogOutdated."""
    with repeatable_read(connect) as found:
        yield ConsistentFiles(found)
