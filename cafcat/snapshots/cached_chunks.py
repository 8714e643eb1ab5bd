"""Keep chunks that are local files open between reads."""

from collections.abc import Mapping
from contextlib import suppress
from threading import Lock
from time import monotonic
from typing import Final

from cafcat.errors import CafcatError
from cafcat.model import Location
from cafcat.stores.base import FileStore, OpenObject, Store

__all__ = ["CachedChunk", "CachedChunks"]

_MOST_FILES: Final = 256
"""Largest number of open chunks that are cached."""
_TRUSTED_SECONDS: Final = 1.0
"""How long the open file of a chunk is read before its name is checked again, in seconds. All bytes are compared
with a checksum; this only decides how soon a removed chunk is noticed, and its disk space released."""
_IDLE_SECONDS: Final = 60.0
"""How long a chunk stays open after its name was due for a check, in seconds. The check of another chunk closes
it."""


class CachedChunk:
    """A chunk whose file is open. The file is closed with the last reference to this object, never during a read.

    Attributes:
        file: The open file.
        descriptor: Its file descriptor.
        until: When the name of the file has to be checked again, in seconds of the monotonic clock.
    """

    __slots__ = ("descriptor", "file", "until")

    def __init__(self, file: OpenObject) -> None:
        """Keep the file of a chunk that was just opened. Reads after more than a second check its name."""
        self.file = file
        self.descriptor = file.descriptor
        self.until = monotonic() + _TRUSTED_SECONDS


class CachedChunks(dict[int, CachedChunk]):
    """Up to 256 chunks whose files are open, by chunks.id. Threads may share this object; look-ups need no lock."""

    def __init__(self, stores: Mapping[str, Store]) -> None:
        """Create the mapping, which is empty. No file is opened yet.

        Args:
            stores: The stores by their URL.
        """
        super().__init__()
        self._stores = stores
        self._lock = Lock()

    def current(self, chunk: int, location: Location) -> CachedChunk | None:
        """Return an open chunk after checking that its name still leads to the same, unchanged file.

        If the check fails, or the chunk is not open, the chunk is opened and stays open. Chunks that were idle for
        a minute are closed.

        Args:
            chunk: The chunk's `chunks.id`.
            location: Location of any file in the chunk.

        Returns:
            The open chunk; None if the chunk is in a bucket, or cannot be opened. The caller then reads the chunk
            with a FileReader, which raises the reason.
        """
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
            store = self._stores[location.store]
            if isinstance(store, FileStore):
                return CachedChunk(store.open(location.object_key))
        return None

    def _make_room(self, now: float) -> None:
        for chunk in [chunk for chunk, opened in self.items() if opened.until + _IDLE_SECONDS < now]:
            del self[chunk]
        while len(self) >= _MOST_FILES:
            del self[min(self, key=lambda chunk: self[chunk].until)]
