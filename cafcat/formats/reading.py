"""Functions for the readers of all formats: read the span of an entry, and check the CRC-32C of its content."""

from collections.abc import Iterator
from typing import Final

from cafcat.errors import Corrupt
from cafcat.formats.base import RandomReader
from cafcat.model import Entry
from cafcat.support.checksums import crc32c

__all__ = ["read_span", "verified_content"]

_BLOCK_BYTES: Final = 1 << 20


def read_span(archive: RandomReader, entry: Entry) -> Iterator[bytes]:
    """Yield the bytes of an entry's span in blocks of at most 1 MiB. Raises the errors of `archive.read_at`."""
    for start in range(entry.start_byte, entry.end_byte, _BLOCK_BYTES):
        yield archive.read_at(start, min(start + _BLOCK_BYTES, entry.end_byte))


def verified_content(
    content: Iterator[bytes], entry: Entry, archive: RandomReader, checksum_source: str
) -> Iterator[bytes]:
    """Yield the blocks of an entry's content unchanged, and check their CRC-32C after the last block.

    Args:
        content: the content of the entry, in blocks.
        entry: the entry, with the expected `crc32c`. If that is None, the content is not checked.
        archive: the archive, for messages.
        checksum_source: what stores the checksum, such as "index", for messages.

    Raises:
        Corrupt: the content does not match the checksum. Raised after the last block.
    """
    checksum = 0
    for block in content:
        checksum = crc32c(block, checksum)
        yield block
    if entry.crc32c not in (None, checksum):
        message = f"the CRC-32C of the content is {checksum:08x}, but the {checksum_source} has {entry.crc32c:08x}"
        raise Corrupt(message, path=entry.path, chunk=archive.name, byte=entry.start_byte)
