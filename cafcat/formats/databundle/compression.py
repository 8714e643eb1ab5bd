"""Whole records, compressed and back, by the methods of the published design."""

import zlib
from typing import Final

from cafcat.errors import InvalidInput
from cafcat.formats.databundle.extras import extra

__all__ = ["METHODS", "NONE", "SNAPPY", "ZLIB", "compressed", "decompressed", "method_of", "most_stored_bytes"]

NONE: Final = 1
SNAPPY: Final = 2
ZLIB: Final = 3
METHODS: Final = {"none": NONE, "snappy": SNAPPY, "zlib": ZLIB}
"""By the values of BundleShardHeader.compression_method."""

_FRAME: Final = 4
"""Of a snappy frame, its type and size come first."""


def method_of(name: str) -> int:
    """Raises InvalidInput; NotInstalled if its library is not installed."""
    if name not in METHODS:
        raise InvalidInput(f"no compression of DataBundle: {name!r}", hint=f"there are {', '.join(METHODS)}")
    if name == "snappy":
        extra("cramjam")
    return METHODS[name]


def compressed(method: int, data: bytes) -> bytes:
    """A record. SNAPPY is the framing format: of the raw one nobody could tell where it ends in its padding."""
    return bytes(extra("cramjam").snappy.compress(data)) if method == SNAPPY else zlib.compress(data)


def most_stored_bytes(record_bytes: int) -> int:
    """A record of so many bytes takes no more, as what cannot be compressed is stored in blocks."""
    return record_bytes + (record_bytes >> 6) + 4096


def decompressed(method: int, data: bytes, most_bytes: int) -> bytes:
    """The record that data begin with; what follows is passed over. Raises ValueError if there is none, or it has
    more than so many bytes, which are all that is allocated for it."""
    return _inflated(data, most_bytes) if method == ZLIB else _unframed(data, most_bytes)


def _inflated(data: bytes, most_bytes: int) -> bytes:
    inflater = zlib.decompressobj()
    try:
        found = inflater.decompress(data, most_bytes)
        while not inflater.eof and inflater.unconsumed_tail:
            if inflater.decompress(inflater.unconsumed_tail, 1):
                raise ValueError(f"it has more than {most_bytes:,} bytes")
    except zlib.error as error:
        raise ValueError(f"it is no zlib stream: {error}") from error
    if not inflater.eof:
        raise ValueError("its zlib stream is cut")
    return found


def _unframed(data: bytes, most_bytes: int) -> bytes:
    output = bytearray(most_bytes)
    library = extra("cramjam")
    try:
        count = library.snappy.decompress_into(data[: _frames_end(data)], output)
    except library.DecompressionError as error:
        raise ValueError(f"it is not of snappy frames, or larger than {most_bytes:,} bytes: {error}") from error
    return bytes(output[:count])


def _frames_end(data: bytes) -> int:
    """Where the last frame ends. Padding looks like a frame of data without a checksum: there are none."""
    at = 0
    while at + _FRAME <= len(data) and data[at : at + _FRAME] != bytes(_FRAME):
        at += _FRAME + int.from_bytes(data[at + 1 : at + _FRAME], "little")
    return at
