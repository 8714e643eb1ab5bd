"""The index of a CARv2: at which byte of the payload the section of a digest begins.

Bytes as go-car and the npm package cardex write them: a varint of the codec, then for MultihashIndexSorted by hash
function, within it and for IndexSorted by width, digest and offset (u64 little-endian) in the order of the digests.
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
MULTIHASH_INDEX_SORTED: Final = 0x0401
MAX_GROUPS: Final = 65_536
"""Hash functions and widths: no archive has more than a handful."""

SHA256_INDEX_RECORD_BYTES: Final = 40
SHA256_INDEX_EMPTY_BYTES: Final = 2 + 4 + 8 + 4 + 4 + 8
"""Of a MultihashIndexSorted in which all are SHA-256, but for its records."""

_COUNT: Final = struct.Struct("<i")
_CODE: Final = struct.Struct("<Q")
_BUCKET: Final = struct.Struct("<IQ")
_GROUP_KEY: Final = struct.Struct(">QI")
_OFFSET_KEY: Final = struct.Struct(">Q")
_OFFSET: Final = struct.Struct("<Q")
_WINDOW_BYTES: Final = 1 << 20


class IndexRecord(NamedTuple):
    """A digest and the section that has it; code: its hash function, None where the index does not say. offset: in
    bytes from the start of the payload, of the section's varint."""

    code: int | None
    digest: bytes
    offset: int


class IndexBuilder:
    """Gathers sections, then gives the index. Memory and temporary file as ExternalSort.

    Identity CIDs are left out, as they hold their block themselves, unless the archive is to be fully indexed.
    Digests that come more than once are all kept, in the order of their offsets.
    """

    def __init__(self, codec: int = MULTIHASH_INDEX_SORTED, *, fully_indexed: bool = False) -> None:
        """Raises Unsupported for another codec than the two above."""
        if codec not in (INDEX_SORTED, MULTIHASH_INDEX_SORTED):
            raise Unsupported(f"there is no index of codec {codec:#x}")
        self._codec = codec
        self._fully_indexed = fully_indexed
        self._sort = ExternalSort("an index")
        self._groups: dict[tuple[int, int], int] = {}

    def add(self, cid: bytes, offset: int) -> None:
        """A section. Raises TemporaryFileFailed, Unsupported."""
        _, _, code, digest = parse(cid)
        if code != IDENTITY or self._fully_indexed:
            self.add_digest(code, digest, offset)

    def add_digest(self, code: int, digest: bytes, offset: int) -> None:
        """The same for a digest, whatever its hash function is."""
        group = (code if self._codec == MULTIHASH_INDEX_SORTED else 0, len(digest))
        self._groups[group] = self._groups.get(group, 0) + 1
        if len(self._groups) > MAX_GROUPS:
            raise Unsupported(f"more than {MAX_GROUPS:,} kinds of hashes in one archive")
        self._sort.add(_GROUP_KEY.pack(*group) + digest + _OFFSET_KEY.pack(offset))

    @property
    def size_bytes(self) -> int:
        """Of the whole index."""
        heads = len(varint.encode(self._codec)) + _COUNT.size + _BUCKET.size * len(self._groups)
        if self._codec == MULTIHASH_INDEX_SORTED:
            heads += (_CODE.size + _COUNT.size) * len({code for code, _ in self._groups})
        return heads + self._sort.size_bytes - _GROUP_KEY.size * self._sort.count

    def blocks(self) -> Iterator[bytes]:
        """The index in blocks of about 64 KiB. Afterwards the builder is empty. Raises TemporaryFileFailed."""
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
        begun: int | None = None
        for (code, digest_bytes), count in groups:
            if self._by_function and code != begun:
                yield _CODE.pack(code) + _COUNT.pack(widths[code])
                begun = code
            width = digest_bytes + _OFFSET.size
            yield _BUCKET.pack(width, width * count)
            for _ in range(count):
                yield _record(next(records))

    @property
    def _by_function(self) -> bool:
        return self._codec == MULTIHASH_INDEX_SORTED


def _record(key: bytes) -> bytes:
    """What the index has for a record that was sorted: the offset turned round."""
    return key[_GROUP_KEY.size : -_OFFSET.size] + key[: -_OFFSET.size - 1 : -1]


def read_index(archive: RandomReader, start: int, end: int) -> Iterator[IndexRecord]:
    """The records of an index that begins at byte `start` and ends before `end`; what follows it is not looked at.

    Memory: a window of 1 MiB. Raises Corrupt where it cannot be right, Unsupported if its codec is unknown.
    """
    window = _Window(archive, start, end)
    codec = window.varint()
    if codec == INDEX_SORTED:
        yield from _buckets(window, None)
    elif codec == MULTIHASH_INDEX_SORTED:
        for _ in range(window.count()):
            (code,) = _CODE.unpack(window.take(_CODE.size))
            yield from _buckets(window, code)
    else:
        raise Unsupported(f"an index of codec {codec:#x}", chunk=archive.name, byte=start)


def _buckets(window: "_Window", code: int | None) -> Iterator[IndexRecord]:
    for _ in range(window.count()):
        width, size_bytes = _BUCKET.unpack(window.take(_BUCKET.size))
        if not _OFFSET.size <= width <= MAX_CID_BYTES or size_bytes % width or size_bytes > window.left:
            raise window.corrupt(f"a bucket of {size_bytes:,} bytes in records of {width}")
        for _ in range(size_bytes // width):
            record = window.take(width)
            yield IndexRecord(code, record[: -_OFFSET.size], _OFFSET.unpack(record[-_OFFSET.size :])[0])


class _Window:
    """Bytes in order."""

    def __init__(self, archive: RandomReader, start: int, end: int) -> None:
        self._archive = archive
        self._next, self._end = start, end
        self._data = b""
        self._at = 0

    @property
    def left(self) -> int:
        """How many bytes are still to come."""
        return len(self._data) - self._at + self._end - self._next

    def take(self, size_bytes: int) -> bytes:
        if len(self._data) - self._at < size_bytes:
            until = min(self._end, self._next + _WINDOW_BYTES)
            self._data = self._data[self._at :] + self._archive.read_at(self._next, until)
            self._next, self._at = until, 0
        taken = self._data[self._at : self._at + size_bytes]
        if len(taken) < size_bytes:
            raise self.corrupt("the index ends too early")
        self._at += size_bytes
        return taken

    def count(self) -> int:
        (count,) = _COUNT.unpack(self.take(_COUNT.size))
        if not 0 <= count <= MAX_GROUPS:
            raise self.corrupt(f"{count} groups of digests")
        return int(count)

    def varint(self) -> int:
        head = self.take(min(varint.MAX_VARINT_BYTES, self.left))
        try:
            value, size_bytes = varint.read(head, 0)
        except ValueError as error:
            raise self.corrupt(f"no codec of an index: {error}") from error
        self._at += size_bytes - len(head)
        return value

    def corrupt(self, message: str) -> Corrupt:
        return Corrupt(message, chunk=self._archive.name, byte=self._next - len(self._data) + self._at)
