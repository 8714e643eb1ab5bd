"""The files of a folder and their chunks, read in one consistent transaction: the content of a snapshot file."""

from collections.abc import Collection, Generator, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple
from uuid import UUID

from cafcat.catalog.connection import Connector
from cafcat.catalog.files.lookup import MICROSECONDS, size_of
from cafcat.catalog.files.scope import folder_range
from cafcat.catalog.history.runs import iso
from cafcat.catalog.repeatable_read import RepeatableRead, repeatable_read
from cafcat.model import ChunkState

__all__ = ["ConsistentFiles", "FileRow", "SnapshotChunk", "SnapshotCopy", "consistent_read"]

FileRow = tuple[str, int, int, int, int, int | None, int | None, str | None]
"""Path, chunks.id, start_byte, end_byte, CRC-32C, modification time in microseconds since 1970 UTC, and
content_bytes and decoding as in Location."""

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
# The sum of the chunks' counters: this needs no scan of file_locations.
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
    """The columns of `chunks` that are needed to open a chunk.

    Attributes:
        id: chunks.id.
        uuid: Name of the chunk outside SQL.
        format: Format of the archive.
        store: URL of the store that holds the object.
        object_key: Key of the object in that store.
        size_bytes: Size of the object.
        crc64nvme: CRC-64/NVME of the whole object in base64; None if unknown.
    """

    id: int
    uuid: UUID
    format: str
    store: str
    object_key: str
    size_bytes: int
    crc64nvme: str | None


class SnapshotCopy(NamedTuple):
    """A copy of a chunk.

    Attributes:
        chunk: chunks.id of the chunk.
        store: URL of the store that holds the copy.
        object_key: Key of the copy in that store.
    """

    chunk: int
    store: str
    object_key: str


class ConsistentFiles:
    """Files and chunks in one repeatable-read transaction, which does not see later commits.

    Attributes:
        taken_at: Start of the transaction: ISO 8601, UTC.
        journal_id: journal.id of the last change that the transaction sees; None if there was no change.
        journal_uuid: journal.uuid of that change; None if there was no change.
    """

    def __init__(self, transaction: RepeatableRead) -> None:
        self._transaction = transaction
        [(self.taken_at,)] = transaction.rows(f"SELECT {iso('now()')}")
        last = transaction.rows("SELECT id, uuid FROM journal ORDER BY id DESC LIMIT 1")
        self.journal_id: int | None
        self.journal_uuid: UUID | None
        self.journal_id, self.journal_uuid = last[0] if last else (None, None)

    def totals(self, path: str | None, folder: str) -> tuple[int, int]:
        """Return how many files `files` yields for these arguments, and their total size in bytes."""
        self._transaction.read_by_index(everything=not folder)
        [(file_count, size_bytes)] = self._transaction.rows(
            _TOTALS_BELOW if folder else _TOTALS, _bounds(path, folder) if folder else None
        )
        return int(file_count), int(size_bytes)

    def files(self, path: str | None, folder: str) -> Generator[list[FileRow], None, None]:
        """Yield the file of a path, and all files below a folder, in path order and in lists of up to 10,000.

        The rows stream from the server. The caller must read them to the end or close the generator.

        Args:
            path: The path of one file that is not below the folder; None for no such file.
            folder: A folder that ends in "/"; "" for all files.
        """
        parameters = _bounds(path, folder)
        self._transaction.read_by_index(everything=not folder)
        if path is not None:
            yield from self._transaction.pages(_FILES.format(condition=_ONE), parameters)
        yield from self._transaction.pages(_FILES.format(condition=_BELOW if folder else "true"), parameters)

    def chunks(self, ids: Collection[int]) -> list[SnapshotChunk]:
        """Return the chunks with these values of chunks.id, in the order of chunks.id."""
        return [SnapshotChunk(*row) for row in self._transaction.rows(_CHUNKS, {"ids": list(ids)})]

    def copies(self, ids: Collection[int]) -> list[SnapshotCopy]:
        """Return the committed copies of the chunks with these values of chunks.id, each chunk's oldest copy first.

        Copies that a migration has retired are not among them.
        """
        parameters = {"ids": list(ids), "state": str(ChunkState.COMMITTED)}
        return [SnapshotCopy(*row) for row in self._transaction.rows(_COPIES, parameters)]


def _bounds(path: str | None, folder: str) -> dict[str, str | None]:
    low, high = folder_range(folder)
    return {"path": path, "low": low, "high": high}


@contextmanager
def consistent_read(database: Connector) -> Iterator[ConsistentFiles]:
    """Open a repeatable-read transaction on a new connection, to read the content of a snapshot file.

    Raises:
        CatalogUnavailable: The database cannot be reached.
        AccessDenied: The server rejects user and password.
        InvalidInput: The URL of the database cannot be read.
        CatalogOutdated: The database has no schema, or one of another revision.
    """
    with repeatable_read(database) as transaction:
        yield ConsistentFiles(transaction)
