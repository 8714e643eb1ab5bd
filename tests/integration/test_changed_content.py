"""Changed contents with equal sizes and times, and files of equal names from another source."""

import io
import os
import random
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import cafcat
from cafcat.errors import Conflict, InvalidInput
from cafcat.model import Comparison, OnConflict
from tests.worlds.catalog_world import sql

TIME_NS = 1_795_255_200_123_456_000


@pytest.fixture
def repository(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[cafcat.Repository]:
    monkeypatch.chdir(tmp_path)
    with cafcat.open(
        database_url=database_url, home=tmp_path / "home", store=str(tmp_path / "store")
    ) as repository:
        yield repository


def write(path: Path, content: bytes, time_ns: int = TIME_NS) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    os.utime(path, ns=(time_ns, time_ns))


def tar(path: Path, files: dict[str, bytes], mode: str = "w") -> Path:
    with tarfile.open(path, mode) as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size, member.mtime = len(content), 0
            archive.addfile(member, io.BytesIO(content))
    return path


def sources_of(repository: cafcat.Repository) -> dict[str, str | None]:
    statement = "SELECT file_path, url FROM file_locations LEFT JOIN sources ON sources.id = source_id ORDER BY 1"
    return dict(sql(repository, statement))


def test_checksum_finds_changes_with_equal_size_and_time(repository: cafcat.Repository, tmp_path: Path) -> None:
    for name in ("a", "b", "large"):
        write(tmp_path / "tree" / name, name.encode() * (3_000_000 if name == "large" else 1))
    repository.ingest(["tree"])
    write(tmp_path / "tree" / "a", b"x")
    write(tmp_path / "tree" / "large", b"LARGE" * 3_000_000)
    assert repository.ingest(["tree"]).files_unchanged == 3  # since size and time are equal
    report = repository.ingest(["tree"], comparison=Comparison.CHECKSUM)
    assert (report.files_replaced, report.files_unchanged, report.files_compared) == (2, 1, 3)
    assert repository.read("tree/a") == b"x"
    assert repository.read("tree/large") == b"LARGE" * 3_000_000
    again = repository.ingest(["tree"], comparison=Comparison.CHECKSUM)
    assert (again.files_replaced, again.files_unchanged, again.chunks_committed) == (0, 3, 0)


def test_checksum_packs_nothing_when_only_the_time_changed(repository: cafcat.Repository, tmp_path: Path) -> None:
    write(tmp_path / "tree" / "a", b"same")
    repository.ingest(["tree"])
    write(tmp_path / "tree" / "a", b"same", TIME_NS + 10**9)
    report = repository.ingest(["tree"], comparison=Comparison.CHECKSUM)
    assert (report.files_replaced, report.files_unchanged) == (0, 1)


def test_force_packs_all_files_again(repository: cafcat.Repository, tmp_path: Path) -> None:
    write(tmp_path / "tree" / "a", b"same")
    repository.ingest(["tree"])
    report = repository.ingest(["tree"], comparison=Comparison.NOTHING)
    assert (report.files_replaced, report.files_unchanged, report.chunks_committed) == (1, 0, 1)
    with pytest.raises(InvalidInput, match="--force"):
        repository.ingest(["tree"], comparison=Comparison.NOTHING, on_conflict=OnConflict.SKIP)


def test_a_file_of_another_folder_is_compared_by_checksum(
    repository: cafcat.Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for root, content in (("one", b"first"), ("two", b"other")):
        write(tmp_path / root / "tree" / "a", content)
        write(tmp_path / root / "tree" / "b", b"same")
    monkeypatch.chdir(tmp_path / "one")
    repository.ingest(["tree"])
    assert repository.ingest(["tree"]).files_compared == 0
    assert repository.ingest(["tree/b"]).files_compared == 0  # the same file by another name
    monkeypatch.chdir(tmp_path / "two")
    planned = repository.ingest(["tree"], dry_run=True)
    assert (planned.files_compared, planned.files_unchanged, planned.files_replaced) == (2, 0, 0)
    report = repository.ingest(["tree"])
    assert (report.files_replaced, report.files_unchanged, report.files_compared) == (1, 1, 2)
    assert repository.read("tree/a") == b"other"
    assert set(sources_of(repository).values()) == {f"{tmp_path}/two/"}
    assert repository.ingest(["tree"]).files_compared == 0  # the catalog has the new source


@pytest.mark.parametrize("on_conflict", [OnConflict.SKIP, OnConflict.FAIL])
def test_other_content_from_another_folder_is_a_conflict(
    repository: cafcat.Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, on_conflict: OnConflict
) -> None:
    for root in ("one", "two"):
        write(tmp_path / root / "a", root.encode())
    monkeypatch.chdir(tmp_path / "one")
    repository.ingest(["a"])
    monkeypatch.chdir(tmp_path / "two")
    if on_conflict is OnConflict.FAIL:
        with pytest.raises(Conflict):
            repository.ingest(["a"], on_conflict=on_conflict)
    else:
        assert repository.ingest(["a"], on_conflict=on_conflict).files_skipped == 1
    assert repository.read("a") == b"one"


@pytest.mark.parametrize(("suffix", "mode"), [(".tar", "w"), (".tar.gz", "w:gz")])
def test_members_of_tars_with_equal_times_are_compared(
    repository: cafcat.Repository, tmp_path: Path, suffix: str, mode: str
) -> None:
    """Reproducible builds set all times to zero. A compressed tar can be read only once."""
    large = random.randbytes(3_000_000)
    before = {"a": b"before", "large": large, "same": b"s", "large too": large[::-1]}
    after = {"a": b"after!", "large": large[::-1], "same": b"s", "large too": large[::-1]}
    repository.ingest([str(tar(tmp_path / f"one{suffix}", before, mode))])
    assert repository.ingest([str(tmp_path / f"one{suffix}")]).files_compared == 0
    report = repository.ingest([str(tar(tmp_path / f"two{suffix}", after, mode))])
    assert (report.files_replaced, report.files_unchanged, report.files_compared) == (2, 2, 4)
    assert {path: repository.read(path) for path in after} == after


def test_a_list_has_a_source_for_each_folder(
    repository: cafcat.Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "x" / "one" / "a", b"1")
    write(tmp_path / "x" / "b", b"2")
    (tmp_path / "list").write_text("one/a\n../x/b\n")
    monkeypatch.chdir(tmp_path / "x")
    repository.ingest(files_from=str(tmp_path / "list"), prefix="p")
    assert sources_of(repository) == {
        "p/one/a": f"{tmp_path}/x/ as p/",
        "p/x/b": f"{tmp_path}/ as p/",
    }
    assert repository.ingest(files_from=str(tmp_path / "list"), prefix="p").files_compared == 0


def test_files_keep_their_source_in_other_verbs(repository: cafcat.Repository, tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        write(tmp_path / "tree" / name, name.encode())
        repository.ingest([f"tree/{name}"])
    expected = {f"tree/{name}": f"{tmp_path}/" for name in ("a", "b", "c")}
    repository.rm(["tree/a"])
    repository.undelete(["tree/a"])
    repository.repack(target_size=10_000_000)
    assert sources_of(repository) == expected
    assert repository.ingest(["tree"]).files_compared == 0


def test_a_file_of_unknown_source_is_compared_by_time(repository: cafcat.Repository, tmp_path: Path) -> None:
    """A rebuilt catalog has no sources: see decision 0024."""
    write(tmp_path / "tree" / "a", b"1")
    repository.ingest(["tree"])
    sql(repository, "UPDATE file_locations SET source_id = NULL")
    report = repository.ingest(["tree"])
    assert (report.files_unchanged, report.files_compared) == (1, 0)


def test_files_that_several_processes_pack_have_their_source(repository: cafcat.Repository, tmp_path: Path) -> None:
    for n in range(4_200):
        write(tmp_path / "tree" / f"{n:05}", b"%d" % n)
    assert repository.ingest(["tree"], jobs=2).files_added == 4_200
    assert sql(
        repository, "SELECT count(*), count(source_id), min(source_id), max(source_id) FROM file_locations"
    ) == [(4_200, 4_200, 1, 1)]


def test_duplicates_in_a_list_are_read_once(repository: cafcat.Repository, tmp_path: Path) -> None:
    write(tmp_path / "a", b"1")
    write(tmp_path / "b", b"2")
    repository.ingest(["a", "b"])
    write(tmp_path / "a", b"x")
    (tmp_path / "list").write_text("a\nb\n" * 50)
    report = repository.ingest(files_from=str(tmp_path / "list"), comparison=Comparison.CHECKSUM)
    assert report.files_replaced == 1
    assert report.files_compared <= 5
    assert repository.read("a") == b"x"
