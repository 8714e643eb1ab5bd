"""Records of a ChunkIO file, and their 40-byte headers: user data, content length, hashes of content and header."""

import struct
from typing import Final, NamedTuple

from cafcat.formats.chunkio.metering import MAX_POSITION, end_position
from cafcat.formats.chunkio.siphash import siphash

__all__ = ["HEADER_BYTES", "MAX_CONTENT_BYTES", "USER_DATA_BYTES", "Record", "pack_header", "parse_header"]

USER_DATA_BYTES: Final = 16
"""Size of the user data in bytes."""
MAX_CONTENT_BYTES: Final = 2_147_483_591
"""Largest content of a record in bytes: the longest byte array in .NET."""

_HASHED: Final = struct.Struct("<16sQ8s")
_HASH_BYTES: Final = 8
HEADER_BYTES: Final = _HASHED.size + _HASH_BYTES
"""Size of a header in bytes."""


class Record(NamedTuple):
    """A record of a ChunkIO file, as its header describes it. Its content may still be damaged or missing.

    Attributes:
        begin: start of the record in the file, in bytes.
        end: end of the record in the file, in bytes, meters included.
        user_data: 16 bytes for the use of applications.
        content_bytes: size of the content in bytes.
        content_hash: SipHash of the content, eight bytes.
    """

    begin: int
    end: int
    user_data: bytes
    content_bytes: int
    content_hash: bytes


def pack_header(user_data: bytes, content_bytes: int, content_hash: bytes) -> bytes:
    """Return the 40 bytes of a record's header."""
    hashed = _HASHED.pack(user_data, content_bytes, content_hash)
    return hashed + siphash(hashed)


def parse_header(raw: bytes, begin: int) -> Record | None:
    """Return the record with this header, or None if the bytes are not a valid header of a record.

    Args:
        raw: the 40 bytes of the header.
        begin: position of the record in the file, in bytes.
    """
    hashed = raw[: _HASHED.size]
    if siphash(hashed) != raw[_HASHED.size :]:
        return None
    user_data, content_bytes, content_hash = _HASHED.unpack(hashed)
    if content_bytes > MAX_CONTENT_BYTES:
        return None
    end = end_position(begin, HEADER_BYTES + content_bytes)
    return Record(begin, end, user_data, content_bytes, content_hash) if end <= MAX_POSITION else None
