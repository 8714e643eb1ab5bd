"""Stores that keep the failed checks of their server in memory, as a catalog keeps them in a table."""

from collections.abc import Callable

from cafcat.remote.access import S3Access
from cafcat.stores.kind import StoreContext
from cafcat.stores.s3.store import S3Store

__all__ = ["MEMORY", "Remembered", "open_remembering"]

MEMORY = 16_000_000
"""Bytes of memory for uploads: parts of 5 MiB, two of them in flight."""


class Remembered:
    """Failed checks of servers, in memory."""

    def __init__(self) -> None:
        self.checks: dict[str, list[str]] = {}

    def failed(self, store_url: str) -> list[str]:
        return self.checks.get(store_url, [])

    def remember(self, store_url: str, check: str) -> bool:
        found = self.checks.setdefault(store_url, [])
        if check in found:
            return False
        found.append(check)
        return True


def open_remembering(
    url: str, verdicts: Remembered, warn: Callable[[str], object] = lambda _message: None
) -> S3Store:
    """Open a store as a new process does."""
    return S3Store(url, S3Access(), MEMORY, StoreContext(verdicts=verdicts, warn=warn))
