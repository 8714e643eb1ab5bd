"""Writes small files of a chunk into a folder: the content first, and the name of each file later."""

import ctypes
import os
from array import array
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from cafcat.native.library import library

__all__ = ["FileWriter", "NewFiles", "SmallFiles", "file_writer"]

_CLOSED: Final = -1


class SmallFiles(NamedTuple):
    """Files of one folder whose bytes were read together.

    Attributes:
        names: Name of each file in the folder.
        starts: Position of the first byte of each file in its chunk.
        ends: Position after the last byte.
        checksums: CRC-32C of the content of each file.
        modified: Modification time of each file, in nanoseconds since 1970 UTC.
        data: Bytes of the chunk.
        data_start: Position of the bytes in the chunk.
    """

    names: Sequence[str]
    starts: Sequence[int]
    ends: Sequence[int]
    checksums: Sequence[int]
    modified: Sequence[int]
    data: bytes
    data_start: int

    def part(self, begin: int, end: int) -> "SmallFiles":
        """Return the files from one position to another one."""
        part = slice(begin, end)
        return self._replace(
            names=self.names[part],
            starts=self.starts[part],
            ends=self.ends[part],
            checksums=self.checksums[part],
            modified=self.modified[part],
        )

    def size_bytes(self, count: int) -> int:
        """Return the size of the first files."""
        return sum(self.ends[:count]) - sum(self.starts[:count])


class _Contents(ctypes.Structure):
    """`struct contents` of extract.c."""

    _fields_ = (
        ("data", ctypes.c_char_p),
        ("data_size", ctypes.c_int64),
        ("data_start", ctypes.c_int64),
        ("starts", ctypes.c_void_p),
        ("ends", ctypes.c_void_p),
        ("checksums", ctypes.c_void_p),
        ("modified", ctypes.c_void_p),
        ("count", ctypes.c_int64),
        ("folder", ctypes.c_int32),
        ("mode", ctypes.c_int32),
        ("descriptors", ctypes.c_void_p),
    )


class _Waiting(ctypes.Structure):
    """`struct waiting` of extract.c."""

    _fields_ = (
        ("names", ctypes.c_char_p),
        ("descriptors", ctypes.c_void_p),
        ("count", ctypes.c_int64),
        ("named", ctypes.c_int64),
        ("name_at", ctypes.c_int64),
        ("folder", ctypes.c_int32),
    )


class NewFiles:
    """Written files of one folder that get their names later. Until then, they disappear with their process."""

    def __init__(
        self, loaded: ctypes.CDLL, folder: int, names: bytes, descriptors: "array[int]", count: int
    ) -> None:
        """Take over the descriptors of the files.

        Args:
            loaded: The library.
            folder: Descriptor of the folder.
            names: Names of the files, in order, with a NUL byte after each.
            descriptors: Descriptors of the files, which this object closes.
            count: How many of the descriptors are those of files.
        """
        self._library = loaded
        self._names = names
        self._descriptors = descriptors
        self._waiting = _Waiting(names, descriptors.buffer_info()[0], count, 0, 0, folder)

    def __len__(self) -> int:
        """Return the number of files, with and without names."""
        return int(self._waiting.count)

    @property
    def named(self) -> int:
        """How many of the files have their names, or were taken by `pop_next`; these are the first ones."""
        return int(self._waiting.named)

    def descriptors(self) -> Sequence[int]:
        """Return the descriptors of the files that have no names yet."""
        return self._descriptors[self.named : len(self)]

    def give_names(self) -> None:
        """Name and close the files up to the first one whose name is taken or cannot be given."""
        self._library.cafcat_name_files(self._waiting)

    def pop_next(self) -> tuple[int, str]:
        """Return the descriptor and the name of the next file without a name. The caller closes the file."""
        at, number = self._waiting.name_at, self.named
        end = self._names.index(b"\0", at)
        descriptor, self._descriptors[number] = self._descriptors[number], _CLOSED
        self._waiting.named, self._waiting.name_at = number + 1, end + 1
        return descriptor, os.fsdecode(self._names[at:end])

    def discard(self) -> None:
        """Close the files that have no names, which removes them."""
        while self.named < len(self):
            os.close(self.pop_next()[0])

    def __del__(self) -> None:
        """Close the files that have no names, when the last reference to this object is gone."""
        with suppress(AttributeError, OSError):
            self.discard()


class FileWriter:
    """Writes files without names."""

    def __init__(self, loaded: ctypes.CDLL) -> None:
        """Prepare the calls.

        Args:
            loaded: The library.
        """
        self._library = loaded
        loaded.cafcat_write_files.restype = ctypes.c_int64
        loaded.cafcat_write_files.argtypes = [ctypes.POINTER(_Contents)]
        loaded.cafcat_name_files.restype = None
        loaded.cafcat_name_files.argtypes = [ctypes.POINTER(_Waiting)]

    def write(self, folder: int, files: SmallFiles, mode: int) -> NewFiles:
        """Write the content of files until one is damaged or cannot be written.

        Args:
            folder: Descriptor of their folder.
            files: The files.
            mode: Permissions of the files, from which the umask is removed.

        Returns:
            The files that were written, which are the first ones.
        """
        numbers = [array("q", column) for column in (files.starts, files.ends, files.checksums, files.modified)]
        columns = (column.buffer_info()[0] for column in numbers)
        descriptors = array("i", [_CLOSED]) * len(files.names)
        result, data = descriptors.buffer_info()[0], files.data
        contents = _Contents(data, len(data), files.data_start, *columns, len(descriptors), folder, mode, result)
        count = self._library.cafcat_write_files(contents)
        text = os.fsencode("".join(f"{name}\0" for name in files.names))
        return NewFiles(self._library, folder, text, descriptors, count)


def file_writer() -> FileWriter | None:
    """Return a writer; None without the library."""
    loaded = library()
    return None if loaded is None else FileWriter(loaded)
