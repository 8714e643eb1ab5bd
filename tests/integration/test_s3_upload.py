"""Uploads into a bucket while network and server fail."""

import base64
import functools
import hashlib
from collections.abc import Callable

import pytest

from cafcat.errors import CafcatError, Conflict, InvalidInput, NotFound, StoreFailed
from cafcat.remote.access import S3Access
from cafcat.stores.s3.store import S3Store
from cafcat.support.checksums import crc64nvme
from tests.worlds.servers import uploads
from tests.worlds.servers.s3_proxy import Fault, Request, S3Proxy, faults_in_order, seeded_faults
from tests.worlds.servers.s3_server import S3Server
from tests.worlds.servers.uploads import MIB, content

SMALLEST_MEMORY = 16_000_000
"""Parts of 5 MiB, two of them in flight."""
put = functools.partial(uploads.put, with_checksum=False)

pytestmark = pytest.mark.usefixtures("s3_proxy_environment")


@pytest.fixture
def store(s3_bucket: str) -> S3Store:
    return S3Store(f"s3://{s3_bucket}/chunks", S3Access(), SMALLEST_MEMORY)


def uploads_left(server: S3Server, bucket: str) -> list[str]:
    """Return the ids of unfinished uploads, without the proxy."""
    return [found["UploadId"] for found in server.client().list_multipart_uploads(Bucket=bucket).get("Uploads", [])]


def test_parts_go_out_while_the_object_is_written(store: S3Store, s3_proxy: S3Proxy) -> None:
    data = content(23 * MIB)
    upload = store.create("chunk.caf")
    for start in range(0, len(data), MIB):
        upload.write(data[start : start + MIB])
    assert s3_proxy.count("UploadPart") >= 2, "with two parts in flight, two of the four have been waited for"
    upload.commit()
    assert s3_proxy.counts() == {
        "CreateMultipartUpload": 1,
        "UploadPart": 5,
        "CompleteMultipartUpload": 1,
        "HeadObject": 1,
    }
    sizes = sorted(request.bytes_received for request in s3_proxy.requests if request.operation == "UploadPart")
    assert sizes == [3 * MIB, 5 * MIB, 5 * MIB, 5 * MIB, 5 * MIB]
    assert store.read("chunk.caf", 0, len(data)) == data


def test_the_entity_tag_is_that_of_the_object(store: S3Store, s3_server: S3Server, s3_bucket: str) -> None:
    upload = store.create("chunk.caf")
    assert upload.etag is None
    upload.write(b"data")
    upload.commit()
    found = s3_server.client().head_object(Bucket=s3_bucket, Key="chunks/chunk.caf")
    assert upload.etag == found["ETag"].strip('"')


@pytest.mark.parametrize(
    ("operation", "faults"),
    [
        ("CreateMultipartUpload", [Fault.LOST_ANSWER]),
        ("CreateMultipartUpload", [Fault.LOST_500, Fault.LOST_ANSWER]),
        ("CreateMultipartUpload", [Fault.CUT_BODY]),
        ("UploadPart", [Fault.LOST_ANSWER, Fault.LOST_500, Fault.ERROR_503, Fault.RESET_BEFORE]),
        ("UploadPart", [Fault.CUT_BODY, None, Fault.SLOW]),
        ("CompleteMultipartUpload", [Fault.LOST_ANSWER]),
        ("CompleteMultipartUpload", [Fault.LOST_500, Fault.LOST_500]),
        ("CompleteMultipartUpload", [Fault.ERROR_200]),
        ("CompleteMultipartUpload", [Fault.CUT_BODY, Fault.ERROR_500]),
        ("HeadObject", [Fault.LOST_ANSWER, Fault.ERROR_503]),
    ],
)
def test_lost_answers_are_checked(
    store: S3Store,
    s3_proxy: S3Proxy,
    s3_server: S3Server,
    s3_bucket: str,
    operation: str,
    faults: list[Fault | None],
) -> None:
    data = content(12 * MIB)
    s3_proxy.faults = faults_in_order(operation, *faults)
    put(store, "chunk.caf", data)
    s3_proxy.faults = faults_in_order("")
    assert store.read("chunk.caf", 0, len(data)) == data
    assert uploads_left(s3_server, s3_bucket) == [], "an upload whose answer was lost costs money"


def always(operation: str, fault: Fault) -> Callable[[Request], Fault | None]:
    return lambda request: fault if request.operation == operation else None


@pytest.mark.parametrize("fault", [Fault.LOST_ANSWER, Fault.LOST_500])
def test_completion_without_an_answer_is_checked(store: S3Store, s3_proxy: S3Proxy, fault: Fault) -> None:
    s3_proxy.faults = always("CompleteMultipartUpload", fault)
    put(store, "chunk.caf", b"data")
    assert store.read("chunk.caf", 0, 4) == b"data"


def test_a_part_that_cannot_be_sent_ends_the_upload_and_leaves_nothing(
    store: S3Store, s3_proxy: S3Proxy, s3_server: S3Server, s3_bucket: str
) -> None:
    s3_proxy.faults = lambda request: Fault.ERROR_503 if request.query.get("partNumber") == "2" else None
    upload = store.create("chunk.caf")
    with pytest.raises(StoreFailed, match="SlowDown"):  # noqa: PT012 - at which of them depends on the parts in flight
        for _ in range(60):
            upload.write(bytes(MIB))
        upload.commit()
    with pytest.raises(StoreFailed):
        upload.write(b"more")
    with pytest.raises(StoreFailed):
        upload.commit()
    upload.abort()
    assert uploads_left(s3_server, s3_bucket) == []
    with pytest.raises(NotFound):
        store.stat("chunk.caf")


def test_wrong_checksum_of_the_whole_is_detected_before_completion(
    store: S3Store, s3_proxy: S3Proxy, s3_server: S3Server, s3_bucket: str
) -> None:
    upload = store.create("chunk.caf")
    upload.write(b"data")
    with pytest.raises(StoreFailed, match="changed in memory"):
        upload.commit(12345)
    upload.abort()
    assert s3_proxy.count("CompleteMultipartUpload") == 0
    assert uploads_left(s3_server, s3_bucket) == []


def test_a_server_that_refuses_our_checksum_gets_md5(store: S3Store, s3_proxy: S3Proxy) -> None:
    def knows_no_crc64(request: Request) -> Fault | None:
        named = [name for name in request.checksums if name.startswith("x-amz-checksum")]
        return Fault.NOT_IMPLEMENTED if named else None

    s3_proxy.faults = knows_no_crc64
    data = content(12 * MIB)
    put(store, "chunk.caf", data)
    assert store.read("chunk.caf", 0, len(data)) == data
    parts = [request for request in s3_proxy.requests if request.operation == "UploadPart"]
    assert [list(part.checksums) for part in parts] == [["content-md5"]] * 3
    assert s3_proxy.count("CreateMultipartUpload") == 2


def test_every_part_has_its_checksum(store: S3Store, s3_proxy: S3Proxy, s3_server: S3Server) -> None:
    """If the server does not promise CRC-64/NVME of whole objects, the proxy adds the promise."""
    if not s3_server.has("crc64"):
        promise = [b"x-amz-checksum-algorithm: CRC64NVME", b"x-amz-checksum-type: FULL_OBJECT"]
        s3_proxy.removed_headers = lambda _request: {b"x-amz-checksum-algorithm", b"x-amz-checksum-type"}
        s3_proxy.further_headers = lambda request: promise if request.operation == "CreateMultipartUpload" else []
    put(store, "chunk.caf", content(12 * MIB))
    parts = [request for request in s3_proxy.requests if request.operation == "UploadPart"]
    assert len({part.checksums["x-amz-checksum-crc64nvme"] for part in parts}) == 3


def test_checksum_in_head_proves_the_object(store: S3Store, s3_proxy: S3Proxy) -> None:
    """AWS returns it in the answer to HEAD, whatever the entity tag is."""
    data = content(6 * MIB)
    kept = base64.b64encode(crc64nvme(data).to_bytes(8))
    s3_proxy.removed_headers = lambda request: (
        [b"x-amz-checksum-crc64nvme", b"etag"] if request.operation == "HeadObject" else []
    )
    s3_proxy.further_headers = lambda request: (
        [b"x-amz-checksum-crc64nvme: " + kept, b'ETag: "another"'] if request.operation == "HeadObject" else []
    )
    s3_proxy.faults = faults_in_order("CompleteMultipartUpload", Fault.LOST_ANSWER)
    put(store, "chunk.caf", data)
    assert s3_proxy.count("GetObject") == 0


def test_another_object_of_the_key_is_a_conflict(
    store: S3Store, s3_server: S3Server, s3_bucket: str, s3_proxy: S3Proxy
) -> None:
    """The other object has the same size, and the answer to our completion was lost."""
    s3_server.client().put_object(Bucket=s3_bucket, Key="chunks/chunk.caf", Body=b"theirs")
    s3_proxy.faults = faults_in_order("CompleteMultipartUpload", Fault.LOST_ANSWER)
    with pytest.raises(Conflict):
        put(store, "chunk.caf", b"ours !")
    assert store.read("chunk.caf", 0, 6) == b"theirs"


def with_head(store: S3Store, key: str, data: bytes, head: bytes) -> None:
    """Upload data with another head, which replaces the first bytes at the end."""
    upload = store.create(key, rewrites_head=True)
    try:
        for start in range(0, len(data), MIB):
            upload.write(data[start : start + MIB])
        upload.rewrite_head(head)
        upload.commit(crc64nvme(head + data[len(head) :]))
    except BaseException:
        upload.abort()
        raise


def test_part_with_the_head_is_sent_last(store: S3Store, s3_proxy: S3Proxy) -> None:
    """No additional request is needed. The part has the checksum of its new bytes."""
    data, head = content(23 * MIB), b"head" * 1000
    with_head(store, "chunk.car", data, head)
    assert store.read("chunk.car", 0, len(data)) == head + data[len(head) :]
    counts = {"CreateMultipartUpload": 1, "UploadPart": 5, "CompleteMultipartUpload": 1, "HeadObject": 1}
    assert {name: s3_proxy.count(name) for name in counts} == counts
    parts = [request for request in s3_proxy.requests if request.operation == "UploadPart"]
    first = next(part for part in parts if part.query["partNumber"] == "1")
    new = head + data[len(head) : 5 * MIB]
    checksum = base64.b64encode(crc64nvme(new).to_bytes(8)).decode()
    md5 = base64.b64encode(hashlib.md5(new, usedforsecurity=False).digest()).decode()
    assert first.checksums.get("x-amz-checksum-crc64nvme", checksum) == checksum
    assert first.checksums.get("content-md5", md5) == md5
    assert first.checksums
    assert "1" not in [part.query["partNumber"] for part in parts[:3]]


def test_an_object_smaller_than_a_part_is_one_with_its_head(store: S3Store, s3_proxy: S3Proxy) -> None:
    with_head(store, "chunk.car", b"small object", b"SMALL")
    assert store.read("chunk.car", 0, 12) == b"SMALL object"
    assert s3_proxy.count("UploadPart") == 1


def test_waiting_part_counts_for_the_limit_of_memory(store: S3Store) -> None:
    """One part is filled, one waits, and the others are being sent."""
    upload = store.create("chunk.car", rewrites_head=True)
    upload.write(content(5 * MIB))
    assert (upload._free.qsize() + 2) * 5 * MIB <= SMALLEST_MEMORY
    upload.write(content(18 * MIB))
    upload.abort()


def test_head_cannot_be_rewritten_without_the_option(store: S3Store) -> None:
    """The first part may have been sent already."""
    upload = store.create("chunk.caf")
    upload.write(content(12 * MIB))
    with pytest.raises(InvalidInput, match="head"):
        upload.rewrite_head(b"head")
    upload.abort()


def test_a_head_whose_part_cannot_be_sent_ends_the_upload(
    store: S3Store, s3_proxy: S3Proxy, s3_server: S3Server, s3_bucket: str
) -> None:
    s3_proxy.faults = lambda request: Fault.ERROR_503 if request.query.get("partNumber") == "1" else None
    with pytest.raises(StoreFailed, match="SlowDown"):
        with_head(store, "chunk.car", content(12 * MIB), b"head")
    assert uploads_left(s3_server, s3_bucket) == []
    with pytest.raises(NotFound):
        store.stat("chunk.car")


def test_upload_without_its_head_is_discarded(store: S3Store, s3_server: S3Server, s3_bucket: str) -> None:
    upload = store.create("chunk.car", rewrites_head=True)
    upload.write(content(12 * MIB))
    upload.rewrite_head(b"head")
    store.discard("chunk.car", upload.upload_id)
    assert uploads_left(s3_server, s3_bucket) == []
    with pytest.raises(StoreFailed):
        upload.commit()
    with pytest.raises(NotFound):
        store.stat("chunk.car")


@pytest.mark.parametrize("seed", range(4))
def test_with_random_faults_an_object_has_its_new_head_or_is_missing(
    store: S3Store, s3_proxy: S3Proxy, s3_server: S3Server, s3_bucket: str, seed: int
) -> None:
    data, head = content(17 * MIB, seed), b"head" * 27
    s3_proxy.faults = seeded_faults(seed, 0.3)
    try:
        with_head(store, "chunk.car", data, head)
        exists = True
    except CafcatError:
        exists = False
    s3_proxy.faults = lambda _: None
    if exists:
        assert store.read("chunk.car", 0, len(data)) == head + data[len(head) :]
    else:
        store.discard("chunk.car")
        store.delete("chunk.car")
        assert list(store.list()) == []
    assert uploads_left(s3_server, s3_bucket) == []


@pytest.mark.parametrize("seed", range(8))
def test_with_random_faults_an_object_is_whole_or_missing(
    store: S3Store, s3_proxy: S3Proxy, s3_server: S3Server, s3_bucket: str, seed: int
) -> None:
    data = content(17 * MIB, seed)
    s3_proxy.faults = seeded_faults(seed, 0.3)
    try:
        put(store, "chunk.caf", data)
        exists = True
    except CafcatError:
        exists = False
    s3_proxy.faults = lambda _: None
    if not exists:
        store.discard("chunk.caf")
        store.delete("chunk.caf")
    assert [found.size_bytes for found in store.list()] == [len(data)] * exists
    if exists:
        assert store.read("chunk.caf", 0, len(data)) == data
    assert uploads_left(s3_server, s3_bucket) == []


def test_uploads_of_a_dead_writer_are_discarded_by_key_or_by_id(
    store: S3Store, s3_server: S3Server, s3_bucket: str
) -> None:
    for key in ("a.caf", "a.caf", "a.caf2", "b.caf"):
        upload = store.create(key)
        upload.write(bytes(6 * MIB))
        assert upload.upload_id
    assert sorted(store.uploads()) == ["a.caf", "a.caf", "a.caf2", "b.caf"]
    store.discard("a.caf", "no such id")
    assert sorted(store.uploads()) == ["a.caf2", "b.caf"]
    store.discard("a.caf")
    store.discard("b.caf", upload.upload_id)
    assert list(store.uploads()) == ["a.caf2"]
    assert len(uploads_left(s3_server, s3_bucket)) == 1
