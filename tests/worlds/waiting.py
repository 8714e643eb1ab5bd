"""Waiting for another process or thread."""

import time
from collections.abc import Callable

__all__ = ["PATIENCE_SECONDS", "wait_until"]

PATIENCE_SECONDS = 120
"""How long a test waits for a short event, in seconds: machines may be slow, and busy with other tests."""


def wait_until(happened: Callable[[], object]) -> None:
    """Call `happened` repeatedly until it returns a true value; fail after PATIENCE_SECONDS."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not happened():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)
