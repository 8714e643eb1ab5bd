"""Buffers small reads at scattered positions of a file, where each read may be a network request."""

from typing import Final

from cafcat.formats.base import RandomReader

__all__ = ["Window"]

_SMALLEST_BYTES: Final = 16 << 10
"""Size in bytes of the first read after a jump."""
_LARGEST_BYTES: Final = 1 << 20
"""Largest read in bytes. Larger requests are not buffered."""
_NEAR_BYTES: Final = 128 << 10
"""A read that begins at most this many bytes after the window is not a jump."""


class Window:
    """Reads a file through a buffer of at most 1 MiB, which holds the bytes around the last read.

    Reads from the file become larger while positions advance in small steps, and are small again after a jump. The
    file may grow between reads, but its existing bytes must not change.
    """

    def __init__(self, archive: RandomReader) -> None:
        self._archive = archive
        self._start = 0
        self._data = b""
        self._next_bytes = _SMALLEST_BYTES

    @property
    def size_bytes(self) -> int:
        """Current size of the file in bytes."""
        return self._archive.size_bytes

    def clear(self) -> None:
        """Discard the buffered bytes, so that the next read goes to the file."""
        self._data = b""

    def read(self, start_byte: int, end_byte: int) -> bytes:
        """Return the bytes `[start_byte, end_byte)` of the file. Raises Corrupt if the file ends before."""
        if end_byte - start_byte > _LARGEST_BYTES:
            return self._archive.read_at(start_byte, end_byte)
        if start_byte < self._start or end_byte > self._start + len(self._data):
            self._fetch(start_byte, end_byte)
        offset = start_byte - self._start
        return self._data[offset : offset + end_byte - start_byte]

    def _fetch(self, start_byte: int, end_byte: int) -> None:
        window_end = self._start + len(self._data)
        near = self._start <= start_byte <= window_end + _NEAR_BYTES
        self._next_bytes = min(self._next_bytes * 2, _LARGEST_BYTES) if near else _SMALLEST_BYTES
        end = min(max(end_byte, start_byte + self._next_bytes), self.size_bytes)
        self._data = self._archive.read_at(start_byte, max(end, end_byte))
        self._start = start_byte
