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

from cafcat.errors import CafcatError
from cafcat.stores.local_files import LocalFile

__all__ = ["KeptFiles"]

_MOST_FILES: Final = 64
_KEPT_SECONDS: Final = 60.0
"""A descriptor holds the space of an object that was deleted. After so long without a read, the next read of
another object closes it."""


class _KeptFile:
    """An open file, and when it was last read, in seconds of the monotonic clock."""

    __slots__ = ("file", "used")

    def __init__(self, file: LocalFile) -> None:
        self.file = file
        self.used = time.monotonic()


class KeptFiles:
    """Descriptors of the files read last. Safe to share by threads: a file that is let go is closed when the last
    thread that reads it has done so."""

    def __init__(self, open_file: Callable[[str], LocalFile]) -> None:
        """`open_file` opens the file of a key."""
        self._open_file = open_file
        self._files: dict[str, _KeptFile] = {}
        self._lock = Lock()
        self._looked = 0.0

    def read(self, key: str, start_byte: int, end_byte: int) -> bytes:
        """As `LocalFile.read_at`, and raises as opening it."""
        kept = self._files.get(key)
        if kept is not None and self._is_what_it_was(kept):
            try:
                return kept.file.read_at(start_byte, end_byte)
            except CafcatError:
                pass  # a file server may have forgotten it: it is opened anew, and what is wrong said then
        self.drop(key)
        file = self._open_file(key)
        data = file.read_at(start_byte, end_byte)
        self._keep(key, _KeptFile(file))
        return data

    def _is_what_it_was(self, kept: _KeptFile) -> bool:
        """The time of change is that of content, names, owner and permissions."""
        try:
            found = os.stat(kept.file.name)
        except OSError:
            return False
        kept.used = time.monotonic()
        if kept.used > self._looked + _KEPT_SECONDS:
            self._drop_unused(kept.used)
        return kept.file.identity == (found.st_dev, found.st_ino, found.st_ctime_ns)

    def _keep(self, key: str, kept: _KeptFile) -> None:
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
