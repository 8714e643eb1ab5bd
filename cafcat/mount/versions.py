"""The versions of files whose attributes the operating system has in its cache."""

import time
from threading import Lock
from typing import Final

from cafcat.model import Location

__all__ = ["CachedVersions"]

_MOST_PATHS: Final = 20_000
"""Largest number of paths in one generation. There are two generations."""


class CachedVersions:
    """Remembers the version of each file that the operating system has seen last. Threads may share this object.

    The operating system caches the size of a file for a short time, and cuts what is read at this size. So a new
    version may be opened only if the operating system knows its size. It need not be the version whose attributes
    were sent last: two answers can overtake each other when a version is replaced. So a new version has to be sent
    twice, and the second time in answer to a question that was asked later.
    """

    def __init__(self, cached_seconds: float) -> None:
        """Create the object.

        Args:
            cached_seconds: After this time, the operating system certainly has no attributes any more, in seconds.
        """
        self._cached_seconds = cached_seconds
        self._lock = Lock()
        self._new: dict[str, tuple[Location, bool]] = {}
        self._old: dict[str, tuple[Location, bool]] = {}
        self._old_since = self._new_since = float("-inf")

    def add(self, location: Location) -> None:
        """Remember that the attributes of a version are sent to the operating system."""
        path = location.path
        known = self._new.get(path) or self._old.get(path)
        is_certain = known is None or known[0] == location
        with self._lock:
            self._new[path] = (location, is_certain)
            if len(self._new) > _MOST_PATHS:
                self._old, self._new = self._new, {}
                self._old_since, self._new_since = self._new_since, time.monotonic()

    def allows(self, location: Location) -> bool:
        """Return True if this version may be opened. If not, the operating system has to look it up once more."""
        path = location.path
        known = self._new.get(path) or self._old.get(path)
        if known is None:
            return time.monotonic() - self._old_since > self._cached_seconds
        if known == (location, True):
            return True
        with self._lock:
            self._new[path] = (location, False)
        return False
