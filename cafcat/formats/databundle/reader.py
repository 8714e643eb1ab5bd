"""Reading a chunk that cafcat wrote. What is refused, and how, is listed in docs/formats/databundle.md."""

from collections.abc import Iterator

from cafcat.formats.base import RandomReader
from cafcat.formats.databundle.content import FileReader
from cafcat.formats.databundle.layout import TRAILER_BYTES, Trailer
from cafcat.formats.databundle.table import Table
from cafcat.model import Entry

__all__ = ["DataBundleReader"]


class DataBundleReader(FileReader):
    """Reads one chunk by the table at its end; nothing before that is read for listing. Memory: that of Table;
    reading a file, a block of 1 MiB and two of 256 KiB."""

    def __init__(self, archive: RandomReader, place: Trailer) -> None:
        """Args: place: what its trailer says."""
        super().__init__(archive)
        self._end = archive.size_bytes - TRAILER_BYTES
        self._place = place

    @property
    def index_span(self) -> tuple[int, int]:
        """Of the rows of metadata; the trailer is behind them."""
        return self._place.table_start, self._end

    def entries(self) -> Iterator[Entry]:
        """The files in the order in which they were written; see Table.entries."""
        return Table(self._archive, self._place, self._end).entries()
