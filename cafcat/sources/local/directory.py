"""A folder, or a single file, of the local file system as a source."""

import errno
import os
import re
import stat
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import PurePosixPath
from typing import Final

from cafcat.errors import CafcatError, InvalidInput, NotFound, SourceFailed
from cafcat.model import FileProblem, NewFile, SourceFile
from cafcat.progress import Progress
from cafcat.sources.base import ListedPage
from cafcat.sources.cutting import Level, cut_tree
from cafcat.sources.filter import PathFilter
from cafcat.sources.local.column_walk import column_walk
from cafcat.sources.local.files import FileOpener, OpenLocalFile, problem_kind, reason
from cafcat.sources.local.walk import Walk
from cafcat.sources.names import folder_prefix, member_name, prefixed, printable, strip_warning
from cafcat.sources.parts import Part
from cafcat.sources.roots import root_of
from cafcat.support.in_order import made_ahead

__all__ = ["DirectorySource"]

_OF_URL: Final = re.compile(r"[\w+.-]+://", re.ASCII)
_OF_RCLONE: Final = re.compile(r"[\w.-]+:(?!//)", re.ASCII)
_REMOTE_HINT: Final = (
    "a bucket is written s3://BUCKET/PREFIX, gs://... or az://..., and a file of a web server http(s)://...; "
    "other remotes of rclone can be read through `rclone mount`"
)


class DirectorySource:
    """A folder or one file, by the path that was typed. If the path is a symbolic link, the link is followed.

    Files come in ascending byte order of their catalog paths. Hard links are ordinary files: each one is ingested.

    Attributes:
        name: Path of the source as the user typed it, with escapes for unprintable characters.
        opener: Opens files of this source, also in another process: it can be pickled.
        locators_are_paths: Always True: the locator of each file is its path, which other programs can open.
        catalog_folder: Folder of the catalog whose files this source lists completely, with a slash at its end
            (`WholeFolderSource`). None for a single file, and for a part of a folder.
        root: Root of all files: the folder that their names are relative to, such as "/srv/". With the prefix
            "old", this is "/srv/ as old/".
    """

    locators_are_paths: Final = True

    def __init__(
        self,
        typed: str,
        *,
        prefix: str = "",
        follow_symlinks: bool = False,
        filter: PathFilter | None = None,
        own_paths: Collection[str] = (),
        part: Part | None = None,
        progress: Progress | None = None,
    ) -> None:
        """Check that the path exists.

        Args:
            typed: The path as the user typed it.
            prefix: Folder of the catalog that the names are put into.
            follow_symlinks: True to ingest the targets of symbolic links below the folder, too.
            filter: Which files to ingest. None: all.
            own_paths: Files and folders of cafcat itself, which are not ingested.
            part: The part of the folder that is listed: a range of catalog paths. None: all files.
            progress: Receives a warning if the beginning of the path is left out of the names.

        Raises:
            NotFound: There is nothing at the path.
            InvalidInput: This is not a valid path, or neither a folder nor a regular file.
            SourceFailed: The operating system refuses or fails to examine the path.
        """
        self._typed = typed
        self.name: Final = printable(typed)
        is_folder = self._is_folder = _is_folder(typed)
        name, removed = member_name(typed)
        if removed and progress is not None:
            progress.warn(strip_warning(removed))
        self._path = prefixed(prefix, name)
        # Patterns see the path below the folder, or the base name of a single file.
        above = folder_prefix(self._path if is_folder else self._path.rpartition("/")[0])
        self._relative_from = len(above)
        self.root: Final = root_of(os.path.abspath(typed), self._path)
        self.catalog_folder = folder_prefix(self._path) if is_folder and part is None else None
        self._filter = filter
        self._folder = folder_prefix(self._path) if is_folder else None
        self._follow_symlinks = follow_symlinks
        self._walk = Walk(follow_symlinks=follow_symlinks, filter=filter, own_paths=own_paths, part=part)
        self.opener: Final = FileOpener(follow_symlinks=follow_symlinks, typed=typed)

    def root_of(self, file: SourceFile) -> str:  # noqa: ARG002 - all files have the same root
        """Return `root`."""
        return self.root

    def includes(self, path: str) -> bool:
        """Return False if the filter excludes a file of this catalog path."""
        return self._filter is None or self._filter.includes_with_folders(path[self._relative_from :])

    def has(self, path: str) -> bool:
        """Return True if there is a regular file now, whose catalog path would be this one."""
        name = path[self._relative_from :]
        folders = (os.path.join(self._typed, folder) for folder in PurePosixPath(name).parents)
        if not self._follow_symlinks and any(map(os.path.islink, folders)):
            return False
        try:
            status = os.stat(os.path.join(self._typed, name), follow_symlinks=self._follow_symlinks)
        except OSError as error:
            return error.errno not in (errno.ENOENT, errno.ENOTDIR)
        return stat.S_ISREG(status.st_mode)

    def position_of(self, file: SourceFile) -> str:
        """Return the position after a file in the listing of a part: the path of the file in the catalog."""
        return file.path

    def cut(self, part: Part, wanted: int) -> Sequence[Part]:
        """Cut a range of catalog paths into smaller ranges, by looking into some folders.

        A folder that cannot be read is not looked into. Listing the part with this folder reports the problem.
        """
        if self._folder is None:
            return [part]
        tree = _PathTree(self._typed, self._folder, follow_symlinks=self._follow_symlinks)
        return cut_tree(tree, self._folder, part, wanted)

    def files(self) -> Iterator[SourceFile | FileProblem]:
        """Yield the file, or all files below the folder, except those that the filter excludes.

        A FileProblem is yielded in place of each file or folder that cannot be ingested.
        """
        return self._walk.visit(self._typed, self._path, self._relative_from, typed=True)

    def column_batches(self) -> Iterator[Sequence[SourceFile | FileProblem]] | None:
        """Return the files and problems of `files` in batches, mostly in columns; None if it has to list them."""
        walk = column_walk(self._walk, self._typed, self._path, self._relative_from) if self._is_folder else None
        return None if walk is None else made_ahead(walk.batches(), at_once=True)

    @property
    def top_folder(self) -> str | None:
        """The folder of all files, with "/" at its end; None if the source is a single file."""
        return self._typed.rstrip("/") + "/" if self._is_folder else None

    def page(self, folder: str, after: str | None = None) -> ListedPage:
        """Return the whole content of a folder. An unreadable folder is empty, except for a problem.

        Args:
            folder: Path of the folder for the operating system, with "/" at its end.
            after: Must be None, because a folder is never listed in parts.
        """
        assert after is None  # noqa: S101 - `is_last` of the page before was true
        path = folder_prefix(self._path) + folder.removeprefix(self.top_folder or "")
        files, folders = self._walk.level(folder, path, self._relative_from)
        return ListedPage(files, folders, [], True)

    def open(self, file: SourceFile) -> OpenLocalFile:
        """Open a file that `files` yielded.

        Raises:
            SourceFailed: The file has vanished, cannot be opened, or is not a regular file any more.
        """
        return self.opener.open(file)

    def read_each(self, files: Iterable[SourceFile]) -> Iterator[NewFile | OpenLocalFile | SourceFailed]:
        """Yield one result for each file, in order.

        The result is a NewFile with the content for a small file that has not changed since it was listed.
        Otherwise it is the opened file, or the error of opening it.
        """
        return self.opener.read_each(files)


class _PathTree:
    """The catalog paths of the files below a folder as a NameTree."""

    def __init__(self, typed: str, folder: str, *, follow_symlinks: bool) -> None:
        """Create the tree.

        Args:
            typed: Path of the folder for the operating system.
            folder: Its path in the catalog, with "/" at its end; "" for none.
            follow_symlinks: True if links to folders are folders.
        """
        self._typed = typed
        self._folder = folder
        self._follow_symlinks = follow_symlinks

    def level(self, folder: str, after: str | None) -> Level:  # noqa: ARG002 - a level is always complete
        """Return all names directly in a folder; none if the folder cannot be read."""
        try:
            with os.scandir(os.path.join(self._typed, folder[len(self._folder) :])) as entries:
                names = [folder + entry.name + "/" * self._is_folder(entry) for entry in entries]
        except OSError:
            return Level([], is_complete=True)
        return Level(sorted(names), is_complete=True)

    def next_name(self, folder: str, after: str) -> str | None:
        """Return the first name directly in a folder after a text. Complete levels are never cut by this."""
        return next((name for name in self.level(folder, None).names if name > after), None)

    def _is_folder(self, entry: "os.DirEntry[str]") -> bool:
        try:
            return entry.is_dir(follow_symlinks=self._follow_symlinks)
        except OSError:
            return False


def _is_folder(typed: str) -> bool:
    if not typed or "\0" in typed:
        raise InvalidInput(f"not a path: {printable(typed)!r}")
    try:
        mode = os.stat(typed).st_mode
    except OSError as error:
        raise _unusable(typed, error) from error
    if not (stat.S_ISDIR(mode) or stat.S_ISREG(mode)):
        raise InvalidInput(f"{printable(typed)}: neither a folder nor a regular file")
    return stat.S_ISDIR(mode)


def _unusable(typed: str, error: OSError) -> CafcatError:
    message = f"{printable(typed)}: {reason(error)}"
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        is_url = _OF_URL.match(typed) or _OF_RCLONE.match(typed)
        return NotFound(message, hint=_REMOTE_HINT if is_url else f"the present folder is {printable(os.getcwd())}")
    if error.errno in (errno.ELOOP, errno.ENAMETOOLONG):
        return InvalidInput(message)
    return SourceFailed(message, problem=problem_kind(error).value)
