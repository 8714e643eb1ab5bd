"""The S3 server: listings, compared with a model, and what a key or an anonymous client sees of them."""

import random
from collections.abc import Iterator
from typing import Any

import pytest

import cafcat
from cafcat.serve.s3.keys import NewKey, add_key
from tests.worlds.catalog_world import commit
from tests.worlds.servers.s3_gateway import Gateway, gateway

pytest.importorskip("boto3")

pytestmark = pytest.mark.slow

LETTERS = ["a", "b", "/", "-", "é", "日", "\U0010ffff", "\U0001f600", "%", " ", "\x01", "\ud7ff"]


def paths() -> list[str]:
    """Return paths of few characters, many of which share long prefixes."""
    source = random.Random(7)
    made = {"".join(source.choices(LETTERS, k=source.randint(1, 6))) for _ in range(400)}
    return [f"b/{name}" for name in made if not name.startswith("/")] + ["b0", "b/-/p", "a/x", "c/d/e"]


PATHS = paths()


@pytest.fixture(scope="module")
def server(shared_repository: cafcat.Repository) -> Iterator[Gateway]:
    commit(shared_repository, {path: path.encode() for path in PATHS})  # an adopted archive can have such names
    with gateway(shared_repository, public=("a", "b/-")) as server:
        yield server


def keys_of(bucket: str) -> list[str]:
    return sorted(path.removeprefix(f"{bucket}/") for path in PATHS if path.startswith(f"{bucket}/"))


def expected(keys: list[str], prefix: str, delimiter: str, after: str = "") -> list[str]:
    """Return keys and common prefixes of a listing, in order. `after` is a key or common prefix, or any text."""
    found: dict[str, None] = {}
    for key in keys:
        if key.startswith(prefix) and key > after:
            place = key.find(delimiter, len(prefix)) if delimiter else -1
            found[key if place < 0 else key[: place + len(delimiter)]] = None
    return [entry for entry in found if entry != after]


def entries(page: dict[str, Any]) -> list[str]:
    keys = [entry["Key"] for entry in page.get("Contents", [])]
    return sorted(keys + [entry["Prefix"] for entry in page.get("CommonPrefixes", [])])


def listed(client: Any, function: str, **arguments: Any) -> list[str]:
    """Return the entries of all pages, in the order of the pages."""
    found: list[str] = []
    for page in client.get_paginator(function).paginate(Bucket="b", **arguments):
        assert page.get("KeyCount", len(entries(page))) == len(entries(page)) <= arguments.get("MaxKeys", 1000)
        found += entries(page)
    return found


PREFIXES = ["", "a", "a/", "-", "é", "日/", "\U0010ffff", "a/b/", "nothing"]
DELIMITERS = ["", "/", "a", "ab", "é", "\ud7ff", "\U0010ffffa", "-/"]


@pytest.mark.parametrize("function", ["list_objects_v2", "list_objects"])
@pytest.mark.parametrize("delimiter", DELIMITERS)
def test_listings_are_those_of_the_model(client: Any, function: str, delimiter: str) -> None:
    for prefix in PREFIXES:
        wanted = expected(keys_of("b"), prefix, delimiter)
        for limit in (1000, 7) if len(wanted) < 60 else (1000, 50):
            # V1 without a delimiter has no NextMarker: the paginator then continues after the last key.
            assert listed(client, function, Prefix=prefix, Delimiter=delimiter, MaxKeys=limit) == wanted


def test_listings_begin_after_any_text(client: Any) -> None:
    for delimiter in ("", "/"):
        for after in ("a", "a/", "a/b", "é", "\U0001f600", "zzz", "a/\x01"):
            wanted = expected(keys_of("b"), "", delimiter, after)
            arguments = {"Delimiter": delimiter}
            assert listed(client, "list_objects_v2", StartAfter=after, **arguments) == wanted
            assert entries(client.list_objects(Bucket="b", Marker=after, **arguments)) == wanted


def test_pages_of_one(client: Any) -> None:
    wanted = expected(keys_of("b"), "a", "/")
    assert listed(client, "list_objects_v2", Prefix="a", Delimiter="/", MaxKeys=1) == wanted


def test_the_elements_of_a_page(client: Any) -> None:
    page = client.list_objects_v2(Bucket="b", MaxKeys=2, FetchOwner=True)
    first = page["Contents"][0]
    assert first["Owner"] == {"ID": "cafcat", "DisplayName": "cafcat"}
    assert first["Size"] == len(f"b/{first['Key']}".encode())
    assert first["ETag"] == client.head_object(Bucket="b", Key=first["Key"])["ETag"]
    assert (page["IsTruncated"], page["KeyCount"], page["MaxKeys"]) == (True, 2, 2)
    assert "Owner" not in client.list_objects_v2(Bucket="b", MaxKeys=1)["Contents"][0]
    empty = client.list_objects_v2(Bucket="b", MaxKeys=0)
    assert (empty["IsTruncated"], empty["KeyCount"], "Contents" in empty) == (False, 0, False)
    assert client.list_objects_v2(Bucket="b", MaxKeys=5000)["MaxKeys"] == 1000


@pytest.mark.parametrize(
    "arguments",
    [
        {"MaxKeys": -1},
        {"ContinuationToken": "!"},
        {"ContinuationToken": "AA=="},
        {"Delimiter": "\U0010ffff"},
        {"EncodingType": "base64"},
    ],
)
def test_invalid_parameters(client: Any, arguments: dict[str, Any]) -> None:
    from botocore.exceptions import ClientError

    with pytest.raises(ClientError) as error:
        client.list_objects_v2(Bucket="b", **arguments)
    assert error.value.response["Error"]["Code"] == "InvalidArgument"


def refusal(function: Any, **arguments: Any) -> tuple[int, str]:
    from botocore.exceptions import ClientError

    with pytest.raises(ClientError) as error:
        function(**arguments)
    answer = error.value.response
    return answer["ResponseMetadata"]["HTTPStatusCode"], answer["Error"]["Message"]


@pytest.fixture(scope="module")
def limited(server: Gateway) -> NewKey:
    return add_key(server.repository.session, "c/d")


def test_a_key_sees_its_prefix_only(server: Gateway, limited: NewKey) -> None:
    with gateway(server.repository) as private:
        client = private.client(limited)
        assert [bucket["Name"] for bucket in client.list_buckets()["Buckets"]] == ["c"]
        assert entries(client.list_objects_v2(Bucket="c")) == ["d/e"]
        assert entries(client.list_objects_v2(Bucket="c", Delimiter="/")) == ["d/"]
        assert client.get_object(Bucket="c", Key="d/e")["Body"].read() == b"c/d/e"
        assert refusal(client.get_object, Bucket="c", Key="d/other")[0] == 404
        for function in (client.get_object, client.head_object):
            existing, missing = (refusal(function, Bucket=bucket, Key="x") for bucket in ("a", "nothing"))
            assert existing == missing == (403, existing[1])
        for function in (client.list_objects_v2, client.list_object_versions, client.head_bucket):
            existing, missing = (refusal(function, Bucket=bucket) for bucket in ("a", "nothing"))
            assert existing == missing == (403, existing[1])
        version = private.client().head_object(Bucket="a", Key="x")["VersionId"]
        assert refusal(client.get_object, Bucket="a", Key="x", VersionId=version)[0] == 403
        assert refusal(client.get_object, Bucket="a", Key="x", VersionId="nonsense")[0] == 403
        assert refusal(client.list_objects_v2, Bucket="c", Prefix="x")[0] == 403
        assert entries(client.list_objects_v2(Bucket="c", StartAfter="c")) == ["d/e"]


def test_a_folder_is_no_prefix_of_names(server: Gateway) -> None:
    key = add_key(server.repository.session, "b")
    with gateway(server.repository, bucket="all") as one:
        found = [entry["Key"] for entry in one.client(key).list_objects_v2(Bucket="all")["Contents"]]
    assert found == [f"b/{name}" for name in keys_of("b")]
    assert "b0" in PATHS


def test_a_key_of_a_folder_without_files_sees_nothing(server: Gateway) -> None:
    with gateway(server.repository) as private:
        client = private.client(add_key(server.repository.session, "c/nothing"))
        assert client.list_buckets()["Buckets"] == []
        assert refusal(client.head_bucket, Bucket="c")[0] == 404
        assert refusal(client.list_objects_v2, Bucket="c")[0] == 404


def test_anonymous_clients_see_public_folders_only(server: Gateway) -> None:
    from botocore import UNSIGNED

    client = server.client(signature_version=UNSIGNED)
    assert [bucket["Name"] for bucket in client.list_buckets()["Buckets"]] == ["a", "b"]
    public = [name for name in keys_of("b") if name.startswith("-/")]
    assert public
    assert entries(client.list_objects_v2(Bucket="b")) == public
    assert entries(client.list_objects_v2(Bucket="b", Delimiter="/")) == ["-/"]
    assert client.get_object(Bucket="a", Key="x")["Body"].read() == b"a/x"
    assert refusal(client.get_object, Bucket="c", Key="d/e")[0] == 403
    assert refusal(client.get_object, Bucket="c", Key="nothing")[0] == 403
    assert refusal(client.list_objects_v2, Bucket="c")[0] == 403
    assert refusal(client.get_object, Bucket="a", Key="x", ResponseContentType="text/html")[0] == 400
    with gateway(server.repository) as private:
        nobody = private.client(signature_version=UNSIGNED)
        assert refusal(nobody.list_buckets)[0] == 403
        assert refusal(nobody.get_object, Bucket="a", Key="x")[0] == 403
