"""URLs in a list of names: each kind of source opens those of its scheme."""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from threading import Lock
from typing import Final, TypeVar
from urllib.parse import unquote_to_bytes

from cafcat.errors import InvalidInput, SourceFailed
from cafcat.model import FileProblem, ProblemKind, SourceFile
from cafcat.sources.base import OpenFile, open_or_error
from cafcat.sources.fetched import fetched
from cafcat.sources.filter import PathFilter
from cafcat.sources.kind import SourceContext, SourceKind, UrlFiles
from cafcat.sources.names import check_name, folder_prefix, member_name, printable, url_without_user
from cafcat.sources.registry import find_kind, scheme_of

__all__ = ["ListedUrls", "file_path", "in_turn"]

_FILE: Final = re.compile(r"file://(?:localhost)?(/.*)", re.IGNORECASE | re.DOTALL)

Item = TypeVar("Item")
Result = TypeVar("Result")


def file_path(text: str) -> str:
    """Return the path that a file:// URL means, percent-decoded (RFC 8089). Return any other text unchanged.

    Raises:
        InvalidInput: The URL names a file of another machine.
    """
    if text[:7].lower() != "file://":
        return text
    match = _FILE.fullmatch(text)
    if match is None:
        raise InvalidInput("a file:// URL names an absolute path on this machine: file:///folder/file")
    return os.fsdecode(unquote_to_bytes(os.fsencode(match[1])))


def in_turn(
    items: Iterable[Item],
    is_remote: Callable[[Item], bool],
    local: Callable[[Item], Iterator[Result]],
    remote: Callable[[Item], Iterable[Result]],
    cost: Callable[[Item], int],
) -> Iterator[Result]:
    """Yield the results of all items in order: remote items by many threads, local ones in the caller's thread.

    No thread is started before the first remote item.

    Args:
        items: The items.
        is_remote: True for an item that is requested over a network.
        local: Yields the results of a local item. It runs when the item's turn comes.
        remote: Returns the results of a remote item. It runs in a thread.
        cost: Returns how many bytes of memory the results of a remote item take.
    """
    items = iter(items)
    for item in items:
        if is_remote(item):
            break
        yield from local(item)
    else:
        return

    def begun(item: Item) -> Iterable[Result]:
        return remote(item) if is_remote(item) else local(item)

    def cost_of(item: Item) -> int:
        return cost(item) if is_remote(item) else 0

    for results in fetched(begun, chain([item], items), cost_of):
        yield from results


class ListedUrls:
    """The URLs of one list. Safe to share between threads."""

    def __init__(
        self, *, prefix: str, filter: PathFilter | None, options_of: Callable[[str], Mapping[str, str]]
    ) -> None:
        """Prepare without a request.

        Args:
            prefix: Folder of the catalog that the names are put into.
            filter: Which files to ingest, by their names without the prefix. None: all.
            options_of: Returns the options in cafcat.toml for a URL.
        """
        self._prefix = folder_prefix(member_name(prefix)[0])
        self._filter = filter
        self._context = SourceContext(prefix=prefix, filter=filter, options_of=options_of)
        self._lock = Lock()
        self._kinds: dict[str, SourceKind | None] = {}
        self._files: dict[str, UrlFiles] = {}

    def is_url(self, text: str) -> bool:
        """Return True if a text is the URL of a registered kind of source. Anything else is a path."""
        scheme = scheme_of(text)
        return scheme is not None and self._kind(scheme) is not None

    def find(self, url: str) -> Iterable[SourceFile | FileProblem]:
        """Return one file or one problem for a URL, or nothing if the filter does not match.

        Raises:
            AccessDenied: The credentials are refused.
        """
        try:
            files = self._files_of(url)
        except InvalidInput as error:
            return [FileProblem(url_without_user(url.partition("?")[0]), ProblemKind.NAME, error.message)]
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
        """Return the root of a file that `find` returned: see `RootedSource`."""
        return self._files_of(file.locator).root_of(file)

    def open(self, file: SourceFile) -> OpenFile:
        """Open a file that `find` returned.

        Raises:
            SourceFailed: The file has changed, vanished or cannot be read.
            AccessDenied: The credentials are refused.
        """
        return self._files_of(file.locator).open(file)

    def open_or_error(self, file: SourceFile) -> Iterable[OpenFile | SourceFailed]:
        """Return the opened file, or the SourceFailed that `open` raises, as the only item of a list."""
        return [open_or_error(self.open, file)]

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
    """Return why a name made of a URL is refused, or None."""
    if not name:
        return "the URL names no object"
    if ".." in name.split("/"):
        return "the name has a part '..'"
    return "the URL names a folder" if name.endswith("/") else None
