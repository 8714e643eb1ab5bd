"""Looks up and lists files and folders, and describes them as fsspec does."""

import asyncio
from collections.abc import Collection, Iterator, Sequence
from itertools import chain
from typing import Any, Protocol

from cafcat.model import LOOKED_UP_PATHS, Folder, Location
from cafcat.packed_files import PackedFiles
from cafcat.snapshots import Snapshot
from cafcat.support.forking import renew_after_fork
from cafcat.support.paths import is_text

__all__ = ["Info", "Listing", "Lookups", "below", "folder_info", "info_of", "levels"]

Info = dict[str, Any]
"""What fsspec knows of a file or folder, by the names that fsspec has for it."""


class Listing(Protocol):
    """Looks up and lists the files of a catalog or of a snapshot."""

    def locate_many(self, paths: Collection[str]) -> dict[str, Location]:
        """Return the location of each of at most LOOKED_UP_PATHS paths. Paths that do not exist are left out."""

    def folders_among(self, names: Collection[str]) -> set[str]:
        """Return those of the names that are folders, with at least one file below them."""

    def folder(self, folder: str) -> Iterator[Location | Folder]:
        """Yield the files and folders directly in a folder, which ends in "/" or is "", in path order."""

    def pages(self, prefix: str) -> Iterator[Sequence[Location]]:
        """Yield the file with a name, and all files below the folder with that name, in lists and path order."""


def folder_info(path: str) -> Info:
    """Return the description of a folder, whose path has no slash at its end."""
    return {"name": path, "size": 0, "type": "directory"}


def info_of(found: Location | Folder) -> Info:
    """Return the description of a file or folder.

    Returns:
        For a file: name, size in bytes, type "file", mtime in seconds since 1970 UTC (None if unknown), and crc32c
        of its content as a number. For a folder: name, size 0, and type "directory".
    """
    if isinstance(found, Folder):
        return folder_info(found.path.rstrip("/"))
    mtime = None if found.modified_ns is None else found.modified_ns / 1e9
    return {
        "name": found.path,
        "size": found.size_bytes,
        "type": "file",
        "mtime": mtime,
        "crc32c": found.crc32c,
    }


def below(files: Listing, path: str, *, with_folders: bool) -> dict[str, Info]:
    """Return the descriptions of the file with a path, if there is one, and of all files below this folder.

    This reads the rows of the files once, in pages. The folders are made from the paths of the files.

    Args:
        files: Lists the files.
        path: A path without a slash at its end; "" for all files.
        with_folders: True to add the folder itself (except the top) and all folders below it.
    """
    found: dict[str, Info] = {}
    start = len(path) + 1 if path else 0
    for location in chain.from_iterable(files.pages(path)):
        if with_folders and location.path != path:
            for folder in _folders_between(location.path, start):
                found.setdefault(folder, folder_info(folder))
        found[location.path] = info_of(location)
    return found


def _folders_between(path: str, start: int) -> Iterator[str]:
    """Yield the folders above a file, from the one whose name ends before the character `start` downwards."""
    if start:
        yield path[: start - 1]
    while (slash := path.find("/", start)) >= 0:
        yield path[:slash]
        start = slash + 1


def levels(files: Listing, path: str, depth: int, *, with_folders: bool) -> dict[str, Info]:
    """Return what `below` returns, but only the files and folders of the first levels below the folder.

    Each folder takes one query per thousand entries. Files of deeper levels are not read.

    Args:
        files: Lists the files.
        path: A path without a slash at its end; "" for the top.
        depth: Number of levels, at least 1.
        with_folders: True to add the folder itself (except the top) and the folders in it.
    """
    found = {name: info_of(location) for name, location in files.locate_many([path] if path else []).items()}
    pending = [Folder(f"{path}/" if path else "")]
    for _ in range(depth):
        entries = [entry for folder in pending for entry in files.folder(folder.path)]
        pending = [entry for entry in entries if isinstance(entry, Folder)]
        if with_folders and path and entries:
            found.setdefault(path, folder_info(path))
        for entry in entries:
            if with_folders or not isinstance(entry, Folder):
                found.setdefault(entry.path.rstrip("/"), info_of(entry))
    return found


class Lookups:
    """Looks up paths for asyncio programs, in threads. Calls that are made together share their queries."""

    def __init__(self, packed: PackedFiles | Snapshot) -> None:
        """Create the object. No query is sent yet.

        Args:
            packed: The catalog or the snapshot.
        """
        self._packed = packed
        self._start()
        renew_after_fork(self)

    @property
    def files(self) -> Listing:
        """Looks up and lists the files. A snapshot has another one after a fork."""
        packed = self._packed
        return packed.files if isinstance(packed, Snapshot) else packed.session.catalog.reading.files

    def _start(self) -> None:
        self._waiting: dict[asyncio.AbstractEventLoop, dict[str, asyncio.Future[Location | Folder | None]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def find(self, path: str) -> Location | Folder | None:
        """Return the location of a file, or else the folder with this path, or else None.

        All calls that are made before the event loop runs on share one query for files, and one for folders.
        """
        loop = asyncio.get_running_loop()
        waiting = self._waiting.get(loop)
        if waiting is None:
            waiting = self._waiting[loop] = {}
            task = loop.create_task(self._answer(loop))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        future = waiting.get(path)
        if future is None:
            future = waiting[path] = loop.create_future()
        return await asyncio.shield(future)  # another call may wait for it, too

    async def _answer(self, loop: asyncio.AbstractEventLoop) -> None:
        waiting = self._waiting.pop(loop)
        try:
            found = await loop.run_in_executor(None, self.find_many, list(waiting))
        except BaseException as error:  # noqa: BLE001 - each call that waits raises it
            for future in waiting.values():
                future.set_exception(error)
                future.exception()  # a caller that was cancelled does not retrieve it
            return
        for path, future in waiting.items():
            future.set_result(found[path])

    def find_many(self, paths: Sequence[str]) -> dict[str, Location | Folder | None]:
        """Return for each path what `find` returns. Each thousand paths need one or two queries."""
        found: dict[str, Location | Folder | None] = dict.fromkeys(paths)
        possible = [path for path in found if path and is_text(path)]
        for start in range(0, len(possible), LOOKED_UP_PATHS):
            some = possible[start : start + LOOKED_UP_PATHS]
            locations = self.files.locate_many(some)
            folders = self.files.folders_among(set(some) - locations.keys())
            found |= locations
            found |= {name: Folder(f"{name}/") for name in folders}
        return found

    def after_fork(self) -> None:
        """Forget the waiting calls in a forked process: they belong to an event loop of the parent."""
        self._start()
