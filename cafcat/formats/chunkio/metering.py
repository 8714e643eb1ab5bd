"""Adds meters to the records of a ChunkIO file, and removes them.

A meter has 16 bytes: the start of the record that it lies in, and a hash of it. A meter is at each position
divisible by 65,536, even within a header or content; at position 0 the file header takes its place.

The stream of records (headers and contents, back to back) is the payload. A position is relative to the start of
the file, an offset is relative to the start of the payload. A meter is written only together with the byte after
it. Therefore a record that ends on a multiple of 65,536 ends before the meter, and the next record begins there and
contains the meter. Each offset has exactly one position.
"""

from typing import Final

from cafcat.formats.chunkio.siphash import siphash

__all__ = [
    "FILE_HEADER",
    "INTERVAL_BYTES",
    "MAX_POSITION",
    "METER_BYTES",
    "end_position",
    "insert_meters",
    "is_position",
    "offset_to_position",
    "position_to_offset",
    "read_meter",
    "strip_meters",
    "write_meter",
]

INTERVAL_BYTES: Final = 1 << 16
"""Distance of two meters in bytes."""
METER_BYTES: Final = 16
"""Size of a meter in bytes."""
FILE_HEADER: Final = b"romkatv/chunkio\n"
"""The first bytes of a file, in place of the meter at position 0. Only the detection of the format checks them."""
MAX_POSITION: Final = (1 << 63) - 1
"""Largest position in a file."""

_PAYLOAD_BYTES: Final = INTERVAL_BYTES - METER_BYTES
"""Payload bytes between two meters."""


def is_position(position: int) -> bool:
    """Return True if a record can begin or end at this position in a file.

    This is any position outside meters, or at the start of a meter, but not the position right after a meter.
    """
    return 0 <= position <= MAX_POSITION and (position - 1) % INTERVAL_BYTES >= METER_BYTES


def position_to_offset(position: int) -> int:
    """Return the number of bytes other than meters before a valid position (see `is_position`) in a file."""
    return position - METER_BYTES * -(-position // INTERVAL_BYTES)


def offset_to_position(offset: int) -> int:
    """Return the valid position in a file with `offset` bytes other than meters before it."""
    return offset + METER_BYTES * -(-offset // _PAYLOAD_BYTES)


def end_position(begin: int, payload_bytes: int) -> int:
    """Return the end position of `payload_bytes` bytes of payload that begin at the valid position `begin`."""
    return offset_to_position(position_to_offset(begin) + payload_bytes)


def write_meter(begin: int) -> bytes:
    """Return the 16 bytes of a meter that is within, or at the start of, the record that begins at `begin`."""
    raw = begin.to_bytes(8, "little")
    return raw + siphash(raw)


def read_meter(raw: bytes, position: int) -> int | None:
    """Return the start of the record that a meter refers to, or None if the bytes are not a valid meter.

    Args:
        raw: the 16 bytes of the meter.
        position: position of the meter. At position 0 the result is always 0.
    """
    if not position:
        return 0
    begin = int.from_bytes(raw[:8], "little")
    if begin > position or not is_position(begin) or siphash(raw[:8]) != raw[8:]:
        return None
    return begin


def insert_meters(position: int, begin: int, payload: bytes) -> list[bytes | memoryview]:
    """Insert the meters into a part of a record. Return a list of bytes, to be written one after the other.

    Args:
        position: valid position in the file at which the payload is written.
        begin: position at which the record begins that the payload belongs to.
        payload: the bytes of the record, without meters.
    """
    space = -position % INTERVAL_BYTES
    if len(payload) <= space:
        return [payload]
    view = memoryview(payload)
    parts: list[bytes | memoryview] = [view[:space]]
    meter = write_meter(begin)
    for start in range(space, len(payload), _PAYLOAD_BYTES):
        parts += (meter, view[start : start + _PAYLOAD_BYTES])
    if not position:
        parts[1] = FILE_HEADER
    return parts


def strip_meters(position: int, data: bytes) -> bytes:
    """Return the bytes `data` of a file without the meters among them.

    Args:
        position: position of the first byte in the file. It may lie within a meter.
        data: bytes of the file.
    """
    in_interval = position % INTERVAL_BYTES
    if 0 < in_interval < METER_BYTES:
        data = data[METER_BYTES - in_interval :]
        in_interval = METER_BYTES
    first = -in_interval % INTERVAL_BYTES
    if first >= len(data):
        return data
    view = memoryview(data)
    parts = [view[:first]]
    parts += [
        view[meter + METER_BYTES : meter + INTERVAL_BYTES] for meter in range(first, len(data), INTERVAL_BYTES)
    ]
    return b"".join(parts)
