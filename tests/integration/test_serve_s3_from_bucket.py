"""The S3 server over chunks that are in a bucket of another S3 server."""

import base64
from collections.abc import Iterator
from typing import Any

import pytest

import cafcat
from cafcat.support.checksums import crc32c
from tests.worlds.catalog_world import MODIFIED, Opener
from tests.worlds.places import PREFIX, Bucket
from tests.worlds.servers.s3_gateway import Gateway, gateway

pytest.importorskip("boto3")

pytestmark = pytest.mark.slow

LARGE = bytes(range(251)) * 40_000
"""10 MB: more than is checked before the first byte is sent, and more than one request to the bucket."""
FILES = {
    "photos/2024/cat.jpg": b"meow" * 1000,
    "photos/2024/odd name+%&é日本.txt": b"odd",
    "photos/empty": b"",
    "photos/large.bin": LARGE,
}


@pytest.fixture
def server(open_at: Opener, bucket: Bucket) -> Iterator[Gateway]:
    repository = open_at(bucket)
    write(repository, FILES)
    with gateway(repository) as server:
        yield server


def write(repository: cafcat.Repository, files: dict[str, bytes]) -> None:
    with repository.writer() as writer:
        for path, content in files.items():
            writer.add(path, content, modified_ns=MODIFIED)


def test_listings(client: Any) -> None:
    assert [bucket["Name"] for bucket in client.list_buckets()["Buckets"]] == ["photos"]
    listed = client.list_objects_v2(Bucket="photos")["Contents"]
    assert {f"photos/{entry['Key']}": entry["Size"] for entry in listed} == {
        path: len(content) for path, content in FILES.items()
    }
    level = client.list_objects_v2(Bucket="photos", Delimiter="/")
    assert [prefix["Prefix"] for prefix in level["CommonPrefixes"]] == ["2024/"]


@pytest.mark.parametrize("path", FILES)
def test_every_object_is_read_and_its_checksum_checked(client: Any, path: str) -> None:
    answer = client.get_object(Bucket="photos", Key=path.removeprefix("photos/"), ChecksumMode="ENABLED")
    assert type(answer["Body"]).__name__ == "StreamingChecksumBody"
    assert answer["Body"].read() == FILES[path]
    assert answer["ChecksumCRC32C"] == base64.b64encode(crc32c(FILES[path]).to_bytes(4, "big")).decode()


@pytest.mark.parametrize(("start", "end"), [(0, 1), (4_000_000, 9_500_000), (len(LARGE) - 5, len(LARGE))])
def test_ranges(client: Any, start: int, end: int) -> None:
    answer = client.get_object(Bucket="photos", Key="large.bin", Range=f"bytes={start}-{end - 1}")
    assert answer["Body"].read() == LARGE[start:end]
    assert answer["ContentRange"] == f"bytes {start}-{end - 1}/{len(LARGE)}"


def test_versions(server: Gateway, client: Any) -> None:
    write(server.repository, {"photos/empty": b"no more"})
    server.repository.rm(["photos/large.bin"])
    page = client.list_object_versions(Bucket="photos")
    contents = {
        (entry["Key"], entry["IsLatest"]): client.get_object(
            Bucket="photos", Key=entry["Key"], VersionId=entry["VersionId"]
        )["Body"].read()
        for entry in page["Versions"]
    }
    assert contents[("empty", True)] == b"no more"
    assert contents[("empty", False)] == b""
    assert contents[("large.bin", False)] == LARGE
    assert [(entry["Key"], entry["IsLatest"]) for entry in page["DeleteMarkers"]] == [("large.bin", True)]


def test_a_missing_chunk_is_an_error_of_the_server(server: Gateway, client: Any, bucket: Bucket) -> None:
    from botocore.exceptions import ClientError

    location = server.repository.locate("photos/2024/cat.jpg")
    bucket.client.delete_object(Bucket=bucket.bucket, Key=PREFIX + location.object_key)
    with pytest.raises(ClientError) as error:
        client.get_object(Bucket="photos", Key="2024/cat.jpg")
    assert error.value.response["ResponseMetadata"]["HTTPStatusCode"] == 500
    assert location.object_key not in str(error.value.response)
