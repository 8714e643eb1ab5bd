"""Walks through the folders of a catalog, as `os.walk` walks through those of a disk."""

from collections.abc import Iterator

from cafcat.catalog.files.lookup import Lookup
from cafcat.model import Folder
from cafcat.support.paths import folder_of

__all__ = ["walk"]


def walk(files: Lookup, prefix: str) -> Iterator[tuple[str, list[str], list[str]]]:
    """Yield each folder at and below a folder, with the names of its folders and of its files.

    The folders whose names the caller removes from the list of folders are skipped.

    Args:
        files: Lists the folders.
        prefix: The first folder, as typed; "" for the top. An unknown folder yields nothing.
    """
    pending = [folder_of(prefix)]
    while pending:
        folder = pending.pop()
        folders: list[str] = []
        names: list[str] = []
        for item in files.folder(folder):
            name = item.path.removeprefix(folder)
            if isinstance(item, Folder):
                folders.append(name.removesuffix("/"))
            else:
                names.append(name)
        if folders or names:
            yield folder.removesuffix("/"), folders, names
        pending += [f"{folder}{name}/" for name in reversed(folders)]
