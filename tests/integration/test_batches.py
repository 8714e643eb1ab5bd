"""Many files at once: look-ups by the thousand, combined reads, several in flight, and the effects of failures."""

import os
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, Literal

import pytest

import cafcat
from cafcat.errors import AccessDenied, Conflict, Corrupt, InvalidInput, NotFound, StoreFailed, Unavailable
from cafcat.model import Location, ProblemKind
from cafcat.stores.local.store import LocalStore
from cafcat.stores.s3.store import S3Store
from tests.worlds.listeners import Following
from tests.worlds.servers.s3_proxy import Fault, Request, S3Proxy
from tests.worlds.servers.s3_server import S3Server, empty_bucket
from tests.worlds.servers.web_server import HttpServer
from tests.worlds.statements import statements

CONTENT = random.Random(1)
SMALL = {f"tree/n{number:04}": b"%d," % number * (number % 97) for number in range(1000)}
LARGE = CONTENT.randbytes(20_000_000)

Open = Callable[..., cafcat.Repository]


@pytest.fixture
def open_repository(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Open:
    """A function that opens a repository with a store at a URL. The current folder is a temporary one."""
    monkeypatch.chdir(tmp_path)

    def open_repository(store: str | Path, **settings: Any) -> cafcat.Repository:
        return cafcat.open(database_url=database_url, home=tmp_path / "home", store=str(store), **settings)

    return open_repository


def write(files: dict[str, bytes]) -> None:
    for path, content in files.items():
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_bytes(content)


@pytest.fixture
def local(open_repository: Open, tmp_path: Path) -> Iterator[cafcat.Repository]:
    """A repository with a thousand small files in one chunk in a folder."""
    write(SMALL)
    with open_repository(tmp_path / "store") as repository:
        repository.ingest(["tree"])
        yield repository


@pytest.fixture
def remote(open_repository: Open, s3_bucket: str, s3_proxy_environment: None) -> Iterator[cafcat.Repository]:
    """An empty repository with a store in a bucket behind the proxy."""
    with open_repository(f"s3://{s3_bucket}/chunks") as repository:
        yield repository


class GivesNothing(BaseHTTPRequestHandler):
    """A server without objects that refuses to list."""

    def do_GET(self) -> None:
        self.send_response(403 if "list-type=2" in self.path else 404)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


def damage(repository: cafcat.Repository, path: str) -> None:
    place = repository.locate(path)
    with Path(repository.object_of(place)).open("r+b") as chunk:
        chunk.seek(place.start_byte)
        byte = chunk.read(1)[0]
        chunk.seek(place.start_byte)
        chunk.write(bytes([byte ^ 1]))


def test_batch_gives_every_file_or_its_error(local: cafcat.Repository) -> None:
    paths = [*reversed(SMALL), "tree/none", "tree", "./tree/n0001", "/tree/n0001", "tree/n0001", "nul\0", "\udc80"]
    found = list(local.read_many(iter(paths)))
    assert Counter(path for path, _ in found) == Counter(paths)
    values = dict(found)
    for path, content in SMALL.items():
        assert values.pop(path) == content
    assert values.pop("./tree/n0001") == values.pop("/tree/n0001") == SMALL["tree/n0001"]
    none, folder, nul, undecodable = (values[path] for path in ("tree/none", "tree", "nul\0", "\udc80"))
    assert isinstance(none, NotFound)
    assert none.path == "tree/none"
    assert isinstance(folder, NotFound)
    assert "folder" in folder.message
    assert isinstance(nul, InvalidInput)
    assert isinstance(undecodable, InvalidInput)


def test_a_batch_comes_as_it_is_read(local: cafcat.Repository) -> None:
    order = [path for path, _ in local.read_many(reversed(SMALL))]
    assert order == sorted(SMALL, key=lambda path: (local.locate(path).start_byte, local.locate(path).end_byte))


def test_batch_needs_one_query_and_more_for_missing_files(local: cafcat.Repository, tmp_path: Path) -> None:
    with statements(local, tmp_path / "one") as executed:
        assert len(list(local.read_many(SMALL))) == 1000
    assert len(executed) == 1
    with statements(local, tmp_path / "more") as executed:
        missing = [f"./none/{number}" for number in range(1500)]
        assert all(isinstance(value, NotFound) for _, value in local.read_many(missing))
    assert len(executed) == 5
    with statements(local, tmp_path / "get") as executed:
        assert len(list(local.get_many({path: tmp_path / path[5:] for path in SMALL}))) == 1000
    assert len(executed) == 1


def counted_reads(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Return a list that gets the spans that are read from folders from now on."""
    reads: list[tuple[int, int]] = []
    read = LocalStore.read

    def counted(self: LocalStore, key: str, start: int, end: int) -> bytes:
        reads.append((start, end))
        return read(self, key, start, end)

    monkeypatch.setattr(LocalStore, "read", counted)
    return reads


def test_near_files_are_read_by_few_reads(local: cafcat.Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    reads = counted_reads(monkeypatch)
    assert dict(local.read_many(SMALL)) == SMALL
    plan = local.plan(SMALL)
    assert reads == [(0, plan.bytes_read)]
    assert (plan.files, plan.requests, plan.bytes_wanted) == (1000, 1, plan.bytes_read)


def test_files_of_several_chunks_large_files_and_gaps(
    open_repository: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = [0, 1, 5_000, 200_000, 0, 3_000_000, 70_000, 9_000_000, 10, 0]
    files = {f"tree/{number:03}": CONTENT.randbytes(sizes[number % 10]) for number in range(30)}
    write(files)
    with open_repository(tmp_path / "store", target_size="16MB") as repository:
        repository.ingest(["tree"], jobs=1)
        places = {path: repository.locate(path) for path in files}
        assert len({place.chunk for place in places.values()}) >= 3
        chosen = random.Random(7)
        for _ in range(20):
            paths = chosen.sample(sorted(files), chosen.randrange(1, 30))
            found = list(repository.read_many(paths))
            assert dict(found) == {path: files[path] for path in paths}
            in_order = [(places[path].object_key, places[path].start_byte) for path, _ in found]
            assert in_order == sorted(in_order)
        reads = counted_reads(monkeypatch)
        assert dict(repository.read_many(["tree/002", "tree/004", "tree/006"])) != {}
        assert len(reads) == 2  # the gap between them is larger than 64 KiB
        assert dict(repository.read_many(files)) == files
        assert max(end - start for start, end in reads) <= 8 << 20  # the large files are read in blocks


def test_ranges_of_many_files_are_read(local: cafcat.Repository) -> None:
    paths = ["tree/n0096", "tree/n0002", "tree/n0000", "tree/n0050"]
    for start, end in [(0, 5), (0, 1), (-3, None), (0, 0), (0, 1000)]:
        expected = {path: SMALL[path][start:end] for path in paths}
        assert dict(local.read_many(paths, start, end)) == expected
    values = dict(local.read_many(paths, 10))
    assert values["tree/n0096"] == SMALL["tree/n0096"][10:] != b""
    for path in ("tree/n0002", "tree/n0000"):
        short = values[path]
        assert isinstance(short, InvalidInput)
        assert short.path == path
    plan = local.plan(paths, 10)
    assert (plan.files, [name for name, _ in plan.failed]) == (2, ["tree/n0002", "tree/n0000"])
    assert plan.bytes_wanted == sum(len(SMALL[path]) - 10 for path in paths if len(SMALL[path]) > 10)


def test_damaged_file_fails_alone(local: cafcat.Repository, tmp_path: Path) -> None:
    damage(local, "tree/n0500")
    values = dict(local.read_many(SMALL))
    bad = values.pop("tree/n0500")
    assert isinstance(bad, Corrupt)
    assert bad.path == "tree/n0500"
    assert values == {path: content for path, content in SMALL.items() if path != "tree/n0500"}
    got = dict(local.get_many({path: tmp_path / path[5:] for path in SMALL}))
    assert [path for path, value in got.items() if not isinstance(value, Location)] == ["tree/n0500"]
    assert not (tmp_path / "n0500").exists()
    assert not list(tmp_path.glob(".cafcat*"))
    assert (tmp_path / "n0501").read_bytes() == SMALL["tree/n0501"]


def test_truncated_chunk_gives_its_remaining_files(local: cafcat.Repository) -> None:
    place = local.locate("tree/n0700")
    os.truncate(local.object_of(place), place.start_byte + 1)
    for path, value in local.read_many(SMALL):
        if path < "tree/n0700" or not SMALL[path]:
            assert value == SMALL[path]
        else:
            assert isinstance(value, Corrupt)
            assert value.path == path


def test_files_with_existing_outputs_are_not_read(
    local: cafcat.Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = counted_reads(monkeypatch)
    outputs = {path: tmp_path / path[5:] for path in SMALL}
    for output in outputs.values():
        output.write_bytes(b"mine")
    values = dict(local.get_many(outputs))
    assert values.keys() == SMALL.keys()
    assert {type(value) for value in values.values()} == {Conflict}
    assert {output.read_bytes() for output in outputs.values()} == {b"mine"}
    assert reads == []


def test_an_output_with_an_impossible_name_costs_only_itself(local: cafcat.Repository, tmp_path: Path) -> None:
    names = iter(SMALL)
    bad, good = next(names), next(names)
    values = dict(local.get_many({bad: tmp_path / ("x" * 300), good: tmp_path / "good"}))
    assert isinstance(values[bad], InvalidInput)
    assert values[good] == local.locate(good)
    assert (tmp_path / "good").read_bytes() == SMALL[good]


def test_written_files_have_their_times_and_replace_others_with_overwrite(
    local: cafcat.Repository, tmp_path: Path
) -> None:
    os.utime("tree/n0007", ns=(0, 1_234_567_890_123_456_000))
    local.ingest(["tree"])
    (tmp_path / "n0007").write_bytes(b"mine")
    outputs = {path: str(tmp_path / path[5:]) for path in ("tree/n0008", "tree/n0007")}
    values = dict(local.get_many(outputs, overwrite=True))
    assert values == {path: local.locate(path) for path in outputs}
    assert (tmp_path / "n0007").read_bytes() == SMALL["tree/n0007"]
    assert (tmp_path / "n0007").stat().st_mtime_ns == 1_234_567_890_123_456_000


def test_streams_come_in_the_requested_order(local: cafcat.Repository) -> None:
    write({"tree/large": LARGE})
    local.ingest(["tree/large"])
    paths = ["tree/n0900", "tree/large", "tree/n0001", "none", "tree/n0000", "tree/n0900", "tree/n0899"]
    streamed = []
    for path, blocks in local.stream_many(paths):
        if isinstance(blocks, NotFound):
            assert path == "none"
            continue
        assert not isinstance(blocks, cafcat.CafcatError)
        streamed.append((path, b"".join(blocks)))
    contents = SMALL | {"tree/large": LARGE}
    assert streamed == [(path, contents[path]) for path in paths if path != "none"]


def test_a_single_name_is_no_list_of_names(local: cafcat.Repository) -> None:
    for ask in (local.read_many, local.stream_many, local.plan):
        with pytest.raises(InvalidInput, match="list of names"):
            ask("tree/n0001")


def test_more_files_than_are_planned_at_once(open_repository: Open, tmp_path: Path) -> None:
    files = {f"tree/{number:05}": b"%05d" % number for number in range(6001)}
    write(files)
    with open_repository(tmp_path / "store") as repository:
        repository.ingest(["tree"], jobs=1)
        assert dict(repository.read_many(files)) == files
        assert repository.plan(files).requests == repository.plan_extract("tree").requests == 2
        assert repository.extract("tree", tmp_path / "out").files == 6001
    assert all((tmp_path / "out" / path).read_bytes() == content for path, content in files.items())


def test_a_plan_reads_nothing(local: cafcat.Repository, tmp_path: Path) -> None:
    chunk = Path(local.object_of(local.locate("tree/n0001")))
    size = sum(map(len, SMALL.values()))
    chunk.unlink()
    plan = local.plan_extract("tree")
    assert (plan.files, plan.requests, plan.bytes_wanted, plan.bytes_read) == (1000, 1, size, size)
    assert [place.object for place in plan.chunks] == [str(chunk)]
    assert local.plan_extract("tree/n0001").files == 1
    with pytest.raises(NotFound):
        local.plan_extract("tree/none")


# Stores over the network.


def gets(proxy: S3Proxy) -> list[str]:
    """Return the requested ranges. Other requests must not have been sent."""
    assert set(proxy.counts()) <= {"GetObject"}
    return [request.range or "" for request in proxy.requests]


def test_a_file_of_a_bucket_is_one_get_however_large(
    remote: cafcat.Repository, s3_proxy: S3Proxy, tmp_path: Path
) -> None:
    write({"tree/large": LARGE, "tree/small": b"small"})
    remote.ingest(["tree"])
    for path, content in (("tree/large", LARGE), ("tree/small", b"small")):
        place = remote.locate(path)
        s3_proxy.clear()
        remote.get(path, tmp_path / "out", overwrite=True)
        assert (tmp_path / "out").read_bytes() == content
        assert gets(s3_proxy) == [f"bytes={place.start_byte}-{place.end_byte - 1}"]
        s3_proxy.clear()
        assert remote.read(path) == content
        assert len(gets(s3_proxy)) == 1
        s3_proxy.clear()
        assert dict(remote.read_many([path])) == {path: content}
        assert len(gets(s3_proxy)) == 1


def test_a_batch_of_a_thousand_neighbours_is_at_most_ten_gets(
    remote: cafcat.Repository, s3_proxy: S3Proxy, tmp_path: Path
) -> None:
    files = {path: random.randbytes(30_000) for path in SMALL} | {"tree/empty": b""}
    write(files)
    remote.ingest(["tree"])
    s3_proxy.clear()
    assert dict(remote.read_many(files)) == files
    plan = remote.plan(files)
    assert plan.requests == len(gets(s3_proxy)) <= 10
    assert plan.bytes_read == sum(request.bytes_sent for request in s3_proxy.requests) == 30_000_000
    s3_proxy.clear()
    assert all(
        isinstance(place, Location) for _, place in remote.get_many({path: path for path in files}, overwrite=True)
    )
    assert len(gets(s3_proxy)) == plan.requests
    s3_proxy.clear()
    assert remote.extract("tree", tmp_path / "out").files == 1001
    assert len(gets(s3_proxy)) == plan.requests
    assert all((tmp_path / "out" / path).read_bytes() == content for path, content in files.items())


def test_scattered_files_of_a_bucket_are_read_without_the_large_gaps(
    remote: cafcat.Repository, s3_proxy: S3Proxy, tmp_path: Path
) -> None:
    """All files together have no gaps: then nothing is split."""
    scattered = {f"tree/{number:02}-a": random.randbytes(10_000) for number in range(20)}
    between = {f"tree/{number:02}-b": random.randbytes(200_000) for number in range(20)}
    write(scattered | between)
    remote.ingest(["tree"])
    orders: tuple[Literal["archive", "given"], ...] = ("archive", "given")
    for order in orders:
        s3_proxy.clear()
        assert dict(remote.read_many([*scattered][::-1], order=order)) == scattered
        plan = remote.plan(scattered)
        assert plan.requests == len(gets(s3_proxy)) == 20
        assert plan.bytes_read == plan.bytes_wanted == sum(request.bytes_sent for request in s3_proxy.requests)
    s3_proxy.clear()
    assert remote.extract("tree", tmp_path / "out").files == 40
    assert len(gets(s3_proxy)) == 1


def chunked(repository: cafcat.Repository, count: int) -> dict[str, bytes]:
    """Ingest this number of files, each into a chunk of its own."""
    files = {f"tree/{number:03}": random.randbytes(50_000) for number in range(count)}
    write(files)
    assert repository.ingest(["tree"], target_size=50_000).chunks_committed == count
    return files


def test_requests_are_sent_in_the_order_in_which_the_caller_gets_the_files(
    remote: cafcat.Repository, s3_proxy: S3Proxy, open_repository: Open
) -> None:
    """With one request at a time, the order in which the proxy gets them is that in which they were sent."""
    names = [*chunked(remote, 8)]
    random.Random(5).shuffle(names)
    keys = [remote.locate(name).object_key for name in names]
    with open_repository(remote.settings.store, read_requests=1) as repository:
        s3_proxy.clear()
        assert [name for name, _ in repository.read_many(names, order="given")] == names
    assert [request.key.rpartition("/")[2] for request in s3_proxy.requests] == keys


class Watched:
    """Counts the reads of a store that have begun."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun = 0
        read = S3Store.read

        def watched(store: S3Store, *span: Any) -> bytes:
            self.begun += 1
            return read(store, *span)

        monkeypatch.setattr(S3Store, "read", watched)


def scattered(repository: cafcat.Repository, count: int) -> dict[str, bytes]:
    """Ingest this number of small files into one chunk, each before a file that is too large to be read over."""
    files = {f"tree/{number:03}-a": random.randbytes(1000) for number in range(count)}
    write(files | {f"tree/{number:03}-b": bytes(1_100_000) for number in range(count)})
    assert repository.ingest(["tree"], jobs=1).chunks_committed == 1
    return files


@pytest.mark.slow
def test_scattered_files_are_read_with_many_requests_in_flight(
    remote: cafcat.Repository, s3_proxy: S3Proxy, open_repository: Open, tmp_path: Path
) -> None:
    files = scattered(remote, 40)
    s3_proxy.delay_seconds = 0.3
    for requests, most in ((64, 40), (20, 20), (3, 3), (1, 1)):
        s3_proxy.most_in_flight = 0
        s3_proxy.clear()
        some = dict(list(files.items())[: 5 if requests == 1 else 40])
        with open_repository(remote.settings.store, read_requests=requests) as repository:
            assert dict(repository.read_many(some)) == some
        assert s3_proxy.most_in_flight <= most
        assert s3_proxy.most_in_flight > min(16, most - 1)
        assert len(gets(s3_proxy)) == len(some)
    s3_proxy.most_in_flight = 0
    found = dict(remote.get_many({path: tmp_path / path[5:] for path in files}))
    assert all(isinstance(location, Location) for location in found.values())
    assert 16 < s3_proxy.most_in_flight <= 40


def test_read_ahead_obeys_the_limit_of_memory(remote: cafcat.Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit allows four files of 50,000 bytes."""
    files = chunked(remote, 20)
    watched = Watched(monkeypatch)
    monkeypatch.setattr("cafcat.reading.fetch._MOST_BYTES", 200_000)
    order = remote.stream_many(files)
    for number, (path, blocks) in enumerate(order):
        assert watched.begun <= number + 5
        assert not isinstance(blocks, cafcat.CafcatError)
        assert b"".join(blocks) == files[path]
    assert watched.begun == 20
    batch = remote.read_many(files)
    next(batch)
    batch.close()  # type: ignore[attr-defined]
    assert watched.begun <= 25
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("cafcat-read")]


def test_interrupted_answers_are_requested_again(
    remote: cafcat.Repository, s3_proxy: S3Proxy, tmp_path: Path
) -> None:
    files = chunked(remote, 10)
    faults = {1: Fault.CUT_BODY, 3: Fault.ERROR_503, 4: Fault.RESET_BEFORE, 6: Fault.CUT_BODY, 8: Fault.SLOW}
    s3_proxy.clear()
    s3_proxy.faults = lambda request: faults.get(request.number)
    assert dict(remote.read_many(files)) == files
    assert {request.fault for request in s3_proxy.requests} == {None, *faults.values()}


def test_object_that_is_replaced_amid_a_read_affects_only_its_file(
    remote: cafcat.Repository, s3_proxy: S3Proxy, s3_server: S3Server, s3_bucket: str
) -> None:
    contents = {"large": LARGE, "small": b"small"}
    for path, content in contents.items():
        write({path: content})
        remote.ingest([path])
    key = f"chunks/{remote.locate('large').object_key}"
    reads: list[Request] = []

    def replace_before_second_read(request: Request) -> Fault | None:
        if request.operation != "GetObject" or not key.endswith(request.key.rpartition("/")[2]):
            return None
        reads.append(request)
        if len(reads) == 1:
            return Fault.CUT_BODY
        s3_server.client().put_object(Bucket=s3_bucket, Key=key, Body=b"other")
        return None

    s3_proxy.faults = replace_before_second_read
    values = dict(remote.read_many(contents))
    assert isinstance(values["large"], Conflict)
    assert values["small"] == b"small"


def test_missing_object_affects_only_its_files_and_costs_one_request(
    remote: cafcat.Repository, s3_proxy: S3Proxy, s3_server: S3Server, s3_bucket: str, tmp_path: Path
) -> None:
    files = {f"tree/{number:03}": random.randbytes(1000) for number in range(100)}
    write(files)
    chunks = remote.ingest(["tree"], target_size=50_000).chunks_committed
    lost = remote.locate("tree/010")
    s3_server.client().delete_object(Bucket=s3_bucket, Key=f"chunks/{lost.object_key}")
    there = {place.path for place in remote.list() if place.chunk != lost.chunk}
    s3_proxy.clear()
    values = dict(remote.read_many(files))
    assert s3_proxy.count("GetObject") == chunks > 1
    assert {path: value for path, value in values.items() if path in there} == {path: files[path] for path in there}
    for path in files.keys() - there:
        error = values[path]
        assert isinstance(error, Corrupt)
        assert (error.path, error.chunk) == (path, str(lost.chunk))
    with pytest.raises(Corrupt, match="is missing"):
        remote.read("tree/010")
    report = remote.extract("tree", tmp_path / "out")
    assert (report.files, report.files_failed) == (len(there), 100 - len(there))
    assert {problem.kind for problem in report.failed} == {ProblemKind.CORRUPT}


def test_file_behind_the_end_of_a_truncated_object_fails_alone(
    remote: cafcat.Repository, s3_server: S3Server, s3_bucket: str
) -> None:
    files = {f"tree/{number:03}": random.randbytes(1000) for number in range(20)}
    write(files)
    remote.ingest(["tree"])
    place = remote.locate("tree/015")
    client, key = s3_server.client(), f"chunks/{place.object_key}"
    body = client.get_object(Bucket=s3_bucket, Key=key)["Body"].read()
    client.put_object(Bucket=s3_bucket, Key=key, Body=body[: place.start_byte + 10])
    values = dict(remote.read_many(files))
    bad = {path for path, value in values.items() if isinstance(value, Corrupt)}
    assert bad == {path for path in files if path >= "tree/015"}
    assert all(values[path] == files[path] for path in files.keys() - bad)


def test_unreadable_object_affects_only_its_files(
    remote: cafcat.Repository, s3_proxy: S3Proxy, tmp_path: Path
) -> None:
    files = {f"tree/{number:03}": random.randbytes(1000) for number in range(100)}
    write(files)
    remote.ingest(["tree"], target_size=50_000)
    stuck = remote.locate("tree/010")

    def fault(request: Request) -> Fault | None:
        return Fault.ERROR_500 if request.key.endswith(stuck.object_key) else None

    s3_proxy.faults = fault
    s3_proxy.clear()
    report = remote.extract("tree", tmp_path / "out")
    there = [place for place in remote.list() if place.chunk != stuck.chunk]
    assert (report.files, report.files_failed) == (len(there), 100 - len(there))
    assert {problem.kind for problem in report.failed} == {ProblemKind.UNREADABLE}
    # All attempts of one read, and no attempts of the other forty-nine files.
    assert s3_proxy.count("GetObject") < 20
    error = dict(remote.read_many(["tree/010"]))["tree/010"]
    assert isinstance(error, StoreFailed)
    assert error.path == "tree/010"


@pytest.mark.slow
def test_a_bucket_that_is_gone_ends_the_work_at_once(
    remote: cafcat.Repository, s3_proxy: S3Proxy, s3_server: S3Server, s3_bucket: str, tmp_path: Path
) -> None:
    files = chunked(remote, 20)
    write({"large": LARGE})
    remote.ingest(["large"])
    client = s3_server.client(max_attempts=5)
    empty_bucket(client, s3_bucket)
    client.delete_bucket(Bucket=s3_bucket)
    s3_proxy.clear()
    try:
        for attempt in (
            lambda: remote.extract("tree", tmp_path / "out"),
            lambda: list(remote.read_many(files)),
            lambda: list(remote.get_many({path: tmp_path / path[5:] for path in files})),
            lambda: remote.read("tree/001"),
            lambda: list(remote.stream("large")),
            lambda: list(remote.read_many(["large"])),
        ):
            with pytest.raises(Unavailable, match="NoSuchBucket") as raised:
                attempt()
            assert raised.value.kind == "unavailable"
    finally:
        client.create_bucket(Bucket=s3_bucket)
    assert s3_proxy.count("GetObject") <= 6 * 20
    assert not list(tmp_path.rglob("*.partial"))


@pytest.mark.slow
def test_credentials_that_are_refused_end_the_work_at_once(
    remote: cafcat.Repository,
    open_repository: Open,
    s3_proxy: S3Proxy,
    s3_bucket: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    files = chunked(remote, 20)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "not-the-secret")
    s3_proxy.clear()
    with open_repository(f"s3://{s3_bucket}/chunks") as stranger:
        for attempt in (
            lambda: stranger.extract("", tmp_path / "out"),
            lambda: list(stranger.read_many(files)),
            lambda: list(stranger.get_many({path: tmp_path / path[5:] for path in files})),
            lambda: stranger.read("tree/001"),
        ):
            with pytest.raises(AccessDenied) as raised:
                attempt()
            assert "not-the-secret" not in str(raised.value)
    assert s3_proxy.count("GetObject") <= 4 * 20
    assert not list((tmp_path / "out").rglob("*"))


def test_reading_needs_no_permission_to_list(
    remote: cafcat.Repository, open_repository: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = chunked(remote, 3)
    with HttpServer(("127.0.0.1", 0), GivesNothing) as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.server_port}")
        with open_repository(remote.settings.store) as elsewhere:
            values = dict(elsewhere.read_many(files))
    assert values.keys() == files.keys()
    assert all(isinstance(value, Corrupt) for value in values.values())


@pytest.mark.slow
def test_a_server_that_does_not_answer_ends_the_work_at_once(
    remote: cafcat.Repository, s3_proxy: S3Proxy, tmp_path: Path
) -> None:
    files = chunked(remote, 20)
    s3_proxy.faults = lambda _: Fault.RESET_BEFORE
    with pytest.raises(Unavailable, match="out of reach") as raised:
        list(remote.read_many(files))
    assert raised.value.kind == "unavailable"


def test_an_extract_that_is_stopped_leaves_whole_files_and_no_threads(
    remote: cafcat.Repository, tmp_path: Path
) -> None:
    files = chunked(remote, 20)
    asked = 0

    def should_stop() -> bool:
        nonlocal asked
        asked += 1
        return asked > 6

    report = remote.with_progress(Following(should_stop=should_stop)).extract("", tmp_path / "out")
    assert report.interrupted
    written = {str(path.relative_to(tmp_path / "out")) for path in (tmp_path / "out").rglob("*") if path.is_file()}
    assert report.files == len(written) < 20
    assert all((tmp_path / "out" / path).read_bytes() == files[path] for path in written)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("cafcat-read")]

    def stop_now() -> bool:
        raise KeyboardInterrupt

    with suppress(KeyboardInterrupt):
        remote.with_progress(Following(should_stop=stop_now)).extract("", tmp_path / "none")
    assert not list((tmp_path / "none").rglob("*"))
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("cafcat-read")]
