"""List the files below a folder of the catalog, page by page."""

from collections.abc import Iterator, Sequence

from cafcat.catalog.catalog import Catalog
from cafcat.catalog.files.lookup import PAGE_ROWS, FindFilter
from cafcat.errors import NotFound
from cafcat.model import Folder, Location
from cafcat.support.paths import file_of, folder_of

__all__ = ["Listing"]


class Listing:
    """Lists files in path order. Prefixes are as typed: "" and "." are everything, and a name with a slash at its
    end is a folder."""

    def __init__(self, catalog: Catalog) -> None:
        """Query nothing yet."""
        self._catalog = catalog

    def level(self, prefix: str) -> Iterator[Location | Folder]:
        """Yield the files and folders directly in a folder, after the file of that name if there is one."""
        yield from self._file(prefix)
        after: Location | Folder | None = None
        while page := self._catalog.files.folder_page(folder_of(prefix), after=after):
            yield from page
            after = page[-1]

    def pages(
        self, prefix: str, where: FindFilter | None = None, page_rows: int = PAGE_ROWS
    ) -> Iterator[Sequence[Location]]:
        """Yield pages of the file of a name and of all files below the folder of that name.

        Args:
            prefix: The name.
            where: Conditions that the files have to meet.
            page_rows: Most files of a page.
        """
        if file := self._file(prefix, where):
            yield file
        after: str | None = None
        while page := self._catalog.files.page(folder_of(prefix), after=after, where=where, limit=page_rows):
            yield page
            if len(page) < page_rows:
                return
            after = page[-1].path

    def totals(self, prefix: str) -> tuple[int, int]:
        """Return the number and the summed size in bytes of the files in `pages`. Raises NotFound if no file or
        folder has the name."""
        file = self._file(prefix)
        files, size_bytes = self._catalog.files.totals(folder_of(prefix))
        if not file and not files and folder_of(prefix):
            raise NotFound("the catalog has no such file or folder", path=prefix)
        return files + len(file), size_bytes + sum(location.size_bytes for location in file)

    def _file(self, prefix: str, where: FindFilter | None = None) -> Sequence[Location]:
        path = file_of(prefix)
        return [] if path is None else self._catalog.files.exact(path, where)
