"""Writes the sections of a CAR and the inner nodes of large files, and computes how much space a file needs."""

import hashlib
from typing import Final

from cafcat.formats.car import dag_pb, unixfs, varint
from cafcat.formats.car.cid import CID_BYTES, RAW_SHA256, SHA256
from cafcat.formats.car.header import V2_DATA_START
from cafcat.formats.car.index import SHA256_INDEX_RECORD_BYTES, IndexBuilder
from cafcat.formats.writing import BufferedBytes

__all__ = [
    "DAG_PB_SHA256",
    "LINKS_PER_NODE",
    "SECTION_BYTES",
    "SectionWriter",
    "largest_file_bytes",
    "write_large_file",
]

DAG_PB_SHA256: Final = b"\x01\x70\x12\x20"
"""The first bytes of the CID of a DAG-PB node: version 1, codec DAG-PB, SHA-256 with a digest of 32 bytes."""

LINKS_PER_NODE: Final = 1024
"""Largest number of links in an inner node of a file. This number, leaves of 1 MiB and directory nodes of 256 KiB
are those of IPFS's profile unixfs-v1-2025."""

SECTION_BYTES: Final = 3 + CID_BYTES + SHA256_INDEX_RECORD_BYTES
"""Overhead in bytes of a block of 16 KiB to 1 MiB: the head of its section and its index record."""
_LEAF_LINK_BYTES: Final = 64
"""Upper bound in bytes for the link to a leaf, and the size of the leaf, in the node above it."""
_NODE_LINK_BYTES: Final = 128
"""Upper bound in bytes for the link to an inner node in the node above it, and for the inner node's own bytes that
are not links: file size and time."""


def largest_file_bytes(size_bytes: int, leaf_bytes: int) -> int:
    """Return an upper bound in bytes for the space of a file in a CAR: its sections and their index records.

    The bound is exact for a file of one block.

    Args:
        size_bytes: size of the file in bytes.
        leaf_bytes: size of a leaf in bytes.
    """
    if size_bytes <= leaf_bytes:
        return varint.size(CID_BYTES + size_bytes) + CID_BYTES + size_bytes + SHA256_INDEX_RECORD_BYTES
    leaves = -(-size_bytes // leaf_bytes)
    nodes = leaves // (LINKS_PER_NODE - 1) + 4
    return size_bytes + leaves * (SECTION_BYTES + _LEAF_LINK_BYTES) + nodes * (SECTION_BYTES + _NODE_LINK_BYTES)


class SectionWriter:
    """Writes the sections of a CAR, each with one block, and collects their index records.

    Methods raise the errors of the sink, and TemporaryFileFailed if the temporary file of the index fails.

    Attributes:
        position: number of bytes of the archive written so far, including those still in the buffer.
        count: number of sections written so far.
        cids: collects the index of the sections.
    """

    def __init__(self, out: BufferedBytes) -> None:
        self._out = out
        self.position = 0
        self.count = 0
        self.cids = IndexBuilder()

    def write_leaf(self, head: bytes, content: bytes) -> bytes:
        """Write the section of a leaf (a raw block of a file), and return its CID.

        Args:
            head: the section's size, as an encoded varint.
            content: the bytes of the block.
        """
        digest = hashlib.sha256(content).digest()
        self.cids.add_digest(SHA256, digest, self.position - V2_DATA_START)
        self.count += 1
        cid = RAW_SHA256 + digest
        self.write(head, cid, content)
        return cid

    def write_node(self, block: bytes) -> bytes:
        """Write the section of an encoded DAG-PB node, and return its CID."""
        digest = hashlib.sha256(block).digest()
        self.cids.add_digest(SHA256, digest, self.position - V2_DATA_START)
        self.count += 1
        cid = DAG_PB_SHA256 + digest
        self.write(varint.encode(CID_BYTES + len(block)), cid, block)
        return cid

    def write(self, *parts: bytes) -> None:
        """Write bytes of the archive that get no index record, such as its head."""
        self.position += self._out.write(*parts)


def write_large_file(
    sections: SectionWriter, digests: list[bytes], leaf_bytes: int, size_bytes: int, time: int | None
) -> tuple[bytes, int]:
    """Write the nodes above the leaves of a file, level by level. A file of one leaf gets no nodes.

    Args:
        sections: writes the nodes.
        digests: SHA-256 of each leaf.
        leaf_bytes: size of a leaf in bytes; the last one may be shorter.
        size_bytes: size of the file in bytes.
        time: modification time in nanoseconds since 1970-01-01 UTC, or None. Only the topmost node stores it.

    Returns:
        The CID of the file, and the total size in bytes of all its blocks, leaves included.
    """
    sizes = [leaf_bytes] * (len(digests) - 1) + [size_bytes - leaf_bytes * (len(digests) - 1)]
    level = [(RAW_SHA256 + digest, size, size) for digest, size in zip(digests, sizes, strict=True)]
    while len(level) > 1:
        groups = [level[offset : offset + LINKS_PER_NODE] for offset in range(0, len(level), LINKS_PER_NODE)]
        level = [_put_file_node(sections, group, time if len(groups) == 1 else None) for group in groups]
    cid, _, total_bytes = level[0]
    return cid, total_bytes


def _put_file_node(
    sections: SectionWriter, children: list[tuple[bytes, int, int]], time: int | None
) -> tuple[bytes, int, int]:
    links = b"".join(dag_pb.encode_link(cid, b"", total_bytes) for cid, _, total_bytes in children)
    sizes = [size for _, size, _ in children]
    block = dag_pb.encode(links, unixfs.file_data(sum(sizes), sizes, time))
    return sections.write_node(block), sum(sizes), len(block) + sum(total_bytes for _, _, total_bytes in children)
