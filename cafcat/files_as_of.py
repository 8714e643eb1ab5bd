"""Reads files as the catalog had them at an earlier time."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

from cafcat.catalog.files.as_of import CatalogAsOf
from cafcat.errors import CafcatError, NotFound
from cafcat.model import NO_SUCH_FILE, ExtractReport, Location
from cafcat.progress import Progress
from cafcat.reading.batch import Batch
from cafcat.reading.outputs import write_single
from cafcat.reading.plan import ReadPlan
from cafcat.reading.reader import FileReader
from cafcat.reading.replicas import Replicas
from cafcat.reading.request import ReadRequest
from cafcat.reading.selecting import expanded
from cafcat.reading.tree_files import chosen_files
from cafcat.session import Session, output_of
from cafcat.stores.base import Store
from cafcat.support.paths import names_in_list

if TYPE_CHECKING:
    import io

__all__ = ["FilesAsOf"]


class FilesAsOf:
    """Reads the versions that files had at an earlier time: `Repository.as_of` returns an object of this class.

    All methods take paths, and raise the errors of the methods of `Repository` with the same names. They raise
    NotFound for a path that had no file at that time, or whose version was pruned since.
    """

    def __init__(self, session: Session, warnings: Progress, moment: datetime) -> None:
        """Create the object. No query is sent yet.

        Args:
            session: The session of the repository.
            warnings: Receives warnings that copies are read, or that the version of a file is uncertain.
            moment: The time, with a time zone.
        """
        self._session = session
        self._catalog = CatalogAsOf(session.catalog, moment, warnings)
        self._reader = _ReaderAsOf(self._catalog, session.stores, warnings)

    def expand(self, names: Iterable[str]) -> Iterator[str]:
        """Yield the paths that names and shell patterns meant at that time."""
        return expanded(self._catalog, names_in_list(names))

    def locate(self, path: str) -> Location:
        """Return where the version of a file is."""
        return self._reader.locate(path)

    def read(self, path: str, start: int = 0, end: int | None = None) -> bytes:
        """Return the bytes of the version of a file, or a range of them."""
        return self._reader.read_path(path, start, end)

    def stream(self, path: str, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        """Return an iterator over the bytes of the version of a file, or a range of them."""
        return self._reader.stream(ReadRequest.of(path, self._reader.locate(path), start, end))

    def open(self, path: str) -> "io.BufferedReader":
        """Open the version of a file for reading."""
        from cafcat.reading.packed_file import open_packed

        return open_packed(self._reader, path)

    def get(
        self,
        path: str,
        output: str | os.PathLike[str],
        start: int = 0,
        end: int | None = None,
        *,
        overwrite: bool = False,
    ) -> Location:
        """Write the version of a file, or a range of its bytes, to a file on disk."""
        request = ReadRequest.of(path, self._reader.locate(path), start, end)
        target = output_of(self._session.settings, output, overwrite=overwrite)
        write = partial(write_single, target, request.modified_ns)
        self._reader.save(request, self._reader.stream(request), write, can_restart=not target.is_special)
        return request.location

    def read_many(
        self, paths: Iterable[str], start: int = 0, end: int | None = None
    ) -> Iterator[tuple[str, bytes | CafcatError]]:
        """Yield the path and the bytes of the version of each file, in the order of archives and offsets."""
        return Batch(self._reader, start, end).read(names_in_list(paths))

    def stream_many(
        self, paths: Iterable[str], start: int = 0, end: int | None = None
    ) -> Iterator[tuple[str, Iterator[bytes] | CafcatError]]:
        """Yield each path with an iterator over the bytes of its version, in the order of the paths."""
        return Batch(self._reader, start, end).stream(names_in_list(paths))

    def get_into(
        self,
        paths: Iterable[str],
        directory: str | os.PathLike[str],
        start: int = 0,
        end: int | None = None,
        *,
        parents: bool = False,
        overwrite: bool = False,
    ) -> Iterator[tuple[str, Location | CafcatError]]:
        """Write the versions of many files into a folder."""
        output = output_of(self._session.settings, directory, overwrite=overwrite)
        return Batch(self._reader, start, end).get_into(names_in_list(paths), output, parents=parents)

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
    ) -> ExtractReport:
        """Write the versions of files into a directory, with their modification times."""
        from cafcat.reading.extract import extract_tree

        output = output_of(self._session.settings, directory, overwrite=overwrite)
        files = chosen_files(self._reader, self._catalog, prefix, paths=paths, include=include, exclude=exclude)
        return extract_tree(self._reader, files, output, strip=strip, progress=self._session.progress)

    def plan_extract(
        self,
        prefix: str | Iterable[str],
        *,
        paths: Iterable[str] | None = None,
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
    ) -> ReadPlan:
        """Return the requests to stores that `extract` needs, without reading any file."""
        from cafcat.reading.extract import plan_tree

        return plan_tree(
            self._reader,
            chosen_files(self._reader, self._catalog, prefix, paths=paths, include=include, exclude=exclude),
        )

    def plan(
        self, paths: Iterable[str], start: int = 0, end: int | None = None, *, in_order: bool = False
    ) -> ReadPlan:
        """Return the requests to stores that reading the versions needs, without reading any file."""
        return Batch(self._reader, start, end).plan(names_in_list(paths), in_order=in_order)


class _ReplicasAsOf(Replicas):
    """The objects of chunks that may have no live file: `repair` refuses such a chunk."""

    def remedy(self, location: Location, *, is_missing: bool = False) -> str:  # noqa: ARG002 - as Replicas has it
        return "`cafcat repair` mends the files of now only; `cafcat query history PATH` lists the versions"


class _ReaderAsOf(FileReader):
    """A FileReader whose errors name the time."""

    def __init__(self, catalog: CatalogAsOf, stores: Mapping[str, Store], warnings: Progress) -> None:
        super().__init__(catalog, stores, warnings)
        self._replicas = _ReplicasAsOf(catalog, stores, warnings)
        self._message = catalog.no_such_file

    def locate(self, path: str) -> Location:
        try:
            return super().locate(path)
        except NotFound as error:
            raise self._explained(error) from None

    def locate_many(self, paths: Sequence[str]) -> dict[str, Location | CafcatError]:
        found = super().locate_many(paths)
        return {path: self._explained(each) if isinstance(each, NotFound) else each for path, each in found.items()}

    def _explained(self, error: NotFound) -> NotFound:
        if error.message == NO_SUCH_FILE:
            error.message, error.hint = self._message, "`cafcat query history PATH` lists the versions"
        return error
