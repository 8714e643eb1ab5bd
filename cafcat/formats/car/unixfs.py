"""Encodes and decodes UnixFS: the data of DAG-PB nodes that represent files, directories, or parts of them."""

import struct
from enum import IntEnum
from typing import Final, NamedTuple

from cafcat.formats.car import dag_pb, varint
from cafcat.support.quantities import is_int64

__all__ = [
    "DIRECTORY",
    "HAMT_FANOUT",
    "HAMT_MURMUR3",
    "Kind",
    "Node",
    "decode",
    "file_data",
    "shard_data",
]

HAMT_FANOUT: Final = 256
"""Number of slots in a shard that cafcat writes."""
HAMT_MURMUR3: Final = 0x22
"""Code of the hash function of shards, MurmurHash3, in the table of multiformats."""
DIRECTORY: Final = b"\x08\x01"
"""The data of a directory node."""
_MAX_FANOUT: Final = 1024
_SECOND: Final = 1_000_000_000
_FIXED32: Final = struct.Struct("<I")


class Kind(IntEnum):
    """The type of a UnixFS node."""

    RAW = 0
    """A leaf of a file, as older programs write it."""
    DIRECTORY = 1
    FILE = 2
    METADATA = 3
    SYMLINK = 4
    HAMT_SHARD = 5
    """A large directory, or a part of one, whose names are distributed over slots by their hash."""


class Node(NamedTuple):
    """The decoded data of a UnixFS node.

    Attributes:
        kind: the type of the node.
        data: the bytes of a file that are stored in the node itself, the target of a symlink, or the bitmap of a
            shard.
        file_bytes: size of the file in bytes, or None if the node does not state it.
        block_bytes: for each link, the size in bytes of the file content below it, as the node states it.
        fanout: number of slots of a shard; 0 for other nodes.
        mode: permission bits, or None if the node has none.
        modified_ns: modification time in nanoseconds since 1970-01-01 UTC. None if the node has no time, or one
            that does not fit a signed 64-bit number.
    """

    kind: Kind
    data: bytes
    file_bytes: int | None
    block_bytes: tuple[int, ...]
    fanout: int
    mode: int | None
    modified_ns: int | None


def decode(data: bytes) -> Node:
    """Decode the data field of a DAG-PB node.

    Raises:
        ValueError: the data is not UnixFS, or a shard has an unsupported fanout or hash function.
    """
    found: dict[int, int | bytes] = {}
    sizes: list[int] = []
    for number, value in dag_pb.fields(data):
        if number == 4:
            sizes.extend(_packed(value) if isinstance(value, bytes) else (value,))
        elif number > 8:
            continue  # fields of later versions are ignored
        elif isinstance(value, bytes) != (number in (2, 8)):
            raise ValueError(f"UnixFS field {number} has the wrong wire type")
        else:
            found[number] = value  # if a field is repeated, the last one counts, as in protobuf
    if 1 not in found:
        raise ValueError("the UnixFS data has no type")
    kind = Kind(_int(found, 1))
    content = found.get(2, b"")
    assert isinstance(content, bytes)  # noqa: S101 - the loop above checks the wire type
    file_bytes = _int(found, 3) if 3 in found else None
    fanout = _fanout(found) if kind == Kind.HAMT_SHARD else 0
    mode = _int(found, 7) & 0xFFF if 7 in found else None
    return Node(kind, content, file_bytes, tuple(sizes), fanout, mode, _modified_ns(found.get(8)))


def _int(found: dict[int, int | bytes], number: int) -> int:
    value = found.get(number, 0)
    assert isinstance(value, int)  # noqa: S101 - decode checks it
    return value


def _packed(values: bytes) -> list[int]:
    numbers, offset = [], 0
    while offset < len(values):
        number, offset = varint.read(values, offset)
        numbers.append(number)
    return numbers


def _fanout(found: dict[int, int | bytes]) -> int:
    fanout = _int(found, 6)
    if not 8 <= fanout <= _MAX_FANOUT or fanout & (fanout - 1):
        raise ValueError(f"a shard has a fanout of {fanout}, expected a power of 2 from 8 to {_MAX_FANOUT:,}")
    if _int(found, 5) != HAMT_MURMUR3:
        raise ValueError(f"a shard uses the unknown hash function {_int(found, 5):#x}")
    return fanout


def _modified_ns(message: int | bytes | None) -> int | None:
    """Decode a UnixFS time to nanoseconds since 1970-01-01 UTC.

    Return None if there is no time, or if it does not fit a signed 64-bit number.

    Raises:
        ValueError: the time is malformed.
    """
    if not isinstance(message, bytes):
        return None
    seconds: int | None = None
    fraction = 0
    for number, value in dag_pb.fields(message):
        if number == 1 and isinstance(value, int):
            seconds = value - (1 << 64) if value >> 63 else value
        elif number == 2 and isinstance(value, bytes) and len(value) == _FIXED32.size:
            (fraction,) = _FIXED32.unpack(value)
        else:
            raise ValueError(f"field {number} of a modification time is unknown or has the wrong wire type")
    if seconds is None or fraction >= _SECOND:
        raise ValueError("a modification time has no seconds, or a fraction of at least one second")
    time = seconds * _SECOND + fraction
    return time if is_int64(time) else None


def file_data(file_bytes: int, block_bytes: list[int], modified_ns: int | None = None) -> bytes:
    """Return the UnixFS data of an inner node of a file.

    Args:
        file_bytes: size in bytes of the file content below the node.
        block_bytes: for each link of the node, the size in bytes of the file content below the link.
        modified_ns: modification time in nanoseconds since 1970-01-01 UTC. Left out if it is None or does not fit a
            signed 64-bit number.
    """
    parts = [b"\x08\x02", dag_pb.number_field(3, file_bytes)]
    parts += [dag_pb.number_field(4, size) for size in block_bytes]
    if modified_ns is not None and is_int64(modified_ns):
        time = _time(modified_ns)
        parts += [b"\x42", varint.encode(len(time)), time]
    return b"".join(parts)


def _time(modified_ns: int) -> bytes:
    seconds, fraction = divmod(modified_ns, _SECOND)
    message = dag_pb.number_field(1, seconds & 0xFFFF_FFFF_FFFF_FFFF)
    return message + (b"\x15" + _FIXED32.pack(fraction) if fraction else b"")


def shard_data(bits: int) -> bytes:
    """Return the UnixFS data of a shard (a node of a large directory).

    Args:
        bits: bitmap of the used slots; the lowest bit is slot 0.
    """
    field = bits.to_bytes((bits.bit_length() + 7) // 8)
    numbers = dag_pb.number_field(5, HAMT_MURMUR3) + dag_pb.number_field(6, HAMT_FANOUT)
    return b"\x08\x05\x12" + varint.encode(len(field)) + field + numbers
