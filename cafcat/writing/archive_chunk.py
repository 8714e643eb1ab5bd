"""A chunk whose object is one archive of logs that another program has finished."""

from collections.abc import Iterable

from cafcat.formats.base import FinishedArchive
from cafcat.model import ArchiveUnits, Entry
from cafcat.progress import Progress
from cafcat.writing.chunk import BegunChunk

__all__ = ["ArchiveChunk"]


class ArchiveChunk(BegunChunk):
    """A chunk that is being written, from an archive of logs that is complete already.

    The names in such an archive are section names, which are the same in every archive. Their paths in the catalog
    therefore begin with the object's key.
    """

    def write(
        self,
        blocks: Iterable[bytes],
        entries: Iterable[Entry],
        units: ArchiveUnits,
        progress: Progress,
    ) -> None:
        """Write the whole archive into the object of the chunk. Call this once, before `finish`.

        Args:
            blocks: All bytes of the archive, in order.
            entries: All entries of the archive.
            units: Log files and time ranges of the archive.
            progress: Its checkpoint is called after each block, and may raise. Then the caller abandons the chunk.

        Raises:
            Conflict: Another process has the lease of the chunk now, or the chunk is not being written any more.
            StoreFailed, AccessDenied: The store does not accept the bytes.
        """
        for block in blocks:
            self._sink.write(block)
            self.check_lease()
            progress.checkpoint()
        for entry in sorted(entries):
            self._mapping.add(entry._replace(path=self._key + entry.path))
        self._units = units

    def _finalize(self) -> FinishedArchive:
        """Return sizes and entry count of the archive. This writes nothing, because the archive is complete.

        The archive has no index at its end, so the returned span of the index is empty.
        """
        size = self._sink.size_bytes
        return FinishedArchive(size, size, size, self.file_count, self._mapping.size_bytes)
