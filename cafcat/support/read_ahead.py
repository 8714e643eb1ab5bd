"""Reads an archive in few large requests, although its reader requests many small parts."""

from typing import Final, Generic, Protocol, TypeVar

__all__ = ["ReadAhead"]

_FIRST_BYTES: Final = 64 << 10
"""Size of a read after a jump, in bytes."""
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
    """Reads a LocatedArchive through a buffer with the bytes of the last request. Is a LocatedArchive itself.

    Each request reads more than the caller needs: 64 KiB after a jump, and twice as much as before, up to 8 MiB, if
    the read begins in the buffer or shortly after it. A first read at the beginning of the archive takes 128 KiB.

    Attributes:
        name: Name of the archive.
        size_bytes: Size of the archive in bytes.
    """

    def __init__(self, archive: _Object[_Folder_co], size_bytes: int) -> None:
        """Prepare to read an archive of `size_bytes` bytes. Nothing is read yet."""
        self._archive = archive
        self.name = archive.name
        self.size_bytes = size_bytes
        self._start = 0
        self._data = b""
        self._ahead_bytes = _FIRST_BYTES

    def parent_folder(self) -> _Folder_co:
        """Return the folder that contains the archive; None if the archive does not know its folder."""
        return self._archive.parent_folder()

    def read_at(self, start_byte: int, end_byte: int) -> bytes:
        """Return exactly the bytes of `[start_byte, end_byte)`.

        Raises:
            Corrupt: The archive ends before `end_byte`. Errors of the store that holds the archive pass through.
        """
        buffered_end = self._start + len(self._data)
        if not self._start <= start_byte <= end_byte <= buffered_end:
            continues = self._start <= start_byte <= buffered_end + self._ahead_bytes
            self._ahead_bytes = min(2 * self._ahead_bytes, _MOST_BYTES) if continues else _FIRST_BYTES
            end = max(end_byte, min(start_byte + self._ahead_bytes, self.size_bytes))
            self._start, self._data = start_byte, b""
            self._data = self._archive.read_at(start_byte, end)
        return self._data[start_byte - self._start : end_byte - self._start]
