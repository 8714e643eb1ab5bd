"""Reads fall over to copies: after any damage of a chunk, all ways to read give the right bytes."""

import itertools
import os
import random
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

import cafcat
from cafcat.catalog.chunks.copies import Copies
from cafcat.errors import CafcatError, Corrupt, StoreFailed, Unavailable
from cafcat.reading import replicas as places
from tests.worlds.archives.damage import flip
from tests.worlds.catalog_world import commit
from tests.worlds.copy_world import FILES, LARGE, World, folder_of, world
from tests.worlds.places import Bucket, Folder
from tests.worlds.servers.s3_proxy import Fault, Request, S3Proxy

__all__ = ["world"]


@pytest.fixture
def chunk(world: World) -> str:
    """A chunk with FILES, and a copy of it. The repository remembers no failures."""
    chunk = commit(world.repository, FILES)
    assert world.copy().copied == 1
    return chunk


def object_of(world: World, chunk: str) -> Path:
    return folder_of(world.first) / f"{chunk}.caf"


def read(repository: cafcat.Repository, _: Path) -> dict[str, bytes]:
    return {path: repository.read(path) for path in FILES}


def stream(repository: cafcat.Repository, _: Path) -> dict[str, bytes]:
    return {path: b"".join(repository.stream(path)) for path in FILES}


def get(repository: cafcat.Repository, folder: Path) -> dict[str, bytes]:
    folder.mkdir()
    for path in FILES:
        repository.get(path, folder / path.removeprefix("tree/"))
    return on_disk(folder)


def read_many(repository: cafcat.Repository, _: Path) -> dict[str, bytes]:
    return {path: given(content) for path, content in repository.read_many(FILES)}


def stream_many(repository: cafcat.Repository, _: Path) -> dict[str, bytes]:
    return {path: b"".join(given(blocks)) for path, blocks in repository.stream_many(FILES)}


def get_many(repository: cafcat.Repository, folder: Path) -> dict[str, bytes]:
    folder.mkdir()
    for _, found in repository.get_many({path: folder / path.removeprefix("tree/") for path in FILES}):
        given(found)
    return on_disk(folder)


def extract(repository: cafcat.Repository, folder: Path) -> dict[str, bytes]:
    report = repository.extract("tree", folder)
    assert report.failed == []
    return on_disk(folder / "tree")


def given(value: Any) -> Any:
    if isinstance(value, CafcatError):
        raise value
    return value


def on_disk(folder: Path) -> dict[str, bytes]:
    return {f"tree/{path.name}": path.read_bytes() for path in folder.iterdir()}


WAYS = [read, stream, get, read_many, stream_many, get_many, extract]
Way = Callable[[cafcat.Repository, Path], dict[str, bytes]]


def reopened(world: World) -> cafcat.Repository:
    """Return a new repository, which remembers no failures."""
    settings = world.repository.settings
    world.warnings.clear()
    return cafcat.Repository(settings, world.warnings.append)


def check_every_way(world: World, tmp_path: Path, ways: list[Way] = WAYS) -> None:
    for number, way in enumerate(ways):
        with reopened(world) as repository:
            assert way(repository, tmp_path / f"out-{number}") == FILES, way.__name__
        assert len(world.warnings) == 1, way.__name__
        assert not list(tmp_path.rglob(".cafcat*"))


LOST: dict[str, Callable[[Path], Any]] = {
    "deleted": os.unlink,
    "empty": lambda path: os.truncate(path, 0),
    "cut": lambda path: os.truncate(path, 4_000_000),
    "store gone": lambda path: shutil.rmtree(path.parent),
    "a folder in its place": lambda path: (path.unlink(), path.mkdir()),
    "all bytes wrong": lambda path: path.write_bytes(bytes(path.stat().st_size)),
}


def test_a_lost_store(world: World, chunk: str, tmp_path: Path) -> None:
    LOST["store gone"](object_of(world, chunk))
    check_every_way(world, tmp_path)
    assert f"cannot find the store {world.first.url}" in world.warnings[0]
    assert "reading the copies of its chunks" in world.warnings[0]


@pytest.mark.parametrize("loss", [name for name in LOST if name not in ("all bytes wrong", "store gone")])
def test_a_lost_chunk(world: World, chunk: str, tmp_path: Path, loss: str) -> None:
    LOST[loss](object_of(world, chunk))
    check_every_way(world, tmp_path)
    assert chunk in world.warnings[0]
    assert f"read from its copy in {world.second.url}" in world.warnings[0]


@pytest.mark.parametrize("path", [path for path in FILES if FILES[path]])
def test_a_flipped_byte(world: World, chunk: str, tmp_path: Path, path: str) -> None:
    place = world.repository.locate(path)
    flip(object_of(world, chunk), place.start_byte)
    # Blocks of a large file that were returned already cannot be taken back.
    ways = [way for way in WAYS if path != "tree/large" or way not in (stream, stream_many)]
    check_every_way(world, tmp_path, ways)
    assert f"chunk {chunk} is damaged in {place.path}: read from its copy" in world.warnings[0]
    assert f"run cafcat repair --chunk {chunk}" in world.warnings[0]


def test_damage_at_the_end_of_a_large_stream_names_a_remedy(world: World, chunk: str, tmp_path: Path) -> None:
    flip(object_of(world, chunk), world.repository.locate("tree/large").start_byte)
    with reopened(world) as repository, pytest.raises(Corrupt, match="get -o") as raised:
        list(repository.stream("tree/large"))
    assert raised.value.kind == "corrupt"
    with reopened(world) as repository:
        outcome = dict(repository.stream_many(["tree/large"]))["tree/large"]
        with pytest.raises(Corrupt, match="get -o"):
            list(given(outcome))
    # A pipe gives the same error.
    os.mkfifo(tmp_path / "pipe")
    with (
        reopened(world) as repository,
        subprocess.Popen(["cat", tmp_path / "pipe"], stdout=subprocess.DEVNULL),
        pytest.raises(Corrupt),
    ):
        repository.get("tree/large", tmp_path / "pipe")
    assert world.warnings == []


Reading = Callable[[cafcat.Repository], bytes]


def in_order(repository: cafcat.Repository) -> bytes:
    with repository.open("tree/large") as file:
        return b"".join(iter(lambda: file.read(1 << 20), b""))


def streamed(repository: cafcat.Repository) -> bytes:
    return b"".join(repository.stream("tree/large"))


@pytest.mark.parametrize("first", [in_order, streamed])
@pytest.mark.parametrize("second", [in_order, streamed])
def test_a_large_damaged_file_is_read_from_the_copy_at_the_next_read(
    world: World, chunk: str, first: Reading, second: Reading
) -> None:
    flip(object_of(world, chunk), world.repository.locate("tree/large").start_byte)
    with reopened(world) as repository:
        with pytest.raises(Corrupt, match="get -o"):
            first(repository)
        assert second(repository) == FILES["tree/large"]


def test_stream_continues_from_the_copy(world: World, chunk: str) -> None:
    """The object is truncated while it is read. No byte is repeated, and the whole file is checked."""
    blocks = world.repository.stream("tree/large")
    begun = list(itertools.islice(blocks, 3))
    os.truncate(object_of(world, chunk), world.repository.locate("tree/large").start_byte + 3_500_000)
    rest = list(blocks)
    assert b"".join(begun + rest) == LARGE
    assert max(map(len, rest)) <= 1 << 20
    assert len(world.warnings) == 1


def test_file_is_read_again_from_the_copy_if_the_combined_content_is_wrong(
    world: World, chunk: str, tmp_path: Path
) -> None:
    """The beginning is damaged, and the end is missing.

    The end is read from the copy. As the content is still wrong, all of it is read from the copy.
    """
    place = world.repository.locate("tree/large")
    flip(object_of(world, chunk), place.start_byte)
    os.truncate(object_of(world, chunk), place.end_byte - 1)
    world.repository.get("tree/large", tmp_path / "out")
    assert (tmp_path / "out").read_bytes() == LARGE


def test_parts_of_files(world: World, chunk: str) -> None:
    os.unlink(object_of(world, chunk))
    for start, end in [(0, 5), (100, None), (-7, None), (1, 2)]:
        for path in FILES.keys() - {"tree/empty"}:
            expected = FILES[path][start:end]
            assert world.repository.read(path, start, end) == expected
            assert b"".join(world.repository.stream(path, start, end)) == expected
        found = dict(world.repository.read_many(FILES.keys() - {"tree/empty"}, start, end))
        assert found == {path: FILES[path][start:end] for path in found}


def test_one_further_query_and_one_warning(
    world: World, chunk: str, queried_chunks: list[UUID], tmp_path: Path
) -> None:
    for path in FILES:
        world.repository.read(path)
        list(world.repository.stream(path))
    read_many(world.repository, tmp_path)
    assert queried_chunks == []
    os.unlink(object_of(world, chunk))
    for _ in range(3):
        assert read(world.repository, tmp_path) == FILES
        assert read_many(world.repository, tmp_path) == FILES
    assert [str(uuid) for uuid in queried_chunks] == [chunk]
    assert len(world.warnings) == 1


@pytest.fixture
def queried_chunks(monkeypatch: pytest.MonkeyPatch) -> list[UUID]:
    """Chunks whose copies are queried from the catalog, in the order of the queries."""
    queried: list[UUID] = []
    replicas_of = Copies.replicas_of

    def recorded(copies: Copies, chunk: UUID) -> list[tuple[str, str]]:
        queried.append(chunk)
        return replicas_of(copies, chunk)

    monkeypatch.setattr(Copies, "replicas_of", recorded)
    return queried


def test_repaired_chunk_is_read_again_after_a_while(
    world: World, chunk: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mended = object_of(world, chunk)
    mended.rename(tmp_path / "away")
    assert world.repository.read("tree/first") == FILES["tree/first"]
    (tmp_path / "away").rename(mended)
    shutil.rmtree(folder_of(world.second))
    # The copy is tried first now, and is missing: the chunk itself is tried again.
    assert world.repository.read("tree/first") == FILES["tree/first"]
    assert read_many(world.repository, tmp_path) == FILES
    monkeypatch.setattr(places, "_AVOID_SECONDS", 0.0)
    with reopened(world) as repository:
        assert read(repository, tmp_path) == FILES
    assert world.warnings == []


def test_without_a_copy_the_error_is_that_of_the_chunk(world: World, tmp_path: Path) -> None:
    chunk = commit(world.repository, FILES)
    os.unlink(object_of(world, chunk))
    with pytest.raises(Corrupt, match="is missing") as raised:
        world.repository.read("tree/first")
    assert (
        raised.value.hint == f"run cafcat repair --chunk {chunk}, with --from-source SRC if you have the original"
    )
    assert world.warnings == []


def test_a_copy_whose_store_is_not_mounted(world: World, chunk: str, tmp_path: Path) -> None:
    flip(object_of(world, chunk), world.repository.locate("tree/first").start_byte)
    folder_of(world.second).rename(tmp_path / "away")
    with pytest.raises(Corrupt, match="CRC-32C") as raised:
        world.repository.read("tree/first")
    why = f"cannot find the store {world.second.url}: its folder does not exist; is its disk mounted?"
    assert str(raised.value.hint).startswith(f"its copies fail, too: {why}")


def test_a_copy_that_fails_too(world: World, chunk: str, tmp_path: Path) -> None:
    """The error is that of the chunk, and names the problems of the copies. A third copy helps."""
    flip(object_of(world, chunk), world.repository.locate("tree/first").start_byte)
    flip(object_of(world, chunk), world.repository.locate("tree/large").start_byte)
    copy = folder_of(world.second) / f"{chunk}.caf"
    shutil.copy(object_of(world, chunk), copy)
    for attempt in (
        lambda: world.repository.read("tree/first"),
        lambda: list(world.repository.stream("tree/first")),
        lambda: given(dict(world.repository.read_many(["tree/first"]))["tree/first"]),
        lambda: world.repository.get("tree/first", tmp_path / "out"),
        lambda: world.repository.get("tree/large", tmp_path / "out"),
        lambda: given(dict(world.repository.read_many(["tree/large"]))["tree/large"]),
    ):
        with pytest.raises(Corrupt, match="CRC-32C") as raised:
            attempt()
        assert "its copies fail, too" in str(raised.value)
        assert str(raised.value).endswith("with --from-source SRC if you have the original")
        assert world.second.url in str(raised.value)
    assert not (tmp_path / "out").exists()
    report = world.repository.extract("tree", tmp_path / "tree")
    assert {problem.path for problem in report.failed} == {"tree/first", "tree/large"}
    third = Folder(tmp_path / "third")
    (tmp_path / "third").mkdir()
    flip(copy, *(world.repository.locate(f"tree/{name}").start_byte for name in ("first", "large")))
    shutil.copy(copy, tmp_path / "third" / copy.name)
    copy.unlink()
    world.sql("INSERT INTO stores (url) VALUES (%s) ON CONFLICT DO NOTHING", third.url)
    world.sql(
        "INSERT INTO chunk_copies (chunk_id, store, object_key, state, committed_at) "
        "SELECT id, %s, object_key, 'committed', now() FROM chunks",
        third.url,
    )
    with reopened(world) as repository:
        assert get(repository, tmp_path / "got") == FILES
    assert third.url in world.warnings[0]


def test_only_committed_copies_are_read(world: World, chunk: str) -> None:
    os.unlink(object_of(world, chunk))
    for state in ("writing", "abandoned", "deleted"):
        world.sql("UPDATE chunk_copies SET state = %s", state)
        with reopened(world) as repository, pytest.raises(Corrupt, match="is missing"):
            repository.read("tree/first")


@pytest.fixture
def remote(
    s3_proxy: S3Proxy, s3_proxy_environment: None, s3_bucket: str, database_url: str, tmp_path: Path
) -> Iterator[World]:
    """Chunks in a bucket behind the proxy; copies in a folder."""
    warnings: list[str] = []
    first = Bucket(s3_proxy.server, s3_bucket)
    second = Folder(tmp_path / "copies")
    with cafcat.open(
        database_url=database_url, home=tmp_path / "home", store=first.url, warn=warnings.append
    ) as repository:
        yield World(repository, first, second, warnings)
    first.client.close()


def failing(fault: Fault, operations: tuple[str, ...]) -> Callable[[Request], Fault | None]:
    return lambda request: fault if request.operation in operations else None


@pytest.mark.parametrize("way", WAYS)
def test_a_server_that_cannot_give_the_object(remote: World, s3_proxy: S3Proxy, tmp_path: Path, way: Way) -> None:
    commit(remote.repository, FILES)
    remote.copy()
    s3_proxy.faults = failing(Fault.ERROR_503, ("GetObject",))
    check_every_way(remote, tmp_path, [way])


@pytest.mark.parametrize("fault", [Fault.RESET_BEFORE, Fault.EXPIRED])
def test_unreachable_server_is_tried_once_for_all_chunks(
    remote: World, s3_proxy: S3Proxy, tmp_path: Path, fault: Fault
) -> None:
    """The warning is given once."""
    files = {f"tree/{number}": b"%d" % number * 1000 for number in range(10)}
    for path, content in files.items():
        commit(remote.repository, {path: content})
    remote.copy()
    s3_proxy.faults = lambda _: fault
    s3_proxy.clear()
    with reopened(remote) as repository:
        assert dict(repository.read_many(files)) == files
        if fault is Fault.RESET_BEFORE:
            assert len(remote.warnings) == 1
            assert "out of reach" in remote.warnings[0]
        asked = len(s3_proxy.requests)
        assert repository.extract("tree", tmp_path / "out").files == len(files)
        assert {f"tree/{path.name}": path.read_bytes() for path in (tmp_path / "out/tree").iterdir()} == files
        assert len(s3_proxy.requests) <= asked + (0 if fault is Fault.RESET_BEFORE else 10)


def test_credentials_that_are_wrong_are_no_reason_to_repair(remote: World, s3_proxy: S3Proxy) -> None:
    commit(remote.repository, FILES)
    remote.copy()
    s3_proxy.faults = failing(Fault.EXPIRED, ("GetObject",))
    with reopened(remote) as repository:
        assert repository.read("tree/first") == FILES["tree/first"]
    [warning] = remote.warnings
    assert "ExpiredToken" in warning
    assert "repair" not in warning


def test_without_copies_a_server_that_is_out_of_reach_ends_the_work(remote: World, s3_proxy: S3Proxy) -> None:
    for number in range(3):
        commit(remote.repository, {f"{number}": b"x"})
    s3_proxy.faults = lambda _: Fault.RESET_BEFORE
    with pytest.raises(Unavailable, match="out of reach"):
        list(remote.repository.read_many(["0", "1", "2"]))
    with pytest.raises(Unavailable, match="out of reach"):
        remote.repository.read("0")
    s3_proxy.faults = lambda _: None
    assert remote.repository.read("0") == b"x"


def test_server_that_vanishes_during_a_large_file(remote: World, s3_proxy: S3Proxy, tmp_path: Path) -> None:
    """A part of the file has been returned when the server vanishes."""
    large = {"large": random.randbytes(20_000_000)}
    commit(remote.repository, large)
    remote.copy()
    for attempt in (
        lambda repository: b"".join(repository.stream("large")),
        lambda repository: given(dict(repository.read_many(["large"]))["large"]),
    ):
        faults = iter([Fault.CUT_BODY])
        s3_proxy.faults = lambda request, faults=faults: (  # type: ignore[misc]
            next(faults, Fault.ERROR_503) if request.operation == "GetObject" else None
        )
        with reopened(remote) as repository:
            assert attempt(repository) == large["large"]
        assert len(remote.warnings) == 1


def test_missing_object_is_requested_once(remote: World, s3_proxy: S3Proxy, tmp_path: Path) -> None:
    """Neighbouring files are then read together from the copy."""
    files = {f"tree/{number:03}": b"%d" % number * 10 for number in range(200)}
    chunk = commit(remote.repository, files)
    remote.copy()
    assert isinstance(remote.first, Bucket)
    remote.first.client.delete_object(Bucket=remote.first.bucket, Key=f"pre/fix/{chunk}.caf")
    s3_proxy.clear()
    with reopened(remote) as repository:
        assert dict(repository.read_many(files)) == files
        assert dict(repository.read_many(files)) == files
    assert s3_proxy.count("GetObject") == 1
    assert len(remote.warnings) == 1


@pytest.mark.parametrize("world", ["folder-bucket"], indirect=True)
def test_copies_in_a_bucket(world: World, chunk: str, tmp_path: Path) -> None:
    os.unlink(object_of(world, chunk))
    check_every_way(world, tmp_path)


def test_a_damaged_object_in_a_bucket(remote: World, tmp_path: Path) -> None:
    chunk = commit(remote.repository, FILES)
    remote.copy()
    assert isinstance(remote.first, Bucket)
    key = f"pre/fix/{chunk}.caf"
    data = remote.first.everything()[f"{chunk}.caf"]
    for damaged in (bytes(len(data)), data[:100_000]):
        remote.first.client.put_object(Bucket=remote.first.bucket, Key=key, Body=damaged)
        ways = [way for way in WAYS if way not in (stream, stream_many) or len(damaged) < len(data)]
        for number, way in enumerate(ways):
            with reopened(remote) as repository:
                assert way(repository, tmp_path / f"{len(damaged)}-{number}") == FILES, way.__name__


def test_unreadable_object_without_a_copy_is_a_failure_of_the_store(world: World) -> None:
    """The object is a symbolic link to itself."""
    chunk = commit(world.repository, FILES)
    path = object_of(world, chunk)
    folder = path.parent
    path.unlink()
    path.symlink_to(path.name)
    with pytest.raises((Corrupt, StoreFailed)):
        world.repository.read("tree/first")
    assert folder.is_dir()
