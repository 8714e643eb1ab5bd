"""Files that stay open between reads, as long as their names lead to them.

Objects are immutable, but folders change: an object is pruned, restored from a backup, repaired, or damaged. So the
name is checked before every read. An open file is used only if its name still leads to it, and the file has not
changed since it was opened. A read therefore has the same result as one that opens the file.
"""

import os
import time
from threading import Lock
from typing import TYPE_CHECKING, Final

from cafcat.stores.local.files import LocalFile

if TYPE_CHECKING:
    from cafcat.stores.local.store import LocalStore

__all__ = ["CachedFiles"]

_MOST_FILES: Final = 64
"""Most files that are open at the same time."""
_UNUSED_SECONDS: Final = 60.0
"""How long an unused file stays open, in seconds: it holds the disk space of a deleted object. Later reads of
other files close it."""


class _CachedFile:
    """An open file, and when it was last read, in seconds of the monotonic clock."""

    __slots__ = ("_file", "used")

    def __init__(self, file: LocalFile) -> None:
        self._file = file
        self.used = time.monotonic()

    def read(self, start_byte: int, end_byte: int) -> bytes | None:
        """Return the bytes. None if the file was replaced or changed, or if reading fails for any reason."""
        file = self._file
        if not file.is_current() or end_byte > file.size_bytes:
            return None
        try:
            data = os.pread(file.descriptor, end_byte - start_byte, start_byte)
        except (OSError, ValueError, OverflowError):
            return None
        return data if len(data) == end_byte - start_byte else None


class CachedFiles:
    """Descriptors of the files that were read last. Safe to share between threads.

    A file that is dropped from the cache is closed when the last thread has finished reading it.
    """

    def __init__(self, store: "LocalStore") -> None:
        """Begin with no open file. `store` opens the files."""
        self._store = store
        self._files: dict[str, _CachedFile] = {}
        self._lock = Lock()
        self._cleaned_at = 0.0

    def read(self, key: str, start_byte: int, end_byte: int) -> bytes:
        """Return the bytes `[start_byte, end_byte)` of an object. Raises as `LocalStore.open` and `read_at`."""
        cached = self._files.get(key)
        if cached is not None and (data := cached.read(start_byte, end_byte)) is not None:
            cached.used = time.monotonic()
            if cached.used > self._cleaned_at + _UNUSED_SECONDS:
                self._drop_unused(cached.used)
            return data
        self.drop(key)
        file = self._store.open(key)  # raises the error that the cached file hides
        data = file.read_at(start_byte, end_byte)
        self._cache(key, _CachedFile(file))
        return data

    def _cache(self, key: str, cached: _CachedFile) -> None:
        self._drop_unused(cached.used)
        with self._lock:
            while len(self._files) >= _MOST_FILES:
                del self._files[min(self._files, key=lambda name: self._files[name].used)]
            self._files[key] = cached

    def _drop_unused(self, now: float) -> None:
        self._cleaned_at = now
        with self._lock:
            for key in [key for key, cached in self._files.items() if cached.used + _UNUSED_SECONDS < now]:
                del self._files[key]

    def drop(self, key: str) -> None:
        """Drop one file from the cache. A file that is not cached is ignored."""
        with self._lock:
            self._files.pop(key, None)

    def close(self) -> None:
        """Drop all files. Idempotent. Later reads open files again."""
        with self._lock:
            self._files.clear()
