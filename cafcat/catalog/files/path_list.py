"""Any number of paths on their way into a temporary table of the catalog, or out of one.

As of Mapping: beyond 16 MiB they are in a temporary file, as Postgres' binary COPY takes them.
"""

from collections.abc import Iterable, Iterator
from struct import Struct
from typing import Final

from cafcat.catalog.binary_copy import copy_stream
from cafcat.support.spool import Spool

__all__ = ["PathList"]

_MEMORY_BYTES: Final = 16 << 20
_ROW: Final = Struct(">hi")
"""One field, and its length."""


class PathList(Spool):
    """Paths in the order in which they were added."""

    def __init__(self, paths: Iterable[str] = ()) -> None:
        super().__init__("paths", _MEMORY_BYTES)
        self.count = 0
        for path in paths:
            self.add(path)

    def add(self, path: str) -> None:
        """Raises UnicodeEncodeError for what is not valid UTF-8, StoreFailed."""
        encoded = path.encode()
        self.write(_ROW.pack(1, len(encoded)) + encoded)
        self.count += 1

    def blocks(self) -> Iterator[bytes]:
        """The whole COPY stream in blocks of at most 256 KiB. Can be read again."""
        return copy_stream(self)

    def __iter__(self) -> Iterator[str]:
        self.seek(0)
        while head := self.read(_ROW.size):
            yield self.read(_ROW.unpack(head)[1]).decode()
