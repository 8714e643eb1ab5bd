"""The bytes of an object from its index to its end, read once."""

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
    """The bytes of an object from its index to its end, as a RandomReader for formats.

    If they are more than 8 MiB, they are in a temporary file. Of the bytes before the index, only the head of the
    object can be read: some formats need it to find the index.

    Attributes:
        name: Name of the object, for messages.
        start_byte: First byte of the index in the object.
        size_bytes: Size of the whole object: the sum of `start_byte` and the sizes of all blocks.
        crc32c: CRC-32C of the bytes from the index to the end of the object.
    """

    def __init__(self, name: str, start_byte: int, blocks: Iterable[bytes], head: bytes = b"") -> None:
        """Read all blocks into memory, or into a temporary file if they are large.

        Args:
            name: Name of the object, for messages.
            start_byte: First byte of the index.
            blocks: Bytes of the object from `start_byte` to its end.
            head: First bytes of the object.

        Raises:
            TemporaryFileFailed: The temporary file cannot be written. Errors of `blocks` are raised unchanged.
        """
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
        """Return exactly the bytes `[start_byte, end_byte)`.

        Raises:
            Corrupt: The range begins before the index and is not in the head, or ends after the end of the object.
            TemporaryFileFailed: The temporary file cannot be read.
        """
        if end_byte <= len(self._head):
            return self._head[start_byte:end_byte]
        if start_byte < self.start_byte:
            message = f"the object's footer has an index from byte {start_byte:,} instead of {self.start_byte:,}"
            raise Corrupt(message, chunk=self.name, byte=start_byte)
        if end_byte > self.size_bytes:
            raise Corrupt(f"the object ends at byte {self.size_bytes:,}", chunk=self.name, byte=self.size_bytes)
        self.seek(start_byte - self.start_byte)
        return self.read(end_byte - start_byte)

    def blocks(self) -> Iterator[bytes]:
        """Yield the bytes from the index to the end of the object, in blocks of at most 1 MiB."""
        return self.blocks_from(0, _BLOCK_BYTES)


def head_of(store: Store, key: str, size_bytes: int, archive_format: Format) -> bytes:
    """Return the first bytes of an object, at most 4,096, if its format needs them to find the index; else b"".

    Args:
        store: The store.
        key: Key of the object.
        size_bytes: Size of the object.
        archive_format: Format of the object.

    Raises:
        NotFound, StoreFailed, AccessDenied: The object cannot be read.
    """
    end = min(size_bytes, HEAD_BYTES)
    return store.read(key, 0, end) if archive_format.rewrites_head and end else b""
