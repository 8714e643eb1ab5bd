"""The part of an object that its index is in, fetched once."""

from collections.abc import Iterable, Iterator
from typing import Final

from cafcat.errors import Corrupt
from cafcat.formats.base import Format
from cafcat.stores.base import HEAD_BYTES, Store
from cafcat.support.checksums import crc32c
from cafcat.support.spool import Spool

__all__ = ["IndexSection", "head_of"]

_MEMORY_BYTES: Final = 8 << 20
_BLOCK_BYTES: Final = 1 << 20


class IndexSection(Spool):
    """The bytes of an object from its index to its end: in a temporary file, if they are many. A RandomReader for
    formats, with nothing before them but the head of the object, where a format needs that to find its index."""

    def __init__(self, name: str, start_byte: int, blocks: Iterable[bytes], head: bytes = b"") -> None:
        """Args: name: of the object; blocks: what it has from `start_byte` to its end; head: its first bytes.
        Raises what the blocks raise, and StoreFailed for a temporary file that fails."""
        super().__init__("an index", _MEMORY_BYTES)
        self.name = name
        self._head = head
        self.start_byte = self.size_bytes = start_byte
        self.crc32c = 0
        for block in blocks:
            self.crc32c = crc32c(block, self.crc32c)
            self.size_bytes += len(block)
            self.write(block)

    def read_at(self, start_byte: int, end_byte: int) -> bytes:
        """Exactly those bytes. Raises Corrupt for what is not there, or is data."""
        if end_byte <= len(self._head):
            return self._head[start_byte:end_byte]
        if start_byte < self.start_byte:
            message = f"its footer says that the index begins at byte {start_byte:,}, the catalog says"
            raise Corrupt(f"{message} {self.start_byte:,}", chunk=self.name, byte=start_byte)
        if end_byte > self.size_bytes:
            raise Corrupt(f"the object ends at byte {self.size_bytes:,}", chunk=self.name, byte=self.size_bytes)
        self.seek(start_byte - self.start_byte)
        return self.read(end_byte - start_byte)

    def blocks(self) -> Iterator[bytes]:
        """All of them again, in blocks of at most 1 MiB."""
        return self.blocks_from(0, _BLOCK_BYTES)


def head_of(store: Store, key: str, size_bytes: int, archive_format: Format) -> bytes:
    """The first bytes of an object of so many, if its format says in them where its index is; else nothing. Raises
    what the store raises."""
    end = min(size_bytes, HEAD_BYTES)
    return store.read(key, 0, end) if archive_format.rewrites_head and end else b""
