"""Small reads, one after the other, as fewer large ones."""

from typing import Final, Generic, Protocol, TypeVar

__all__ = ["ReadAhead"]

_FIRST_BYTES: Final = 64 << 10
_MOST_BYTES: Final = 8 << 20
"""A request is answered after some 30 ms, in which a connection carries 2 MB: larger reads are hardly faster."""

_Folder_co = TypeVar("_Folder_co", covariant=True)


class _Object(Protocol[_Folder_co]):
    @property
    def name(self) -> str: ...

    def read_at(self, start_byte: int, end_byte: int) -> bytes: ...

    def parent_folder(self) -> _Folder_co: ...


class ReadAhead(Generic[_Folder_co]):
    """A LocatedArchive on top of another one. It asks for more than it is asked for: twice as much each time that
    reads go on where they were, up to 8 MiB. That is also what it keeps in memory."""

    def __init__(self, archive: _Object[_Folder_co], size_bytes: int) -> None:
        self._archive = archive
        self.name = archive.name
        self.size_bytes = size_bytes
        self._start = 0
        self._data = b""
        self._ahead_bytes = _FIRST_BYTES

    def parent_folder(self) -> _Folder_co:
        """The folder that the archive is in, as the archive says it."""
        return self._archive.parent_folder()

    def read_at(self, start_byte: int, end_byte: int) -> bytes:
        """Exactly those bytes; raises Corrupt if the object ends earlier, and what its store raises."""
        known_end = self._start + len(self._data)
        if not self._start <= start_byte <= end_byte <= known_end:
            goes_on = self._start <= start_byte <= known_end + self._ahead_bytes
            self._ahead_bytes = min(2 * self._ahead_bytes, _MOST_BYTES) if goes_on else _FIRST_BYTES
            end = max(end_byte, min(start_byte + self._ahead_bytes, self.size_bytes))
            self._start, self._data = start_byte, b""
            self._data = self._archive.read_at(start_byte, end)
        return self._data[start_byte - self._start : end_byte - self._start]
