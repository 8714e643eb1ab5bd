"""The checksum of a whole object."""

from contextlib import closing

from cafcat.progress import Progress
from cafcat.reading.fetch import object_blocks
from cafcat.stores.base import Store
from cafcat.support.checksums import crc64nvme

__all__ = ["object_crc64nvme"]


def object_crc64nvme(store: Store, key: str, size_bytes: int, progress: Progress) -> int:
    """Read an object and return its CRC-64/NVME. In a remote store, up to three parts are read at the same time.

    Args:
        store: Where the object is.
        key: Key of the object.
        size_bytes: Size of the object. Bytes beyond this size are not read.
        progress: Advances by each block. Its checkpoint is called after each block is read, and may raise to end
            the work.

    Raises:
        NotFound: There is no such object.
        Corrupt: The object is shorter than `size_bytes`.
        Conflict: The object was replaced while it was read.
        AccessDenied, StoreFailed: The store refuses the request, or cannot read the object.
    """
    checksum = 0
    with closing(object_blocks(store, key, size_bytes)) as blocks:
        for block in blocks:
            progress.checkpoint()
            progress.advance(0, len(block))
            checksum = crc64nvme(block, checksum)
    return checksum
