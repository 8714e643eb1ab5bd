"""A list of any number of paths, to copy them into a temporary table, or to collect the result of a query.

The paths are encoded in the binary format of PostgreSQL's COPY. A list of more than 16 MiB is in a temporary file.
"""

from collections.abc import Iterable, Iterator
from struct import Struct
from typing import Final

from cafcat.catalog.binary_copy import copy_stream
from cafcat.support.spool import Spool

__all__ = ["PathList"]

_MEMORY_BYTES: Final = 16 << 20
_ROW: Final = Struct(">hi")
"""The number of fields, which is 1, and the length of the path in bytes."""


class PathList(Spool):
    """Paths in the order in which they were added. Once all are added, the list can be iterated repeatedly.

    Attributes:
        count: Number of paths.
    """

    def __init__(self, paths: Iterable[str] = ()) -> None:
        super().__init__("paths", _MEMORY_BYTES)
        self.count = 0
        for path in paths:
            self.add(path)

    def add(self, path: str) -> None:
        """Append a path to the list.

        Raises:
            UnicodeEncodeError: The path cannot be encoded in UTF-8.
            TemporaryFileFailed: The temporary file cannot be written.
        """
        encoded = path.encode()
        self.write(_ROW.pack(1, len(encoded)) + encoded)
        self.count += 1

    def blocks(self) -> Iterator[bytes]:
        """Yield the paths as a COPY stream, in blocks of at most 256 KiB. Each call yields all paths again."""
        return copy_stream(self)

    def __iter__(self) -> Iterator[str]:
        self.seek(0)
        while head := self.read(_ROW.size):
            yield self.read(_ROW.unpack(head)[1]).decode()
