"""Requests that are in flight for a while."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from cafcat.support.traffic import Traffic

__all__ = ["in_flight"]


@contextmanager
def in_flight(traffic: Traffic, url: str, size_bytes: int = 0) -> Iterator[None]:
    """Send a request in another thread, which ends with the `with` block."""
    begun, ended = threading.Event(), threading.Event()

    def send() -> None:
        with traffic.request(url, sent=size_bytes):
            begun.set()
            ended.wait(60)

    thread = threading.Thread(target=send)
    thread.start()
    assert begun.wait(60)
    try:
        yield
    finally:
        ended.set()
        thread.join(60)
