"""Chunks that are files of this machine, kept open between reads."""

from collections.abc import Callable
from contextlib import suppress
from threading import Lock
from time import monotonic
from typing import Final

from cafcat.errors import CafcatError
from cafcat.model import Location
from cafcat.stores.base import FileStore, OpenObject, Store

__all__ = ["CachedChunk", "CachedChunks"]

_MOST_FILES: Final = 256
_TRUSTED_SECONDS: Final = 1.0
"""So long a descriptor is read without a look at its name. What it gives is checked in any case; this only decides
how soon it is noticed that a chunk is gone, and its space let go."""
_KEPT_SECONDS: Final = 60.0
"""What was not read for so long is closed when another is looked at."""


class CachedChunk:
    """An open object, and until when nobody has to look at its name, in seconds of the monotonic clock. Closed
    when nobody has it any more, not under the hands of who reads it."""

    __slots__ = ("descriptor", "file", "until")

    def __init__(self, file: OpenObject) -> None:
        self.file = file
        self.descriptor = file.descriptor
        self.until = monotonic() + _TRUSTED_SECONDS


class CachedChunks(dict[int, CachedChunk]):
    """By chunks.id. Safe to share by threads; look-ups take no lock."""

    def __init__(self, store_of: Callable[[str], Store]) -> None:
        super().__init__()
        self._store_of = store_of
        self._lock = Lock()

    def current(self, chunk: int, location: Location) -> CachedChunk | None:
        """Looks at the name again, or opens the chunk. None if it cannot be opened here: by a read as any other it
        will be said why, or it is in a bucket."""
        now = monotonic()
        opened = self.get(chunk)
        if opened is not None and opened.file.is_current():
            opened.until = now + _TRUSTED_SECONDS
        else:
            opened = self._open(location)
        with self._lock:
            self.pop(chunk, None)
            self._make_room(now)
            if opened is not None:
                self[chunk] = opened
        return opened

    def _open(self, location: Location) -> CachedChunk | None:
        with suppress(CafcatError):
            store = self._store_of(location.store)
            if isinstance(store, FileStore):
                return CachedChunk(store.open(location.object_key))
        return None

    def _make_room(self, now: float) -> None:
        for chunk in [chunk for chunk, opened in self.items() if opened.until + _KEPT_SECONDS < now]:
            del self[chunk]
        while len(self) >= _MOST_FILES:
            del self[min(self, key=lambda chunk: self[chunk].until)]
