"""Parses the entries of a CAF index in groups of columns."""

import ctypes
from collections.abc import Sequence
from typing import Final, NamedTuple

from cafcat.native.library import library

__all__ = ["GROUP_ENTRIES", "EntryParser", "Matched", "ParsedEntries", "entry_parser"]

GROUP_ENTRIES: Final = 4096
"""Largest number of entries that are parsed together."""
_NO_TIME: Final = -(1 << 63)

_Column = ctypes.c_int64 * GROUP_ENTRIES


class _Columns(ctypes.Structure):
    """`struct columns` of index.c."""

    _fields_ = (
        ("starts", ctypes.POINTER(ctypes.c_int64)),
        ("ends", ctypes.POINTER(ctypes.c_int64)),
        ("checksums", ctypes.POINTER(ctypes.c_int64)),
        ("times", ctypes.POINTER(ctypes.c_int64)),
        ("names", ctypes.c_void_p),
        ("names_bytes", ctypes.c_int64),
        ("end", ctypes.c_int64),
        ("has_all_checksums", ctypes.c_int32),
        ("has_all_times", ctypes.c_int32),
        ("ascends", ctypes.c_int32),
    )


class ParsedEntries:
    """Adjacent entries of an index, whose names and numbers are valid.

    Attributes:
        names: The names as UTF-8, with a line break after each.
        ascends: True if each name is larger than the one before it.
        end: Position in the text after the entries.
    """

    def __init__(self, parser: "EntryParser", count: int, names: bytes, *, ascends: bool, end: int) -> None:
        self.names = names
        self.ascends = ascends
        self.end = end
        self._parser = parser
        self._count = count

    def numbers(self) -> tuple[list[int], list[int], Sequence[int | None], Sequence[int | None]]:
        """Return start_byte, end_byte, crc32c and modified_ns of each entry. Call this before the next parsing.

        A missing checksum or time is None.
        """
        return self._parser.numbers(self._count)

    def match(self, begin: "Matched", rows: bytes) -> "Matched":
        """Pass over entries that are equal to their rows. Call this before the next parsing.

        Args:
            begin: Where to begin.
            rows: Rows as COPY_ROWS returns them, without the header.

        Returns:
            Where the first entry is that differs from its row, or whose row is not complete.
        """
        return self._parser.match(self._count, begin, rows)

    def __len__(self) -> int:
        return self._count


class Matched(NamedTuple):
    """A position in parsed entries, and in the rows with which they are compared.

    Attributes:
        entry: Position of the entry in its group.
        name: Position of its name in the names of the group.
        at: Position of the row in the text of the rows.
    """

    entry: int
    name: int
    at: int


class EntryParser:
    """Parses entries of an index in the usual notation. Keeps 128 KiB of numbers, and the names of one group."""

    def __init__(self, loaded: ctypes.CDLL) -> None:
        """Allocate memory for one group of entries.

        Args:
            loaded: The library.
        """
        self._parse = loaded.cafcat_index_entries
        self._parse.restype = ctypes.c_int64
        self._parse.argtypes = [ctypes.c_char_p, *[ctypes.c_int64] * 4, ctypes.POINTER(_Columns)]
        number, pointer = ctypes.c_int64, ctypes.POINTER(ctypes.c_int64)
        self._match = loaded.cafcat_match_rows
        self._match.restype = number
        self._match.argtypes = [ctypes.POINTER(_Columns), number, number, pointer, ctypes.c_char_p, number, pointer]
        columns = [_Column() for _ in range(4)]
        self._views = [memoryview(column).cast("B").cast("q") for column in columns]
        self._names = ctypes.create_string_buffer(0)
        self._found = _Columns(*columns)

    def entries(self, text: bytes, begin: int, data_bytes: int) -> ParsedEntries | None:
        """Parse entries from a position in the text on, at most GROUP_ENTRIES.

        Args:
            text: Text of the index, or a part of it.
            begin: Position of the first entry in the text.
            data_bytes: No entry may end after this byte of the archive.

        Returns:
            The entries. None if the next entry has another notation, is invalid, is cut by the end of the text, or
            is the last one of its index.
        """
        found, size = self._found, len(text)
        if len(self._names) < size - begin:
            self._names = ctypes.create_string_buffer(size)
            found.names = ctypes.addressof(self._names)
        count = self._parse(text, begin, size, data_bytes, GROUP_ENTRIES, found)
        if not count:
            return None
        names = ctypes.string_at(found.names, found.names_bytes)
        return ParsedEntries(self, count, names, ascends=bool(found.ascends), end=found.end)

    def match(self, count: int, begin: Matched, rows: bytes) -> Matched:
        """Compare the entries that were parsed last with rows; see `ParsedEntries.match`."""
        name, at = ctypes.c_int64(begin.name), ctypes.c_int64(begin.at)
        entry = self._match(self._found, count, begin.entry, name, rows, len(rows), at)
        return Matched(entry, name.value, at.value)

    def numbers(self, count: int) -> tuple[list[int], list[int], Sequence[int | None], Sequence[int | None]]:
        """Return the numbers of the entries that were parsed last; see `ParsedEntries.numbers`."""
        starts, ends, checksums, times = (view[:count].tolist() for view in self._views)
        return (
            starts,
            ends,
            checksums if self._found.has_all_checksums else [None if n < 0 else n for n in checksums],
            times if self._found.has_all_times else [None if n == _NO_TIME else n for n in times],
        )


def entry_parser() -> EntryParser | None:
    """Return a parser; None without the library."""
    loaded = library()
    return None if loaded is None else EntryParser(loaded)
