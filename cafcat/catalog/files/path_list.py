"""Lists of any number of paths, to copy them into a temporary table, or to collect the result of a query.

The rows are encoded in the binary format of PostgreSQL's COPY. A list of more than 16 MiB is in a temporary file.
"""

from collections.abc import Iterable, Iterator
from struct import Struct
from typing import Final

from cafcat.catalog.binary_copy import copy_stream
from cafcat.support.spool import Spool

__all__ = ["PathList", "VersionList"]

_MEMORY_BYTES: Final = 16 << 20
_ROW: Final = Struct(">hi")
"""The number of fields, which is 1, and the length of the path in bytes."""
_VERSION: Final = Struct(">hiqiqi")
"""The number of fields, which is 3; chunk and first byte, each after its length; the length of the path."""


class _RowList(Spool):
    """Rows in the binary format of COPY.

    Attributes:
        count: Number of rows.
    """

    def __init__(self) -> None:
        super().__init__("paths", _MEMORY_BYTES)
        self.count = 0

    def _append(self, row: bytes) -> None:
        self.write(row)
        self.count += 1

    def blocks(self) -> Iterator[bytes]:
        """Yield the rows as a COPY stream, in blocks of at most 256 KiB. Each call yields all rows again."""
        return copy_stream(self)


class PathList(_RowList):
    """Paths in the order in which they were added. Once all are added, the list can be iterated repeatedly.

    Attributes:
        count: Number of paths.
    """

    def __init__(self, paths: Iterable[str] = ()) -> None:
        super().__init__()
        for path in paths:
            self.add(path)

    def add(self, path: str) -> None:
        """Append a path to the list.

        Raises:
            UnicodeEncodeError: The path cannot be encoded in UTF-8.
            TemporaryFileFailed: The temporary file cannot be written.
        """
        encoded = path.encode()
        self._append(_ROW.pack(1, len(encoded)) + encoded)

    def __iter__(self) -> Iterator[str]:
        self.seek(0)
        while head := self.read(_ROW.size):
            yield self.read(_ROW.unpack(head)[1]).decode()


class VersionList(_RowList):
    """Versions of files: path, chunk and first byte of each.

    Attributes:
        count: Number of versions.
    """

    def add(self, path: str, chunk_id: int, start_byte: int) -> None:
        """Append a version to the list.

        Args:
            path: Path of the file.
            chunk_id: chunks.id of its chunk.
            start_byte: First byte of the file in the chunk.

        Raises:
            TemporaryFileFailed: The temporary file cannot be written.
        """
        encoded = path.encode()
        self._append(_VERSION.pack(3, 8, chunk_id, 8, start_byte, len(encoded)) + encoded)
