"""The protocols of sources: files to ingest, and optional capabilities.

Every source is a Source. Except for `cafcat/scanning/opening.py`, code outside `cafcat/sources` does not depend on
the kind of source. It checks whether a source has one of the capabilities below.

A SourceFailed that is raised when a file is opened or read concerns this file alone. Any other CafcatError then,
and any error of the listing, means that the source fails as a whole.
"""

from collections.abc import Iterable, Iterator, Sequence
from types import TracebackType
from typing import Final, NamedTuple, Protocol, Self, TypeVar, runtime_checkable

from cafcat.errors import SourceFailed
from cafcat.model import FileProblem, NewFile, SourceFile

__all__ = [
    "BATCH_FILES",
    "BATCH_SECONDS",
    "BatchingSource",
    "BrowsableSource",
    "ListedPage",
    "LocalSource",
    "OpenFile",
    "Opener",
    "PrefetchingSource",
    "ReadOnceSource",
    "ReadingOpener",
    "ResumableSource",
    "RootedSource",
    "ShareableSource",
    "Source",
    "WholeFolderSource",
    "as_whole_folder",
    "open_or_error",
]

BATCH_FILES: Final = 5_000
"""Largest number of files in a batch of a listing. One query compares them with the catalog."""
BATCH_SECONDS: Final = 2.0
"""How long the listing of a batch may take, in seconds. Between batches, the caller looks whether the user ends the
operation."""

OpenedFile = TypeVar("OpenedFile")
OpenedFile_co = TypeVar("OpenedFile_co", covariant=True)


class OpenFile(Protocol):
    """An opened file of a source. Use it in a `with` statement, which closes it, and read it once.

    Size, time and entity tag are those of the version that is read. Reading raises SourceFailed if the file has
    changed to another version.
    """

    @property
    def size_bytes(self) -> int:
        """Size of the file in bytes."""

    @property
    def modified_ns(self) -> int | None:
        """Time of the last modification, in nanoseconds since 1970 UTC. None if the source has no time."""

    @property
    def etag(self) -> str | None:
        """Entity tag of the file, without quotes. None if the source has none."""

    def read(self) -> bytes:
        """Return all bytes of the file. Raises SourceFailed if the file has changed or cannot be read."""

    def blocks(self) -> Iterator[bytes]:
        """Yield all bytes of the file in blocks of at most 1 MiB.

        The blocks are valid only if the iteration ends without an error.

        Raises:
            SourceFailed: The file has changed or cannot be read.
        """

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Opener(Protocol):
    """Opens the files that a source yielded, also in another process if the opener can be pickled."""

    def open(self, file: SourceFile) -> OpenFile:
        """Open a file that `Source.files` yielded.

        Raises:
            SourceFailed: The file has changed, has vanished, cannot be read, or is not a regular file any more.
        """


class Source(Opener, Protocol):
    """A source: it lists the files to ingest, and opens them."""

    @property
    def name(self) -> str:
        """Name of the source, for messages and `ingest_runs.sources`.

        This is the typed name with escapes for unprintable characters, "standard input", or "--files-from LIST".
        """

    def files(self) -> Iterator[SourceFile | FileProblem]:
        """Yield the files to ingest, and a FileProblem in place of each file or folder that cannot be ingested.

        Files that a filter excludes are not yielded. An error is raised only if the source fails as a whole.
        """


@runtime_checkable
class ReadingOpener(Opener, Protocol):
    """An opener that can read small files at once, which is cheaper than to open them first."""

    def read_each(self, files: Iterable[SourceFile]) -> Iterator[NewFile | OpenFile | SourceFailed]:
        """Yield one result for each file, in order.

        The result is a NewFile for a small file that was read and has not changed since it was listed. Otherwise it
        is the opened file, or the error of opening it.
        """


@runtime_checkable
class ShareableSource(Source, Protocol):
    """A source whose files can also be opened by other processes."""

    @property
    def opener(self) -> Opener:
        """Opens files of the source, also in another process: it can be pickled."""


@runtime_checkable
class ColumnarSource(Source, Protocol):
    """A source that can list its files in columns, which takes less time."""

    @property
    def root(self) -> str:
        """The root of all files (`RootedSource.root_of`)."""

    def column_batches(self) -> Iterator[Sequence[SourceFile | FileProblem]] | None:
        """Return all files and problems of `Source.files` in batches of at most 5,000; None if it cannot."""


@runtime_checkable
class BatchingSource(Source, Protocol):
    """A source that yields its files in batches of its own, such as the pages of a bucket's listing."""

    def batches(self) -> Iterator[Sequence[SourceFile | FileProblem]]:
        """Yield all files and problems of `files()` in lists.

        The files of a list can be opened at least until the next list is requested. If the source is a tar that is
        read once, they cannot be opened later.
        """


@runtime_checkable
class PrefetchingSource(Source, Protocol):
    """A source whose files take long to open, as over a network, so that many are requested at the same time."""

    def open_each(self, files: Iterable[SourceFile]) -> Iterator[OpenFile | SourceFailed]:
        """Yield the opened file, or the SourceFailed of opening it, for each file, in order.

        Later files are requested ahead, up to a number of requests and bytes of memory. `files` is iterated in the
        thread of the caller.
        """


@runtime_checkable
class ReadOnceSource(Source, Protocol):
    """A source from which a large file can be read only once, unless `buffer` is called before."""

    def buffer(self, file: SourceFile) -> None:
        """Let a file of the present batch be opened and read several times, until the next batch is requested.

        Contents that are not in memory are copied when they are first read, to memory or to a temporary file.
        """


@runtime_checkable
class RootedSource(Source, Protocol):
    """A source that can distinguish its files from files with the same names elsewhere."""

    def root_of(self, file: SourceFile) -> str:
        """Return the root of a file: the part of its location that its name in the catalog does not repeat.

        Files with the same root and path are the same file at different times. `cafcat/sources/roots.py` has
        examples.
        """


@runtime_checkable
class ResumableSource(Source, Protocol):
    """A source with a long listing that can continue where it was interrupted."""

    def position_of(self, file: SourceFile) -> str | None:
        """Return the position after a file, from which a later listing can continue; None if it cannot."""


@runtime_checkable
class WholeFolderSource(Source, Protocol):
    """A source that may list all files of one folder of the catalog, so that missing files can be found."""

    @property
    def catalog_folder(self) -> str | None:
        """The folder of the catalog whose files the source lists completely, with a slash at its end.

        The files come in ascending order of their paths. So a file that the catalog has in this folder, that the
        source includes, and that it yields neither as a file nor as a problem, is missing at the source. "" is the
        whole catalog. None if the source does not list a whole folder in order.
        """

    @property
    def root(self) -> str:
        """The root of all files (`RootedSource.root_of`)."""

    def includes(self, path: str) -> bool:
        """Return False if the source leaves out files of this path, because of a filter.

        Args:
            path: Path of a file of the catalog in `catalog_folder`.
        """

    def has(self, path: str) -> bool:
        """Return True if the source has a file of this path now, although its listing may not have had the file.

        False for a source whose listings are complete, such as a bucket.

        Args:
            path: Path of a file of the catalog in `catalog_folder`.
        """


def as_whole_folder(source: Source) -> WholeFolderSource | None:
    """Return the source if it lists all files of a folder of the catalog; None for any other source."""
    return source if isinstance(source, WholeFolderSource) and source.catalog_folder is not None else None


class ListedPage(NamedTuple):
    """A part of one folder of a source.

    Attributes:
        files: The files in the folder itself, and problems in place of files that cannot be ingested.
        folders: The folders directly below it, as `BrowsableSource.page` takes them.
        names: Names of all files and folders of the page, the excluded ones included, in ascending byte order.
        is_last: True if no name comes after those of the page.
    """

    files: Sequence[SourceFile | FileProblem]
    folders: Sequence[str]
    names: Sequence[str]
    is_last: bool


@runtime_checkable
class BrowsableSource(Source, Protocol):
    """A source whose folders can be listed one by one, so that its size can be estimated from some of them."""

    @property
    def top_folder(self) -> str | None:
        """The folder that has all files of the source, as `page` takes it. None if the folders cannot be listed."""

    def page(self, folder: str, after: str | None = None) -> ListedPage:
        """Return a part of a folder. Threads may call this at the same time.

        Args:
            folder: The folder: `top_folder`, or one of the `folders` of another page.
            after: Only list names after this one, which need not exist. None: list from the beginning.

        Raises:
            AccessDenied, NotFound, StoreFailed, SourceFailed: The folder cannot be listed.
        """


@runtime_checkable
class LocalSource(Source, Protocol):
    """A source of files that other programs on this machine can open, too."""

    @property
    def locators_are_paths(self) -> bool:
        """True if `SourceFile.locator` of each file is the path of the file on this machine."""


class _OpenerOf(Protocol[OpenedFile_co]):
    """An Opener whose opened files have a known type."""

    def open(self, file: SourceFile) -> OpenedFile_co: ...


def open_or_error(opener: _OpenerOf[OpenedFile], file: SourceFile) -> OpenedFile | SourceFailed:
    """Open a file with an opener. If that fails with a SourceFailed, return the error instead of raising it."""
    try:
        return opener.open(file)
    except SourceFailed as error:
        return error
