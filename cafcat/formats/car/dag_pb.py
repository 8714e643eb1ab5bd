"""DAG-PB: a node of links and data in protobuf, the blocks that UnixFS is made of.

Written in the one canonical form: links first, each with hash, name and size, then the data. Read leniently in the
order of fields, as go does, and strictly in everything else: a field that is unknown or comes twice is an error.
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
    """To another block; total_bytes: what the writer says that it and all below it take."""

    cid: bytes
    name: bytes
    total_bytes: int


class Node(NamedTuple):
    """A block taken apart; data is None if it has none."""

    links: tuple[Link, ...]
    data: bytes | None


def fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Number and value of each field of a protobuf message: an integer, or bytes (also for fixed ones).
    Raises ValueError."""
    at, size = 0, len(message)
    while at < size:
        key, at = varint.read(message, at)
        number, kind = key >> 3, key & 7
        if kind == _VARINT:
            value, at = _number(message, at)
            yield number, value
            continue
        if kind == _BYTES:
            count, at = varint.read(message, at)
        elif kind in _FIXED:
            count = _FIXED[kind]
        else:
            raise ValueError(f"a field of the unknown kind {kind}")
        if at + count > size:
            raise varint.CutShort("a field goes beyond its message")
        yield number, message[at : at + count]
        at += count


def _number(message: bytes, at: int) -> tuple[int, int]:
    """A number of up to 64 bits, which takes ten bytes where it is negative."""
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(message):
            raise varint.CutShort("the message ends within a number")
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, at
    raise ValueError("a number of more than 64 bits")


def decode(block: bytes) -> Node:
    """Raises ValueError if it is no such node."""
    links: list[Link] = []
    data: bytes | None = None
    for number, value in fields(block):
        if not isinstance(value, bytes) or number not in (1, 2):
            raise ValueError(f"a node has no field {number} of this kind")
        if number == 2:
            links.append(_link(value))
        elif data is None:
            data = value
        else:
            raise ValueError("a node with data twice")
    return Node(tuple(links), data)


def links_of(block: bytes) -> Iterator[Link]:
    """The links of a node that decode takes, one by one."""
    return (_link(value) for number, value in fields(block) if number == 2 and isinstance(value, bytes))


def _link(message: bytes) -> Link:
    found: dict[int, int | bytes] = {}
    for number, value in fields(message):
        if number in found or isinstance(value, bytes) != (number != 3) or number not in (1, 2, 3):
            raise ValueError(f"a link has a field {number} of this kind not, or only once")
        found[number] = value
    cid, name, total_bytes = found.get(1), found.get(2, b""), found.get(3, 0)
    if not isinstance(cid, bytes):
        raise ValueError("a link without a hash")
    parse(cid)
    assert isinstance(name, bytes) and isinstance(total_bytes, int)  # noqa: S101, PT018 - by the check above
    return Link(cid, name, total_bytes)


def encode_link(cid: bytes, name: bytes, total_bytes: int) -> bytes:
    """A link as a field of its node."""
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


def link_end(data: bytes, at: int) -> int:
    """Where the encoded link ends that begins there; beyond the data if it is not whole."""
    try:
        size_bytes, begin = varint.read(data, at + 1)
    except varint.CutShort:
        return len(data) + 1
    return begin + size_bytes


def link_size(cid_bytes: int, name_bytes: int, total_bytes: int) -> int:
    """How many bytes encode_link gives."""
    size = 3 + varint.size(cid_bytes) + cid_bytes + varint.size(name_bytes) + name_bytes + varint.size(total_bytes)
    return 1 + varint.size(size) + size


def encode(links: bytes, data: bytes) -> bytes:
    """A node of links that are encoded already, in the order of their names."""
    return links + b"\x0a" + varint.encode(len(data)) + data


def number_field(number: int, value: int) -> bytes:
    """A field of a number, from 0 to 2^64 - 1."""
    return varint.encode(number << 3) + varint.encode(value)
