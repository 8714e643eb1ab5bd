"""The server and the worlds of the tests of this folder."""

from collections.abc import Iterator

import pytest

from tests.crash.campaign import world
from tests.crash.world import World
from tests.worlds.memory import in_memory
from tests.worlds.servers.services import Databases


@pytest.fixture(scope="session", params=["folder", "s3"])
def crash_world(request: pytest.FixtureRequest, quick_databases: Databases) -> Iterator[World]:
    with in_memory() as folder, world(quick_databases, request.param, folder) as made:
        yield made
