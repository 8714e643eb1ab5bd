"""Bytes of a file for those who want a few here and a few there, each read perhaps a network request."""

from typing import Final

from cafcat.formats.base import RandomReader

__all__ = ["Window"]

_SMALLEST_BYTES: Final = 16 << 10
_LARGEST_BYTES: Final = 1 << 20
_NEAR_BYTES: Final = 128 << 10


class Window:
    """Keeps what it read last, at most 1 MiB. Who goes on reading near the end of it gets ever larger windows, who
    leaps gets small ones. The file may grow meanwhile, what was there is taken to stay."""

    def __init__(self, archive: RandomReader) -> None:
        self._archive = archive
        self._start = 0
        self._data = b""
        self._next_bytes = _SMALLEST_BYTES

    @property
    def size_bytes(self) -> int:
        """Of the file."""
        return self._archive.size_bytes

    def forget(self) -> None:
        """The next bytes are read anew."""
        self._data = b""

    def read(self, start_byte: int, end_byte: int) -> bytes:
        """The bytes `[start_byte, end_byte)`, which have to be there."""
        if end_byte - start_byte > _LARGEST_BYTES:
            return self._archive.read_at(start_byte, end_byte)
        if start_byte < self._start or end_byte > self._start + len(self._data):
            self._fetch(start_byte, end_byte)
        at = start_byte - self._start
        return self._data[at : at + end_byte - start_byte]

    def _fetch(self, start_byte: int, end_byte: int) -> None:
        window_end = self._start + len(self._data)
        near = self._start <= start_byte <= window_end + _NEAR_BYTES
        self._next_bytes = min(self._next_bytes * 2, _LARGEST_BYTES) if near else _SMALLEST_BYTES
        end = min(max(end_byte, start_byte + self._next_bytes), self.size_bytes)
        self._data = self._archive.read_at(start_byte, max(end, end_byte))
        self._start = start_byte
