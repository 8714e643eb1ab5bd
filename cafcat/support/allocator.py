"""Sets the memory allocator of the C library."""

import ctypes
import sys
from contextlib import suppress
from typing import Final

__all__ = ["share_arenas"]

_ARENA_MAX: Final = -8
"""M_ARENA_MAX of glibc's malloc.h."""
_ARENAS: Final = 2


def share_arenas() -> None:
    """Let all threads of this process allocate from two areas of memory. Call this before threads are started.

    By default, glibc gives up to eight areas for each processor to the threads. Each area keeps the most that its
    threads ever needed, so that a process with many threads grows for a long time. Python's threads take turns, and
    gain nothing from areas of their own. Other C libraries are left as they are.
    """
    if sys.platform == "linux":
        with suppress(AttributeError, OSError):
            ctypes.CDLL(None).mallopt(_ARENA_MAX, _ARENAS)
