"""Encodes and decodes DAG-PB: blocks that are a protobuf message with links and data, such as UnixFS nodes.

cafcat writes the canonical form: links first, each with CID, name and size, then the data. The decoder accepts
links and data in any order, as IPFS programs in Go do. Unknown fields, and repeated fields other than links, are
errors.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from cafcat.formats.car import varint
from cafcat.formats.car.cid import parse

__all__ = [
    "Link",
    "Node",
    "decode",
    "encode",
    "encode_link",
    "fields",
    "link_end",
    "link_size",
    "links_of",
    "number_field",
]

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_FIXED: Final = {_FIXED64: 8, _FIXED32: 4}


class Link(NamedTuple):
    """A link from a DAG-PB node to another block.

    Attributes:
        cid: CID of the linked block.
        name: name of the link.
        total_bytes: size in bytes of the linked block and all blocks below it, as stated by the writer of the link;
            0 if it states none.
    """

    cid: bytes
    name: bytes
    total_bytes: int


class Node(NamedTuple):
    """A decoded DAG-PB block.

    Attributes:
        links: the links, in the order of the block.
        data: the data field, or None if the block has none.
    """

    links: tuple[Link, ...]
    data: bytes | None


def fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the number and the value of each field of a protobuf message, in order.

    Values are integers, or bytes for length-delimited and fixed-size fields.

    Raises:
        ValueError: the message is malformed.
    """
    offset, size = 0, len(message)
    while offset < size:
        key, offset = varint.read(message, offset)
        number, kind = key >> 3, key & 7
        if kind == _VARINT:
            value, offset = _number(message, offset)
            yield number, value
            continue
        if kind == _BYTES:
            count, offset = varint.read(message, offset)
        elif kind in _FIXED:
            count = _FIXED[kind]
        else:
            raise ValueError(f"a protobuf field has the unknown wire type {kind}")
        if offset + count > size:
            raise varint.Truncated("a protobuf field ends after its message")
        yield number, message[offset : offset + count]
        offset += count


def _number(message: bytes, offset: int) -> tuple[int, int]:
    """Read the protobuf number at `offset`. Return its value, from 0 to 2^64 - 1, and the offset after it.

    A negative number takes ten bytes, and is returned as its two's complement.

    Raises:
        Truncated: the message ends within the number.
        ValueError: the number has more than ten bytes.
    """
    value = 0
    for shift in range(0, 70, 7):
        if offset >= len(message):
            raise varint.Truncated("a protobuf message ends within a number")
        byte = message[offset]
        offset += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, offset
    raise ValueError("a protobuf number has more than 64 bits")


def decode(block: bytes) -> Node:
    """Decode a DAG-PB block.

    Raises:
        ValueError: the block is not a valid DAG-PB node.
    """
    links: list[Link] = []
    data: bytes | None = None
    for number, value in fields(block):
        if not isinstance(value, bytes) or number not in (1, 2):
            raise ValueError(f"field {number} of a node is unknown or has the wrong wire type")
        if number == 2:
            links.append(_link(value))
        elif data is None:
            data = value
        else:
            raise ValueError("a node has two data fields")
    return Node(tuple(links), data)


def links_of(block: bytes) -> Iterator[Link]:
    """Return an iterator over the links of a DAG-PB block, which needs less memory than `decode`.

    The block must be one that `decode` accepts.
    """
    return (_link(value) for number, value in fields(block) if number == 2 and isinstance(value, bytes))


def _link(message: bytes) -> Link:
    found: dict[int, int | bytes] = {}
    for number, value in fields(message):
        if number in found or isinstance(value, bytes) != (number != 3) or number not in (1, 2, 3):
            raise ValueError(f"field {number} of a link is unknown, repeated, or has the wrong wire type")
        found[number] = value
    cid, name, total_bytes = found.get(1), found.get(2, b""), found.get(3, 0)
    if not isinstance(cid, bytes):
        raise ValueError("a link has no CID")
    parse(cid)
    assert isinstance(name, bytes) and isinstance(total_bytes, int)  # noqa: S101, PT018 - the loop checks the wire types
    return Link(cid, name, total_bytes)


def encode_link(cid: bytes, name: bytes, total_bytes: int) -> bytes:
    """Return the protobuf field of a link, to be placed in the node that has the link.

    Args:
        cid: CID of the linked block.
        name: name of the link.
        total_bytes: total size in bytes of the linked block and all blocks below it.
    """
    message = b"".join(
        (
            b"\x0a",
            varint.encode(len(cid)),
            cid,
            b"\x12",
            varint.encode(len(name)),
            name,
            number_field(3, total_bytes),
        )
    )
    return b"\x12" + varint.encode(len(message)) + message


def link_end(data: bytes, offset: int) -> int:
    """Return the offset at which the encoded link at `offset` ends; more than `len(data)` if it is incomplete."""
    try:
        size_bytes, begin = varint.read(data, offset + 1)
    except varint.Truncated:
        return len(data) + 1
    return begin + size_bytes


def link_size(cid_bytes: int, name_bytes: int, total_bytes: int) -> int:
    """Return the size in bytes of the result of `encode_link`.

    Args:
        cid_bytes: size of the CID in bytes.
        name_bytes: size of the name in bytes.
        total_bytes: the `total_bytes` of the link.
    """
    size = 3 + varint.size(cid_bytes) + cid_bytes + varint.size(name_bytes) + name_bytes + varint.size(total_bytes)
    return 1 + varint.size(size) + size


def encode(links: bytes, data: bytes) -> bytes:
    """Return the bytes of a DAG-PB block.

    Args:
        links: the encoded links (see `encode_link`) back to back; those of a directory in the order of their names.
        data: the data field of the node.
    """
    return links + b"\x0a" + varint.encode(len(data)) + data


def number_field(number: int, value: int) -> bytes:
    """Return the encoded protobuf field `number` with a value from 0 to 2^64 - 1."""
    return varint.encode(number << 3) + varint.encode(value)
