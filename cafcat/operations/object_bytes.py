"""The checksum of a whole object."""

from contextlib import closing

from cafcat.progress import Progress
from cafcat.reading.fetch import object_blocks
from cafcat.stores.base import Store
from cafcat.support.checksums import crc64nvme

__all__ = ["object_crc64nvme"]


def object_crc64nvme(store: Store, key: str, size_bytes: int, progress: Progress) -> int:
    """Return the CRC-64/NVME of an object, which is read as fast as its store allows.

    Args:
        store: Where the object is.
        key: Key of the object.
        size_bytes: Size of the object.
        progress: Advances by each block. Its checkpoint is called before each block, and may raise to end the work.

    Raises:
        NotFound: There is no such object.
        Corrupt: The object is shorter than `size_bytes`.
        AccessDenied, StoreFailed: The store refuses or fails.
    """
    checksum = 0
    with closing(object_blocks(store, key, size_bytes)) as blocks:
        for block in blocks:
            progress.checkpoint()
            progress.advance(0, len(block))
            checksum = crc64nvme(block, checksum)
    return checksum
