"""What a source is: files that are ingested."""

from collections.abc import Callable, Iterable, Iterator, Sequence
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

Opened = TypeVar("Opened")


class OpenFile(Protocol):
    """A file of a source, opened. Size, time and entity tag are as of opening it, and are promises: a file that
    turns out otherwise raises SourceFailed."""

    @property
    def size_bytes(self) -> int: ...

    @property
    def modified_ns(self) -> int | None: ...

    @property
    def etag(self) -> str | None: ...

    def read(self) -> bytes:
        """All `size_bytes` bytes. Raises SourceFailed if the file changed meanwhile."""

    def blocks(self) -> Iterator[bytes]:
        """The same in blocks of at most 1 MiB; what was yielded counts only if no error follows."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Opener(Protocol):
    """What a file that a source found is opened with."""

    def open(self, file: SourceFile) -> OpenFile:
        """Opens a file that the source's `files` gave. Raises SourceFailed, also when it is no longer a regular
        file."""


class Source(Opener, Protocol):
    """Something to ingest."""

    @property
    def name(self) -> str:
        """As typed, for `ingest_runs.sources`."""

    def files(self) -> Iterator[SourceFile | FileProblem]:
        """All files, and all that cannot be one, each once. Never raises for a single file."""


@runtime_checkable
class ReadingOpener(Opener, Protocol):
    """Reading a small file at once costs less than opening it."""

    def read_each(self, files: Iterable[SourceFile]) -> Iterator[NewFile | OpenFile | SourceFailed]:
        """One result for each file, in order; NewFile for one that was read, and is what it was when it was
        found."""


@runtime_checkable
class ShareableSource(Source, Protocol):
    """A source whose files other processes can open, too."""

    @property
    def opener(self) -> Opener:
        """Picklable."""


@runtime_checkable
class BatchingSource(Source, Protocol):
    """A source that is read once, front to back: what it gave can be opened only until it gives more."""

    def batches(self) -> Iterator[Sequence[SourceFile | FileProblem]]:
        """All of `files()` in groups. The files of a group can be opened until the next group is asked for."""


@runtime_checkable
class PrefetchingSource(Source, Protocol):
    """A source where each file is a long way to go, and many can be under way at once."""

    def open_each(self, files: Iterable[SourceFile]) -> Iterator[OpenFile | SourceFailed]:
        """Opens the files, in order: one result for each, looking ahead as far as memory allows. `files` is
        taken from in the caller's thread."""


@runtime_checkable
class ReadOnceSource(Source, Protocol):
    """A source of which a large file can be read only once."""

    def keep(self, file: SourceFile) -> None:
        """Let a file of the last batch be opened several times, until the next batch is asked for. Contents that
        the source does not have in memory go to a temporary file when they are first read."""


@runtime_checkable
class RootedSource(Source, Protocol):
    """A source that can tell its files apart from files of the same names elsewhere."""

    def root_of(self, file: SourceFile) -> str:
        """Return the root of a file, as sources/roots.py has it: files of one root and one path are the same file
        at different times."""


@runtime_checkable
class ResumableSource(Source, Protocol):
    """A source whose listing is long, and can go on where it was interrupted."""

    def position_of(self, file: SourceFile) -> str:
        """Where a listing goes on that has come past this file."""


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
        """True if `SourceFile.locator` of each file is its path."""


def open_or_error(open_file: Callable[[SourceFile], Opened], file: SourceFile) -> Opened | SourceFailed:
    """What `open_file` gives, or the SourceFailed that it raises: a result for each of many files."""
    try:
        return open_file(file)
    except SourceFailed as error:
        return error
