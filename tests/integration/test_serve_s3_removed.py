"""The S3 server: removed files, which are delete markers in the S3 protocol."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import pytest

import cafcat
from cafcat.serve.s3.keys import add_key
from tests.worlds.servers.s3_gateway import Gateway, gateway

pytest.importorskip("boto3")

pytestmark = pytest.mark.slow

KEY = {"Bucket": "photos", "Key": "cat.jpg"}


@pytest.fixture
def server(local: cafcat.Repository) -> Iterator[Gateway]:
    write(local, "photos/cat.jpg", b"first")
    write(local, "photos/sub/dog.jpg", b"woof")
    with gateway(local) as server:
        yield server


def write(repository: cafcat.Repository, path: str, content: bytes) -> None:
    with repository.writer() as writer:
        writer.add(path, content)


def entries(page: dict[str, Any]) -> list[tuple[str, str, bool, str]]:
    """Return key, kind, IsLatest and name of the versions, then of the delete markers."""
    found = [("version", version) for version in page.get("Versions", [])]
    found += [("marker", marker) for marker in page.get("DeleteMarkers", [])]
    return [(entry["Key"], kind, entry["IsLatest"], entry["VersionId"]) for kind, entry in found]


def kinds(page: dict[str, Any]) -> list[tuple[str, str, bool]]:
    return [entry[:3] for entry in entries(page)]


def refusal(function: Any, **arguments: Any) -> tuple[int, str, dict[str, str]]:
    """Return the status, the code of the error, and the headers about delete markers."""
    from botocore.exceptions import ClientError

    with pytest.raises(ClientError) as error:
        function(**arguments)
    answer = error.value.response["ResponseMetadata"]
    names = ("x-amz-delete-marker", "x-amz-version-id", "last-modified")
    headers = {name: answer["HTTPHeaders"][name] for name in names if name in answer["HTTPHeaders"]}
    return answer["HTTPStatusCode"], error.value.response["Error"]["Code"], headers


def removed(server: Gateway, client: Any) -> dict[str, Any]:
    """Remove the file, and return its delete marker in the listing."""
    server.repository.rm(["photos/cat.jpg"])
    [marker] = client.list_object_versions(Bucket="photos")["DeleteMarkers"]
    return dict(marker)


def test_a_removed_key_is_listed_with_a_delete_marker(server: Gateway, client: Any) -> None:
    before = time.time() - 1
    marker = removed(server, client)
    assert before <= marker["LastModified"].timestamp() <= time.time() + 1
    assert (marker["Key"], marker["IsLatest"]) == ("cat.jpg", True)
    assert marker["Owner"] == {"ID": "cafcat", "DisplayName": "cafcat"}
    page = client.list_object_versions(Bucket="photos", Prefix="cat")
    assert kinds(page) == [("cat.jpg", "version", False), ("cat.jpg", "marker", True)]
    assert [entry["Key"] for entry in client.list_objects_v2(Bucket="photos")["Contents"]] == ["sub/dog.jpg"]


def test_a_removed_key_is_missing_with_the_header_of_a_delete_marker(server: Gateway, client: Any) -> None:
    marker = removed(server, client)
    headers = {"x-amz-delete-marker": "true", "x-amz-version-id": marker["VersionId"]}
    assert refusal(client.get_object, **KEY) == (404, "NoSuchKey", headers)
    assert refusal(client.head_object, **KEY) == (404, "404", headers)
    assert refusal(client.get_object_attributes, **KEY, ObjectAttributes=["ETag"]) == (404, "NoSuchKey", headers)
    assert refusal(client.get_object, Bucket="photos", Key="never") == (404, "NoSuchKey", {})


def test_the_version_of_a_delete_marker_cannot_be_read(server: Gateway, client: Any) -> None:
    version = client.head_object(**KEY)["VersionId"]
    marker = removed(server, client)
    for function, code in ((client.get_object, "MethodNotAllowed"), (client.head_object, "405")):
        status, found, headers = refusal(function, **KEY, VersionId=marker["VersionId"])
        assert (status, found) == (405, code)
        assert parsedate_to_datetime(headers.pop("last-modified")) == marker["LastModified"]
        assert headers == {"x-amz-delete-marker": "true", "x-amz-version-id": marker["VersionId"]}
    assert client.get_object(**KEY, VersionId=version)["Body"].read() == b"first"


def test_names_that_are_no_delete_marker(server: Gateway, client: Any) -> None:
    marker = removed(server, client)["VersionId"]
    other = {"Bucket": "photos", "Key": "sub/dog.jpg"}
    assert refusal(client.get_object, **other, VersionId=marker)[:2] == (404, "NoSuchVersion")
    live = client.head_object(**other)["VersionId"] + ".removed"
    assert refusal(client.get_object, **other, VersionId=live) == (404, "NoSuchVersion", {})
    write(server.repository, "photos/sub/dog.jpg", b"replaced, not removed")
    assert refusal(client.get_object, **other, VersionId=live) == (404, "NoSuchVersion", {})
    assert refusal(client.get_object, **KEY, VersionId=".removed")[:2] == (400, "InvalidArgument")
    assert refusal(client.get_object, **KEY, VersionId=marker + ".removed")[:2] == (400, "InvalidArgument")


def test_a_key_that_exists_again_keeps_its_delete_marker(server: Gateway, client: Any) -> None:
    marker = removed(server, client)["VersionId"]
    write(server.repository, "photos/cat.jpg", b"second")
    page = client.list_object_versions(Bucket="photos", Prefix="cat")
    assert [entry[1:3] for entry in entries(page)] == [("version", True), ("version", False), ("marker", False)]
    assert client.get_object(**KEY)["Body"].read() == b"second"
    assert refusal(client.get_object, **KEY, VersionId=marker)[0] == 405
    server.repository.rm(["photos/cat.jpg"])
    markers = client.list_object_versions(Bucket="photos")["DeleteMarkers"]
    assert [(entry["IsLatest"], entry["VersionId"] == marker) for entry in markers] == [
        (True, False),
        (False, True),
    ]
    assert refusal(client.get_object, **KEY)[2]["x-amz-version-id"] == markers[0]["VersionId"]


def test_undelete_takes_the_delete_marker_away(server: Gateway, client: Any) -> None:
    marker = removed(server, client)["VersionId"]
    server.repository.undelete(["photos/cat.jpg"])
    assert kinds(client.list_object_versions(Bucket="photos", Prefix="cat")) == [("cat.jpg", "version", True)]
    assert refusal(client.get_object, **KEY, VersionId=marker) == (404, "NoSuchVersion", {})
    assert removed(server, client)["VersionId"] == marker


def test_the_delete_marker_of_a_pruned_version_stays(server: Gateway, client: Any) -> None:
    marker = removed(server, client)["VersionId"]
    server.repository.prune(grace_seconds=0)
    assert entries(client.list_object_versions(Bucket="photos", Prefix="cat")) == [
        ("cat.jpg", "marker", True, marker)
    ]
    assert refusal(client.get_object, **KEY)[0] == 404
    assert refusal(client.get_object, **KEY, VersionId=marker)[0] == 405


def test_repack_makes_no_delete_marker(server: Gateway, client: Any) -> None:
    write(server.repository, "photos/other", b"other")
    server.repository.rm(["photos/other"])
    server.repository.repack(max_unused=0.0)
    found = kinds(client.list_object_versions(Bucket="photos"))
    assert [entry for entry in found if entry[1] == "marker"] == [("other", "marker", True)]


def test_a_folder_whose_files_were_all_removed(server: Gateway, client: Any) -> None:
    server.repository.rm(folders=["photos"])
    assert client.list_buckets()["Buckets"] == []
    assert refusal(client.head_bucket, Bucket="photos")[0] == 404
    assert refusal(client.list_objects_v2, Bucket="photos")[:2] == (404, "NoSuchBucket")
    markers = client.list_object_versions(Bucket="photos")["DeleteMarkers"]
    assert [entry["Key"] for entry in markers] == ["cat.jpg", "sub/dog.jpg"]
    assert refusal(client.get_object, **KEY)[1:] == (
        "NoSuchKey",
        {"x-amz-delete-marker": "true", "x-amz-version-id": markers[0]["VersionId"]},
    )
    assert refusal(client.get_object, Bucket="photos", Key="never")[:2] == (404, "NoSuchBucket")


def test_delete_markers_of_other_folders_are_not_revealed(server: Gateway, client: Any) -> None:
    marker = removed(server, client)["VersionId"]
    limited = server.client(add_key(server.repository.session, "photos/sub"))
    for version in ({}, {"VersionId": marker}):
        assert refusal(limited.get_object, **KEY, **version) == (403, "AccessDenied", {})
    assert kinds(limited.list_object_versions(Bucket="photos")) == [("sub/dog.jpg", "version", True)]
    limited.close()


@pytest.mark.parametrize("delimiter", ["", "/"])
@pytest.mark.parametrize("limit", [1, 2, 3])
def test_pages_have_every_version_and_delete_marker_once(
    server: Gateway, client: Any, limit: int, delimiter: str
) -> None:
    for path in ("photos/cat.jpg", "photos/sub/dog.jpg", "photos/zebra"):
        for content in (b"1", b"22"):
            write(server.repository, path, content)
            server.repository.rm([path])
    arguments = {"Bucket": "photos", "Delimiter": delimiter}
    whole = client.list_object_versions(**arguments)
    assert len(entries(whole)) == (14 if not delimiter else 9)
    pages = client.get_paginator("list_object_versions").paginate(**arguments, PaginationConfig={"PageSize": limit})
    found = []
    for page in pages:
        prefixes = [(prefix["Prefix"], "prefix", False, "") for prefix in page.get("CommonPrefixes", [])]
        assert len(entries(page) + prefixes) <= limit
        found += entries(page) + prefixes
    expected = entries(whole) + [
        (entry["Prefix"], "prefix", False, "") for entry in whole.get("CommonPrefixes", [])
    ]
    assert sorted(found) == sorted(expected)


def test_times_of_delete_markers_are_those_of_the_removals(server: Gateway, client: Any) -> None:
    removed(server, client)
    [location] = server.repository.removed("photos")
    [marker] = client.list_object_versions(Bucket="photos")["DeleteMarkers"]
    at = datetime.fromisoformat(location.retired_at).replace(microsecond=0).astimezone(UTC)
    assert marker["LastModified"] == at
