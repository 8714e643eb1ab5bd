"""Reads a DataBundle that cafcat wrote. docs/formats/databundle.md lists all refused cases."""

from collections.abc import Iterator

from cafcat.formats.base import RandomReader
from cafcat.formats.databundle.content import FileReader
from cafcat.formats.databundle.layout import TRAILER_BYTES, Trailer
from cafcat.formats.databundle.table import Table
from cafcat.model import Entry

__all__ = ["DataBundleReader"]


class DataBundleReader(FileReader):
    """Reads one DataBundle that cafcat wrote, by the table at its end. Implements `Reader`.

    Memory: `entries` needs that of Table, and `open` needs a block of 1 MiB and two of 256 KiB.
    """

    def __init__(self, archive: RandomReader, trailer: Trailer) -> None:
        """Prepare to read an archive. This reads no bytes.

        Args:
            archive: the archive.
            trailer: the trailer of the archive.
        """
        super().__init__(archive)
        self._end = archive.size_bytes - TRAILER_BYTES
        self._trailer = trailer

    @property
    def index_span(self) -> tuple[int, int]:
        """The span `[start, end)` of the table of metadata in bytes. The trailer follows the table."""
        return self._trailer.table_start, self._end

    def entries(self) -> Iterator[Entry]:
        """Return the entries of the files in the order in which the files were written. Reads only the table.

        If a path is repeated, only its last entry is returned. Raises the errors of `Table.entries`.
        """
        return Table(self._archive, self._trailer, self._end).entries()
