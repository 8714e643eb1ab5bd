"""Ingest from a bucket into a bucket, and reading back."""

import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest

import cafcat
from cafcat.errors import AccessDenied, NotFound
from cafcat.model import FileProblem, OnConflict
from cafcat.operations.chosen_stores import store_to_write
from cafcat.operations.joining import join_store
from cafcat.operations.stores.check import check_store
from cafcat.reports import IngestReport
from cafcat.repository import Repository
from cafcat.stores.keys import is_chunk_key
from tests.worlds.listeners import Following, Heard, Listener
from tests.worlds.servers.s3_proxy import Fault, Request, S3Proxy, faults_in_order, seeded_faults
from tests.worlds.servers.s3_server import S3Server

MIB = 1 << 20

pytestmark = pytest.mark.usefixtures("s3_proxy_environment")


@pytest.fixture(autouse=True)
def _little_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let reads give up soon after 503 SlowDown. `test_limits` tests the patience."""
    monkeypatch.setattr("cafcat.remote.reading._OVERLOADED_SECONDS", 0.0)


class Bucket:
    """A bucket, accessed without the proxy."""

    def __init__(self, server: S3Server, name: str) -> None:
        self.client = server.client()
        self.name = name
        self.url = f"s3://{name}"

    def put(self, files: dict[str, bytes]) -> None:
        for key, data in files.items():
            self.client.put_object(Bucket=self.name, Key=key, Body=data)

    def keys(self) -> list[str]:
        """Return the keys of chunks."""
        found = [item["Key"] for item in self.client.list_objects_v2(Bucket=self.name).get("Contents", [])]
        return [key for key in found if is_chunk_key(key.removeprefix("chunks/"))]


@pytest.fixture
def source(s3_server: S3Server, make_bucket: Callable[[], str]) -> Bucket:
    return Bucket(s3_server, make_bucket())


@pytest.fixture
def target(s3_server: S3Server, make_bucket: Callable[[], str]) -> Bucket:
    return Bucket(s3_server, make_bucket())


@pytest.fixture
def repository(database_url: str, tmp_path: Path, target: Bucket) -> Iterator[Repository]:
    store = f"{target.url}/chunks"
    with cafcat.open(
        database_url=database_url, home=tmp_path / "home", store=store, upload_memory="16MB"
    ) as repository:
        # Write the marker first, so that a test counts only the requests of its own ingest.
        join_store(repository.session, store_to_write(repository.session))
        yield repository


def check(repository: Repository, expected: dict[str, bytes]) -> None:
    assert {location.path for location in repository.list()} == set(expected)
    for path, data in expected.items():
        assert repository.read(path) == data, path


ODD_KEYS = [
    "with space",
    "ü/日本/😀",
    "double//slash",
    "/leading",
    "trailing/",
    "a/../b",
    "./c",
    "new\nline",
    "tab\t",
    "%41?#&+",
    "back\\slash",
    "...",
    "k" * 1000,
    "ü" * 512,
]


def test_objects_of_every_key_and_size_are_ingested(repository: Repository, source: Bucket, target: Bucket) -> None:
    content = random.Random(3)
    files = {key: key.encode() for key in ODD_KEYS}
    files |= {f"sizes/{size}": content.randbytes(size) for size in (0, 1, 4096, MIB - 1, MIB, MIB + 1, 7 * MIB)}
    source.put(files)
    report = repository.ingest([source.url], target_size=3 * MIB)
    assert (report.files_added, report.files_failed) == (len(files), 0)
    check(repository, files)
    assert all(chunk.store == f"{target.url}/chunks" for chunk in repository.chunks())
    assert sorted(target.keys()) == sorted(f"chunks/{chunk.object_key}" for chunk in repository.chunks())
    again = repository.ingest([source.url])
    assert (again.files_unchanged, again.chunks_committed) == (len(files), 0)


@pytest.mark.parametrize(
    ("count", "page_keys"), [(55, 50), pytest.param(1100, 1000, marks=pytest.mark.slow, id="as released")]
)
def test_number_of_requests_is_minimal(
    repository: Repository,
    source: Bucket,
    s3_proxy: S3Proxy,
    monkeypatch: pytest.MonkeyPatch,
    count: int,
    page_keys: int,
) -> None:
    """N small objects need N GETs, the pages of the listing, the parts of the chunk, and its journal record.

    There is also one GET of the marker of the store.
    """
    monkeypatch.setattr("cafcat.sources.s3.bucket.PAGE_KEYS", page_keys)
    source.put({"before": b"the first ingest writes the marker"})
    repository.ingest([source.url])
    put_many(source, {f"file-{n:04}": b"%d" % n for n in range(count)})
    s3_proxy.clear()
    repository.ingest([source.url])
    assert s3_proxy.counts() == {
        "ListObjectsV2": 2,
        "GetObject": count + 1,
        "CreateMultipartUpload": 2,
        "UploadPart": 2,
        "CompleteMultipartUpload": 2,
        "HeadObject": 2,
    }
    s3_proxy.clear()
    repository.ingest([source.url])
    assert s3_proxy.counts() == {"ListObjectsV2": 2, "GetObject": 1}
    s3_proxy.clear()
    assert repository.read("file-0050") == b"50"
    assert s3_proxy.counts() == {"GetObject": 1}


def test_changed_objects_are_found_by_their_entity_tags(
    repository: Repository, source: Bucket, s3_proxy: S3Proxy
) -> None:
    source.put({"same": b"1", "changed": b"old", "gone": b"2"})
    repository.ingest([source.url])
    source.put({"changed": b"new"})
    s3_proxy.clear()
    report = repository.ingest([source.url])
    assert (report.files_replaced, report.files_unchanged) == (1, 2)
    assert s3_proxy.count("GetObject") == 2  # one of them for the marker of the store
    assert repository.read("changed") == b"new"
    with psycopg.connect(repository.settings.database_url or "") as connection:
        tags = dict(connection.execute("SELECT file_path, source_etag FROM file_locations"))
        old = connection.execute("SELECT source_etag FROM retired_locations").fetchall()
    found = {key: source.client.head_object(Bucket=source.name, Key=key)["ETag"].strip('"') for key in tags}
    assert tags == found
    assert len(old) == 1
    assert old[0][0] not in tags.values()


def test_the_url_of_a_folder_or_of_one_object(repository: Repository, source: Bucket) -> None:
    source.put({"a": b"1", "a-b": b"2", "a/x": b"3", "a/y/z": b"4", "ab": b"5"})
    assert repository.ingest([f"{source.url}/a"]).files_added == 3
    check(repository, {"a": b"1", "a/x": b"3", "a/y/z": b"4"})
    assert repository.ingest([f"{source.url}/a/"], prefix="p").files_added == 2
    assert repository.ingest([f"{source.url}/a/y/z"], prefix="one").files_added == 1
    assert repository.read("p/a/x") == b"3"
    assert repository.read("one/a/y/z") == b"4"
    assert repository.ingest([f"{source.url}/a"], prefix="jpg", include=["y/"]).files_added == 1
    with pytest.raises(NotFound):
        repository.ingest([f"{source.url}/nothing"])
    with pytest.raises(NotFound, match="bucket"):
        repository.ingest(["s3://no-such-bucket-anywhere/a"])


def test_a_key_too_long_by_its_prefix_is_refused_by_name(repository: Repository, source: Bucket) -> None:
    source.put({"k" * 1000: b"1", "b": b"2"})
    notes = Heard()
    report = repository.with_progress(notes).ingest([source.url], prefix="p" * 1100)
    assert (report.files_added, report.files_failed) == (1, 1)
    assert [problem.kind for problem in notes.problems] == ["name"]


def test_chunks_of_the_store_are_not_packed_into_chunks(database_url: str, tmp_path: Path, source: Bucket) -> None:
    source.put({"mine": b"1", "chunks.txt": b"2"})
    with cafcat.open(database_url=database_url, home=tmp_path, store=source.url) as repository:
        for added in (2, 0, 0):
            report = repository.ingest([source.url])
            assert report.files_added == added
        check(repository, {"mine": b"1", "chunks.txt": b"2"})


class Overwriting(Listener):
    """Changes objects when the first file is done. Later objects were listed by then, and not read."""

    def __init__(self, change: Callable[[], None]) -> None:
        self.change: Callable[[], None] | None = change
        self.problems: dict[str, str] = {}

    def begin(self, *_: object, **__: object) -> None:
        if self.change:
            self.change()
            self.change = None

    def problem(self, problem: FileProblem) -> None:
        self.problems[problem.path] = problem.kind


def test_objects_that_change_after_they_were_listed_fail_alone(repository: Repository, source: Bucket) -> None:
    big = random.Random(1).randbytes(3 * MIB)
    source.put({"a": b"1", "b": b"2", "big": big, "big-changed": big, "big-gone": big, "c": b"3"})

    def change() -> None:
        source.put({"b": b"X", "big-changed": big[::-1]})
        for key in ("c", "big-gone"):
            source.client.delete_object(Bucket=source.name, Key=key)

    notes = Overwriting(change)
    report = repository.with_progress(notes).ingest([source.url])
    assert (report.files_added, report.files_failed) == (2, 4)
    assert notes.problems == {"b": "changed", "big-changed": "changed", "big-gone": "vanished", "c": "vanished"}
    check(repository, {"a": b"1", "big": big})
    assert repository.ingest([source.url]).files_added == 2
    check(repository, {"a": b"1", "b": b"X", "big": big, "big-changed": big[::-1]})


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))])
def test_under_faults_nothing_is_lost_and_nothing_comes_twice(
    repository: Repository, source: Bucket, target: Bucket, s3_proxy: S3Proxy, seed: int
) -> None:
    content = random.Random(seed)
    files = {f"{n:03}": content.randbytes(content.randrange(60_000)) for n in range(150)}
    files |= {f"large-{n}": content.randbytes(2 * MIB + n) for n in range(3)}
    source.put(files)
    s3_proxy.faults = seeded_faults(seed, 0.1)
    for _ in range(6):
        report = ingest_whatever_happens(repository, source)
        if report is not None and report.files_failed == 0:
            break
    s3_proxy.faults = lambda _: None
    report = repository.ingest([source.url], restart_listing=True)
    assert report.files_failed == 0
    check(repository, files)
    committed = [chunk for chunk in repository.chunks() if chunk.state == "committed"]
    assert sum(chunk.file_count for chunk in committed) == len(files), "nothing twice"
    expire_leases(repository)
    repository.recover()
    assert target.client.list_multipart_uploads(Bucket=target.name).get("Uploads", []) == []
    assert sorted(target.keys()) == sorted(f"chunks/{chunk.object_key}" for chunk in committed)


def ingest_whatever_happens(repository: Repository, source: Bucket) -> IngestReport | None:
    try:
        return repository.ingest([source.url], target_size=MIB)
    except cafcat.CafcatError:
        return None


def expire_leases(repository: Repository) -> None:
    with psycopg.connect(repository.settings.database_url or "") as connection:
        connection.execute("UPDATE chunks SET lease_expires_at = now() - interval '1 s' WHERE state = 'writing'")


def test_source_that_vanishes_commits_packed_files(
    repository: Repository, source: Bucket, s3_proxy: S3Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cafcat.sources.s3.bucket.PAGE_KEYS", 50)
    files = {f"{n:04}": b"%d" % n for n in range(120)}
    put_many(source, files)
    pages = []

    def gone_after_the_first_page(request: object) -> Fault | None:
        if getattr(request, "operation", "") != "ListObjectsV2":
            return None
        pages.append(request)
        return Fault.ERROR_503 if len(pages) > 1 else None

    s3_proxy.faults = gone_after_the_first_page
    with pytest.raises(cafcat.CafcatError, match="SlowDown"):
        repository.ingest([source.url])
    assert [run.state for run in repository.runs()] == ["failed"]
    assert repository.stats().files == 50, "the first page was packed and committed"
    s3_proxy.faults = lambda _: None
    assert repository.ingest([source.url]).files_added == 70
    check(repository, files)


def test_interrupted_listing_is_resumed(
    repository: Repository, source: Bucket, s3_proxy: S3Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cafcat.sources.s3.bucket.PAGE_KEYS", 20)  # 1,000 would need thousands of objects
    files = {f"{n:05}": b"x" * 1000 for n in range(208)}
    put_many(source, files)
    taken = 0

    class Stop(Listener):
        def chunk_committed(self, _chunk: str, files: int, _size_bytes: int) -> None:
            nonlocal taken
            taken += files

    report = repository.with_progress(Following(progress=Stop(), should_stop=lambda: taken > 80)).ingest(
        [source.url],
        target_size=20_000,
    )
    assert report.interrupted
    assert report.files_added > 80
    s3_proxy.clear()
    notes = Heard()
    report = repository.with_progress(notes).ingest([source.url])
    assert s3_proxy.count("ListObjectsV2") <= 7, "of eleven pages, the first four are not asked for again"
    assert report.files_unchanged == 0
    assert any("continuing the listing" in warning for warning in notes.warnings)
    assert {location.path for location in repository.list()} == set(files)
    s3_proxy.clear()
    assert repository.ingest([source.url]).files_unchanged == 208, "a listing that came to its end begins anew"
    assert s3_proxy.count("ListObjectsV2") == 11


def test_listing_is_resumed_only_with_equal_options(
    repository: Repository, source: Bucket, s3_proxy: S3Proxy
) -> None:
    source.put({f"{n}": b"x" for n in range(9)})
    seen = 0

    class Count(Listener):
        def advance(self, files: int, _size_bytes: int) -> None:
            nonlocal seen
            seen += files

    repository.with_progress(Following(progress=Count(), should_stop=lambda: seen >= 5)).ingest(
        [source.url],
    )
    assert repository.stats().files == 5
    assert repository.ingest([source.url], prefix="other").files_added == 9
    assert repository.ingest([source.url], exclude=["8"]).files_added == 3
    report = repository.ingest([source.url], restart_listing=True)
    assert (report.files_unchanged, report.files_added) == (8, 1)


def test_a_dry_run_leaves_no_listing_behind(repository: Repository, source: Bucket) -> None:
    source.put({"a": b"1"})
    assert repository.ingest([source.url], dry_run=True).files_added == 1
    assert repository.ingest([source.url]).files_added == 1
    with psycopg.connect(repository.settings.database_url or "") as connection:
        rows = connection.execute("SELECT position, finished_at IS NOT NULL FROM listings").fetchall()
    assert rows == [("a", True)]


def test_skipped_conflicts_are_not_fetched(repository: Repository, source: Bucket, s3_proxy: S3Proxy) -> None:
    source.put({"a": b"1", "b": b"2"})
    repository.ingest([source.url])
    source.put({"a": b"X", "c": b"3"})
    s3_proxy.clear()
    report = repository.ingest([source.url], on_conflict=OnConflict.SKIP)
    assert (report.files_added, report.files_skipped) == (1, 1)
    assert s3_proxy.count("GetObject") == 2  # one of them for the marker of the store
    check(repository, {"a": b"1", "b": b"2", "c": b"3"})


def test_refused_credentials_end_the_run_and_are_not_shown(
    repository: Repository, source: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    source.put({"a": b"1"})
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "a-wrong-secret")
    with pytest.raises(AccessDenied) as caught:
        repository.ingest([source.url])
    assert "a-wrong-secret" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_folder_goes_into_a_bucket_and_comes_out(
    repository: Repository, tmp_path: Path, target: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    tree = Path("tree")
    (tree / "below").mkdir(parents=True)
    for n in range(50):
        (tree / "below" / f"{n}").write_bytes(random.randbytes(n * 997))
    assert repository.ingest(["tree"]).files_added == 50
    repository.extract("tree", tmp_path / "out")
    for n in range(50):
        assert (tmp_path / "out/tree/below" / f"{n}").read_bytes() == (tree / "below" / f"{n}").read_bytes()
    chunk = next(iter(repository.chunks()))
    with psycopg.connect(repository.settings.database_url or "") as connection:
        row = connection.execute("SELECT etag, upload_id IS NOT NULL, size_bytes FROM chunks").fetchone()
    found = target.client.head_object(Bucket=target.name, Key=f"chunks/{chunk.object_key}")
    assert row == (found["ETag"].strip('"'), True, found["ContentLength"])


def test_a_bucket_that_does_not_exist_ends_the_ingest_before_a_chunk_is_begun(
    database_url: str, tmp_path: Path, source: Bucket, s3_proxy: S3Proxy
) -> None:
    source.put({"a": b"1"})
    with cafcat.open(database_url=database_url, home=tmp_path, store="s3://no-such-bucket-anywhere") as repository:
        with pytest.raises(NotFound, match="no-such-bucket"):
            repository.ingest([source.url])
        assert list(repository.chunks()) == []
        assert repository.stats().files == 0


def put_many(bucket: Bucket, files: dict[str, bytes]) -> None:
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(8) as pool:
        list(
            pool.map(
                lambda item: bucket.client.put_object(Bucket=bucket.name, Key=item[0], Body=item[1]), files.items()
            )
        )


def test_a_run_waits_for_a_slow_server(repository: Repository, source: Bucket, s3_proxy: S3Proxy) -> None:
    source.put({"a": b"1" * 1000, "b": random.Random(1).randbytes(2 * MIB)})
    s3_proxy.faults = faults_in_order("GetObject", Fault.SLOW, Fault.SLOW)
    assert repository.ingest([source.url]).files_added == 2


def test_listing_without_new_files_is_finished(repository: Repository, source: Bucket) -> None:
    """Otherwise the next ingest would resume after the last key, and miss new keys before it."""
    source.put({"k0": b"1", "k1": b"2"})
    assert repository.ingest([source.url]).files_added == 2
    assert repository.ingest([source.url]).files_unchanged == 2
    source.put({"a-new": b"3", "k0": b"other"})
    report = repository.ingest([source.url])
    assert (report.files_added, report.files_replaced) == (1, 1)
    check(repository, {"a-new": b"3", "k0": b"other", "k1": b"2"})


@pytest.mark.parametrize("size_bytes", [10, MIB + 1], ids=["small", "large"])
def test_same_command_after_an_outage_packs_the_missing_files(
    repository: Repository,
    source: Bucket,
    s3_proxy: S3Proxy,
    monkeypatch: pytest.MonkeyPatch,
    size_bytes: int,
) -> None:
    monkeypatch.setattr("cafcat.sources.s3.objects._OUTAGE", 3)
    monkeypatch.setattr("cafcat.remote.connection.ATTEMPTS", 1)  # no waiting between attempts
    monkeypatch.setattr("cafcat.remote.reading._RESUMES", 0)
    files = {f"k{n:02}": b"%02d" % n * (size_bytes // 2) for n in range(12)}
    source.put(files)
    s3_proxy.faults = lambda request: (
        Fault.ERROR_503 if request.operation == "GetObject" and request.key >= "k05" else None
    )
    with pytest.raises(cafcat.CafcatError, match="SlowDown"):
        repository.ingest([source.url])
    assert repository.stats().files == 5, "packed files are not committed"
    s3_proxy.faults = lambda _: None
    repository.ingest([source.url])
    check(repository, files)


def test_failed_object_is_packed_by_the_next_ingest(
    repository: Repository, source: Bucket, s3_proxy: S3Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cafcat.remote.connection.ATTEMPTS", 1)
    files = {f"k{n}": b"%d" % n for n in range(5)}
    source.put(files)
    s3_proxy.faults = lambda request: (
        Fault.ERROR_500 if (request.operation, request.key) == ("GetObject", "k2") else None
    )
    assert repository.ingest([source.url]).files_failed == 1
    s3_proxy.faults = lambda _: None
    report = repository.ingest([source.url])
    assert (report.files_added, report.files_unchanged) == (1, 4)
    check(repository, files)


def test_credentials_that_end_amid_a_large_object_cost_nothing_that_was_packed(
    repository: Repository, source: Bucket, s3_proxy: S3Proxy
) -> None:
    files = {f"k{n}": bytes(2 * MIB) for n in range(4)}
    source.put(files)
    s3_proxy.faults = lambda request: (
        Fault.EXPIRED if (request.operation, request.key) == ("GetObject", "k3") else None
    )
    with pytest.raises(AccessDenied, match="ExpiredToken"):
        repository.ingest([source.url])
    assert {location.path for location in repository.list()} == {"k0", "k1", "k2"}


def test_listing_is_not_resumed_with_another_conflict_rule(repository: Repository, source: Bucket) -> None:
    source.put({f"k{n}": b"old" for n in range(9)})
    repository.ingest([source.url])
    source.put({f"k{n}": b"newer" for n in range(9)})
    seen = 0

    class Count(Listener):
        def problem(self, _: FileProblem) -> None:
            nonlocal seen
            seen += 1

    repository.with_progress(Following(progress=Count(), should_stop=lambda: seen >= 5)).ingest(
        [source.url],
        on_conflict=OnConflict.SKIP,
    )
    assert repository.ingest([source.url]).files_replaced == 9


def test_a_server_that_ignores_if_match_gives_no_mixed_file(
    repository: Repository, source: Bucket, s3_proxy: S3Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cafcat.remote.reading.quoted", lambda _: "*")  # a condition that always holds
    source.put({"large": b"A" * (6 * MIB)})
    began = []

    def overwritten_after_half(request: Request) -> Fault | None:
        if (request.operation, request.bucket) != ("GetObject", source.name):
            return None
        began.append(request)
        if len(began) == 2:
            source.put({"large": b"B" * (7 * MIB)})
        return Fault.CUT_BODY if len(began) == 1 else None

    s3_proxy.faults = overwritten_after_half
    assert repository.ingest([source.url]).files_failed == 1
    assert repository.stats().files == 0
    s3_proxy.faults = lambda _: None
    repository.ingest([source.url])
    check(repository, {"large": b"B" * (7 * MIB)})


def test_idle_writer_keeps_its_lease(
    repository: Repository, source: Bucket, s3_proxy: S3Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cafcat.writing.lease.RENEW_SECONDS", 0.05)
    monkeypatch.setattr("cafcat.sources.s3.bucket.PAGE_KEYS", 2)
    source.put({f"{n}": b"%d" % n for n in range(6)})
    url = repository.settings.database_url or ""
    pages = 0

    def lease_runs_out(request: Request) -> Fault | None:
        """End the lease when the third page is requested. The files of the first page are in an open chunk then."""
        nonlocal pages
        pages += request.operation == "ListObjectsV2"
        if request.operation == "ListObjectsV2" and pages == 3:
            with psycopg.connect(url, autocommit=True) as connection:
                connection.execute("UPDATE chunks SET lease_expires_at = now() - interval '1 h'")
                for _ in range(200):
                    row = connection.execute(
                        "SELECT count(*) FROM chunks WHERE lease_expires_at > now()"
                    ).fetchone()
                    if row and row[0]:
                        break
                    time.sleep(0.05)
                renewed.append(row)
        return None

    renewed: list[object] = []
    s3_proxy.faults = lease_runs_out
    assert repository.ingest([source.url]).files_added == 6
    assert renewed == [(1,)]


def test_folder_markers_become_folders(repository: Repository, source: Bucket, tmp_path: Path) -> None:
    source.put({"top/": b"", "top/empty/": b"", "top/file": b"1"})
    repository.ingest([source.url])
    report = repository.extract("top", tmp_path / "out")
    assert report.files_failed == 0
    assert (tmp_path / "out/top/empty").is_dir()
    assert (tmp_path / "out/top/file").read_bytes() == b"1"


def test_a_bucket_that_was_mistyped_is_neither_made_nor_entered(repository: Repository, source: Bucket) -> None:
    """Some servers make the bucket of a first upload."""
    source.put({"a": b"1"})
    repository.ingest([source.url])
    wrong = f"s3://mistyped-{uuid4()}/chunks"
    for command in (
        lambda: repository.copy(to=wrong),
        lambda: repository.migrate_store(repository.settings.store, wrong),
        lambda: check_store(repository.settings, wrong),
    ):
        with pytest.raises(NotFound):
            command()
    with psycopg.connect(repository.settings.database_url or "") as connection:
        assert connection.execute("SELECT FROM stores WHERE url = %s", [wrong]).rowcount == 0


def test_a_bucket_that_was_mistyped_leaves_nothing_to_recover(repository: Repository, source: Bucket) -> None:
    source.put({"a": b"1"})
    url = repository.settings.database_url or ""
    with (
        cafcat.open(database_url=url, home=repository.settings.home, store="s3://mistyped-bucket") as wrong,
        pytest.raises(NotFound),
    ):
        wrong.ingest([source.url])
    repository.ingest([source.url])
    report = repository.recover()
    assert (report.failed, report.cleaned) == ((), 0) or "mistyped" in report.failed[0]
    with psycopg.connect(url) as connection:
        left = connection.execute("SELECT count(*) FROM chunks WHERE state = 'abandoned' AND deleted_at IS NULL")
        assert left.fetchone() == (0,)
