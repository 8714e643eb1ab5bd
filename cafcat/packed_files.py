"""The files of a catalog: found, listed and read."""

import copy
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from cafcat.catalog.files.lookup import FindFilter
from cafcat.errors import CafcatError, InvalidInput
from cafcat.model import Chunk, ChunkState, ExtractReport, Folder, Location, RetiredLocation, Run, Stats
from cafcat.progress import Progress, Warnings
from cafcat.reading.request import ReadRequest
from cafcat.session import Session, output_of
from cafcat.settings.settings import Settings

if TYPE_CHECKING:
    from cafcat.reading.batch import Batch
    from cafcat.reading.plan import ReadPlan
    from cafcat.reading.reader import FileReader
    from cafcat.reading.urls import SignedUrl

__all__ = ["PackedFiles"]


class PackedFiles:
    """Finds, lists and reads the files of a catalog. Repository adds all operations that write.

    Attributes:
        session: Catalog, stores, settings and progress. For tools that need more than the methods of this class.
    """

    def __init__(self, settings: Settings, warn: Callable[[str], object] | None = None) -> None:
        """Open nothing yet: the first call that needs the database connects.

        Args:
            settings: Settings of the repository.
            warn: Called with warnings of reads, such as a read from a copy. The default logs them.
        """
        self._warnings = Warnings(warn)
        self.session = Session.open(settings, Progress(), self._warnings)

    @property
    def settings(self) -> Settings:
        """Settings of the repository."""
        return self.session.settings

    def with_progress(self, progress: Progress) -> Self:
        """Return this repository with another Progress, which follows and stops the operations called on it."""
        view = copy.copy(self)
        view._reader = self._reader  # with what it has found out about failing stores
        view.session = replace(self.session, progress=progress)
        return view

    @cached_property
    def _reader(self) -> "FileReader":
        from cafcat.reading.reader import FileReader

        return FileReader(self.session.catalog, self.session.stores, self._warnings)

    def close(self) -> None:
        """Close the connection to the catalog, and the files of chunks that are open. Idempotent."""
        self.session.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def locate(self, path: str) -> Location:
        """Return where a file is: one query. Raises NotFound."""
        return self._reader.locate(path)

    def history(self, path: str) -> Sequence[RetiredLocation]:
        """Return the earlier locations of a path, newest first."""
        return self.session.catalog.reports.history(path)

    def object_of(self, location: Location) -> str:
        """Return the absolute path or the URL of the archive with a location."""
        return self.session.stores[location.store].locate(location.object_key)

    def url_of(self, location: Location) -> str:
        """Return the URL of the archive for other programs: http(s):// or file://. The URL contains no
        credentials."""
        from cafcat.reading.urls import url_of

        return url_of(self.session.stores[location.store], location)

    def signed_url(self, location: Location, seconds: int) -> "SignedUrl":
        """Return a URL that gives anybody the bytes of one file, and no others.

        Args:
            location: Location of the file.
            seconds: How long the URL is valid; at most 7 days.

        Raises:
            InvalidInput: The file is empty, the store is a folder, or the time is too long.
            AccessDenied: There are no credentials.
        """
        from cafcat.reading.urls import signed_url

        return signed_url(self.session.stores[location.store], location, seconds)

    def curl_options(self, location: Location) -> str:
        """Return the options with which curl reads `url_of`: they name environment variables, and no secrets."""
        from cafcat.reading.urls import curl_options

        return curl_options(self.session.stores[location.store])

    def read(self, path: str, start: int = 0, end: int | None = None) -> bytes:
        """Return the bytes of a file, or a range of them: one query, one range read.

        A whole file is compared with its checksum.

        Args:
            path: Path of the file in the catalog.
            start: First byte; a negative number counts from the end.
            end: Byte after the last one; None is the end of the file.

        Raises:
            NotFound: The catalog has no such file.
            Corrupt: The bytes are damaged, in every copy.
            InvalidInput: The range is beyond the file.
            StoreFailed, CatalogUnavailable: A store or the database does not answer.
        """
        return self._reader.read(ReadRequest.of(path, self._reader.locate(path), start, end))

    def stream(self, path: str, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        """Give the bytes of a file, or a range of them, in blocks of at most 1 MiB.

        A file of at most 8 MiB is compared with its checksum before the first block, a larger one before the last.
        Arguments and errors as of `read`.
        """
        return self._reader.stream(ReadRequest.of(path, self._reader.locate(path), start, end))

    def get(
        self,
        path: str,
        output: str | os.PathLike[str],
        start: int = 0,
        end: int | None = None,
        *,
        overwrite: bool = False,
    ) -> Location:
        """Write a file of the catalog to disk, with its modification time, or a range of its bytes without.

        The output appears complete, and checked if it is the whole file, or not at all. A device or pipe is written
        to directly.

        Args:
            path: Path of the file in the catalog.
            output: Name of the file to write.
            start: First byte; a negative number counts from the end.
            end: Byte after the last one; None is the end of the file.
            overwrite: Replace an existing file.

        Raises:
            Conflict: The output exists, and overwrite is false.
            OutputFailed: The output cannot be written.
            NotFound, Corrupt, StoreFailed, InvalidInput: As of `read`.
        """
        from cafcat.reading.outputs import write_single

        request = ReadRequest.of(path, self._reader.locate(path), start, end)
        target = output_of(self.session.settings, output, overwrite=overwrite)
        write = partial(write_single, target, request.modified_ns)
        self._reader.save(request, self._reader.stream(request), write, can_restart=not target.is_special)
        return request.location

    def read_many(
        self, paths: Iterable[str], start: int = 0, end: int | None = None
    ) -> Iterator[tuple[str, bytes | CafcatError]]:
        """Give the path and the bytes of many files: one query per thousand files, and one range read for near
        files.

        The files come in the order of archives and offsets. If a single file fails, its error comes in place of its
        bytes: NotFound, Corrupt, StoreFailed, or InvalidInput for a range beyond the file.

        Raises:
            AccessDenied, Unavailable: A store is out of reach.
            CatalogUnavailable, CatalogOutdated: The database does not answer, or has another schema.
        """
        return self._batch(start, end).read(_names(paths))

    def stream_many(
        self, paths: Iterable[str], start: int = 0, end: int | None = None
    ) -> Iterator[tuple[str, Iterator[bytes] | CafcatError]]:
        """Give the path and the blocks of many files, in the order of the paths.

        Files that cannot be found come first. Errors as of `read_many`; the blocks raise Corrupt and StoreFailed.
        """
        return self._batch(start, end).stream(_names(paths))

    def get_many(
        self,
        outputs: Mapping[str, str | os.PathLike[str]],
        start: int = 0,
        end: int | None = None,
        *,
        overwrite: bool = False,
    ) -> Iterator[tuple[str, Location | CafcatError]]:
        """Write many files to disk, and give each path with its location. Files are written during the iteration.

        Args:
            outputs: Name of the file to write, by path in the catalog.
            start: As of `get`.
            end: As of `get`.
            overwrite: Replace existing files.

        Raises:
            OutputFailed: An output cannot be written. Other errors as of `read_many`; an existing output is a
                Conflict in place of the location.
        """
        targets = self.session.outputs(outputs, overwrite=overwrite)
        return self._batch(start, end).get(targets)

    def plan(
        self, paths: Iterable[str], start: int = 0, end: int | None = None, *, in_order: bool = False
    ) -> "ReadPlan":
        """Return the requests that `read_many` and `get_many` would send, or with in_order `stream_many`."""
        return self._batch(start, end).plan(_names(paths), in_order=in_order)

    def _batch(self, start: int, end: int | None) -> "Batch":
        from cafcat.reading.batch import Batch

        return Batch(self._reader, start, end)

    def list(self, prefix: str = "") -> Iterator[Location]:
        """Give all files below a folder, or the file of this name, in the order of paths."""
        return self.find(prefix)

    def list_folder(self, prefix: str = "") -> Iterator[Location | Folder]:
        """Give the files and folders directly in a folder, or the file of this name."""
        return self.session.catalog.files.level(prefix)

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
        """Give the files below a folder that meet all conditions, in the order of paths.

        Args:
            prefix: A folder of the catalog, or a file.
            name: Shell pattern for the last part of the path.
            newer_ns: Modified after this time, in nanoseconds since 1970.
            older_ns: Modified before this time, in nanoseconds since 1970.
            min_size: Smallest size in bytes.
            max_size: Largest size in bytes.
        """
        from cafcat.reading.globs import regex_of_glob

        pattern = None if name is None else regex_of_glob(name)
        where = FindFilter(pattern, newer_ns, older_ns, min_size, max_size)
        for page in self.session.catalog.files.pages(prefix, where):
            yield from page

    def extract(self, prefix: str, directory: str | os.PathLike[str], *, overwrite: bool = False) -> ExtractReport:
        """Write all files below a folder of the catalog into a directory, with their modification times.

        Each file appears complete and checked, or not at all, and never outside the directory. A file that fails is
        reported; the others are written.

        Args:
            prefix: A folder of the catalog, or a file.
            directory: The directory to write to.
            overwrite: Replace existing files.

        Raises:
            NotFound: The catalog has no such folder or file.
            OutputFailed: The directory cannot be written to.
            AccessDenied, Unavailable: A store is out of reach.
        """
        from cafcat.reading.extract import extract_tree

        output = output_of(self.session.settings, directory, overwrite=overwrite)
        return extract_tree(
            self._reader,
            self.session.catalog.files,
            prefix,
            output,
            progress=self.session.progress,
        )

    def plan_extract(self, prefix: str) -> "ReadPlan":
        """Return the requests that `extract` would send. Raises NotFound."""
        from cafcat.reading.extract import plan_tree

        return plan_tree(self._reader, self.session.catalog.files, prefix)

    def chunks(self, state: ChunkState | None = None) -> Iterator[Chunk]:
        """Give all chunks, or those in a state, oldest first."""
        after = 0
        while page := self.session.catalog.chunks.page(state, after=after):
            yield from (chunk for _, chunk in page)
            after = page[-1][0]

    def chunk(self, uuid: str) -> Chunk:
        """Return a chunk by its uuid, or the first 8 digits or more. Raises NotFound, InvalidInput."""
        return self.session.catalog.chunks.chunk(uuid)

    def chunk_files(self, uuid: str) -> Iterator[Location]:
        """Give the live files of a chunk, in the order of paths."""
        chunk = self.chunk(uuid).uuid
        after: str | None = None
        while page := self.session.catalog.files.chunk_page(chunk, after=after):
            yield from page
            after = page[-1].path

    def runs(self, limit: int = 20) -> Sequence[Run]:
        """Return the latest ingest runs, newest first."""
        return self.session.catalog.runs.runs(limit)

    def stats(self) -> Stats:
        """Return the totals of the catalog."""
        return self.session.catalog.reports.stats()

    def query(self, sql: str) -> tuple[Sequence[str], Iterator[tuple[Any, ...]]]:
        """Run a statement that can only read. Returns the names of the columns, and the rows.

        Raises:
            InvalidInput: Postgres refuses the statement; the error has its message.
        """
        return self.session.catalog.reports.query(sql)

    def lost_catalog(self) -> CafcatError | None:
        """Return an error with the remedies if this catalog is empty, and the store of the settings is not.

        Then this catalog replaces a lost one. The store is looked at only if the catalog is empty; a store that
        does not answer counts as empty. Raises CatalogUnavailable, CatalogOutdated.
        """
        if not self.session.catalog.identities.is_empty():
            return None
        from cafcat.operations.lost_catalog import lost_catalog

        return lost_catalog(self.session)


def _names(paths: Iterable[str]) -> Iterable[str]:
    if isinstance(paths, str | bytes):
        raise InvalidInput("paths must be a list of names, not one name", hint=f"write [{paths!r}]")
    return paths
