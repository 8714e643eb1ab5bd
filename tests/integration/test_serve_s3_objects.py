"""The S3 server: buckets, objects, conditions, ranges and versions, read by boto3."""

import base64
import hashlib
import http.client
import socket
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.request import urlopen

import pytest

import cafcat
from cafcat.catalog.files.versions import DeleteMarker, Version
from cafcat.support.checksums import crc32c
from tests.integration.conftest import Folder
from tests.worlds.catalog_world import MODIFIED
from tests.worlds.servers.s3_gateway import Gateway, gateway
from tests.worlds.waiting import PATIENCE_SECONDS

boto3 = pytest.importorskip("boto3")

pytestmark = pytest.mark.slow

BIG = bytes(range(251)) * 90_000
"""22 MB: more than is checked before the first byte is sent."""
FILES = {
    "photos/2024/cat.jpg": b"meow" * 1000,
    "photos/2024/odd name+%&é日本.txt": b"odd",
    "photos/2025/dog.jpg": b"woof",
    "photos/empty": b"",
    "photos/top.html": b"<p>",
    "video/big.bin": BIG,
    "alone.txt": b"at the top",
}


@pytest.fixture(params=[0.0, 600.0], ids=["new key", "remembered key"])
def server(local: cafcat.Repository, request: pytest.FixtureRequest) -> Iterator[Gateway]:
    """A server that looks the access key up for each request, or remembers it and shares queries."""
    with local.writer() as writer:
        for path, content in FILES.items():
            writer.add(path, content, modified_ns=MODIFIED)
    with gateway(local, key_seconds=request.param) as server:
        yield server


def code_of(error: Any) -> tuple[str, int]:
    return error.value.response["Error"]["Code"], error.value.response["ResponseMetadata"]["HTTPStatusCode"]


def refused(code: str, status: int, function: Any, **arguments: Any) -> None:
    from botocore.exceptions import ClientError

    with pytest.raises(ClientError) as error:
        function(**arguments)
    assert code_of(error) == (code, status)


def test_top_level_folders_are_the_buckets(client: Any) -> None:
    assert [bucket["Name"] for bucket in client.list_buckets()["Buckets"]] == ["photos", "video"]
    page = client.list_buckets(MaxBuckets=1)
    assert [bucket["Name"] for bucket in page["Buckets"]] == ["photos"]
    rest = client.list_buckets(ContinuationToken=page["ContinuationToken"], MaxBuckets=1)
    assert [bucket["Name"] for bucket in rest["Buckets"]] == ["video"]
    assert "ContinuationToken" not in rest
    assert [bucket["Name"] for bucket in client.list_buckets(Prefix="v")["Buckets"]] == ["video"]


def test_buckets_answer(client: Any) -> None:
    assert client.head_bucket(Bucket="photos")["BucketRegion"] == "us-east-1"
    assert client.get_bucket_location(Bucket="photos")["LocationConstraint"] is None
    assert client.get_bucket_versioning(Bucket="photos")["Status"] == "Enabled"
    refused("404", 404, client.head_bucket, Bucket="nothing")
    refused("NoSuchBucket", 404, client.list_objects_v2, Bucket="nothing")
    refused("NoSuchBucket", 404, client.get_object, Bucket="nothing", Key="x")
    refused("NoSuchBucket", 404, client.get_bucket_location, Bucket="alone.txt")


@pytest.mark.parametrize("path", [path for path in FILES if "/" in path])
def test_every_object_is_read_and_its_checksum_checked(client: Any, path: str) -> None:
    bucket, _, key = path.partition("/")
    answer = client.get_object(Bucket=bucket, Key=key, ChecksumMode="ENABLED")
    assert answer["Body"].read() == FILES[path]
    assert type(answer["Body"]).__name__ == "StreamingChecksumBody"
    assert answer["ChecksumCRC32C"] == base64.b64encode(crc32c(FILES[path]).to_bytes(4, "big")).decode()
    assert (answer["ChecksumType"], answer["ContentLength"]) == ("FULL_OBJECT", len(FILES[path]))
    assert answer["LastModified"] == datetime(2026, 11, 21, 10, tzinfo=UTC)
    head = client.head_object(Bucket=bucket, Key=key, ChecksumMode="ENABLED")
    assert {name: head[name] for name in ("ETag", "ContentLength", "ChecksumCRC32C", "VersionId")} == {
        name: answer[name] for name in ("ETag", "ContentLength", "ChecksumCRC32C", "VersionId")
    }
    assert head["Metadata"]["mtime"] == "1795255200.123456"


def test_the_entity_tag_is_no_md5_and_stays(server: Gateway, client: Any) -> None:
    before = client.head_object(Bucket="photos", Key="2024/cat.jpg")
    assert before["ETag"].strip('"').count("-") == 2
    assert hashlib.md5(FILES["photos/2024/cat.jpg"], usedforsecurity=False).hexdigest() not in before["ETag"]
    server.repository.rm(["photos/2025/dog.jpg"])
    server.repository.repack(max_unused=0.0)
    after = client.head_object(Bucket="photos", Key="2024/cat.jpg")
    assert after["VersionId"] != before["VersionId"]
    assert after["ETag"] == before["ETag"]


@pytest.mark.parametrize(
    ("header", "start", "end"),
    [
        ("bytes=0-0", 0, 1),
        ("bytes=5-9", 5, 10),
        ("bytes=3990-", 3990, 4000),
        ("bytes=-7", 3993, 4000),
        ("bytes=0-99999", 0, 4000),
        ("bytes=-99999", 0, 4000),
        ("Bytes = 1 - 2", 1, 3),
    ],
)
def test_ranges(client: Any, header: str, start: int, end: int) -> None:
    answer = client.get_object(Bucket="photos", Key="2024/cat.jpg", Range=header)
    assert answer["Body"].read() == FILES["photos/2024/cat.jpg"][start:end]
    assert answer["ContentRange"] == f"bytes {start}-{end - 1}/4000"
    assert answer["ResponseMetadata"]["HTTPStatusCode"] == 206
    head = client.head_object(Bucket="photos", Key="2024/cat.jpg", Range=header)
    assert (head["ContentLength"], head["ContentRange"]) == (end - start, answer["ContentRange"])


@pytest.mark.parametrize("header", ["bytes=9-5", "bytes=a-b", "bytes=", "lines=0-5", "bytes=0-1,3-4", "bytes=-"])
def test_malformed_and_multiple_ranges_are_ignored(client: Any, header: str) -> None:
    answer = client.get_object(Bucket="photos", Key="2024/cat.jpg", Range=header)
    assert (answer["ResponseMetadata"]["HTTPStatusCode"], len(answer["Body"].read())) == (200, 4000)


@pytest.mark.parametrize(
    ("key", "header"), [("2024/cat.jpg", "bytes=4000-"), ("2024/cat.jpg", "bytes=-0"), ("empty", "bytes=0-")]
)
def test_ranges_beyond_the_end(client: Any, key: str, header: str) -> None:
    refused("InvalidRange", 416, client.get_object, Bucket="photos", Key=key, Range=header)


def test_a_range_of_a_large_object(client: Any) -> None:
    answer = client.get_object(Bucket="video", Key="big.bin", Range="bytes=1000000-9999999")
    assert answer["Body"].read() == BIG[1_000_000:10_000_000]
    assert "ChecksumCRC32C" not in answer  # the checksum is that of the whole object


def test_if_range(server: Gateway, client: Any) -> None:
    tag = client.head_object(Bucket="photos", Key="2024/cat.jpg")["ETag"]
    url = client.generate_presigned_url("get_object", {"Bucket": "photos", "Key": "2024/cat.jpg"})
    for given, status in ((tag, 206), ('"other"', 200), ("Sat, 21 Nov 2026 10:00:00 GMT", 206), ("nonsense", 200)):
        assert wire(server, url, headers={"Range": "bytes=0-1", "If-Range": given})[0] == status


def test_parts(client: Any) -> None:
    answer = client.get_object(Bucket="photos", Key="2024/cat.jpg", PartNumber=1)
    assert answer["Body"].read() == FILES["photos/2024/cat.jpg"]
    assert answer["ContentRange"] == "bytes 0-3999/4000"
    assert client.head_object(Bucket="photos", Key="empty", PartNumber=1)["ContentLength"] == 0
    key = {"Bucket": "photos", "Key": "2024/cat.jpg"}
    refused("InvalidPartNumber", 416, client.get_object, **key, PartNumber=2)
    refused("InvalidArgument", 400, client.get_object, **key, PartNumber=0)
    refused("InvalidRequest", 400, client.get_object, **key, PartNumber=1, Range="bytes=0-1")


TIME = datetime(2026, 11, 21, 10, tzinfo=UTC)
EARLIER, LATER = TIME - timedelta(days=1), TIME + timedelta(days=1)


@pytest.mark.parametrize(
    ("conditions", "status"),
    [
        ({"IfMatch": True}, 200),
        ({"IfMatch": False}, 412),
        ({"IfNoneMatch": True}, 304),
        ({"IfNoneMatch": False}, 200),
        ({"IfModifiedSince": EARLIER}, 200),
        ({"IfModifiedSince": TIME}, 304),
        ({"IfUnmodifiedSince": EARLIER}, 412),
        ({"IfUnmodifiedSince": TIME}, 200),
        ({"IfMatch": True, "IfUnmodifiedSince": EARLIER}, 200),
        ({"IfMatch": False, "IfUnmodifiedSince": LATER}, 412),
        ({"IfNoneMatch": True, "IfModifiedSince": EARLIER}, 304),
        ({"IfNoneMatch": False, "IfModifiedSince": LATER}, 200),
        ({"IfMatch": False, "IfNoneMatch": True}, 412),
    ],
)
def test_conditions_have_the_precedence_of_s3(client: Any, conditions: dict[str, Any], status: int) -> None:
    from botocore.exceptions import ClientError

    tag = client.head_object(Bucket="photos", Key="2024/cat.jpg")["ETag"]
    given = {True: tag, False: '"other-tag"'}
    arguments = {name: given[value] if value in (True, False) else value for name, value in conditions.items()}
    for function in (client.get_object, client.head_object):
        try:
            answer = function(Bucket="photos", Key="2024/cat.jpg", **arguments)
        except ClientError as error:
            answer = error.response
        if "Body" in answer:
            answer["Body"].read()
        assert answer["ResponseMetadata"]["HTTPStatusCode"] == status


def test_headers_of_the_answer_can_be_set_by_a_signed_request(server: Gateway, client: Any) -> None:
    answer = client.get_object(
        Bucket="photos",
        Key="2024/cat.jpg",
        ResponseContentType="text/x-cat",
        ResponseContentDisposition='attachment; filename="a b.jpg"',
        ResponseCacheControl="no-store",
    )
    assert (answer["ContentType"], answer["CacheControl"]) == ("text/x-cat", "no-store")
    assert answer["ContentDisposition"] == 'attachment; filename="a b.jpg"'
    arguments = {"Bucket": "photos", "Key": "2024/cat.jpg"}
    answer["Body"].read()  # an unread body would leave a connection open
    assert client.head_object(**arguments)["ContentType"] == "image/jpeg"
    refused("InvalidArgument", 400, client.get_object, **arguments, ResponseContentType="a\r\nSet-Cookie: b")


def test_attributes(client: Any) -> None:
    names = ["ETag", "Checksum", "ObjectSize", "StorageClass", "ObjectParts"]
    answer = client.get_object_attributes(Bucket="photos", Key="2024/cat.jpg", ObjectAttributes=names)
    head = client.head_object(Bucket="photos", Key="2024/cat.jpg", ChecksumMode="ENABLED")
    assert answer["ETag"] == head["ETag"].strip('"')
    assert answer["Checksum"] == {"ChecksumCRC32C": head["ChecksumCRC32C"], "ChecksumType": "FULL_OBJECT"}
    assert (answer["ObjectSize"], answer["StorageClass"]) == (4000, "STANDARD")
    arguments = {"Bucket": "photos", "Key": "2024/cat.jpg"}
    refused("InvalidArgument", 400, client.get_object_attributes, **arguments, ObjectAttributes=["Colour"])


def test_versions(server: Gateway, client: Any) -> None:
    key = {"Bucket": "photos", "Key": "2024/cat.jpg"}
    first = client.head_object(**key)["VersionId"]
    for content in (b"second", b"third"):
        with server.repository.writer() as writer:
            writer.add("photos/2024/cat.jpg", content, modified_ns=MODIFIED + len(content))
    server.repository.rm(["photos/2025/dog.jpg"])
    listed = client.list_object_versions(Bucket="photos")["Versions"]
    names = [(version["Key"], version["IsLatest"]) for version in listed]
    assert names[:3] == [("2024/cat.jpg", True), ("2024/cat.jpg", False), ("2024/cat.jpg", False)]
    assert ("2025/dog.jpg", False) in names
    contents = [client.get_object(**key, VersionId=v["VersionId"])["Body"].read() for v in listed[:3]]
    assert contents == [b"third", b"second", b"meow" * 1000]
    assert listed[2]["VersionId"] == first
    refused("NoSuchKey", 404, client.get_object, Bucket="photos", Key="2025/dog.jpg")
    refused("NoSuchVersion", 404, client.get_object, **key, VersionId="null")
    refused("NoSuchVersion", 404, client.get_object, **key, VersionId=f"{0:032x}.0.1")
    refused("InvalidArgument", 400, client.get_object, **key, VersionId="nonsense")
    refused("NoSuchVersion", 404, client.get_object, Bucket="photos", Key="2025/dog.jpg", VersionId=first)


def test_a_version_whose_chunk_was_pruned_is_gone(server: Gateway, client: Any) -> None:
    server.repository.rm(["photos/2025/dog.jpg"])
    with server.repository.writer() as writer:
        writer.add("photos/one", b"old")
    old = client.head_object(Bucket="photos", Key="one")["VersionId"]
    with server.repository.writer() as writer:
        writer.add("photos/one", b"new")
    key = {"Bucket": "photos", "Key": "one"}
    assert client.get_object(**key, VersionId=old)["Body"].read() == b"old"
    server.repository.prune(grace_seconds=0)
    refused("NoSuchVersion", 404, client.get_object, **key, VersionId=old)
    listed = client.list_object_versions(Bucket="photos", Prefix="one")["Versions"]
    assert [version["IsLatest"] for version in listed] == [True]


@pytest.mark.parametrize("limit", [1, 2, 3, 1000])
@pytest.mark.parametrize("delimiter", ["", "/", "a"])
def test_pages_of_versions_have_every_version_once(
    server: Gateway, client: Any, limit: int, delimiter: str
) -> None:
    for content in (b"1", b"22", b"333"):
        with server.repository.writer() as writer:
            writer.add("photos/2024/cat.jpg", content, modified_ns=MODIFIED)
            writer.add("photos/a/b/c", content, modified_ns=MODIFIED)
    arguments = {"Bucket": "photos", "Delimiter": delimiter}
    whole = client.list_object_versions(**arguments)
    entries, marker = [], {}
    while True:
        page = client.list_object_versions(**arguments, **marker, MaxKeys=limit)
        versions = [(v["Key"], v["VersionId"]) for v in page.get("Versions", [])]
        entries += versions + [(p["Prefix"], "") for p in page.get("CommonPrefixes", [])]
        if not page["IsTruncated"]:
            break
        marker = {"KeyMarker": page["NextKeyMarker"]}
        if page.get("NextVersionIdMarker"):
            marker["VersionIdMarker"] = page["NextVersionIdMarker"]
    expected = [(v["Key"], v["VersionId"]) for v in whole.get("Versions", [])]
    assert sorted(entries) == sorted(expected + [(p["Prefix"], "") for p in whole.get("CommonPrefixes", [])])
    assert len(set(entries)) == len(entries)


@pytest.mark.parametrize("limit", [1, 2, 3, 5, 100])
def test_pages_of_the_catalog_have_every_version_once(local: cafcat.Repository, limit: int) -> None:
    for content in (b"1", b"22", b"333", b"4444"):
        with local.writer() as writer:
            for path in ("a", "b/c", "b/d"):
                writer.add(path, content, modified_ns=MODIFIED)
    with local.writer() as writer:
        writer.add("b", b"never replaced")
    local.rm(["b/d"])
    versions, found, following = local.session.catalog.versions, [], ""
    while following is not None:
        page = versions.page(following, None, limit)
        found += [(entry.location.path, entry.location.size_bytes, kind_of(entry)) for entry in page.versions]
        assert page.following is None or page.following > following
        following = page.following
    former = [(3, "former"), (2, "former"), (1, "former")]
    of_d = [(4, "removal"), (4, "former"), *former]
    expected = [("a", 4, "live"), *(("a", *version) for version in former), ("b", 14, "live")]
    expected += [("b/c", 4, "live"), *(("b/c", *version) for version in former)]
    assert found == expected + [("b/d", *version) for version in of_d]


def kind_of(entry: Version | DeleteMarker) -> str:
    if isinstance(entry, DeleteMarker):
        return "removal"
    return "live" if entry.is_live else "former"


def test_the_owner_that_a_client_expects(client: Any) -> None:
    key = {"Bucket": "photos", "Key": "2024/cat.jpg"}
    assert client.head_object(**key, ExpectedBucketOwner="cafcat")["ContentLength"] == 4000
    refused("AccessDenied", 403, client.get_object, **key, ExpectedBucketOwner="123456789012")
    refused("AccessDenied", 403, client.list_objects_v2, Bucket="photos", ExpectedBucketOwner="123456789012")


def test_writing_is_refused(client: Any) -> None:
    key = {"Bucket": "photos", "Key": "2024/cat.jpg"}
    refused("MethodNotAllowed", 405, client.put_object, **key, Body=b"x")
    refused("MethodNotAllowed", 405, client.delete_object, **key)
    refused("MethodNotAllowed", 405, client.delete_objects, Bucket="photos", Delete={"Objects": [{"Key": "x"}]})
    refused("MethodNotAllowed", 405, client.copy_object, **key, CopySource="photos/empty")
    refused("MethodNotAllowed", 405, client.create_bucket, Bucket="new")
    refused("MethodNotAllowed", 405, client.create_multipart_upload, **key)
    assert client.get_object(**key)["Body"].read() == FILES["photos/2024/cat.jpg"]


def test_other_parts_of_buckets_and_objects_are_not_implemented(client: Any) -> None:
    refused("NotImplemented", 501, client.get_bucket_acl, Bucket="photos")
    refused("NotImplemented", 501, client.get_object_tagging, Bucket="photos", Key="empty")
    refused("NotImplemented", 501, client.list_multipart_uploads, Bucket="photos")


def test_one_bucket_with_all_paths(server: Gateway) -> None:
    with gateway(server.repository, bucket="all") as one:
        client = one.client()
        assert [bucket["Name"] for bucket in client.list_buckets()["Buckets"]] == ["all"]
        keys = [entry["Key"] for entry in client.list_objects_v2(Bucket="all")["Contents"]]
        assert keys == sorted(FILES, key=str.encode)
        assert client.get_object(Bucket="all", Key="alone.txt")["Body"].read() == b"at the top"
        refused("NoSuchBucket", 404, client.list_objects_v2, Bucket="photos")


def test_the_bucket_in_the_host_name(server: Gateway) -> None:
    with gateway(server.repository, domain="s3.localhost") as virtual:
        key = {"Bucket": "photos", "Key": "2024/cat.jpg"}
        client = virtual.client()
        url = client.generate_presigned_url("get_object", key)
        assert wire(virtual, url)[0] == 200  # an address is no bucket
        import boto3
        from botocore.config import Config

        signer = boto3.client(
            "s3",
            endpoint_url=f"http://s3.localhost:{virtual.port}",
            region_name="us-east-1",
            aws_access_key_id=virtual.key.access_key_id,
            aws_secret_access_key=virtual.key.secret_access_key,
            config=Config(s3={"addressing_style": "virtual"}, signature_version="s3v4"),
        )
        url = signer.generate_presigned_url("get_object", key)
        assert url.startswith(f"http://photos.s3.localhost:{virtual.port}/2024/cat.jpg?")
        assert wire(virtual, url) == (200, FILES["photos/2024/cat.jpg"])


def wire(server: Gateway, url: str, headers: dict[str, str] | None = None) -> tuple[int, bytes]:
    """Send a GET for an URL to the server, whatever the host name in the URL."""
    host, _, target = url.removeprefix("http://").partition("/")
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    connection.request("GET", f"/{target}", headers={"Host": host} | (headers or {}))
    answer = connection.getresponse()
    result = answer.status, answer.read()
    connection.close()
    return result


def test_a_client_that_leaves_ends_its_stream(
    server: Gateway, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server neither reads the rest of the file, nor keeps the file open."""
    taken: list[int] = []
    ended = threading.Event()
    stream = server.repository.stream_location

    def watched(*arguments: Any) -> Iterator[bytes]:
        try:
            for block in stream(*arguments):
                taken.append(len(block))
                yield block
        finally:
            ended.set()

    monkeypatch.setattr(server.repository, "stream_location", watched)
    url = client.generate_presigned_url("get_object", {"Bucket": "video", "Key": "big.bin"})
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        target = url.removeprefix(server.url)
        connection.sendall(f"GET {target} HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n\r\n".encode())
        assert connection.recv(1000).startswith(b"HTTP/1.1 200")
    assert ended.wait(PATIENCE_SECONDS)
    assert sum(taken) < len(BIG)


def test_a_damaged_object_is_not_delivered(server: Gateway, client: Any, folder: Folder) -> None:
    location = server.repository.locate("photos/2024/cat.jpg")
    archive = server.repository.object_of(location)
    big = server.repository.locate("video/big.bin")
    with open(archive, "r+b") as file:
        for place in (location, big):
            file.seek(place.end_byte - 1)
            byte = file.read(1)[0]
            file.seek(place.end_byte - 1)
            file.write(bytes([byte ^ 1]))
    refused("InternalError", 500, client.get_object, Bucket="photos", Key="2024/cat.jpg")
    url = client.generate_presigned_url("get_object", {"Bucket": "video", "Key": "big.bin"})
    with urlopen(url) as answer, pytest.raises(http.client.IncompleteRead):  # noqa: S310 - an HTTP URL
        answer.read()
