"""Places of stores, repositories over them, and a folder in memory."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import cafcat
from tests.worlds.catalog_world import Opener
from tests.worlds.memory import in_memory
from tests.worlds.places import FOLDER_OR_SLOW_BUCKET, Bucket, Folder, Place
from tests.worlds.servers.s3_server import S3Server
from tests.worlds.servers.services import Databases

if TYPE_CHECKING:
    from tests.worlds.servers.s3_gateway import Gateway


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path / "store")


@pytest.fixture
def bucket(s3_server: S3Server, s3_bucket: str, s3_environment: None) -> Iterator[Bucket]:
    bucket = Bucket(s3_server, s3_bucket)
    yield bucket
    bucket.client.close()


@pytest.fixture(params=FOLDER_OR_SLOW_BUCKET)
def place(request: pytest.FixtureRequest) -> Place:
    found: Place = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def open_at(database_url: str, tmp_path: Path) -> Iterator[Opener]:
    """A function that opens repositories of one catalog, each with a connection of its own."""
    with contextlib.ExitStack() as opened:

        def open_at(place: Place) -> cafcat.Repository:
            repository = cafcat.open(database_url=database_url, home=tmp_path / "home", store=place.url)
            return opened.enter_context(repository)

        yield open_at


@pytest.fixture
def repository(open_at: Opener, place: Place) -> cafcat.Repository:
    return open_at(place)


@pytest.fixture
def local(open_at: Opener, folder: Folder) -> cafcat.Repository:
    return open_at(folder)


@pytest.fixture
def memory() -> Iterator[Path]:
    """A folder, in memory if possible: only processes are killed there, never the machine."""
    with in_memory() as folder:
        yield folder


@pytest.fixture(scope="module")
def shared_repository(
    tmp_path_factory: pytest.TempPathFactory, databases: Databases
) -> Iterator[cafcat.Repository]:
    """A repository in a folder, which all tests of a module use."""
    folder = tmp_path_factory.mktemp("shared")
    with (
        databases.fresh(databases.template()) as url,
        cafcat.open(database_url=url, home=folder / "home", store=str(folder / "store")) as repository,
    ):
        yield repository


@pytest.fixture
def client(server: "Gateway") -> Iterator[Any]:
    """A client of boto3 for the S3 server that a test file has as its fixture `server`."""
    client = server.client()
    yield client
    client.close()
