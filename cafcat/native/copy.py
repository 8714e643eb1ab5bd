"""Takes the rows of a running COPY from libpq. psycopg takes one row with each call."""

import ctypes

from cafcat.native.library import library

__all__ = ["RowTaker", "row_taker"]


class RowTaker:
    """Takes the rows of a running COPY that libpq has received."""

    def __init__(self, loaded: ctypes.CDLL, libpq: ctypes.CDLL, block_bytes: int) -> None:
        """Prepare the call. Raises AttributeError if `libpq` has no functions of libpq."""
        pointer, number = ctypes.c_void_p, ctypes.c_int64
        self._get = ctypes.cast(libpq.PQgetCopyData, pointer)
        self._free = ctypes.cast(libpq.PQfreemem, pointer)
        self._free_row = ctypes.CFUNCTYPE(None, pointer)(self._free.value or 0)
        self._copy = loaded.cafcat_copy_rows
        self._copy.restype = number
        self._copy.argtypes = [pointer, pointer, pointer, pointer, number, ctypes.POINTER(number), pointer]
        self._block = ctypes.create_string_buffer(block_bytes)

    def take(self, connection: int) -> tuple[bytes, int]:
        """Return rows that libpq has received, and the last result of PQgetCopyData.

        The rows have at most `block_bytes`, except that the last one can be larger. The result is above 0 if libpq
        may have further rows, 0 if the server has to send more, -1 after the last row, and -2 after an error.

        Args:
            connection: Address of libpq's PGconn.
        """
        size, row = ctypes.c_int64(), ctypes.c_void_p()
        capacity = len(self._block)
        result = self._copy(self._get, self._free, connection, self._block, capacity, size, ctypes.byref(row))
        rows = ctypes.string_at(self._block, size.value)
        if result > 0:
            rows += ctypes.string_at(row, result)
            self._free_row(row)
        return rows, int(result)


def row_taker(libpq: str, block_bytes: int) -> RowTaker | None:
    """Return an object that takes rows; None without the library, or if `libpq` has no functions of libpq.

    Args:
        libpq: Path of the libpq that psycopg calls, or of a library that is linked with it; "" if it is unknown.
        block_bytes: Size of the blocks of rows, in bytes.
    """
    loaded = library()
    if loaded is None or not libpq:
        return None
    try:
        return RowTaker(loaded, ctypes.CDLL(libpq), block_bytes)
    except (OSError, AttributeError):
        return None
