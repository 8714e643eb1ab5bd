"""Plans the range reads that serve requests, and computes their cost."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import Final
from uuid import UUID

from cafcat.errors import CafcatError
from cafcat.reading.coalescing import Coalescing, RangeRead, coalesce, coalescing_of
from cafcat.reading.request import ReadRequest
from cafcat.reading.splitting import split
from cafcat.stores.base import Store

__all__ = ["PLANNED_FILES", "ChunkReads", "ReadPlan", "in_read_order", "range_reads"]

_PLACE: Final = attrgetter("location.store", "location.object_key", "start_byte", "end_byte")
PLANNED_FILES: Final = 5000
"""Number of files whose reads are planned together. With more, more neighbours share a request, but need memory."""


def in_read_order(requests: Iterable[ReadRequest]) -> list[ReadRequest]:
    """Return requests sorted by store, object and offset: the order in which reading is cheapest."""
    return sorted(requests, key=_PLACE)


def range_reads(requests: Iterable[ReadRequest], stores: Mapping[str, Store]) -> Iterator[RangeRead[ReadRequest]]:
    """Yield the reads that serve the requests, in the order of the requests.

    Only requests that follow each other share a read. If several requests can be in flight, reads are split again
    at their largest gaps, as `cafcat.reading.splitting` describes.

    Args:
        requests: The requested files; sort them by `in_read_order` to get few reads.
        stores: Stores by their URL.
    """
    for url, of_store in groupby(requests, key=attrgetter("location.store")):
        store = stores[url]
        reads = _merged(of_store, url, coalescing_of(store))
        yield from split(reads, store.reads_in_flight, PLANNED_FILES)


def _merged(requests: Iterable[ReadRequest], url: str, rule: Coalescing) -> Iterator[RangeRead[ReadRequest]]:
    for key, of_object in groupby(requests, key=attrgetter("location.object_key")):
        yield from coalesce(url, key, of_object, rule, partial(_is_large_decoded, rule))


def _is_large_decoded(rule: Coalescing, request: ReadRequest) -> bool:
    return request.decoded_range is not None and request.memory_bytes > rule.read_bytes


@dataclass(slots=True)
class ChunkReads:
    """The planned reads of one chunk.

    Attributes:
        chunk: UUID of the chunk.
        object: Absolute path or URL of the chunk's object.
        files: Number of files that are read.
        requests: Number of requests to the store.
        bytes_wanted: Bytes that are needed from the chunk for the files.
        bytes_read: Bytes that are requested, with the gaps between files. If one read serves a file twice, its
            bytes are counted once.
    """

    chunk: UUID
    object: str
    files: int = 0
    requests: int = 0
    bytes_wanted: int = 0
    bytes_read: int = 0


@dataclass(slots=True)
class ReadPlan:
    """The cost of reading files, computed without reading them.

    Attributes:
        chunks: The reads of each chunk, in the order of reading.
        failed: Names of the files that cannot be found, or have no such range, each with its error.
    """

    chunks: list[ChunkReads] = field(default_factory=list)
    failed: list[tuple[str, CafcatError]] = field(default_factory=list)
    _by_uuid: dict[UUID, ChunkReads] = field(default_factory=dict, repr=False)

    @property
    def files(self) -> int:
        """Number of files that would be read."""
        return sum(chunk.files for chunk in self.chunks)

    @property
    def requests(self) -> int:
        """Number of requests to stores that would be sent."""
        return sum(chunk.requests for chunk in self.chunks)

    @property
    def bytes_wanted(self) -> int:
        """Number of bytes that are needed from the chunks for the files."""
        return sum(chunk.bytes_wanted for chunk in self.chunks)

    @property
    def bytes_read(self) -> int:
        """Number of bytes that would be requested, with the gaps between files."""
        return sum(chunk.bytes_read for chunk in self.chunks)

    def add(self, read: RangeRead[ReadRequest], archive: str) -> None:
        """Add one read to the numbers of its chunk.

        Args:
            read: The read. It serves at least one file.
            archive: Absolute path or URL of the object that is read.
        """
        uuid = read.files[0].location.chunk
        chunk = self._by_uuid.get(uuid)
        if chunk is None:
            chunk = self._by_uuid[uuid] = ChunkReads(uuid, archive)
            self.chunks.append(chunk)
        chunk.files += len(read.files)
        chunk.requests += read.size_bytes > 0
        chunk.bytes_wanted += sum(request.size_bytes for request in read.files)
        chunk.bytes_read += read.size_bytes
