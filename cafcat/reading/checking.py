"""Content against the checksum that the catalog has of it."""

from collections.abc import Iterator

from cafcat.errors import Corrupt
from cafcat.model import Location
from cafcat.support.checksums import crc32c

__all__ = ["Damaged", "check", "checked"]


class Damaged(Corrupt):
    """A file was damaged, and that was seen only when most of it had been handed out. Who can begin anew may get it
    from a copy."""


def check(location: Location, found: int) -> None:
    """Raises Corrupt unless `found` is the CRC-32C that the catalog has of the file."""
    if found != location.crc32c:
        message = f"the file's bytes are damaged: CRC-32C {found:08x} where the catalog has {location.crc32c:08x}"
        raise Corrupt(message, path=location.path, chunk=str(location.chunk), byte=location.start_byte)


def checked(location: Location, blocks: Iterator[bytes]) -> Iterator[bytes]:
    """The blocks of a whole file; the last one only if the checksum is right, else raises Damaged in its place."""
    checksum = 0
    held = b""
    for block in blocks:
        if held:
            yield held
        checksum = crc32c(block, checksum)
        held = block
    try:
        check(location, checksum)
    except Corrupt as error:
        raise Damaged(error.message, path=error.path, chunk=error.chunk, byte=error.byte) from None
    if held:
        yield held
