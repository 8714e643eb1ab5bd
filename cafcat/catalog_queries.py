"""Lists the chunks and runs of a catalog, the totals of folders, and the history of files."""

from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self
from uuid import UUID

from cafcat.errors import CafcatError, InvalidInput
from cafcat.model import (
    Chunk,
    ChunkState,
    FileChange,
    FolderTotal,
    Location,
    RetiredLocation,
    Run,
    RunState,
    ShardSummary,
    Stats,
)
from cafcat.progress import Progress, Warnings
from cafcat.session import Session
from cafcat.settings.settings import Settings
from cafcat.support.paths import check_text, folder_of

if TYPE_CHECKING:
    from cafcat.reading.urls import SignedUrl

__all__ = ["CatalogQueries"]


class CatalogQueries:
    """Lists the chunks and runs of a catalog, the totals of folders, and the history of files.

    Its subclass PackedFiles finds, lists and reads the files.

    Every method that needs the database raises CatalogUnavailable if the database does not answer, AccessDenied if
    it rejects the login, and CatalogOutdated if it has another schema. Use an object as a context manager, or call
    `close`.

    Attributes:
        session: Catalog, stores, settings and progress, for tools that need more than the methods of this class.
    """

    def __init__(self, settings: Settings, warn: Callable[[str], object] | None = None) -> None:
        """Create an object that connects at the first call that needs the database.

        Args:
            settings: Settings of the repository.
            warn: Called with each warning that a copy is read, that a lock of the catalog is waited for, or that an
                S3 server fails a check. None: these warnings are logged to the logger "cafcat". All other warnings
                go to the Progress of `with_progress`; without one, they are dropped.
        """
        self._warn = warn
        self._warnings = Warnings(warn)
        self.session = Session.open(settings, Progress(), self._warnings)

    @property
    def settings(self) -> Settings:
        """Settings of the repository."""
        return self.session.settings

    def close(self) -> None:
        """Close the connection to the catalog, and the files that stores keep open. Idempotent."""
        self.session.close()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the settings, with the URL of the database. Connections and the Progress are left behind."""
        return type(self), (self.settings, self._warn)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def history(self, path: str) -> Sequence[RetiredLocation]:
        """Return the former locations of a path, newest first, each with the reason why it ended.

        Files that were skipped because the path kept another file are in the list, too. The list is empty for a
        path that the catalog never had.
        """
        check_text(path)
        return self.session.catalog.reports.history(path)

    def object_of(self, location: Location) -> str:
        """Return the absolute path or the URL of the archive that contains a file; never that of a copy."""
        return self.session.stores[location.store].locate(location.object_key)

    def url_of(self, location: Location) -> str:
        """Return the URL of the archive that contains a file, for other programs.

        The URL contains no credentials.

        Returns:
            http:// or https:// for a bucket, file:// for a folder, else a URL of the store's own scheme.
        """
        from cafcat.reading.urls import url_of

        return url_of(self.session.stores[location.store], location)

    def signed_url(self, location: Location, seconds: int) -> "SignedUrl":
        """Return a URL that gives access to the bytes of one file, without credentials.

        If the chunk is in a store that cannot sign URLs, such as a folder, the URL is that of a copy in a bucket. A
        request must have the headers of the result, because the signature covers the range of bytes.

        Args:
            location: Location of the file.
            seconds: How long the URL is valid, from 1 second to 7 days.

        Raises:
            InvalidInput: Neither the store nor that of a copy can sign URLs (a folder cannot); the file is empty,
                or has to be decoded; or `seconds` is out of range.
            AccessDenied: There are no credentials.
        """
        from cafcat.reading.urls import signed_url
        from cafcat.stores.base import PresigningStore

        store = self.session.stores[location.store]
        if not isinstance(store, PresigningStore):
            for url, key in self.session.catalog.copies.of_chunk(location.chunk):
                copy = self.session.stores[url]
                if isinstance(copy, PresigningStore):
                    return signed_url(copy, location._replace(store=url, object_key=key), seconds)
        return signed_url(store, location, seconds)

    def curl_options(self, location: Location) -> str:
        """Return the options that curl needs to read the URL of `url_of`, as text for a shell; "" for none.

        The options name environment variables with credentials, and contain no secrets.
        """
        from cafcat.reading.urls import curl_options

        return curl_options(self.session.stores[location.store])

    def folder_total(self, folder: str = "") -> FolderTotal:
        """Return the number and size of all files below a folder. No file is counted: the catalog keeps totals.

        Args:
            folder: A folder of the catalog; "" for everything. The total of an unknown folder is 0.
        """
        return self.session.catalog.folders.total(folder_of(folder))

    def folder_totals(self, folder: str = "", levels: int = 1, *, by_size: bool = False) -> Iterator[FolderTotal]:
        """Yield the totals of the folders below a folder.

        Args:
            folder: A folder of the catalog; "" for everything.
            levels: Number of levels of folders; 1 for the direct subfolders.
            by_size: True for the largest folders first; False for one level after the other, each in path order.
        """
        totals = self.session.catalog.folders
        return (totals.largest if by_size else totals.below)(folder_of(folder), levels)

    def walk(self, prefix: str = "") -> Iterator[tuple[str, list[str], list[str]]]:
        """Yield each folder at and below a folder, with the names of its folders and of its files, as `os.walk`.

        A folder comes before the folders in it. Remove names from the list of folders to skip these folders. Names
        come in the order of their bytes. Each folder needs one query per thousand entries.

        Args:
            prefix: A folder of the catalog; "" for the top. An unknown folder yields nothing.

        Yields:
            The path of a folder ("" for the top), the names of the folders in it, and the names of its files.
        """
        from cafcat.reading.walking import walk

        return walk(self.session.catalog.reading.files, prefix)

    def chunks(self, state: ChunkState | None = None) -> Iterator[Chunk]:
        """Yield all chunks of the catalog, or only those in one state, in the order in which they were begun."""
        after = 0
        while page := self.session.catalog.chunks.page(state, after=after):
            yield from (chunk for _, chunk in page)
            after = page[-1][0]

    def chunk(self, uuid: str | UUID) -> Chunk:
        """Return a chunk by its UUID.

        Args:
            uuid: The UUID, or at least the first 8 characters of its text.

        Raises:
            NotFound: The catalog has no such chunk.
            InvalidInput: The text has fewer than 8 characters, or the UUIDs of several chunks begin with it.
        """
        return self.session.catalog.chunks.chunk(uuid)

    def chunk_files(self, uuid: str | UUID) -> Iterator[Location]:
        """Yield the live files of a chunk, in the order of paths.

        Args:
            uuid: UUID of the chunk, or at least the first 8 characters of its text.

        Raises:
            NotFound: The catalog has no such chunk.
            InvalidInput: The text has fewer than 8 characters, or the UUIDs of several chunks begin with it.
        """
        chunk = self.chunk(uuid).uuid
        after: str | None = None
        while page := self.session.catalog.reading.files.chunk_page(chunk, after=after):
            yield from page
            after = page[-1].path

    def runs(self, limit: int = 20) -> Sequence[Run]:
        """Return the latest ingests, newest first, at most `limit` of them."""
        return self.session.catalog.runs.runs(limit)

    def run(self, run: int) -> Run:
        """Return one ingest by its number. Raises NotFound if there is none."""
        return self.session.catalog.runs.run(run)

    def recorded_run(self, run: int) -> Run:
        """Return one ingest by its number, with its end and its changes.

        Raises:
            NotFound: There is no run with this number.
            InvalidInput: The run was rebuilt, so the catalog has neither its end nor its changes.
        """
        found = self.run(run)
        if found.state is RunState.REBUILT:
            hint = f"`cafcat query files-of-run {run}` lists its live files"
            raise InvalidInput(
                f"run {run} was rebuilt: its end, its changes and its failed files are lost", hint=hint
            )
        return found

    def shards(self, run: int) -> Sequence[ShardSummary]:
        """Return the parts into which an ingest by many workers has cut its sources; none for other ingests."""
        return self.session.catalog.shards.summaries(run)

    def changes_between(self, first_run: int, last_run: int) -> Iterator[FileChange]:
        """Yield the files that changed after the end of one ingest, until the end of a later one, in path order.

        The changes of all commands count, not only those of ingests.

        Args:
            first_run: Number of the earlier run.
            last_run: Number of the later run.

        Raises:
            NotFound: There is no run with one of these numbers.
            InvalidInput: The first run ended after the last one, or one of them was rebuilt.
        """
        first, last = self.recorded_run(first_run), self.recorded_run(last_run)
        if last.finished_at is not None and (first.finished_at is None or first.finished_at > last.finished_at):
            ends = "is still running" if first.finished_at is None else "ended later"
            hint = f"name the earlier run first: `cafcat runs diff {last_run} {first_run}`"
            raise InvalidInput(f"run {last_run} is not the later one: run {first_run} {ends}", hint=hint)
        return self.session.catalog.runs.changes_between(first_run, last_run)

    def stats(self) -> Stats:
        """Return the totals of the catalog, such as the numbers and sizes of its files and chunks."""
        return self.session.catalog.reports.stats()

    def query(self, sql: str) -> tuple[Sequence[str], Iterator[tuple[Any, ...]]]:
        """Run a query of the user on the catalog, in a transaction that can only read.

        Args:
            sql: One SELECT, VALUES, TABLE or WITH query.

        Returns:
            The names of the columns, and an iterator over the rows. Integers, booleans and NULL are Python's int,
            bool and None; all other values are text.

        Raises:
            InvalidInput: Postgres refuses the query, and the error has its message. Or the role of the database URL
                could do more than read, even in such a transaction.
        """
        return self.session.catalog.reports.query(sql)

    def has_logs(self, name: str) -> bool:
        """Return True if an archive of logs has a log file below a folder, or of that name.

        Args:
            name: Name of the folder or log file, as typed.

        Raises:
            CatalogUnavailable, CatalogOutdated: The database does not answer, or has another schema.
        """
        from cafcat.logs.searching import folder_of_logs

        return self.session.catalog.logs.has_any(folder_of_logs(name))

    def lost_catalog(self) -> CafcatError | None:
        """Return an error with the remedies if this catalog is empty, but the store of the settings is in use.

        The store is in use if it has chunks, journal records, or the marker of another catalog. Then this catalog
        was probably created in place of a lost one. The store is read only if the catalog is empty.

        Returns:
            The error, which is not raised. None if the catalog is not empty, or the store is unused or cannot be
            read.

        Raises:
            CatalogUnavailable, CatalogOutdated: The database does not answer, or has another schema.
        """
        from cafcat.operations.joining import lost_catalog

        return lost_catalog(self.session)
