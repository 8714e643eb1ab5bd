"""Compresses and decompresses the content of ChunkIO records as raw DEFLATE (RFC 1951).

The classes BufferedWriter and BufferedReader of the original program (romkatv/ChunkIO) use this encoding.
"""

import zlib
from collections.abc import Iterable, Iterator
from typing import Final

from cafcat.errors import Corrupt, InvalidInput

__all__ = ["MAX_INFLATED_BYTES", "Deflater", "inflate"]

MAX_INFLATED_BYTES: Final = 1 << 30
"""Default limit in bytes for the inflated content of one record. The original program ends records at 128 KiB, but
2 GiB of malicious data can inflate to 2 TB."""

_RAW: Final = -zlib.MAX_WBITS
_BLOCK_BYTES: Final = 1 << 20


def inflate(blocks: Iterable[bytes], max_bytes: int = MAX_INFLATED_BYTES) -> Iterator[bytes]:
    """Decompress the content of one record, and yield it in blocks of at most 1 MiB.

    Memory: one compressed block, one decompressed block, and a window of 32 KiB.

    A stream without an end is accepted, as in the original program: its writer may have flushed, but not closed it.
    This function does not detect that a stream was cut; the SipHash of the record shows it.

    Args:
        blocks: the DEFLATE stream, in blocks of any size.
        max_bytes: largest allowed size of the decompressed content in bytes.

    Raises:
        Corrupt: the stream is invalid, has bytes after its end, or inflates to more than `max_bytes`. The error
            names no archive: the caller adds it.
    """
    stream = zlib.decompressobj(_RAW)
    found = 0
    for block in blocks:
        rest, part = block, b""
        # If a part is full, the stream object may hold more output, even if all input was consumed.
        while rest or (len(part) == _BLOCK_BYTES and not stream.eof):
            if stream.eof:
                raise Corrupt("the record has bytes after the end of its DEFLATE stream")
            part = _inflate_block(stream, rest)
            rest = stream.unconsumed_tail or stream.unused_data
            found += len(part)
            if found > max_bytes:
                raise Corrupt(f"the record inflates to more than {max_bytes} bytes")
            if part:
                yield part


def _inflate_block(stream: "zlib._Decompress", data: bytes) -> bytes:
    try:
        return stream.decompress(data, _BLOCK_BYTES)
    except zlib.error as error:
        raise Corrupt(f"the record is not a DEFLATE stream: {error}") from error


class Deflater:
    """Compresses the content of one record as raw DEFLATE, and keeps the compressed bytes in memory.

    Attributes:
        size_bytes: size of the content so far in bytes, before compression.
    """

    def __init__(self, level: int = zlib.Z_DEFAULT_COMPRESSION) -> None:
        """Prepare to compress one record. `level` is the compression level of zlib."""
        self._stream: zlib._Compress | None = zlib.compressobj(level, zlib.DEFLATED, _RAW)
        self._parts: list[bytes] = []
        self.size_bytes = 0

    def write(self, data: bytes) -> None:
        """Compress more content of the record.

        Raises:
            InvalidInput: `finish` was called before.
        """
        if self._stream is None:
            message = "cannot append to this record: it is complete, but was not written, because writing it failed"
            raise InvalidInput(message, hint="call resume() and close() to write the record again, or abandon()")
        self._parts.append(self._stream.compress(data))
        self.size_bytes += len(data)

    def finish(self) -> bytes:
        """Return the whole compressed content. Later calls return the same bytes; `write` raises InvalidInput."""
        if self._stream is not None:
            self._parts = [b"".join([*self._parts, self._stream.flush()])]
            self._stream = None
        return self._parts[0]
