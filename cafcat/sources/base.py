"""The protocols of sources: files to ingest, and optional capabilities.

Every source is a Source. Code outside `cafcat/sources` does not depend on the kind of source. It checks whether a
source has one of the capabilities below.
"""

from collections.abc import Iterable, Iterator, Sequence
from types import TracebackType
from typing import Protocol, Self, TypeVar, runtime_checkable

from cafcat.errors import SourceFailed
from cafcat.model import FileProblem, NewFile, SourceFile

__all__ = [
    "BatchingSource",
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
    "open_or_error",
]

OpenedFile = TypeVar("OpenedFile")
OpenedFile_co = TypeVar("OpenedFile_co", covariant=True)


class OpenFile(Protocol):
    """An opened file of a source.

    Size, time and entity tag are those at the time of opening. Reading raises SourceFailed if the file turns out to
    be different.
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
        """Return all bytes of the file. Raises SourceFailed if the file has changed, or cannot be read."""

    def blocks(self) -> Iterator[bytes]:
        """Yield all bytes of the file in blocks of at most 1 MiB.

        The blocks are valid only if no SourceFailed follows.

        Raises:
            SourceFailed: The file has changed, or cannot be read.
        """

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Opener(Protocol):
    """Opens the files that a source found. An opener may be sent to another process, where the source is not."""

    def open(self, file: SourceFile) -> OpenFile:
        """Open a file that `Source.files` yielded.

        Raises:
            SourceFailed: The file has vanished, cannot be read, or is not a regular file any more.
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

        Files that the source leaves out, for instance because of a filter, are not yielded. A single file that
        cannot be read does not raise an error.
        """


@runtime_checkable
class ReadingOpener(Opener, Protocol):
    """An opener for files that are cheaper to read at once than to open first."""

    def read_each(self, files: Iterable[SourceFile]) -> Iterator[NewFile | OpenFile | SourceFailed]:
        """Yield one result for each file, in order.

        Returns:
            A NewFile for a file that was read and has not changed since it was found. Otherwise the opened file, or
            the error.
        """


@runtime_checkable
class ShareableSource(Source, Protocol):
    """A source whose files can also be opened by other processes."""

    @property
    def opener(self) -> Opener:
        """Opens files of the source, also in another process: it can be pickled."""


@runtime_checkable
class BatchingSource(Source, Protocol):
    """A source that yields its files in batches, such as the pages of a bucket's listing.

    If the source is read once, from front to back, a file can be opened only until the next batch is requested.
    """

    def batches(self) -> Iterator[Sequence[SourceFile | FileProblem]]:
        """Yield all files and problems of `files()` in lists.

        The files of a list can be opened at least until the next list is requested.
        """


@runtime_checkable
class PrefetchingSource(Source, Protocol):
    """A source whose files take long to open, as over a network, so that many are requested at the same time."""

    def open_each(self, files: Iterable[SourceFile]) -> Iterator[OpenFile | SourceFailed]:
        """Yield the opened file, or the error, for each file, in order.

        Later files are requested ahead, as far as memory allows. `files` is iterated in the thread of the caller.
        """


@runtime_checkable
class ReadOnceSource(Source, Protocol):
    """A source of which a large file can be read only once."""

    def buffer(self, file: SourceFile) -> None:
        """Let a file of the last batch be opened several times, until the next batch is requested.

        Contents that are not in memory are copied to a temporary file when they are first read.
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

    def position_of(self, file: SourceFile) -> str:
        """Return the position after a file, from which a later listing of the source can continue."""


@runtime_checkable
class WholeFolderSource(Source, Protocol):
    """A source that can supply every file of one folder of the catalog."""

    @property
    def catalog_folder(self) -> str | None:
        """The folder of the catalog, with a slash at its end.

        The source supplies every file of this folder, in ascending order of their paths. So a path of the folder
        that the source skips is missing at the source. None if the source does not supply a whole folder in order.
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
