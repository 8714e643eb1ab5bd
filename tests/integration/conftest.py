"""A Postgres server whose files are in memory."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.world import fast_databases, in_memory
from tests.services import Databases


@pytest.fixture
def memory() -> Iterator[Path]:
    """A folder, in memory if that can be: only processes are killed there, never the machine."""
    with in_memory() as folder:
        yield folder


@pytest.fixture(scope="module")
def quick_databases() -> Iterator[Databases]:
    with fast_databases() as databases:
        yield databases
