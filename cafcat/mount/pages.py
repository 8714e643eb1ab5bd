"""The entries of folders in pages, as a mount caches them, and their order."""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from cafcat.errors import Corrupt
from cafcat.model import Folder, Location

__all__ = ["NAME_BYTES", "Item", "Listing", "Page", "Rows", "is_shown", "levels_of", "range_after"]

Item = Location | Folder

NAME_BYTES: Final = 255
"""Longest name of a file or folder, in bytes of UTF-8, as in the file systems of Linux."""


@dataclass(slots=True, eq=False)
class Page:
    """Entries of a folder that one query returned.

    Attributes:
        after: The entry before this page; None for the first page of a folder.
        items: The entries by name, in path order; None if they are not cached any more.
        last: The last entry, after which the next page begins; None if this is the last page of the folder.
        state: State of the catalog before the query.
        misses: Number of look-ups in this page since it became too old.
    """

    after: Item | None
    items: Mapping[str, Item] | None
    last: Item | None
    state: Any
    misses: int = 0

    def covers(self, path: str) -> bool:
        """Return True if the page would have the file or folder with this path, which is after its start."""
        return self.last is None or f"{path}/" <= self.last.path


@dataclass(slots=True)
class Listing:
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


@dataclass(slots=True)
class Rows:
    """Entries of one folder that a query found, in path order.

    Attributes:
        entries: The files, and each folder once.
        is_end: True if the folder has no entries after these.
    """

    entries: list[Item] = field(default_factory=list)
    is_end: bool = True

    @property
    def last(self) -> Item | None:
        """The entry after which the next page begins; None if these are the last entries of the folder."""
        return None if self.is_end else self.entries[-1]

    def doubtful(self) -> list[str]:
        """Return the paths of files that may be folders, too, whose rows come after these.

        The folder "a/" may come later than the file "a", because "a!" is between them.
        """
        last = self.last
        if last is None:
            return []
        return [row.path for row in self.entries if isinstance(row, Location) and f"{row.path}/" > last.path]

    def shown(self, folder: str, later_folders: set[str]) -> tuple[dict[str, Item], list[str]]:
        """Return the entries by name, and the paths that no folder can have.

        Args:
            folder: The folder, which ends in "/"; "" for the top.
            later_folders: Those of the doubtful paths that are folders.
        """
        folders = {row.path[:-1] for row in self.entries if isinstance(row, Folder)} | later_folders
        shown: dict[str, Item] = {}
        hidden = []
        for row in self.entries:
            is_folder = isinstance(row, Folder)
            name = row.path[len(folder) : -1 if is_folder else None]
            if is_shown(name) and (is_folder or row.path not in folders):
                shown[name] = row
            else:
                hidden.append(row.path)
        return shown, hidden


def levels_of(folder: str, rows: Sequence[Location], *, is_end: bool) -> dict[str, Rows]:
    """Return the entries of a folder, and of all folders below it, from the rows of the files below it.

    Args:
        folder: A folder that ends in "/"; "" for the top.
        rows: The first files below the folder, or the first ones after an entry of it, in path order.
        is_end: True if there are no more files below the folder.

    Raises:
        Corrupt: A damaged snapshot returned the file of another folder.
    """
    levels = {folder: Rows()}
    parent = folder
    for row in rows:
        path = row.path
        name_at = path.rfind("/") + 1
        if path[:name_at] != parent:
            if not path.startswith(folder):
                raise Corrupt("the index of the snapshot is damaged: a folder has a file of another one", path=path)
            parent = path[:name_at]
            _add_folders(levels, folder, parent)
        levels[parent].entries.append(row)
    if rows and not is_end:
        for name in (folder, *_folders_between(folder, rows[-1].path)):
            levels[name].is_end = False
    return levels


def _add_folders(levels: dict[str, Rows], folder: str, below: str) -> None:
    above = folder
    for name in _folders_between(folder, below):
        if name not in levels:
            levels[name] = Rows()
            levels[above].entries.append(Folder(name))
        above = name


def _folders_between(folder: str, path: str) -> list[str]:
    """Return the folders of a path that are below a folder, from the top down."""
    return [path[: place + 1] for place in range(len(folder), len(path)) if path[place] == "/"]


def range_after(folder: str, after: Item | None) -> tuple[str, str | None]:
    """Return the half-open range of the paths below a folder that come after one of its entries.

    Args:
        folder: A folder that ends in "/"; "" for the top.
        after: The entry; None for all paths.
    """
    high = f"{folder[:-1]}0" if folder else None
    if after is None:
        return folder, high
    return (f"{after.path[:-1]}0" if isinstance(after, Folder) else f"{after.path}\x01"), high


def is_shown(name: str) -> bool:
    """Return True if a file or folder of Linux can have this name."""
    if len(name) * 4 <= NAME_BYTES:
        return name not in ("", ".", "..")
    return len(name.encode()) <= NAME_BYTES


def _start_of(after: Item | None) -> str:
    return "" if after is None else after.path
