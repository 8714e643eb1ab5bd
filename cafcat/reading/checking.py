"""Compares the content of files with the checksums in the catalog."""

from collections.abc import Iterator

from cafcat.errors import Corrupt
from cafcat.model import Location
from cafcat.support.checksums import crc32c

__all__ = ["Damaged", "check", "checked"]


class Damaged(Corrupt):
    """A file proved to be damaged after all of its content but the last block may have been yielded.

    A caller that can discard that content may read the file again from another replica.
    """


def check(location: Location, found: int) -> None:
    """Compare the CRC-32C of a file's content with the one in the catalog.

    Args:
        location: Where the file is.
        found: CRC-32C of the content that was read.

    Raises:
        Corrupt: They differ.
    """
    if found != location.crc32c:
        message = f"the file's bytes are damaged: CRC-32C {found:08x}, the catalog has {location.crc32c:08x}"
        raise Corrupt(message, path=location.path, chunk=str(location.chunk), byte=location.start_byte)


def checked(location: Location, blocks: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the blocks of a whole file, but the last block only if the checksum of the file is right.

    Args:
        location: Where the file is, with its checksum.
        blocks: The whole content of the file.

    Raises:
        Damaged: The checksum is wrong. All blocks but the last one have been yielded then.
    """
    checksum = 0
    last = b""
    for block in blocks:
        if last:
            yield last
        checksum = crc32c(block, checksum)
        last = block
    try:
        check(location, checksum)
    except Corrupt as error:
        raise Damaged(error.message, path=error.path, chunk=error.chunk, byte=error.byte) from None
    if last:
        yield last
