"""Walks folders like `walk.py`, but lists each folder by the native part, in columns (`FileColumns`)."""

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from time import monotonic
from typing import Final

from cafcat.model import MAX_PATH_BYTES
from cafcat.native.folder import FILE, FOLDER, FolderLister, ListedFiles, ListedFolder, folder_lister, joined
from cafcat.sources.base import BATCH_FILES, BATCH_SECONDS
from cafcat.sources.local.columns import FileColumns
from cafcat.sources.local.walk import Found, Walk, unreadable
from cafcat.sources.names import folder_prefix
from cafcat.support.beneath import PATH_MAX, Beneath
from cafcat.support.paths import is_text

__all__ = ["column_walk"]

_LEAST_FILES: Final = 64
"""Smallest number of files in a FileColumns. Its query takes as long as to make objects for some ten files."""
_SMALL_FOLDER: Final = 32
"""Adjacent parts with fewer files than this are joined, so that one call packs files of many folders."""
_NO_FILE: Final = re.compile(rb"[^%c]" % FILE)


@dataclass(slots=True)
class _Level:
    """The folder that is walked, or one above it.

    Attributes:
        listed: Names in the folder.
        locator: Path of the folder for the operating system, with "/" at its end.
        path: Path of the folder in the catalog, with "/" at its end.
        next: Position of the first name that is not visited yet.
    """

    listed: ListedFolder
    locator: str
    path: str
    next: int = 0


def column_walk(walk: Walk, locator: str, path: str, relative_from: int) -> "ColumnWalk | None":
    """Return a walk of a folder in columns; None if only `Walk.visit` can list its files.

    Args:
        walk: The settings. Links must not be followed, and no filter or part may choose files.
        locator: Path of the folder.
        path: Its path in the catalog.
        relative_from: Number of characters of `path` that patterns are not matched with.
    """
    lister = folder_lister() if walk.is_plain and is_text(path) else None
    return None if lister is None else ColumnWalk(walk, lister, locator, path, relative_from)


class ColumnWalk:
    """Yields the files below a folder in batches."""

    def __init__(self, walk: Walk, lister: FolderLister, locator: str, path: str, relative_from: int) -> None:
        self._walk = walk
        self._lister = lister
        self._locator = os.path.join(locator, "")  # with a slash at its end
        self._path = folder_prefix(path)
        self._top = Beneath(self._locator)
        self._base, self._skip = os.fsencode(self._locator), len(self._path.encode())
        self._relative_from = relative_from
        self._levels: list[_Level] = []
        self._parts: list[ListedFiles | Found] = []
        self._count = 0
        self._begun = monotonic()

    def batches(self) -> Iterator[Sequence[Found]]:
        """Yield the files and problems of `Walk.visit`, in the same order.

        A batch has at most BATCH_FILES of them. After BATCH_SECONDS, it ends with the folder that is being listed.
        Some batches are a FileColumns; others may be empty.
        """
        yield from self._enter(self._locator, self._path)
        while self._levels:
            level = self._levels[-1]
            kinds = level.listed.kinds
            if level.next == len(kinds):
                self._levels.pop()
            elif kinds[level.next] == FILE:
                yield from self._add_files(level)
            else:
                name = level.listed.path(level.next)
                level.next += 1
                locator = level.locator + name[len(level.path) :]
                if kinds[level.next - 1] == FOLDER:
                    yield from self._enter(locator, name)
                else:
                    yield from self._add(self._walk.file(locator, name, follow=False))
        yield from self._batches()

    def _enter(self, locator: str, path: str) -> Iterator[Sequence[Found]]:
        """Begin with a folder, or add the problem that prevents this. Yields the batches that are complete."""
        top = self._top if self._levels else None
        try:
            with self._walk.opened(locator, top) as (folder, identity):
                problem = self._walk.own(identity, path)
                is_listed_here = problem is None and not self._walk.has_own_files(identity)
                listed = self._list(folder, locator, path) if is_listed_here else None
        except OSError as error:
            problem, listed = unreadable(path[:-1] or locator, error), None
        if listed is not None:
            self._levels.append(_Level(listed, locator, path))
        elif problem is not None:
            yield from self._add(problem)
        else:
            for found in self._walk.folder(locator, path, self._relative_from, top):
                yield from self._add(found)

    def _list(self, folder: int, locator: str, path: str) -> ListedFolder | None:
        """List an opened folder; None if only Python can list it, because a path in it may be too long."""
        prefix = path.encode()
        longest_locator = len(prefix) + PATH_MAX - len(os.fsencode(locator))
        return self._lister.list(folder, prefix, min(MAX_PATH_BYTES, longest_locator))

    def _add_files(self, level: _Level) -> Iterator[Sequence[Found]]:
        """Add the next files of a folder, up to another name. Yields the batch if it is complete."""
        kinds = level.listed.kinds
        after = _NO_FILE.search(kinds, level.next)
        end = min(len(kinds) if after is None else after.start(), level.next + BATCH_FILES - self._count)
        self._parts.append(
            ListedFiles(level.listed, level.next, end, self._base, self._skip, [level.path], [len(kinds)])
        )
        self._count += end - level.next
        level.next = end
        yield from self._complete()

    def _add(self, found: Found) -> Iterator[Sequence[Found]]:
        """Add a file or problem. Yields the batch if it is complete."""
        self._parts.append(found)
        self._count += 1
        yield from self._complete()

    def _complete(self) -> Iterator[Sequence[Found]]:
        if self._count >= BATCH_FILES or monotonic() - self._begun > BATCH_SECONDS:
            yield from self._batches()
            self._begun = monotonic()

    def _batches(self) -> Iterator[Sequence[Found]]:
        """Yield the files and problems that were added, in the same order, and begin the next batch.

        Many files without a problem between them become a FileColumns; all others become lists.
        """
        parts, self._parts, self._count = self._parts, [], 0
        batch: list[Found] = []
        for _, run in groupby(parts, key=lambda part: isinstance(part, ListedFiles)):
            adjacent = list(run)
            files = FileColumns(_joined_if_small([part for part in adjacent if isinstance(part, ListedFiles)]))
            if len(files) >= _LEAST_FILES:
                if batch:
                    yield batch
                yield files
                batch = []
            elif files.parts:
                batch += files
            else:
                batch += [found for found in adjacent if not isinstance(found, ListedFiles)]
        if batch or not parts:  # an empty batch lets the caller look whether the user ends the ingest
            yield batch


def _joined_if_small(parts: Iterable[ListedFiles]) -> list[ListedFiles]:
    """Return the parts in the same order. Adjacent parts with few files become one part."""
    found: list[ListedFiles] = []
    for is_small, run in groupby(parts, key=lambda part: part.file_count < _SMALL_FOLDER):
        adjacent = list(run)
        found += [joined(adjacent)] if is_small else adjacent
    return found
