"""Look-ups and listings that a standby server answers, or the primary if the standby cannot."""

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

from cafcat.catalog.files.lookup import PAGE_ROWS, Lookup
from cafcat.catalog.standby import Standby
from cafcat.errors import CatalogOutdated, CatalogUnavailable, NotFound
from cafcat.model import ChunkFiles, Folder, Location

if TYPE_CHECKING:
    from cafcat.catalog.catalog import Catalog
    from cafcat.catalog.chunks.copies import Copies
    from cafcat.catalog.files.path_page import PathPage
    from cafcat.catalog.files.ranges import PathRange

__all__ = ["ReadingCatalog", "StandbyLookup"]

Found = TypeVar("Found")
Listed = TypeVar("Listed")


class StandbyLookup(Lookup):
    """Look-ups and listings on a standby. The primary is asked for what the standby does not find or answer.

    Each query is run on one of the servers. The pages of a listing may come from different servers, but never from
    a standby that is further behind than the settings allow.
    """

    def __init__(self, standby: Standby, primary: Lookup) -> None:
        """Create the look-ups. No query is sent yet.

        Args:
            standby: Decides which server is asked.
            primary: Look-ups on the primary.
        """
        super().__init__(standby.connection)
        self._standby = standby
        self._on_standby = Lookup(standby.connection)
        self._on_primary = primary

    def _ask(self, query: Callable[[Lookup], Found], is_complete: Callable[[Found], bool] = bool) -> Found:
        """Return the result of a query on the standby; that on the primary if the standby cannot be used.

        Args:
            query: The query.
            is_complete: Returns False for a result in which something is missing that the primary may have.
        """
        found = self._from_standby(query)
        return found[0] if found and is_complete(found[0]) else query(self._on_primary)

    def _list(self, query: Callable[[Lookup], Listed]) -> Listed:
        """Return a page of a listing as `_ask` does. An empty page counts if the primary does not answer.

        It may be the end of a listing. To a single file, in contrast, "not found" would be a wrong answer.
        """
        found = self._from_standby(query)
        if found and found[0]:
            return found[0]
        try:
            return query(self._on_primary)
        except CatalogUnavailable:
            if found:
                return found[0]
            raise

    def _from_standby(self, query: Callable[[Lookup], Found]) -> tuple[Found] | None:
        """Return the result of a query on the standby; None if the standby cannot be used, or raises NotFound."""
        if not self._standby.is_usable():
            return None
        generation = self._standby.generation
        try:
            found = query(self._on_standby)
        except NotFound:
            return None
        except (CatalogUnavailable, CatalogOutdated) as error:
            self._standby.failed(error)
            return None
        return (found,) if self._standby.generation == generation else None

    def locate(self, path: str) -> Location:
        """Return the location of a path. Raises the errors of `Lookup.locate`."""
        return self._ask(lambda files: files.locate(path))

    def locate_many(self, paths: Collection[str]) -> dict[str, Location]:
        """Return the locations, by path, of those of these paths that the catalog has."""
        distinct = len(set(paths))
        return self._ask(lambda files: files.locate_many(paths), lambda found: len(found) == distinct)

    def locate_plain(self, paths: Collection[str]) -> list[ChunkFiles]:
        """Return the files with these paths whose bytes in the chunk need no decoding, by chunk."""
        distinct = len(set(paths))
        return self._ask(
            lambda files: files.locate_plain(paths),
            lambda found: sum(len(chunk.paths) for chunk in found) == distinct,
        )

    def folders_among(self, names: Collection[str]) -> set[str]:
        """Return those of these names, without a slash at the end, below which the catalog has a file."""
        distinct = len(set(names))
        return self._ask(lambda files: files.folders_among(names), lambda found: len(found) == distinct)

    def entry(self, path: str) -> Location | Folder | None:
        """Return the folder with a path, else the file with this path, else None."""
        return self._ask(lambda files: files.entry(path), lambda found: found is not None)

    def state(self) -> tuple[Any, ...]:
        """Return a value that differs from an earlier one if a transaction has committed since.

        It also differs if look-ups have changed from one server to the other since.
        """
        self._standby.is_usable()
        return self._standby.generation, *self._ask(lambda files: files.state())

    def totals(self, prefix: str) -> tuple[int, int]:
        """Return number and total size of the files of a name. Raises NotFound as `Lookup.totals` does."""
        return self._ask(lambda files: files.totals(prefix))

    def absent(self, groups: "Sequence[Sequence[PathRange]]") -> list[int]:
        """Return the indexes of the groups of ranges in which the catalog has no file."""
        return self._ask(lambda files: files.absent(groups), lambda absent: not absent)

    def totals_in(self, ranges: "Sequence[PathRange]") -> tuple[int, int]:
        """Return number and total size of the files in disjoint ranges."""
        return self._ask(lambda files: files.totals_in(ranges))

    def chunks_in(self, ranges: "Sequence[PathRange]") -> set[UUID]:
        """Return the UUIDs of the chunks of the files in disjoint ranges."""
        return self._ask(lambda files: files.chunks_in(ranges))

    def level_page(
        self, low: str, high: str | None, *, skipped: int, delimiter: str = "/", limit: int = PAGE_ROWS
    ) -> list[Location | Folder]:
        """Return the entries of one level in a range of paths, as `Lookup.level_page` describes them."""
        return self._list(
            lambda files: files.level_page(low, high, skipped=skipped, delimiter=delimiter, limit=limit)
        )

    def chunk_page(self, chunk: UUID, *, after: str | None = None, limit: int = PAGE_ROWS) -> list[Location]:
        """Return live locations of a chunk, in path order."""
        return self._list(lambda files: files.chunk_page(chunk, after=after, limit=limit))

    def _paths(self, parameters: dict[str, Any], limit: int) -> "PathPage":
        return self._list(lambda files: files._paths(parameters, limit))

    def _met(self, statement: str, parameters: dict[str, Any], limit: int) -> list[tuple[Any, ...]]:
        return self._list(lambda files: files._met(statement, parameters, limit))


class ReadingCatalog:
    """The part of a catalog with which files are read, on a standby where possible: a LocationCatalog.

    Attributes:
        files: Finds and lists files.
        is_snapshot: False: see LocationCatalog.
    """

    is_snapshot = False

    def __init__(self, catalog: "Catalog", standby: Standby) -> None:
        self.files: Lookup = StandbyLookup(standby, catalog.files)
        self._catalog = catalog

    @property
    def copies(self) -> "Copies":
        """Find the objects that have the bytes of a chunk: on the primary, as they are now."""
        return self._catalog.copies
