"""Combines small reads that follow each other into fewer large ones."""

from typing import Final, Generic, Protocol, TypeVar

__all__ = ["ReadAhead"]

_FIRST_BYTES: Final = 64 << 10
"""Size of the first read, in bytes."""
_MOST_BYTES: Final = 8 << 20
"""Largest read in bytes. A request takes some 30 ms, in which a connection transfers 2 MB. Larger reads are
hardly faster."""

_Folder_co = TypeVar("_Folder_co", covariant=True)


class _Object(Protocol[_Folder_co]):
    @property
    def name(self) -> str: ...

    def read_at(self, start_byte: int, end_byte: int) -> bytes: ...

    def beside(self) -> _Folder_co: ...


class ReadAhead(Generic[_Folder_co]):
    """An InFolder that reads ahead from another one.

    As long as reads continue where the last one ended, each request is twice as large as the one before, up to 8
    MiB. This is also the memory that it takes.
    """

    def __init__(self, archive: _Object[_Folder_co], size_bytes: int) -> None:
        """Wrap an object of `size_bytes` bytes."""
        self._archive = archive
        self.name = archive.name
        self.size_bytes = size_bytes
        self._start = 0
        self._data = b""
        self._ahead_bytes = _FIRST_BYTES

    def beside(self) -> _Folder_co:
        """Return the folder that the wrapped object is in."""
        return self._archive.beside()

    def read_at(self, start_byte: int, end_byte: int) -> bytes:
        """Return exactly the bytes `[start_byte, end_byte)`. Raises Corrupt if there are fewer."""
        known_end = self._start + len(self._data)
        if not self._start <= start_byte <= end_byte <= known_end:
            continues = self._start <= start_byte <= known_end + self._ahead_bytes
            self._ahead_bytes = min(2 * self._ahead_bytes, _MOST_BYTES) if continues else _FIRST_BYTES
            end = max(end_byte, min(start_byte + self._ahead_bytes, self.size_bytes))
            self._start, self._data = start_byte, b""
            self._data = self._archive.read_at(start_byte, end)
        return self._data[start_byte - self._start : end_byte - self._start]
