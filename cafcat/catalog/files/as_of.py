"""Finds and lists files as the catalog had them at an earlier time."""

from collections.abc import Collection, Generator, Iterator, Sequence
from datetime import datetime
from uuid import UUID

from cafcat.catalog.catalog import Catalog
from cafcat.catalog.files.lookup import PAGE_ROWS
from cafcat.catalog.files.ranges import PathRange, prefix_range, scope_ranges
from cafcat.catalog.files.scope import FindFilter, PathScope, successor
from cafcat.errors import NotFound, shown_path
from cafcat.model import NO_SUCH_FILE, ChunkFiles, Folder, Location
from cafcat.progress import Progress
from cafcat.support.paging import FIRST_ROWS, more_rows, pages_of
from cafcat.support.paths import file_of, folder_of

__all__ = ["CatalogAsOf"]


class CatalogAsOf:
    """Look-ups and listings of the files that paths had at an earlier time.

    A version whose chunk was pruned is not found.

    Attributes:
        copies: The queries on copies of chunks.
        is_snapshot: False: see LocationCatalog.
        no_such_file: Message of the error for a path without a version of that time.
        no_such_prefix: Message of the error for a name that was neither a file nor a folder.
    """

    is_snapshot = False

    def __init__(self, catalog: Catalog, moment: datetime, warnings: Progress) -> None:
        """Create the look-ups. No query is sent yet.

        Args:
            catalog: The catalog.
            moment: The time, with a time zone.
            warnings: Receives a warning, once, if the version of a file is uncertain, because a rebuild found it.
        """
        self._catalog = catalog
        self._moment = moment
        self._warnings = warnings
        self._has_warned = False
        self.copies = catalog.copies
        shown = moment.isoformat(timespec="seconds")
        self.no_such_file = f"the catalog has no version of the file from {shown}, or has pruned the version"
        self.no_such_prefix = (
            f"the catalog has no file or folder of this name from {shown}, or its versions are gone"
        )

    @property
    def files(self) -> "CatalogAsOf":
        """This object: a LocationCatalog has its look-ups there."""
        return self

    def locate(self, path: str) -> Location:
        """Return the location that a path had. Costs one query.

        Raises:
            NotFound: The path had no file at that time, or the version was pruned.
            CatalogOutdated, CatalogUnavailable, AccessDenied, InvalidInput: As `Lookup.locate` raises them.
        """
        found = self.locate_many([path])
        if path not in found:
            raise NotFound(NO_SUCH_FILE, path=path)
        return found[path]

    def locate_many(self, paths: Collection[str]) -> dict[str, Location]:
        """Return the locations, by path, of those of these paths that had a file at that time. Costs one query.

        Args:
            paths: Up to 5,000 paths.

        Raises:
            CatalogOutdated, CatalogUnavailable, AccessDenied, InvalidInput: As `Lookup.locate_many` raises them.
        """
        found = self._catalog.versions.as_of(paths, self._moment)
        uncertain = next((location.path for location, is_uncertain in found if is_uncertain), None)
        if uncertain is not None and not self._has_warned:
            self._has_warned = True
            self._warnings.warn(
                f"{shown_path(uncertain)} may be an earlier version than that of the time: the catalog was "
                "rebuilt without some journal records, such as those of pruned chunks"
            )
        return {location.path: location for location, _ in found}

    def locate_plain(self, paths: Collection[str]) -> list[ChunkFiles]:  # noqa: ARG002 - as PathLookup has it
        """Return no files: the caller finds them with `locate_many`."""
        return []

    def folders_among(self, names: Collection[str]) -> set[str]:
        """Return those of these names that are folders of the catalog now."""
        return self._catalog.files.folders_among(names)

    def absent(self, groups: Sequence[Sequence[PathRange]]) -> list[int]:
        """Return the indexes of the groups of ranges in which the catalog had no file.

        Each range is read up to its first file.
        """
        return [number for number, ranges in enumerate(groups) if not any(self.pages_in(ranges))]

    def pages_in(self, ranges: Sequence[PathRange], page_rows: int = PAGE_ROWS) -> Iterator[Sequence[Location]]:
        """Yield the files in ranges of paths, one range after the other, in lists and path order.

        Args:
            ranges: The ranges.
            page_rows: Number of paths, whatever the time of their files, that a query looks at.
        """
        for one in ranges:
            for paths in pages_of(lambda last, one=one: self._paths(one, last, page_rows), page_rows):  # type: ignore[misc]
                found = self.locate_many(paths)
                if found:
                    yield [found[path] for path in paths if path in found]

    def pages(self, prefix: str, where: FindFilter | None = None) -> Iterator[Sequence[Location]]:
        """Yield the file with a name, and then all files below the folder with that name, in lists and path order.

        Args:
            prefix: The name, as typed.
            where: Conditions that the files have to meet; None for none.
        """
        for page in self.pages_in(_ranges_of(prefix, where and where.name_regex)):
            if met := [location for location in page if where is None or where.is_met_by(location)]:
                yield met

    def path_pages(self, prefix: str, where: FindFilter | None = None) -> Generator[Sequence[str], None, None]:
        """Yield the paths of the files that `pages` yields."""
        for page in self.pages(prefix, where):
            yield [location.path for location in page]

    def level(self, prefix: str) -> Iterator[Location | Folder]:
        """Yield the file with a name, if there was one, and then the files and folders directly in this folder.

        Of a folder, all paths up to its first file of that time are read, and the rest of their page. The first
        page after a folder is small, because the next name may be a folder, too.

        Args:
            prefix: The name, as typed.
        """
        if (path := file_of(prefix)) is not None:
            yield from self.locate_many([path]).values()
        folder = folder_of(prefix)
        below = prefix_range(folder)
        low: str | None = below.low
        rows = FIRST_ROWS
        while low is not None:
            paths = self._catalog.versions.paths(below._replace(low=low), rows)
            entry: Location | Folder | None = None
            for entry in self._entries(folder, paths):
                yield entry
            low = successor(paths[-1]) if len(paths) == rows else None
            rows = more_rows(rows, PAGE_ROWS)
            if low is not None and isinstance(entry, Folder) and low.startswith(entry.path):
                low = entry.path[:-1] + "0"  # the first path after the folder
                rows = FIRST_ROWS

    def _entries(self, folder: str, paths: Sequence[str]) -> Iterator[Location | Folder]:
        """Yield the files directly in a folder, and each of its folders once, of those paths that had a file."""
        found = self.locate_many(paths)
        below: str | None = None
        for path in paths:
            if path in found and (below is None or not path.startswith(below)):
                name, slash, _ = path[len(folder) :].partition("/")
                below = f"{folder}{name}/" if slash else None
                yield found[path] if below is None else Folder(below)

    def _paths(self, one: PathRange, last: str | None, limit: int) -> list[str]:
        low = one.low if last is None else successor(last)
        return self._catalog.versions.paths(one._replace(low=low), limit)

    def paths_in(self, ranges: Sequence[PathRange]) -> Iterator[Sequence[str]]:
        """Yield the paths of the files that `pages_in` yields."""
        for page in self.pages_in(ranges):
            yield [location.path for location in page]

    def pruned_in(self, ranges: Sequence[PathRange]) -> Iterator[Sequence[str]]:
        """Yield the paths that had a file at that time whose version was pruned since, in path order.

        Args:
            ranges: The ranges.
        """
        for one in ranges:
            yield from pages_of(lambda last, one=one: self._pruned(one, last), PAGE_ROWS)  # type: ignore[misc]

    def _pruned(self, one: PathRange, last: str | None) -> list[str]:
        low = one.low if last is None else successor(last)
        return self._catalog.versions.pruned(one._replace(low=low), self._moment, PAGE_ROWS)

    def totals_in(self, ranges: Sequence[PathRange]) -> tuple[None, None]:  # noqa: ARG002 - as Lookup has it
        """Return (None, None): the number of the files and their total size are unknown before they are listed."""
        return None, None

    def chunks_in(self, ranges: Sequence[PathRange]) -> set[UUID]:
        """Return the UUIDs of the chunks of the files that `pages_in` yields. All of them are listed."""
        return {location.chunk for page in self.pages_in(ranges) for location in page}

    def pruned(self, prefix: str, regex: str | None = None) -> Iterator[str]:
        """Yield the paths that had a file at that time whose version was pruned since, in path order.

        Args:
            prefix: The name of a file or folder, as typed.
            regex: Regular expression of PostgreSQL that the paths match; None for all paths.
        """
        for page in self.pruned_in(_ranges_of(prefix, regex)):
            yield from page


def _ranges_of(prefix: str, regex: str | None) -> list[PathRange]:
    """Return the ranges of the files below a name, as typed, whose paths match a regular expression."""
    return [one._replace(regex=regex) for one in scope_ranges(PathScope(folder_of(prefix), file_of(prefix)))]
