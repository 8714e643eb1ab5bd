"""Compares source files with the catalog by checksum, if size and time cannot show whether a file changed."""

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
"""Number of files whose `source_id` one statement changes in the catalog."""


class ContentComparison:
    """Reads files of sources, and compares their checksums with those in the catalog, for one ingest."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._sources = session.catalog.sources
        self._verdicts: dict[tuple[SourceFile, int], bool] = {}
        self._file_count = 0

    def differing(
        self, source: Source, batch: Sequence[SourceFile], source_ids: Sequence[int], doubtful: Mapping[int, int]
    ) -> set[int]:
        """Read the doubtful files of a batch, and return which of them have other content than the catalog has.

        In the catalog, each file with the same content is assigned to the source that it was read from.

        Args:
            source: The source of the batch.
            batch: Files of the source.
            source_ids: `sources.id` of each file of the batch.
            doubtful: The files to read: CRC-32C in the catalog of each, by its position in the batch.

        Returns:
            Positions of the files that have other content or could not be read. Packing a file that cannot be read
            reports why. If the user ended the operation meanwhile, files that were not read are among them, too.

        Raises:
            SourceBroke: No further file of the source can be read.
            CatalogUnavailable, CatalogOutdated: The database does not answer, or has another schema.
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
        """Forget the comparisons of a finished batch. Returns for how many files reading was tried."""
        count, self._file_count = self._file_count, 0
        self._verdicts.clear()
        return count

    def _read(self, source: Source, files: Sequence[tuple[SourceFile, int]]) -> None:
        """Read the files that were not compared yet, and remember whether each has the given checksum.

        If the user ends the operation, the files after the present one are not read.

        Args:
            source: The source of the files.
            files: Files with their CRC-32C in the catalog.
        """
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
    """Return the CRC-32C of a file's content; None if the file cannot be read. Raises SourceBroke."""
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
