"""Receives the rows of a running COPY, many with one call. psycopg returns one row with each call."""

import ctypes
from typing import Final

from cafcat.native.library import library

__all__ = ["RowReceiver", "row_receiver"]

_GET: Final = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int)
_RELEASE: Final = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_CONSUME: Final = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)


class _Copying(ctypes.Structure):
    """`struct copying` of copy.c."""

    _fields_ = (
        ("get", _GET),
        ("release", _RELEASE),
        ("consume", _CONSUME),
        ("connection", ctypes.c_void_p),
        ("socket", ctypes.c_int32),
        ("block", ctypes.c_void_p),
        ("capacity", ctypes.c_int64),
        ("size", ctypes.c_int64),
        ("row", ctypes.c_void_p),
    )


class RowReceiver:
    """Receives the rows of a running COPY through libpq."""

    def __init__(self, loaded: ctypes.CDLL, libpq: ctypes.CDLL, block_bytes: int) -> None:
        """Prepare the call. Raises AttributeError if `libpq` has no functions of libpq."""
        self._copy = loaded.cafcat_copy_rows
        self._copy.restype = ctypes.c_int64
        self._copy.argtypes = [ctypes.POINTER(_Copying)]
        self._block = ctypes.create_string_buffer(block_bytes)
        self._copying = _Copying(
            ctypes.cast(libpq.PQgetCopyData, _GET),
            ctypes.cast(libpq.PQfreemem, _RELEASE),
            ctypes.cast(libpq.PQconsumeInput, _CONSUME),
            block=ctypes.addressof(self._block),
            capacity=block_bytes,
        )

    def receive(self, connection: int, socket: int) -> tuple[bytes, int]:
        """Return rows of the server, and the last result of PQgetCopyData.

        The rows have at most `block_bytes`, except that the last one can be larger. The result is above 0 if libpq
        may have further rows, 0 if the server has to send more, -1 after the last row, and -2 after an error.

        Args:
            connection: Address of libpq's PGconn.
            socket: Its file descriptor. The call returns when the server has sent nothing for two milliseconds.
        """
        copying = self._copying
        copying.connection, copying.socket = connection, socket
        result = self._copy(copying)
        rows = ctypes.string_at(self._block, copying.size)
        if result > 0:
            rows += ctypes.string_at(copying.row, result)
            copying.release(copying.row)
        return rows, int(result)


def row_receiver(libpq: str, block_bytes: int) -> RowReceiver | None:
    """Return an object that receives rows; None without the library, or if `libpq` has no functions of libpq.

    Args:
        libpq: Path of the libpq that psycopg calls, or of a library that is linked with it; "" if it is unknown.
        block_bytes: Size of the blocks of rows, in bytes.
    """
    loaded = library()
    if loaded is None or not libpq:
        return None
    try:
        return RowReceiver(loaded, ctypes.CDLL(libpq), block_bytes)
    except (OSError, AttributeError):
        return None
