"""Reads an archive in few large requests, although its reader requests many small parts."""

from typing import Final, Generic, Protocol, TypeVar

__all__ = ["LocatedReadAhead", "ReadAhead"]

_FIRST_BYTES: Final = 64 << 10
"""Default size in bytes of a read after a jump."""
_MOST_BYTES: Final = 8 << 20
"""Default size in bytes of the largest read. A request takes some 30 ms, in which a connection transfers 2 MB.
Larger reads are hardly faster."""
_NEAR_BYTES: Final = 128 << 10
"""A read that begins at most this many bytes after the buffer, or at most the size of the last request after it, is
not a jump."""

_Folder_co = TypeVar("_Folder_co", covariant=True)


class _Archive(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def size_bytes(self) -> int: ...

    def read_at(self, start_byte: int, end_byte: int) -> bytes: ...


class _Located(_Archive, Protocol[_Folder_co]):
    def parent_folder(self) -> _Folder_co: ...


class ReadAhead:
    """Reads an archive through a buffer with the bytes of the last request. It is a RandomReader itself.

    Each request reads more than the caller needs: `first_bytes` after a jump. If the read begins in the buffer or
    shortly after it, the request reads twice as much as the one before, up to `most_bytes`. The archive may grow
    between reads, but its existing bytes must not change.
    """

    def __init__(
        self, archive: _Archive, *, first_bytes: int = _FIRST_BYTES, most_bytes: int = _MOST_BYTES
    ) -> None:
        """Prepare to read an archive. This reads nothing yet.

        Args:
            archive: The archive.
            first_bytes: Size in bytes of a read after a jump.
            most_bytes: Size in bytes of the largest read. Larger requests are not buffered.
        """
        self._archive = archive
        self._first_bytes = self._ahead_bytes = first_bytes
        self._most_bytes = most_bytes
        self._start = 0
        self._data = b""

    @property
    def name(self) -> str:
        """Name of the archive."""
        return self._archive.name

    @property
    def size_bytes(self) -> int:
        """Current size of the archive in bytes."""
        return self._archive.size_bytes

    def clear(self) -> None:
        """Discard the buffered bytes, so that the next read goes to the archive."""
        self._data = b""

    def read_at(self, start_byte: int, end_byte: int) -> bytes:
        """Return exactly the bytes of `[start_byte, end_byte)`.

        Raises:
            Corrupt: The archive ends before `end_byte`. Errors of the store that holds the archive pass through.
        """
        if end_byte - start_byte > self._most_bytes:
            return self._archive.read_at(start_byte, end_byte)
        if start_byte < self._start or end_byte > self._start + len(self._data):
            self._fetch(start_byte, end_byte)
        return self._data[start_byte - self._start : end_byte - self._start]

    def _fetch(self, start_byte: int, end_byte: int) -> None:
        buffered_end = self._start + len(self._data)
        is_near = self._start <= start_byte <= buffered_end + max(self._ahead_bytes, _NEAR_BYTES)
        self._ahead_bytes = min(2 * self._ahead_bytes, self._most_bytes) if is_near else self._first_bytes
        end = max(end_byte, min(start_byte + self._ahead_bytes, self.size_bytes))
        self._data = b""  # frees the old bytes before the new ones arrive
        self._data = self._archive.read_at(start_byte, end)
        self._start = start_byte


class LocatedReadAhead(ReadAhead, Generic[_Folder_co]):
    """Reads a LocatedArchive as ReadAhead does, and is a LocatedArchive itself."""

    def __init__(self, archive: _Located[_Folder_co]) -> None:
        """Prepare to read an archive. This reads nothing yet."""
        super().__init__(archive)
        self._located = archive

    def parent_folder(self) -> _Folder_co:
        """Return the folder that contains the archive; None if it is unknown."""
        return self._located.parent_folder()
