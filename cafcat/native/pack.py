"""Packs small files: reads them, and makes the bytes, index entries and rows of their chunk."""

import ctypes
from enum import IntEnum
from typing import Final, NamedTuple

from cafcat.native.folder import ListedFiles
from cafcat.native.library import library

__all__ = ["FilePacker", "Outcome", "Packed", "PackingState", "file_packer"]

_TEXT_BYTES: Final = 256 << 10
"""Memory for the entries, and for the rows, of one call."""
_MOST_MILLISECONDS: Final = 100
"""Time after which a call begins no further file. Python handles signals between two calls."""


class Outcome(IntEnum):
    """Why a call ended."""

    ALL_PACKED = 0
    """There is no further file, or the time for one call is over."""
    NO_ROOM = 1
    """The memory for the bytes, the entries or the rows has no room for the next file."""
    IS_FULL = 2
    """The next file would make the archive, or its index, too large."""
    IS_UNUSUAL = 3
    """The next file changed, cannot be read, is large, or has a name that needs escapes."""


class PackingState(NamedTuple):
    """The state of the chunk that the files are added to.

    Attributes:
        chunk_id: chunks.id.
        source_id: sources.id of the files; None if it is unknown.
        position: Number of bytes of data so far.
        has_entries: True if the index has entries.
        index_bytes: Size of the index if it ended now.
        most_index_bytes: Largest size of the index.
        most_bytes: Largest size of data and index together.
        most_file_bytes: Largest file that is packed here. The memory for the bytes may have less room.
    """

    chunk_id: int
    source_id: int | None
    position: int
    has_entries: bool
    index_bytes: int
    most_index_bytes: int
    most_bytes: int
    most_file_bytes: int


class Packed(NamedTuple):
    """Result of a call: the files that were packed.

    Attributes:
        end: Position of the first file that was not packed.
        data_bytes: Number of bytes that were read into the memory of the caller.
        text: Entries of the index, with a comma before each but the first one of the archive.
        rows: Rows of file_locations in the binary format of COPY.
        outcome: Why the call ended.
        waits: How many times the thread waited, as it does for a file that is not in memory.
    """

    end: int
    data_bytes: int
    text: bytes
    rows: bytes
    outcome: Outcome
    waits: int


class _Packing(ctypes.Structure):
    """`struct packing` of pack.c."""

    _fields_ = (
        ("paths", ctypes.c_char_p),
        ("ends", ctypes.c_char_p),
        ("sizes", ctypes.c_char_p),
        ("modified", ctypes.c_char_p),
        ("changed", ctypes.c_char_p),
        ("begin", ctypes.c_int64),
        ("end", ctypes.c_int64),
        ("base", ctypes.c_char_p),
        ("base_size", ctypes.c_int64),
        ("skip", ctypes.c_int64),
        ("chunk_id", ctypes.c_int64),
        ("source_id", ctypes.c_int64),
        ("has_source", ctypes.c_int32),
        ("has_entries", ctypes.c_int32),
        ("position", ctypes.c_int64),
        ("index_size", ctypes.c_int64),
        ("most_index_size", ctypes.c_int64),
        ("most_size", ctypes.c_int64),
        ("most_file_size", ctypes.c_int64),
        ("most_milliseconds", ctypes.c_int64),
        ("data", ctypes.c_void_p),
        ("text", ctypes.c_void_p),
        ("rows", ctypes.c_void_p),
        ("data_size", ctypes.c_int64),
        ("text_size", ctypes.c_int64),
        ("rows_size", ctypes.c_int64),
        ("data_used", ctypes.c_int64),
        ("text_used", ctypes.c_int64),
        ("rows_used", ctypes.c_int64),
        ("reason", ctypes.c_int32),
        ("waits", ctypes.c_int64),
    )


class FilePacker:
    """Packs files that were listed (`FolderLister`). Keeps memory for the entries and rows of one call."""

    def __init__(self, loaded: ctypes.CDLL) -> None:
        """Allocate the memory.

        Args:
            loaded: The library.
        """
        self._pack = loaded.cafcat_pack
        self._pack.restype = None
        self._pack.argtypes = [ctypes.POINTER(_Packing)]
        self._prefetch = loaded.cafcat_prefetch
        self._prefetch.restype = None
        self._prefetch.argtypes = [ctypes.POINTER(_Packing)]
        self._memory = [ctypes.create_string_buffer(_TEXT_BYTES) for _ in range(2)]
        self._text, self._rows = map(ctypes.addressof, self._memory)
        self._packing = _Packing(text=self._text, rows=self._rows, text_size=_TEXT_BYTES, rows_size=_TEXT_BYTES)

    def pack(self, files: ListedFiles, *, data: memoryview, state: PackingState) -> Packed:
        """Read files, and make their entries and rows, until one does not fit or is not usual.

        A file that changed since it was listed is not usual.

        Args:
            files: The files.
            data: Memory for the bytes of the files.
            state: The state of their chunk.
        """
        to = self._packing_of(files)
        to.chunk_id, to.source_id, to.has_source = state.chunk_id, state.source_id or 0, state.source_id is not None
        to.position, to.has_entries, to.index_size = state.position, state.has_entries, state.index_bytes
        to.most_index_size, to.most_size = state.most_index_bytes, state.most_bytes
        to.most_file_size = state.most_file_bytes
        to.data, to.data_size = ctypes.addressof(ctypes.c_char.from_buffer(data)), len(data)
        self._pack(to)
        text, rows = ctypes.string_at(self._text, to.text_used), ctypes.string_at(self._rows, to.rows_used)
        return Packed(to.begin, to.data_used, text, rows, Outcome(to.reason), to.waits)

    def prefetch(self, files: ListedFiles, *, most_bytes: int) -> tuple[int, int]:
        """Read files into the page cache, several at the same time, as long as a call may take.

        Files that cannot be read are left out.

        Args:
            files: The files.
            most_bytes: Size of the largest files that are read.

        Returns:
            The position after the last file that was read, and how many times a thread waited.
        """
        to = self._packing_of(files)
        to.most_file_size = most_bytes
        self._prefetch(to)
        return to.begin, to.waits

    def _packing_of(self, files: ListedFiles) -> _Packing:
        to, listed = self._packing, files.listed
        to.paths, to.ends, to.sizes = listed.paths, listed.ends, listed.sizes
        to.modified, to.changed = listed.modified, listed.changed
        to.begin, to.end = files.begin, files.end
        to.most_milliseconds = _MOST_MILLISECONDS
        to.base, to.base_size, to.skip = files.base, len(files.base), files.skip
        return to


def file_packer() -> FilePacker | None:
    """Return a packer; None without the library."""
    loaded = library()
    return None if loaded is None else FilePacker(loaded)
