"""What a run takes from its sources: files in batches, opened one after the other or many at once."""

from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import Final, TypeVar

from cafcat.errors import CafcatError, SourceFailed
from cafcat.model import FileProblem, NewFile, SourceFile
from cafcat.sources.base import (
    BatchingSource,
    Opener,
    OpenFile,
    PrefetchingSource,
    ReadingOpener,
    Source,
    open_or_error,
)

__all__ = ["Opened", "SourceBroke", "batches_of", "blocks_of", "open_each", "read_each"]

BATCH_FILES: Final = 5_000
"""So many files are decided by one query."""

Opened = OpenFile | SourceFailed
Item = TypeVar("Item")


class SourceBroke(Exception):
    """A source ended before its end; `reason` is its error."""

    def __init__(self, reason: CafcatError) -> None:
        super().__init__(str(reason))
        self.reason = reason


def batches_of(source: Source) -> Iterator[Sequence[SourceFile | FileProblem]]:
    """All that a source has, in groups. Raises SourceBroke."""
    batches = source.batches() if isinstance(source, BatchingSource) else _grouped(source.files())
    return _guarded(batches)


def open_each(source: Opener, files: Iterable[SourceFile]) -> Generator[Opened, None, None]:
    """A result for each of the files, in order. To be closed. Raises SourceBroke."""
    if isinstance(source, PrefetchingSource):
        return _guarded(source.open_each(files))
    return _guarded(open_or_error(source.open, file) for file in files)


def read_each(opener: Opener, files: Sequence[SourceFile]) -> Generator[NewFile | Opened, None, None]:
    """The same; a file may be read already."""
    if isinstance(opener, ReadingOpener):
        return _guarded(opener.read_each(files))
    return open_each(opener, files)


def blocks_of(opened: OpenFile) -> Iterator[bytes]:
    """Its blocks. Raises SourceFailed for what is wrong with the file, SourceBroke for what is wrong with all."""
    try:
        yield from opened.blocks()
    except SourceFailed:
        raise
    except CafcatError as error:
        raise SourceBroke(error) from error


def _grouped(items: Iterator[SourceFile | FileProblem]) -> Iterator[Sequence[SourceFile | FileProblem]]:
    batch: list[SourceFile | FileProblem] = []
    try:
        for item in items:
            batch.append(item)
            if len(batch) == BATCH_FILES:
                yield batch
                batch = []
    except CafcatError:
        yield batch  # what came before the end is as good as ever
        raise
    yield batch


def _guarded(items: Iterator[Item]) -> Generator[Item, None, None]:
    try:
        yield from items
    except CafcatError as error:
        raise SourceBroke(error) from error
