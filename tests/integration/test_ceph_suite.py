"""The tests of Ceph's s3-tests that read (docs/s3-tests.md), and the proxy with which they write."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import cafcat
from tests.ceph_suite.proxy import WritingProxy
from tests.ceph_suite.writes import Buckets
from tests.worlds.servers.s3_gateway import Gateway, gateway

pytest.importorskip("boto3")

pytestmark = pytest.mark.slow

PROJECT = Path(__file__).parents[2]
SUITE_SECONDS = 3600


def test_the_suite() -> None:
    checkout = os.environ.get("CAFCAT_TEST_CEPH_SUITE")
    if checkout is None:
        pytest.skip("CAFCAT_TEST_CEPH_SUITE does not name a checkout of https://github.com/ceph/s3-tests")
    command = [sys.executable, "-m", "tests.ceph_suite", checkout]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, timeout=SUITE_SECONDS)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture
def proxied(local: cafcat.Repository) -> Iterator[Gateway]:
    """The S3 server through the proxy."""
    with ExitStack() as stack:
        private = stack.enter_context(gateway(local))
        public = stack.enter_context(gateway(local, public=(".",)))
        buckets = Buckets(local, private.key.access_key_id)
        proxy = stack.enter_context(WritingProxy(buckets, private.url, public.url))
        yield Gateway(local, proxy.port, private.key)


@pytest.fixture
def client(proxied: Gateway) -> Iterator[Any]:
    client = proxied.client()
    yield client
    client.close()


def test_the_proxy_writes_what_the_server_reads(proxied: Gateway, client: Any) -> None:
    client.create_bucket(Bucket="photos")
    assert "Contents" not in client.list_objects_v2(Bucket="photos")
    put = client.put_object(Bucket="photos", Key="a+b/c", Body=b"content")
    client.put_object(Bucket="photos", Key="folder/", Body=b"")
    answer = client.get_object(Bucket="photos", Key="a+b/c")
    assert (answer["ETag"], answer["VersionId"]) == (put["ETag"], put["VersionId"])
    assert answer["Body"].read() == b"content" == proxied.repository.read("photos/a+b/c")
    assert [entry["Key"] for entry in client.list_objects_v2(Bucket="photos")["Contents"]] == ["a+b/c", "folder/"]


def test_the_proxy_removes(proxied: Gateway, client: Any) -> None:
    from botocore.exceptions import ClientError

    client.create_bucket(Bucket="photos")
    for key in ("a", "b"):
        client.put_object(Bucket="photos", Key=key, Body=b"content")
    marker = client.delete_object(Bucket="photos", Key="a")["VersionId"]
    client.delete_objects(Bucket="photos", Delete={"Objects": [{"Key": "b"}]})
    markers = client.list_object_versions(Bucket="photos")["DeleteMarkers"]
    assert [entry["Key"] for entry in markers] == ["a", "b"]
    assert markers[0]["VersionId"] == marker
    client.delete_bucket(Bucket="photos")
    with pytest.raises(ClientError, match="NoSuchBucket"):
        client.list_objects_v2(Bucket="photos")


def test_the_proxy_lets_nobody_else_write_and_anybody_read_what_is_public(proxied: Gateway, client: Any) -> None:
    from botocore import UNSIGNED
    from botocore.exceptions import ClientError

    client.create_bucket(Bucket="photos")
    client.put_object(Bucket="photos", Key="public", Body=b"content", ACL="public-read")
    client.put_object(Bucket="photos", Key="private", Body=b"content")
    anybody = proxied.client(signature_version=UNSIGNED)
    assert anybody.get_object(Bucket="photos", Key="public")["Body"].read() == b"content"
    for function, arguments in (
        (anybody.get_object, {"Key": "private"}),
        (anybody.put_object, {"Key": "public", "Body": b"other"}),
        (anybody.list_objects_v2, {}),
    ):
        with pytest.raises(ClientError, match="AccessDenied"):
            function(Bucket="photos", **arguments)
    anybody.close()
