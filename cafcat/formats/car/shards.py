"""Writing a directory that is too large for one node: as a HAMT, shards of 256 places by the hash of the name."""

import struct
from collections.abc import Iterator
from typing import Final

from cafcat.formats.car import dag_pb, unixfs
from cafcat.formats.car.cid import RAW_SHA256
from cafcat.formats.car.hamt import HASH_BYTES, name_hash
from cafcat.formats.car.nodes import DAG_PB_SHA256, PutNode, put_node
from cafcat.formats.car.tree_names import SHARD_BYTES_PER_LINK
from cafcat.support.sorting import ExternalSort

__all__ = ["put_shards"]

_WHERE: Final = struct.Struct(">B32sQ")
"""Whether a CID is that of a leaf; digest; bytes of all its blocks."""
_SHARD_BYTES: Final = 180
"""No less than an empty shard takes with its section, the link to it, and its index record."""
_LINK_BYTES: Final = 4
"""A link in a shard takes no more than these in addition."""


def put_shards(put: PutNode, links: Iterator[dag_pb.Link]) -> tuple[bytes, int]:
    """Writes the shards of a directory, the deepest first: CID and bytes of all blocks of its root.

    Names whose hashes begin alike go deeper, up to eight levels. Were there so many of them that the tree would
    outgrow what was foretold, which takes names chosen for that, those that need the deepest levels are left out.
    Memory: that of ExternalSort, and 256 links for each level.
    """
    spread = ExternalSort("a large directory")
    for cid, name, total_bytes in links:
        where = _WHERE.pack(cid.startswith(RAW_SHA256), cid[-32:], total_bytes)
        spread.add(name_hash(name) + where + name)
    shards = _Shards(put)
    for depth, record in _placed(spread, _most_depth(spread)):
        is_leaf, digest, total_bytes = _WHERE.unpack_from(record, HASH_BYTES)
        cid = (RAW_SHA256 if is_leaf else DAG_PB_SHA256) + digest
        shards.add(record[:HASH_BYTES], depth, cid, record[HASH_BYTES + _WHERE.size :], total_bytes)
    spread.close()
    return shards.finish()


def _placed(spread: ExternalSort, most_depth: int) -> Iterator[tuple[int, bytes]]:
    """Each record with the level of the shard that it stands in, from 0; without those that have no place because
    another one has it."""
    last, before = b"", 0
    for record in spread:
        if last:
            shared = _shared(last, record)
            if shared > most_depth:
                continue
            yield max(before, shared), last
            before = shared
        last = record
    if last:
        yield before, last


def _shared(first: bytes, second: bytes) -> int:
    """How many bytes two hashes have in common at the beginning."""
    count = 0
    while count < HASH_BYTES and first[count] == second[count]:
        count += 1
    return count


def _most_depth(spread: ExternalSort) -> int:
    """The deepest level that there is room for."""
    room = spread.count * (SHARD_BYTES_PER_LINK - _LINK_BYTES) - _SHARD_BYTES
    shards = [0] * HASH_BYTES
    last = b""
    for depth, record in _placed(spread, HASH_BYTES - 1):
        for level in range((_shared(last, record) if last else 0) + 1, depth + 1):
            shards[level] += 1
        last = record
    for level in range(1, HASH_BYTES):
        room -= shards[level] * _SHARD_BYTES
        if room < 0:
            return level - 1
    return HASH_BYTES - 1


class _Shard:
    """One that is being filled, place by place."""

    def __init__(self) -> None:
        self.links = bytearray()
        self.bits = 0
        self.total_bytes = 0

    def add(self, place: int, cid: bytes, name: bytes, total_bytes: int) -> None:
        self.links += dag_pb.encode_link(cid, b"%02X" % place + name, total_bytes)
        self.bits |= 1 << place
        self.total_bytes += total_bytes

    def put(self, put: PutNode) -> tuple[bytes, int]:
        block = dag_pb.encode(bytes(self.links), unixfs.shard_data(self.bits))
        return put_node(put, block), self.total_bytes + len(block)


class _Shards:
    """Takes links in the order of their hashes, and writes each shard as soon as it is full."""

    def __init__(self, put: PutNode) -> None:
        self._put = put
        self._open = [_Shard()]
        self._last = bytes(HASH_BYTES)

    def add(self, name_hash: bytes, depth: int, cid: bytes, name: bytes, total_bytes: int) -> None:
        """depth: the level of the shard that it stands in."""
        self._close_below(_shared(self._last, name_hash))
        while len(self._open) <= depth:
            self._open.append(_Shard())
        self._open[depth].add(name_hash[depth], cid, name, total_bytes)
        self._last = name_hash

    def _close_below(self, level: int) -> None:
        while len(self._open) > level + 1:
            cid, total_bytes = self._open.pop().put(self._put)
            above = len(self._open) - 1
            self._open[above].add(self._last[above], cid, b"", total_bytes)

    def finish(self) -> tuple[bytes, int]:
        """CID and bytes of all blocks of the root."""
        self._close_below(0)
        return self._open[0].put(self._put)
