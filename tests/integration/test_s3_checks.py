"""Writing to servers that differ from S3. A proxy changes the answers of a server."""

import hashlib
import logging
from collections.abc import Callable, Generator
from functools import partial
from typing import Any, cast

import pytest

from cafcat.errors import Conflict, Corrupt, NotFound, ServerFailed
from cafcat.remote.reading import RemoteObject
from cafcat.stores.kind import StoreContext
from cafcat.stores.s3.server_checks import ServerCheck, ServerChecks
from cafcat.stores.s3.store import S3Store
from tests.worlds.servers.s3_proxy import Fault, Request, S3Proxy
from tests.worlds.servers.s3_server import S3Server, needs
from tests.worlds.servers.server_verdicts import Remembered, open_remembering
from tests.worlds.servers.uploads import MIB, content, put

HEADERS = {
    "tag": b"etag",
    "promise": b"x-amz-checksum-type",
    "checksum": b"x-amz-checksum-crc64nvme",
}

pytestmark = pytest.mark.usefixtures("s3_proxy_environment", "_plain_server")


@pytest.fixture
def _plain_server(s3_server: S3Server) -> None:
    """Require a server whose own answers do not conflict with those of the proxy."""
    needs(s3_server, "usual_answers")


@pytest.fixture
def verdicts() -> Remembered:
    return Remembered()


@pytest.fixture
def warnings() -> list[str]:
    return []


@pytest.fixture
def open_store(s3_bucket: str, verdicts: Remembered, warnings: list[str]) -> Callable[[], S3Store]:
    """A function that opens the store as a new process does."""
    return partial(open_remembering, f"s3://{s3_bucket}/chunks", verdicts, warnings.append)


@pytest.fixture
def store(open_store: Callable[[], S3Store]) -> S3Store:
    return open_store()


def another_tag(proxy: S3Proxy) -> None:
    """Behave like rclone: no checksums, and HEAD returns another tag than the completion."""
    needs(proxy.server, "unchecked_parts")
    proxy.removed_headers = lambda request: (
        {*HEADERS.values()} if request.operation == "HeadObject" else {HEADERS["promise"], HEADERS["checksum"]}
    )
    proxy.further_headers = lambda request: (
        [b'ETag: "0123456789abcdef0123456789abcdef"'] if request.operation == "HeadObject" else []
    )


def wrong_checksum(proxy: S3Proxy) -> None:
    """Behave like moto: CRC-64 is promised, and HEAD returns a wrong one."""
    needs(proxy.server, "one_checksum")
    proxy.removed_headers = lambda _request: {HEADERS["checksum"], HEADERS["promise"], b"x-amz-checksum-algorithm"}
    promise = [b"x-amz-checksum-type: FULL_OBJECT", b"x-amz-checksum-algorithm: CRC64NVME"]

    def further(request: Request) -> list[bytes]:
        if request.operation == "CreateMultipartUpload" and request.checksums:
            return promise
        return [b"x-amz-checksum-crc64nvme: gPOrPw=="] if request.operation == "HeadObject" else []

    proxy.further_headers = further


SERVERS = [(another_tag, ServerCheck.ENTITY_TAG), (wrong_checksum, ServerCheck.CHECKSUM)]


@pytest.mark.parametrize(("behave", "check"), SERVERS)
def test_right_object_is_committed_although_the_server_fails_a_check(
    open_store: Callable[[], S3Store],
    s3_proxy: S3Proxy,
    warnings: list[str],
    behave: Callable[[S3Proxy], None],
    check: ServerCheck,
) -> None:
    """The first object is read back. Later objects are not, in this and in later processes."""
    behave(s3_proxy)
    data = content(6 * MIB)
    first = open_store()
    put(first, "first.caf", data)
    assert s3_proxy.count("GetObject") == 1
    put(first, "second.caf", data)
    put(open_store(), "third.caf", data)
    assert s3_proxy.count("GetObject") == 1
    assert len(warnings) == 1
    assert check.value in warnings[0]
    for key in ("first.caf", "second.caf", "third.caf"):
        assert first.read(key, 0, len(data)) == data


@pytest.mark.parametrize(("behave", "_check"), SERVERS)
def test_wrong_object_is_not_committed(
    store: S3Store,
    s3_proxy: S3Proxy,
    s3_server: S3Server,
    s3_bucket: str,
    warnings: list[str],
    behave: Callable[[S3Proxy], None],
    _check: ServerCheck,
) -> None:
    """An object of equal size replaces ours between the completion and the check."""
    behave(s3_proxy)
    theirs = content(6 * MIB, 2)

    def replace(request: Request) -> None:
        if request.operation == "HeadObject":
            s3_server.client().put_object(Bucket=s3_bucket, Key="chunks/chunk.caf", Body=theirs)

    s3_proxy.faults = replace
    with pytest.raises(Conflict, match="not the object that was written"):
        put(store, "chunk.caf", content(6 * MIB))
    assert warnings == []
    assert store.checks.failed == frozenset()


@pytest.mark.parametrize(("behave", "check"), SERVERS)
def test_a_lost_completion_is_read_back_whatever_is_remembered(
    store: S3Store,
    s3_proxy: S3Proxy,
    verdicts: Remembered,
    behave: Callable[[S3Proxy], None],
    check: ServerCheck,
) -> None:
    verdicts.remember(store.url, check.value)
    behave(s3_proxy)
    data = content(6 * MIB)
    lost = [Fault.LOST_500] * 6  # attempts of one request: boto3 tries again
    s3_proxy.faults = lambda request: (
        lost.pop() if lost and request.operation == "CompleteMultipartUpload" else None
    )
    put(store, "chunk.caf", data)
    tag_is_proof = check is ServerCheck.CHECKSUM
    assert s3_proxy.count("GetObject") == (0 if tag_is_proof else 1)
    assert store.read("chunk.caf", 0, len(data)) == data


def test_the_md5_of_the_whole_object_is_proof_where_the_server_shows_it(
    store: S3Store, s3_proxy: S3Proxy, verdicts: Remembered
) -> None:
    verdicts.remember(store.url, "entity_tag")
    another_tag(s3_proxy)
    data = content(6 * MIB)
    tag = hashlib.md5(data, usedforsecurity=False).hexdigest().encode()
    s3_proxy.further_headers = lambda request: (
        [b'ETag: "' + tag + b'"'] if request.operation == "HeadObject" else []
    )
    lost = [Fault.LOST_500] * 6
    s3_proxy.faults = lambda request: (
        lost.pop() if lost and request.operation == "CompleteMultipartUpload" else None
    )
    put(store, "chunk.caf", data)
    assert s3_proxy.count("GetObject") == 0


@pytest.mark.parametrize("promise", [[], [b"x-amz-checksum-type: COMPOSITE"]])
def test_parts_carry_md5_unless_the_server_promises_to_check_crc64(
    store: S3Store, s3_proxy: S3Proxy, promise: list[bytes]
) -> None:
    needs(s3_proxy.server, "unchecked_parts")
    s3_proxy.removed_headers = lambda _request: {HEADERS["promise"], HEADERS["checksum"]}
    s3_proxy.further_headers = lambda request: promise if request.operation == "CreateMultipartUpload" else []
    put(store, "chunk.caf", content(12 * MIB))
    parts = [request for request in s3_proxy.requests if request.operation == "UploadPart"]
    assert [list(part.checksums) for part in parts] == [["content-md5"]] * 3


def test_missing_features_of_a_server_are_reported_once(
    open_store: Callable[[], S3Store], s3_proxy: S3Proxy, warnings: list[str]
) -> None:
    """Like s3rver, the server neither lists uploads (501) nor aborts them (405)."""
    refused = {"ListMultipartUploads": Fault.NOT_IMPLEMENTED, "AbortMultipartUpload": Fault.NOT_ALLOWED}
    s3_proxy.faults = lambda request: refused.get(request.operation)
    for _ in range(2):
        store = open_store()
        assert list(store.uploads()) == []
        upload = store.create("given up.caf")
        upload.abort()
        store.discard("given up.caf", upload.upload_id)
    assert {name: s3_proxy.count(name) for name in refused} == dict.fromkeys(refused, 1)
    assert len(warnings) == 2


def test_no_such_upload_is_an_empty_list(
    open_store: Callable[[], S3Store], s3_proxy: S3Proxy, warnings: list[str]
) -> None:
    s3_proxy.faults = lambda request: Fault.NO_SUCH_UPLOAD if request.operation == "ListMultipartUploads" else None
    assert list(open_store().uploads()) == []
    assert warnings == []


def test_missing_bucket_is_detected_if_uploads_cannot_be_listed(verdicts: Remembered, warnings: list[str]) -> None:
    url = "s3://cafcat-test-no-such-bucket"
    store = open_remembering(url, verdicts, warnings.append)
    verdicts.remember(store.url, "list_uploads")
    with pytest.raises(NotFound):
        list(store.uploads())


@pytest.mark.parametrize(("key", "operation"), [("taken", "CompleteMultipartUpload"), ("wrong part", "UploadPart")])
def test_a_busy_server_fails_no_check(
    s3_proxy: S3Proxy,
    store: S3Store,
    verdicts: Remembered,
    monkeypatch: pytest.MonkeyPatch,
    key: str,
    operation: str,
) -> None:
    monkeypatch.setattr("cafcat.remote.connection.ATTEMPTS", 1)
    busy = (key, operation)
    s3_proxy.faults = lambda request: (
        Fault.ERROR_503 if (request.key.rpartition("/")[2], request.operation) == busy else None
    )
    with pytest.raises(ServerFailed, match="SlowDown"):
        list(store.probe())
    assert verdicts.checks == {}


def test_existing_key_is_detected_if_the_server_would_replace_it(
    store: S3Store, s3_proxy: S3Proxy, s3_server: S3Server, s3_bucket: str, verdicts: Remembered
) -> None:
    verdicts.remember(store.url, "conditional_writes")
    s3_server.client().put_object(Bucket=s3_bucket, Key="chunks/chunk.caf", Body=b"theirs")
    with pytest.raises(Conflict):
        put(store, "chunk.caf", b"ours!!")
    assert s3_proxy.count("CompleteMultipartUpload") == 0
    assert store.read("chunk.caf", 0, 6) == b"theirs"


def test_ranges_answered_with_status_200_are_read_right(
    store: S3Store, s3_proxy: S3Proxy, s3_server: S3Server, s3_bucket: str
) -> None:
    """rclone answers this way, with the right Content-Range."""
    s3_server.client().put_object(Bucket=s3_bucket, Key="chunks/plain", Body=b"0123456789")
    s3_proxy.faults = lambda request: Fault.STATUS_200 if request.operation == "GetObject" else None
    assert store.read("plain", 0, 10) == b"0123456789"
    assert store.read("plain", 3, 7) == b"3456"
    assert b"".join(store.stream("plain", 0, 10)) == b"0123456789"
    assert s3_proxy.count("GetObject") == 4, "the first request by obstore is in vain"


def test_an_answer_that_is_not_read_to_its_end_is_closed(
    store: S3Store, s3_proxy: S3Proxy, s3_server: S3Server, s3_bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer is closed even while the exception exists, whose traceback refers to it."""
    s3_server.client().put_object(Bucket=s3_bucket, Key="chunks/plain", Body=content(8 * MIB))
    s3_proxy.faults = lambda request: Fault.STATUS_200 if request.operation == "GetObject" else None
    bodies, client = list[Any](), store._connection.client
    get_object = client.get_object

    def get(**options: Any) -> Any:
        found = get_object(**options)
        bodies.append(found["Body"]._raw_stream)
        return found

    monkeypatch.setattr(client, "get_object", get)
    remote = RemoteObject(store._connection, "chunks/plain")
    blocks = remote.blocks(0, 8 * MIB)
    next(blocks)
    cast("Generator[bytes]", blocks).close()
    with pytest.raises(Corrupt) as too_short:
        remote.read_at(0, 8 * MIB + 1)
    s3_proxy.removed_headers = lambda _: {HEADERS["tag"]}
    s3_proxy.further_headers = lambda _: [b'ETag: "0123456789abcdef0123456789abcdef"']
    with pytest.raises(Conflict, match="ignored If-Match") as changed:
        remote.read_at(0, 8 * MIB)
    assert None not in (too_short.tb, changed.tb)
    assert [body.closed for body in bodies] == [True] * 3


def test_verdicts_of_other_versions_are_ignored(verdicts: Remembered) -> None:
    verdicts.remember("s3://b", "of the future")
    assert ServerChecks("s3://b", StoreContext(verdicts=verdicts)).failed == frozenset()


def test_without_a_listener_failed_checks_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    checks = ServerChecks("s3://b", StoreContext())
    with caplog.at_level(logging.WARNING, "cafcat"):
        checks.fail(ServerCheck.ABORT_UPLOADS)
        checks.fail(ServerCheck.ABORT_UPLOADS)
    assert len(caplog.messages) == 1
    assert "s3://b" in caplog.messages[0]
