"""A folder of small files from a chunk in a bucket, against one GET of the same bytes; on a real S3 server."""

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import pytest

import cafcat
from cafcat.repository import Repository
from tests.bench.bench import Bench
from tests.bench.data import FOLDER_FILES, small_files
from tests.bench.finding import read_many
from tests.bench.table import Row, at_most, pair_ratios
from tests.bench.timing import Way, in_turn, seconds_of, timed
from tests.worlds.servers.s3_server import DEVELOPERS_OWN, S3Server, any_server, empty_bucket, new_bucket

if TYPE_CHECKING:
    from obstore.store import S3Store

Item = TypeVar("Item")
Result = TypeVar("Result")
FOLDERS = 4
_GETS = 10


def folder(bench: Bench) -> Iterator[Row]:
    """The time includes the look-ups; the peer has the range of bytes already."""
    data = small_files(bench.folder / "remote", FOLDERS * FOLDER_FILES)
    with _server(bench.folder / "s3") as server, leads_to(server):
        bucket = new_bucket(server.client())
        home = bench.home("bucket")
        bench.ingest(home, data, "--store", f"s3://{bucket}")
        with cafcat.open(home.settings) as repository:
            yield _row(repository, object_store(server, bucket), f"{data.name}/00002", bench.rounds * _GETS)
        empty_bucket(server.client(max_attempts=5), bucket)


ROWS = (folder,)


def object_store(server: S3Server, bucket: str) -> "S3Store":
    """Return obstore's client of a bucket."""
    from obstore.store import S3Store

    return S3Store(
        bucket,
        endpoint=server.endpoint_url,
        access_key_id=server.access_key,
        secret_access_key=server.secret_key,
        region=server.region,
        virtual_hosted_style_request=False,
        client_options={"allow_http": True},
    )


async def in_flight(
    function: Callable[[Item], Awaitable[Result]], items: Iterable[Item], requests: int
) -> list[Result]:
    """Return the result of a coroutine for each item. At most so many of them run at the same time."""
    free = asyncio.Semaphore(requests)

    async def limited(item: Item) -> Result:
        async with free:
            return await function(item)

    return await asyncio.gather(*map(limited, items))


def _row(repository: Repository, store: "S3Store", name: str, rounds: int) -> Row:
    import obstore

    places = list(repository.list(name))
    key, start, end = places[0].object_key, places[0].start_byte, places[-1].end_byte
    assert sum(place.size_bytes for place in places) == end - start, "its files are side by side"
    ways: dict[str, Way] = {
        "one GET": lambda: timed(lambda: obstore.get_range(store, key, start=start, end=end)),
        "read_many": partial(read_many, repository, [place.path for place in places]),
    }
    measured = in_turn(ways, rounds)
    ratios = pair_ratios(measured["read_many"], measured["one GET"])
    work = f"a folder of {len(places)} files from S3, {(end - start) / 1e6:.1f} MB, by read_many"
    absolute = seconds_of(measured, "read_many", "one GET")
    return Row("bucket", work, "one GET of the same bytes (obstore)", at_most(1.2), ratios, absolute)


@contextlib.contextmanager
def _server(place: Path) -> Iterator[S3Server]:
    """Yield an S3 server. Raises NotImplementedError if none is available."""
    place.mkdir()
    try:
        with any_server(place) as server:
            yield server
    except pytest.skip.Exception as missing:
        raise NotImplementedError(str(missing)) from missing


@contextlib.contextmanager
def leads_to(server: S3Server) -> Iterator[None]:
    """Point cafcat to the server meanwhile."""
    before = dict(os.environ)
    for name in DEVELOPERS_OWN:
        os.environ.pop(name, None)
    os.environ.update(server.environ())
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
