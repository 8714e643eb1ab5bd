"""Whole records of bundles, compressed and back, by the methods of the published design. Chunks that cafcat packs
flush the compressor behind each file instead: `packing.py`, `decoding.py`."""

import zlib
from collections.abc import Callable, Iterator
from io import BytesIO
from typing import Final

from cafcat.errors import InvalidInput
from cafcat.formats.databundle.extras import extra

__all__ = [
    "METHODS",
    "METHOD_NAMES",
    "NONE",
    "SNAPPY",
    "ZLIB",
    "compressed",
    "decompressed",
    "method_of",
    "most_stored_bytes",
    "snappy_frames",
]

NONE: Final = 1
SNAPPY: Final = 2
ZLIB: Final = 3
METHODS: Final = {"none": NONE, "snappy": SNAPPY, "zlib": ZLIB}
"""By the values of BundleShardHeader.compression_method."""
METHOD_NAMES: Final = {method: name for name, method in METHODS.items()}

_FRAME: Final = 4
"""Of a snappy frame, its type and size come first."""
_COMPRESSED_FRAME: Final = 0x00
_STORED_FRAME: Final = 0x01


def method_of(name: str) -> int:
    """Raises InvalidInput; NotInstalled if its library is not installed."""
    if name not in METHODS:
        raise InvalidInput(f"no compression of DataBundle: {name!r}", hint=f"there are {', '.join(METHODS)}")
    if name == "snappy":
        extra("cramjam")
    return METHODS[name]


def compressed(method: int, data: bytes) -> bytes:
    """A record. SNAPPY is the framing format: of the raw one nobody could tell where it ends in its padding."""
    if method == SNAPPY:
        return bytes(extra("cramjam").snappy.compress(data))
    if method == ZLIB:
        return zlib.compress(data)
    raise AssertionError(f"no record is compressed by method {method}")


def most_stored_bytes(record_bytes: int) -> int:
    """A record of so many bytes takes no more, as what cannot be compressed is stored in blocks."""
    return record_bytes + (record_bytes >> 6) + 4096


def decompressed(method: int, data: bytes, max_bytes: int) -> bytes:
    """The record that data begin with; what follows is passed over. Raises ValueError if there is none, or it has
    more than so many bytes, which are all that is allocated for it."""
    if method == SNAPPY:
        return _unframed(data, max_bytes)
    if method == ZLIB:
        return _inflated(data, max_bytes)
    raise AssertionError(f"no record is compressed by method {method}")


def _inflated(data: bytes, max_bytes: int) -> bytes:
    inflater = zlib.decompressobj()
    try:
        found = inflater.decompress(data, max_bytes)
        while not inflater.eof and inflater.unconsumed_tail:
            if inflater.decompress(inflater.unconsumed_tail, 1):
                raise ValueError(f"it has more than {max_bytes:,} bytes")
    except zlib.error as error:
        raise ValueError(f"it is no zlib stream: {error}") from error
    if not inflater.eof:
        raise ValueError("its zlib stream is cut")
    return found


def _unframed(data: bytes, max_bytes: int) -> bytes:
    frames = b"".join(frame for frame, _ in snappy_frames(BytesIO(data).read))
    output = bytearray(max_bytes)
    library = extra("cramjam")
    try:
        count = library.snappy.decompress_into(frames, output)
    except library.DecompressionError as error:
        raise ValueError(f"it is not of snappy frames, or larger than {max_bytes:,} bytes: {error}") from error
    return bytes(output[:count])


def snappy_frames(read: Callable[[int], bytes]) -> Iterator[tuple[bytes, int]]:
    """Each frame from a place on, and how many bytes of content it says that it has: they are checked when it is
    decompressed. Padding ends them: it looks like a frame of data without a checksum, and there are none.

    Args: read: gives the next so many bytes, as a file does: fewer only at the end.
    """
    while len(head := read(_FRAME)) == _FRAME and head != bytes(_FRAME):
        body = read(int.from_bytes(head[1:], "little"))
        yield head + body, _content_bytes(head[0], body)


def _content_bytes(kind: int, body: bytes) -> int:
    """CRC-32C comes first; then compressed data begin with their size, a varint."""
    if kind == _STORED_FRAME:
        return max(0, len(body) - 4)
    if kind != _COMPRESSED_FRAME:
        return 0
    size_bytes = 0
    for at, byte in enumerate(body[4:9]):
        size_bytes |= (byte & 0x7F) << 7 * at
        if byte < 0x80:
            return size_bytes
    return 0
