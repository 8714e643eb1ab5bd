"""A list of files, folders and URLs, one per line or each ended by NUL: --files-from."""

import os
import sys
from array import array
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import pairwise
from typing import BinaryIO

from cafcat.errors import CafcatError, InvalidInput, NotFound, SourceFailed
from cafcat.model import FileProblem, ProblemKind, SourceFile
from cafcat.progress import Progress
from cafcat.sources.base import OpenFile, open_or_error
from cafcat.sources.fetched import bytes_when_open
from cafcat.sources.kind import SourceContext
from cafcat.sources.lists.ranges import blocks_between
from cafcat.sources.lists.urls import ListedUrls, file_path, in_turn
from cafcat.sources.local.files import FileOpener, problem_kind, reason
from cafcat.sources.local.walk import Walk
from cafcat.sources.names import (
    folder_prefix,
    member_name,
    names_in,
    prefixed,
    printable,
    strip_warning,
)
from cafcat.sources.parts import WHOLE, Part, number_parts
from cafcat.sources.roots import root_of

__all__ = ["NameListSource"]


class NameListSource:
    """A source made of a list: the files and folders at its paths, and the files at its URLs.

    All files below a listed folder are included, as by `tar -T`. A path that looks like a URL must be written
    "./s3://...".

    Files come in the order of the list. A file that is listed twice (once by its folder, say) comes twice. Patterns
    are matched with the whole name without the prefix. For a path or URL without a file, a FileProblem is yielded.
    A symbolic link is skipped unless links are followed.
    """

    def __init__(
        self,
        listing: str | BinaryIO,
        *,
        null_separated: bool = False,
        follow_symlinks: bool = False,
        own_paths: Collection[str] = (),
        context: SourceContext | None = None,
        progress: Progress | None = None,
    ) -> None:
        """Check that the list can be opened.

        Args:
            listing: A file name, "-" for standard input, or an open binary stream, which is read once.
            null_separated: True if NUL bytes end the names, instead of newlines.
            follow_symlinks: True to ingest the targets of symbolic links.
            own_paths: Files and folders of cafcat itself, which are not ingested.
            context: Provides the prefix, the filter, and the options in cafcat.toml for a URL. None: the defaults
                of SourceContext.
            progress: Receives a warning if the beginning of a path is left out of the name.

        Raises:
            NotFound, InvalidInput, SourceFailed: The list cannot be opened.
        """
        self._listing = sys.stdin.buffer if listing == "-" else listing
        self._part = (context or SourceContext()).part or WHOLE
        if isinstance(listing, str):
            self.name = f"--files-from {printable(listing)}"
        else:
            self.name = f"--files-from {printable(str(getattr(listing, 'name', 'stream')))}"
        self._null_separated = null_separated
        context = context or SourceContext()
        self._prefix = context.prefix
        self._relative_from = len(folder_prefix(prefixed(context.prefix, "")))
        self._walk = Walk(follow_symlinks=follow_symlinks, filter=context.filter, own_paths=own_paths)
        self._opener = FileOpener(follow_symlinks=follow_symlinks)
        self._progress = progress or Progress()
        self._warned: set[bool] = set()
        self._url_names: dict[int, int] = {}
        self._urls = ListedUrls(context)
        with self._opened():
            pass

    def files(self) -> Iterator[SourceFile | FileProblem]:
        """Yield the listed files, all files below listed folders, and a FileProblem in place of each failed one.

        Raises:
            InvalidInput: A name in the list is longer than 65,536 bytes.
            SourceFailed: The list itself cannot be read.
            AccessDenied: A server refuses the credentials.
        """
        with self._opened() as stream:
            names = names_in(self._blocks(stream), self.name, null_separated=self._null_separated)
            costed = ((name, 0 if self._urls.is_url(name) else None) for name in names)
            for item in in_turn(self._find, costed):
                yield self._once(item)

    def cut(self, part: Part, wanted: int) -> Sequence[Part]:
        """Cut a range of the list into ranges of equal size, by offsets in bytes. A stream is one part.

        A name belongs to the range in which its first byte is. A list with two URLs of one name in the catalog is
        one part, too, so that the second one is refused: this reads the whole list.

        Raises:
            NotFound, InvalidInput, SourceFailed: The list cannot be opened or read.
        """
        if not isinstance(self._listing, str) or not os.path.isfile(self._listing):
            return [part]  # a pipe can be read once
        if part == WHOLE and self._has_equal_names():
            return [part]
        with self._opened() as stream:
            return number_parts(part, stream.seek(0, os.SEEK_END), wanted)

    def _has_equal_names(self) -> bool:
        hashes = array("q")
        with self._opened() as stream:
            for name in names_in(self._blocks(stream), self.name, null_separated=self._null_separated):
                if self._urls.is_url(name) and (path := self._urls.name_of(name)) is not None:
                    hashes.append(hash(path))
        ordered = sorted(hashes)
        return any(one == other for one, other in pairwise(ordered))

    @property
    def edition(self) -> str:
        """Path, size and time of the list, and how its names end."""
        if not isinstance(self._listing, str) or not os.path.isfile(self._listing):
            return ""
        with self._opened() as stream:
            status = os.fstat(stream.fileno())
        values = (os.path.abspath(self._listing), status.st_size, status.st_mtime_ns, self._null_separated)
        return printable(" ".join(map(str, values)))

    def root_of(self, file: SourceFile) -> str:
        """Return the root of a file: the part of its location that its name in the catalog does not repeat."""
        if self._is_remote(file):
            return self._urls.root_of(file)
        return root_of(os.path.abspath(file.locator), file.path)

    def open(self, file: SourceFile) -> OpenFile:
        """Open a file that `files` yielded.

        Raises:
            SourceFailed: The file has vanished, cannot be read, or is not a regular file any more; or a file at a
                URL has changed since it was listed.
            AccessDenied: A server refuses the credentials.
        """
        return self._urls.open(file) if self._is_remote(file) else self._opener.open(file)

    def open_each(self, files: Iterable[SourceFile]) -> Iterator[OpenFile | SourceFailed]:
        """Yield the opened file, or the SourceFailed of opening it, for each file in order.

        Many URLs are requested at the same time.

        Raises:
            AccessDenied: A server refuses the credentials.
        """
        costed = ((file, bytes_when_open(file) if self._is_remote(file) else None) for file in files)
        return in_turn(self._opened_or_error, costed)

    def _once(self, item: SourceFile | FileProblem) -> SourceFile | FileProblem:
        """Return the item, or a problem for a file at a URL if an earlier URL of the list has the same name.

        URLs that differ only in port or query have the same name, and so do objects with one key in two buckets. A
        URL that is listed twice is no problem. Two hashes are stored for each URL.
        """
        if isinstance(item, FileProblem) or not self._is_remote(item):
            return item
        if self._url_names.setdefault(hash(item.path), hash(item.locator)) == hash(item.locator):
            return item
        message = "another URL of the list has the same name: names do not include port, query and bucket"
        return FileProblem(printable(item.path), ProblemKind.NAME, message)

    def _is_remote(self, file: SourceFile) -> bool:
        return self._urls.is_url(file.locator)

    def _opened_or_error(self, file: SourceFile) -> Iterable[OpenFile | SourceFailed]:
        return [open_or_error(self._urls, file)] if self._is_remote(file) else self._open_later(file)

    def _open_later(self, file: SourceFile) -> Iterator[OpenFile | SourceFailed]:
        yield open_or_error(self._opener, file)

    def _find(self, typed: str) -> Iterable[SourceFile | FileProblem]:
        return self._urls.find(typed) if self._urls.is_url(typed) else self._visit(typed)

    def _visit(self, typed: str) -> Iterator[SourceFile | FileProblem]:
        try:
            typed = file_path(typed)
        except InvalidInput as error:
            yield FileProblem(printable(typed), ProblemKind.NAME, error.message)
            return
        if "\0" in typed:
            yield FileProblem(printable(typed), ProblemKind.NAME, "the name contains a NUL byte")
            return
        name, removed = member_name(typed)
        if removed:
            self._warn_of(removed)
        yield from self._walk.visit(typed, prefixed(self._prefix, name), self._relative_from)

    def _warn_of(self, removed: str) -> None:
        """Warn that the beginning of paths is left out of the names: once for leading slashes, and once for "..".

        A list may have any number of such names.
        """
        kind = ".." in removed
        if kind not in self._warned:
            self._warned.add(kind)
            self._progress.warn(strip_warning(removed))

    def _blocks(self, stream: BinaryIO) -> Iterator[bytes]:
        delimiter = b"\0" if self._null_separated else b"\n"
        try:
            yield from blocks_between(stream, self._part, delimiter)
        except OSError as error:
            raise self._unusable(error) from error

    def _opened(self) -> AbstractContextManager[BinaryIO]:
        if not isinstance(self._listing, str):
            return nullcontext(self._listing)
        try:
            return open(self._listing, "rb")
        except (OSError, ValueError) as error:
            raise self._unusable(error) from error

    def _unusable(self, error: OSError | ValueError) -> CafcatError:
        message = f"{self.name}: {reason(error) if isinstance(error, OSError) else error}"
        if isinstance(error, FileNotFoundError | NotADirectoryError):
            return NotFound(message)
        if isinstance(error, IsADirectoryError | ValueError):
            return InvalidInput(message)
        return SourceFailed(message, problem=problem_kind(error).value)
