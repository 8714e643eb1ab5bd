"""Lists a folder of the file system in columns."""

import ctypes
import os
from array import array
from collections.abc import Sequence
from typing import Any, Final, NamedTuple, Self

from cafcat.native.library import library

__all__ = ["FILE", "FOLDER", "FilesOfFolder", "FolderLister", "ListedFolder", "folder_lister", "numbers"]

FILE: Final = 0
FOLDER: Final = 1
"""Kinds of a name in a folder. A name of another kind is a link, a special file, or could not be examined."""
_TEXT_BYTES: Final = 256 << 10
_NAMES: Final = 2048
"""Memory for the paths, and for the names, of a folder. It grows for a larger folder."""
_NUMBER_BYTES: Final = 8


class ListedFolder(NamedTuple):
    """The names in a folder, in columns, in the order of the paths below them.

    Numbers are int64 in the byte order of the processor.

    Attributes:
        paths: Each name after the prefix, as UTF-8, with a NUL byte after each. Names of folders end in a slash.
        ends: Position in `paths` after each NUL byte.
        sizes: Size of each file, in bytes. It is 0, as the times are, for a name of another kind.
        modified: Modification time of each file, in nanoseconds since 1970 UTC.
        changed: Status change time of each file, in nanoseconds since 1970 UTC.
        kinds: Kind of each name, one byte: FILE, FOLDER, or another number.
    """

    paths: bytes
    ends: bytes
    sizes: bytes
    modified: bytes
    changed: bytes
    kinds: bytes

    def path(self, position: int) -> str:
        """Return the path of a name by its position."""
        ends = numbers(self.ends)
        return self.paths[ends[position - 1] if position else 0 : ends[position] - 1].decode()


class FilesOfFolder(NamedTuple):
    """Adjacent files of one folder.

    Attributes:
        folder: Path of the folder in the catalog, with a slash at its end.
        listed: The names in the folder.
        begin: Position of the first of these files among the names.
        end: Position after the last one.
        base: A folder above all files for the operating system, with a slash at its end.
        skip: Number of bytes of each path before the name below `base`.
    """

    folder: str
    listed: ListedFolder
    begin: int
    end: int
    base: bytes
    skip: int

    @property
    def file_count(self) -> int:
        """Number of these files."""
        return self.end - self.begin

    @property
    def first_path(self) -> str:
        """Path of the first file."""
        return self.listed.path(self.begin)

    @property
    def last_path(self) -> str:
        """Path of the last file."""
        return self.listed.path(self.end - 1)

    def sizes(self) -> Sequence[int]:
        """Return the size of each file in bytes."""
        return numbers(self.listed.sizes)[self.begin : self.end]

    def between(self, begin: int, end: int) -> Self:
        """Return the files between two positions among the names."""
        return self._replace(begin=begin, end=end)

    def alone(self) -> Self:
        """Return these files without the other names of their folder, for another process."""
        listed, begin, end = self.listed, self.begin, self.end
        if end - begin == len(listed.kinds):
            return self
        ends = numbers(listed.ends)
        first = ends[begin - 1] if begin else 0
        moved = array("q", [position - first for position in ends[begin:end]]).tobytes()
        sizes, modified, changed = (
            column[begin * _NUMBER_BYTES : end * _NUMBER_BYTES]
            for column in (listed.sizes, listed.modified, listed.changed)
        )
        paths, kinds = listed.paths[first : ends[end - 1]], listed.kinds[begin:end]
        alone = ListedFolder(paths, moved, sizes, modified, changed, kinds)
        return self._replace(listed=alone, begin=0, end=end - begin)


def numbers(column: bytes) -> "memoryview[int]":
    """Return the numbers of a column of a ListedFolder."""
    return memoryview(column).cast("q")


class _Folder(ctypes.Structure):
    """`struct folder` of folder.c."""

    _fields_ = (
        ("read", ctypes.c_void_p),
        ("paths", ctypes.c_void_p),
        ("text_size", ctypes.c_int64),
        ("order", ctypes.c_void_p),
        ("ends", ctypes.c_void_p),
        ("sizes", ctypes.c_void_p),
        ("modified", ctypes.c_void_p),
        ("changed", ctypes.c_void_p),
        ("kinds", ctypes.c_void_p),
        ("capacity", ctypes.c_int64),
        ("prefix", ctypes.c_char_p),
        ("prefix_size", ctypes.c_int64),
        ("most_path_size", ctypes.c_int64),
        ("count", ctypes.c_int64),
        ("needed_text_size", ctypes.c_int64),
        ("needed_capacity", ctypes.c_int64),
    )


class FolderLister:
    """Lists folders, one after the other. Keeps memory for the largest one."""

    def __init__(self, loaded: ctypes.CDLL) -> None:
        """Prepare the calls.

        Args:
            loaded: The library.
        """
        self._list = loaded.cafcat_list_folder
        self._list.argtypes = [ctypes.c_int, ctypes.POINTER(_Folder)]
        self._found = _Folder()
        self._allocate(_TEXT_BYTES, _NAMES)

    def _allocate(self, text_bytes: int, names: int) -> None:
        found = self._found
        self._texts = [ctypes.create_string_buffer(text_bytes) for _ in range(2)]
        self._columns = [(ctypes.c_int64 * names)() for _ in range(5)]
        self._kinds = ctypes.create_string_buffer(names)
        found.text_size, found.capacity = text_bytes, names
        found.read, found.paths = map(ctypes.addressof, self._texts)
        found.order, found.ends, found.sizes, found.modified, found.changed = map(ctypes.addressof, self._columns)
        found.kinds = ctypes.addressof(self._kinds)

    def list(self, folder: int, prefix: bytes, most_path_bytes: int) -> ListedFolder | None:
        """List a folder.

        Args:
            folder: Descriptor of the folder.
            prefix: Bytes before each name, such as the folder's path with a slash at its end.
            most_path_bytes: Longest path after the prefix and a name, in bytes.

        Returns:
            The names; None if one of them is not valid UTF-8, or makes a path that is too long.

        Raises:
            OSError: The folder cannot be read.
        """
        found = self._found
        found.prefix, found.prefix_size, found.most_path_size = prefix, len(prefix), most_path_bytes
        while True:
            outcome = self._list(folder, found)
            if outcome < 0:
                raise OSError(-outcome, os.strerror(-outcome))
            if outcome:
                return None
            if found.needed_text_size <= found.text_size and found.needed_capacity <= found.capacity:
                return self._copied(found.count)
            self._allocate(2 * max(found.needed_text_size, _TEXT_BYTES), 2 * max(found.needed_capacity, _NAMES))

    def _copied(self, count: int) -> ListedFolder:
        """Return the result in memory of its own: the next call changes that of the columns."""
        ends, sizes, modified, changed = [_copy(column, count * _NUMBER_BYTES) for column in self._columns[1:]]
        text_bytes = self._columns[1][count - 1] if count else 0
        paths, kinds = _copy(self._texts[1], text_bytes), _copy(self._kinds, count)
        return ListedFolder(paths, ends, sizes, modified, changed, kinds)


def _copy(memory: "ctypes.Array[Any]", size_bytes: int) -> bytes:
    return ctypes.string_at(ctypes.addressof(memory), size_bytes)


def folder_lister() -> FolderLister | None:
    """Return a lister; None without the library."""
    loaded = library()
    return None if loaded is None else FolderLister(loaded)
