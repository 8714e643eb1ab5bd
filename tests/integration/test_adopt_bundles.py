"""adopt of DataBundles: every shard is a chunk, and its files are read without the index."""

import os
import random
import shutil
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

import cafcat
from cafcat.errors import Corrupt, InvalidInput, NotInstalled
from cafcat.formats.databundle.bundles.bundle import NewBundleFile, UserData, write_bundle
from cafcat.formats.databundle.layout import RECORD_BYTES
from cafcat.formats.databundle.messages import messages
from cafcat.model import VerifyLevel
from cafcat.operations.adopt.report import AdoptReport
from cafcat.support.checksums import crc32c
from tests.worlds.archives.bundles import everything, foreign_bundle, hide_leveldb, inline_shard
from tests.worlds.archives.damage import flip
from tests.worlds.catalog_world import Opener, commit, live
from tests.worlds.kills.killing import killed_at_each_step
from tests.worlds.listeners import Following, Heard, follow, problems
from tests.worlds.places import Bucket, Folder

NOISE = random.Random(21).randbytes(3 << 20)
FILES = {
    **{f"folder/{n:02}": b"line %d\n" % n * (n * 9) for n in range(40)},
    "large": NOISE,
    "zeros": bytes(3 * RECORD_BYTES + 5),
    "sparse": NOISE[:300_000] + bytes(4 * RECORD_BYTES) + b"end",
    "straddling": NOISE[: RECORD_BYTES + 10],
    "empty": b"",
    "\u00fc": b"name",
}
COMPRESSIONS = pytest.mark.parametrize("compression", ["none", "snappy", "zlib"])
SHARDS = 3


def bundle(folder: Path, compression: str = "zlib", shards: int = SHARDS, **files: bytes) -> dict[str, bytes]:
    """Write a bundle, and return the bytes of all its files."""
    new = [NewBundleFile(path, content) for path, content in (files or FILES).items()]
    write_bundle(
        folder, [*new, NewBundleFile("folder", None, UserData("x", b"y"))], shards=shards, compression=compression
    )
    return everything(folder)


def adopt(repository: cafcat.Repository, *archives: Path | str, **options: Any) -> AdoptReport:
    return follow(repository, options).adopt(list(archives), **options)


def verdicts(repository: cafcat.Repository, level: VerifyLevel) -> list[str]:
    found: list[str] = []
    repository.with_progress(Following(on=lambda one: found.append(one.verdict))).verify(level=level, restart=True)
    return found


def check_read(repository: cafcat.Repository, folder: Path) -> None:
    """Check that all ways to read give the contents of the bundle."""
    assert live(repository) == set(FILES)
    assert dict(repository.read_many(FILES)) == FILES
    for path, content in FILES.items():
        assert b"".join(repository.stream(path)) == content
        middle = len(content) // 2
        assert repository.read(path, middle, middle + 700) == content[middle : middle + 700]
    repository.extract("", folder / "out")
    out = {
        str(path.relative_to(folder / "out")): path.read_bytes()
        for path in (folder / "out").rglob("*")
        if path.is_file()
    }
    assert out == FILES


@COMPRESSIONS
def test_files_of_a_bundle_are_read_in_place(local: cafcat.Repository, tmp_path: Path, compression: str) -> None:
    before = bundle(tmp_path / "there", compression)
    report = adopt(local, tmp_path / "there")
    assert (report.failed, report.archives, report.files) == ([], SHARDS, len(FILES))
    assert report.bytes == sum(map(len, FILES.values()))
    chunks = list(local.chunks())
    assert {chunk.object_key for chunk in chunks} == {f"shard-{n:08}" for n in range(SHARDS)}
    assert {(chunk.format, chunk.adopted_prefix) for chunk in chunks} == {("databundle", "")}
    assert verdicts(local, VerifyLevel.INDEX) == verdicts(local, VerifyLevel.DATA) == ["ok"] * SHARDS
    shutil.move(tmp_path / "there/index", tmp_path / "index")
    check_read(local, tmp_path)
    assert verdicts(local, VerifyLevel.DATA) == ["ok"] * SHARDS
    assert verdicts(local, VerifyLevel.INDEX) == ["unreadable"] * SHARDS  # their entries are only in the index
    shutil.move(tmp_path / "index", tmp_path / "there/index")
    assert everything(tmp_path / "there") == before


def test_spans_and_decodings_of_files(local: cafcat.Repository, tmp_path: Path) -> None:
    """The catalog has a span and a decoding for each kind of file."""
    files = {"a": b"first", "b": b"second", "large": NOISE, "zeros": bytes(RECORD_BYTES * 2), "z": b""}
    bundle(tmp_path / "zlib", "zlib", 1, **files)
    bundle(tmp_path / "none", "none", 1, **files)
    adopt(local, tmp_path / "zlib", prefix="zlib")
    adopt(local, tmp_path / "none", prefix="none")
    found = {path: local.locate(path) for path in live(local)}
    decodings = {path.removeprefix("zlib/"): one.decoding for path, one in found.items() if path.startswith("zlib")}
    assert decodings == {
        "a": "zlib 262144 0",
        "b": "zlib 262144 5",
        "large": "zlib 262144 0",
        "zeros": "zlib 262144 0 0+2",
        "z": None,
    }
    spans = {path: (one.start_byte, one.end_byte) for path, one in found.items()}
    assert spans["zlib/a"] == spans["zlib/b"] == (4096, 8192)
    assert spans["zlib/large"][0] == 8192
    assert spans["zlib/zeros"][0] == spans["zlib/zeros"][1]
    shard = (tmp_path / "none/shard-00000000").read_bytes()
    for path, content in files.items():
        start, end = spans[f"none/{path}"]
        assert (shard[start:end], found[f"none/{path}"].decoding) == (content, None)


@COMPRESSIONS
def test_a_bundle_in_a_bucket(open_at: Opener, bucket: Bucket, tmp_path: Path, compression: str) -> None:
    before = bundle(tmp_path / "there", compression)
    for name, data in before.items():
        bucket.client.put_object(Bucket=bucket.bucket, Key=f"deep/there/{name}", Body=data)
    repository = open_at(Folder(tmp_path / "own"))
    report = adopt(repository, f"s3://{bucket.bucket}/deep/there/")
    assert (report.failed, report.archives, report.files) == ([], SHARDS, len(FILES))
    assert "the archive was adopted before" in adopt(repository, f"s3://{bucket.bucket}/deep/there").failed[0]
    check_read(repository, tmp_path)
    assert verdicts(repository, VerifyLevel.DATA) == ["ok"] * SHARDS
    pages = bucket.client.list_objects_v2(Bucket=bucket.bucket)["Contents"]
    keys = [found["Key"] for found in pages]
    assert {key.removeprefix("deep/there/"): read(bucket, key) for key in keys} == before


def test_object_that_a_console_makes_for_a_folder_is_ignored(
    open_at: Opener, bucket: Bucket, tmp_path: Path
) -> None:
    """The object is empty, and its key ends in a slash."""
    for name, data in bundle(tmp_path / "there").items():
        bucket.client.put_object(Bucket=bucket.bucket, Key=f"there/{name}", Body=data)
    for key in ("there/", "other/"):
        bucket.client.put_object(Bucket=bucket.bucket, Key=key, Body=b"")
    repository = open_at(Folder(tmp_path / "own"))
    url = f"s3://{bucket.bucket}/there/"
    inspected = cafcat.inspect(url, repository.settings)
    assert {entry.path for entry in inspected.entries} == set(FILES)
    assert cafcat.convert(url, tmp_path / "out.caf", settings=repository.settings).files == len(FILES)
    assert adopt(repository, url).files == len(FILES)
    for name, message in (("/other/", "is a folder, not an archive"), ("", "is a folder, not an archive")):
        with pytest.raises(InvalidInput, match=message):
            cafcat.inspect(f"s3://{bucket.bucket}{name}", repository.settings)
        assert message in adopt(repository, f"s3://{bucket.bucket}{name}").failed[0]


def test_bundle_is_adopted_by_a_file_url(local: cafcat.Repository, tmp_path: Path) -> None:
    there = tmp_path / "a folder#1"
    bundle(there)
    url = there.as_uri()
    assert {entry.path for entry in cafcat.inspect(url).entries} == set(FILES)
    assert cafcat.inspect(f"{url}/shard-00000001").object == f"{there}/shard-00000001"
    assert cafcat.convert(url, tmp_path / "out.caf").files == len(FILES)
    assert adopt(local, f"{url}/").files == len(FILES)


def read(bucket: Bucket, key: str) -> bytes:
    return bucket.client.get_object(Bucket=bucket.bucket, Key=key)["Body"].read()


def test_single_shard_is_adopted_by_its_name(local: cafcat.Repository, tmp_path: Path) -> None:
    before = bundle(tmp_path / "there")
    report = adopt(local, tmp_path / "there/shard-00000001")
    of_shard = dict(list(FILES.items())[1::SHARDS])
    assert (report.failed, report.archives, report.files) == ([], 1, len(of_shard))
    assert dict(local.read_many(live(local))) == of_shard
    assert verdicts(local, VerifyLevel.DATA) == ["ok"]
    assert everything(tmp_path / "there") == before


def test_a_shard_that_describes_itself(local: cafcat.Repository, tmp_path: Path) -> None:
    files = [("a", b"text " * 200), ("zeros", bytes(900)), ("b", NOISE[:5000]), ("empty", b"")]
    (tmp_path / "any name").write_bytes(inline_shard(files, "zlib", record_bytes=256, padding=[7, 0]))
    report = adopt(local, tmp_path / "any name")
    assert (report.failed, report.files) == ([], len(files))
    assert dict(local.read_many(live(local))) == dict(files)
    assert verdicts(local, VerifyLevel.INDEX) == verdicts(local, VerifyLevel.DATA) == ["ok"]


def test_bundle_is_adopted_once_and_again_after_prune(local: cafcat.Repository, tmp_path: Path) -> None:
    before = bundle(tmp_path / "there")
    adopt(local, tmp_path / "there")
    again = adopt(local, tmp_path / "there", prefix="again")
    assert (again.archives, len(again.failed)) == (0, SHARDS)
    assert all("the archive was adopted before" in message for message in again.failed)
    local.rm(list(FILES))
    assert local.prune(grace_seconds=0, dry_run=False).let_go == SHARDS
    assert adopt(local, tmp_path / "there").files == len(FILES)
    assert everything(tmp_path / "there") == before


def test_repack_moves_its_files_into_own_chunks(local: cafcat.Repository, tmp_path: Path) -> None:
    bundle(tmp_path / "there", "snappy")
    adopt(local, tmp_path / "there")
    report = local.repack(chunks=[str(chunk.uuid) for chunk in local.chunks()], format="caf")
    assert (report.files_moved, report.chunks_retired, report.failed) == (len(FILES), SHARDS, [])
    shutil.rmtree(tmp_path / "there")
    assert dict(local.read_many(FILES)) == FILES


def test_snapshot_reads_files_of_a_bundle(local: cafcat.Repository, tmp_path: Path) -> None:
    bundle(tmp_path / "there")
    adopt(local, tmp_path / "there")
    local.snapshot(tmp_path / "snapshot")
    with cafcat.Snapshot(tmp_path / "snapshot") as snapshot:
        assert {path: snapshot.read(path) for path in FILES} == FILES


def test_large_files_need_little_memory(local: cafcat.Repository, tmp_path: Path) -> None:
    sparse = b"begin" + bytes(48 << 20) + NOISE
    (tmp_path / "sparse").write_bytes(sparse)
    write_bundle(tmp_path / "there", [NewBundleFile("sparse", tmp_path / "sparse")], compression="snappy")
    tracemalloc.start()
    try:
        assert adopt(local, tmp_path / "there").files == 1
        checksum = 0
        for block in local.stream("sparse"):
            checksum = crc32c(block, checksum)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert checksum == crc32c(sparse)
    assert peak < 16 << 20


def test_a_dry_run_changes_nothing(local: cafcat.Repository, tmp_path: Path) -> None:
    before = bundle(tmp_path / "there")
    assert adopt(local, tmp_path / "there", dry_run=True).files == len(FILES)
    assert list(local.chunks()) == []
    assert everything(tmp_path / "there") == before


def test_stopped_adopt_opens_no_further_archive(local: cafcat.Repository, tmp_path: Path) -> None:
    """Neither missing names nor an index, which would be copied, are read."""
    bundle(tmp_path / "there")
    bundle(tmp_path / "damaged")
    (tmp_path / "damaged/index/CURRENT").write_bytes(b"nothing\n")
    seen: list[Any] = []
    report = adopt(
        local,
        *(tmp_path / name for name in ("there", "missing", "damaged")),
        "https://not/here.caf",
        on_adopted=seen.append,
        should_stop=lambda: bool(seen),
    )
    assert (report.interrupted, report.archives, report.failed) == (True, 1, [])
    report = adopt(local, tmp_path / "damaged", should_stop=lambda: True)
    assert (report.interrupted, report.archives, report.failed) == (True, 0, [])


def test_bundle_in_a_read_only_folder_is_adopted(local: cafcat.Repository, tmp_path: Path) -> None:
    bundle(tmp_path / "there")
    for path in (tmp_path / "there/index", tmp_path / "there"):
        path.chmod(0o500)
    try:
        assert adopt(local, tmp_path / "there").failed == []
    finally:
        for path in (tmp_path / "there", tmp_path / "there/index"):
            path.chmod(0o700)


@COMPRESSIONS
def test_damage_affects_only_the_damaged_files(local: cafcat.Repository, tmp_path: Path, compression: str) -> None:
    bundle(tmp_path / "there", compression, 1)
    shard = tmp_path / "there/shard-00000000"
    flip(shard, shard.read_bytes().index(NOISE[500_000:500_016]))
    heard = Heard()
    report = adopt(local, tmp_path / "there", progress=heard)
    assert (report.files, report.files_failed, report.failed) == (len(FILES) - 1, 1, [])
    assert problems(heard) == {("large", "corrupt")}
    assert dict(local.read_many(live(local))) == {path: FILES[path] for path in FILES if path != "large"}


def test_a_file_that_no_row_can_describe_is_refused_and_no_damage(local: cafcat.Repository, tmp_path: Path) -> None:
    sparse = (b"x" + bytes(7)) * 2000
    foreign_bundle(tmp_path / "there", [("sparse", sparse), ("b", b"b" * 100)], "zlib", record_bytes=4)
    heard = Heard()
    report = adopt(local, tmp_path / "there", progress=heard)
    assert (report.files, report.files_failed) == (1, 1)
    assert "too many runs of zero records" in heard.problems[0].message
    assert local.read("b") == b"b" * 100
    assert verdicts(local, VerifyLevel.INDEX) == verdicts(local, VerifyLevel.DATA) == ["ok"]


@COMPRESSIONS
def test_bytes_that_change_later_are_found(local: cafcat.Repository, tmp_path: Path, compression: str) -> None:
    bundle(tmp_path / "there", compression, 1)
    adopt(local, tmp_path / "there")
    shard = tmp_path / "there/shard-00000000"
    flip(shard, shard.read_bytes().index(NOISE[500_000:500_016]))
    findings = []
    local.with_progress(Following(on=lambda one: findings.extend(one.findings))).verify(level="data")
    assert {finding.path for finding in findings} == {"large"}
    with pytest.raises(Corrupt):
        local.read("large")


def test_shards_that_are_missing_or_anothers(local: cafcat.Repository, tmp_path: Path) -> None:
    bundle(tmp_path / "there")
    (tmp_path / "there/shard-00000000").unlink()
    shutil.copyfile(tmp_path / "there/shard-00000002", tmp_path / "there/shard-00000001")
    report = adopt(local, tmp_path / "there")
    assert report.archives == 1
    assert "shard-00000000" in report.failed[0]
    assert "its head belongs to another shard" in report.failed[1]
    assert live(local) == set(list(FILES)[2::SHARDS])


@pytest.mark.parametrize("name", ["CURRENT", "MANIFEST", ".log"])
@pytest.mark.parametrize("how", ["missing", "cut", "flipped"])
def test_damaged_index_is_reported(local: cafcat.Repository, tmp_path: Path, name: str, how: str) -> None:
    bundle(tmp_path / "there")
    [path] = [path for path in (tmp_path / "there/index").iterdir() if name in path.name]
    if how == "missing":
        path.unlink()
    elif how == "cut":
        path.write_bytes(path.read_bytes()[:-9])
    else:
        flip(path, path.stat().st_size // 2)
    before = everything(tmp_path / "there")
    report = adopt(local, tmp_path / "there")
    assert report.archives == 0
    assert len(report.failed) == 1
    said = ("the index of the bundle cannot be used", "its index has no BUNDLE_CONFIG", "a folder, not an archive")
    assert any(words in report.failed[0] for words in said)
    assert "b'" not in report.failed[0], "LevelDB has messages of bytes"
    assert everything(tmp_path / "there") == before


def test_a_missing_library_is_no_damage(
    local: cafcat.Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle(tmp_path / "there")
    adopt(local, tmp_path / "there")
    hide_leveldb(monkeypatch)
    assert "pip install '.[databundle]' in a clone of cafcat" in adopt(local, tmp_path / "there").failed[0]
    assert dict(local.read_many(FILES)) == FILES
    assert verdicts(local, VerifyLevel.DATA) == ["ok"] * SHARDS
    assert verdicts(local, VerifyLevel.INDEX) == ["unreadable"] * SHARDS  # no part of them was read


def test_files_with_a_missing_library_fail_alone(
    local: cafcat.Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle(tmp_path / "there", "snappy", 1, there=NOISE[:600_000])
    adopt(local, tmp_path / "there")
    commit(local, {"own": b"own"})
    monkeypatch.setitem(sys.modules, "cramjam", None)
    report = local.extract("", tmp_path / "out")
    assert (report.files, report.files_failed) == (1, 1)
    assert "needs the library cramjam" in report.failed[0].message
    found = dict(local.read_many(["own", "there"]))
    assert found["own"] == b"own"
    assert isinstance(found["there"], NotInstalled)


def test_without_protobuf_no_chunk_counts_as_damaged(
    local: cafcat.Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An own chunk cannot be verified then. A bundle can, since the catalog has all rows."""
    (tmp_path / "file").write_bytes(b"own")
    local.ingest([str(tmp_path / "file")], format="databundle", jobs=1)
    bundle(tmp_path / "there", shards=1)
    adopt(local, tmp_path / "there")
    messages.cache_clear()
    monkeypatch.setitem(sys.modules, "google.protobuf.any_pb2", None)
    try:
        assert sorted(verdicts(local, VerifyLevel.DATA)) == ["ok", "unreadable"]
    finally:
        messages.cache_clear()


def test_other_folders_are_no_bundles(local: cafcat.Repository, tmp_path: Path) -> None:
    commit(local, {"own": b"own"})
    (tmp_path / "there/index").mkdir(parents=True)
    (tmp_path / "there/index/other").write_bytes(b"x")
    [message] = adopt(local, tmp_path / "there").failed
    assert "is a folder" in message
    assert live(local) == {"own"}


@pytest.mark.parametrize("every", [4, pytest.param(1, marks=pytest.mark.slow)])
def test_killed_adopt_enters_all_of_a_shard_or_nothing(
    local: cafcat.Repository, folder: Folder, tmp_path: Path, every: int
) -> None:
    names = dict(list(FILES.items())[:6])
    (tmp_path / "there").mkdir()
    before = bundle(tmp_path / "there/x.car", "zlib", 2, **names)
    of_shards = [set(list(names)[shard::2]) for shard in range(2)]

    def prepare(_: int) -> None:
        if live(local):
            local.rm(list(live(local)))
            local.prune(grace_seconds=0)

    for _ in killed_at_each_step(local, folder.url, tmp_path, "adopt", prepare=prepare, at_least=3, every=every):
        assert local.recover().failed == ()
        found = live(local)
        assert found in (set(), *of_shards, set(names))
        assert dict(local.read_many(found)) == {name: names[name] for name in found}
    assert live(local) == set(names)
    assert everything(tmp_path / "there/x.car") == before
    assert os.listdir(tmp_path / "there") == ["x.car"]
