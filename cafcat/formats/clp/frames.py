"""Decompresses zstd frames step by step, in bounded memory, whatever size a frame claims."""

import sys
from collections.abc import Iterator
from typing import Final

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

__all__ = ["MAX_FRAMES", "FrameDecompressor", "compress_frame"]

MAX_FRAMES: Final = 1_000_000
"""Largest number of frames in a section or in the metadata. Each frame costs some microseconds, however short it
is. clp-s writes one frame for many tables."""

_INPUT_BYTES: Final = 16 << 10
_OUTPUT_BYTES: Final = 1 << 20
_OPTIONS: Final[dict[int, int]] = {zstd.DecompressionParameter.window_log_max: 25}
"""The window may have up to 2^25 bytes; level 19 of zstd uses 2^23."""
_LEVEL: Final = 3
"""Compression level of zstd."""


class FrameDecompressor:
    """Decompresses a stream of zstd frames that follow one another.

    Memory: 1 MiB, and the window of a frame: 2 MiB if clp-s wrote it, at most 32 MiB.

    Attributes:
        frames: number of frames that have ended.
        output_bytes: number of decompressed bytes so far.
    """

    def __init__(self, max_bytes: int) -> None:
        """Prepare to decompress the first frame.

        Args:
            max_bytes: largest allowed size in bytes of all decompressed frames together.
        """
        self._max_bytes = max_bytes
        self._frame: zstd.ZstdDecompressor | None = None
        self.frames = 0
        self.output_bytes = 0

    @property
    def at_frame_end(self) -> bool:
        """True if the bytes written so far end with a complete frame, or none were written."""
        return self._frame is None

    def write(self, data: bytes) -> Iterator[bytes]:
        """Decompress the next bytes of the stream, and yield the result in blocks of at most 1 MiB.

        Raises:
            ValueError: the bytes are not zstd, decompress to more than `max_bytes`, or have more than 1,000,000
                frames.
        """
        view = memoryview(data)
        while view:
            frame = self._frame = self._frame or zstd.ZstdDecompressor(options=_OPTIONS)
            # The input is split into small pieces: zstd copies the bytes after the end of a frame, and there may be
            # very many tiny frames.
            piece = view[:_INPUT_BYTES]
            yield from self._output(frame, piece)
            view = view[len(piece) - len(frame.unused_data) :]
            if frame.eof:
                self._end_frame()

    def _output(self, frame: zstd.ZstdDecompressor, data: bytes | memoryview) -> Iterator[bytes]:
        while True:
            part = self._decompress(frame, data)
            self.output_bytes += len(part)
            if self.output_bytes > self._max_bytes:
                raise ValueError(f"the zstd frames decompress to more than {self._max_bytes:,} bytes")
            if part:
                yield part
            if frame.eof or frame.needs_input:
                return
            data = b""

    def _end_frame(self) -> None:
        self._frame = None
        self.frames += 1
        if self.frames > MAX_FRAMES:
            raise ValueError(f"the data has more than {MAX_FRAMES:,} zstd frames")

    def _decompress(self, frame: zstd.ZstdDecompressor, data: bytes | memoryview) -> bytes:
        try:
            return frame.decompress(data, _OUTPUT_BYTES)
        except zstd.ZstdError as error:
            raise ValueError(f"the data is not compressed by zstd: {error}") from error

    def finish(self) -> None:
        """Check that the stream ends with a complete frame. Raises ValueError otherwise."""
        if not self.at_frame_end:
            raise ValueError("the last zstd frame is incomplete")


def compress_frame(data: bytes) -> bytes:
    """Compress the data to one zstd frame without a stored size, as clp-s does for metadata."""
    frame = zstd.ZstdCompressor(_LEVEL)
    return frame.compress(data) + frame.flush()
