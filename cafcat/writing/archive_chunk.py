"""A chunk that is an archive which is there already, as a whole."""

from collections.abc import Callable, Iterable

from cafcat.formats.base import FinishedArchive
from cafcat.model import ArchiveUnits, Entry
from cafcat.writing.chunk import BegunChunk

__all__ = ["ArchiveChunk"]


class ArchiveChunk(BegunChunk):
    """An archive of logs. Names in it are the same in every other one: the object's key comes before them."""

    def take(
        self,
        blocks: Iterable[bytes],
        entries: Iterable[Entry],
        units: ArchiveUnits,
        checkpoint: Callable[[], object],
    ) -> None:
        """Takes all of it, once. checkpoint: is called between blocks, and may raise to give the chunk up."""
        for block in blocks:
            self._sink.write(block)
            self.check_lease()
            checkpoint()
        for entry in sorted(entries):
            self._mapping.add(entry._replace(path=self._key + entry.path))
        self._units = units

    def _finalize(self) -> FinishedArchive:
        """Nothing is missing. What of it is an index is not at its end."""
        size = self._sink.size_bytes
        return FinishedArchive(size, size, size, self.file_count, self._mapping.size_bytes)
