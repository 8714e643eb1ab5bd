"""Services that all workers of a test run share."""

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

__all__ = ["made_once", "run_folder", "shared_service"]


def run_folder(factory: pytest.TempPathFactory) -> Path:
    """Return a folder that all workers of this test run share, and no other run."""
    base = factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


@contextlib.contextmanager
def shared_service(folder: Path, start: Callable[[], str], stop: Callable[[str], None]) -> Iterator[str]:
    """Yield the address of a service. The first of its users starts the service, and the last one stops it.

    Each user holds a shared lock on the file `users`. The system releases the lock if the user is killed.

    Args:
        folder: where the users of this service meet; made if it is missing.
        start: starts the service and returns its address.
        stop: stops the service of this address.
    """
    folder.mkdir(exist_ok=True)
    address = folder / "address"
    with open(folder / "users", "ab") as users:
        with exclusive(folder / "lock"):
            fcntl.flock(users, fcntl.LOCK_SH)
            if not address.exists():
                address.write_text(start())
        try:
            yield address.read_text()
        finally:
            with exclusive(folder / "lock"), contextlib.suppress(BlockingIOError):
                fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
                stop(address.read_text())
                address.unlink()


def made_once(file: Path, make: Callable[[], str]) -> str:
    """Return the text of a file. The first caller of a test run makes the text."""
    with exclusive(file.with_name(f"{file.name}.lock")):
        if not file.exists():
            file.write_text(make())
        return file.read_text()


@contextlib.contextmanager
def exclusive(file: Path) -> Iterator[None]:
    """Hold an exclusive lock on a file, which is made if it is missing."""
    with open(file, "ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
