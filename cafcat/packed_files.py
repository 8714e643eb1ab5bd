"""Reads the files of a catalog: with its base classes, the part of Repository that does not change the catalog."""

import copy
import os
from collections.abc import AsyncGenerator, Generator, Iterable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import replace
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Self

from cafcat.catalog_queries import CatalogQueries
from cafcat.errors import CafcatError
from cafcat.files_by_name import FilesByName
from cafcat.model import Location
from cafcat.progress import Progress
from cafcat.reading.request import ReadRequest
from cafcat.session import output_of
from cafcat.support.paths import names_in_list

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from cafcat.catalog.files.scope import FindFilter
    from cafcat.files_as_of import FilesAsOf
    from cafcat.reading.asynchronous import AsyncReader
    from cafcat.reading.lookup import PathListing
    from cafcat.reading.reader import FileReader
    from cafcat.reports import ExtractReport

__all__ = ["PackedFiles"]


class PackedFiles(FilesByName, CatalogQueries):
    """Finds, lists and reads the files of a catalog. Its subclass Repository adds the operations that write."""

    def with_progress(self, progress: Progress) -> Self:
        """Return a view of this repository whose operations report to a Progress, and can be stopped by it.

        The view has the same connection: closing one closes both.

        Args:
            progress: Receives the progress and events of the operations that are called on the view.
        """
        view = copy.copy(self)
        view._reader = self._reader  # with what it has found out about failing stores
        view.session = replace(self.session, progress=progress)
        return view

    def fresh(self) -> Self:
        """Return a view of this repository that reads the primary, also if a read replica is configured.

        The view has the same connection: closing one closes both. Use it to read what another process has just
        written. What this process has written is found without it.
        """
        view = copy.copy(self)
        for name in ("_reader", "_async_reader"):
            view.__dict__.pop(name, None)
        settings = replace(self.session.settings, read_database_url=None)  # also for a pickled view
        view.session = replace(self.session, settings=settings, catalog=self.session.catalog.fresh())
        return view

    @cached_property
    def _reader(self) -> "FileReader":
        return self.session.reader(self._warnings)

    @property
    def _files(self) -> "PathListing":
        return self.session.catalog.reading.files

    def _paths_ahead(self, prefix: str, where: "FindFilter") -> Generator[Sequence[str], None, None]:
        from cafcat.reading.paths_ahead import paths_ahead

        return paths_ahead(self.session.catalog, prefix, where)

    @cached_property
    def _async_reader(self) -> "AsyncReader":
        from cafcat.reading.asynchronous import AsyncReader

        return AsyncReader(self._reader)

    def close(self) -> None:
        """Close the connection to the catalog, the open files of stores, and the threads of `aread`. Idempotent."""
        self.session.close()
        if "_async_reader" in self.__dict__:
            self._async_reader.close()
            del self._async_reader

    def as_of(self, moment: datetime | str) -> "FilesAsOf":
        """Return an object that reads files by path, as the catalog had them at an earlier time.

        Args:
            moment: The time, as a datetime with a time zone or a text in ISO 8601; a time without an offset is UTC.
                Also a duration before now, such as "7d".

        Raises:
            InvalidInput: The argument is neither such a text nor a datetime with a time zone, or the time is before
                the year 1 or after 9999.
        """
        from cafcat.files_as_of import FilesAsOf
        from cafcat.support.arguments import parse_moment

        return FilesAsOf(self.session, self._warnings, parse_moment(moment))

    def stream_location(self, location: Location, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        """Yield the bytes of a file that was found before, or a range of them, as `stream` does, without a query.

        Args:
            location: Where the file is.
            start: First byte; a negative number counts from the end.
            end: One past the last byte; None for the end of the file.

        Raises:
            InvalidInput: As `read` raises it, by the call itself.
            Corrupt, StoreFailed, AccessDenied, Conflict, Unavailable, NotInstalled, Unsupported: As `read` raises
                them, during the iteration.
        """
        return self._reader.stream(ReadRequest.of(location.path, location, start, end))

    async def aread(self, path: str, start: int = 0, end: int | None = None) -> bytes:
        """Return the bytes of a file, or a range of them, without blocking the event loop of asyncio.

        Calls that are made together, as by `asyncio.gather`, share one query, and near files share a request.

        Args:
            path: Path of the file in the catalog.
            start: First byte; a negative number counts from the end.
            end: One past the last byte; None for the end of the file.

        Raises:
            CafcatError: As `read` raises it.
        """
        return await self._async_reader.read(path, start, end)

    async def aread_many(
        self, paths: Iterable[str], start: int = 0, end: int | None = None
    ) -> AsyncGenerator[tuple[str, bytes | CafcatError], None]:
        """Yield what `read_many` yields, without blocking the event loop of asyncio.

        Args:
            paths: Paths of files in the catalog.
            start: First byte of each file; a negative number counts from the end.
            end: One past the last byte of each file; None for the end of the file.

        Raises:
            CafcatError: As `read_many` raises it.
        """
        async with aclosing(self._async_reader.read_many(names_in_list(paths), start, end)) as outcomes:
            async for outcome in outcomes:
                yield outcome

    def extract(
        self,
        prefix: str | Iterable[str],
        directory: str | os.PathLike[str],
        *,
        paths: Iterable[str] | None = None,
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
        strip: int = 0,
        overwrite: bool = False,
        executor: "Executor | None" = None,
        share_password: bool = False,
    ) -> "ExtractReport":
        """Write files of the catalog into a directory, with their modification times.

        Each file appears complete, durable and compared with its checksum, or not at all, and never outside the
        directory. A file that fails is reported; the others are written. Below the directory, each file has its
        whole path of the catalog, not only the part below `prefix`. Any number of files takes the same memory.

        Args:
            prefix: A folder of the catalog, a file, or a pattern as in `glob`, which also stands for everything
                below the folders that it matches; or several of them; "" for all files. Of several, those without
                a file are reported.
            directory: The directory to write to, which is created if it is missing.
            paths: Paths of single files in place of `prefix`, which must be "" then. A missing file is reported.
            include: Patterns as in .gitignore, for whole paths of the catalog: only extract files that match one.
            exclude: Patterns as in .gitignore, for whole paths of the catalog: leave out files that match one.
            strip: Number of leading parts that are removed from each path. Files without further parts are skipped.
            overwrite: True to replace existing files.
            executor: Extract on the workers of this executor, on any number of hosts. All of them reach the
                directory by its path. An existing file with the content of the catalog then counts as extracted,
                so that a lost call can be repeated. None: this process extracts.
            share_password: With an executor: send the URL of the database to the workers even if it has a password.

        Returns:
            The numbers of extracted, failed and skipped files. `interrupted` is true if the Progress was stopping.

        Raises:
            NotFound: The catalog has no file for any prefix.
            InvalidInput: Two files would have the same name, because of `strip`: nothing was written. Or an
                argument is invalid.
            Conflict, InvalidInput, OutputFailed: The directory cannot be created or written to.
            AccessDenied, Unavailable: A store denies access or is out of reach, or the workers cannot be used.
            CatalogUnavailable, CatalogOutdated: The database does not answer, or has another schema.
        """
        if executor is None:
            return super().extract(
                prefix,
                directory,
                paths=paths,
                include=include,
                exclude=exclude,
                strip=strip,
                overwrite=overwrite,
            )
        from cafcat.operations.extract_on_cluster import extract_on_cluster

        output = output_of(self.session.settings, directory, overwrite=overwrite)
        files = self._chosen_files(prefix, paths=paths, include=include, exclude=exclude, strip=strip)
        return extract_on_cluster(self.session, files, output, executor, strip=strip, share_password=share_password)
