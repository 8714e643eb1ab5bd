"""Walks folders, and yields every file below in the byte order of its path in the catalog.

Memory holds the unvisited names of the present folder and the folders above it: for one huge folder, all its names.
"""

import contextlib
import os
import stat
from collections.abc import Collection, Iterator
from typing import NamedTuple

from cafcat.model import FileProblem, ProblemKind, SourceFile
from cafcat.sources.filter import PathFilter
from cafcat.sources.local.files import problem_kind, reason
from cafcat.sources.names import check_name, folder_prefix, printable
from cafcat.sources.parts import WHOLE, Part
from cafcat.support.beneath import Beneath

__all__ = ["Found", "Walk", "unreadable"]

Found = SourceFile | FileProblem
_Identity = tuple[int, int]
"""Device and inode of a file or folder."""


class _Level(NamedTuple):
    """The folder that is walked, or one above it.

    Attributes:
        names: Names that are not visited yet, in reverse order. Those of folders end in "/".
        locator: Path of the folder for the operating system, with "/" at its end.
        path: Path of the folder in the catalog, with "/" at its end.
        identity: Its identity, to detect loops.
    """

    names: list[str]
    locator: str
    path: str
    identity: _Identity


class Walk:
    """Walks files and folders with fixed settings: whether symbolic links are followed, which files are included.

    A locator is a path for the operating system, and a path is a name in the catalog. `relative_from` is the number
    of characters of a path before the part that patterns are matched with.
    """

    def __init__(
        self,
        *,
        follow_symlinks: bool,
        filter: PathFilter | None,
        own_paths: Collection[str] = (),
        part: Part | None = None,
    ) -> None:
        """Store the settings of walks, and find the devices and inodes of cafcat's own files and folders.

        Args:
            follow_symlinks: True to ingest the targets of symbolic links.
            filter: Which files to ingest. None: all.
            own_paths: Files and folders of cafcat itself, which are not ingested.
            part: Range of catalog paths outside of which nothing is visited. None: everything is visited.
        """
        self._own: set[_Identity] = set()
        self._own_parents: set[_Identity] = set()
        self._has_linked_own = False
        for path in own_paths:
            with contextlib.suppress(OSError):
                status = os.stat(path)
                self._own.add(_identity(status))
                if not stat.S_ISDIR(status.st_mode):
                    self._own_parents.add(_identity(os.stat(os.path.dirname(path))))
                    self._has_linked_own = self._has_linked_own or status.st_nlink > 1
        self._follow = follow_symlinks
        self._filter = filter
        self._part = part or WHOLE
        self._open_flags = os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY
        self._open_flags |= 0 if follow_symlinks else os.O_NOFOLLOW

    def visit(self, locator: str, path: str, relative_from: int, *, typed: bool = False) -> Iterator[Found]:
        """Yield a file, or all files below a folder, except those that the filter excludes.

        A FileProblem is yielded in place of each file or folder that cannot be ingested.

        Args:
            locator: Path of the file or folder.
            path: Its path in the catalog.
            relative_from: Number of characters of `path` that patterns are not matched with.
            typed: True for a path from the command line, which is followed if it is a link.
        """
        follow = self._follow or typed
        try:
            mode = os.stat(locator, follow_symlinks=follow).st_mode
        except OSError as error:
            yield unreadable(path or locator, error)
            return
        is_folder = stat.S_ISDIR(mode)
        path = folder_prefix(path) if is_folder else path
        if self._filter is not None and not self._filter.includes(path[relative_from:]):
            return
        if is_folder:
            yield from self.folder(locator if locator.endswith("/") else f"{locator}/", path, relative_from)
        else:
            yield self.file(locator, path, follow)

    @property
    def is_plain(self) -> bool:
        """True if all files are listed, no links are followed, and no file of cafcat itself has another name."""
        return not self._follow and self._filter is None and self._part == WHOLE and not self._has_linked_own

    def level(self, locator: str, path: str, relative_from: int) -> tuple[list[Found], list[str]]:
        """Return the files in a folder, without those of the folders below it, and the locators of these folders.

        Args:
            locator: Path of the folder, with "/" at its end.
            path: Its path in the catalog, with "/" at its end.
            relative_from: Number of characters of `path` that patterns are not matched with.
        """
        levels: list[_Level] = []
        if problem := self._descend(levels, locator, path, None):
            return [problem], []
        found: list[Found] = []
        folders: list[str] = []
        for name in reversed(levels[0].names):
            if self._filter is not None and not self._filter.includes((path + name)[relative_from:]):
                continue
            if name[-1] == "/":
                folders.append(locator + name)
            else:
                found.append(self.file(locator + name, path + name, self._follow))
        return found, folders

    def folder(self, locator: str, path: str, relative_from: int, top: Beneath | None = None) -> Iterator[Found]:
        """Yield the files of a folder, depth first.

        Args:
            locator: Path of the folder, with "/" at its end.
            path: Its path in the catalog, with "/" at its end.
            relative_from: Number of characters of `path` that patterns are not matched with.
            top: The folder that the walk began with; None if this is the one.
        """
        levels: list[_Level] = []
        if problem := self._descend(levels, locator, path, top):
            yield problem
        top = top or Beneath(locator)
        while levels:
            names, locator, path, _ = levels[-1]
            while names:
                name = names.pop()
                if self._filter is not None and not self._filter.includes((path + name)[relative_from:]):
                    continue
                if name[-1] != "/":
                    yield self.file(locator + name, path + name, self._follow)
                elif problem := self._descend(levels, locator + name, path + name, top):
                    yield problem
                else:
                    break
            else:
                levels.pop()

    def _descend(self, levels: list[_Level], locator: str, path: str, top: Beneath | None) -> FileProblem | None:
        """Add a folder to the levels. Return None, or the problem if the folder cannot or must not be entered."""
        try:
            with self.opened(locator, top) as (folder, identity):
                if problem := self.own(identity, path):
                    return problem
                if self._follow and any(level.identity == identity for level in levels):
                    message = "a symbolic link leads back to a folder above it"
                    return FileProblem(printable(path[:-1]), ProblemKind.LOOP, message)
                levels.append(_Level(self._names(folder, path), locator, path, identity))
        except OSError as error:
            return unreadable(path[:-1] or locator, error)
        return None

    @contextlib.contextmanager
    def opened(self, locator: str, top: Beneath | None) -> Iterator[tuple[int, _Identity]]:
        """Open a folder, and yield its descriptor and its identity.

        Args:
            locator: Path of the folder, with "/" at its end.
            top: The folder that the walk began with; None if this is the one, which may be a symbolic link, because
                its path was typed.

        Raises:
            OSError: The folder cannot be opened.
        """
        if top is None or self._follow:
            folder = os.open(locator, self._open_flags)  # with the slash, the folder may be a symbolic link
        else:
            folder = top.open(locator[:-1], self._open_flags)
        try:
            yield folder, _identity(os.fstat(folder))
        finally:
            os.close(folder)

    def own(self, identity: _Identity, path: str) -> FileProblem | None:
        """Return a problem if a folder is one of cafcat itself, which is not ingested.

        Args:
            identity: Identity of the folder.
            path: Its path in the catalog, with "/" at its end.
        """
        if identity not in self._own:
            return None
        return FileProblem(printable(path[:-1]), ProblemKind.OWN, "a folder of cafcat itself is not ingested")

    def has_own_files(self, identity: _Identity) -> bool:
        """Return True if a folder has files of cafcat itself, which `file` leaves out."""
        return identity in self._own_parents

    def _names(self, folder: int, path: str) -> list[str]:
        """Return the names in a folder, in reverse order of the paths below them. Names of folders end in "/".

        Names outside of the part are left out.

        Args:
            folder: Descriptor of the folder.
            path: Path of the folder in the catalog, with "/" at its end.
        """
        with os.scandir(folder) as entries:
            names = [f"{entry.name}/" if self._is_folder(entry) else entry.name for entry in entries]
        if self._part != WHOLE:
            names = [name for name in names if self._is_in_part(path + name)]
        names.sort(reverse=True)  # with the "/", names sort like the paths of all files below
        return names

    def _is_in_part(self, path: str) -> bool:
        """Return True if a file is in the part, or if a folder, whose path ends in "/", may have files of it."""
        if path[-1] != "/":
            return self._part.contains(path)
        # All paths in the folder "a/" sort between "a/" and "a0".
        ends_before = self._part.after is not None and f"{path[:-1]}0" <= self._part.after
        return not ends_before and not self._part.is_before(path)

    def _is_folder(self, entry: os.DirEntry[str]) -> bool:
        try:
            return entry.is_dir(follow_symlinks=self._follow)
        except OSError:  # such as a link to itself: `file` reports it
            return False

    def file(self, locator: str, path: str, follow: bool) -> Found:
        """Return the file at a path, or the problem that prevents its ingest. The path is not that of a folder."""
        try:
            status = os.stat(locator) if follow else os.lstat(locator)
        except OSError as error:
            return unreadable(path, error)
        if not stat.S_ISREG(status.st_mode):
            return _not_a_file(path, status.st_mode)
        if self._own_parents and _identity(status) in self._own:
            return FileProblem(printable(path), ProblemKind.OWN, "a file of cafcat itself is not ingested")
        if refused := check_name(path):
            return FileProblem(printable(path), ProblemKind.NAME, refused)
        return SourceFile(path, status.st_size, status.st_mtime_ns, locator, None, status.st_ctime_ns)


def _identity(status: os.stat_result) -> _Identity:
    return status.st_dev, status.st_ino


def _not_a_file(path: str, mode: int) -> FileProblem:
    if stat.S_ISLNK(mode):
        return FileProblem(printable(path), ProblemKind.SYMLINK, "symbolic links are not followed")
    if stat.S_ISDIR(mode):
        return FileProblem(printable(path), ProblemKind.CHANGED, "was replaced by a folder after it was listed")
    return FileProblem(printable(path), ProblemKind.SPECIAL, "not a regular file")


def unreadable(path: str, error: OSError) -> FileProblem:
    """Return the problem of a file or folder that had an error of the operating system."""
    return FileProblem(printable(path), problem_kind(error), f"cannot be read: {reason(error)}")
