"""What a source is: files that are ingested."""

from collections.abc import Iterator
from types import TracebackType
from typing import Protocol, Self

from cafcat.model import FileProblem, SourceFile

__all__ = ["OpenFile", "Source"]


class OpenFile(Protocol):
    """A file of a source, opened. Size and time are as of opening it, and are promises: a file that turns out
    otherwise raises SourceFailed."""

    size_bytes: int
    modified_ns: int

    def read(self) -> bytes:
        """All `size_bytes` bytes. Raises SourceFailed if the file changed meanwhile."""

    def blocks(self) -> Iterator[bytes]:
        """The same in blocks of at most 1 MiB; what was yielded counts only if no error follows."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Source(Protocol):
    """Something to ingest."""

    @property
    def name(self) -> str:
        """As typed, for `ingest_runs.sources`."""

    def files(self) -> Iterator[SourceFile | FileProblem]:
        """All files, and all that cannot be one, each once. Never raises for a single file."""

    def open(self, file: SourceFile) -> OpenFile:
        """Opens a file that `files` gave. Raises SourceFailed, also when it is no longer a regular file."""
