"""From files to range reads: near ones of one archive are read by one request."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple
from uuid import UUID

from cafcat.errors import CafcatError
from cafcat.reading.replicas import Replica
from cafcat.reading.request import ReadRequest
from cafcat.stores.base import Store

__all__ = [
    "PLANNED_FILES",
    "ChunkReads",
    "Merging",
    "RangeRead",
    "ReadPlan",
    "in_read_order",
    "merged",
    "merging_of",
]

PLANNED_FILES: Final = 5000
"""So many files are planned at once: more find more neighbours, and take more memory."""


class Merging(NamedTuple):
    """What is read by one request: files with no more than `gap_bytes` between them, and no more than `read_bytes`
    from the first byte to the last. A single file that is larger is read alone, in blocks."""

    gap_bytes: int
    read_bytes: int


_FOLDER: Final = Merging(gap_bytes=64 << 10, read_bytes=8 << 20)
"""A call of the kernel costs as much as copying some 10 KiB, and a disk has read ahead what lies in the gap."""
_NETWORK: Final = Merging(gap_bytes=1 << 20, read_bytes=16 << 20)
"""A request is answered after some 30 ms, and then a connection carries some 50 MB/s: a gap of 1 MiB takes less
time than another answer. At 16 MiB the wait is a tenth of the transfer, and 8 such reads still fit into memory."""


def merging_of(store: Store) -> Merging:
    """Several reads at once are worth it where each waits for an answer; there, merging has to reach further."""
    return _NETWORK if store.reads_in_flight > 1 else _FOLDER


@dataclass(slots=True)
class RangeRead:
    """One request: `[start_byte, end_byte)` of an object, and the files that it serves. Empty files are among them
    and cost nothing: a read of empty files alone has no bytes, and is no request.

    in_blocks: a single file that is too large to be held in memory, as it is or decoded.
    """

    store: str
    object_key: str
    merging: Merging
    wanted: list[ReadRequest] = field(default_factory=list)
    start_byte: int = 0
    end_byte: int = 0

    @property
    def size_bytes(self) -> int:
        return self.end_byte - self.start_byte

    @property
    def in_blocks(self) -> bool:
        return self.size_bytes > self.merging.read_bytes or any(map(self._is_made_large, self.wanted[:1]))

    def _is_made_large(self, wanted: ReadRequest) -> bool:
        return wanted.part is not None and wanted.made_bytes > self.merging.read_bytes

    def of(self, place: Replica) -> "RangeRead":
        """The same bytes of another object."""
        return replace(self, store=place.store, object_key=place.object_key)

    def takes(self, wanted: ReadRequest) -> bool:
        """Whether a further file can be served by the same request."""
        _, place, start, end, _ = wanted
        if place.object_key != self.object_key or place.store != self.store:
            return False
        if any(map(self._is_made_large, (wanted, *self.wanted[:1]))):
            return False
        if start == end or self.start_byte == self.end_byte:
            return True
        gap_bytes, read_bytes = self.merging
        is_near = self.start_byte <= start <= self.end_byte + gap_bytes
        return is_near and max(self.end_byte, end) - self.start_byte <= read_bytes

    def add(self, wanted: ReadRequest) -> None:
        _, _, start, end, _ = wanted
        if start != end:
            if self.start_byte == self.end_byte:
                self.start_byte = start
            self.end_byte = max(self.end_byte, end)
        self.wanted.append(wanted)


def in_read_order(wanted: Iterable[ReadRequest]) -> list[ReadRequest]:
    """By store, object and offset: the order in which reading is cheapest."""
    return sorted(
        wanted, key=lambda item: (item.location.store, item.location.object_key, item.start_byte, item.end_byte)
    )


def merged(wanted: Iterable[ReadRequest], store_of: Callable[[str], Store]) -> Iterator[RangeRead]:
    """The reads that serve the files, in their order; only files that follow each other share a read."""
    read: RangeRead | None = None
    for item in wanted:
        if read is None or not read.takes(item):
            if read is not None:
                yield read
            place = item.location
            read = RangeRead(place.store, place.object_key, merging_of(store_of(place.store)))
        read.add(item)
    if read is not None:
        yield read


@dataclass(slots=True)
class ChunkReads:
    """What is read of one chunk: numbers of files and requests, sizes in bytes. object: absolute path or URL."""

    chunk: UUID
    object: str
    files: int = 0
    requests: int = 0
    bytes_wanted: int = 0
    bytes_read: int = 0


@dataclass(slots=True)
class ReadPlan:
    """What reading files would cost; nothing was read. failed: those that cannot be, by name, and why."""

    chunks: list[ChunkReads] = field(default_factory=list)
    failed: list[tuple[str, CafcatError]] = field(default_factory=list)
    _by_uuid: dict[UUID, ChunkReads] = field(default_factory=dict, repr=False)

    @property
    def files(self) -> int:
        return sum(chunk.files for chunk in self.chunks)

    @property
    def requests(self) -> int:
        return sum(chunk.requests for chunk in self.chunks)

    @property
    def bytes_wanted(self) -> int:
        """Of the files themselves."""
        return sum(chunk.bytes_wanted for chunk in self.chunks)

    @property
    def bytes_read(self) -> int:
        """With the gaps between them that are read over; bytes of a file that is wanted twice are read once."""
        return sum(chunk.bytes_read for chunk in self.chunks)

    def add(self, read: RangeRead, archive: str) -> None:
        """Counts one more read; `archive`: absolute path or URL of its object."""
        chunk = self._by_uuid.get(read.wanted[0].location.chunk)
        if chunk is None:
            chunk = ChunkReads(read.wanted[0].location.chunk, archive)
            self._by_uuid[chunk.chunk] = chunk
            self.chunks.append(chunk)
        chunk.files += len(read.wanted)
        chunk.requests += read.size_bytes > 0
        chunk.bytes_wanted += sum(item.size_bytes for item in read.wanted)
        chunk.bytes_read += read.size_bytes
