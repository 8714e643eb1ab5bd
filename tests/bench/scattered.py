"""200 scattered files of 20 KB from one large chunk in a bucket whose server delays each request by 30 ms."""

import asyncio
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import cafcat
from cafcat.model import Location
from cafcat.repository import Repository
from tests.bench.bench import Bench, Home
from tests.bench.bucket import in_flight, leads_to, object_store
from tests.bench.data import DataSet
from tests.bench.nginx import delayed, nginx_server
from tests.bench.table import Row, Target, at_least, figure
from tests.bench.timing import Way, in_turn, timed

if TYPE_CHECKING:
    from obstore.store import S3Store

__all__ = ["BUCKET", "DELAY_SECONDS", "REQUESTS", "ROWS", "chunk_in_bucket", "scattered_files"]

FILES = 200
FILE_BYTES = 20_000
BETWEEN_BYTES = 1_300_000
"""Size of the files between them: larger than the gap (1 MiB) over which near files are read together."""
DELAY_SECONDS = 0.030
REQUESTS = 64
REQUESTS_BEFORE = 8
"""Number of requests in flight before there was a setting for it."""
BUCKET = "chunks"


def scattered(bench: Bench) -> Iterator[Row]:
    """The time includes look-ups in the catalog and all checksums; the peer has a list of ranges."""
    home = bench.home("scattered")
    with (
        nginx_server(bench.folder / "nginx", home.folder) as server,
        delayed(server, DELAY_SECONDS) as delaying,
        leads_to(delaying),
    ):
        data = scattered_files(bench.folder / "scattered", FILES)
        paths = chunk_in_bucket(bench, home, data)
        data.remove()
        store = object_store(delaying, BUCKET)
        with (
            cafcat.open(replace(home.settings, read_requests=REQUESTS)) as repository,
            cafcat.open(replace(home.settings, read_requests=REQUESTS_BEFORE)) as before,
        ):
            locations = [repository.locate(path) for path in paths]
            ways: dict[str, Way] = {
                "obstore": lambda: timed(lambda: _by_hand(store, locations)),
                f"{REQUESTS_BEFORE} requests": lambda: timed(lambda: _read_many(before, paths)),
                "read_many": lambda: timed(lambda: _read_many(repository, paths)),
            }
            measured = in_turn(ways, bench.rounds)
        yield _row(measured, "obstore", f"obstore, {REQUESTS} in flight", at_least(0.8))
        yield _row(measured, f"{REQUESTS_BEFORE} requests", f"read_requests = {REQUESTS_BEFORE}", at_least(4))


ROWS = (scattered,)


def chunk_in_bucket(bench: Bench, home: Home, data: DataSet) -> list[str]:
    """Pack files into one chunk, in a folder that nginx serves as a bucket.

    Returns:
        The paths of the scattered files in the catalog.
    """
    bench.ingest(home, data, "-j", "1")
    assert len(home.chunks()) == 1
    home.connection.execute(f"UPDATE stores SET url = 's3://{BUCKET}', home_path = NULL".encode())
    return [f"{data.name}/{path.relative_to(data.folder)}" for path in data.paths() if path.suffix == ".dat"]


def scattered_files(folder: Path, files: int) -> DataSet:
    """Write files of 20 KB. A large file follows each of them."""
    source = random.Random(20260103)
    place = folder / "00000"
    place.mkdir(parents=True)
    for number in range(files):
        (place / f"{number:05}-a.dat").write_bytes(source.randbytes(FILE_BYTES))
        (place / f"{number:05}-b.between").write_bytes(source.randbytes(BETWEEN_BYTES))
    return DataSet(folder, 2 * files, files * (FILE_BYTES + BETWEEN_BYTES))


def _read_many(repository: Repository, paths: Sequence[str]) -> None:
    sizes = [len(content) for _, content in repository.read_many(paths) if isinstance(content, bytes)]
    assert sizes == [FILE_BYTES] * FILES


def _by_hand(store: "S3Store", locations: Sequence[Location]) -> None:
    sizes = asyncio.run(_get_all(store, locations))
    assert sizes == [FILE_BYTES] * FILES


async def _get_all(store: "S3Store", locations: Sequence[Location]) -> list[int]:
    import obstore

    async def get(location: Location) -> int:
        key, start, end = location.object_key, location.start_byte, location.end_byte
        return len(await obstore.get_range_async(store, key, start=start, end=end))

    return await in_flight(get, locations, REQUESTS)


def _row(measured: dict[str, list[float]], name: str, peer: str, target: Target) -> Row:
    """Return a row with ratios of files per second, where more is better."""
    ours, theirs = measured["read_many"], measured[name]
    ratios = [other / mine for mine, other in zip(ours, theirs, strict=True)]
    rate = partial(map, lambda seconds: FILES / seconds)
    absolute = f"{figure(list(rate(ours)))} files/s; {peer} {figure(list(rate(theirs)))} files/s"
    work = f"{FILES} scattered files of {FILE_BYTES // 1000} KB behind {DELAY_SECONDS * 1000:.0f} ms, read_many"
    return Row("scattered", work, peer, target, ratios, absolute)
