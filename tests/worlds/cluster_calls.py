"""Functions that tests run on the workers of clusters. The modules of tests must be importable there."""

import os
import signal
import time

from cafcat.errors import NotFound


def process_id(_: object = None) -> int:
    return os.getpid()


def add(first: int, *, second: int = 0) -> int:
    return first + second


def wait(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def fail(name: str) -> None:
    raise NotFound(f"no {name}", path=name, hint="look elsewhere")
