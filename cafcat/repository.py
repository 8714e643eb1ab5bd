"""The facade: one catalog and its stores. The command line calls this, and so may you."""

import os
import socket
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from cafcat import __version__
from cafcat.catalog.catalog import Catalog
from cafcat.catalog.lookup import PAGE_ROWS, FindFilter
from cafcat.database import Database
from cafcat.errors import InvalidInput, NotFound
from cafcat.formats import registry as formats
from cafcat.model import (
    Chunk,
    ChunkState,
    Entry,
    ExtractReport,
    Folder,
    IngestReport,
    Location,
    OnConflict,
    RetiredLocation,
    Run,
    RunState,
    Stats,
)
from cafcat.progress import Progress
from cafcat.resolve.globs import regex_of_glob
from cafcat.resolve.outputs import OutputTree, write_single
from cafcat.resolve.reading import Reading
from cafcat.settings import Settings
from cafcat.stores.base import Store
from cafcat.stores.registry import open_store

if TYPE_CHECKING:
    from cafcat.ingest.chunk import ChunkPlace
    from cafcat.ingest.coordinator import Limits
    from cafcat.sources.base import Source

__all__ = ["Inspection", "Repository", "inspect", "open"]


class Inspection(NamedTuple):
    """What an archive file says of itself. entries streams; it raises Corrupt where the index is damaged."""

    format: str
    object: str
    size_bytes: int
    entries: Iterator[Entry]


def open(settings: Settings | None = None, **overrides: Any) -> "Repository":
    """Opens a repository: with settings, or with those that environment, cafcat.toml and defaults give.

    Overrides are settings by name: home, database_url, store, target_size, config, profile. Nothing is started
    or connected to before the first call that needs it. Raises InvalidInput.
    """
    if settings is not None and overrides:
        raise InvalidInput("give settings or overrides, not both")
    return Repository(settings or Settings.load(**overrides))


def inspect(file: str | os.PathLike[str]) -> Inspection:
    """Lists an archive without any catalog. Its format is told by its content. Raises NotFound, Corrupt,
    Unsupported."""
    from cafcat.stores.local_files import LocalFile

    archive = LocalFile(os.path.abspath(file))
    archive_format = formats.detect(archive)
    entries = archive_format.reader(archive).entries()
    return Inspection(archive_format.name, archive.name, archive.size_bytes, entries)


class Repository:
    """Files in, files out. Use it as a context manager, or call close."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._catalog: Catalog = Database(settings).catalog()
        self._store_of: Callable[[str], Store] = cache(open_store)
        self._reading = Reading(self._catalog, self._store_of)

    def close(self) -> None:
        """Closes the connection to the catalog. Idempotent."""
        self._catalog.close()

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
        on_conflict: OnConflict = OnConflict.REPLACE,
        dry_run: bool = False,
        target_size: int | None = None,
        progress: Progress | None = None,
        should_stop: Callable[[], bool] | None = None,
    ) -> IngestReport:
        """Packs what is new or changed in the sources into chunks.

        sources: folders and files; files_from: a file with names in lines ("-": standard input), or separated
        by NUL if null_separated. target_size: bytes of a chunk. When should_stop says True, which is asked
        between files and blocks, what was packed is committed and the run ends; when it raises, the open chunk is
        dropped.

        A file that cannot be taken is reported and costs only itself. Raises InvalidInput, NotFound for a
        source that is not there, Conflict under OnConflict.FAIL, StoreFailed, CatalogUnavailable,
        CatalogOutdated: chunks committed before stay.
        """
        from cafcat.ingest.coordinator import Ingest
        from cafcat.ingest.opening import open_sources

        progress = progress or Progress()
        options: dict[str, Any] = {
            "prefix": prefix,
            "include": list(include),
            "exclude": list(exclude),
            "follow_symlinks": follow_symlinks,
            "on_conflict": str(on_conflict),
            "target_size": self.settings.target_size if target_size is None else target_size,
        }
        if isinstance(sources, str | bytes | os.PathLike):
            raise InvalidInput("sources are a list of names", hint=f"write [{os.fspath(sources)!r}]")
        if not sources and files_from is None:
            raise InvalidInput("there is nothing to ingest", hint="name a folder, a file, or a list of files")
        limits = _limits(options["target_size"])
        store = self._store_of(self.settings.store)
        own_folders = [str(self.settings.home / name) for name in ("postgres", "chunks")]
        own_folders.append(getattr(store, "folder", ""))
        opened = open_sources(
            sources,
            files_from,
            null_separated=null_separated,
            options=options,
            own_folders=own_folders,
            warn=progress.warn,
        )
        run = 0 if dry_run else self._begin_run(opened, options)
        ingest = Ingest(
            self._chunk_place(store, run),
            limits,
            on_conflict=on_conflict,
            dry_run=dry_run,
            progress=progress,
            should_stop=should_stop or _never,
        )
        progress.begin("ingest")
        try:
            ingest.take(opened)
        except BaseException as error:
            state = RunState.INTERRUPTED if isinstance(error, KeyboardInterrupt) else RunState.FAILED
            self._end_run(ingest.report, state, str(error) or type(error).__name__)
            raise
        finally:
            progress.end()
        self._end_run(ingest.report, RunState.INTERRUPTED if ingest.report.interrupted else RunState.FINISHED)
        return ingest.report

    def _begin_run(self, sources: "Sequence[Source]", options: dict[str, Any]) -> int:
        from cafcat.ingest.opening import printable_options

        return self._catalog.runs.begin_run(
            sources=[source.name for source in sources],
            options=printable_options(options),
            host=socket.gethostname(),
            process_id=os.getpid(),
            version=__version__,
        )

    def _end_run(self, report: IngestReport, state: RunState, error: str | None = None) -> None:
        """A run that failed because the catalog is gone cannot be recorded there: the first error counts."""
        if report.run is None:
            return
        try:
            self._catalog.runs.finish_run(report.run, state, report.as_counts(), error)
        except Exception:
            if error is None:
                raise

    def _chunk_place(self, store: Store, run: int) -> "ChunkPlace":
        from cafcat.ingest.chunk import ChunkPlace

        owner = f"{socket.gethostname()}:{os.getpid()}:run {run}"
        return ChunkPlace(self._catalog, store, formats.by_name("caf"), run, owner)

    def locate(self, path: str) -> Location:
        """Where a file is: one query. Raises NotFound."""
        return self._reading.locate(path)

    def history(self, path: str) -> Sequence[RetiredLocation]:
        """What a path pointed to before, newest first."""
        return self._catalog.reports.history(path)

    def object_of(self, location: Location) -> str:
        """Absolute path or URL of the archive that holds a location."""
        return self._reading.object_of(location)

    def read(self, path: str, start: int = 0, end: int | None = None) -> bytes:
        """The bytes of a file, or `[start, end)` of them: one query, one range read. A negative start counts from
        the end. A whole file is checked against its checksum. Raises NotFound, Corrupt, InvalidInput for a range
        beyond the file."""
        return self._reading.read(self.locate(path), start, end)

    def stream(self, path: str, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        """The same in blocks of at most 1 MiB; the last block of a whole file comes only if its checksum is
        right."""
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
        location = self.locate(path)
        is_whole = start == 0 and end is None
        blocks = self._reading.stream(location, start, end)
        write_single(Path(output), blocks, location.modified_ns if is_whole else None, overwrite=overwrite)
        return location

    def list(self, prefix: str = "") -> Iterator[Location]:
        """Everything below a folder (or the file of that name), in path order."""
        return self.find(prefix)

    def list_folder(self, prefix: str = "") -> Iterator[Location | Folder]:
        """One level of a folder (or the file of that name): files, and folders once each."""
        yield from self._file_itself(prefix)
        after: Location | Folder | None = None
        while page := self._catalog.files.folder_page(_folder(prefix), after=after):
            yield from page
            after = page[-1]

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
        pattern = None if name is None else regex_of_glob(name)
        where = FindFilter(pattern, newer_ns, older_ns, min_size, max_size)
        yield from self._file_itself(prefix, where)
        for page in self._pages(_folder(prefix), where):
            yield from page

    def _file_itself(self, prefix: str, where: FindFilter | None = None) -> Sequence[Location]:
        """What has a slash at its end is a folder, and nothing else."""
        folder = _folder(prefix)
        return [] if not folder or prefix.endswith("/") else self._catalog.files.exact(folder[:-1], where)

    def _pages(self, folder: str, where: FindFilter | None = None) -> Iterator[Sequence[Location]]:
        after: str | None = None
        while page := self._catalog.files.page(folder, after=after, where=where):
            yield page
            if len(page) < PAGE_ROWS:
                return
            after = page[-1].path

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

        A file that fails (damaged, in the way, not a name for a disk) is reported and costs only itself.
        Raises NotFound if there is nothing of that name, OutputFailed if the directory cannot be written to.
        """
        from cafcat.resolve.extract import Extract

        progress = progress or Progress()
        itself = self._file_itself(prefix)
        files, size_bytes = self._catalog.files.totals(_folder(prefix))
        if not itself and not files and _folder(prefix):
            raise NotFound("the catalog has no such file or folder", path=prefix)
        total_bytes = size_bytes + sum(place.size_bytes for place in itself)
        with OutputTree(Path(directory)) as tree:
            extract = Extract(
                self._reading,
                self._store_of,
                tree,
                overwrite=overwrite,
                progress=progress,
                should_stop=should_stop or _never,
            )
            progress.begin("extract", files=files + len(itself), size_bytes=total_bytes)
            try:
                extract.take(itself)
                for page in self._pages(_folder(prefix)):
                    if extract.report.interrupted:
                        break
                    extract.take(page)
            finally:
                progress.end()
        return extract.report

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


def _limits(target_size: int) -> "Limits":
    from cafcat.ingest.coordinator import Limits

    limits = Limits(target_bytes=target_size)
    if not 0 < target_size <= limits.hard_bytes:
        raise InvalidInput(f"a target size is between 1 and {limits.hard_bytes} bytes, not {target_size}")
    return limits


def _folder(prefix: str) -> str:
    """A folder as typed, as the beginning of its paths: "./a", "/a", "a/" -> "a/"; ".", "./", "" -> ""."""
    name = prefix
    while name.startswith(("./", "/")):
        name = name.removeprefix(".").removeprefix("/")
    name = "" if name == "." else name
    return name if not name or name.endswith("/") else f"{name}/"


def _never() -> bool:
    return False
