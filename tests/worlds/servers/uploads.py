"""Uploads of whole objects into S3 stores, with content that a seed repeats."""

import random

from cafcat.stores.s3.store import S3Store
from cafcat.support.checksums import crc64nvme

__all__ = ["MIB", "content", "put"]

MIB = 1 << 20


def put(store: S3Store, key: str, data: bytes, *, with_checksum: bool = True) -> None:
    """Upload an object in writes of one MiB, and abort the upload if one of them fails.

    Args:
        store: The store that gets the object.
        key: Key of the object in the store.
        data: The whole content.
        with_checksum: Pass the CRC-64/NVME of the content to the commit.
    """
    upload = store.create(key)
    try:
        for start in range(0, len(data), MIB):
            upload.write(data[start : start + MIB])
        upload.commit(crc64nvme(data) if with_checksum else None)
    except BaseException:
        upload.abort()
        raise


def content(size_bytes: int, seed: int = 1) -> bytes:
    """Return random bytes; the same seed gives the same bytes."""
    return random.Random(seed).randbytes(size_bytes)
