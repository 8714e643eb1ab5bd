"""The facade: one catalog and its stores. The command line calls this, and so may you."""

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from cafcat import __version__
from cafcat.catalog.catalog import Catalog
from cafcat.catalog.files.lookup import FindFilter
from cafcat.errors import CafcatError, InvalidInput
from cafcat.model import (
    Chunk,
    ChunkState,
    Comparison,
    ExtractReport,
    Folder,
    IngestReport,
    Location,
    OnConflict,
    RetiredLocation,
    Run,
    Stats,
)
from cafcat.progress import Progress
from cafcat.reading.reader import Reading
from cafcat.reading.request import ReadRequest
from cafcat.settings.database import Database
from cafcat.settings.settings import Settings
from cafcat.stores.base import Store
from cafcat.wiring import CatalogVerdicts, Rooms, Stores, opening_of, output_of, outputs_of

if TYPE_CHECKING:
    from cafcat.custody import Custody
    from cafcat.custody.checking_stores import CheckedStore
    from cafcat.operations.export.run import ExportReport
    from cafcat.operations.recover.left_copies import RecoveredCopy
    from cafcat.operations.recover.run import RecoveredChunk, RecoverReport
    from cafcat.reading.batch import Batch
    from cafcat.reading.listing import Listing
    from cafcat.reading.plan import ReadPlan
    from cafcat.reading.urls import SignedUrl
    from cafcat.snapshots.writing import SnapshotReport

__all__ = ["Repository", "open"]

_MOST_JOBS = 4
"""More is for those who know that their disks like it."""


def open(
    settings: Settings | None = None, *, warn: Callable[[str], object] | None = None, **overrides: Any
) -> "Repository":
    """Opens a repository: with settings, or with those that environment, cafcat.toml and defaults give.

    Overrides are settings by name: home, database_url, store, target_size, upload_memory,
    prepared_statements, config, profile. Nothing is started
    or connected to before the first call that needs it. `warn` is told what went well only by a second way, as a
    read from a copy; by default, the logger "cafcat" is. Raises InvalidInput.
    """
    if settings is not None and overrides:
        raise InvalidInput("give settings or overrides, not both")
    return Repository(settings or Settings.load(**overrides), warn)


class Repository:
    """Files in, files out. Use it as a context manager, or call close."""

    def __init__(self, settings: Settings, warn: Callable[[str], object] | None = None) -> None:
        """`warn`: as in `open`."""
        self.settings = settings
        self._catalog: Catalog = Database(settings).catalog()
        warn = warn or logging.getLogger("cafcat").warning
        self._catalog.announce_waits(warn)
        self._stores = Stores(settings, CatalogVerdicts(settings), warn)
        self._store_of: Callable[[str], Store] = self._stores.__getitem__
        self._reading = Reading(self._catalog, self._store_of, warn)

    @cached_property
    def _listing(self) -> "Listing":
        from cafcat.reading.listing import Listing

        return Listing(self._catalog)

    @cached_property
    def custody(self) -> "Custody":
        """Verify, repair, copy, remove, prune, rebuild, ..."""
        from cafcat.custody import Custody

        return Custody(self._catalog, self._store_of, self.settings)

    def recover(
        self,
        *,
        store: str | None = None,
        dry_run: bool = False,
        progress: Progress | None = None,
        on_settled: "Callable[[RecoveredChunk | RecoveredCopy], object] | None" = None,
        should_stop: Callable[[], bool] | None = None,
    ) -> "RecoverReport":
        """Settles what writers left behind that died: see `custody`."""
        return self.custody.recover(
            store=store, dry_run=dry_run, progress=progress, on_settled=on_settled, should_stop=should_stop
        )

    def check_store(self, store: str) -> "CheckedStore":
        """Try what a store can do, with small objects that are removed afterwards.

        If the catalog has the store, the catalog keeps which checks failed. No database is started for that.

        Args:
            store: A name in the configuration or in the catalog, a URL, or a folder.

        Raises:
            NotFound: There is no such bucket.
            AccessDenied: The store refuses.
            StoreFailed: The store does not answer.
            InvalidInput: Not a store.
        """
        from cafcat.custody.checking_stores import checked_store

        return checked_store(self.settings, store)

    def close(self) -> None:
        """Closes the connection to the catalog, and the files of chunks that are open. Idempotent."""
        self._catalog.close()
        self._stores.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def ingest(
        self,
        sources: Sequence[str | os.PathLike[str]] = (),
        *,
        files_from: str | None = None,
        null_separated: bool = False,
        prefix: str = "",
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
        follow_symlinks: bool = False,
        unpack_tars: bool = True,
        inventory: str | None = None,
        restart_listing: bool = False,
        on_conflict: OnConflict = OnConflict.REPLACE,
        comparison: Comparison = Comparison.TIME,
        dry_run: bool = False,
        join_store: bool = False,
        format: str = "caf",
        timestamp_key: str | None = None,
        target_size: int | None = None,
        jobs: int | None = None,
        progress: Progress | None = None,
        should_stop: Callable[[], bool] | None = None,
    ) -> IngestReport:
        """Packs what is new or changed in the sources into chunks.

        sources: folders, files, tar files ("-": a tar on standard input), s3:// URLs; files_from: a file with names
        and URLs in lines ("-": standard input), or separated by NUL if null_separated. unpack_tars: whether tar
        files are sources or just files. inventory: manifest of an S3 Inventory, in place of listing the one s3://
        source. A listing that was interrupted goes on, unless restart_listing. comparison: how a file that the
        catalog has is found to be another than before; NOTHING packs every file anew. format: of the chunks, as in
        `cafcat.formats`; target_size: bytes of a chunk, for clp-s of the log files in one (1 GB, if not given);
        timestamp_key: for clp-s, the key of records that has their time.
        jobs: so many processes pack folders, each a chunk of its own, if there is enough to do for them; None: one
        for each processor, four at most. Other sources are packed by this process.
        join_store: write into the store although it has chunks of another catalog; without it, that is a Conflict.

        When should_stop says True, which is asked between groups of small files and blocks of large ones, what was
        packed is committed and the run ends; when it raises, the open chunks are dropped.

        A file that cannot be taken is reported and costs only itself. Raises InvalidInput, NotFound for a
        source that is not there, Conflict under OnConflict.FAIL, StoreFailed, CatalogUnavailable,
        CatalogOutdated: chunks committed before stay.
        """
        from cafcat.formats import registry as formats
        from cafcat.operations.ingest.run import IngestRun, target_of
        from cafcat.scanning.opening import SourceOptions
        from cafcat.support.workers import processors

        if isinstance(sources, str | bytes | os.PathLike):
            raise InvalidInput("sources are a list of names", hint=f"write [{os.fspath(sources)!r}]")
        if not sources and files_from is None:
            raise InvalidInput("there is nothing to ingest", hint="name a folder, a file, or a list of files")
        progress = progress or Progress()
        options = SourceOptions(
            files_from=files_from,
            null_separated=null_separated,
            prefix=prefix,
            include=include,
            exclude=exclude,
            follow_symlinks=follow_symlinks,
            unpack_tars=unpack_tars,
            inventory=inventory,
            restart_listing=restart_listing,
            on_conflict=on_conflict,
            comparison=comparison,
        )
        if comparison is Comparison.NOTHING and on_conflict is not OnConflict.REPLACE:
            raise InvalidInput("--force replaces files, --on-conflict keeps them", hint="leave one of them out")
        store = self.custody.store_to_write(dry_run=dry_run)
        should_stop = should_stop or _never
        if not dry_run:
            self.custody.settle(store.url, progress, should_stop)
        self.custody.join(store, join_store=join_store, dry_run=dry_run)
        run = IngestRun(
            self._catalog,
            store,
            opening_of(self.settings, self._catalog, store, options, progress),
            archive_format=formats.of_new_chunks(format),
            timestamp_key=timestamp_key,
            dry_run=dry_run,
            target_size=target_of(format, self.settings.target_size) if target_size is None else target_size,
            jobs=min(processors(), _MOST_JOBS) if jobs is None else jobs,
            rooms=Rooms(self.settings),
            version=__version__,
            progress=progress,
            should_stop=should_stop,
        )
        return run.take(sources)

    def locate(self, path: str) -> Location:
        """Where a file is: one query. Raises NotFound."""
        return self._reading.locate(path)

    def history(self, path: str) -> Sequence[RetiredLocation]:
        """What a path pointed to before, newest first."""
        return self._catalog.reports.history(path)

    def object_of(self, location: Location) -> str:
        """Absolute path or URL of the archive that holds a location."""
        return self._reading.object_of(location)

    def url_of(self, location: Location) -> str:
        """The same as other programs read it: an http(s):// or file:// URL, which lets nobody in by itself."""
        from cafcat.reading.urls import url_of

        return url_of(self._store_of(location.store), location)

    def signed_url(self, location: Location, seconds: int) -> "SignedUrl":
        """A URL that gives anybody the bytes of one file, and no others, for so many seconds. Raises InvalidInput
        for an empty file, for a store that is a folder, and for more than 7 days; AccessDenied."""
        from cafcat.reading.urls import signed_url

        return signed_url(self._store_of(location.store), location, seconds)

    def curl_options(self, location: Location) -> str:
        """Shell words that let curl in to `url_of`: names of environment variables, no secrets."""
        from cafcat.reading.urls import curl_options

        return curl_options(self._store_of(location.store))

    def read(self, path: str, start: int = 0, end: int | None = None) -> bytes:
        """The bytes of a file, or `[start, end)` of them: one query, one range read. A negative start counts from
        the end. A whole file is checked against its checksum. Raises NotFound, Corrupt, InvalidInput for a range
        beyond the file."""
        return self._reading.read(self.locate(path), start, end)

    def stream(self, path: str, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        """The same in blocks of at most 1 MiB. A file of at most 8 MiB is checked before its first block comes, a
        larger one before its last."""
        return self._reading.stream(self.locate(path), start, end)

    def get(
        self,
        path: str,
        output: str | os.PathLike[str],
        start: int = 0,
        end: int | None = None,
        *,
        overwrite: bool = False,
    ) -> Location:
        """Writes a file to disk, with its modification time, or `[start, end)` of it, without. `output` appears
        whole (and checked, if it is the whole file), or not at all; a device or pipe is written to. Raises
        NotFound, Corrupt, Conflict if output is there and overwrite is false, StoreFailed, OutputFailed,
        InvalidInput for a range beyond the file."""
        from cafcat.reading.saving import save_single

        location = self.locate(path)
        wanted = ReadRequest.of(path, location, start, end)
        target = output_of(self.settings, output, overwrite=overwrite)
        blocks = self._reading.blocks(wanted, can_restart=not target.is_special)
        save_single(self._reading, wanted, blocks, target)
        return location

    def _batch(self, start: int, end: int | None) -> "Batch":
        from cafcat.reading.batch import Batch

        return Batch(self._reading, start, end)

    def read_many(
        self, paths: Iterable[str], start: int = 0, end: int | None = None
    ) -> Iterator[tuple[str, bytes | CafcatError]]:
        """As `read`, for many: a query for each thousand, and near files by one range read. They come as they are
        read, by archive and offset, under the names that were asked for.

        What is wrong with one file comes in place of its bytes: NotFound, Corrupt, StoreFailed, InvalidInput for a
        range beyond it. What is wrong with all is raised: AccessDenied, Unavailable for a store out of reach,
        CatalogUnavailable, CatalogOutdated.
        """
        return self._batch(start, end).read(_names(paths))

    def stream_many(
        self, paths: Iterable[str], start: int = 0, end: int | None = None
    ) -> Iterator[tuple[str, Iterator[bytes] | CafcatError]]:
        """As `read_many`, in blocks, in the order asked for; what cannot be found comes first. Blocks raise Corrupt
        and StoreFailed for their file."""
        return self._batch(start, end).stream(_names(paths))

    def get_many(
        self,
        outputs: Mapping[str, str | os.PathLike[str]],
        start: int = 0,
        end: int | None = None,
        *,
        overwrite: bool = False,
    ) -> Iterator[tuple[str, Location | CafcatError]]:
        """As `get`, for many: outputs by path. They are written while you iterate, as they are read. Errors are as
        in `read_many`, with Conflict for an output that is there; raises OutputFailed."""
        targets = outputs_of(self.settings, outputs, overwrite=overwrite)
        return self._batch(start, end).get(targets)

    def plan(
        self, paths: Iterable[str], start: int = 0, end: int | None = None, *, in_order: bool = False
    ) -> "ReadPlan":
        """What `read_many` and `get_many`, or in_order `stream_many`, would read. Nothing is read."""
        return self._batch(start, end).plan(_names(paths), in_order=in_order)

    def list(self, prefix: str = "") -> Iterator[Location]:
        """Everything below a folder (or the file of that name), in path order."""
        return self.find(prefix)

    def list_folder(self, prefix: str = "") -> Iterator[Location | Folder]:
        """One level of a folder (or the file of that name): files, and folders once each."""
        return self._listing.level(prefix)

    def find(
        self,
        prefix: str = "",
        *,
        name: str | None = None,
        newer_ns: int | None = None,
        older_ns: int | None = None,
        min_size: int | None = None,
        max_size: int | None = None,
    ) -> Iterator[Location]:
        """Files below a folder (or the file of that name) by conditions, in path order. name: a shell pattern
        for the last part of the path; times in nanoseconds since 1970, sizes in bytes."""
        from cafcat.reading.globs import regex_of_glob

        pattern = None if name is None else regex_of_glob(name)
        where = FindFilter(pattern, newer_ns, older_ns, min_size, max_size)
        for page in self._listing.pages(prefix, where):
            yield from page

    def extract(
        self,
        prefix: str,
        directory: str | os.PathLike[str],
        *,
        overwrite: bool = False,
        progress: Progress | None = None,
        should_stop: Callable[[], bool] | None = None,
    ) -> ExtractReport:
        """Writes everything below a folder of the catalog (or the file of that name) below a directory, with
        modification times; each file appears whole and checked, or not at all, and none outside it.

        A file that fails (damaged, in the way, not a name for a disk) is reported and costs only itself. Raises
        NotFound if there is nothing of that name, OutputFailed if the directory cannot be written to, AccessDenied,
        Unavailable for a store out of reach.
        """
        from cafcat.reading.extract import extract_tree

        return extract_tree(
            self._reading,
            self._listing,
            prefix,
            output_of(self.settings, directory, overwrite=overwrite),
            progress=progress or Progress(),
            should_stop=should_stop or _never,
        )

    def plan_extract(self, prefix: str) -> "ReadPlan":
        """What `extract` would read. Nothing is read. Raises NotFound if there is nothing of that name."""
        from cafcat.reading.extract import plan_tree

        return plan_tree(self._reading, self._listing, prefix)

    def snapshot(
        self,
        output: str | os.PathLike[str],
        prefix: str = "",
        *,
        overwrite: bool = False,
        progress: Progress | None = None,
    ) -> "SnapshotReport":
        """Writes where everything below a folder is (or the file of that name), at one moment, into a file that
        `cafcat.Snapshot` reads without the catalog. It appears whole and durable, or not at all. Raises NotFound if
        there is nothing of that name, Conflict if output is there and overwrite is false, OutputFailed,
        InvalidInput for an output that is a device, CatalogUnavailable, CatalogOutdated."""
        from cafcat.snapshots.writing import write_snapshot

        progress = progress or Progress()
        try:
            target = output_of(self.settings, output, overwrite=overwrite)
            return write_snapshot(self._catalog, prefix, target, version=__version__, progress=progress)
        finally:
            progress.end()

    def export(
        self,
        prefixes: Iterable[str],
        output: str | os.PathLike[str],
        *,
        format: str | None = None,
        overwrite: bool = False,
        progress: Progress | None = None,
    ) -> "ExportReport":
        """Writes everything below folders of the catalog (or the files of these names; none: everything) into one
        archive, under the same paths, as it is at one moment. format: as for `cafcat.convert`. Every file is
        checked; what cannot be read is read from a copy.

        `output` appears whole and durable, or not at all. Raises NotFound if there is nothing of one of the names,
        Corrupt or StoreFailed for the first file that nobody can give, Conflict if output is there and overwrite is
        false, Unsupported, InvalidInput, OutputFailed, AccessDenied, Unavailable, CatalogUnavailable,
        CatalogOutdated.
        """
        from cafcat.operations.export.run import export_archive

        return export_archive(
            self._catalog,
            self._reading,
            list(_names(prefixes)),
            output_of(self.settings, output, overwrite=overwrite),
            format,
            progress=progress or Progress(),
        )

    def chunks(self, state: ChunkState | None = None) -> Iterator[Chunk]:
        """All chunks, or those of a state, oldest first."""
        after = 0
        while page := self._catalog.chunks.page(state, after=after):
            yield from (chunk for _, chunk in page)
            after = page[-1][0]

    def chunk(self, uuid: str) -> Chunk:
        """A chunk by its uuid, or a prefix of it of at least 8 characters. Raises NotFound, InvalidInput."""
        return self._catalog.chunks.chunk(uuid)

    def chunk_files(self, uuid: str) -> Iterator[Location]:
        """The files that are live in a chunk, in path order."""
        chunk = self.chunk(uuid).uuid
        after: str | None = None
        while page := self._catalog.files.chunk_page(chunk, after=after):
            yield from page
            after = page[-1].path

    def runs(self, limit: int = 20) -> Sequence[Run]:
        """The latest ingest runs, newest first."""
        return self._catalog.runs.runs(limit)

    def stats(self) -> Stats:
        """Totals of the catalog."""
        return self._catalog.reports.stats()

    def query(self, sql: str) -> tuple[Sequence[str], Iterator[tuple[Any, ...]]]:
        """Runs a statement that can only read. Column names, and rows as they come. Raises InvalidInput with
        Postgres' own message."""
        return self._catalog.reports.query(sql)


def _names(paths: Iterable[str]) -> Iterable[str]:
    if isinstance(paths, str | bytes):
        raise InvalidInput("paths are a list of names", hint=f"write [{paths!r}]")
    return paths


def _never() -> bool:
    return False
