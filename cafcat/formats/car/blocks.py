"""Where the block of a CID stands, in archives of any size: a sorted table on disk."""

import hashlib
import struct
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from cafcat.errors import Corrupt
from cafcat.formats.base import RandomReader
from cafcat.formats.car import varint
from cafcat.formats.car.cid import is_block_of, text_of
from cafcat.formats.car.sections import Section
from cafcat.support.sorting import ExternalSort
from cafcat.support.spool import Spool

__all__ = ["BlockSpan", "BlockTable", "multihash_of"]

_RECORD: Final = struct.Struct(">16sQIHxx")
_MEMORY_BYTES: Final = 8 << 20
_PAGE_RECORDS: Final = 128
_MOST_FENCES: Final = 1 << 17
_MOST_MARKED: Final = 1 << 28
"""Records whose finding is noted: a bit for each, 32 MiB."""


class BlockSpan(NamedTuple):
    """A section begins at start; its block is `[data_start, data_end)`."""

    start: int
    data_start: int
    data_end: int


def multihash_of(cid: bytes) -> bytes:
    """What of a CID tells blocks apart: version and codec do not. Raises ValueError if it is no CID."""
    if cid[:2] in (b"\x01\x55", b"\x01\x70"):
        return cid[2:]
    if cid[:2] == b"\x12\x20":
        return cid
    _, at = varint.read(cid, 0)
    return cid[varint.read(cid, at)[1] :]


def _key(cid: bytes) -> bytes:
    # Not the digest itself: hash functions may be weak or unknown, so an archive could choose it.
    return hashlib.blake2b(multihash_of(cid), digest_size=16).digest()


class BlockTable:
    """Look-up of blocks by CID; of one that comes twice, the first.

    Memory: that of ExternalSort while it is made; then 8 MiB of records, the others on disk, and a key for every
    128 blocks, 131,072 at most.
    """

    def __init__(self, archive: RandomReader, sections: Iterable[Section]) -> None:
        """Goes through all sections. Raises what they raise, and TemporaryFileFailed."""
        self._archive = archive
        sort = ExternalSort("a table of blocks")
        for start, cid, data_start, data_end in sections:
            sort.add(_RECORD.pack(_key(cid), start, data_end - data_start, data_start - start))
        self.count = sort.count
        self._page_bytes = _RECORD.size * max(_PAGE_RECORDS, -(-sort.count // _MOST_FENCES))
        self._fences: list[bytes] = []
        self._found = bytearray(sort.count // 8 + 1 if sort.count <= _MOST_MARKED else 0)
        self._spool = Spool("a table of blocks", _MEMORY_BYTES)
        self._fill(sort)
        sort.close()

    def _fill(self, sort: ExternalSort) -> None:
        page = bytearray()
        for record in sort:
            if not page:
                self._fences.append(record[:16])
            page += record
            if len(page) == self._page_bytes:
                self._spool.write(page)
                page.clear()
        self._spool.write(page)

    def find(self, cid: bytes) -> BlockSpan | None:
        """None if there is no such block. Raises TemporaryFileFailed."""
        key = _key(cid)
        # The first of several with this key may stand at the end of the page before the one that begins with it.
        page = bisect_left(self._fences, key)
        for number in range(max(page - 1, 0), min(page + 1, len(self._fences))):
            self._spool.seek(number * self._page_bytes)
            records = self._spool.read(self._page_bytes)
            at = _first(records, key)
            if at is not None:
                self._mark((number * self._page_bytes + at) // _RECORD.size)
                return _place_of(records, at)
        return None

    def _mark(self, ordinal: int) -> None:
        if self._found:
            self._found[ordinal >> 3] |= 1 << (ordinal & 7)

    def never_found(self) -> tuple[int, int]:
        """Return how many different blocks were never found by their CID, and where the first one's section begins.

        In a table of more than 268 million blocks none are counted. Raises TemporaryFileFailed.
        """
        count, first, last_key = 0, 1 << 63, b""
        if self._found:
            for ordinal, record in enumerate(self._records()):
                key, start, _, _ = _RECORD.unpack(record)
                # Of equal blocks only the first is ever found.
                if key != last_key and not self._found[ordinal >> 3] >> (ordinal & 7) & 1:
                    count, first = count + 1, min(first, start)
                last_key = key
        return count, first

    def _records(self) -> Iterator[bytes]:
        for page in self._spool.blocks_from(0, self._page_bytes):
            for at in range(0, len(page), _RECORD.size):
                yield page[at : at + _RECORD.size]

    def block(self, cid: bytes) -> tuple[BlockSpan, bytes] | None:
        """The place and the block, checked. Raises Corrupt if it is not the one that the CID means."""
        place = self.find(cid)
        if place is None:
            return None
        block = self._archive.read_at(place.data_start, place.data_end)
        if is_block_of(cid, block) is False:
            message = f"the block is not the one of its CID {text_of(cid)}"
            raise Corrupt(message, chunk=self._archive.name, byte=place.data_start)
        return place, block

    def close(self) -> None:
        """Frees the temporary file. Idempotent."""
        self._spool.close()


def _first(page: bytes, key: bytes) -> int | None:
    """Return where the first record of this key stands in a page; None if it has none."""
    low, high = 0, len(page) // _RECORD.size
    while low < high:
        middle = (low + high) // 2
        if page[middle * _RECORD.size : middle * _RECORD.size + 16] < key:
            low = middle + 1
        else:
            high = middle
    if page[low * _RECORD.size : low * _RECORD.size + 16] != key:
        return None
    return low * _RECORD.size


def _place_of(page: bytes, at: int) -> BlockSpan:
    _, start, size_bytes, head_bytes = _RECORD.unpack_from(page, at)
    return BlockSpan(start, start + head_bytes, start + head_bytes + size_bytes)
