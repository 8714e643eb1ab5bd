"""Computes CRC-64/NVME by instructions of the processor."""

import ctypes
from collections.abc import Callable
from functools import cache

from cafcat.native.library import library

__all__ = ["crc64nvme_by_instructions"]

_Compute = Callable[[bytes | memoryview, int], int]


def crc64nvme_by_instructions() -> _Compute | None:
    """Return a function that continues a checksum; None without the library or without these instructions.

    Its arguments are bytes, or a writable memoryview of bytes, and the CRC-64/NVME of the bytes before them (0 at
    the start). It releases the interpreter's lock.
    """
    loaded = library()
    return None if loaded is None else _prepared(loaded)


@cache
def _prepared(loaded: ctypes.CDLL) -> _Compute | None:
    if not loaded.cafcat_has_fast_crc64nvme():
        return None
    function = loaded.cafcat_crc64nvme
    function.restype = ctypes.c_uint64
    function.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint64]

    def compute(data: bytes | memoryview, crc: int) -> int:
        size = len(data)
        if isinstance(data, memoryview):
            return int(function(ctypes.addressof(ctypes.c_char.from_buffer(data)) if size else None, size, crc))
        return int(function(data, size, crc))

    return compute
