"""The checksum of a whole object."""

from collections.abc import Callable
from contextlib import closing

from cafcat.reading.fetch import object_blocks
from cafcat.stores.base import Store
from cafcat.support.checksums import crc64nvme

__all__ = ["object_crc64nvme"]


def object_crc64nvme(store: Store, key: str, size_bytes: int, advance: Callable[[int], object]) -> int:
    """Return the CRC-64/NVME of an object, which is read as fast as its store allows.

    Args:
        store: Where the object is.
        key: Key of the object.
        size_bytes: Size of the object.
        advance: Called with the size in bytes of each block before the block is processed. It may raise to end the
            work.

    Raises:
        NotFound, Corrupt, AccessDenied, StoreFailed: as reading from the store does.
    """
    checksum = 0
    with closing(object_blocks(store, key, size_bytes)) as blocks:
        for block in blocks:
            advance(len(block))
            checksum = crc64nvme(block, checksum)
    return checksum
