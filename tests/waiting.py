"""Waiting for what another process or thread does."""

import time
from collections.abc import Callable

__all__ = ["wait_until"]


def wait_until(happened: Callable[[], object]) -> None:
    """Asks again and again, for two minutes at most: machines may be slow."""
    deadline = time.monotonic() + 120
    while not happened():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)
