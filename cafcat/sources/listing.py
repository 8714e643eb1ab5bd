"""A list of files and folders, one name per line or between NUL bytes: --files-from."""

import os
import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import BinaryIO

from cafcat.errors import CafcatError, InvalidInput, NotFound, SourceFailed
from cafcat.model import FileProblem, ProblemKind, SourceFile
from cafcat.sources.files import OPEN_FLAGS, OpenedFile, problem_kind, reason
from cafcat.sources.filter import PathFilter
from cafcat.sources.names import folder_prefix, member_name, prefixed, printable, strip_warning
from cafcat.sources.walk import Walk

__all__ = ["ListingSource"]

_READ_BYTES = 1 << 16
_MAX_NAME_BYTES = 1 << 16
"""Far above what any system opens (4,096): a longer one means that this is no such list."""


class ListingSource:
    """Files and folders by name, as typed; folders are walked, as `tar -T` does.

    They come in the order of the list, and what is listed twice (a folder, then a file in it) comes twice.
    Patterns are matched with the whole name. A name that does not exist is one failed file; a symbolic link
    is skipped like any other unless links are followed.
    """

    def __init__(
        self,
        listing: str | BinaryIO,
        *,
        null_separated: bool = False,
        prefix: str = "",
        follow_symlinks: bool = False,
        filter: PathFilter | None = None,
        own_folders: Collection[str] = (),
        warn: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Args: listing: a file name, "-" for standard input, or an open binary stream (read once).

        Raises NotFound, InvalidInput or SourceFailed if the list itself cannot be opened.
        """
        self._listing = sys.stdin.buffer if listing == "-" else listing
        if isinstance(listing, str):
            self.name = f"--files-from {printable(listing)}"
        else:
            self.name = f"--files-from {printable(str(getattr(listing, 'name', 'stream')))}"
        self._separator = b"\0" if null_separated else b"\n"
        self._prefix = prefix
        self._relative_from = len(folder_prefix(prefixed(prefix, "")))
        self._walk = Walk(follow_symlinks=follow_symlinks, filter=filter, own_folders=own_folders)
        self._flags = OPEN_FLAGS if follow_symlinks else OPEN_FLAGS | os.O_NOFOLLOW
        self._warn = warn
        self._warned: set[bool] = set()
        with self._opened():
            pass

    def files(self) -> Iterator[SourceFile | FileProblem]:
        """Raises InvalidInput for a list with a name of more than 65,536 bytes, SourceFailed if the list
        itself cannot be read on."""
        with self._opened() as stream:
            for typed in map(os.fsdecode, self._names(stream)):
                yield from self._visit(typed)

    def open(self, file: SourceFile) -> OpenedFile:
        """Raises SourceFailed if it vanished, cannot be read, or is no longer a regular file."""
        return OpenedFile(file, self._flags)

    def _visit(self, typed: str) -> Iterator[SourceFile | FileProblem]:
        if "\0" in typed:
            yield FileProblem(printable(typed), ProblemKind.NAME, "the name contains a NUL byte")
            return
        name, removed = member_name(typed)
        if removed:
            self._warn_of(removed)
        yield from self._walk.visit(typed, prefixed(self._prefix, name), self._relative_from)

    def _warn_of(self, removed: str) -> None:
        """Once for leading slashes, once for "..": a long list may have any number of the latter."""
        kind = ".." in removed
        if kind not in self._warned:
            self._warned.add(kind)
            self._warn(strip_warning(removed))

    def _names(self, stream: BinaryIO) -> Iterator[bytes]:
        rest = b""
        while block := self._read(stream):
            *names, rest = (rest + block).split(self._separator)
            yield from filter(None, names)
            if len(rest) > _MAX_NAME_BYTES:
                raise InvalidInput(
                    f"{self.name}: a name is longer than {_MAX_NAME_BYTES:,} bytes",
                    hint="names are separated by newlines, or by NUL bytes with -0",
                )
        if rest:
            yield rest

    def _read(self, stream: BinaryIO) -> bytes:
        try:
            return stream.read(_READ_BYTES)
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
