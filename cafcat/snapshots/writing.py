"""Write a snapshot file from the catalog, in one pass over the files, page by page."""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cafcat.errors import NotFound, OutputFailed
from cafcat.model import NO_SUCH_PREFIX
from cafcat.progress import Progress
from cafcat.reading.outputs import Output, new_output_path
from cafcat.snapshots.schema import APPLICATION_ID, TABLES, VERSION
from cafcat.support.paths import file_of, folder_of

if TYPE_CHECKING:
    from cafcat.catalog.catalog import Catalog
    from cafcat.catalog.files.consistent import ConsistentFiles

__all__ = ["SnapshotReport", "write_snapshot"]

# The file has no name until it is complete and synced, so SQLite need not protect it against a crash.
_PRAGMAS: Final = (
    f"PRAGMA application_id = {APPLICATION_ID}",
    f"PRAGMA user_version = {VERSION}",
    "PRAGMA journal_mode = OFF",
    "PRAGMA synchronous = OFF",
    "PRAGMA locking_mode = EXCLUSIVE",
    "PRAGMA cache_size = -16000",
)


@dataclass(frozen=True, slots=True)
class SnapshotReport:
    """The result of `write_snapshot`: name, contents and size of the new snapshot.

    Attributes:
        output: Absolute path of the snapshot file.
        made_at: The moment whose locations the snapshot has: ISO 8601, UTC.
        prefix: The folder or file that was requested, without a slash at its end; "" for all files.
        files: Number of files.
        bytes: Total size of these files in bytes.
        chunks: Number of chunks that have these files.
        size_bytes: Size of the snapshot file in bytes.
    """

    output: str
    made_at: str
    prefix: str
    files: int
    bytes: int
    chunks: int
    size_bytes: int


def write_snapshot(
    catalog: "Catalog", prefix: str, output: Output, *, version: str, progress: Progress
) -> SnapshotReport:
    """Write a snapshot: an SQLite file with the locations of a file, or of all files below a folder.

    The locations are those of one moment. The file appears complete and durable under its name, or not at all.

    Args:
        catalog: The catalog.
        prefix: Folder or file of the catalog, as typed; "" and "." mean all files.
        output: The file to write.
        version: Version of this program, which the snapshot records.
        progress: Receives the number and size of the files so far.

    Returns:
        Numbers and sizes of the files, the chunks and the snapshot.

    Raises:
        NotFound: The catalog has no such folder or file.
        Conflict: The output exists, and must not be replaced.
        OutputFailed: The output cannot be written.
        CatalogUnavailable, CatalogOutdated: The database does not answer, or has another schema.
    """
    with new_output_path(output) as temporary:
        with (
            catalog.consistent_read() as moment,
            _sqlite_errors(output.shown),
            closing(_new(temporary)) as connection,
        ):
            writer = _SnapshotWriter(moment, connection, prefix, progress)
            writer.write(version)
        size_bytes = Path(temporary).stat().st_size
    shown = str(output.path.absolute())
    counts = writer.files, writer.bytes, len(writer.chunks)
    return SnapshotReport(shown, moment.taken_at, _name_of(prefix), *counts, size_bytes)


def _name_of(prefix: str) -> str:
    """Return a typed folder or file as the snapshot records it: "a" for "./a" and "a/"; "" for "." and "/"."""
    return folder_of(prefix)[:-1]


def _new(path: str) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None)
    for pragma in _PRAGMAS:
        connection.execute(pragma)
    return connection


@contextmanager
def _sqlite_errors(shown: str) -> Iterator[None]:
    """Raise OutputFailed in place of SQLite's errors from the `with` block; `shown` is the name of the output."""
    try:
        yield
    except sqlite3.Error as error:
        raise OutputFailed(f"the output cannot be written: {error}", path=shown) from error


class _SnapshotWriter:
    """Writes the tables of one snapshot.

    Attributes:
        files: Number of files so far.
        bytes: Total size of these files in bytes.
        chunks: chunks.id of the chunks that have these files.
    """

    def __init__(
        self, moment: "ConsistentFiles", connection: sqlite3.Connection, prefix: str, progress: Progress
    ) -> None:
        self._moment = moment
        self._connection = connection
        self._prefix = prefix
        self._progress = progress
        self.files = self.bytes = 0
        self.chunks: set[int] = set()

    def write(self, version: str) -> None:
        """Write all tables, as one transaction. Raises NotFound if the prefix is no file or folder."""
        path, folder = file_of(self._prefix), folder_of(self._prefix)
        files, size_bytes = self._moment.totals(path, folder)
        if folder and not files:
            raise NotFound(NO_SUCH_PREFIX, path=self._prefix)
        self._progress.begin("snapshot", files=files, size_bytes=size_bytes)
        self._connection.execute("BEGIN")
        for table in TABLES:
            self._connection.execute(table)
        self._write_files(path, folder)
        self._write_chunks()
        last = self._moment.journal_uuid
        row = (self._moment.taken_at, _name_of(self._prefix), self.files, self.bytes, self._moment.journal_id)
        self._insert("snapshot", [(*row, None if last is None else str(last), version)])
        self._connection.execute("COMMIT")

    def _write_files(self, path: str | None, folder: str) -> None:
        """Write the files in the order of their key, so that SQLite fills one page after the other."""
        with closing(self._moment.files(path, folder)) as pages:
            for page in pages:
                self._insert("files", page)
                size_bytes = sum(row[3] - row[2] if row[6] is None else row[6] for row in page)
                self.chunks.update(row[1] for row in page)
                self.files += len(page)
                self.bytes += size_bytes
                self._progress.advance(len(page), size_bytes)

    def _write_chunks(self) -> None:
        chunks = self._moment.chunks(self.chunks)
        self._insert("chunks", [(chunk.id, str(chunk.uuid), *chunk[2:]) for chunk in chunks])
        self._insert("copies", self._moment.copies(self.chunks))

    def _insert(self, table: str, rows: Sequence[tuple[object, ...]]) -> None:
        if rows:
            marks = ", ".join("?" * len(rows[0]))
            self._connection.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)  # noqa: S608
