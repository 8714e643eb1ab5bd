"""Google Cloud Storage and Azure Blob Storage as stores and sources, on emulators, with broken connections."""

import multiprocessing
import random
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import cafcat
from cafcat.errors import AccessDenied, CafcatError, Conflict, NotFound, ServerFailed, StoreFailed
from cafcat.remote.address import parse_bucket
from cafcat.remote.clouds.connection import connect
from cafcat.repository import Repository
from cafcat.stores.base import Store
from cafcat.stores.keys import is_chunk_key
from cafcat.stores.kind import StoreContext
from cafcat.stores.registry import open_store
from tests.worlds.listeners import Following, Heard, Listener
from tests.worlds.servers.clouds import ACCOUNT, Azure, Bucket, Cloud
from tests.worlds.servers.s3_proxy import Fault, Request, S3Proxy

MIB = 1 << 20
KEY = "chunk.caf"


def store_in(bucket: Bucket, **options: str) -> Store:
    return open_store(bucket.url, StoreContext(options=options, upload_memory=20_000_000))


def fails(*faults: Fault, when: Callable[[Request], bool]) -> Callable[[Request], Fault | None]:
    """Give the faults to the first requests that a condition selects."""
    left = list(faults)

    def choose(request: Request) -> Fault | None:
        return left.pop(0) if left and when(request) else None

    return choose


def is_read(request: Request) -> bool:
    return request.method == "GET" and request.range is not None


def is_part(request: Request) -> bool:
    return request.method == "PUT" and (request.query.get("comp") == "block" or "upload_id" in request.query)


def is_completion(request: Request) -> bool:
    """Return True for the request that makes an object of one part visible."""
    return request.query.get("comp") == "blocklist" if "comp" in request.query else is_part(request)


def written(store: Store, data: bytes) -> None:
    upload = store.create(KEY)
    for start in range(0, len(data), MIB):
        upload.write(data[start : start + MIB])
    upload.commit()


@pytest.fixture
def data() -> bytes:
    return random.Random(5).randbytes(11 * MIB)


def test_a_stream_goes_on_after_broken_connections(cloud_bucket: Bucket, cloud_proxy: S3Proxy, data: bytes) -> None:
    cloud_bucket.write(KEY, data)
    cloud_proxy.faults = fails(Fault.CUT_BODY, Fault.RESET_BEFORE, Fault.CUT_BODY, Fault.ERROR_503, when=is_read)
    assert b"".join(store_in(cloud_bucket).stream(KEY, 5, len(data))) == data[5:]
    reads = [request for request in cloud_proxy.requests if is_read(request)]
    assert len(reads) > 3
    assert reads[-1].range != reads[0].range, "it went on where the connection broke"


def test_a_read_is_sent_again_after_a_broken_connection(cloud_bucket: Bucket, cloud_proxy: S3Proxy) -> None:
    cloud_bucket.write(KEY, b"0123456789" * 1000)
    cloud_proxy.faults = fails(Fault.CUT_BODY, Fault.LOST_ANSWER, when=is_read)
    assert store_in(cloud_bucket).read(KEY, 10, 2010) == b"0123456789" * 200


def test_odd_keys_are_read_again_without_obstore(cloud_bucket: Bucket, cloud_proxy: S3Proxy) -> None:
    cloud_bucket.write("a//b/../c", b"0123456789" * 1000)
    cloud_proxy.faults = fails(Fault.CUT_BODY, Fault.ERROR_503, when=is_read)
    with cafcat_object(cloud_bucket, "a//b/../c") as content:
        assert content(10, 2010) == b"0123456789" * 200


class cafcat_object:
    """Reads an object by its URL, as `cafcat archive ls` does."""

    def __init__(self, bucket: Bucket, key: str) -> None:
        from cafcat.stores.registry import kind_of

        kind = kind_of(bucket.url)
        self._object = kind.open_object(kind.address(f"{bucket.url}/{key}"), StoreContext())

    def __enter__(self) -> Callable[[int, int], bytes]:
        return self._object.read_at

    def __exit__(self, *_: object) -> None:
        pass


def test_a_server_that_stays_away_is_an_error(cloud_bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cafcat.remote.clouds.http.ATTEMPTS", 2)
    for name, value in cloud_bucket.cloud.environ(9).items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ServerFailed, match="check that the server is running") as caught:
        store_in(cloud_bucket).stat(KEY)
    assert "sig=" not in str(caught.value)


@pytest.mark.parametrize("fault", [Fault.RESET_BEFORE, Fault.ERROR_503, Fault.ERROR_500, Fault.LOST_ANSWER])
def test_parts_are_sent_again(cloud_bucket: Bucket, cloud_proxy: S3Proxy, data: bytes, fault: Fault) -> None:
    if cloud_bucket.cloud.scheme == "gs" and fault is Fault.LOST_ANSWER:
        pytest.skip("fake-gcs-server appends bytes that it has already; Google ignores them")
    cloud_proxy.faults = fails(fault, when=is_part)
    written(store_in(cloud_bucket), data)
    assert cloud_bucket.read(KEY) == data


@pytest.mark.parametrize("fault", [Fault.LOST_ANSWER, Fault.LOST_500, Fault.ERROR_503])
def test_a_lost_answer_to_the_completion(cloud_bucket: Bucket, cloud_proxy: S3Proxy, fault: Fault) -> None:
    """The object shows that this upload made it."""
    cloud_proxy.faults = fails(fault, when=is_completion)
    store = store_in(cloud_bucket)
    upload = store.create(KEY)
    upload.write(b"data")
    upload.commit()
    assert cloud_bucket.read(KEY) == b"data"
    assert upload.etag == store.stat(KEY).etag


def test_another_object_after_a_lost_answer_is_a_conflict(
    cloud_bucket: Bucket, cloud_proxy: S3Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cafcat.remote.clouds.http.ATTEMPTS", 2)
    cloud_proxy.faults = fails(Fault.ERROR_503, Fault.ERROR_503, when=is_completion)
    upload = store_in(cloud_bucket).create(KEY)
    upload.write(b"data")
    cloud_bucket.write(KEY, b"data")
    with pytest.raises(Conflict):
        upload.commit()


def test_altered_bytes_are_found(cloud_bucket: Bucket, cloud_proxy: S3Proxy, data: bytes) -> None:
    """Azure refuses the block by its MD5, Google shows another CRC-32C of the object."""
    cloud_proxy.faults = fails(*[Fault.FLIPPED_BIT] * 6, when=is_part)
    with pytest.raises(StoreFailed):
        written(store_in(cloud_bucket), data)


def test_a_replaced_object_is_not_read_on(cloud_bucket: Bucket, data: bytes) -> None:
    cloud_bucket.write(KEY, data)
    blocks = store_in(cloud_bucket).stream(KEY, 0, len(data))
    next(blocks)
    with cafcat_object(cloud_bucket, KEY) as content:
        cloud_bucket.write(KEY, data[::-1])
        with pytest.raises(Conflict):
            content(0, 10)


def test_pages_of_folders(cloud_bucket: Bucket) -> None:
    """A listing with a delimiter finds the folders of a bucket, page by page, also after a key."""
    keys = ["a/1", "a/2", "b", "c/d/3", "e//4", "é/5"]
    for key in keys:
        cloud_bucket.write(key, b"x")
    connection = connect(parse_bucket(cloud_bucket.url), {})

    def listed(**options: Any) -> list[str]:
        found: list[str] = []
        while True:
            page = connection.list_page(MaxKeys=2, **options)
            found += [item["Key"] for item in page["Contents"]]
            found += [item["Prefix"] for item in page["CommonPrefixes"]]
            if not page["IsTruncated"]:
                return sorted(found)
            options["ContinuationToken"] = page["NextContinuationToken"]

    assert listed() == keys
    assert listed(StartAfter="b") == keys[3:]
    assert listed(Delimiter="/") == ["a/", "b", "c/", "e/", "é/"]
    assert listed(Delimiter="/", StartAfter="b") == ["c/", "e/", "é/"]
    assert listed(Delimiter="/", Prefix="c/") == ["c/d/"]
    if isinstance(cloud_bucket.cloud, Azure):  # fake-gcs-server leaves out a folder that begins before the key
        assert listed(Delimiter="/", StartAfter="c/a") == ["c/", "e/", "é/"], "a folder with later keys, as in S3"


def test_missing_buckets_are_named(cloud: Cloud) -> None:
    store = open_store(f"{cloud.scheme}://no-such-bucket")
    for act in (lambda: list(store.list()), lambda: written(store, b"x"), lambda: list(store.uploads())):
        with pytest.raises(CafcatError) as caught:
            act()
        assert "no-such-bucket" in str(caught.value)
    with pytest.raises(NotFound, match="or create it first"):
        list(store.list())


def test_blocks_of_dead_uploads_are_found_and_removed(azure: Azure, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", azure.environ()["AZURE_STORAGE_CONNECTION_STRING"])
    bucket = Bucket(azure, f"test-{uuid.uuid4().hex}")
    azure.make(bucket.name)
    store = store_in(bucket)
    dead = store.create("dead.caf")
    dead.write(b"x" * 12 * MIB)
    bucket.write("empty", b"")
    sent = 0
    while sent == 0 or sent != azure.blocks(bucket.name, "dead.caf"):  # threads send the parts
        sent = azure.blocks(bucket.name, "dead.caf")
        time.sleep(0.3)
    assert list(store.uploads()) == ["dead.caf"]
    assert [found.key for found in store.list()] == ["empty"]
    store.discard("dead.caf")
    store.discard("empty")
    assert list(store.uploads()) == []
    assert azure.keys(bucket.name) == ["empty"]
    with pytest.raises(StoreFailed):
        dead.commit()
    dead.abort()
    assert azure.keys(bucket.name) == ["empty"]


def test_refused_credentials(azure: Azure, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = "d3Jvbmc="  # noqa: S105
    monkeypatch.setenv("AZURE_STORAGE_KEY", secret)
    options = {"account": ACCOUNT, "endpoint_url": f"{azure.endpoint_url}/{ACCOUNT}"}
    store = open_store("az://container", StoreContext(options=options))
    for act in (lambda: list(store.list()), lambda: store.read(KEY, 0, 1), lambda: written(store, b"x")):
        with pytest.raises(CafcatError, match="AZURE_STORAGE_KEY") as caught:
            act()
        assert secret not in str(caught.value)
    with pytest.raises(AccessDenied):
        list(store.list())


def test_the_proxy_of_the_environment_is_used(cloud_bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cafcat.remote.clouds.http.ATTEMPTS", 1)
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", "")
    with pytest.raises(ServerFailed):
        list(store_in(cloud_bucket).list())
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    assert list(store_in(cloud_bucket).list()) == []


def _read_in_child(url: str, connection: "multiprocessing.connection.Connection") -> None:
    connection.send(open_store(url).read(KEY, 1, 5))


@pytest.mark.filterwarnings("ignore:.*use of fork.*:DeprecationWarning")
def test_a_forked_process_reads(cloud_bucket: Bucket) -> None:
    """The threads of obstore do not exist in a forked process: reads do not use it there."""
    cloud_bucket.write(KEY, b"0123456789")
    assert store_in(cloud_bucket).read(KEY, 1, 5) == b"1234"
    here, there = multiprocessing.Pipe()
    child = multiprocessing.get_context("fork").Process(target=_read_in_child, args=(cloud_bucket.url, there))
    child.start()
    assert here.poll(10)
    assert here.recv() == b"1234"
    child.join()


@pytest.fixture
def repository(database_url: str, tmp_path: Path, cloud_bucket: Bucket) -> Iterator[Repository]:
    store = f"{cloud_bucket.url}/chunks"
    home = tmp_path / "home"
    with cafcat.open(database_url=database_url, home=home, store=store, upload_memory="16MB") as repository:
        yield repository


def chunks_in(bucket: Bucket) -> list[str]:
    found = [key for key in bucket.cloud.keys(bucket.name) if key.startswith("chunks/")]
    return sorted(key for key in found if is_chunk_key(key.removeprefix("chunks/")))


ODD_KEYS = [
    "with space",
    "ü/日本/😀",
    "double//slash",
    "/leading",
    "trailing/",
    "a/../b",
    "./c",
    "tab\t",
    "%41?#&+",
    "...",
    "k" * 1000,
    "ü" * 500,
]


def test_objects_of_every_key_and_size_are_ingested(repository: Repository, cloud_bucket: Bucket) -> None:
    content = random.Random(3)
    files = {f"in/{key}": key.encode() for key in ODD_KEYS}
    files |= {f"in/sizes/{size}": content.randbytes(size) for size in (0, 1, MIB - 1, MIB, MIB + 1, 7 * MIB)}
    for key, value in files.items():
        cloud_bucket.write(key, value)
    report = repository.ingest([f"{cloud_bucket.url}/in"], target_size=3 * MIB)
    assert (report.files_added, report.files_failed) == (len(files), 0)
    assert {location.path for location in repository.list()} == set(files)
    for path, value in files.items():
        assert repository.read(path) == value, path
    assert chunks_in(cloud_bucket) == sorted(f"chunks/{chunk.object_key}" for chunk in repository.chunks())
    again = repository.ingest([f"{cloud_bucket.url}/in"])
    assert (again.files_unchanged, again.chunks_committed) == (len(files), 0)


def test_a_list_of_urls(repository: Repository, cloud_bucket: Bucket, tmp_path: Path) -> None:
    cloud_bucket.write("a/one", b"1")
    cloud_bucket.write("b//two", b"2" * 2 * MIB)
    urls = [f"{cloud_bucket.url}/a/one", f"{cloud_bucket.url}/missing", f"{cloud_bucket.url}/b//two"]
    (tmp_path / "list").write_text("\n".join(urls))
    report = repository.ingest(files_from=str(tmp_path / "list"))
    assert (report.files_added, report.files_failed) == (2, 1)
    assert repository.read("b//two") == b"2" * 2 * MIB


def test_own_objects_are_not_ingested(repository: Repository, cloud_bucket: Bucket) -> None:
    cloud_bucket.write("file", b"1")
    repository.ingest([cloud_bucket.url])
    report = repository.ingest([cloud_bucket.url])
    assert (report.files_added, report.files_unchanged) == (0, 1)


def test_interrupted_listing_is_resumed(
    repository: Repository, cloud_bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cafcat.sources.s3.bucket.PAGE_KEYS", 20)  # 1,000 would need thousands of objects
    files = {f"in/{n:05}": b"x" * 1000 for n in range(108)}
    for key, value in files.items():
        cloud_bucket.write(key, value)
    taken = 0

    class Stop(Listener):
        def chunk_committed(self, _chunk: str, files: int, _size_bytes: int) -> None:
            nonlocal taken
            taken += files

    interrupted = repository.with_progress(Following(progress=Stop(), should_stop=lambda: taken > 40))
    assert interrupted.ingest([f"{cloud_bucket.url}/in"], target_size=20_000).interrupted
    notes = Heard()
    report = repository.with_progress(notes).ingest([f"{cloud_bucket.url}/in"])
    assert any("continuing the listing" in warning for warning in notes.warnings)
    assert report.files_unchanged == 0
    assert {location.path for location in repository.list()} == set(files)
    assert repository.ingest([f"{cloud_bucket.url}/in"]).files_unchanged == 108
