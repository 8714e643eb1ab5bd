"""What the readers of all formats do alike: an entry's span in blocks, and its content against its checksum."""

from collections.abc import Iterator
from typing import Final

from cafcat.errors import Corrupt
from cafcat.formats.base import RandomReader
from cafcat.model import Entry
from cafcat.support.checksums import crc32c

__all__ = ["checked", "span_of"]

_BLOCK_BYTES: Final = 1 << 20


def span_of(archive: RandomReader, entry: Entry) -> Iterator[bytes]:
    """The bytes of its span in blocks of at most 1 MiB. Raises what reading the archive raises."""
    for start in range(entry.start_byte, entry.end_byte, _BLOCK_BYTES):
        yield archive.read_at(start, min(start + _BLOCK_BYTES, entry.end_byte))


def checked(content: Iterator[bytes], entry: Entry, archive: RandomReader, said_by: str) -> Iterator[bytes]:
    """The blocks of its content. Raises Corrupt in place of the end if its checksum, where it has one, is another;
    said_by: what has that checksum, for the message."""
    checksum = 0
    for block in content:
        checksum = crc32c(block, checksum)
        yield block
    if entry.crc32c not in (None, checksum):
        message = f"the content has the CRC-32C {checksum:08x}, the {said_by} says {entry.crc32c:08x}"
        raise Corrupt(message, path=entry.path, chunk=archive.name, byte=entry.start_byte)
