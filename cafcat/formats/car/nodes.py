"""Writing the inner nodes of files."""

import hashlib
from collections.abc import Callable
from typing import Final

from cafcat.formats.car import dag_pb, unixfs, varint
from cafcat.formats.car.cid import CID_BYTES, RAW_SHA256
from cafcat.formats.car.index import SHA256_INDEX_RECORD_BYTES

__all__ = [
    "DAG_PB_SHA256",
    "LINKS_PER_NODE",
    "SECTION_BYTES",
    "PutNode",
    "largest_file_bytes",
    "put_large_file",
    "put_node",
]

DAG_PB_SHA256: Final = b"\x01\x70\x12\x20"
"""What the CID of a node begins with."""
PutNode = Callable[[bytes, bytes], None]
"""Writes a block: its CID, its bytes."""

LINKS_PER_NODE: Final = 1024
"""Of a file. This, leaves of 1 MiB and directories of 256 KiB are IPFS's profile unixfs-v1-2025."""

SECTION_BYTES: Final = 3 + CID_BYTES + SHA256_INDEX_RECORD_BYTES
"""Of a block of 16 KiB to 2 MiB, with its index record, beside its bytes."""
_LEAF_LINK_BYTES: Final = 64
_NODE_LINK_BYTES: Final = 128
"""No less than a leaf and an inner node take in the node above; the latter with its own size and time."""


def largest_file_bytes(size_bytes: int, leaf_bytes: int) -> int:
    """What the blocks of a file of that size take at most, with their index records: exact if it is one."""
    if size_bytes <= leaf_bytes:
        return varint.size(CID_BYTES + size_bytes) + CID_BYTES + size_bytes + SHA256_INDEX_RECORD_BYTES
    leaves = -(-size_bytes // leaf_bytes)
    nodes = leaves // (LINKS_PER_NODE - 1) + 4
    return size_bytes + leaves * (SECTION_BYTES + _LEAF_LINK_BYTES) + nodes * (SECTION_BYTES + _NODE_LINK_BYTES)


def put_node(put: PutNode, block: bytes) -> bytes:
    """Writes a node; returns its CID."""
    cid = DAG_PB_SHA256 + hashlib.sha256(block).digest()
    put(cid, block)
    return cid


def put_large_file(
    put: PutNode, digests: list[bytes], leaf_bytes: int, size_bytes: int, time: int | None
) -> tuple[bytes, int]:
    """Writes the nodes above the leaves of a file, level by level; the last leaf may be shorter than leaf_bytes.
    Returns CID of the topmost and bytes of all blocks. time: nanoseconds since 1970 UTC."""
    sizes = [leaf_bytes] * (len(digests) - 1) + [size_bytes - leaf_bytes * (len(digests) - 1)]
    level = [(RAW_SHA256 + digest, size, size) for digest, size in zip(digests, sizes, strict=True)]
    while len(level) > 1:
        groups = [level[at : at + LINKS_PER_NODE] for at in range(0, len(level), LINKS_PER_NODE)]
        level = [_put_file_node(put, group, time if len(groups) == 1 else None) for group in groups]
    cid, _, total_bytes = level[0]
    return cid, total_bytes


def _put_file_node(
    put: PutNode, children: list[tuple[bytes, int, int]], time: int | None
) -> tuple[bytes, int, int]:
    links = b"".join(dag_pb.encode_link(cid, b"", total_bytes) for cid, _, total_bytes in children)
    sizes = [size for _, size, _ in children]
    block = dag_pb.encode(links, unixfs.file_data(sum(sizes), sizes, time))
    return put_node(put, block), sum(sizes), len(block) + sum(total_bytes for _, _, total_bytes in children)
