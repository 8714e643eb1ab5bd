"""Yields the files of a source in batches, and opens or reads them, one after the other or many at once."""

from collections.abc import Generator, Iterable, Iterator, Sequence
from time import monotonic
from typing import TypeVar

from cafcat.errors import CafcatError, SourceFailed
from cafcat.model import FileProblem, NewFile, SourceFile
from cafcat.sources.base import (
    BATCH_FILES,
    BATCH_SECONDS,
    BatchingSource,
    ColumnarSource,
    Opener,
    OpenFile,
    PrefetchingSource,
    ReadingOpener,
    Source,
    open_or_error,
)

__all__ = ["OpenResult", "SourceBroke", "batches_of", "blocks_of", "open_each", "read_each"]

OpenResult = OpenFile | SourceFailed
"""An opened file of a source, or the reason why it could not be opened."""
Item = TypeVar("Item")


class SourceBroke(Exception):
    """A source failed as a whole, so that no further file of it can be found or read.

    Attributes:
        reason: The error of the source.
    """

    def __init__(self, reason: CafcatError) -> None:
        super().__init__(str(reason))
        self.reason = reason


def batches_of(source: Source) -> Iterator[Sequence[SourceFile | FileProblem]]:
    """Yield all files and problems of a source, in lists of at most 5,000 or in the source's own batches.

    Files and problems that the source found before an error are yielded before the error is raised. A list may be
    empty.

    Raises:
        SourceBroke: The source failed before its end.
    """
    batches = None
    if isinstance(source, BatchingSource):
        batches = source.batches()
    elif isinstance(source, ColumnarSource):
        batches = source.column_batches()
    return _guarded(_grouped(source.files()) if batches is None else batches)


def open_each(source: Opener, files: Iterable[SourceFile]) -> Generator[OpenResult, None, None]:
    """Open files of a source, and yield the opened file, or a SourceFailed, for each of them in order.

    A PrefetchingSource opens files ahead. The caller must close the generator.

    Raises:
        SourceBroke: No further file of the source can be opened.
    """
    if isinstance(source, PrefetchingSource):
        return _guarded(source.open_each(files))
    return _guarded(open_or_error(source, file) for file in files)


def read_each(opener: Opener, files: Sequence[SourceFile]) -> Generator[NewFile | OpenResult, None, None]:
    """Read or open files of a source, and yield one result for each of them in order.

    The result is a NewFile for a file that was read at once, the opened file for any other, or a SourceFailed. The
    caller must close the generator.

    Raises:
        SourceBroke: No further file of the source can be opened.
    """
    if isinstance(opener, ReadingOpener):
        return _guarded(opener.read_each(files))
    return open_each(opener, files)


def blocks_of(opened: OpenFile) -> Iterator[bytes]:
    """Yield the content of an opened file in blocks of at most 1 MiB.

    Raises:
        SourceFailed: This file cannot be read, or has changed. The blocks before are invalid then.
        SourceBroke: No further file of the source can be read.
    """
    try:
        yield from opened.blocks()
    except SourceFailed:
        raise
    except CafcatError as error:
        raise SourceBroke(error) from error


def _grouped(items: Iterator[SourceFile | FileProblem]) -> Iterator[Sequence[SourceFile | FileProblem]]:
    """Yield the items in lists of at most 5,000. A slow source is waited for no longer than two seconds a list.

    The caller looks between lists whether the user ends the operation.
    """
    batch: list[SourceFile | FileProblem] = []
    begun = monotonic()
    try:
        for item in items:
            batch.append(item)
            if len(batch) == BATCH_FILES or monotonic() - begun > BATCH_SECONDS:
                yield batch
                batch = []
                begun = monotonic()
    except CafcatError:
        yield batch  # the files before the error are valid
        raise
    yield batch


def _guarded(items: Iterator[Item]) -> Generator[Item, None, None]:
    try:
        yield from items
    except CafcatError as error:
        raise SourceBroke(error) from error
