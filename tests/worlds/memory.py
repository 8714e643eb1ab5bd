"""Temporary files: in memory, where the machine has room for them; on disk, if they are large.

Tests kill processes, but never the machine. Files in memory serve them as well as files on disk, and fsync, which
cafcat calls for every chunk, is free there. Tests that compare disks with power cuts are in tests/crash/.
"""

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

__all__ = ["DISK_VARIABLE", "disk_folder", "disk_path", "in_memory", "memory_folder", "use_memory"]

MEMORY = Path("/dev/shm")
DISK_VARIABLE = "CAFCAT_TEST_DISK"
"""The environment variable with the folder for large files. The workers of a test run inherit it."""
LEAST_BYTES = 4 << 30
"""Free space, in bytes, below which temporary files stay on disk. A run of all tests uses about 1 GB at once."""


def memory_folder() -> str | None:
    """Return a folder whose files are in memory; None if there is none with enough free space."""
    if not os.access(MEMORY, os.W_OK):
        return None
    space = os.statvfs(MEMORY)
    return str(MEMORY) if space.f_bavail * space.f_frsize > LEAST_BYTES else None


def use_memory() -> None:
    """Keep the temporary files of this process and its children in memory, unless TMPDIR is set."""
    os.environ.setdefault(DISK_VARIABLE, tempfile.gettempdir())
    folder = memory_folder()
    if folder is not None and "TMPDIR" not in os.environ:
        os.environ["TMPDIR"] = folder
        tempfile.tempdir = folder  # pytest has used the old value already


def disk_folder() -> str:
    """Return the folder for files that are too large for memory: TMPDIR as it was before `use_memory`."""
    return os.environ.get(DISK_VARIABLE) or tempfile.gettempdir()


@contextlib.contextmanager
def in_memory(prefix: str = "cafcat-tests-") -> Iterator[Path]:
    """Yield a new folder, in memory if possible. Temporary files are made beside it meanwhile."""
    usual = tempfile.tempdir
    tempfile.tempdir = memory_folder() or usual
    try:
        with tempfile.TemporaryDirectory(prefix=prefix) as folder:
            yield Path(folder)
    finally:
        tempfile.tempdir = usual


@pytest.fixture
def disk_path() -> Iterator[Path]:
    """A new folder on disk, for tests with gigabytes of files."""
    with tempfile.TemporaryDirectory(prefix="cafcat-tests-", dir=disk_folder()) as folder:
        yield Path(folder)
