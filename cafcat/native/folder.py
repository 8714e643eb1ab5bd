"""Lists a folder of the file system in columns."""

import ctypes
import os
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, Self

from cafcat.native.library import library

__all__ = ["FILE", "FOLDER", "FolderLister", "ListedFiles", "ListedFolder", "folder_lister", "joined", "numbers"]

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


class ListedFiles(NamedTuple):
    """Adjacent files of one folder, or of several folders that were joined.

    Attributes:
        listed: The names in the folder; for several folders, only the files.
        begin: Position of the first of these files among the names.
        end: Position after the last one.
        base: A folder above all files for the operating system, with a slash at its end.
        skip: Number of bytes of each path before the name below `base`.
        folders: Path of each folder in the catalog, with a slash at its end.
        folder_ends: For each folder, the position after its names.
    """

    listed: ListedFolder
    begin: int
    end: int
    base: bytes
    skip: int
    folders: Sequence[str]
    folder_ends: Sequence[int]

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

    def in_folders(self) -> Iterator[tuple[str, int, int]]:
        """Yield the path of each folder of these files, and the positions of its first file and after its last."""
        begin, number = self.begin, bisect_right(self.folder_ends, self.begin)
        while begin < self.end:
            end = min(self.folder_ends[number], self.end)
            yield self.folders[number], begin, end
            begin, number = end, number + 1

    def alone(self) -> "ListedFiles":
        """Return these files without the other names of their folder, for another process."""
        return self if self.file_count == len(self.listed.kinds) else joined([self])


def joined(parts: Sequence[ListedFiles]) -> ListedFiles:
    """Return files of several folders below one `base` as one object, in the same order, without other names.

    Args:
        parts: The parts to join, in order: at least one, each with at least one file.
    """
    ends = array("q")
    paths: list[bytes] = []
    sizes: list[bytes] = []
    modified: list[bytes] = []
    changed: list[bytes] = []
    folders: list[str] = []
    folder_ends: list[int] = []
    for part in parts:
        listed, begin, end = part.listed, part.begin, part.end
        part_ends = numbers(listed.ends)
        first = part_ends[begin - 1] if begin else 0
        ends_before, files_before = ends[-1] if ends else 0, len(ends)
        ends.extend([position - first + ends_before for position in part_ends[begin:end]])
        paths.append(listed.paths[first : part_ends[end - 1]])
        for column, whole in ((sizes, listed.sizes), (modified, listed.modified), (changed, listed.changed)):
            column.append(whole[begin * _NUMBER_BYTES : end * _NUMBER_BYTES])
        for path, _, folder_end in part.in_folders():
            folders.append(path)
            folder_ends.append(folder_end - begin + files_before)
    kinds = bytes([FILE]) * len(ends)
    listed = ListedFolder(
        b"".join(paths), ends.tobytes(), b"".join(sizes), b"".join(modified), b"".join(changed), kinds
    )
    return ListedFiles(listed, 0, len(ends), parts[0].base, parts[0].skip, folders, folder_ends)


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
        texts = [ctypes.create_string_buffer(text_bytes) for _ in range(2)]
        columns = [(ctypes.c_int64 * names)() for _ in range(5)]
        kinds = ctypes.create_string_buffer(names)
        self._memory = (*texts, *columns, kinds)
        found.text_size, found.capacity = text_bytes, names
        found.read, found.paths = map(ctypes.addressof, texts)
        found.order, found.ends, found.sizes, found.modified, found.changed = map(ctypes.addressof, columns)
        found.kinds = ctypes.addressof(kinds)

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
        found, copy, column_bytes = self._found, ctypes.string_at, count * _NUMBER_BYTES
        ends = copy(found.ends, column_bytes)
        paths = copy(found.paths, numbers(ends)[-1] if count else 0)
        sizes, modified = copy(found.sizes, column_bytes), copy(found.modified, column_bytes)
        return ListedFolder(
            paths, ends, sizes, modified, copy(found.changed, column_bytes), copy(found.kinds, count)
        )


def folder_lister() -> FolderLister | None:
    """Return a lister; None without the library."""
    loaded = library()
    return None if loaded is None else FolderLister(loaded)
