"""Files of sources in batches, opened one after the other or many at the same time."""

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

__all__ = ["OpenResult", "SourceBroke", "batches_of", "blocks_of", "open_each", "read_each"]

BATCH_FILES: Final = 5_000
"""How many files are compared with the catalog by one query."""

OpenResult = OpenFile | SourceFailed
"""An opened file, or the error for it."""
Item = TypeVar("Item")


class SourceBroke(Exception):
    """A source ended too early. `reason` is its error."""

    def __init__(self, reason: CafcatError) -> None:
        super().__init__(str(reason))
        self.reason = reason


def batches_of(source: Source) -> Iterator[Sequence[SourceFile | FileProblem]]:
    """Yield all files and problems of a source, in groups. Raises SourceBroke if the source ends too early."""
    batches = source.batches() if isinstance(source, BatchingSource) else _grouped(source.files())
    return _guarded(batches)


def open_each(source: Opener, files: Iterable[SourceFile]) -> Generator[OpenResult, None, None]:
    """Yield the opened file, or the error, for each file in order. The caller must close the generator.

    Raises:
        SourceBroke: The source ended too early.
    """
    if isinstance(source, PrefetchingSource):
        return _guarded(source.open_each(files))
    return _guarded(open_or_error(source, file) for file in files)


def read_each(opener: Opener, files: Sequence[SourceFile]) -> Generator[NewFile | OpenResult, None, None]:
    """Yield one result for each file as `open_each`, or a NewFile for a file that was read at once."""
    if isinstance(opener, ReadingOpener):
        return _guarded(opener.read_each(files))
    return open_each(opener, files)


def blocks_of(opened: OpenFile) -> Iterator[bytes]:
    """Yield the blocks of an opened file.

    Raises:
        SourceFailed: This file cannot be read.
        SourceBroke: No file of the source can be read.
    """
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
        yield batch  # the files before the error are valid
        raise
    yield batch


def _guarded(items: Iterator[Item]) -> Generator[Item, None, None]:
    try:
        yield from items
    except CafcatError as error:
        raise SourceBroke(error) from error
