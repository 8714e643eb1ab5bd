"""The folders of a catalog, as a mount lists them: page by page, each page cached for a short time."""

import time
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Final, Protocol

from cafcat.model import Folder, Location
from cafcat.support.paths import is_text

__all__ = ["NAME_BYTES", "FolderCatalog", "Folders", "Item", "Page"]

Item = Location | Folder

NAME_BYTES: Final = 255
"""Longest name of a file or folder, in bytes of UTF-8, as in the file systems of Linux."""
_PAGE_ROWS: Final = 1000
_CACHED_ITEMS: Final = 64_000
"""About the largest number of cached entries: some 40 MB."""
_CACHED_SINGLES: Final = 1000
"""Largest number of cached entries that were looked up one by one."""
_MOST_MISSES: Final = 3
"""Number of look-ups in a page, or in a folder, for which listing it is cheaper than looking up single entries."""


class FolderCatalog(Protocol):
    """Finds files, and lists folders: the files of a catalog, or of a snapshot."""

    def locate_many(self, paths: Collection[str]) -> dict[str, Location]:
        """Return the location of each of these paths that exists."""

    def folders_among(self, names: Collection[str]) -> set[str]:
        """Return those of the names that are folders."""

    def folder_page(self, folder: str, *, after: Item | None = None, limit: int = _PAGE_ROWS) -> Sequence[Item]:
        """Return the next entries of a folder, in path order."""


@dataclass(slots=True, eq=False)
class Page:
    """Entries of a folder that one query returned.

    Attributes:
        after: The entry before this page; None for the first page of a folder.
        items: The entries by name, in path order; None if they are not cached any more.
        last: The last entry, after which the next page begins; None if this is the last page of the folder.
        listed_at: When the query began, in seconds of the monotonic clock.
        misses: Number of look-ups in this page since it became too old.
    """

    after: Item | None
    items: Mapping[str, Item] | None
    last: Item | None
    listed_at: float
    misses: int = 0

    def covers(self, path: str) -> bool:
        """Return True if the page would have the file or folder with this path, which is after its start."""
        return self.last is None or f"{path}/" <= self.last.path


@dataclass(slots=True)
class _Listing:
    """The pages of a folder that were listed, in path order, and the path after which each begins."""

    starts: list[str] = field(default_factory=list)
    pages: list[Page] = field(default_factory=list)

    def put(self, page: Page) -> Page | None:
        """Add a page, and return the page with the same start that it replaces."""
        start = _start_of(page.after)
        index = bisect_left(self.starts, start)
        if index < len(self.starts) and self.starts[index] == start:
            replaced, self.pages[index] = self.pages[index], page
            return replaced
        self.starts.insert(index, start)
        self.pages.insert(index, page)
        return None

    def page_after(self, after: Item | None) -> Page | None:
        """Return the page that begins after an entry; None if it was not listed."""
        start = _start_of(after)
        index = bisect_left(self.starts, start)
        return self.pages[index] if index < len(self.starts) and self.starts[index] == start else None

    def page_of(self, path: str) -> Page | None:
        """Return the page in whose range a path is; None if no page begins before it."""
        index = bisect_left(self.starts, path)
        return self.pages[index - 1] if index else None


class Folders:
    """Lists the folders of a catalog, and finds their entries. Threads may share this object.

    A mount cannot show every path that a catalog may have. Names longer than 255 bytes, the names "." and "..", and
    empty names (as in "a//b") are left out. If a path is both a file and a folder, only the folder is shown.
    """

    def __init__(self, catalog: FolderCatalog, cached_seconds: float, warn: Callable[[str], object]) -> None:
        """Create the object. Nothing is listed yet.

        Args:
            catalog: Lists the folders.
            cached_seconds: How long an entry may be shown after it was listed, in seconds.
            warn: Called with a message about names that cannot be shown.
        """
        self._catalog = catalog
        self._cached_seconds = cached_seconds
        self._warn = warn
        self._lock = Lock()
        self._listings: dict[str, _Listing] = {}
        self._pages: OrderedDict[Page, str] = OrderedDict()  # pages with cached entries, oldest first: their folder
        self._item_count = 0
        self._unlisted_misses: OrderedDict[str, int] = OrderedDict()
        self._singles: OrderedDict[str, tuple[float, Item | None]] = OrderedDict()

    def page(self, folder: str, after: Item | None) -> Page:
        """Return the page of a folder that begins after an entry. This takes no query if the page is cached.

        Args:
            folder: A folder that ends in "/"; "" for the top.
            after: The `last` of the page before; None for the first page.
        """
        with self._lock:
            listing = self._listings.get(folder)
            page = None if listing is None else listing.page_after(after)
            if page is not None and page.items is not None and self._is_fresh(page):
                return page
        return self._list(folder, after)

    def find(self, path: str) -> Item | None:
        """Return the file or folder with a path; None if there is none.

        An entry of a listed folder takes no query. If the listing is too old, the page of the entry is listed again
        at the third request for one of its entries: `ls -l` needs one query per page, even if it is slow.

        Args:
            path: A path without "/" at its end.
        """
        name = path[path.rfind("/") + 1 :]
        folder = path[: len(path) - len(name)]
        if not is_text(path) or not _is_shown(name):
            return None
        page = self._page_for(folder, path)
        items = None if page is None else page.items  # another thread may free them meanwhile
        if page is not None and items is not None:
            item = items.get(name)
            if item is not None or page.covers(path):
                return item
        return self._single(path)

    def _page_for(self, folder: str, path: str) -> Page | None:
        """Return the page that has or lacks a path for certain; None if a single look-up is cheaper."""
        with self._lock:
            listing = self._listings.get(folder)
            if listing is None:
                self._count_unlisted(folder)
                return None
            page = listing.page_of(path)
            if page is None or (page.items is not None and self._is_fresh(page)):
                return page
            page.misses += 1
            if page.misses < _MOST_MISSES or not page.covers(path):
                return None
        return self._list(folder, page.after)

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
            self._put(folder, Page(None, {}, None, float("-inf"), misses))

    def _is_fresh(self, page: Page) -> bool:
        return time.monotonic() - page.listed_at < self._cached_seconds

    def _single(self, path: str) -> Item | None:
        now = time.monotonic()
        with self._lock:
            listed_at, item = self._singles.get(path, (float("-inf"), None))
        if now - listed_at < self._cached_seconds:
            return item
        if self._catalog.folders_among([path]):
            item = Folder(f"{path}/")
        else:
            item = self._catalog.locate_many([path]).get(path)
        with self._lock:
            self._singles[path] = (now, item)
            self._singles.move_to_end(path)
            if len(self._singles) > _CACHED_SINGLES:
                self._singles.popitem(last=False)
        return item

    def _list(self, folder: str, after: Item | None) -> Page:
        listed_at = time.monotonic()
        rows = self._catalog.folder_page(folder, after=after, limit=_PAGE_ROWS)
        last = rows[-1] if len(rows) == _PAGE_ROWS else None
        page = Page(after, self._shown(folder, rows, last), last, listed_at)
        with self._lock:
            self._put(folder, page)
        return page

    def _shown(self, folder: str, rows: Sequence[Item], last: Item | None) -> dict[str, Item]:
        folders = {row.path[:-1] for row in rows if isinstance(row, Folder)}
        if last is not None:
            # The folder "a/" may be on a later page than the file "a", because "a!" is between them.
            folders |= self._catalog.folders_among([row.path for row in rows if f"{row.path}/" > last.path])
        shown: dict[str, Item] = {}
        hidden = []
        for row in rows:
            is_folder = isinstance(row, Folder)
            name = row.path[len(folder) : -1 if is_folder else None]
            if _is_shown(name) and (is_folder or row.path not in folders):
                shown[name] = row
            else:
                hidden.append(row.path)
        if hidden:
            self._warn(
                f"{len(hidden)} names of the folder {folder or '/'!r} cannot be shown, such as {hidden[0]!r}"
            )
        return shown

    def _put(self, folder: str, page: Page) -> None:
        replaced = self._listings.setdefault(folder, _Listing()).put(page)
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


def _start_of(after: Item | None) -> str:
    return "" if after is None else after.path


def _cost(page: Page) -> int:
    return 1 + len(page.items or ())


def _is_shown(name: str) -> bool:
    return name not in ("", ".", "..") and len(name.encode()) <= NAME_BYTES
