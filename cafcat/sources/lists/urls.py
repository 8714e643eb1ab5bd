"""URLs in a list (--files-from): finds and opens the file at each URL with the kind of source for its scheme."""

import os
import re
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from threading import Lock
from typing import Final, TypeVar
from urllib.parse import unquote_to_bytes

from cafcat.errors import InvalidInput, SourceFailed
from cafcat.model import FileProblem, ProblemKind, SourceFile
from cafcat.sources.base import OpenFile
from cafcat.sources.fetched import fetched
from cafcat.sources.kind import SourceContext, SourceKind, UrlFiles
from cafcat.sources.names import check_name, folder_prefix, member_name, printable, shown_url
from cafcat.sources.registry import find_kind, scheme_of

__all__ = ["ListedUrls", "file_path", "in_turn"]

_FILE: Final = re.compile(r"file://(?:localhost)?(/.*)", re.IGNORECASE | re.DOTALL)

Item = TypeVar("Item")
Result = TypeVar("Result")


def file_path(text: str) -> str:
    """Return the path in a file:// URL, percent-decoded (RFC 8089). Return any other text unchanged.

    Raises:
        InvalidInput: The URL has no absolute path, or the host of another machine.
    """
    if text[:7].lower() != "file://":
        return text
    match = _FILE.fullmatch(text)
    if match is None:
        raise InvalidInput("a file:// URL names an absolute path on this machine: file:///folder/file")
    return os.fsdecode(unquote_to_bytes(os.fsencode(match[1])))


def in_turn(
    function: Callable[[Item], Iterable[Result]], items: Iterable[tuple[Item, int | None]]
) -> Iterator[Result]:
    """Yield the results of all items in order: remote items by many threads, local ones in the caller's thread.

    No thread is started before the first remote item.

    Args:
        function: Returns the results of an item. For a local item this is an iterator that does its work when the
            item's turn comes.
        items: The items, each with the number of bytes of memory that its results take; None for a local item.
    """
    items = iter(items)
    for item, cost in items:
        if cost is not None:
            costed = ((later, later_cost or 0) for later, later_cost in items)
            for results in fetched(function, chain([(item, cost)], costed)):
                yield from results
            return
        yield from function(item)


class ListedUrls:
    """Finds and opens the files at the URLs of one list (--files-from). Safe to share between threads."""

    def __init__(self, context: SourceContext) -> None:
        """Store the settings. No request is sent.

        Args:
            context: Provides the prefix, the options in cafcat.toml for a URL, and a filter, which is matched with
                the names without the prefix.
        """
        self._prefix = folder_prefix(member_name(context.prefix)[0])
        self._filter = context.filter
        self._context = context
        self._lock = Lock()
        self._kinds: dict[str, SourceKind | None] = {}
        self._files: dict[str, UrlFiles] = {}

    def is_url(self, text: str) -> bool:
        """Return True if a text is the URL of a registered kind of source. Anything else is a path."""
        scheme = scheme_of(text)
        return scheme is not None and self._kind(scheme) is not None

    def name_of(self, url: str) -> str | None:
        """Return the name of the file at a URL in the catalog, without the prefix; None if it has none."""
        try:
            return self._files_of(url).name_of(url)
        except InvalidInput:
            return None

    def find(self, url: str) -> Iterable[SourceFile | FileProblem]:
        """Request properties of the file at a URL, and return the file, or the problem if it cannot be ingested.

        Returns:
            One file or one problem; nothing if the filter excludes the file.

        Raises:
            AccessDenied: The credentials are refused.
        """
        try:
            files = self._files_of(url)
        except InvalidInput as error:
            return [FileProblem(shown_url(url), ProblemKind.NAME, error.message)]
        try:
            name = files.name_of(url)
            refused = _refused(name) or check_name(self._prefix + name)
        except InvalidInput as error:
            return [FileProblem(files.shown(url), ProblemKind.NAME, error.message)]
        if self._filter is not None and not self._filter.includes(name):
            return []
        path = self._prefix + name
        if refused:
            return [FileProblem(printable(path) if name else files.shown(url), ProblemKind.NAME, refused)]
        try:
            return [files.look(SourceFile(path, 0, 0, url))]
        except SourceFailed as error:
            return [FileProblem(printable(path), ProblemKind(error.problem), error.message)]

    def root_of(self, file: SourceFile) -> str:
        """Return the root of a file that `find` returned: the part of its URL that its name does not repeat."""
        return self._files_of(file.locator).root_of(file)

    def open(self, file: SourceFile) -> OpenFile:
        """Open a file that `find` returned.

        Raises:
            SourceFailed: The file has changed, vanished or cannot be read.
            AccessDenied: The credentials are refused.
        """
        return self._files_of(file.locator).open(file)

    def _files_of(self, url: str) -> UrlFiles:
        scheme = scheme_of(url) or ""
        kind = self._kind(scheme)
        if kind is None:
            raise InvalidInput(f"there is no kind of source for the scheme {scheme!r}")
        with self._lock:
            if scheme not in self._files:
                self._files[scheme] = kind.url_files(self._context)
            return self._files[scheme]

    def _kind(self, scheme: str) -> SourceKind | None:
        with self._lock:
            if scheme not in self._kinds:
                self._kinds[scheme] = find_kind(scheme)
            return self._kinds[scheme]


def _refused(name: str) -> str | None:
    """Return why a name made of a URL is refused; None if the name is allowed."""
    if not name:
        return "the URL names no object"
    if ".." in name.split("/"):
        return "the name has a part '..'"
    return "the URL names a folder" if name.endswith("/") else None
