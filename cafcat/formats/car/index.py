"""Reads and writes the index of a CARv2: for each digest, the offset of its section in the payload.

An index has the same bytes as that of go-car and of the npm package cardex. A varint of the codec comes first.
MultihashIndexSorted is grouped by hash function, then by width (size of a record); IndexSorted only by width. Each
record is a digest and its offset (u64 little-endian), in the order of the digests.
"""

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from cafcat.errors import Corrupt, Unsupported
from cafcat.formats.base import RandomReader
from cafcat.formats.car import varint
from cafcat.formats.car.cid import IDENTITY, MAX_CID_BYTES, parse
from cafcat.support.sorting import ExternalSort

__all__ = [
    "INDEX_SORTED",
    "MULTIHASH_INDEX_SORTED",
    "SHA256_INDEX_EMPTY_BYTES",
    "SHA256_INDEX_RECORD_BYTES",
    "IndexBuilder",
    "IndexRecord",
    "read_index",
]

INDEX_SORTED: Final = 0x0400
"""Codec of an index without hash functions."""
MULTIHASH_INDEX_SORTED: Final = 0x0401
"""Codec of an index with hash functions. Chunks of cafcat have this one."""
MAX_GROUPS: Final = 65_536
"""Largest number of groups in an index: of pairs of hash function and width when an index is written, of groups at
one level when it is read. Real archives have only a few."""

SHA256_INDEX_RECORD_BYTES: Final = 40
"""Size in bytes of a record with a SHA-256 digest."""
SHA256_INDEX_EMPTY_BYTES: Final = 2 + 4 + 8 + 4 + 4 + 8
"""Size in bytes of a MultihashIndexSorted with only SHA-256 digests, without its records."""

_COUNT: Final = struct.Struct("<i")
_CODE: Final = struct.Struct("<Q")
_BUCKET: Final = struct.Struct("<IQ")
_GROUP_KEY: Final = struct.Struct(">QI")
_OFFSET_KEY: Final = struct.Struct(">Q")
_OFFSET: Final = struct.Struct("<Q")
_WINDOW_BYTES: Final = 1 << 20


class IndexRecord(NamedTuple):
    """A record of a CARv2 index: a digest and the position of the section of its block.

    Attributes:
        code: code of the hash function, or None if the index does not store it.
        digest: the digest of the block.
        offset: start of the section in bytes, relative to the start of the payload.
    """

    code: int | None
    digest: bytes
    offset: int


class IndexBuilder:
    """Collects the sections of a CARv2, then returns its index.

    Memory and temporary files are those of ExternalSort.

    Identity CIDs contain their block; `add` leaves them out unless the archive is to be fully indexed. Repeated
    digests are all stored, in the order of their offsets.
    """

    def __init__(self, codec: int = MULTIHASH_INDEX_SORTED, *, fully_indexed: bool = False) -> None:
        """Prepare to collect sections.

        Args:
            codec: INDEX_SORTED or MULTIHASH_INDEX_SORTED.
            fully_indexed: True to include identity CIDs.

        Raises:
            Unsupported: the codec is unknown.
        """
        if codec not in (INDEX_SORTED, MULTIHASH_INDEX_SORTED):
            raise Unsupported(f"unknown codec of a CAR index: {codec:#x}")
        self._codec = codec
        self._fully_indexed = fully_indexed
        self._sort = ExternalSort("an index")
        self._groups: dict[tuple[int, int], int] = {}

    def add(self, cid: bytes, offset: int) -> None:
        """Add a section. An identity CID is left out, unless the index is fully indexed.

        Args:
            cid: CID of the block.
            offset: start of the section in bytes, relative to the start of the payload.

        Raises:
            TemporaryFileFailed: the temporary file cannot be written.
            Unsupported: there are more than 65,536 pairs of hash function and digest size.
            ValueError: `cid` is not a CID.
        """
        _, _, code, digest = parse(cid)
        if code != IDENTITY or self._fully_indexed:
            self.add_digest(code, digest, offset)

    def add_digest(self, code: int, digest: bytes, offset: int) -> None:
        """Add a section by hash function and digest, even for the identity function.

        Args:
            code: code of the hash function.
            digest: the digest of the block.
            offset: start of the section in bytes, relative to the start of the payload.

        Raises:
            TemporaryFileFailed: the temporary file cannot be written.
            Unsupported: there are more than 65,536 pairs of hash function and digest size.
        """
        group = (code if self._codec == MULTIHASH_INDEX_SORTED else 0, len(digest))
        self._groups[group] = self._groups.get(group, 0) + 1
        if len(self._groups) > MAX_GROUPS:
            raise Unsupported(f"the archive has more than {MAX_GROUPS:,} kinds of hashes")
        self._sort.add(_GROUP_KEY.pack(*group) + digest + _OFFSET_KEY.pack(offset))

    @property
    def size_bytes(self) -> int:
        """Size in bytes of the index of the sections added so far."""
        heads = len(varint.encode(self._codec)) + _COUNT.size + _BUCKET.size * len(self._groups)
        if self._codec == MULTIHASH_INDEX_SORTED:
            heads += (_CODE.size + _COUNT.size) * len({code for code, _ in self._groups})
        return heads + self._sort.size_bytes - _GROUP_KEY.size * self._sort.count

    def blocks(self) -> Iterator[bytes]:
        """Yield the bytes of the index in blocks of about 64 KiB. Afterwards the builder cannot be used.

        Raises:
            TemporaryFileFailed: the temporary file cannot be read.
        """
        pending = bytearray()
        for part in self._parts():
            pending += part
            if len(pending) >= 64 << 10:
                yield bytes(pending)
                pending.clear()
        yield bytes(pending)
        self._sort.close()

    def _parts(self) -> Iterator[bytes]:
        groups = sorted(self._groups.items())
        widths: dict[int, int] = {}
        for (code, _), _ in groups:
            widths[code] = widths.get(code, 0) + 1
        yield varint.encode(self._codec) + _COUNT.pack(len(widths if self._by_function else groups))
        records = iter(self._sort)
        current: int | None = None
        for (code, digest_bytes), count in groups:
            if self._by_function and code != current:
                yield _CODE.pack(code) + _COUNT.pack(widths[code])
                current = code
            width = digest_bytes + _OFFSET.size
            yield _BUCKET.pack(width, width * count)
            for _ in range(count):
                yield _record(next(records))

    @property
    def _by_function(self) -> bool:
        return self._codec == MULTIHASH_INDEX_SORTED


def _record(key: bytes) -> bytes:
    """Convert a sort key of IndexBuilder to a record of the index: digest, and offset in little-endian order."""
    return key[_GROUP_KEY.size : -_OFFSET.size] + key[: -_OFFSET.size - 1 : -1]


def read_index(archive: RandomReader, start: int, end: int) -> Iterator[IndexRecord]:
    """Yield the records of the CARv2 index that begins at `start` and ends at `end` at the latest.

    Bytes between the end of the index and `end` are ignored.

    Memory: a window of 1 MiB.

    Raises:
        Corrupt: the index is invalid.
        Unsupported: the codec of the index is unknown.
    """
    window = _Window(archive, start, end)
    codec = window.varint()
    if codec == INDEX_SORTED:
        yield from _buckets(window, None)
    elif codec == MULTIHASH_INDEX_SORTED:
        for _ in range(window.count()):
            (code,) = _CODE.unpack(window.read(_CODE.size))
            yield from _buckets(window, code)
    else:
        raise Unsupported(f"unknown codec of a CAR index: {codec:#x}", chunk=archive.name, byte=start)


def _buckets(window: "_Window", code: int | None) -> Iterator[IndexRecord]:
    for _ in range(window.count()):
        width, size_bytes = _BUCKET.unpack(window.read(_BUCKET.size))
        if not _OFFSET.size <= width <= MAX_CID_BYTES or size_bytes % width or size_bytes > window.remaining:
            message = f"an index bucket of {size_bytes:,} bytes with records of {width} bytes is invalid"
            raise window.corrupt(message)
        for _ in range(size_bytes // width):
            record = window.read(width)
            yield IndexRecord(code, record[: -_OFFSET.size], _OFFSET.unpack(record[-_OFFSET.size :])[0])


class _Window:
    """Reads the index in an archive from start to end, 1 MiB at a time. Methods raise Corrupt."""

    def __init__(self, archive: RandomReader, start: int, end: int) -> None:
        self._archive = archive
        self._next, self._end = start, end
        self._data = b""
        self._offset = 0

    @property
    def remaining(self) -> int:
        """Number of bytes up to `end` that `read` did not return yet."""
        return len(self._data) - self._offset + self._end - self._next

    def read(self, size_bytes: int) -> bytes:
        if len(self._data) - self._offset < size_bytes:
            until = min(self._end, self._next + _WINDOW_BYTES)
            self._data = self._data[self._offset :] + self._archive.read_at(self._next, until)
            self._next, self._offset = until, 0
        data = self._data[self._offset : self._offset + size_bytes]
        if len(data) < size_bytes:
            raise self.corrupt("the index ends too early")
        self._offset += size_bytes
        return data

    def count(self) -> int:
        (count,) = _COUNT.unpack(self.read(_COUNT.size))
        if not 0 <= count <= MAX_GROUPS:
            raise self.corrupt(f"the index has an invalid number of groups: {count}")
        return int(count)

    def varint(self) -> int:
        head = self.read(min(varint.MAX_VARINT_BYTES, self.remaining))
        try:
            value, size_bytes = varint.read(head, 0)
        except ValueError as error:
            raise self.corrupt(f"the codec of the index cannot be read: {error}") from error
        self._offset += size_bytes - len(head)
        return value

    def corrupt(self, message: str) -> Corrupt:
        return Corrupt(message, chunk=self._archive.name, byte=self._next - len(self._data) + self._offset)
