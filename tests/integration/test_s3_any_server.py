"""Features that must work on every S3 server: see docs/s3.md."""

import contextlib
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

import cafcat
from cafcat.errors import CafcatError, Conflict, Corrupt, NotFound
from cafcat.remote.access import S3Access
from cafcat.stores.base import ObjectInfo
from cafcat.stores.s3.parts import MAX_PARTS, plan_parts
from cafcat.stores.s3.store import S3Store
from tests.worlds.places import Bucket
from tests.worlds.servers.s3_proxy import Fault, S3Proxy
from tests.worlds.servers.s3_server import S3Server, needs
from tests.worlds.servers.server_verdicts import MEMORY, Remembered, open_remembering
from tests.worlds.servers.uploads import MIB, content, put


@pytest.fixture
def open_store(s3_bucket: str, s3_proxy_environment: None) -> Callable[[], S3Store]:
    """A function that opens the store as a new process does. Verdicts about the server are remembered."""
    return partial(open_remembering, f"s3://{s3_bucket}/chunks", Remembered())


@pytest.fixture
def store(open_store: Callable[[], S3Store]) -> S3Store:
    return open_store()


@pytest.fixture
def without_payload_signatures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Disable signatures of bodies, which https connections do not have."""
    from botocore.auth import S3SigV4Auth

    monkeypatch.setattr(S3SigV4Auth, "_should_sha256_sign_payload", lambda *_: False)


@pytest.mark.usefixtures("without_payload_signatures")
@pytest.mark.parametrize("number", ["1", "2"])
@pytest.mark.parametrize("is_second", [False, True])
def test_changed_part_is_refused(
    open_store: Callable[[], S3Store], s3_proxy: S3Proxy, number: str, is_second: bool
) -> None:
    """The server or cafcat refuses the part, also for later objects, when verdicts are known."""
    store = open_store()
    data = content(7 * MIB)
    if is_second:
        put(store, "before.caf", data)
    s3_proxy.faults = lambda request: Fault.FLIPPED_BIT if request.query.get("partNumber") == number else None
    with pytest.raises(CafcatError):
        put(store, "chunk.caf", data)
    assert any(request.fault is Fault.FLIPPED_BIT for request in s3_proxy.requests)
    s3_proxy.faults = lambda _: None
    put(open_store(), "after.caf", data)
    assert store.read("after.caf", 0, len(data)) == data


@pytest.mark.parametrize("size_bytes", [0, 1, 5 * MIB - 1, 5 * MIB, 5 * MIB + 1, 16 * MIB])
def test_objects_of_any_number_of_parts_are_read_back(store: S3Store, size_bytes: int) -> None:
    data = content(size_bytes)
    put(store, "chunk.caf", data)
    assert store.stat("chunk.caf").size_bytes == size_bytes
    assert store.read("chunk.caf", 0, size_bytes) == data
    assert b"".join(store.stream("chunk.caf", 0, size_bytes)) == data
    if size_bytes > 10:
        assert store.read("chunk.caf", 3, size_bytes - 3) == data[3:-3]
    with pytest.raises(Corrupt):
        store.read("chunk.caf", 0, size_bytes + 1)


@pytest.mark.parametrize("size_bytes", [MIB, 40 * MIB])
def test_upload_without_its_key_and_parts_is_a_conflict(
    store: S3Store, s3_bucket: str, s3_server: S3Server, size_bytes: int
) -> None:
    """SeaweedFS removes all other uploads of a key when one of them completes."""
    needs(s3_server, "usual_answers")
    upload = store.create("chunk.caf")
    upload.write(content(size_bytes))
    put(store, "chunk.caf", b"of another writer")
    client = s3_server.client()
    with contextlib.suppress(client.exceptions.NoSuchUpload):
        client.abort_multipart_upload(Bucket=s3_bucket, Key="chunks/chunk.caf", UploadId=upload.upload_id)
    with pytest.raises(Conflict):
        upload.commit()
    upload.abort()
    assert store.read("chunk.caf", 0, 17) == b"of another writer"


def test_largest_object_fits_into_10000_parts() -> None:
    """The calculated sizes are 30 GB, 48.8 GiB (the largest object with parts of 5 MiB) and 5 TiB."""
    for largest in (30 * 10**9, MAX_PARTS * 5 * MIB, MAX_PARTS * 5 * MIB + 1, 5 << 40):
        plan = plan_parts(8 << 30, largest)
        assert -(-largest // plan.part_bytes) <= MAX_PARTS
        assert plan.part_bytes >= 5 * MIB
    assert plan_parts(MEMORY, MAX_PARTS * 5 * MIB).part_bytes == 5 * MIB
    assert plan_parts(MEMORY, MAX_PARTS * 5 * MIB + 1).part_bytes == 6 * MIB


ODD_KEYS = [
    "with space",
    "ü/日本.caf",
    "%41?#&+",
    "a+b=c;d,e",
    "quote'\"`$(x)",
    "-n",
    "*[x]",
    "~tilde!",
]


@pytest.mark.parametrize("key", ODD_KEYS)
def test_keys_with_odd_characters_are_unchanged(store: S3Store, key: str) -> None:
    put(store, key, b"data")
    assert [found.key for found in store.list()] == [key]
    assert store.read(key, 1, 3) == b"at"
    store.delete(key)
    assert list(store.list()) == []


def test_listing_continues_after_keys_that_are_not_ascii(
    store: S3Store, s3_server: S3Server, s3_bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some servers make their continuation tokens of the last key."""
    needs(s3_server, "long_lists")
    client = s3_server.client(max_attempts=5)
    keys = sorted(["é 1", "é+2", "日本/é", "日本/&=?", "z", "ñ%20", "ñ%20/x"], key=str.encode)
    if not s3_server.has("any_key"):
        keys.remove("ñ%20")
    for key in keys:
        client.put_object(Bucket=s3_bucket, Key=f"chunks/{key}", Body=b"x")
    list_objects = store._connection.client.list_objects_v2
    monkeypatch.setattr(
        store._connection.client, "list_objects_v2", lambda **options: list_objects(**options, MaxKeys=1)
    )
    assert sorted((found.key for found in store.list()), key=str.encode) == keys


def test_an_object_of_no_bytes_is_listed_and_read(store: S3Store) -> None:
    put(store, "empty", b"")
    assert list(store.list()) == [ObjectInfo("empty", 0)]
    assert store.read("empty", 0, 0) == b""
    assert list(store.stream("empty", 0, 0)) == []


def test_a_missing_bucket_is_not_found(s3_proxy_environment: None) -> None:
    store = S3Store("s3://cafcat-test-no-such-bucket/x", S3Access(), MEMORY)
    for ask in (
        lambda: store.create("k"),
        lambda: store.read("k", 0, 1),
        lambda: store.stat("k"),
        lambda: list(store.list()),
        lambda: list(store.uploads()),
    ):
        with pytest.raises(NotFound):
            ask()


def test_ingest_read_recover_verify_and_prune(
    s3_server: S3Server,
    s3_bucket: str,
    s3_environment: None,
    database_url: str,
    tmp_path: Path,
) -> None:
    """There is at most one warning for each check that the server fails."""
    warnings: list[str] = []
    bucket = Bucket(s3_server, s3_bucket)
    files = tmp_path / "files"
    files.mkdir()

    def open_repository() -> cafcat.Repository:
        return cafcat.open(
            database_url=database_url, home=tmp_path / "home", store=bucket.url, warn=warnings.append
        )

    for turn in range(3):
        (files / f"file{turn}").write_bytes(content(1000, turn))
        with open_repository() as repository:
            assert repository.ingest([str(files)]).chunks_committed == 1
            assert repository.recover().failed == ()
    with open_repository() as repository:
        for turn in range(3):
            path = f"{str(files).removeprefix('/')}/file{turn}"
            assert repository.read(path) == content(1000, turn)
        assert repository.rm([path]).files == 1
        report = repository.prune(grace_seconds=0)
        assert (report.chunks, report.failed) == (1, ())
        assert repository.recover().failed == ()
    assert len(warnings) == len(set(warnings))
    assert all("fails the check" in warning for warning in warnings)
    assert bool(warnings) == (not s3_server.has("usual_answers"))
    bucket.client.close()
