"""Reading in asyncio programs, in forked and spawned processes, and through pickled repositories."""

import asyncio
import gc
import multiprocessing
import os
import pickle
import random
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

import cafcat
from cafcat.errors import CatalogUnavailable, Corrupt, InvalidInput, NotFound
from tests.worlds.servers.s3_proxy import S3Proxy
from tests.worlds.statements import statements

CONTENT = random.Random(4)
FILES = {f"a/{number:04}": CONTENT.randbytes(number) for number in range(500)}


def fill(repository: cafcat.Repository) -> None:
    with repository.writer() as writer:
        for path, content in FILES.items():
            writer.add(path, content)


@pytest.fixture
def repository(database_url: str, tmp_path: Path) -> Iterator[cafcat.Repository]:
    store = str(tmp_path / "store")
    with cafcat.open(database_url=database_url, home=tmp_path / "home", store=store) as repository:
        fill(repository)
        yield repository


@pytest.fixture
def remote(
    database_url: str, tmp_path: Path, s3_bucket: str, s3_proxy_environment: None
) -> Iterator[cafcat.Repository]:
    """A repository whose chunk is in a bucket behind the proxy."""
    store = f"s3://{s3_bucket}/chunks"
    with cafcat.open(database_url=database_url, home=tmp_path / "home", store=store) as repository:
        fill(repository)
        yield repository


def test_calls_that_are_made_together_share_a_query(repository: cafcat.Repository, tmp_path: Path) -> None:
    async def read_all() -> list[bytes]:
        return await asyncio.gather(*map(repository.aread, FILES))

    with statements(repository, tmp_path / "trace") as executed:
        assert asyncio.run(read_all()) == list(FILES.values())
    assert len(executed) == 1


def test_calls_that_are_made_together_share_requests(remote: cafcat.Repository, s3_proxy: S3Proxy) -> None:
    async def read_all() -> list[bytes]:
        return await asyncio.gather(*map(remote.aread, FILES))

    before = s3_proxy.count("GetObject")
    assert asyncio.run(read_all()) == list(FILES.values())
    assert s3_proxy.count("GetObject") - before == 1


def test_each_call_has_its_own_range_and_error(repository: cafcat.Repository) -> None:
    location = repository.locate("a/0300")
    chunk = Path(repository.object_of(location))
    data = bytearray(chunk.read_bytes())
    data[location.start_byte] ^= 1
    chunk.write_bytes(data)

    async def read_some() -> list[bytes | BaseException]:
        return await asyncio.gather(
            repository.aread("a/0100", 10, 20),
            repository.aread("a/0100", -5),
            repository.aread("a/0100"),
            repository.aread("a/0100", 101),
            repository.aread("a/nothing"),
            repository.aread("a\0b"),
            repository.aread("a/0300"),
            repository.aread("a/0301"),
            return_exceptions=True,
        )

    *good, beyond, missing, nul, damaged, last = asyncio.run(read_some())
    whole = FILES["a/0100"]
    assert good == [whole[10:20], whole[-5:], whole]
    assert last == FILES["a/0301"]
    assert [type(error) for error in (beyond, missing, nul, damaged)] == [
        InvalidInput,
        NotFound,
        InvalidInput,
        Corrupt,
    ]


def test_a_cancelled_call_does_not_disturb_the_others(repository: cafcat.Repository) -> None:
    async def cancel_one() -> bytes:
        tasks = [asyncio.ensure_future(repository.aread(path)) for path in ("a/0001", "a/0002")]
        await asyncio.sleep(0)
        tasks[0].cancel()
        return await tasks[1]

    assert asyncio.run(cancel_one()) == FILES["a/0002"]


def test_a_database_that_is_gone_is_an_error_of_each_call(tmp_path: Path) -> None:
    async def read_two() -> list[bytes | BaseException]:
        return await asyncio.gather(repository.aread("a"), repository.aread("b"), return_exceptions=True)

    with cafcat.open(database_url="postgresql://127.0.0.1:1/none", home=tmp_path) as repository:
        assert [type(error) for error in asyncio.run(read_two())] == [CatalogUnavailable] * 2


def test_many_files_come_as_they_are_read(repository: cafcat.Repository) -> None:
    async def read_all() -> dict[str, object]:
        return {path: result async for path, result in repository.aread_many([*FILES, "a/nothing"])}

    found = asyncio.run(read_all())
    assert isinstance(found.pop("a/nothing"), NotFound)
    assert found == FILES


def test_the_event_loop_runs_on_and_a_reader_can_leave_early(repository: cafcat.Repository) -> None:
    async def leave() -> tuple[str, int]:
        turns = 0

        async def turn() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        turning = asyncio.ensure_future(turn())
        outcomes = repository.aread_many(FILES)
        path, _ = await anext(outcomes)
        await outcomes.aclose()
        turning.cancel()
        return path, turns

    path, turns = asyncio.run(leave())
    assert path in FILES
    assert turns > 1


def test_two_event_loops_one_after_the_other(repository: cafcat.Repository) -> None:
    for _ in range(2):
        assert asyncio.run(repository.aread("a/0005")) == FILES["a/0005"]
    repository.close()
    assert asyncio.run(repository.aread("a/0005")) == FILES["a/0005"]


def read_in_worker(repository: cafcat.Repository, path: str) -> bytes:
    with repository.open(path) as file:
        assert file.read() == repository.read(path) == asyncio.run(repository.aread(path))
    return repository.read(path)


@pytest.mark.parametrize("method", ["spawn", pytest.param("forkserver", marks=pytest.mark.slow)])
def test_a_repository_can_be_pickled_into_workers(repository: cafcat.Repository, method: str) -> None:
    paths = list(FILES)[::100]
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context(method)) as pool:
        assert list(pool.map(read_in_worker, [repository] * len(paths), paths)) == [FILES[path] for path in paths]
    with pickle.loads(pickle.dumps(repository)) as copy:  # noqa: S301 - its own bytes
        assert copy.settings == repository.settings
        assert copy.read("a/0007") == FILES["a/0007"]


def in_child(repository: cafcat.Repository) -> int:
    """Fork, read in the child, also after a garbage collection, and return the child's exit code."""
    child = os.fork()
    if not child:
        code = 1
        try:
            gc.collect()
            for path in list(FILES)[::50]:
                assert read_in_worker(repository, path) == FILES[path]
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_repository_can_be_used_after_a_fork(repository: cafcat.Repository) -> None:
    asyncio.run(repository.aread("a/0001"))
    with repository.open("a/0499") as file:
        assert file.read(10) == FILES["a/0499"][:10]
        assert in_child(repository) == 0
        assert file.read() == FILES["a/0499"][10:]
    assert repository.read("a/0002") == FILES["a/0002"]


def test_a_repository_on_a_bucket_can_be_used_after_a_fork(remote: cafcat.Repository) -> None:
    assert remote.read("a/0002") == FILES["a/0002"]
    assert in_child(remote) == 0
    assert remote.read("a/0003") == FILES["a/0003"]


def test_a_fork_within_a_transaction_leaves_the_transaction_to_the_parent(repository: cafcat.Repository) -> None:
    with repository.session.catalog.consistent_read():
        assert in_child(repository) == 0
        assert repository.read("a/0002") == FILES["a/0002"]
