"""What a record is, and how its header is written: user data, length, hash of the content, hash of these."""

import struct
from typing import Final, NamedTuple

from cafcat.formats.chunkio.metering import MAX_POSITION, end_position
from cafcat.formats.chunkio.siphash import siphash

__all__ = ["HEADER_BYTES", "MAX_CONTENT_BYTES", "USER_DATA_BYTES", "Record", "pack_header", "parse_header"]

USER_DATA_BYTES: Final = 16
MAX_CONTENT_BYTES: Final = 2_147_483_591
"""The longest array of bytes that .NET has."""

_HASHED: Final = struct.Struct("<16sQ8s")
_HASH_BYTES: Final = 8
HEADER_BYTES: Final = _HASHED.size + _HASH_BYTES


class Record(NamedTuple):
    """One record, by its header. Its bytes, meters included, are `[begin, end)` of the file; 16 bytes are the
    user's; content_hash: SipHash, eight bytes. Only who hashes the content knows whether it is whole."""

    begin: int
    end: int
    user_data: bytes
    content_bytes: int
    content_hash: bytes


def pack_header(user_data: bytes, content_bytes: int, content_hash: bytes) -> bytes:
    """The 40 bytes of a header."""
    hashed = _HASHED.pack(user_data, content_bytes, content_hash)
    return hashed + siphash(hashed)


def parse_header(raw: bytes, begin: int) -> Record | None:
    """The record that begins at this valid position, if these 40 bytes are a header."""
    hashed = raw[: _HASHED.size]
    if siphash(hashed) != raw[_HASHED.size :]:
        return None
    user_data, content_bytes, content_hash = _HASHED.unpack(hashed)
    if content_bytes > MAX_CONTENT_BYTES:
        return None
    end = end_position(begin, HEADER_BYTES + content_bytes)
    return Record(begin, end, user_data, content_bytes, content_hash) if end <= MAX_POSITION else None
