"""Export: contents of the archive, consistency, reads from copies; and a whole archive or none."""

import itertools
import os
import random
import shutil
from pathlib import Path
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import cafcat
from cafcat.catalog import repeatable_read
from cafcat.errors import Conflict, Corrupt, InvalidInput, NotFound, OutputFailed, Refused, StoreFailed, Unsupported
from cafcat.formats import registry as formats
from cafcat.testing.formats import BytesArchive
from tests.integration.test_snapshot_writing import NAMES, ODD, Meanwhile, files_of_at_most, left_in
from tests.worlds.archives.damage import flip
from tests.worlds.archives.written_formats import WRITTEN
from tests.worlds.catalog_world import MODIFIED, commit, sql
from tests.worlds.copy_world import FILES, World, folder_of, world
from tests.worlds.places import Folder

__all__ = ["world"]


@pytest.fixture
def repository(local: cafcat.Repository) -> cafcat.Repository:
    return local


def in_archive(path: Path) -> dict[str, bytes]:
    """Return the contents in the order of the archive, each checked against its entry."""
    archive = BytesArchive(path.read_bytes(), str(path))
    reader = formats.detect(archive).reader(archive)
    found = [(entry.path, b"".join(reader.open(entry))) for entry in reader.entries()]
    assert len(dict(found)) == len(found)
    return dict(found)


def write_tree(folder: Path, files: dict[str, bytes]) -> None:
    for number, (path, content) in enumerate(files.items()):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
        os.utime(folder / path, ns=(MODIFIED + number * 1000,) * 2)


@pytest.mark.parametrize("target", WRITTEN)
def test_files_of_chunks_of_every_format(
    repository: cafcat.Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str
) -> None:
    monkeypatch.chdir(tmp_path)
    write_tree(tmp_path, FILES)
    for name in WRITTEN:
        repository.ingest(["tree"], prefix=name, format=name)
    report = repository.export([], "all", format=target)
    found = in_archive(tmp_path / "all")
    assert found == {f"{name}/{path}": content for name in WRITTEN for path, content in FILES.items()}
    assert (report.output, report.format, report.prefixes) == (str(tmp_path / "all"), target, ())
    assert report.files == len(FILES) * len(WRITTEN)
    assert report.bytes == len(WRITTEN) * sum(map(len, FILES.values()))
    assert report.size_bytes == (tmp_path / "all").stat().st_size
    for entry in cafcat.inspect("all").entries:
        place = repository.locate(entry.path)
        assert (entry.size_bytes, entry.crc32c, entry.modified_ns) == (
            place.size_bytes,
            place.crc32c,
            place.modified_ns,
        )


def test_exported_files_equal_extracted_ones(
    repository: cafcat.Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_tree(tmp_path, FILES)
    repository.ingest(["tree"])
    repository.export(["tree"], "tree.car")
    repository.extract("tree", "out")
    extracted = {
        str(path.relative_to("out")): path.read_bytes() for path in Path("out").rglob("*") if path.is_file()
    }
    assert in_archive(tmp_path / "tree.car") == extracted == FILES


def exported(repository: cafcat.Repository, prefixes: list[str], output: Path) -> list[str]:
    report = repository.export(prefixes, output, format="caf", overwrite=True)
    found = in_archive(output)
    assert (report.files, report.prefixes) == (len(found), tuple(prefixes))
    assert report.bytes == sum(map(len, found.values()))
    return sorted(found, key=str.encode)


@pytest.mark.parametrize(
    "prefix", ["", ".", "./", "/", "a", "a/", "./a", "/a/", "a/b", "a/b/", "a/b/c", "a-b", "a//", "\U0010ffff", "é"]
)
def test_prefix_selects_the_same_files_as_in_other_verbs(
    repository: cafcat.Repository, tmp_path: Path, prefix: str
) -> None:
    commit(repository, {name: name.encode() for name in ODD})
    expected = [location.path for location in repository.list(prefix)]
    assert expected
    assert exported(repository, [prefix], tmp_path / "taken") == expected
    assert in_archive(tmp_path / "taken") == {name: name.encode() for name in expected}


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(names=st.sets(NAMES, min_size=1, max_size=30), picks=st.lists(st.integers(0, 99), min_size=1, max_size=4))
def test_several_prefixes_give_each_file_once(
    repository: cafcat.Repository, tmp_path: Path, names: set[str], picks: list[int]
) -> None:
    """Prefixes are files and folders above them, in any order, possibly within each other."""
    with psycopg.connect(str(repository.settings.database_url), autocommit=True) as connection:
        connection.execute("TRUNCATE file_locations")
    commit(repository, {name: b"x" * len(name) for name in names})
    above = {name[: at + 1] for name in names for at, letter in enumerate(name) if letter == "/"}
    candidates = [name for name in sorted(names | above) if any(repository.list(name))]
    prefixes = [candidates[pick % len(candidates)] for pick in picks] if candidates else [""]
    lists = [repository.list(prefix) for prefix in prefixes]
    expected = sorted({location.path for location in itertools.chain(*lists)}, key=str.encode)
    assert exported(repository, prefixes, tmp_path / "taken") == expected


def test_exported_files_are_in_the_order_of_their_bytes(
    repository: cafcat.Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repeatable_read, "_PAGE_ROWS", 10)
    first = {f"{number * 7 % 50:02}": b"%d" % number for number in range(50)}
    second = {f"{number * 7 % 50:02}+": b"%d" % number for number in range(50)}
    commit(repository, first)
    commit(repository, second)
    repository.export([], tmp_path / "all.caf")
    assert list(in_archive(tmp_path / "all.caf").items()) == [*first.items(), *second.items()]


def test_an_empty_catalog_gives_an_empty_archive(repository: cafcat.Repository, tmp_path: Path) -> None:
    assert repository.export([], tmp_path / "all.caf").files == 0
    assert in_archive(tmp_path / "all.caf") == {}
    with pytest.raises(NotFound):
        repository.export(["a"], tmp_path / "a.caf")


@pytest.mark.parametrize("absent", ["nothing", "tre", "tree/a/", "tree/a/b", "zzz"])
@pytest.mark.parametrize("others", [[], ["tree"], ["."]], ids=str)
def test_missing_prefix_is_refused_and_leaves_nothing(
    repository: cafcat.Repository, tmp_path: Path, absent: str, others: list[str]
) -> None:
    commit(repository, {"tree/a": b"a"})
    with pytest.raises(NotFound, match="no such file or folder") as caught:
        repository.export([*others, absent, "neither"], tmp_path / "taken.caf")
    assert caught.value.path == absent
    assert left_in(tmp_path) == set()


def test_refusals_before_a_byte_is_written(repository: cafcat.Repository, tmp_path: Path) -> None:
    commit(repository, {"a": b"a"})
    (tmp_path / "there.caf").write_bytes(b"precious")
    os.mkfifo(tmp_path / "pipe.caf")
    with pytest.raises(Conflict):
        repository.export(["a"], tmp_path / "there.caf")
    with pytest.raises(InvalidInput, match="not a device or pipe"):
        repository.export(["a"], tmp_path / "pipe.caf", overwrite=True)
    with pytest.raises(InvalidInput, match="has no known suffix"):
        repository.export(["a"], tmp_path / "x.rar")
    with pytest.raises(Unsupported, match="only the program clp-s"):
        repository.export(["a"], tmp_path / "x.clp")
    with pytest.raises(InvalidInput, match="must be a list"):
        repository.export("a", tmp_path / "x.caf")
    with pytest.raises(OutputFailed):
        repository.export(["a"], tmp_path / "missing" / "x.caf")
    assert (tmp_path / "there.caf").read_bytes() == b"precious"
    assert left_in(tmp_path) == {"there.caf", "pipe.caf"}
    repository.export(["a"], tmp_path / "there.caf", overwrite=True)
    assert in_archive(tmp_path / "there.caf") == {"a": b"a"}


def test_export_is_consistent_during_commits(
    repository: cafcat.Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repeatable_read, "_PAGE_ROWS", 10)
    files = {f"tree/{number:04}": b"%d" % number for number in range(1000)}
    commit(repository, files)

    def change() -> None:
        commit(repository, {"tree/0950": b"changed", "tree/09505": b"new", "zzz": b"new"})
        repository.rm(["tree/0960"])

    progress = Meanwhile(change)
    report = repository.with_progress(progress).export(["tree", "tree/0001"], tmp_path / "taken.caf")
    assert in_archive(tmp_path / "taken.caf") == files
    assert progress.begun == [("export", 1000, sum(map(len, files.values())))]
    assert (progress.files, progress.bytes) == (1000, sum(map(len, files.values()))) == (report.files, report.bytes)
    assert progress.ended


@pytest.mark.parametrize("output_was_there", [False, True])
def test_interrupted_export_keeps_the_old_output(
    repository: cafcat.Repository, tmp_path: Path, output_was_there: bool
) -> None:
    commit(repository, {f"tree/{number:03}": b"" for number in range(1000)})
    before = {"taken.car": b"before"} if output_was_there else {}
    for name, content in before.items():
        (tmp_path / name).write_bytes(content)
    seen: list[set[str]] = []

    def interrupt() -> None:
        seen.append(left_in(tmp_path) - before.keys())
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        repository.with_progress(Meanwhile(interrupt)).export([], tmp_path / "taken.car", overwrite=True)
    [names] = seen
    assert "taken.car" not in names
    assert {name: (tmp_path / name).read_bytes() for name in left_in(tmp_path)} == before


@pytest.mark.parametrize("name", ["taken.caf", "taken.car", "taken.cio"])
def test_full_disk_is_reported_and_leaves_nothing(repository: cafcat.Repository, tmp_path: Path, name: str) -> None:
    commit(repository, {"tree/one": random.randbytes(300_000), "tree/two": random.randbytes(3_000_000)})
    with pytest.raises(OutputFailed, match="cannot be written") as raised, files_of_at_most(1_000_000):
        repository.export([], tmp_path / name)
    assert raised.value.path == str(tmp_path / name)
    assert left_in(tmp_path) == set()


def object_of(world: World, chunk: str) -> Path:
    return folder_of(world.first) / f"{chunk}.caf"


@pytest.mark.parametrize("damaged", ["tree/first", "tree/large", "tree/medium"])
def test_a_damaged_file_ends_it_and_leaves_nothing(world: World, tmp_path: Path, damaged: str) -> None:
    chunk = commit(world.repository, FILES)
    flip(object_of(world, chunk), world.repository.locate(damaged).end_byte - 1)
    with pytest.raises(Corrupt) as caught:
        world.repository.export(["tree"], tmp_path / "taken.caf")
    assert (caught.value.path, caught.value.chunk) == (damaged, chunk)
    assert not list(tmp_path.glob("*taken*")) + list(tmp_path.glob(".cafcat*"))
    others = [path for path in FILES if path != damaged]
    assert exported(world.repository, others, tmp_path / "others") == others


@pytest.mark.parametrize("damaged", ["tree/first", "tree/large", "tree/medium", "all"])
def test_damaged_files_are_read_from_a_copy(world: World, tmp_path: Path, damaged: str) -> None:
    chunk = commit(world.repository, FILES)
    assert world.copy().copied == 1
    if damaged == "all":
        object_of(world, chunk).unlink()
    else:
        flip(object_of(world, chunk), world.repository.locate(damaged).end_byte - 1)
    progress = Meanwhile(lambda: None)
    report = world.repository.with_progress(progress).export(["tree"], tmp_path / "taken.caf")
    assert in_archive(tmp_path / "taken.caf") == FILES
    assert (progress.files, progress.bytes) == (report.files, report.bytes) == (5, sum(map(len, FILES.values())))
    assert len(world.warnings) == 1


def test_a_chunk_that_is_gone_is_damage_and_a_store_that_fails_is_not(world: World, tmp_path: Path) -> None:
    chunk = commit(world.repository, {"a": b"a" * 100})
    moved = object_of(world, chunk).rename(tmp_path / "moved")
    with pytest.raises(Corrupt, match="is missing"):
        world.repository.export([], tmp_path / "taken.caf")
    object_of(world, chunk).mkdir()
    with pytest.raises((Corrupt, StoreFailed)):
        world.repository.export([], tmp_path / "taken.caf")
    shutil.rmtree(object_of(world, chunk))
    moved.rename(object_of(world, chunk))
    world.repository.close()
    world.repository.export([], tmp_path / "taken.caf")
    assert in_archive(tmp_path / "taken.caf") == {"a": b"a" * 100}


def test_a_file_of_the_catalog_with_the_longest_name_and_time(
    repository: cafcat.Repository, tmp_path: Path
) -> None:
    commit(repository, {"x" * 2048: b"x", "none": b""}, modified_ns=None)
    repository.export([], tmp_path / "all.cio")
    assert in_archive(tmp_path / "all.cio") == {"x" * 2048: b"x", "none": b""}
    assert [entry.modified_ns for entry in cafcat.inspect(tmp_path / "all.cio").entries] == [None, None]
    assert sql(repository, "SELECT count(*) FROM file_locations") == [(2,)]


def test_through_a_bucket(bucket: Any, open_at: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks in a bucket are exported into a file. The file is uploaded, inspected and converted in the bucket."""
    monkeypatch.chdir(tmp_path)
    write_tree(tmp_path, FILES)
    repository = open_at(bucket)
    repository.ingest(["tree"])
    repository.export(["tree"], "tree.car")
    assert in_archive(tmp_path / "tree.car") == FILES
    bucket.write("some/odd key.bin", Path("tree.car").read_bytes())
    url = f"{bucket.url}/some/odd key.bin"
    inspection = cafcat.inspect(url)
    assert (inspection.format, inspection.object) == ("car", url)
    assert [entry.path for entry in inspection.entries] == list(in_archive(tmp_path / "tree.car"))
    report = cafcat.convert(url, "tree.caf")
    assert (report.input, report.input_format) == (url, "car")
    assert in_archive(tmp_path / "tree.caf") == FILES
    with pytest.raises(NotFound):
        cafcat.inspect(f"{bucket.url}/nothing")
    with pytest.raises(InvalidInput, match="is a folder, not an archive"):
        cafcat.inspect(f"s3://{bucket.bucket}")


def test_object_that_changes_during_a_conversion_is_refused(bucket: Any, tmp_path: Path) -> None:
    first, second = (caf_of({"a": byte * 3_000_000}) for byte in (b"1", b"2"))
    bucket.write("x.caf", first)

    class Replace(Meanwhile):
        def begin(self, verb: str, **totals: int | None) -> None:
            super().begin(verb, **totals)
            if verb == "convert":
                bucket.write("x.caf", second)

    with pytest.raises(Conflict):
        cafcat.convert(f"{bucket.url}/x.caf", tmp_path / "out.car", progress=Replace(lambda: None))
    assert list(tmp_path.iterdir()) == []


def caf_of(files: dict[str, bytes]) -> bytes:
    from cafcat.formats.caf.format import CAF
    from cafcat.testing.formats import pack

    return pack(CAF, [(path, content, None) for path, content in files.items()])[0]


def test_invalid_name_is_refused(repository: cafcat.Repository, tmp_path: Path) -> None:
    with pytest.raises((InvalidInput, NotFound, Refused)):
        repository.export(["a\0b"], tmp_path / "taken.caf")
    assert left_in(tmp_path) == set()
    assert Folder(tmp_path / "store").everything() == {}
