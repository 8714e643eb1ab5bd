"""Comparison of files by checksum, if size and time cannot show whether a file changed."""

from collections.abc import Mapping, Sequence
from contextlib import closing, nullcontext
from typing import Final

from cafcat.errors import SourceFailed
from cafcat.model import NewFile, SourceFile
from cafcat.scanning.batches import OpenResult, blocks_of, read_each
from cafcat.session import Session
from cafcat.sources.base import ReadOnceSource, Source
from cafcat.support.checksums import crc32c

__all__ = ["ContentComparison"]

_ASSIGNED: Final = 1_000
"""Number of files whose new source is written to the catalog in one statement."""


class ContentComparison:
    """Compares files of sources with the checksums that the catalog has."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._sources = session.catalog.sources
        self._verdicts: dict[tuple[SourceFile, int], bool] = {}
        self._file_count = 0

    def differing(
        self, source: Source, batch: Sequence[SourceFile], source_ids: Sequence[int], doubtful: Mapping[int, int]
    ) -> set[int]:
        """Read the doubtful files of a batch.

        Files with the same content are assigned to the source that they were read from.

        Args:
            source: The source of the batch.
            batch: Files of the source.
            source_ids: `sources.id` of each file of the batch.
            doubtful: CRC-32C in the catalog of each doubtful file, by its position in the batch.

        Returns:
            Positions of the files that have other content or could not be read. Packing them reports the reason.
            The set is incomplete if the user ended the operation meanwhile.

        Raises:
            SourceBroke: The source ended before its end.
        """
        self._read(source, [(batch[n], checksum) for n, checksum in doubtful.items()])
        same: dict[int, list[tuple[str, int]]] = {}
        differing = set()
        for n, checksum in doubtful.items():
            if self._verdicts.get((batch[n], checksum)):
                same.setdefault(source_ids[n], []).append((batch[n].path, checksum))
            else:
                differing.add(n)
        for source_id, files in same.items():
            for begin in range(0, len(files), _ASSIGNED):
                self._sources.assign(source_id, files[begin : begin + _ASSIGNED])
        return differing

    def forget(self) -> int:
        """Forget the results of a finished batch. Returns the number of files that were read for it."""
        count, self._file_count = self._file_count, 0
        self._verdicts.clear()
        return count

    def _read(self, source: Source, files: Sequence[tuple[SourceFile, int]]) -> None:
        """Read the files without a result, and remember whether they are equal."""
        files = [file for file in dict.fromkeys(files) if file not in self._verdicts]
        if isinstance(source, ReadOnceSource):
            for file, _ in files:
                source.buffer(file)
        with closing(read_each(source, [file for file, _ in files])) as opened:
            for (file, checksum), result in zip(files, opened, strict=False):
                with nullcontext() if isinstance(result, NewFile | SourceFailed) else result:
                    self._verdicts[file, checksum] = _checksum_of(result) == checksum
                self._file_count += 1
                self._session.progress.advance(0, file.size_bytes)
                if self._session.should_end():
                    return


def _checksum_of(opened: NewFile | OpenResult) -> int | None:
    """Return the CRC-32C of a file; None if the file cannot be read."""
    if isinstance(opened, NewFile):
        return crc32c(opened.content)
    checksum = 0
    try:
        if isinstance(opened, SourceFailed):
            raise opened
        for block in blocks_of(opened):
            checksum = crc32c(block, checksum)
    except SourceFailed:
        return None
    return checksum
