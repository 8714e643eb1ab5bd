"""Folders: their files and folders, page by page."""

from cafcat.catalog.console.files import totals
from cafcat.errors import NotFound
from cafcat.model import Folder, Location
from cafcat.serve.console.page import Content, Page, Visit
from cafcat.support.paths import is_text

__all__ = ["PAGE"]

_ENTRIES = 200
"""Entries of one page."""


def browse(visit: Visit) -> Content:
    """Return one page of a folder. A visitor who may see a folder below it gets the way to that folder."""
    folder, after = visit.text("path"), visit.text("after")
    if folder and not folder.endswith("/"):
        folder += "/"
    if folder not in visit.visitor.visible:
        entries = _way(folder, visit)
        return _content(folder, entries, after="", more=None)
    files = visit.repository.session.catalog.reading.files
    found = files.folder_page(folder, after=_entry(folder + after) if after else None, limit=_ENTRIES + 1)
    if folder and not found and not after:
        raise NotFound("the catalog has no such folder")
    more = found[_ENTRIES - 1].path[len(folder) :] if len(found) > _ENTRIES else None
    below = [entry.path for entry in found[:_ENTRIES] if isinstance(entry, Folder)]
    found_totals = totals(visit.queries, [folder, *below])
    return _content(folder, found[:_ENTRIES], after=after, more=more) | {"totals": found_totals}


def _entry(path: str) -> Location | Folder:
    """Return the entry after which a page begins. Only its path is used."""
    from uuid import UUID

    return Folder(path) if path.endswith("/") else Location(path, 0, 0, 0, None, UUID(int=0), "", "")


def _way(folder: str, visit: Visit) -> list[Location | Folder]:
    """Return the folders in a folder that lead to visible ones. The catalog is not asked: nothing else may be seen.

    Raises:
        NotFound, LoginNeeded: The folder leads to no visible one.
    """
    ranges = visit.visitor.visible.ranges(folder)
    names = sorted({low[: low.index("/", len(folder)) + 1] for low, _ in ranges})
    if not names or not is_text(folder):
        raise visit.hidden("folder")
    return [Folder(name) for name in names]


def _content(folder: str, entries: list[Location | Folder], *, after: str, more: str | None) -> Content:
    parts = folder.split("/")[:-1]
    crumbs = [(part, "/".join(parts[: n + 1]) + "/") for n, part in enumerate(parts)]
    rows = [(entry, entry.path[len(folder) :], isinstance(entry, Folder)) for entry in entries]
    title = parts[-1] if parts else "Browse"
    return {
        "title": title,
        "folder": folder,
        "crumbs": crumbs,
        "rows": rows,
        "after": after,
        "more": more,
        "totals": {},
    }


PAGE = Page("browse", "Browse", browse, in_navigation=True, shows_all=False)
