"""The files that an extract writes: those below prefixes and patterns, or those in a list of paths."""

import os
from collections.abc import Iterable, Iterator, Sequence, Set
from itertools import islice
from typing import NamedTuple, Protocol
from uuid import UUID

from cafcat.errors import CafcatError, InvalidInput, NotFound
from cafcat.model import Location
from cafcat.reading.lookup import PathListing
from cafcat.reading.output_names import OutputNames, stripped
from cafcat.reading.plan import PLANNED_FILES
from cafcat.reading.reader import FileReader
from cafcat.reading.selecting import select
from cafcat.sources.filter import PathFilter
from cafcat.support.paths import names_in_list, not_a_text

__all__ = ["FilesBelow", "ListedFiles", "TreeFiles", "TreePage", "chosen_files"]

_PRUNED = "the chunk of this version was pruned or lost; `cafcat query history PATH` lists the versions"
_ONE_NAME = "the same name below the folder, after their leading parts are removed"
_FEWER_PARTS = "remove fewer parts, or extract them into two folders"


class TreePage(NamedTuple):
    """Some files of an extract.

    Attributes:
        locations: Where they are: up to 5,000 files.
        failed: Names without a file, each with its error.
    """

    locations: Sequence[Location]
    failed: Sequence[tuple[str, CafcatError]] = ()


class TreeFiles(Protocol):
    """The files of one extract."""

    def totals(self) -> tuple[int | None, int | None]:
        """Return the number of the files and their total size in bytes; None for each that is unknown."""

    def chunks(self) -> Set[UUID]:
        """Return the UUIDs of the chunks that have the files."""

    def pages(self) -> Iterator[TreePage]:
        """Yield the files, each once, and the names without a file."""

    def check_outputs(self, strip: int) -> None:
        """Check that no two files get the same name if leading parts of their paths are removed.

        Args:
            strip: Number of parts that are removed.

        Raises:
            InvalidInput: Two files get the same name.
        """


def chosen_files(
    reader: FileReader,
    catalog: PathListing,
    prefix: str | Iterable[str],
    *,
    paths: Iterable[str] | None,
    include: Sequence[str],
    exclude: Sequence[str],
) -> TreeFiles:
    """Return the files of an extract.

    Args:
        reader: Looks up paths.
        catalog: Lists files.
        prefix: A folder, file or pattern, as typed, or several of them; "" for all files.
        paths: Paths of single files in place of prefixes; None for none.
        include: Patterns as in .gitignore, for whole paths: only files that match one; empty for all files.
        exclude: Patterns as in .gitignore, for whole paths: leave out files that match one.

    Raises:
        InvalidInput: Both prefixes and paths are given, or no path can have a name, or a name is no text.
        NotFound: There is no file for any of the prefixes.
    """
    given: object = prefix  # type checkers do not see all callers
    if isinstance(given, bytes | os.PathLike | Location):
        raise not_a_text(given)
    prefixes = list(filter(None, [prefix]) if isinstance(prefix, str) else prefix)
    chosen = PathFilter(list(names_in_list(include)), list(names_in_list(exclude))) if include or exclude else None
    if paths is None:
        return FilesBelow(catalog, prefixes or [""], chosen)
    if prefixes:
        raise InvalidInput("a list names single files, and cannot be combined with folders")
    return ListedFiles(reader, names_in_list(paths), chosen)


class FilesBelow:
    """The files below prefixes and patterns, in the order of paths. Memory does not depend on their number."""

    def __init__(self, catalog: PathListing, prefixes: Sequence[str], filter: PathFilter | None) -> None:
        """Find the prefixes and patterns in the catalog.

        Raises:
            NotFound: There is no file for any of them.
            InvalidInput: No path can have one of the names.
        """
        self._catalog = catalog
        self._filter = filter
        self._selection = select(catalog, prefixes)
        if len(self._selection.missing) == len(prefixes):
            raise self._errors()[0][1]

    def totals(self) -> tuple[int | None, int | None]:
        """Return the number of the files and their total size; None for each if files are filtered."""
        return (None, None) if self._filter is not None else self._catalog.totals_in(self._selection.ranges)

    def chunks(self) -> Set[UUID]:
        """Return the UUIDs of the chunks that have the files. The files are only listed if they are filtered."""
        if self._filter is not None:
            return _chunks_of(self.pages())
        return self._catalog.chunks_in(self._selection.ranges)

    def pages(self) -> Iterator[TreePage]:
        """Yield the missing prefixes, then the files, then the files whose version was pruned."""
        missing = self._errors()
        if missing:
            yield TreePage([], missing)
        found = (location for page in self._found() for location in page)
        while page := list(islice(found, PLANNED_FILES)):
            yield TreePage(page)
        for paths in self._catalog.pruned_in(self._selection.ranges):
            yield TreePage([], [(path, NotFound(_PRUNED, path=path)) for path in paths if self._includes(path)])

    def _includes(self, path: str) -> bool:
        return self._filter is None or self._filter.includes(path)

    def _errors(self) -> list[tuple[str, CafcatError]]:
        return self._selection.errors(self._catalog.no_such_prefix)

    def _found(self) -> Iterator[Sequence[Location]]:
        for page in self._catalog.pages_in(self._selection.ranges, page_rows=PLANNED_FILES):
            yield page if self._filter is None else [one for one in page if self._includes(one.path)]

    def check_outputs(self, strip: int) -> None:
        """Check that no two files get the same name. The paths are only read if they can get the same name."""
        if self._selection.common.count("/") >= strip:
            return  # the removed parts are the same for all files
        with OutputNames(_ONE_NAME, _FEWER_PARTS) as names:
            for page in self._catalog.paths_in(self._selection.ranges):
                for path in page:
                    if self._includes(path):
                        names.add(path, stripped(path, strip))
            names.check()


class ListedFiles:
    """The files with the paths of a list, sorted by path. A path that is listed twice counts once."""

    def __init__(self, reader: FileReader, paths: Iterable[str], filter: PathFilter | None) -> None:
        """Read the list. If it is long, it is sorted in a temporary file."""
        self._reader = reader
        self._names = OutputNames(_ONE_NAME, _FEWER_PARTS)
        self._impossible: list[str] = []
        for path in paths:
            if (filter is None or filter.includes(path)) and not self._names.add(path, path):
                self._impossible.append(path)

    def totals(self) -> tuple[int | None, int | None]:
        """Return (None, None): the files are looked up later."""
        return None, None

    def chunks(self) -> Set[UUID]:
        """Return the UUIDs of the chunks that have the files. All files are looked up."""
        return _chunks_of(self.pages())

    def pages(self) -> Iterator[TreePage]:
        """Yield the files, and the paths that the catalog does not have."""
        names = iter(self._names)
        paths = self._impossible
        while paths or (paths := list(islice(names, PLANNED_FILES))):
            found = self._reader.locate_many(paths)
            locations = [one for one in found.values() if not isinstance(one, CafcatError)]
            yield TreePage(locations, [(path, one) for path, one in found.items() if isinstance(one, CafcatError)])
            paths = []

    def check_outputs(self, strip: int) -> None:
        """Check that no two files get the same name."""
        with OutputNames(_ONE_NAME, _FEWER_PARTS) as names:
            for path in self._names:
                names.add(path, stripped(path, strip))
            names.check()


def _chunks_of(pages: Iterable[TreePage]) -> Set[UUID]:
    return {location.chunk for page in pages for location in page.locations}
