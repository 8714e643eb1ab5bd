"""Finds the blocks of a CAR by CID in a sorted table of their positions, which is on disk if it exceeds 8 MiB."""

import hashlib
import struct
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from cafcat.errors import Corrupt
from cafcat.formats.base import RandomReader
from cafcat.formats.car import varint
from cafcat.formats.car.cid import block_matches, cid_to_text
from cafcat.formats.car.sections import Section
from cafcat.support.sorting import ExternalSort
from cafcat.support.spool import Spool

__all__ = ["BlockSpan", "BlockTable", "multihash_of"]

_RECORD: Final = struct.Struct(">16sQIHxx")
"""The key, the start of the section, the size of the block, and the size of the section's head (bytes)."""
_MEMORY_BYTES: Final = 8 << 20
"""A larger table spills to a temporary file."""
_PAGE_RECORDS: Final = 128
"""Number of records in a page, unless there would be more than _MAX_PAGES pages."""
_MAX_PAGES: Final = 1 << 17
"""Largest number of pages: the first key of each page stays in memory."""
_MAX_MARKED: Final = 1 << 28
"""Largest number of records whose use is tracked, with one bit each: 32 MiB."""


class BlockSpan(NamedTuple):
    """The position of a block and its section, in bytes from the start of the archive.

    Attributes:
        start: start of the section.
        data_start: start of the block itself.
        data_end: end of the block and of the section.
    """

    start: int
    data_start: int
    data_end: int


def multihash_of(cid: bytes) -> bytes:
    """Return the multihash of a CID: code of the hash function, size of the digest, and digest.

    CIDs that differ only in their version or codec have the same multihash.

    Raises:
        ValueError: `cid` does not begin like a CID. The rest is not checked.
    """
    if cid[:2] in (b"\x01\x55", b"\x01\x70"):
        return cid[2:]
    if cid[:2] == b"\x12\x20":
        return cid
    _, offset = varint.read(cid, 0)
    return cid[varint.read(cid, offset)[1] :]


def _key(cid: bytes) -> bytes:
    # The digest itself would be unsafe: with a weak or unknown hash function, an archive could choose equal
    # digests.
    return hashlib.blake2b(multihash_of(cid), digest_size=16).digest()


class BlockTable:
    """Finds the blocks of a CAR by CID. If the archive repeats a block, its first section in the archive is found.

    A block is also found by another CID with the same multihash; see `multihash_of`.

    Memory: that of ExternalSort while the table is built. Then 8 MiB of records, which are on disk if there are
    more; a key for each 128 blocks, but at most 131,072 keys; and one bit for each block, but at most 32 MiB.

    Attributes:
        count: number of sections, repeated blocks included.
    """

    def __init__(self, archive: RandomReader, sections: Iterable[Section]) -> None:
        """Read the positions of all sections and build the table.

        Args:
            archive: the archive.
            sections: all sections of the archive, in order.

        Raises:
            TemporaryFileFailed: a temporary file failed. Errors of `sections` pass through.
        """
        self._archive = archive
        sort = ExternalSort("a table of blocks")
        for start, cid, data_start, data_end in sections:
            sort.add(_RECORD.pack(_key(cid), start, data_end - data_start, data_start - start))
        self.count = sort.count
        self._page_bytes = _RECORD.size * max(_PAGE_RECORDS, -(-sort.count // _MAX_PAGES))
        self._page_keys: list[bytes] = []
        self._used = bytearray(sort.count // 8 + 1 if sort.count <= _MAX_MARKED else 0)
        self._spool = Spool("a table of blocks", _MEMORY_BYTES)
        self._fill(sort)
        sort.close()

    def _fill(self, sort: ExternalSort) -> None:
        page = bytearray()
        for record in sort:
            if not page:
                self._page_keys.append(record[:16])
            page += record
            if len(page) == self._page_bytes:
                self._spool.write(page)
                page.clear()
        self._spool.write(page)

    def find(self, cid: bytes) -> BlockSpan | None:
        """Return the position of the block with this CID, or None if the archive does not have it.

        The block counts as used; see `unused_blocks`.

        Raises:
            TemporaryFileFailed: the temporary file cannot be read.
        """
        key = _key(cid)
        # If several records have this key, the first one may be at the end of the preceding page.
        page = bisect_left(self._page_keys, key)
        for number in range(max(page - 1, 0), min(page + 1, len(self._page_keys))):
            self._spool.seek(number * self._page_bytes)
            records = self._spool.read(self._page_bytes)
            offset = _find_in_page(records, key)
            if offset is not None:
                self._mark_used((number * self._page_bytes + offset) // _RECORD.size)
                return _span_of_record(records, offset)
        return None

    def _mark_used(self, ordinal: int) -> None:
        if self._used:
            self._used[ordinal >> 3] |= 1 << (ordinal & 7)

    def unused_blocks(self) -> tuple[int, int]:
        """Return the number of distinct blocks that `find` never returned, and the start of the first of them.

        The start is that of the block's section, in bytes from the start of the archive. If there are no such
        blocks, or the table has more than 268 million records, the result is `(0, 2**63)`.

        Raises:
            TemporaryFileFailed: the temporary file cannot be read.
        """
        count, first, last_key = 0, 1 << 63, b""
        if self._used:
            for ordinal, record in enumerate(self._records()):
                key, start, _, _ = _RECORD.unpack(record)
                # Among equal blocks, `find` returns only the first.
                if key != last_key and not self._used[ordinal >> 3] >> (ordinal & 7) & 1:
                    count, first = count + 1, min(first, start)
                last_key = key
        return count, first

    def _records(self) -> Iterator[bytes]:
        for page in self._spool.blocks_from(0, self._page_bytes):
            for offset in range(0, len(page), _RECORD.size):
                yield page[offset : offset + _RECORD.size]

    def block(self, cid: bytes) -> tuple[BlockSpan, bytes] | None:
        """Return the position and the bytes of the block with this CID, or None if the archive does not have it.

        The block counts as used; see `unused_blocks`. If cafcat cannot compute the hash function, the bytes are not
        checked.

        Raises:
            Corrupt: the bytes do not match the hash in the CID.
            TemporaryFileFailed: the temporary file cannot be read.
        """
        span = self.find(cid)
        if span is None:
            return None
        block = self._archive.read_at(span.data_start, span.data_end)
        if block_matches(cid, block) is False:
            message = f"the block does not match its CID {cid_to_text(cid)}"
            raise Corrupt(message, chunk=self._archive.name, byte=span.data_start)
        return span, block

    def content(self, cid: bytes) -> bytes | None:
        """Return the bytes of the block with this CID, or None if the archive does not have it.

        Raises the errors of `BlockTable.block`.
        """
        found = self.block(cid)
        return None if found is None else found[1]

    def close(self) -> None:
        """Remove the temporary file of the table. Further calls of `close` do nothing."""
        self._spool.close()


def _find_in_page(page: bytes, key: bytes) -> int | None:
    """Return the offset in bytes of the first record with this key in a page, or None if no record has the key."""
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


def _span_of_record(page: bytes, offset: int) -> BlockSpan:
    _, start, size_bytes, head_bytes = _RECORD.unpack_from(page, offset)
    return BlockSpan(start, start + head_bytes, start + head_bytes + size_bytes)
