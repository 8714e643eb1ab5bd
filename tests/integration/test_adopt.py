"""adopt: third-party archives are entered into the catalog, and stay unchanged at their place."""

import itertools
import json
import os
import random
import shutil
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

import cafcat
from cafcat.errors import CafcatError, CatalogUnavailable, Corrupt, InvalidInput
from cafcat.formats import registry as formats
from cafcat.formats.base import Format
from cafcat.formats.caf.format import CAF
from cafcat.formats.car import CAR
from cafcat.formats.car.cid import RAW
from cafcat.formats.chunkio import CHUNKIO
from cafcat.formats.chunkio.records_writer import RecordWriter
from cafcat.formats.databundle import DATABUNDLE
from cafcat.model import OnConflict, VerifyLevel
from cafcat.operations.adopt.report import AdoptReport
from cafcat.operations.verify import index_check as check_index
from cafcat.stores.local.files import LocalFile
from cafcat.testing.formats import ListSink, pack
from tests.worlds.archives.car_archives import cid, leaf, v1
from tests.worlds.archives.damage import flip
from tests.worlds.archives.vector_files import FIXTURES_OF_OTHERS, VECTORS, vector_path
from tests.worlds.catalog_world import MODIFIED, Opener, commit, live, sql
from tests.worlds.kills.killing import killed_at_each_step
from tests.worlds.listeners import Following, Heard, follow, problems
from tests.worlds.places import Bucket, Folder


@pytest.fixture
def repository(local: cafcat.Repository) -> cafcat.Repository:
    """A repository. The place of cafcat's own chunks does not matter."""
    return local


CONTENT = random.Random(1)
FILES = {
    "a/1": b"one",
    "a/2": b"two" * 50_000,
    "b": CONTENT.randbytes(2_500_000),
    "empty": b"",
    "ü/x": b"same",
    "y": b"same",
}


def archive(path: Path, archive_format: Format = CAF, files: dict[str, bytes] = FILES) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    data, _, _ = pack(archive_format, [(name, content, MODIFIED) for name, content in files.items()])
    path.write_bytes(data)
    return path


def foreign(path: Path, files: dict[str, bytes] = FILES) -> Path:
    """Write a CAF as the original programs write it, without checksums."""
    index, position = {}, 0
    for name, content in files.items():
        index[name] = {"start_byte": position, "end_byte": position + len(content)}
        position += len(content)
    text = json.dumps({"format_version": "1.0", "files": index}).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(files.values()) + text + len(text).to_bytes(4, "little"))
    return path


def adopt(repository: cafcat.Repository, *archives: Path | str, **options: Any) -> AdoptReport:
    return follow(repository, options).adopt(list(archives), **options)


def adopted(repository: cafcat.Repository, *archives: Path | str, **options: Any) -> AdoptReport:
    report = adopt(repository, *archives, **options)
    assert report.failed == []
    assert report.archives == len(archives)
    return report


def verdicts(repository: cafcat.Repository, level: VerifyLevel) -> dict[str, str]:
    found = {}
    repository.with_progress(Following(on=lambda one: found.update({one.object: one.verdict}))).verify(
        level=level, restart=True
    )
    return found


def readable(path: Path) -> tuple[str, dict[str, bytes]] | None:
    """Return the format of an archive, and the contents that its own reader accepts.

    Returns None if the reader refuses the whole archive.
    """
    file = LocalFile(str(path))
    try:
        archive_format = formats.detect(file)
        reader = archive_format.reader(file)
        entries = list(reader.entries())
    except CafcatError:
        return None
    found = {}
    for entry in entries:
        try:
            found[entry.path] = b"".join(reader.open(entry))
        except CafcatError:
            continue
    return archive_format.name, found


def vectors() -> Iterator[Path]:
    """Return the vectors of this repository, and the fixtures of other projects if they are available."""
    suffixes = (".caf", ".car", ".cio", ".clp")
    found = [*sorted(VECTORS.rglob("*")), *map(vector_path, FIXTURES_OF_OTHERS)]
    return (path for path in found if path.name.endswith(suffixes) and path.exists())


def test_adopted_vectors_equal_the_output_of_their_readers(repository: cafcat.Repository, tmp_path: Path) -> None:
    whole: set[str] = set()
    for number, vector in enumerate(vectors()):
        path = tmp_path / "there" / f"{number}-{vector.name}"
        path.parent.mkdir(exist_ok=True)
        shutil.copyfile(vector, path)
        found = readable(path)
        if found is None:
            assert adopt(repository, path).failed
            continue
        name, expected = found
        report = adopt(repository, path, prefix=str(number))
        if not expected and report.failed:
            continue
        assert report.failed == []
        before = f"{number}/{path.name}" if name == "clp-s" else f"{number}/"
        paths = {before + found: content for found, content in expected.items() if "\0" not in found}
        assert {p for p in live(repository) if p.startswith(f"{number}/")} == set(paths)
        for found, content in repository.read_many(paths):
            assert content == paths[found], (vector, found)
        assert path.read_bytes() == vector.read_bytes()
        whole |= {str(path)} if expected and not report.files_failed else set()
    assert len(whole) > 30
    for level in (VerifyLevel.INDEX, VerifyLevel.DATA):
        found = verdicts(repository, level)
        assert {path: found[path] for path in whole} == dict.fromkeys(whole, "ok")


@pytest.mark.parametrize("archive_format", [CAF, CAR, CHUNKIO, DATABUNDLE], ids=lambda one: str(one.name))
def test_files_of_an_archive_are_read_in_place(
    repository: cafcat.Repository, tmp_path: Path, archive_format: Format
) -> None:
    path = archive(tmp_path / "there" / "any name", archive_format)
    before = path.read_bytes(), os.stat(path)
    report = adopted(repository, path, prefix="old")
    assert (report.files, report.bytes) == (len(FILES), sum(map(len, FILES.values())))
    for name, content in FILES.items():
        assert repository.read(f"old/{name}") == content
        assert repository.read(f"old/{name}", len(content) // 2) == content[len(content) // 2 :]
        assert repository.object_of(repository.locate(f"old/{name}")) == str(path)
    repository.extract("old", tmp_path / "out")
    out = tmp_path / "out"
    found = {str(file.relative_to(out)): file.read_bytes() for file in out.rglob("*") if file.is_file()}
    assert found == {f"old/{name}": content for name, content in FILES.items()}
    assert (path.read_bytes(), os.stat(path)) == before
    assert os.listdir(path.parent) == ["any name"]
    [chunk] = repository.chunks()
    assert (chunk.format, chunk.adopted_prefix, chunk.object_key) == (archive_format.name, "old/", "any name")
    assert verdicts(repository, VerifyLevel.INDEX) == {str(path): "ok"}
    assert verdicts(repository, VerifyLevel.DATA) == {str(path): "ok"}
    assert repository.session.catalog.reports.findings() == []


def test_an_archive_in_a_bucket(open_at: Opener, bucket: Bucket, tmp_path: Path) -> None:
    content = archive(tmp_path / "x", CAR).read_bytes()
    bucket.client.put_object(Bucket=bucket.bucket, Key="deep/there.car", Body=content)
    repository = open_at(Folder(tmp_path / "own"))
    adopted(repository, f"s3://{bucket.bucket}/deep/there.car")
    assert dict(repository.read_many(FILES)) == FILES
    keys = [found["Key"] for found in bucket.client.list_objects_v2(Bucket=bucket.bucket)["Contents"]]
    assert keys == ["deep/there.car"]


def test_object_with_an_invalid_key_is_refused(open_at: Opener, bucket: Bucket, tmp_path: Path) -> None:
    path = archive(tmp_path / "there.caf")
    bucket.client.put_object(Bucket=bucket.bucket, Key="deep/there.caf", Body=path.read_bytes())
    repository = open_at(Folder(tmp_path / "own"))
    [message] = adopt(repository, f"s3://{bucket.bucket}/deep//there.caf").failed
    assert "a store cannot have an object of this name" in message
    assert live(repository) == set()


def test_a_file_without_its_first_bytes_is_adopted_with_its_format_named(
    repository: cafcat.Repository, tmp_path: Path
) -> None:
    sink = ListSink()
    RecordWriter(sink).write(bytes(16), b"content")
    path = tmp_path / "there" / "x.cio"
    path.parent.mkdir()
    path.write_bytes(bytes(16) + sink.data[16:])
    assert "for a damaged archive, name one (--format" in adopt(repository, path).failed[0]
    adopted(repository, path, format="chunkio")
    assert repository.read("x.cio/0000000000000000") == b"content"
    for level in (VerifyLevel.INDEX, VerifyLevel.DATA):
        assert verdicts(repository, level) == {str(path): "ok"}
    with pytest.raises(InvalidInput, match="no format 'zip'"):
        adopt(repository, path, format="zip")


def test_padded_car_with_unchecked_hashes_is_adopted_with_warnings(
    repository: cafcat.Repository, tmp_path: Path
) -> None:
    path = tmp_path / "there" / "x.car"
    path.parent.mkdir()
    blocks = [leaf(b"checked"), (cid(RAW, 0x1B, bytes(32)), b"keccak"), (cid(RAW, 0x1B, b"1" * 32), b"another")]
    path.write_bytes(v1([], blocks) + bytes(1000))
    assert "--zero-padding" in adopt(repository, path).failed[0]
    heard = Heard()
    report = adopted(repository, path, zero_padding=True, progress=heard)
    assert (report.files, report.unchecked_blocks) == (3, 2)
    assert heard.warnings == [f"{path}: cafcat cannot check the hashes of 2 blocks: Keccak-256 (0x1b)"]
    for level in (VerifyLevel.INDEX, VerifyLevel.DATA):
        verified = repository.verify(level=level, restart=True)
        assert (verified.ok, verified.damaged, verified.unchecked_blocks) == (1, 0, 2)
    data = path.read_bytes()
    path.write_bytes(v1([], blocks[:1]) + bytes(len(data) - len(v1([], blocks[:1]))))
    assert verdicts(repository, VerifyLevel.INDEX) == {str(path): "damaged"}


def test_archive_that_changes_during_adopt_is_refused(repository: cafcat.Repository, tmp_path: Path) -> None:
    path = archive(tmp_path / "x.car", CAR)

    def changed() -> bool:
        """Replace the archive by a copy."""
        shutil.copy(path, tmp_path / "other")
        os.replace(tmp_path / "other", path)
        return False

    report = adopt(repository, path, should_stop=changed)
    assert report.failed == [f"{path}: the archive was changed while it was read"]
    assert (report.archives, live(repository), list(repository.chunks())) == (0, set(), [])


def test_object_that_changes_during_adopt_is_refused(open_at: Opener, bucket: Bucket, tmp_path: Path) -> None:
    content = archive(tmp_path / "x", CAF).read_bytes()
    numbers = itertools.count()

    def put() -> bool:
        version = content.replace(b"one", b"%03d" % next(numbers), 1)
        bucket.client.put_object(Bucket=bucket.bucket, Key="there.caf", Body=version)
        return False

    put()
    repository = open_at(Folder(tmp_path / "own"))
    report = adopt(repository, f"s3://{bucket.bucket}/there.caf", should_stop=put)
    assert report.failed == [f"s3://{bucket.bucket}/there.caf: the archive was changed while it was read"]
    assert live(repository) == set()
    adopted(repository, f"s3://{bucket.bucket}/there.caf")
    [(etag,)] = sql(repository, "SELECT etag FROM chunks")
    assert etag == bucket.client.head_object(Bucket=bucket.bucket, Key="there.caf")["ETag"].strip('"')


def test_archives_without_checksums_are_read_for_them(repository: cafcat.Repository, tmp_path: Path) -> None:
    adopted(repository, foreign(tmp_path / "go.caf"))
    assert repository.read("b") == FILES["b"]
    flip(tmp_path / "go.caf", 5)
    with pytest.raises(Corrupt):
        repository.read("a/2")


def test_damaged_entry_is_reported_and_left_out(repository: cafcat.Repository, tmp_path: Path) -> None:
    flip(archive(tmp_path / "x.caf"), 1)
    heard = Heard()
    report = adopt(repository, tmp_path / "x.caf", progress=heard)
    assert (report.files, report.files_failed, report.failed) == (len(FILES) - 1, 1, [])
    assert [path for path, *_ in problems(heard)] == ["a/1"]
    [(path, detail)] = sql(repository, "SELECT file_path, detail FROM events WHERE kind = 'file_failed'")
    assert path == "a/1"
    assert detail.endswith(f"archive {tmp_path / 'x.caf'}")
    assert live(repository) == set(FILES) - {"a/1"}
    for level in (VerifyLevel.INDEX, VerifyLevel.DATA):  # the adopted entries are unchanged
        assert verdicts(repository, level) == {str(tmp_path / "x.caf"): "ok"}


def test_name_that_the_catalog_cannot_store_fails_alone(
    repository: cafcat.Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = foreign(tmp_path / "x.caf", FILES | {"nul\0": b"1", "long" * 1000: b"2"})
    assert adopt(repository, path).files_failed == 2
    for pending in (1000, 0):
        monkeypatch.setattr(check_index, "_PENDING", pending)
        assert verdicts(repository, VerifyLevel.INDEX) == {str(path): "ok"}
        sql(repository, "UPDATE file_locations SET end_byte = end_byte - 1 WHERE file_path = 'y'")
        assert verdicts(repository, VerifyLevel.INDEX) == {str(path): "damaged"}
        sql(repository, "UPDATE file_locations SET end_byte = end_byte + 1 WHERE file_path = 'y'")


def test_bytes_that_change_later_are_found(repository: cafcat.Repository, tmp_path: Path) -> None:
    path = archive(tmp_path / "x.car", CAR)
    adopted(repository, path)
    location = repository.locate("y")
    flip(path, location.start_byte)
    findings = []
    repository.with_progress(Following(on=lambda one: findings.extend(one.findings))).verify(level="data")
    assert {finding.path for finding in findings} >= {"y"}


@pytest.mark.parametrize(
    ("how", "content", "skipped"), [("fail", b"mine", 0), ("skip", b"mine", 1), ("replace", b"one", 0)]
)
def test_paths_that_the_catalog_has(
    repository: cafcat.Repository, tmp_path: Path, how: str, content: bytes, skipped: int
) -> None:
    commit(repository, {"a/1": b"mine"})
    report = adopt(repository, archive(tmp_path / "x.caf"), on_conflict=how)
    assert repository.read("a/1") == content
    assert report.skipped == skipped
    if how == OnConflict.FAIL:
        assert "the catalog has a file of this name (path 'a/1')" in report.failed[0]
        assert live(repository) == {"a/1"}
    else:
        assert live(repository) == set(FILES)


def test_an_object_is_adopted_once(repository: cafcat.Repository, tmp_path: Path) -> None:
    path = archive(tmp_path / "x.caf")
    adopted(repository, path)
    assert "the archive was adopted before" in adopt(repository, path, prefix="again").failed[0]
    own = commit(repository, {"own": b"own"})
    store = Path(repository.settings.store.removeprefix("file://"))
    assert "is a chunk of this catalog" in adopt(repository, store / f"{own}.caf", prefix="again").failed[0]


def test_an_object_of_a_deleted_chunk_is_adopted_in_another_folder(
    repository: cafcat.Repository, tmp_path: Path
) -> None:
    own = commit(repository, {"own": b"own"})
    found = Path(repository.settings.store.removeprefix("file://")) / f"{own}.caf"
    data = found.read_bytes()
    repository.rm(["own"])
    assert repository.prune(grace_seconds=0).chunks == 1
    found.write_bytes(data)
    hint = "its object can be adopted in another folder: move it there"
    assert hint in adopt(repository, found).failed[0]
    adopted(repository, found.rename(tmp_path / found.name))
    assert repository.read("own") == b"own"


def test_pruned_archive_stays_on_disk_and_can_be_adopted_again(
    repository: cafcat.Repository, tmp_path: Path
) -> None:
    path = archive(tmp_path / "x.caf")
    before = path.read_bytes()
    adopted(repository, path)
    repository.rm(list(FILES))
    assert [chunk.state for chunk in repository.chunks()] == ["retired"]
    repository.undelete(["a/1"])
    assert repository.read("a/1") == b"one"
    repository.rm(["a/1"])
    report = repository.prune(grace_seconds=0, dry_run=False)
    assert (report.let_go, report.objects, report.bytes_freed, report.failed) == (1, 0, 0, ())
    assert path.read_bytes() == before
    assert repository.recover().failed == ()
    adopted(repository, path)
    assert repository.read("b") == FILES["b"]


def test_other_verbs_do_not_touch_the_folder_of_an_archive(repository: cafcat.Repository, tmp_path: Path) -> None:
    folder = tmp_path / "there"
    archive(folder / "x.caf")
    adopted(repository, folder / "x.caf", prefix="old")
    commit(repository, {"own": b"own"})
    repository.rm(["old/a/1"])
    folder.chmod(0o500)
    os.rename(folder, tmp_path / "away")
    assert repository.recover().failed == ()
    repository.copy(to=str(tmp_path / "copies"))
    assert len(list((tmp_path / "copies").glob("*.caf"))) == 1
    assert repository.repack(max_unused=0.0, dry_run=False).failed == []
    assert repository.prune(grace_seconds=0, dry_run=False).failed == ()
    os.rename(tmp_path / "away", folder)
    folder.chmod(0o700)
    assert os.listdir(folder) == ["x.caf"]
    assert repository.read("old/b") == FILES["b"]


def test_repack_moves_its_files_into_own_chunks(repository: cafcat.Repository, tmp_path: Path) -> None:
    path = archive(tmp_path / "x.car", CAR)
    adopted(repository, path)
    [chunk] = repository.chunks()
    with pytest.raises(InvalidInput, match="an adopted archive cannot be copied"):
        repository.copy([str(chunk.uuid)], to=str(tmp_path / "copies"))
    report = repository.repack(chunks=[str(chunk.uuid)], format="caf")
    assert (report.files_moved, report.chunks_retired, report.failed) == (len(FILES), 1, [])
    path.unlink()
    assert dict(repository.read_many(FILES)) == FILES
    assert {location.store for location in repository.list()} == {repository.settings.store}


def test_files_belong_to_the_run_that_adopted_them(
    repository: cafcat.Repository, tmp_path: Path, database_url: str
) -> None:
    """Also after a repack and a repair of the new chunk."""
    commit(repository, {"b": b"older"})
    report = adopted(repository, archive(tmp_path / "x.caf"), on_conflict="replace")
    run = repository.runs(1)[0]
    assert (run.id, run.state, run.chunks_committed) == (report.run, "finished", 1)
    assert (run.files_added, run.files_replaced) == (len(FILES) - 1, 1)
    assert run.sources == (str(tmp_path / "x.caf"),)
    query = "SELECT file_path, run_id FROM cafcat_ops.files ORDER BY 1"
    expected = sorted((path, report.run) for path in FILES)

    def found() -> list[tuple[str, int]]:
        with psycopg.connect(database_url) as connection:
            return sorted(connection.execute(query).fetchall())

    assert found() == expected
    [chunk] = [chunk for chunk in repository.chunks() if chunk.state == "committed"]
    repository.repack(chunks=[str(chunk.uuid)])
    assert found() == expected
    [new] = [chunk for chunk in repository.chunks() if chunk.state == "committed"]
    repository.copy(to=str(tmp_path / "copies"))
    flip(Path(urlsplit(new.store).path) / f"{new.uuid}.caf", repository.locate("a/2").start_byte)
    assert repository.verify(level="data").damaged == 1
    repository.repair(from_copies=True, dry_run=False)
    assert found() == expected
    with psycopg.connect(database_url) as connection:
        [[chunks]] = connection.execute("SELECT count(DISTINCT chunk) FROM cafcat_ops.files").fetchall()
        [[moved]] = connection.execute(
            "SELECT count(*) FROM cafcat_ops.files WHERE chunk = %s", [new.uuid]
        ).fetchall()
    assert (chunks, moved) == (1, 0)
    assert dict(repository.read_many(FILES)) == FILES


@pytest.mark.parametrize("what", ["missing", "a folder", "no archive", "nothing"])
def test_other_files_are_refused_and_archives_adopted(
    repository: cafcat.Repository, tmp_path: Path, what: str
) -> None:
    bad = tmp_path / what
    if what == "a folder":
        bad.mkdir()
    elif what != "missing":
        bad.write_bytes(b"" if what == "nothing" else b"no archive at all" * 20)
    report = adopt(repository, bad, archive(tmp_path / "good.caf"))
    assert len(report.failed) == 1
    assert str(bad) in report.failed[0]
    assert (report.archives, report.files) == (1, len(FILES))
    [run] = repository.runs()
    assert run.files_failed == 1
    failed = sql(repository, "SELECT file_path FROM events WHERE kind = 'file_failed' AND run_id = %s", run.id)
    assert failed == [(str(bad),)]


def test_a_dry_run_and_one_that_is_stopped_change_nothing(repository: cafcat.Repository, tmp_path: Path) -> None:
    path = archive(tmp_path / "x.caf")
    report = adopted(repository, path, dry_run=True)
    assert report.files == len(FILES)
    asked = iter([False, False, False, True])  # in the middle of a file
    report = adopt(repository, path, should_stop=lambda: next(asked, True))
    assert (report.interrupted, report.archives) == (True, 0)
    assert sql(repository, "SELECT count(*) FROM chunks") == [(0,)]


@pytest.mark.parametrize("on_conflict", OnConflict)
def test_dry_run_reports_the_effects_of_a_real_run(
    repository: cafcat.Repository, tmp_path: Path, on_conflict: OnConflict
) -> None:
    commit(repository, {"a/1": b"another", "b": b"another"})
    path = archive(tmp_path / "x.caf")
    dry, done = (
        adopt(repository, path, on_conflict=on_conflict, dry_run=dry_run).failed
        if on_conflict is OnConflict.FAIL
        else asdict(adopt(repository, path, on_conflict=on_conflict, dry_run=dry_run))
        | {"dry_run": None, "run": None}
        for dry_run in (True, False)
    )
    assert dry == done
    assert ("'a/1'" in str(dry)) == (on_conflict is OnConflict.FAIL)


def test_names_of_archives(repository: cafcat.Repository, tmp_path: Path) -> None:
    path = archive(tmp_path / "a folder" / "100%.caf")
    adopted(repository, path.as_uri(), prefix="./p//q/")
    assert live(repository) == {f"p/q/{name}" for name in FILES}
    report = adopt(repository, "http://host/x.caf", "FILE://elsewhere/x.caf", tmp_path / "missing")
    assert "an archive must be a local file or an object in a store" in report.failed[0]
    assert "not the URL of a file or folder of this machine" in report.failed[1]
    assert cafcat.inspect(path.as_uri()).format == "caf"


def test_message_for_an_adopted_archive_without_live_files(repository: cafcat.Repository, tmp_path: Path) -> None:
    commit(repository, FILES)
    path = archive(tmp_path / "x.caf")
    assert adopted(repository, path, on_conflict=OnConflict.SKIP).files == 0
    [message] = adopt(repository, path, on_conflict=OnConflict.REPLACE).failed
    assert "`cafcat prune` lets it go after 7 days, or with `--grace 0` at once" in message
    assert repository.prune(dry_run=False).let_go == 0
    assert repository.prune(grace_seconds=0, dry_run=False).let_go == 1
    assert adopted(repository, path, on_conflict=OnConflict.REPLACE).files == len(FILES)


def test_commit_with_a_lost_answer_is_checked(
    repository: cafcat.Repository, tmp_path: Path, database_url: str
) -> None:
    """The server ends the connection during the commit, before or after its effect."""
    path = archive(tmp_path / "x.caf")
    with psycopg.connect(database_url, autocommit=True) as other:
        other.execute(
            "CREATE FUNCTION cut() RETURNS trigger LANGUAGE plpgsql AS "
            "$$BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NULL; END$$"
        )
        other.execute(
            "CREATE CONSTRAINT TRIGGER cut AFTER INSERT ON chunks DEFERRABLE INITIALLY DEFERRED "
            "FOR EACH ROW EXECUTE FUNCTION cut()"
        )
        with pytest.raises(CatalogUnavailable):
            adopt(repository, path)
        assert other.execute("SELECT count(*) FROM chunks").fetchone() == (0,)
        other.execute("DROP TRIGGER cut ON chunks")
    adopted(repository, path)
    assert dict(repository.read_many(FILES)) == FILES


@pytest.mark.parametrize("every", [4, pytest.param(1, marks=pytest.mark.slow)])
def test_killed_adopt_enters_all_of_an_archive_or_nothing(
    local: cafcat.Repository, folder: Folder, tmp_path: Path, every: int
) -> None:
    path = archive(tmp_path / "there" / "x.car", CAR)
    before = path.read_bytes()

    def prepare(_: int) -> None:
        if live(local):
            local.rm(list(FILES))
            local.prune(grace_seconds=0)

    for _ in killed_at_each_step(local, folder.url, tmp_path, "adopt", prepare=prepare, at_least=3, every=every):
        assert local.recover().failed == ()
        found = live(local)
        assert found in (set(), set(FILES))
        assert len([chunk for chunk in local.chunks() if chunk.state == "committed"]) == bool(found)
        assert dict(local.read_many(found)) == {name: FILES[name] for name in found}
    assert live(local) == set(FILES)
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == ["x.car"]


def test_entries_that_share_bytes(repository: cafcat.Repository, tmp_path: Path) -> None:
    """Such entries are valid in a third-party CAF."""
    index = {"a": {"start_byte": 0, "end_byte": 6}, "b": {"start_byte": 3, "end_byte": 9}}
    text = json.dumps({"format_version": "1.0", "files": index}).encode()
    path = tmp_path / "x.caf"
    path.write_bytes(b"123456789" + text + len(text).to_bytes(4, "little"))
    adopted(repository, path)
    assert dict(repository.read_many(["a", "b"])) == {"a": b"123456", "b": b"456789"}
    assert verdicts(repository, VerifyLevel.DATA) == {str(path): "ok"}
    assert repository.session.catalog.reports.findings() == []
