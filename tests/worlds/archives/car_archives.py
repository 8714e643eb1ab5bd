"""CARs made by hand, with known faults."""

import hashlib
import struct

from cafcat.formats.car import dag_pb, unixfs, varint
from cafcat.formats.car.cid import DAG_PB, RAW, SHA256
from cafcat.formats.car.header import PRAGMA
from cafcat.formats.car.manifest import TRAILER_BYTES
from cafcat.formats.car.reader import CarReader
from cafcat.testing.formats import BytesArchive

Block = tuple[bytes, bytes]
"""CID and bytes."""


def without_manifest(archive: bytes) -> bytes:
    """Return one of cafcat's own CARs as other programs see it: without the trailer that marks the manifest.

    Only the trailer is overwritten. The contents of files may hold the same bytes.
    """
    index_start = CarReader(BytesArchive(archive), by_cid=True).layout.index_start
    assert index_start is not None
    trailer_start = index_start - TRAILER_BYTES
    return archive[:trailer_start] + b"\1" * TRAILER_BYTES + archive[index_start:]


def cid_of(data: bytes, codec: int = RAW) -> bytes:
    return cid(codec, SHA256, hashlib.sha256(data).digest())


def cid(codec: int, code: int, digest: bytes) -> bytes:
    return b"\x01" + b"".join(map(varint.encode, (codec, code, len(digest)))) + digest


def leaf(data: bytes) -> Block:
    return cid_of(data), data


def node(data: bytes | None, *links: tuple[bytes, bytes]) -> Block:
    """Return a DAG-PB node. links: name and CID of each link."""
    block = b"".join(dag_pb.encode_link(target, name, 0) for name, target in links)
    if data is not None:
        block = dag_pb.encode(block, data)
    return cid_of(block, DAG_PB), block


def directory(*links: tuple[bytes, bytes]) -> Block:
    return node(unixfs.DIRECTORY, *links)


def file(size_bytes: int, *parts: bytes, inline: bytes = b"") -> Block:
    data = unixfs.file_data(size_bytes, [])
    if inline:
        data += b"\x12" + varint.encode(len(inline)) + inline
    return node(data, *((b"", part) for part in parts))


def section(target: bytes, data: bytes) -> bytes:
    return varint.encode(len(target) + len(data)) + target + data


def cbor(kind: int, number: int) -> bytes:
    if number < 24:
        return bytes((kind << 5 | number,))
    return bytes((kind << 5 | 25,)) + struct.pack(">H", number)


def header(*roots: bytes, version: int = 1) -> bytes:
    items = b"".join(b"\xd8\x2a" + cbor(2, len(root) + 1) + b"\0" + root for root in roots)
    body = b"\xa2\x65roots" + cbor(4, len(roots)) + items + b"\x67version" + cbor(0, version)
    return varint.encode(len(body)) + body


def v1(roots: list[bytes], blocks: list[Block]) -> bytes:
    return header(*roots) + b"".join(section(*block) for block in blocks)


def v2(payload: bytes, index: bytes = b"", padding: int = 0, characteristics: bytes = bytes(16)) -> bytes:
    data_start = 51 + padding
    index_start = data_start + len(payload) + padding if index else 0
    head = PRAGMA + struct.pack("<16sQQQ", characteristics, data_start, len(payload), index_start)
    return head + bytes(padding) + payload + (bytes(padding) + index if index else b"")
