"""Reads a chunk that cafcat wrote. docs/formats/databundle.md lists all refused cases."""

from collections.abc import Iterator

from cafcat.formats.base import RandomReader
from cafcat.formats.databundle.content import FileReader
from cafcat.formats.databundle.layout import TRAILER_BYTES, Trailer
from cafcat.formats.databundle.table import Table
from cafcat.model import Entry

__all__ = ["DataBundleReader"]


class DataBundleReader(FileReader):
    """Reads one chunk by the table at its end. Listing reads only the table.

    Memory: that of Table. For reading a file, a block of 1 MiB and two of 256 KiB.
    """

    def __init__(self, archive: RandomReader, trailer: Trailer) -> None:
        """Open a chunk.

        Args:
            archive: the chunk.
            trailer: its trailer.
        """
        super().__init__(archive)
        self._end = archive.size_bytes - TRAILER_BYTES
        self._trailer = trailer

    @property
    def index_span(self) -> tuple[int, int]:
        """The span `[start, end)` of the rows of metadata in bytes. The trailer follows them."""
        return self._trailer.table_start, self._end

    def entries(self) -> Iterator[Entry]:
        """Return the files in the order in which they were written; see `Table.entries`."""
        return Table(self._archive, self._trailer, self._end).entries()
