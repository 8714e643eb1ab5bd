"""What is below a folder of the catalog, page by page."""

from collections.abc import Iterator, Sequence

from cafcat.catalog.catalog import Catalog
from cafcat.catalog.files.lookup import PAGE_ROWS, FindFilter
from cafcat.errors import NotFound
from cafcat.model import Folder, Location
from cafcat.support.paths import file_of, folder_of

__all__ = ["Listing"]


class Listing:
    """Folders as typed, "" or "." for everything; all in path order."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def level(self, prefix: str) -> Iterator[Location | Folder]:
        """One level of a folder, or the file of that name: files, and folders once each."""
        yield from self._itself(prefix)
        after: Location | Folder | None = None
        while page := self._catalog.files.folder_page(folder_of(prefix), after=after):
            yield from page
            after = page[-1]

    def pages(
        self, prefix: str, where: FindFilter | None = None, page_rows: int = PAGE_ROWS
    ) -> Iterator[Sequence[Location]]:
        """The file of that name, then everything below the folder, that meets the conditions."""
        if itself := self._itself(prefix, where):
            yield itself
        after: str | None = None
        while page := self._catalog.files.page(folder_of(prefix), after=after, where=where, limit=page_rows):
            yield page
            if len(page) < page_rows:
                return
            after = page[-1].path

    def totals(self, prefix: str) -> tuple[int, int]:
        """Number and bytes of what `pages` gives. Raises NotFound if there is nothing of that name."""
        itself = self._itself(prefix)
        files, size_bytes = self._catalog.files.totals(folder_of(prefix))
        if not itself and not files and folder_of(prefix):
            raise NotFound("the catalog has no such file or folder", path=prefix)
        return files + len(itself), size_bytes + sum(place.size_bytes for place in itself)

    def _itself(self, prefix: str, where: FindFilter | None = None) -> Sequence[Location]:
        """What has a slash at its end is a folder, and nothing else."""
        path = file_of(prefix)
        return [] if path is None else self._catalog.files.exact(path, where)
