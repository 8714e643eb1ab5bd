"""Reads files as the catalog had them at an earlier time."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from functools import cached_property

from cafcat.catalog.files.as_of import CatalogAsOf
from cafcat.errors import CafcatError, NotFound
from cafcat.files_by_name import FilesByName
from cafcat.model import NO_SUCH_FILE, Location
from cafcat.progress import Progress
from cafcat.reading.globs import regex_of_glob
from cafcat.reading.reader import FileReader
from cafcat.reading.replicas import Replicas
from cafcat.session import Session
from cafcat.stores.base import Store

__all__ = ["FilesAsOf"]


class FilesAsOf(FilesByName):
    """Reads the versions that files had at an earlier time: `Repository.as_of` returns an object of this class.

    The methods take the arguments and raise the errors of the methods of `Repository` with the same names. They
    raise NotFound for a path that had no file at that time, or whose version was pruned since. Listings leave such
    paths out.
    """

    def __init__(self, session: Session, warnings: Progress, moment: datetime) -> None:
        """Create the object. No query is sent yet.

        Args:
            session: The session of the repository.
            warnings: Receives warnings that copies are read, or that the version of a file is uncertain.
            moment: The time, with a time zone.
        """
        self.session = session
        self._warnings = warnings
        self._moment = moment

    @cached_property
    def _files(self) -> CatalogAsOf:
        return CatalogAsOf(self.session.catalog, self._moment, self._warnings)

    @cached_property
    def _reader(self) -> FileReader:
        return _ReaderAsOf(self._files, self.session.stores, self._warnings)

    def pruned(self, prefix: str = "", name: str | None = None) -> Iterator[str]:
        """Yield the paths of the files that `list` leaves out because `prune` deleted the chunk of their version.

        Args:
            prefix: A folder of the catalog, or a file; "" for all files.
            name: Shell pattern for the last part of the path, without a slash; None for all files.
        """
        return self._files.pruned(prefix, None if name is None else regex_of_glob(name))

    def no_such_prefix(self, prefix: str) -> NotFound:
        """Return the error for a name that was neither a file nor a folder at that time."""
        return NotFound(
            self._files.no_such_prefix, path=prefix, hint="`cafcat runs` lists the times of the ingests"
        )


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
