"""Combine near files of one object into range reads, so that one request serves several files."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import Final, Generic, NamedTuple, Protocol, TypeVar
from uuid import UUID

from cafcat.errors import CafcatError
from cafcat.reading.replicas import Replica
from cafcat.reading.request import ReadRequest
from cafcat.stores.base import Store

__all__ = [
    "PLANNED_FILES",
    "ChunkReads",
    "Coalescing",
    "RangeRead",
    "ReadPlan",
    "coalesce",
    "coalescing_of",
    "in_read_order",
    "range_reads",
]

PLANNED_FILES: Final = 5000
"""Number of files that are planned together. With more, more neighbours share a request; but they take memory."""


class Coalescing(NamedTuple):
    """Which files share a request.

    gap_bytes: most bytes between two files. read_bytes: most bytes from the first byte of a request to its last. A
    single file that is larger is read on its own, in blocks.
    """

    gap_bytes: int
    read_bytes: int


_LOCAL: Final = Coalescing(gap_bytes=64 << 10, read_bytes=8 << 20)
"""A system call costs as much as copying some 10 KiB, and a disk has already read ahead what lies in the gap."""
_REMOTE: Final = Coalescing(gap_bytes=1 << 20, read_bytes=16 << 20)
"""A request is answered after some 30 ms, and a connection then carries some 50 MB/s: reading over a gap of 1 MiB
takes less time than another request. With 16 MiB, the wait is a tenth of the transfer."""


def coalescing_of(store: Store) -> Coalescing:
    """Return which files share a request to a store of this kind: over a network, requests may be larger."""
    return _REMOTE if store.is_remote else _LOCAL


class ByteSpan(Protocol):
    """Bytes `[start_byte, end_byte)` of an object: those of a ReadRequest, for instance, or of an Entry."""

    @property
    def start_byte(self) -> int: ...

    @property
    def end_byte(self) -> int: ...


Span = TypeVar("Span", bound=ByteSpan)


@dataclass(slots=True)
class RangeRead(Generic[Span]):
    """One request for the bytes `[start_byte, end_byte)` of an object, and the files that it serves.

    Empty files need no bytes: a read that serves only empty files is no request. in_blocks: the read serves one
    file that is too large to be held in memory, as it is or decoded; empty files may be beside that file.
    """

    store: str
    object_key: str
    files: list[Span] = field(default_factory=list)
    start_byte: int = 0
    end_byte: int = 0
    in_blocks: bool = False

    @property
    def size_bytes(self) -> int:
        """Number of bytes to read."""
        return self.end_byte - self.start_byte

    def of_replica(self, replica: Replica) -> "RangeRead[Span]":
        """Return a read of the same bytes of another object."""
        return replace(self, store=replica.store, object_key=replica.object_key)

    def bytes_of(self, file: Span, data: bytes) -> bytes:
        """Return the bytes of one of the files. data: the bytes of the read."""
        return data[file.start_byte - self.start_byte : file.end_byte - self.start_byte]

    def can_serve(self, start: int, end: int, rule: Coalescing) -> bool:
        """Return whether a further file at `[start, end)` may share this read."""
        if start == end or self.start_byte == self.end_byte:
            return True
        gap_bytes, read_bytes = rule
        is_near = self.start_byte <= start <= self.end_byte + gap_bytes
        return is_near and max(self.end_byte, end) - self.start_byte <= read_bytes

    def add(self, file: Span) -> None:
        """Let the read serve a further file."""
        start, end = file.start_byte, file.end_byte
        if start != end:
            if self.start_byte == self.end_byte:
                self.start_byte = start
            self.end_byte = max(self.end_byte, end)
        self.files.append(file)


def coalesce(
    store: str,
    object_key: str,
    files: Iterable[Span],
    rule: Coalescing,
    predicate: Callable[[Span], bool] = lambda _: False,
) -> Iterator[RangeRead[Span]]:
    """Yield the reads that serve files of one object. Only files that follow each other share a read.

    Args:
        store: URL of the store.
        object_key: Key of the object.
        files: Where the files are in the object.
        rule: Which files share a read.
        predicate: Returns whether a file has to be read on its own, in blocks, however few bytes its span has.
    """
    read: RangeRead[Span] | None = None
    for file in files:
        is_alone = predicate(file)
        if read is None or is_alone or read.in_blocks or not read.can_serve(file.start_byte, file.end_byte, rule):
            if read is not None:
                yield _finished(read, rule)
            read = RangeRead(store, object_key, in_blocks=is_alone)
        read.add(file)
    if read is not None:
        yield _finished(read, rule)


def _finished(read: RangeRead[Span], rule: Coalescing) -> RangeRead[Span]:
    read.in_blocks = read.in_blocks or read.size_bytes > rule.read_bytes
    return read


def in_read_order(requests: Iterable[ReadRequest]) -> list[ReadRequest]:
    """Return requests sorted by store, object and offset: the order in which reading is cheapest."""
    return sorted(
        requests, key=lambda item: (item.location.store, item.location.object_key, item.start_byte, item.end_byte)
    )


def range_reads(requests: Iterable[ReadRequest], stores: Mapping[str, Store]) -> Iterator[RangeRead[ReadRequest]]:
    """Yield the reads that serve the requests, in their order. Only requests that follow each other share a read.

    Args:
        requests: What to read.
        stores: Stores by their URL.
    """
    for (url, key), of_object in groupby(requests, key=attrgetter("location.store", "location.object_key")):
        rule = coalescing_of(stores[url])
        yield from coalesce(url, key, of_object, rule, partial(_is_large_decoded, rule))


def _is_large_decoded(rule: Coalescing, request: ReadRequest) -> bool:
    return request.decoded_range is not None and request.memory_bytes > rule.read_bytes


@dataclass(slots=True)
class ChunkReads:
    """Reads of one chunk: numbers of files and requests, sizes in bytes.

    object: absolute path or URL of the chunk's object. bytes_wanted: bytes of the files. bytes_read: bytes of the
    reads, which include the gaps between files; bytes of a file that is requested twice are read once.
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

    failed: files that cannot be read, by name, and the reasons.
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
        """Number of requests to stores."""
        return sum(chunk.requests for chunk in self.chunks)

    @property
    def bytes_wanted(self) -> int:
        """Number of bytes of the files."""
        return sum(chunk.bytes_wanted for chunk in self.chunks)

    @property
    def bytes_read(self) -> int:
        """Number of bytes of the reads: see ChunkReads."""
        return sum(chunk.bytes_read for chunk in self.chunks)

    def add(self, read: RangeRead[ReadRequest], archive: str) -> None:
        """Count one more read. archive: absolute path or URL of its object."""
        uuid = read.files[0].location.chunk
        chunk = self._by_uuid.get(uuid)
        if chunk is None:
            chunk = self._by_uuid[uuid] = ChunkReads(uuid, archive)
            self.chunks.append(chunk)
        chunk.files += len(read.files)
        chunk.requests += read.size_bytes > 0
        chunk.bytes_wanted += sum(request.size_bytes for request in read.files)
        chunk.bytes_read += read.size_bytes
