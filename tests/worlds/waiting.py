"""Waiting for what another process or thread does."""

import time
from collections.abc import Callable

__all__ = ["PATIENCE_SECONDS", "wait_until"]

PATIENCE_SECONDS = 120
"""How long a test waits for what takes a moment: machines may be slow, and busy with other tests."""


def wait_until(happened: Callable[[], object]) -> None:
    """Asks again and again."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not happened():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)
