"""Limits how often a client may try to log in."""

import time
from collections import deque
from threading import Lock
from typing import Final

__all__ = ["Attempts"]

_MOST: Final = 10
"""Most failed logins of one client in this time."""
_SECONDS: Final = 300
_CLIENTS: Final = 10_000
"""Most clients that are remembered."""


class Attempts:
    """Remembers failed logins by the address of the client. Threads may share it."""

    def __init__(self) -> None:
        self._failed: dict[str, deque[float]] = {}
        self._lock = Lock()

    def seconds_to_wait(self, client: str) -> int:
        """Return how long a client must wait before it may try again, in seconds; 0 if it may try now."""
        now = time.monotonic()
        with self._lock:
            times = self._failed.get(client)
            if times is None:
                return 0
            while times and times[0] <= now - _SECONDS:
                times.popleft()
            return 0 if len(times) < _MOST else int(times[0] + _SECONDS - now) + 1

    def add_failure(self, client: str) -> None:
        """Record a failed login."""
        with self._lock:
            if len(self._failed) >= _CLIENTS and client not in self._failed:
                self._failed.pop(next(iter(self._failed)))
            self._failed.setdefault(client, deque(maxlen=_MOST)).append(time.monotonic())
