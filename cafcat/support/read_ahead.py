"""Read an archive in few large requests where its reader sends many small ones."""

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

    def parent_folder(self) -> _Folder_co: ...


class ReadAhead(Generic[_Folder_co]):
    """A LocatedArchive that buffers another one.

    Each request reads more than the caller needs: twice as much whenever a read begins where the ones before ended,
    up to 8 MiB. The buffer is the last request.
    """

    def __init__(self, archive: _Object[_Folder_co], size_bytes: int) -> None:
        """Read nothing yet. size_bytes: size of the archive."""
        self._archive = archive
        self.name = archive.name
        self.size_bytes = size_bytes
        self._start = 0
        self._data = b""
        self._ahead_bytes = _FIRST_BYTES

    def parent_folder(self) -> _Folder_co:
        """Return the folder that the archive is in."""
        return self._archive.parent_folder()

    def read_at(self, start_byte: int, end_byte: int) -> bytes:
        """Return exactly those bytes. Raises Corrupt if the archive ends before, and what its store raises."""
        buffered_end = self._start + len(self._data)
        if not self._start <= start_byte <= end_byte <= buffered_end:
            continues = self._start <= start_byte <= buffered_end + self._ahead_bytes
            self._ahead_bytes = min(2 * self._ahead_bytes, _MOST_BYTES) if continues else _FIRST_BYTES
            end = max(end_byte, min(start_byte + self._ahead_bytes, self.size_bytes))
            self._start, self._data = start_byte, b""
            self._data = self._archive.read_at(start_byte, end)
        return self._data[start_byte - self._start : end_byte - self._start]
