"""All bytes of an object, in order, as fast as its store gives them."""

from collections.abc import Callable, Iterator
from typing import Final

from cafcat.stores.base import Store
from cafcat.support.checksums import crc64nvme
from cafcat.support.in_order import in_order

__all__ = ["object_blocks", "object_crc64nvme"]

_SPAN_BYTES: Final = 8 << 20
_SPANS: Final = 3
"""From a store where each answer takes its time, so many spans are read at once. More chunks at once would not help
a disk, and would need the memory of several uploads."""


def object_blocks(store: Store, key: str, size_bytes: int) -> Iterator[bytes]:
    """In blocks of at most 8 MiB. Raises what reading from the store raises."""
    if store.reads_in_flight == 1:
        return store.stream(key, 0, size_bytes)
    starts = range(0, size_bytes, _SPAN_BYTES)
    spans = ((start, min(start + _SPAN_BYTES, size_bytes)) for start in starts)
    return in_order(lambda span: store.read(key, *span), spans, most_in_flight=_SPANS)


def object_crc64nvme(store: Store, key: str, size_bytes: int, advance: Callable[[int], object]) -> int:
    """CRC-64/NVME of an object. `advance` is called with the size of each block before it is looked at."""
    checksum = 0
    for block in object_blocks(store, key, size_bytes):
        advance(len(block))
        checksum = crc64nvme(block, checksum)
    return checksum
