"""Compresses and decompresses complete records of bundles, with the methods of the published design.

Chunks of cafcat are different: their compressor is flushed after each file (`packing.py`, `decoding.py`).
"""

import zlib
from typing import Final

from cafcat.errors import InvalidInput
from cafcat.formats.databundle.extras import import_extra

__all__ = [
    "METHODS",
    "METHOD_NAMES",
    "NONE",
    "SNAPPY",
    "SNAPPY_HEAD_BYTES",
    "ZLIB",
    "compress_record",
    "decompress_record",
    "max_stored_bytes",
    "method_by_name",
    "snappy_body_bytes",
    "snappy_content_bytes",
]

NONE: Final = 1
SNAPPY: Final = 2
ZLIB: Final = 3
METHODS: Final = {"none": NONE, "snappy": SNAPPY, "zlib": ZLIB}
"""Values of BundleShardHeader.compression_method by the names of the methods."""
METHOD_NAMES: Final = {method: name for name, method in METHODS.items()}
"""Names of the methods by their values."""

SNAPPY_HEAD_BYTES: Final = 4
"""Size in bytes of the type and the size at the start of a snappy frame."""
_COMPRESSED_FRAME: Final = 0x00
_STORED_FRAME: Final = 0x01


def method_by_name(name: str) -> int:
    """Return the number of the compression method with this name: a value of METHODS.

    Raises:
        InvalidInput: no method has this name.
        NotInstalled: the name is "snappy", and its library is not installed.
    """
    if name not in METHODS:
        raise InvalidInput(f"DataBundle has no compression {name!r}", hint=f"use one of: {', '.join(METHODS)}")
    if name == "snappy":
        import_extra("cramjam")
    return METHODS[name]


def compress_record(method: int, data: bytes) -> bytes:
    """Compress a record with the method SNAPPY or ZLIB, and return the compressed bytes.

    SNAPPY uses the framing format: the end of raw snappy data could not be found before the padding.
    """
    if method == SNAPPY:
        return bytes(import_extra("cramjam").snappy.compress(data))
    if method == ZLIB:
        return zlib.compress(data)
    raise AssertionError(f"a record can be compressed by method {SNAPPY} (snappy) or {ZLIB} (zlib), not {method}")


def max_stored_bytes(record_bytes: int) -> int:
    """Return an upper bound for the stored size of a record in bytes: compressed, and with its padding.

    Data that cannot be compressed becomes larger, because it is stored in blocks with some bytes before each.

    Args:
        record_bytes: size of the record in bytes before compression.
    """
    return record_bytes + (record_bytes >> 6) + 4096


def decompress_record(method: int, data: bytes, max_bytes: int) -> bytes:
    """Decompress the record at the start of the data. The padding after the record, and what follows, is ignored.

    Args:
        method: the compression method, SNAPPY or ZLIB.
        data: the compressed bytes.
        max_bytes: largest allowed size of the decompressed record in bytes. Larger results are not created.

    Raises:
        ValueError: the data does not begin with a complete valid record, or the record is larger than `max_bytes`.
        NotInstalled: the method is SNAPPY, and its library is not installed.
    """
    if method == SNAPPY:
        return _decode_frames(data, max_bytes)
    if method == ZLIB:
        return _inflate(data, max_bytes)
    raise AssertionError(f"a record can be compressed by method {SNAPPY} (snappy) or {ZLIB} (zlib), not {method}")


def _inflate(data: bytes, max_bytes: int) -> bytes:
    inflater = zlib.decompressobj()
    try:
        found = inflater.decompress(data, max_bytes)
        while not inflater.eof and inflater.unconsumed_tail:
            if inflater.decompress(inflater.unconsumed_tail, 1):
                raise ValueError(f"the record has more than {max_bytes:,} bytes")
    except zlib.error as error:
        raise ValueError(f"the record is not a zlib stream: {error}") from error
    if not inflater.eof:
        raise ValueError("the zlib stream of the record is incomplete")
    return found


def _decode_frames(data: bytes, max_bytes: int) -> bytes:
    end = 0
    while (body_bytes := snappy_body_bytes(data[end : end + SNAPPY_HEAD_BYTES])) is not None:
        end += SNAPPY_HEAD_BYTES + body_bytes
    output = bytearray(max_bytes)
    library = import_extra("cramjam")
    try:
        count = library.snappy.decompress_into(data[:end], output)
    except library.DecompressionError as error:
        raise ValueError(
            f"the record does not consist of valid snappy frames, or is larger than {max_bytes:,} bytes: {error}"
        ) from error
    return bytes(output[:count])


def snappy_body_bytes(head: bytes) -> int | None:
    """Return the size in bytes of a snappy frame without its head, or None if the frames end before this head.

    Padding ends the frames: it looks like a frame of data without a checksum, which does not exist.

    Args:
        head: the first four bytes of a frame, fewer at the end of the data, or padding.
    """
    if len(head) < SNAPPY_HEAD_BYTES or head == bytes(SNAPPY_HEAD_BYTES):
        return None
    return int.from_bytes(head[1:], "little")


def snappy_content_bytes(kind: int, body: bytes) -> int:
    """Return the size in bytes that a snappy frame of data states for its content, before compression.

    Return 0 if the frame has another type, or if its size is malformed. The size is checked when the frame is
    decompressed.

    Args:
        kind: type of the frame, the first byte of its head.
        body: the frame without its head: a CRC-32C, then the data. Compressed data begins with its size, a varint.
    """
    if kind == _STORED_FRAME:
        return max(0, len(body) - 4)
    if kind != _COMPRESSED_FRAME:
        return 0
    size_bytes = 0
    for position, byte in enumerate(body[4:9]):
        size_bytes |= (byte & 0x7F) << 7 * position
        if byte < 0x80:
            return size_bytes
    return 0
