"""Checks the files of a chunk that are as the catalog has them."""

import ctypes
from typing import NamedTuple

from cafcat.native.library import library

__all__ = ["Passed", "RowChecker", "row_checker"]


class Passed(NamedTuple):
    """Rows whose files are right.

    Attributes:
        files: Number of the rows.
        at: Position after them in the text of the rows.
        position: Position in the chunk after their files.
    """

    files: int
    at: int
    position: int


class RowChecker:
    """Passes over rows of a chunk whose files are right."""

    def __init__(self, loaded: ctypes.CDLL) -> None:
        """Prepare the call.

        Args:
            loaded: The library.
        """
        number, pointer = ctypes.c_int64, ctypes.POINTER(ctypes.c_int64)
        self._check = loaded.cafcat_check_rows
        self._check.restype = number
        self._check.argtypes = [ctypes.c_char_p, number, pointer, ctypes.c_char_p, number, number, pointer]

    def check(self, rows: bytes, at: int, block: bytes, block_start: int, position: int) -> Passed:
        """Check rows from a position on, up to the first one that is not usual, not in the block, or not right.

        Args:
            rows: Rows as COPY_ROWS returns them, without the header.
            at: Position of the first row in them.
            block: Bytes of the chunk.
            block_start: Position of the block in the chunk.
            position: Position in the chunk at which the first file has to begin; in the block, or its end.
        """
        next_at, next_position = ctypes.c_int64(at), ctypes.c_int64(position)
        count = self._check(rows, len(rows), next_at, block, block_start, len(block), next_position)
        return Passed(count, next_at.value, next_position.value)


def row_checker() -> RowChecker | None:
    """Return a checker; None without the library."""
    loaded = library()
    return None if loaded is None else RowChecker(loaded)
