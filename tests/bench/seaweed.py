"""SeaweedFS, which packs small files itself: files of 4 KiB as objects, and in a chunk in one of its buckets."""

import asyncio
import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import obstore

import cafcat
from cafcat.repository import Repository
from tests.bench.bench import Bench
from tests.bench.bucket import in_flight, leads_to, object_store
from tests.bench.programs import provide_programs
from tests.bench.sample import Files
from tests.bench.servers import Served, seaweedfs
from tests.bench.table import NO_TARGET, Row, figure, pair_ratios
from tests.bench.timing import Way, in_turn, timed

if TYPE_CHECKING:
    from obstore.store import S3Store

__all__ = ["ROWS", "filled"]

READS = 5000
READ_REQUESTS = 64
_UPLOADS = 32
_CHUNKS = "chunks"


def read_many(bench: Bench) -> Iterator[Row]:
    """The time of read_many includes look-ups in the catalog, and all checksums."""
    provide_programs(bench, "weed")
    files = Files(bench, READS)
    home = bench.home("seaweed")
    with filled(bench, files) as served, leads_to(served.s3()):
        served.s3().client().create_bucket(Bucket=_CHUNKS)
        bench.ingest(home, files.data, "--store", f"s3://{_CHUNKS}")
        with cafcat.open(replace(home.settings, read_requests=READ_REQUESTS)) as repository:
            objects = object_store(served.s3(), files.data.name)
            ways: dict[str, Way] = {
                "objects": lambda: timed(lambda: asyncio.run(_get_objects(objects, files.keys()))),
                "read_many": lambda: timed(lambda: _read_many(repository, files.paths)),
            }
            measured = in_turn(ways, bench.rounds)
    rates = {name: [len(files.paths) / seconds for seconds in values] for name, values in measured.items()}
    peer = f"obstore: a GET of each object, {READ_REQUESTS} in flight"
    absolute = f"{figure(rates['read_many'], 'files/s')}; objects {figure(rates['objects'], 'files/s')}"
    work = f"read_many of {len(files.paths):,} of {files.data.files:,} files of 4 KiB, chunk in SeaweedFS, files/s"
    ratios = pair_ratios(rates["read_many"], rates["objects"])
    yield Row("seaweed.read_many", work, peer, NO_TARGET._replace(at_least=True), ratios, absolute)


ROWS = (read_many,)


@contextlib.contextmanager
def filled(bench: Bench, files: Files) -> Iterator[Served]:
    """Run SeaweedFS, with each file of a sample as an object."""
    with seaweedfs(bench.folder / "weed") as served:
        served.s3().client().create_bucket(Bucket=files.data.name)
        bench.say(f"writing {len(files.paths):,} objects to SeaweedFS")
        asyncio.run(_put_objects(object_store(served.s3(), files.data.name), files))
        yield served


async def _put_objects(store: "S3Store", files: Files) -> None:
    async def put(key: str) -> None:
        await obstore.put_async(store, key, (files.data.folder / key).read_bytes())

    await in_flight(put, files.keys(), _UPLOADS)


async def _get_objects(store: "S3Store", keys: Sequence[str]) -> None:
    async def get(key: str) -> int:
        return len(await (await obstore.get_async(store, key)).bytes_async())

    assert all(await in_flight(get, keys, READ_REQUESTS))


def _read_many(repository: Repository, paths: Sequence[str]) -> None:
    assert all(isinstance(content, bytes) for _, content in repository.read_many(paths))
