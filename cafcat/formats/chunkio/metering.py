"""Meters: 16 bytes at every position divisible by 65,536, wherever records are.

The stream of records (headers and contents, back to back) is the payload. A position is a place in the file, an
offset one in the payload. Meters are written only with the byte that follows them: a record that ends on a boundary
ends before the meter, and the next one begins there and has the meter as its own. So each offset has one position.
"""

from typing import Final

from cafcat.formats.chunkio.siphash import siphash

__all__ = [
    "FILE_HEADER",
    "INTERVAL_BYTES",
    "MAX_POSITION",
    "METER_BYTES",
    "end_position",
    "is_position",
    "metered",
    "offset_at",
    "position_of",
    "read_meter",
    "unmetered",
    "write_meter",
]

INTERVAL_BYTES: Final = 1 << 16
METER_BYTES: Final = 16
FILE_HEADER: Final = b"romkatv/chunkio\n"
"""Stands where the meter at 0 would be. Nobody checks it."""
MAX_POSITION: Final = (1 << 63) - 1

_PAYLOAD_BYTES: Final = INTERVAL_BYTES - METER_BYTES


def is_position(position: int) -> bool:
    """Whether a record may begin or end there: not within a meter, nor right after it."""
    return 0 <= position <= MAX_POSITION and (position - 1) % INTERVAL_BYTES >= METER_BYTES


def offset_at(position: int) -> int:
    """How many bytes of payload (padding counts as such) are before a valid position."""
    return position - METER_BYTES * -(-position // INTERVAL_BYTES)


def position_of(offset: int) -> int:
    """The valid position with so many bytes of payload before it."""
    return offset + METER_BYTES * -(-offset // _PAYLOAD_BYTES)


def end_position(begin: int, payload_bytes: int) -> int:
    """Where so many bytes of payload from a valid position end."""
    return position_of(offset_at(begin) + payload_bytes)


def write_meter(begin: int) -> bytes:
    """The meter within, or right before, the record that begins there."""
    raw = begin.to_bytes(8, "little")
    return raw + siphash(raw)


def read_meter(raw: bytes, position: int) -> int | None:
    """Where the record begins that a meter at this position names; None if it is no meter. That at 0 names 0."""
    if not position:
        return 0
    begin = int.from_bytes(raw[:8], "little")
    if begin > position or not is_position(begin) or siphash(raw[:8]) != raw[8:]:
        return None
    return begin


def metered(position: int, begin: int, payload: bytes) -> list[bytes | memoryview]:
    """The payload as it is written at a position, in parts. begin: of the record that it belongs to."""
    room = -position % INTERVAL_BYTES
    if len(payload) <= room:
        return [payload]
    view = memoryview(payload)
    parts: list[bytes | memoryview] = [view[:room]]
    meter = write_meter(begin)
    for start in range(room, len(payload), _PAYLOAD_BYTES):
        parts += (meter, view[start : start + _PAYLOAD_BYTES])
    if not position:
        parts[1] = FILE_HEADER
    return parts


def unmetered(position: int, data: bytes) -> bytes:
    """The payload in bytes of a file that begin at any position."""
    within = position % INTERVAL_BYTES
    if 0 < within < METER_BYTES:
        data = data[METER_BYTES - within :]
        within = METER_BYTES
    first = -within % INTERVAL_BYTES
    if first >= len(data):
        return data
    view = memoryview(data)
    parts = [view[:first]]
    parts += [
        view[meter + METER_BYTES : meter + INTERVAL_BYTES] for meter in range(first, len(data), INTERVAL_BYTES)
    ]
    return b"".join(parts)
