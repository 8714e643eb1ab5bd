"""Raw DEFLATE (RFC 1951), as the original's buffered layer keeps every content."""

import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from cafcat.errors import Corrupt, InvalidInput

__all__ = ["MAX_INFLATED_BYTES", "Deflater", "inflated"]

MAX_INFLATED_BYTES: Final = 1 << 30
"""Of one record, unless asked for more: the buffered layer closes them at 128 KiB; a bomb makes 2 TB of 2 GiB."""

_RAW: Final = -zlib.MAX_WBITS
_BLOCK_BYTES: Final = 1 << 20


def inflated(
    blocks: Iterable[bytes], max_bytes: int = MAX_INFLATED_BYTES, corrupt: Callable[[str], Corrupt] = Corrupt
) -> Iterator[bytes]:
    """What the blocks inflate to, in blocks of at most 1 MiB. Memory: one of each, and the window of 32 KiB.

    A stream that its writer flushed, but did not close, counts as whole: the original reads on to its end, too.
    Raises what `corrupt` makes of a message for other bytes, and for more than `max_bytes`.
    """
    stream = zlib.decompressobj(_RAW)
    found = 0
    for block in blocks:
        rest, part = block, b""
        # A part that is full may have left some of what is inflated in the stream, without any input left.
        while rest or (len(part) == _BLOCK_BYTES and not stream.eof):
            if stream.eof:
                raise corrupt("bytes follow the end of the DEFLATE stream")
            part = _inflate(stream, rest, corrupt)
            rest = stream.unconsumed_tail or stream.unused_data
            found += len(part)
            if found > max_bytes:
                raise corrupt(f"the record inflates to more than {max_bytes} bytes")
            if part:
                yield part


def _inflate(stream: "zlib._Decompress", data: bytes, corrupt: Callable[[str], Corrupt]) -> bytes:
    try:
        return stream.decompress(data, _BLOCK_BYTES)
    except zlib.error as error:
        raise corrupt(f"the record is no DEFLATE stream: {error}") from error


class Deflater:
    """One content that is deflated as it comes."""

    def __init__(self, level: int = zlib.Z_DEFAULT_COMPRESSION) -> None:
        self._stream: zlib._Compress | None = zlib.compressobj(level, zlib.DEFLATED, _RAW)
        self._parts: list[bytes] = []
        self.size_bytes = 0
        """Of what was written, before it was deflated."""

    def write(self, data: bytes) -> None:
        """Appends."""
        if self._stream is None:
            raise InvalidInput("this record is finished, though it was not written: write it, or abandon it")
        self._parts.append(self._stream.compress(data))
        self.size_bytes += len(data)

    def finished(self) -> bytes:
        """All of it, deflated. Nothing can be written afterwards; the same can be had again."""
        if self._stream is not None:
            self._parts = [b"".join([*self._parts, self._stream.flush()])]
            self._stream = None
        return self._parts[0]
