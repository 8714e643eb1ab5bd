"""zstd frames, decompressed step by step: no frame, whatever it says of its size, is ever in memory as a whole."""

import sys
from collections.abc import Callable, Iterator
from typing import Final

from cafcat.errors import CafcatError

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

__all__ = ["MAX_FRAMES", "FrameRun", "compressed"]

MAX_FRAMES: Final = 1_000_000
"""Of one section: each costs some microseconds, however short it is. clp-s writes one for many tables."""

_INPUT_BYTES: Final = 16 << 10
_OUTPUT_BYTES: Final = 1 << 20
_OPTIONS: Final[dict[int, int]] = {zstd.DecompressionParameter.window_log_max: 25}
"""Level 19 has windows of 2^23 bytes."""
_LEVEL: Final = 3


class FrameRun:
    """Frames back to back, given in blocks. Memory: 1 MiB, and the window that a frame asks for: 2 MiB as clp-s
    writes them, 32 MiB at most."""

    def __init__(self, max_bytes: int, error: Callable[[str], CafcatError]) -> None:
        """Args: max_bytes: that all of them may decompress to; error: what is raised, of a message."""
        self._most_bytes = max_bytes
        self._error = error
        self._frame: zstd.ZstdDecompressor | None = None
        self.frames = 0
        """That ended."""
        self.output_bytes = 0

    @property
    def is_between(self) -> bool:
        """Whether the bytes so far end with a frame, or there were none."""
        return self._frame is None

    def write(self, data: bytes) -> Iterator[bytes]:
        """What a block decompresses to, in blocks of at most 1 MiB. Raises the error."""
        view = memoryview(data)
        while view:
            frame = self._frame = self._frame or zstd.ZstdDecompressor(options=_OPTIONS)
            # Little at a time: what follows the end of a frame is copied, and frames may be tiny and many.
            given = view[:_INPUT_BYTES]
            yield from self._output(frame, given)
            view = view[len(given) - len(frame.unused_data) :]
            if frame.eof:
                self._end_frame()

    def _output(self, frame: zstd.ZstdDecompressor, data: bytes | memoryview) -> Iterator[bytes]:
        while True:
            part = self._decompress(frame, data)
            self.output_bytes += len(part)
            if self.output_bytes > self._most_bytes:
                raise self._error(f"it decompresses to more than {self._most_bytes:,} bytes")
            if part:
                yield part
            if frame.eof or frame.needs_input:
                return
            data = b""

    def _end_frame(self) -> None:
        self._frame = None
        self.frames += 1
        if self.frames > MAX_FRAMES:
            raise self._error(f"it has more than {MAX_FRAMES:,} zstd frames")

    def _decompress(self, frame: zstd.ZstdDecompressor, data: bytes | memoryview) -> bytes:
        try:
            return frame.decompress(data, _OUTPUT_BYTES)
        except zstd.ZstdError as error:
            raise self._error(f"it is not compressed by zstd: {error}") from error

    def finish(self) -> None:
        """Nothing follows. Raises the error if a frame is not whole."""
        if not self.is_between:
            raise self._error("its last zstd frame is not whole")


def compressed(data: bytes) -> bytes:
    """One frame that does not say its size, as clp-s writes metadata."""
    frame = zstd.ZstdCompressor(_LEVEL)
    return frame.compress(data) + frame.flush()
