"""The folders of a catalog, as a mount lists them: page by page, each page cached until the catalog changes."""

import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from threading import Lock
from typing import Any, Final, Protocol

from cafcat.model import Location
from cafcat.mount.pages import NAME_BYTES, Item, Listing, Page, Rows, is_shown, levels_of, range_after
from cafcat.mount.reading_ahead import KnownEnds
from cafcat.support.paths import is_text

__all__ = ["NAME_BYTES", "FolderCatalog", "Folders", "Item"]

_PAGE_ROWS: Final = 1000
_FEW_ENTRIES: Final = 4
"""A page of a folder is listed anew, without the files of its subfolders, if it has less than one entry for this
number of rows."""
_CACHED_ITEMS: Final = 64_000
"""About the largest number of cached entries."""
_CACHED_SINGLES: Final = 1000
"""Largest number of cached entries that were looked up one by one."""
_MOST_MISSES: Final = 3
"""Number of look-ups in a page, or in a folder, for which listing it is cheaper than looking up single entries."""


class FolderCatalog(Protocol):
    """Finds files, and lists folders: the files of a catalog, or of a snapshot."""

    def state(self) -> Any:
        """Return a value that differs from an earlier one if the files may have changed since."""

    def entry(self, path: str) -> Item | None:
        """Return the folder with a path, else the file with this path, else None."""

    def folders_among(self, names: Collection[str]) -> set[str]:
        """Return those of the names that are folders."""

    def range_page(self, low: str, high: str | None, limit: int = _PAGE_ROWS) -> Sequence[Location]:
        """Return the first files in a range of paths, in path order."""

    def folder_page(self, folder: str, *, after: Item | None = None, limit: int = _PAGE_ROWS) -> Sequence[Item]:
        """Return the next entries of a folder, in path order."""


class Folders:
    """Lists the folders of a catalog, and finds their entries. Threads may share this object.

    One query returns the first thousand files below a folder. They are the entries of this folder and of folders
    below it: a program that reads a tree with many small folders needs few queries. All entries stay cached as long
    as the catalog has not changed.

    A mount cannot show every path that a catalog may have. Names longer than 255 bytes, the names "." and "..", and
    empty names (as in "a//b") are left out. If a path is both a file and a folder, only the folder is shown.
    """

    def __init__(
        self, catalog: FolderCatalog, checked_seconds: float, warn: Callable[[str], object], ends: KnownEnds
    ) -> None:
        """Create the object. This lists nothing yet.

        Args:
            catalog: Lists the folders.
            checked_seconds: How long an entry may be shown before the catalog is asked whether it has changed, in
                seconds.
            warn: Called with a message about names that cannot be shown.
            ends: Gets the files that are listed.
        """
        self._catalog = catalog
        self._checked_seconds = checked_seconds
        self._warn = warn
        self._ends = ends
        self._lock = Lock()
        self._checking = Lock()
        self._listing = Lock()
        self._state: Any = None
        self._checked_at = float("-inf")
        self._listings: dict[str, Listing] = {}
        self._pages: OrderedDict[Page, str] = OrderedDict()  # pages with cached entries, oldest first: their folder
        self._item_count = 0
        self._unlisted_misses: OrderedDict[str, int] = OrderedDict()
        self._singles: OrderedDict[str, tuple[Any, Item | None]] = OrderedDict()

    def page(self, folder: str, after: Item | None) -> Page:
        """Return the page of a folder that begins after an entry. This takes no query if the page is cached.

        Args:
            folder: A folder that ends in "/"; "" for the top.
            after: The `last` of the page before; None for the first page.
        """
        state = self._current_state()
        return self._cached(folder, after, state) or self._list(folder, after, state)

    def _cached(self, folder: str, after: Item | None, state: Any) -> Page | None:
        with self._lock:
            listing = self._listings.get(folder)
            page = None if listing is None else listing.page_after(after)
            return page if page is not None and page.items is not None and page.state == state else None

    def find(self, path: str) -> Item | None:
        """Return the file or folder with a path; None if there is none.

        An entry of a listed folder takes no query. If the catalog has changed since, the page of the entry is
        listed again at the third request for one of its entries: `ls -l` needs one query per page, even if it is
        slow.

        Args:
            path: A path without "/" at its end.
        """
        name = path[path.rfind("/") + 1 :]
        folder = path[: len(path) - len(name)]
        state = self._current_state()
        page = self._page_for(folder, path, state)
        items = None if page is None else page.items  # another thread may free them meanwhile
        if page is not None and items is not None:
            item = items.get(name)
            if item is not None or page.covers(path):
                return item
        return self._single(path, state) if is_text(path) and is_shown(name) else None

    def _current_state(self) -> Any:
        """Return the state of the catalog as it was at most `checked_seconds` ago."""
        if time.monotonic() - self._checked_at >= self._checked_seconds:
            with self._checking:
                now = time.monotonic()
                if now - self._checked_at >= self._checked_seconds:
                    self._state = self._catalog.state()
                    self._checked_at = now
        return self._state

    def _page_for(self, folder: str, path: str, state: Any) -> Page | None:
        """Return the page that has or lacks a path for certain; None if a single look-up is cheaper."""
        with self._lock:
            listing = self._listings.get(folder)
            if listing is None:
                self._count_unlisted(folder)
                return None
            page = listing.page_of(path)
            if page is None or (page.items is not None and page.state == state):
                return page
            page.misses += 1
            if page.misses < _MOST_MISSES or not page.covers(path):
                return None
        return self._list(folder, page.after, state)

    def _count_unlisted(self, folder: str) -> None:
        """Count the look-ups in a folder that was not listed. After some, an empty page makes the next one list it.

        A program that opens many files by their names then takes one query for each small folder.
        """
        misses = self._unlisted_misses.pop(folder, 0) + 1
        if misses < _MOST_MISSES:
            self._unlisted_misses[folder] = misses
            if len(self._unlisted_misses) > _CACHED_SINGLES:
                self._unlisted_misses.popitem(last=False)
        else:
            self._put(folder, Page(None, {}, None, _NEVER, misses))

    def _single(self, path: str, state: Any) -> Item | None:
        with self._lock:
            found_in, item = self._singles.get(path, (_NEVER, None))
        if found_in == state:
            return item
        item = self._catalog.entry(path)
        with self._lock:
            self._singles[path] = (state, item)
            self._singles.move_to_end(path)
            if len(self._singles) > _CACHED_SINGLES:
                self._singles.popitem(last=False)
        return item

    def _list(self, folder: str, after: Item | None, state: Any) -> Page:
        """List a page, unless another thread has listed it meanwhile, and cache it with the folders below it."""
        with self._listing:
            if (cached := self._cached(folder, after, state)) is not None:
                return cached
            levels = self._levels(folder, after)
            later_folders = self._catalog.folders_among(levels[folder].doubtful())
            pages = {
                name: Page(
                    after if name == folder else None, self._shown(name, rows, later_folders), rows.last, state
                )
                for name, rows in levels.items()
                if rows.is_end or name == folder
            }
        with self._lock:
            for name, page in reversed(pages.items()):  # that of the folder itself is freed last
                self._put(name, page)
        return pages[folder]

    def _levels(self, folder: str, after: Item | None) -> dict[str, Rows]:
        """Return the next entries of a folder, and those of the folders below it that one query returns, too."""
        rows = self._catalog.range_page(*range_after(folder, after), limit=_PAGE_ROWS)
        self._ends.add(rows)
        levels = levels_of(folder, rows, is_end=len(rows) < _PAGE_ROWS)
        if not levels[folder].is_end and len(levels[folder].entries) * _FEW_ENTRIES < _PAGE_ROWS:
            entries = list(self._catalog.folder_page(folder, after=after, limit=_PAGE_ROWS))
            levels[folder] = Rows(entries, len(entries) < _PAGE_ROWS)
        return levels

    def _shown(self, folder: str, rows: Rows, later_folders: set[str]) -> dict[str, Item]:
        shown, hidden = rows.shown(folder, later_folders)
        if hidden:
            self._warn(
                f"{len(hidden)} names of the folder {folder or '/'!r} cannot be shown, such as {hidden[0]!r}"
            )
        return shown

    def _put(self, folder: str, page: Page) -> None:
        replaced = self._listings.setdefault(folder, Listing()).put(page)
        if replaced is not None:
            self._forget(replaced)
        self._pages[page] = folder
        self._item_count += _cost(page)
        while self._item_count > _CACHED_ITEMS and len(self._pages) > 1:
            oldest, of_folder = next(iter(self._pages.items()))
            self._forget(oldest)
            if len(self._listings[of_folder].pages) == 1:
                del self._listings[of_folder]

    def _forget(self, page: Page) -> None:
        """Free the entries of a page. The page itself stays, so that a later look-up can list it again."""
        if self._pages.pop(page, None) is not None:
            self._item_count -= _cost(page)
            page.items = None


_NEVER: Final = object()
"""A state that no catalog has."""


def _cost(page: Page) -> int:
    return 1 + len(page.items or ())
