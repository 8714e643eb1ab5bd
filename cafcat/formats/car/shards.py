"""Writes a UnixFS directory that is too large for one node as a HAMT: a tree of shards, by the hashes of the names.

A shard is a node with 256 slots. The slot of a name in the top shard is the first byte of its hash, in the
shard below the second byte, and so on.
"""

import struct
from collections.abc import Iterator
from typing import Final

from cafcat.formats.car import dag_pb, unixfs
from cafcat.formats.car.cid import RAW_SHA256
from cafcat.formats.car.hamt import HASH_BYTES, name_hash
from cafcat.formats.car.nodes import DAG_PB_SHA256, SectionWriter
from cafcat.formats.car.tree_names import SHARD_BYTES_PER_LINK
from cafcat.support.sorting import ExternalSort

__all__ = ["write_shards"]

_VALUE: Final = struct.Struct(">B32sQ")
"""Whether the CID is that of a leaf, the digest, and the total size of the blocks in bytes."""
_SHARD_BYTES: Final = 180
"""Upper bound in bytes for an empty shard with its section, the link to it, and its index record."""
_LINK_BYTES: Final = 4
"""Upper bound in bytes for the difference in size between a link in a shard and a link in a plain directory."""


def write_shards(sections: SectionWriter, links: Iterator[dag_pb.Link]) -> tuple[bytes, int]:
    """Write the shards of a directory, deepest first.

    Names whose hashes begin with the same bytes go to deeper levels, up to eight. If that would make the tree
    larger than its computed bound, the deepest levels are not written. Of the names that only these levels could
    separate, only the name whose hash sorts first is in the tree, on a higher level. The tree lacks the other
    names, and no error is raised. This happens only with names chosen for that purpose.

    Memory: that of ExternalSort, and 256 links for each level.

    Args:
        sections: writes the shards.
        links: the links of the directory, in any order.

    Returns:
        The CID of the directory, and the total size in bytes of its shards and all blocks below them.

    Raises:
        TemporaryFileFailed: the temporary file failed. Errors of the sink pass through.
    """
    records = ExternalSort("a large directory")
    for cid, name, total_bytes in links:
        value = _VALUE.pack(cid.startswith(RAW_SHA256), cid[-32:], total_bytes)
        records.add(name_hash(name) + value + name)
    shards = _Shards(sections)
    for depth, record in _assign_levels(records, _find_max_depth(records)):
        is_leaf, digest, total_bytes = _VALUE.unpack_from(record, HASH_BYTES)
        cid = (RAW_SHA256 if is_leaf else DAG_PB_SHA256) + digest
        shards.add(record[:HASH_BYTES], depth, cid, record[HASH_BYTES + _VALUE.size :], total_bytes)
    records.close()
    return shards.finish()


def _assign_levels(records: ExternalSort, max_depth: int) -> Iterator[tuple[int, bytes]]:
    """Yield records with the level, from 0, of the shard in which the link is stored.

    Of records whose hashes share more than `max_depth` first bytes, only the first is yielded: the tree lacks the
    others. The level is the number of first bytes that the hash shares with the previous or the next yielded
    record, whichever is greater. It is at most `max_depth`.

    Args:
        records: hash of the name, value and name of each link, back to back; sorted.
        max_depth: the deepest level to use.
    """
    last, before = b"", 0
    for record in records:
        if last:
            common = _common_prefix(last, record)
            if common > max_depth:
                continue
            yield max(before, common), last
            before = common
        last = record
    if last:
        yield before, last


def _common_prefix(first: bytes, second: bytes) -> int:
    """Return the number of leading bytes, up to 8, that the hashes at the start of two records have in common."""
    count = 0
    while count < HASH_BYTES and first[count] == second[count]:
        count += 1
    return count


def _find_max_depth(records: ExternalSort) -> int:
    """Return the deepest level, 0 to 7, down to which all shards fit into TreeSize's bound for the directory."""
    budget = records.count * (SHARD_BYTES_PER_LINK - _LINK_BYTES) - _SHARD_BYTES
    shards = [0] * HASH_BYTES
    last = b""
    for depth, record in _assign_levels(records, HASH_BYTES - 1):
        for level in range((_common_prefix(last, record) if last else 0) + 1, depth + 1):
            shards[level] += 1
        last = record
    for level in range(1, HASH_BYTES):
        budget -= shards[level] * _SHARD_BYTES
        if budget < 0:
            return level - 1
    return HASH_BYTES - 1


class _Shard:
    """A shard of a directory that is being filled, slot by slot.

    Attributes:
        links: the encoded links so far.
        bits: bitmap of the used slots.
        total_bytes: total size in bytes of the blocks below the shard.
    """

    def __init__(self) -> None:
        self.links = bytearray()
        self.bits = 0
        self.total_bytes = 0

    def add(self, slot: int, cid: bytes, name: bytes, total_bytes: int) -> None:
        self.links += dag_pb.encode_link(cid, b"%02X" % slot + name, total_bytes)
        self.bits |= 1 << slot
        self.total_bytes += total_bytes

    def write(self, sections: SectionWriter) -> tuple[bytes, int]:
        block = dag_pb.encode(bytes(self.links), unixfs.shard_data(self.bits))
        return sections.write_node(block), self.total_bytes + len(block)


class _Shards:
    """Receives the links of a directory in the order of their hashes, and writes each shard once it is complete."""

    def __init__(self, sections: SectionWriter) -> None:
        self._sections = sections
        self._open = [_Shard()]
        self._last = bytes(HASH_BYTES)

    def add(self, name_hash: bytes, depth: int, cid: bytes, name: bytes, total_bytes: int) -> None:
        """Add a link to the open shard at the level `depth`. Hashes must ascend from call to call."""
        self._close_below(_common_prefix(self._last, name_hash))
        while len(self._open) <= depth:
            self._open.append(_Shard())
        self._open[depth].add(name_hash[depth], cid, name, total_bytes)
        self._last = name_hash

    def _close_below(self, level: int) -> None:
        while len(self._open) > level + 1:
            cid, total_bytes = self._open.pop().write(self._sections)
            above = len(self._open) - 1
            self._open[above].add(self._last[above], cid, b"", total_bytes)

    def finish(self) -> tuple[bytes, int]:
        """Write the open shards. Return the CID of the topmost one, and its size in bytes with all blocks below."""
        self._close_below(0)
        return self._open[0].write(self._sections)
