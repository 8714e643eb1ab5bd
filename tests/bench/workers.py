"""Objects of 20 KB in a bucket behind 30 ms, packed by one, two and four workers of an executor, and by s5cmd.

All programs and servers share the processors of one machine, which one worker nearly fills. So the workers are also
compared with a narrow link each: then the links are the limit, as they are for hosts with processors of their own.
"""

import asyncio
import itertools
import random
import shutil
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

import obstore

from tests.bench.bench import Bench
from tests.bench.bucket import in_flight, leads_to, object_store
from tests.bench.data import scaled
from tests.bench.nginx import delayed
from tests.bench.programs import find, provide_programs
from tests.bench.scattered import DELAY_SECONDS, FILE_BYTES
from tests.bench.servers import seaweedfs
from tests.bench.table import NO_TARGET, Row, Target, at_least, figure, pair_ratios
from tests.bench.timing import Way, in_turn, run, timed
from tests.worlds.servers.s3_server import S3Server

if TYPE_CHECKING:
    from obstore.store import S3Store

__all__ = ["ROWS"]

OBJECTS = 20_000
FOLDER_OBJECTS = 500
COUNTS = (1, 2, 4)
LINK = "4MB/s"
_BUCKET = "objects"
_UPLOADS = 32
_S5CMD_REQUESTS = 256
ALONE = "cafcat ingest -j 1"


def workers(bench: Bench) -> Iterator[Row]:
    """The chunks are in a local folder; s5cmd copies the objects to a local folder. Processes are included."""
    provide_programs(bench, "weed", "s5cmd")
    objects = scaled(OBJECTS, bench.scale)
    with seaweedfs(bench.folder / "weed") as served:
        served.s3().client().create_bucket(Bucket=_BUCKET)
        bench.say(f"writing {objects:,} objects to SeaweedFS")
        asyncio.run(_fill(object_store(served.s3(), _BUCKET), objects))
        with delayed(served.s3(), DELAY_SECONDS) as server, leads_to(server):
            ways: dict[str, Way] = {ALONE: partial(_ingest, bench, objects)}
            for count in COUNTS:
                ways[_name(count)] = partial(_ingest, bench, objects, _name(count))
                ways[_name(count, LINK)] = partial(_ingest, bench, objects, _name(count), "--bandwidth", LINK)
            ways["s5cmd"] = partial(_s5cmd, bench, server, objects)
            measured = in_turn(ways, bench.rounds)
    rates = {name: [objects / seconds for seconds in values] for name, values in measured.items()}
    work = f"ingest of {objects:,} objects of 20 KB, 30 ms a request, objects/s"
    for count, link in itertools.product(COUNTS, ("", LINK)):
        many = f"{work}, {count} {'worker' if count == 1 else 'workers'}{f' with {link} each' if link else ''}"
        yield _row(
            f"workers.{count}{'.link' * bool(link)}", many, rates, (_name(count, link), _name(1, link)), NO_TARGET
        )
    yield _row("workers.one", f"{work}, one worker of a cluster", rates, (_name(1), "s5cmd"), at_least(1))
    yield _row("workers.alone", f"{work}, without a cluster", rates, (ALONE, "s5cmd"), at_least(1))


ROWS = (workers,)


def _name(count: int, link: str = "") -> str:
    return f"local://{count} {link}".rstrip()


def _row(name: str, work: str, rates: dict[str, list[float]], pair: tuple[str, str], target: Target) -> Row:
    ours, theirs = (rates[way] for way in pair)
    absolute = f"{figure(ours, '/s')}; {pair[1]} {figure(theirs, '/s')}"
    return Row(name, work, pair[1], target._replace(at_least=True), pair_ratios(ours, theirs), absolute)


def _ingest(bench: Bench, objects: int, cluster: str | None = None, *further: str) -> float:
    home = bench.home("workers")
    home.empty()
    how = ["-j", "1"] if cluster is None else ["--cluster", cluster, *further]
    seconds = timed(lambda: home.cafcat("ingest", "-q", f"s3://{_BUCKET}", *how))
    assert home.files() == objects
    return seconds


def _s5cmd(bench: Bench, server: S3Server, objects: int) -> float:
    target = bench.folder / "copied"
    command = [find("s5cmd"), "--endpoint-url", server.endpoint_url, "--numworkers", str(_S5CMD_REQUESTS)]
    seconds = timed(lambda: run(*command, "cp", f"s3://{_BUCKET}/*", f"{target}/"))
    assert sum(path.is_file() for path in target.rglob("*")) == objects
    shutil.rmtree(target)
    return seconds


async def _fill(store: "S3Store", objects: int) -> None:
    content = random.Random(20260104).randbytes(FILE_BYTES)

    async def put(number: int) -> None:
        key = f"{number // FOLDER_OBJECTS:04}/{number:07}.dat"
        await obstore.put_async(store, key, content)

    numbers: Sequence[int] = range(objects)
    await in_flight(put, numbers, _UPLOADS)
