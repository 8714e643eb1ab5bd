"""The S3 server and the proxy that other tests use."""

import contextlib
import itertools
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from botocore.exceptions import ClientError, HTTPClientError, IncompleteReadError, ResponseStreamingError

from tests.s3_servers.keeper import answers
from tests.s3_servers.kinds import DEFAULT_KIND, KINDS
from tests.worlds.memory import DISK_VARIABLE
from tests.worlds.servers.s3_proxy import (
    ANYWHERE,
    Fault,
    Request,
    S3Proxy,
    faults_in_order,
    operation_of,
    seeded_faults,
)
from tests.worlds.servers.s3_server import S3Server, empty_bucket, kind_of_server, needs
from tests.worlds.waiting import PATIENCE_SECONDS

if TYPE_CHECKING:
    from types_boto3_s3 import S3Client

BODY = bytes(range(256)) * 1024
MIB = 1024 * 1024
BROKEN = (ClientError, HTTPClientError, IncompleteReadError, ResponseStreamingError)


@pytest.fixture
def client(s3_server: S3Server) -> Iterator["S3Client"]:
    with contextlib.closing(s3_server.client()) as client:
        yield client


@pytest.fixture
def through(s3_proxy: S3Proxy) -> Iterator["S3Client"]:
    """A client that uses the proxy, and does not repeat requests."""
    with contextlib.closing(s3_proxy.server.client()) as client:
        yield client


SILENT_WITH_GET = {Fault.SLOW, Fault.ERROR_200, Fault.FLIPPED_BIT, Fault.STATUS_200}


def keys(client: "S3Client", bucket: str) -> list[str]:
    return [item["Key"] for item in client.list_objects_v2(Bucket=bucket).get("Contents", [])]


def is_there(client: "S3Client", bucket: str, key: str) -> bool:
    return key in keys(client, bucket)


def test_fresh_bucket_is_empty_and_accepts_objects(client: "S3Client", s3_bucket: str) -> None:
    assert keys(client, s3_bucket) == []
    client.put_object(Bucket=s3_bucket, Key="a/b c", Body=BODY)
    assert client.get_object(Bucket=s3_bucket, Key="a/b c")["Body"].read() == BODY


def test_a_bucket_is_emptied_of_odd_keys_and_of_uploads(
    client: "S3Client", s3_server: S3Server, s3_bucket: str
) -> None:
    for key in ["new\nline", "\x01", "per%cent+plus", "\U0001f600"] + ["a//b"] * s3_server.has("any_key"):
        client.put_object(Bucket=s3_bucket, Key=key, Body=b"")
        with contextlib.suppress(ClientError):  # Swift begins an upload for "\x01", and cannot name it in XML
            client.create_multipart_upload(Bucket=s3_bucket, Key=key)
    empty_bucket(client, s3_bucket)
    assert keys(client, s3_bucket) == []
    assert "Uploads" not in client.list_multipart_uploads(Bucket=s3_bucket)


def test_a_wrong_secret_is_refused(s3_server: S3Server, s3_bucket: str) -> None:
    needs(s3_server, "signatures")
    stranger = S3Server(s3_server.endpoint_url, s3_server.access_key, "wrong", s3_server.region)
    with contextlib.closing(stranger.client()) as client, pytest.raises(ClientError, match="SignatureDoesNotMatch"):
        client.list_objects_v2(Bucket=s3_bucket)
    assert "wrong" not in repr(stranger)


def test_object_is_not_replaced_with_if_none_match(client: "S3Client", s3_server: S3Server, s3_bucket: str) -> None:
    needs(s3_server, "conditional_writes")
    client.put_object(Bucket=s3_bucket, Key="taken", Body=b"first", IfNoneMatch="*")
    with pytest.raises(ClientError, match="PreconditionFailed"):
        client.put_object(Bucket=s3_bucket, Key="taken", Body=b"second", IfNoneMatch="*")
    upload = client.create_multipart_upload(Bucket=s3_bucket, Key="taken")["UploadId"]
    part = client.upload_part(Bucket=s3_bucket, Key="taken", UploadId=upload, PartNumber=1, Body=b"third")
    with pytest.raises(ClientError, match="PreconditionFailed"):
        client.complete_multipart_upload(
            Bucket=s3_bucket,
            Key="taken",
            UploadId=upload,
            IfNoneMatch="*",
            MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]},
        )
    assert client.get_object(Bucket=s3_bucket, Key="taken")["Body"].read() == b"first"


def test_one_of_many_writers_of_a_key_wins(client: "S3Client", s3_server: S3Server, s3_bucket: str) -> None:
    needs(s3_server, "conditional_writes")
    needs(s3_server, "atomic_conditional_writes")

    def write(number: int) -> str:
        try:
            client.put_object(Bucket=s3_bucket, Key=f"k{number % 4}", Body=b"%d" % number, IfNoneMatch="*")
        except ClientError as error:
            return error.response["Error"]["Code"]
        return "wins"

    with ThreadPoolExecutor(8) as pool:
        outcomes = Counter(pool.map(write, range(32)))
    assert outcomes.pop("wins") == 4
    assert set(outcomes) <= {"PreconditionFailed", "ConditionalRequestConflict"}


def test_a_program_finds_the_server_by_its_environment(s3_environment: None, s3_bucket: str) -> None:
    code = "import boto3, sys; boto3.client('s3').put_object(Bucket=sys.argv[1], Key='from outside', Body=b'')"
    subprocess.run([sys.executable, "-c", code, s3_bucket], check=True)
    import boto3

    with contextlib.closing(boto3.Session().client("s3")) as client:
        assert keys(client, s3_bucket) == ["from outside"]


def test_workers_of_one_run_share_a_server(tmp_path: Path) -> None:
    with kind_of_server(KINDS[DEFAULT_KIND], tmp_path) as first:
        with kind_of_server(KINDS[DEFAULT_KIND], tmp_path) as second:
            assert second == first
        assert answers(first.endpoint_url)
    assert not answers(first.endpoint_url)
    with kind_of_server(KINDS[DEFAULT_KIND], tmp_path) as third:
        assert answers(third.endpoint_url)


def test_killed_session_leaves_nothing(tmp_path: Path) -> None:
    shared, objects = tmp_path / "shared", tmp_path / "objects"
    objects.mkdir()
    code = (
        "import sys, pathlib, signal; from tests.worlds.servers.s3_server import kind_of_server\n"
        "from tests.s3_servers.kinds import DEFAULT_KIND, KINDS\n"
        "with kind_of_server(KINDS[DEFAULT_KIND], pathlib.Path(sys.argv[1])) as server:\n"
        "    print(server.endpoint_url, flush=True); signal.pause()"
    )
    command = [sys.executable, "-c", code, str(shared)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, env=os.environ | {DISK_VARIABLE: str(objects)}
    ) as session:
        assert session.stdout is not None
        url = session.stdout.readline().decode().strip()
        assert answers(url)
        session.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while list(objects.iterdir()) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not answers(url)
    assert not list(objects.iterdir())


def test_requests_are_counted_by_operation(s3_proxy: S3Proxy, through: "S3Client", s3_bucket: str) -> None:
    through.put_object(Bucket=s3_bucket, Key="a b/\xe9", Body=BODY)
    through.get_object(Bucket=s3_bucket, Key="a b/\xe9", Range="bytes=5-104")["Body"].read()
    through.list_objects_v2(Bucket=s3_bucket, Prefix="a b", MaxKeys=7)
    upload = through.create_multipart_upload(Bucket=s3_bucket, Key="u")["UploadId"]
    through.upload_part(Bucket=s3_bucket, Key="u", UploadId=upload, PartNumber=3, Body=b"part")
    through.abort_multipart_upload(Bucket=s3_bucket, Key="u", UploadId=upload)
    with pytest.raises(ClientError):
        through.head_object(Bucket=s3_bucket, Key="missing")

    put, get, listing, _, part, _, head = s3_proxy.requests
    assert [request.number for request in s3_proxy.requests] == list(range(7))
    assert (put.method, put.bucket, put.key, put.status) == ("PUT", s3_bucket, "a b/\xe9", 200)
    assert put.bytes_received >= len(BODY)
    assert (get.range, get.status, get.bytes_sent) == ("bytes=5-104", 206, 100)
    assert listing.query["prefix"] == "a b"
    assert listing.query["max-keys"] == "7"
    assert part.query == {"uploadId": upload, "partNumber": "3"}
    assert (head.status, head.server_status, head.bytes_sent, head.fault) == (404, 404, 0, None)
    names = "PutObject GetObject ListObjectsV2 CreateMultipartUpload UploadPart AbortMultipartUpload HeadObject"
    assert s3_proxy.counts() == dict.fromkeys(names.split(), 1)
    assert s3_proxy.count("GetObject") == 1
    s3_proxy.clear()
    assert not s3_proxy.requests
    assert s3_proxy.count("GetObject") == 0


@pytest.mark.parametrize(
    ("method", "key", "query", "copies", "operation"),
    [
        ("GET", "k", [], False, "GetObject"),
        ("PUT", "k", [], True, "CopyObject"),
        ("PUT", "k", ["partNumber", "uploadId"], True, "UploadPartCopy"),
        ("GET", "k", ["uploadId", "max-parts"], False, "ListParts"),
        ("POST", "k", ["uploadId"], False, "CompleteMultipartUpload"),
        ("DELETE", "k", [], False, "DeleteObject"),
        ("GET", "", ["uploads", "prefix"], False, "ListMultipartUploads"),
        ("GET", "", ["prefix"], False, "ListObjects"),
        ("HEAD", "", [], False, "HeadBucket"),
        ("POST", "", ["delete"], False, "DeleteObjects"),
        ("PATCH", "k", [], False, "PATCH key"),
    ],
)
def test_operations_are_called_as_s3_calls_them(
    method: str, key: str, query: list[str], copies: bool, operation: str
) -> None:
    assert operation_of(method, "b", key, query, copies) == operation


@pytest.mark.parametrize(
    ("fault", "status", "acts"),
    [
        (Fault.ERROR_503, 503, False),
        (Fault.ERROR_500, 500, False),
        (Fault.RESET_BEFORE, None, False),
        (Fault.LOST_ANSWER, None, True),
        (Fault.LOST_500, 500, True),
        (Fault.CUT_BODY, None, True),
    ],
)
def test_a_fault_of_a_put_fails_it_once(
    s3_proxy: S3Proxy,
    through: "S3Client",
    client: "S3Client",
    s3_bucket: str,
    fault: Fault,
    status: int | None,
    acts: bool,
) -> None:
    s3_proxy.faults = faults_in_order("PutObject", fault)
    with pytest.raises(BROKEN):
        through.put_object(Bucket=s3_bucket, Key="k", Body=BODY)
    assert is_there(client, s3_bucket, "k") is acts
    (request,) = s3_proxy.requests
    assert (request.fault, request.status, request.server_status) == (fault, status, 200 if acts else None)
    through.put_object(Bucket=s3_bucket, Key="k", Body=BODY)
    assert client.get_object(Bucket=s3_bucket, Key="k")["Body"].read() == BODY


@pytest.mark.parametrize("fault", [fault for fault in Fault if fault not in SILENT_WITH_GET])
def test_a_fault_of_a_get_fails_it_once(
    s3_proxy: S3Proxy, through: "S3Client", client: "S3Client", s3_bucket: str, fault: Fault
) -> None:
    client.put_object(Bucket=s3_bucket, Key="k", Body=BODY)
    s3_proxy.faults = faults_in_order("GetObject", fault)
    with pytest.raises(BROKEN):
        through.get_object(Bucket=s3_bucket, Key="k")["Body"].read()
    assert through.get_object(Bucket=s3_bucket, Key="k")["Body"].read() == BODY


def test_a_cut_body_comes_to_its_half(
    s3_proxy: S3Proxy, through: "S3Client", client: "S3Client", s3_bucket: str
) -> None:
    client.put_object(Bucket=s3_bucket, Key="k", Body=BODY)
    s3_proxy.faults = faults_in_order("GetObject", Fault.CUT_BODY)
    answer = through.get_object(Bucket=s3_bucket, Key="k")
    assert answer["ContentLength"] == len(BODY)
    assert answer["Body"].read(len(BODY) // 2) == BODY[: len(BODY) // 2]
    with pytest.raises((IncompleteReadError, ResponseStreamingError)):
        answer["Body"].read()
    (request,) = s3_proxy.requests
    assert (request.status, request.bytes_sent) == (200, len(BODY) // 2)


def test_a_slow_answer_is_whole(s3_proxy: S3Proxy, through: "S3Client", s3_bucket: str) -> None:
    s3_proxy.faults = lambda _: Fault.SLOW
    through.put_object(Bucket=s3_bucket, Key="k", Body=BODY)
    assert through.get_object(Bucket=s3_bucket, Key="k")["Body"].read() == BODY
    assert [request.fault for request in s3_proxy.requests] == [Fault.SLOW, Fault.SLOW]


def test_an_error_can_hide_in_a_success(s3_proxy: S3Proxy, through: "S3Client", s3_bucket: str) -> None:
    upload = through.create_multipart_upload(Bucket=s3_bucket, Key="k")["UploadId"]
    part = through.upload_part(Bucket=s3_bucket, Key="k", UploadId=upload, PartNumber=1, Body=b"part")
    parts = {"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]}
    s3_proxy.faults = faults_in_order("CompleteMultipartUpload", Fault.ERROR_200)
    with pytest.raises(ClientError, match="InternalError"):
        through.complete_multipart_upload(Bucket=s3_bucket, Key="k", UploadId=upload, MultipartUpload=parts)
    assert s3_proxy.requests[-1].status == 200
    through.complete_multipart_upload(Bucket=s3_bucket, Key="k", UploadId=upload, MultipartUpload=parts)
    assert through.get_object(Bucket=s3_bucket, Key="k")["Body"].read() == b"part"


def test_faults_come_in_the_order_given_to_that_operation_alone() -> None:
    faults = faults_in_order("GetObject", None, Fault.SLOW)
    requests = [Request(i, "", "", "", {}, None, name) for i, name in enumerate(["HeadObject", *["GetObject"] * 3])]
    assert [faults(request) for request in requests] == [None, None, Fault.SLOW, None]


def test_seeded_faults_depend_on_seed_and_number_alone() -> None:
    requests = [Request(i, "GET", "", "", {}, None, ["GetObject", "HeadObject"][i % 2]) for i in range(1000)]
    once, again, other = ([seeded_faults(seed, 0.25)(request) for request in requests] for seed in (7, 7, 8))
    assert once == again != other
    assert 150 < sum(fault is not None for fault in once) < 350
    assert {fault for fault in once if fault} == set(ANYWHERE)
    some = [seeded_faults(7, 0.25, {"GetObject"}, {Fault.SLOW})(request) for request in requests]
    expected = [
        Fault.SLOW if fault and not request.number % 2 else None
        for fault, request in zip(once, requests, strict=True)
    ]
    assert some == expected


def test_many_concurrent_connections_get_their_own_answers(
    s3_proxy: S3Proxy, through: "S3Client", s3_bucket: str
) -> None:
    def put_and_get(number: int) -> bool:
        body = number.to_bytes(4) * (50_000 + number)
        through.put_object(Bucket=s3_bucket, Key=f"k{number}", Body=body)
        return through.get_object(Bucket=s3_bucket, Key=f"k{number}")["Body"].read() == body

    with ThreadPoolExecutor(16) as pool:
        assert all(pool.map(put_and_get, range(64)))
    assert s3_proxy.counts() == {"PutObject": 64, "GetObject": 64}


def test_a_body_of_unknown_length_passes(s3_proxy: S3Proxy, s3_bucket: str, through: "S3Client") -> None:
    """The body uses chunked transfer encoding, and the URL is signed."""
    url = through.generate_presigned_url("put_object", Params={"Bucket": s3_bucket, "Key": "k"})
    import urllib3

    with urllib3.PoolManager() as pool:
        blocks = itertools.repeat(BODY, 40)
        assert pool.request("PUT", url, body=blocks, headers={"Transfer-Encoding": "chunked"}).status == 200
    assert through.get_object(Bucket=s3_bucket, Key="k")["Body"].read() == BODY * 40
