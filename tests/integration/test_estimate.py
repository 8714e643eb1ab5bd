"""The estimate of a bucket, against the requests that an ingest of the same bucket sends."""

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import cafcat
from cafcat.repository import Repository
from tests.integration.test_s3_ingest import Bucket
from tests.worlds.servers.s3_proxy import S3Proxy
from tests.worlds.servers.s3_server import S3Server

pytestmark = pytest.mark.usefixtures("s3_proxy_environment")


@pytest.fixture
def source(s3_server: S3Server, make_bucket: Callable[[], str]) -> Bucket:
    bucket = Bucket(s3_server, make_bucket())
    bucket.put({f"a/{n % 7}/{n:04}.bin": random.Random(n).randbytes(20_000) for n in range(1100)})
    return bucket


@pytest.fixture
def repository(
    database_url: str, tmp_path: Path, s3_server: S3Server, make_bucket: Callable[[], str]
) -> Iterator[Repository]:
    store = f"{Bucket(s3_server, make_bucket()).url}/chunks"
    with cafcat.open(
        database_url=database_url, home=tmp_path / "home", store=store, upload_memory="16MB", target_size="9MB"
    ) as repository:
        yield repository


def test_an_ingest_sends_the_estimated_requests(repository: Repository, source: Bucket, s3_proxy: S3Proxy) -> None:
    source.put({"b/0.bin": b"not in the folder"})
    url = f"{source.url}/a/"
    found = repository.estimate([url], read_seconds=600.0)
    assert (found.is_exact, found.objects, found.size_bytes) == (True, 1100, 22_000_000)
    assert found.speed.objects == 500
    assert found.hours is not None
    assert s3_proxy.counts() == {"ListObjectsV2": 2, "GetObject": 500}
    repository.ingest([url], include=["nothing"])  # writes the marker of the catalog
    s3_proxy.clear()
    report = repository.ingest([url])
    counts = s3_proxy.counts()
    assert report.chunks_committed == found.chunks == 3
    assert counts["ListObjectsV2"] == found.requests.list
    assert counts["CreateMultipartUpload"] + counts["UploadPart"] == found.requests.part
    assert counts["CompleteMultipartUpload"] == found.requests.put
    assert counts["GetObject"] + counts["HeadObject"] == found.requests.get + found.requests.head


def test_an_ingest_by_an_inventory_sends_no_list_request(
    repository: Repository, source: Bucket, s3_proxy: S3Proxy, tmp_path: Path
) -> None:
    rows = ["Bucket,Key,Size,LastModifiedDate,ETag"]
    for found in source.client.list_objects_v2(Bucket=source.name, Prefix="a/0/")["Contents"]:
        etag = found["ETag"].strip('"')
        rows.append(f"{source.name},{found['Key']},{found['Size']},2026-01-01T00:00:00.000Z,{etag}")
    inventory = tmp_path / "inventory.csv"
    inventory.write_text("\n".join(rows))
    estimate = repository.estimate([source.url], inventory=str(inventory), read_seconds=0)
    assert (estimate.requests.list, estimate.requests.get) == (0, len(rows) - 1)
    repository.ingest([source.url], include=["nothing"])  # writes the marker of the catalog
    s3_proxy.clear()
    report = repository.ingest([source.url], inventory=str(inventory))
    assert report.files_added == estimate.requests.get
    assert s3_proxy.count("ListObjectsV2") == 0


def test_an_estimate_of_a_large_bucket_reads_a_part_of_the_listing(
    repository: Repository, source: Bucket, s3_proxy: S3Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cafcat.operations.estimate.counting._COUNT_PAGES", 1)
    found = repository.estimate([source.url], pages=5, read_seconds=0)
    assert s3_proxy.count("ListObjectsV2") <= 10
    assert s3_proxy.count("GetObject") == 0
    assert (found.is_exact, found.hours) == (False, None)
    assert found.objects_range[0] <= 1100 <= found.objects_range[1]


def test_the_bandwidth_bounds_the_time(repository: Repository, source: Bucket) -> None:
    found = repository.estimate([source.url], bandwidth=1000, read_seconds=0)
    assert (found.hours_by, found.hours) == ("bandwidth", pytest.approx(22_000 / 3600))
