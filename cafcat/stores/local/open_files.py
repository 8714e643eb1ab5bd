"""Files that stay open between reads, as long as they are what their names mean.

Objects are immutable, but folders change: an object is pruned, put back from a backup, repaired, or damaged. So the
name is looked at before every read, and a descriptor serves only if the file there is the one that was opened, and
nothing was done to it since: whatever a read would find that opens the file, this finds, too.
"""

import os
import time
from collections.abc import Callable
from threading import Lock
from typing import Final

from cafcat.stores.local.files import LocalFile

__all__ = ["CachedFiles"]

_MOST_FILES: Final = 64
_KEPT_SECONDS: Final = 60.0
"""A descriptor holds the space of an object that was deleted. After so long without a read, the next read of
another object closes it."""


class _CachedFile:
    """An open file, and when it was last read, in seconds of the monotonic clock."""

    __slots__ = ("_file", "used")

    def __init__(self, file: LocalFile) -> None:
        self._file = file
        self.used = time.monotonic()

    def read(self, start_byte: int, end_byte: int) -> bytes | None:
        """The bytes; None if the name means another file by now, if anything was done to this one, or if they
        cannot be had for any reason."""
        file = self._file
        if not file.is_current() or end_byte > file.size_bytes:
            return None
        try:
            data = os.pread(file.descriptor, end_byte - start_byte, start_byte)
        except (OSError, ValueError, OverflowError):
            return None
        return data if len(data) == end_byte - start_byte else None


class CachedFiles:
    """Descriptors of the files read last. Safe to share by threads: a file that is let go is closed when the last
    thread that reads it has done so."""

    def __init__(self, open_file: Callable[[str], LocalFile]) -> None:
        """`open_file` opens the file of a key."""
        self._open_file = open_file
        self._files: dict[str, _CachedFile] = {}
        self._lock = Lock()
        self._looked = 0.0

    def read(self, key: str, start_byte: int, end_byte: int) -> bytes:
        """As `LocalFile.read_at`, and raises as opening it."""
        kept = self._files.get(key)
        if kept is not None and (data := kept.read(start_byte, end_byte)) is not None:
            kept.used = time.monotonic()
            if kept.used > self._looked + _KEPT_SECONDS:
                self._drop_unused(kept.used)
            return data
        self.drop(key)
        file = self._open_file(key)  # here, what is wrong is said
        data = file.read_at(start_byte, end_byte)
        self._keep(key, _CachedFile(file))
        return data

    def _keep(self, key: str, kept: _CachedFile) -> None:
        self._drop_unused(kept.used)
        with self._lock:
            while len(self._files) >= _MOST_FILES:
                del self._files[min(self._files, key=lambda name: self._files[name].used)]
            self._files[key] = kept

    def _drop_unused(self, now: float) -> None:
        self._looked = now
        with self._lock:
            for key in [key for key, kept in self._files.items() if kept.used + _KEPT_SECONDS < now]:
                del self._files[key]

    def drop(self, key: str) -> None:
        """Lets go of one file, if it is kept."""
        with self._lock:
            self._files.pop(key, None)

    def close(self) -> None:
        """Lets go of all. Idempotent; what is read next is opened anew."""
        with self._lock:
            self._files.clear()
