"""The cost model: requests, bytes and dollars of many single objects, and of the same objects in chunks."""

import math
from dataclasses import dataclass
from typing import Final

from cafcat.operations.estimate.prices import ClassPrices, PriceList
from cafcat.operations.estimate.sizes import Sizes
from cafcat.writing.limits import MAX_FILES

__all__ = ["Chunks", "ClassCost", "Packing", "Requests", "chunks_of", "cost_of", "packing_cost", "requests_of"]

LIST_KEYS: Final = 1000
"""Keys in an answer to a LIST request."""
READ_BYTES: Final = 16 << 20
"""Bytes of one request when whole chunks are read (`cafcat.reading.coalescing`)."""
_JOURNAL_PARTS: Final = 1
"""Parts of the journal record of a chunk."""


@dataclass(frozen=True, slots=True)
class Packing:
    """How objects are packed.

    Attributes:
        target_bytes: Size at which a chunk is full.
        part_bytes: Size of a part of an upload.
        file_overhead_bytes: Bytes that a file needs in a chunk beside its content.
    """

    target_bytes: int
    part_bytes: int
    file_overhead_bytes: float


@dataclass(frozen=True, slots=True)
class Chunks:
    """Chunks that have all the objects.

    Attributes:
        count: Number of chunks.
        size_bytes: Sum of their sizes.
        parts: Number of parts of their uploads.
    """

    count: int
    size_bytes: float
    parts: int


@dataclass(frozen=True, slots=True)
class Requests:
    """Requests of an ingest.

    Attributes:
        list: LIST requests to the source; 0 with an inventory.
        get: GET requests to the source, one for each object.
        part: Requests to the store that begin an upload or send a part.
        put: Requests to the store that complete an upload.
        head: HEAD and GET requests to the store, which check the new objects and the marker.
    """

    list: int
    get: int
    part: int
    put: int
    head: int

    @property
    def total(self) -> int:
        """Number of all requests."""
        return self.list + self.get + self.part + self.put + self.head


@dataclass(frozen=True, slots=True)
class ClassCost:
    """Dollars in one storage class, for single objects and for the same objects in chunks.

    Attributes:
        storage_class: Name of the class.
        single_month: Storage of the single objects for a month.
        packed_month: Storage of the chunks for a month.
        packing: Requests and retrieval of an ingest that reads the objects and writes the chunks in this class.
        single_writing: Requests that write the single objects.
        single_read_1_percent: Reading one percent of the single objects.
        packed_read_1_percent: Reading the same files from chunks, each by a request of its own.
        single_read_all: Reading all single objects.
        packed_read_all: Reading all chunks.
    """

    storage_class: str
    single_month: float
    packed_month: float
    packing: float
    single_writing: float
    single_read_1_percent: float
    packed_read_1_percent: float
    single_read_all: float
    packed_read_all: float


def chunks_of(sizes: Sizes, packing: Packing) -> Chunks:
    """Return the chunks into which objects are packed."""
    if not sizes.objects:
        return Chunks(0, 0.0, 0)
    packed_bytes = sizes.size_bytes + sizes.objects * packing.file_overhead_bytes
    full_bytes = min(packing.target_bytes, packed_bytes / sizes.objects * MAX_FILES)
    count = max(1, math.ceil(packed_bytes / full_bytes - 1e-9))
    last_bytes = packed_bytes - (count - 1) * full_bytes
    parts = (count - 1) * math.ceil(full_bytes / packing.part_bytes) + math.ceil(last_bytes / packing.part_bytes)
    return Chunks(count, packed_bytes, parts)


def requests_of(remote: Sizes, chunks: Chunks, *, is_listed: bool = True) -> Requests:
    """Return the requests of an ingest into a bucket of a server that checks CRC-64/NVME.

    A chunk and its journal record are one upload each: begun, sent in parts, completed, and looked at. The ingest
    also reads the marker of the catalog once.

    Args:
        remote: The objects that are in a bucket. Files of folders need no requests.
        chunks: The chunks.
        is_listed: False if an inventory replaces the listing of the bucket.
    """
    objects = math.ceil(remote.objects)
    return Requests(
        list=math.ceil(objects / LIST_KEYS) if is_listed else 0,
        get=objects,
        part=chunks.count * (2 + _JOURNAL_PARTS) + chunks.parts,
        put=2 * chunks.count,
        head=2 * chunks.count + 1,
    )


def packing_cost(
    requests: Requests, remote: Sizes, prices: PriceList, source: ClassPrices, store: ClassPrices
) -> float:
    """Return what an ingest costs, in dollars, without the transfer of data.

    Args:
        requests: Requests of the ingest.
        remote: The objects that are in a bucket.
        prices: The price list.
        source: Prices of the class that has the objects.
        store: Prices of the class that gets the chunks.
    """
    part = store.put_per_1000 if store.part_per_1000 is None else store.part_per_1000
    return (
        requests.list / 1000 * source.list_per_1000
        + _reading(requests.get, requests.get, remote.size_bytes, prices, source)
        + (requests.part * part + requests.put * store.put_per_1000 + requests.head * store.get_per_1000) / 1000
    )


def cost_of(
    name: str,
    sizes: Sizes,
    packing: Packing,
    prices: PriceList,
    remote: Sizes | None = None,
    *,
    is_listed: bool = True,
) -> ClassCost:
    """Return the costs in one storage class.

    Args:
        name: Name of the class.
        sizes: The single objects.
        packing: How they are packed.
        prices: The price list.
        remote: The objects that are in a bucket before they are packed; None for all.
        is_listed: False if an inventory replaces the listing of the bucket.
    """
    remote = sizes if remote is None else remote
    own, chunks = prices.classes[name], chunks_of(sizes, packing)
    share = 0.01
    # A class that has to be restored restores whole chunks. One percent of the files is in all of them.
    restored = chunks.size_bytes if own.restore_per_1000 is not None else share * sizes.size_bytes
    ranges = math.ceil(chunks.size_bytes / READ_BYTES)
    return ClassCost(
        storage_class=name,
        single_month=_storage(sizes.objects, sizes.billed_bytes(own.least_bytes), prices, own),
        packed_month=_storage(chunks.count, max(chunks.size_bytes, chunks.count * own.least_bytes), prices, own),
        packing=packing_cost(requests_of(remote, chunks, is_listed=is_listed), remote, prices, own, own),
        single_writing=sizes.objects / 1000 * own.put_per_1000,
        single_read_1_percent=_reading(
            share * sizes.objects, share * sizes.objects, share * sizes.size_bytes, prices, own
        ),
        packed_read_1_percent=_reading(share * sizes.objects, chunks.count, restored, prices, own),
        single_read_all=_reading(sizes.objects, sizes.objects, sizes.size_bytes, prices, own),
        packed_read_all=_reading(ranges, chunks.count, chunks.size_bytes, prices, own),
    )


def _storage(objects: float, billed_bytes: float, prices: PriceList, own: ClassPrices) -> float:
    billed = prices.stepped(billed_bytes + objects * own.overhead_bytes, own.storage)
    return billed + prices.stepped(objects * own.overhead_standard_bytes, prices.standard.storage)


def _reading(gets: float, restores: float, size_bytes: float, prices: PriceList, own: ClassPrices) -> float:
    requests = gets * own.get_per_1000 + restores * (own.restore_per_1000 or 0.0)
    return requests / 1000 + size_bytes / prices.gb_bytes * own.retrieval_per_gb
