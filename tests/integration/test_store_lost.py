"""`store rm --lost`: a store whose objects are gone is given up."""

import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import cafcat
from cafcat.errors import Conflict, Locked, NotFound
from tests.worlds.catalog_world import MODIFIED, begin, commit, live, reasons, sql
from tests.worlds.rebuild_world import leave_whole
from tests.worlds.servers.services import Databases

PAGE = Path(__file__).parents[2] / "docs" / "tasks" / "restoring-store.md"
FIRST, SECOND = {"a/1": b"one", "a/2": b"two"}, {"b/1": b"three"}


@pytest.fixture
def lost(tmp_path: Path) -> Path:
    return tmp_path / "lost"


@pytest.fixture
def repository(database_url: str, tmp_path: Path, lost: Path) -> Iterator[cafcat.Repository]:
    """A repository that writes into the store that is lost later."""
    with cafcat.open(database_url=database_url, home=tmp_path / "home", store=str(lost)) as repository:
        yield repository


def test_chunks_are_read_from_copies_and_other_files_are_removed(
    repository: cafcat.Repository, lost: Path, tmp_path: Path
) -> None:
    commit(repository, FIRST)
    repository.copy(to=str(tmp_path / "second"))
    commit(repository, SECOND)
    repository.backup()
    shutil.rmtree(lost)
    report = repository.lose_store(str(lost), dry_run=True)
    assert live(repository) == {*FIRST, *SECOND}
    assert (report.chunks_kept, report.chunks_lost, report.files_lost, report.bytes_lost) == (1, 1, 1, 5)
    assert (report.copies_lost, report.backups_lost, report.dry_run) == (0, 1, True)
    report = repository.lose_store(str(lost))
    assert (report.chunks_kept, report.files_lost, report.dry_run) == (1, 1, False)
    assert report.removed_files_lost == 0
    assert dict(repository.read_many(live(repository))) == FIRST
    assert {location.store for location in repository.list()} == {(tmp_path / "second").as_uri()}
    assert repository.verify(level="data").ok == 1
    assert repository.recover().failed == ()
    assert repository.prune(grace_seconds=0, dry_run=False).failed == ()
    assert repository.undelete(["b/1"]).files_pruned == 1
    assert repository.session.catalog.reports.findings() == []
    assert repository.folder_total("").files == len(FIRST)
    assert sql(repository, "SELECT unwritten FROM journal WHERE unwritten <> '{}'") == []


def _damaged_and_repaired(repository: cafcat.Repository, lost: Path, second: Path) -> str:
    """Commit and copy a chunk, damage its own object, repair it, and return its uuid: the new chunk has no copy."""
    chunk = commit(repository, FIRST)
    repository.copy(to=str(second))
    archive = lost / f"{chunk}.caf"
    archive.write_bytes(archive.read_bytes().replace(b"one", b"0ne"))
    repository.verify(level="data")
    assert repository.repair().files_from_copy == 1
    return chunk


def test_repaired_files_go_back_to_the_copy_of_their_former_chunk(
    repository: cafcat.Repository, lost: Path, tmp_path: Path
) -> None:
    chunk = _damaged_and_repaired(repository, lost, tmp_path / "second")
    commit(repository, SECOND)
    runs = sql(repository, "SELECT file_path, run_id, current_since FROM cafcat_ops.files ORDER BY 1")
    shutil.rmtree(lost)
    expected = (1, 2, 2, 1)
    for dry_run in (True, False):
        report = repository.lose_store(str(lost), dry_run=dry_run)
        counts = (report.chunks_kept, report.chunks_lost, report.files_moved_back, report.files_lost)
        assert counts == expected
        assert report.bytes_lost == len(SECOND["b/1"])
    assert dict(repository.read_many(live(repository))) == FIRST
    assert {str(location.chunk) for location in repository.list()} == {chunk}
    assert sql(repository, "SELECT file_path, run_id, current_since FROM cafcat_ops.files ORDER BY 1") == runs[:2]
    assert sql(repository, "SELECT state, live_file_count, live_bytes FROM chunks WHERE live_bytes <> 0") == [
        ("committed", 2, 6)
    ]
    assert [reason for _, reason in reasons(repository, "a/1")] == ["moved"]
    assert repository.folder_total("").files == len(FIRST)
    assert repository.prune(grace_seconds=0, dry_run=False).failed == ()
    assert repository.verify(level="data").ok == 1
    assert repository.session.catalog.reports.findings() == []


def test_repacked_files_go_back_and_newer_contents_do_not_become_older(
    repository: cafcat.Repository, lost: Path, tmp_path: Path
) -> None:
    chunk = commit(repository, FIRST)
    repository.copy(to=str(tmp_path / "second"))
    repository.repack(chunks=[chunk], dry_run=False)
    commit(repository, {"a/2": b"TWO"})
    shutil.rmtree(lost)
    report = repository.lose_store(str(lost))
    assert (report.files_moved_back, report.files_lost) == (1, 1)
    assert dict(repository.read_many(live(repository))) == {"a/1": b"one"}


def test_only_the_files_that_are_whole_go_back_to_a_damaged_former_chunk(
    repository: cafcat.Repository, lost: Path, tmp_path: Path
) -> None:
    """The next ingest packs a file that was removed. It would call a damaged file unchanged."""
    second = tmp_path / "second"
    chunk = _damaged_and_repaired(repository, lost, second)
    copy = second / f"{chunk}.caf"
    copy.write_bytes(copy.read_bytes().replace(b"two", b"2wo"))
    repository.verify(level="data")
    shutil.rmtree(lost)
    report = repository.lose_store(str(lost))
    assert (report.files_moved_back, report.files_lost) == (1, 1)
    assert live(repository) == {"a/1"}
    assert repository.read("a/1") == b"one"


def test_a_missing_former_chunk_has_no_files(repository: cafcat.Repository, lost: Path, tmp_path: Path) -> None:
    second = tmp_path / "second"
    chunk = _damaged_and_repaired(repository, lost, second)
    (second / f"{chunk}.caf").unlink()
    repository.verify()
    shutil.rmtree(lost)
    report = repository.lose_store(str(lost))
    assert (report.files_moved_back, report.files_lost) == (0, len(FIRST))


def _repacked(repository: cafcat.Repository) -> None:
    """Move the live files of the first chunk into a new one."""
    [(chunk,)] = sql(repository, "SELECT uuid FROM chunks WHERE state = 'committed' ORDER BY id LIMIT 1")
    repository.repack(chunks=[chunk], dry_run=False)


def _unchanged(repository: cafcat.Repository) -> None:
    pass


def _brought_back(repository: cafcat.Repository) -> None:
    repository.rm(["a/1"])
    assert repository.undelete(["a/1"]).files == 1


def _removed_and_packed_again(repository: cafcat.Repository) -> None:
    repository.rm(["a/1"])
    commit(repository, {"a/1": b"one"})


def _changed_twice(repository: cafcat.Repository) -> None:
    commit(repository, {"a/1": b"ONE"})
    commit(repository, {"a/1": b"one"})


def _touched(repository: cafcat.Repository) -> None:
    commit(repository, {"a/1": b"one"}, modified_ns=MODIFIED + 10**12)


Step = Callable[[cafcat.Repository], None]


@pytest.mark.parametrize(
    ("before", "after", "returned"),
    [
        (_unchanged, _unchanged, 2),
        (_unchanged, _repacked, 2),
        (_brought_back, _unchanged, 2),
        (_unchanged, _brought_back, 1),
        (_unchanged, _removed_and_packed_again, 1),
        (_unchanged, _changed_twice, 1),
        (_unchanged, _touched, 1),
    ],
)
def test_a_rebuild_after_the_loss_equals_the_running_catalog(
    repository: cafcat.Repository,
    databases: Databases,
    lost: Path,
    tmp_path: Path,
    before: Step,
    after: Step,
    returned: int,
) -> None:
    """A file returns only in the version that was moved, because journal and index have no other times."""
    commit(repository, FIRST)
    second = (tmp_path / "second").as_uri()
    repository.copy(to=second)
    before(repository)
    _repacked(repository)
    after(repository)
    shutil.rmtree(lost)
    assert repository.lose_store(str(lost)).files_moved_back == returned
    assert repository.verify().damaged == 0
    query = "SELECT file_path, run_id, current_since, modified_at, chunk FROM cafcat_ops.files ORDER BY 1"
    with (
        databases.fresh(databases.template()) as url,
        cafcat.open(database_url=url, home=tmp_path / "other", store=second) as other,
    ):
        assert other.rebuild().damages == ()
        assert live(other) == live(repository)
        assert dict(other.read_many(live(other))) == {path: FIRST[path] for path in live(repository)}
        assert sql(other, query) == sql(repository, query)


def test_a_late_chunk_does_not_replace_a_file_that_was_brought_back_meanwhile(
    repository: cafcat.Repository, lost: Path, tmp_path: Path
) -> None:
    """The writer died before the undelete, so that its content is older. `repack` recovers its chunk."""
    url, second = repository.settings.database_url, str(tmp_path / "second")
    commit(repository, FIRST)
    repository.copy(to=second)
    with cafcat.open(database_url=url, home=tmp_path / "home", store=second) as writer:
        leave_whole(writer, {"a/1": b"OLD"})
        _brought_back(repository)
        _repacked(repository)
        shutil.rmtree(lost)
        assert repository.lose_store(str(lost)).files_moved_back == len(FIRST)
        assert writer.read("a/1") == b"one"


@pytest.mark.parametrize("is_alone", [True, False])
def test_files_do_not_go_back_to_an_archive_that_was_deleted(
    repository: cafcat.Repository, lost: Path, tmp_path: Path, databases: Databases, *, is_alone: bool
) -> None:
    archives = tmp_path / "archives"
    with (
        databases.fresh(databases.template()) as url,
        cafcat.open(database_url=url, home=tmp_path / "other", store=str(archives)) as other,
    ):
        adopted = archives / f"{commit(other, FIRST)}.caf"
        kept = archives / f"{commit(other, SECOND)}.caf"
    repository.adopt([str(adopted)] if is_alone else [str(adopted), str(kept)])
    _repacked(repository)
    shutil.rmtree(archives) if is_alone else adopted.unlink()
    shutil.rmtree(lost)
    report = repository.lose_store(str(lost))
    assert (report.files_moved_back, report.files_lost) == (0, len(FIRST))
    assert dict(repository.read_many(live(repository))) == ({} if is_alone else SECOND)


@pytest.mark.parametrize(("size", "whole"), [(0, 0), (4, 1), (6, 2)])
def test_no_file_goes_back_to_the_missing_end_of_an_object(
    repository: cafcat.Repository, lost: Path, tmp_path: Path, size: int, whole: int
) -> None:
    """A finding of a cut object names the first of the files that are gone."""
    chunk = commit(repository, FIRST)
    repository.copy(to=str(tmp_path / "second"))
    _repacked(repository)
    os.truncate(tmp_path / "second" / f"{chunk}.caf", size)
    repository.verify()
    shutil.rmtree(lost)
    report = repository.lose_store(str(lost))
    assert (report.files_moved_back, report.files_lost) == (whole, len(FIRST) - whole)
    assert dict(repository.read_many(live(repository))).items() <= FIRST.items()


def test_missing_copies_are_no_copies_and_damaged_ones_come_last(
    repository: cafcat.Repository, lost: Path, tmp_path: Path
) -> None:
    chunks = [commit(repository, FIRST), commit(repository, SECOND), commit(repository, {"c": b"four"})]
    second, third = tmp_path / "second", tmp_path / "third"
    repository.copy(to=str(second))
    repository.copy(chunks[1:2], to=str(third))
    (second / f"{chunks[0]}.caf").unlink()
    for chunk in chunks[1:]:
        (second / f"{chunk}.caf").write_bytes(b"damaged")
    repository.verify()
    shutil.rmtree(lost)
    report = repository.lose_store(str(lost))
    assert (report.chunks_kept, report.chunks_damaged, report.chunks_lost, report.files_lost) == (2, 1, 1, 2)
    assert live(repository) == {"b/1", "c"}
    assert repository.locate("b/1").store == third.as_uri()


def test_damage_of_the_lost_object_is_not_that_of_the_copy(
    repository: cafcat.Repository, lost: Path, tmp_path: Path
) -> None:
    [chunk, other] = [commit(repository, FIRST), commit(repository, SECOND)]
    second = tmp_path / "second"
    repository.copy(to=str(second))
    (lost / f"{chunk}.caf").write_bytes(b"damaged")
    repository.verify(level="data")
    (second / f"{other}.caf").write_bytes(b"damaged")
    repository.verify(level="data")
    shutil.rmtree(lost)
    assert repository.lose_store(str(lost)).chunks_damaged == 1
    broken = sql(repository, "SELECT uuid::text FROM chunks AS c WHERE cafcat_ops.is_broken(c.id, NULL)")
    assert broken == [(other,)]


def test_removed_files_of_lost_chunks_are_counted(
    repository: cafcat.Repository, lost: Path, tmp_path: Path
) -> None:
    commit(repository, FIRST)
    repository.copy(to=str(tmp_path / "second"))
    commit(repository, SECOND)
    repository.rm(["a/1", "b/1"])
    shutil.rmtree(lost)
    report = repository.lose_store(str(lost))
    assert (report.chunks_lost, report.files_lost, report.removed_files_lost) == (1, 0, 1)
    restored = repository.undelete(["a/1", "b/1"])
    assert (restored.files, restored.files_pruned) == (1, 1)


def test_the_query_of_the_page_lists_lost_files_without_originals(
    repository: cafcat.Repository, database_url: str, tmp_path: Path, lost: Path
) -> None:
    query = re.findall(r'cafcat sql -c "(SELECT .*)"', PAGE.read_text())[0]
    commit(repository, {"pruned": b"removed on purpose"})
    repository.rm(["pruned"])
    repository.prune(grace_seconds=0, dry_run=False)
    commit(repository, FIRST)
    shutil.rmtree(lost)
    repository.lose_store(str(lost))
    assert sorted(sql(repository, query)) == [("a/1",), ("a/2",)]
    with cafcat.open(database_url=database_url, home=tmp_path / "home", store=str(tmp_path / "new")) as other:
        commit(other, {"a/1": b"one"})
    assert sql(repository, query) == [("a/2",)]


def test_older_versions_in_lost_chunks_are_counted(
    repository: cafcat.Repository, database_url: str, tmp_path: Path, lost: Path
) -> None:
    commit(repository, FIRST)
    with cafcat.open(database_url=database_url, home=tmp_path / "home", store=str(tmp_path / "new")) as other:
        commit(other, {"a/1": b"newer"})
    shutil.rmtree(lost)
    report = repository.lose_store(str(lost), dry_run=True)
    assert (report.files_lost, report.removed_files_lost, report.old_versions_lost) == (1, 0, 1)
    assert repository.lose_store(str(lost)).old_versions_lost == 1


def test_copies_in_the_lost_store_are_forgotten(repository: cafcat.Repository, lost: Path, tmp_path: Path) -> None:
    commit(repository, FIRST)
    repository.copy(to=str(tmp_path / "second"))
    shutil.rmtree(tmp_path / "second")
    report = repository.lose_store(str(tmp_path / "second"))
    assert (report.copies_lost, report.chunks_kept, report.chunks_lost) == (1, 0, 0)
    assert dict(repository.read_many(FIRST)) == FIRST
    repository.copy(to=str(tmp_path / "third"))
    assert repository.verify(level="data").ok == 2


def test_the_same_place_can_be_a_store_again(repository: cafcat.Repository, lost: Path) -> None:
    commit(repository, FIRST)
    shutil.rmtree(lost)
    repository.lose_store(str(lost))
    commit(repository, SECOND)
    assert dict(repository.read_many(live(repository))) == SECOND
    assert repository.verify(level="data").ok == 1


@pytest.mark.parametrize("loses_files", [False, True])
def test_a_rebuild_of_the_other_stores_does_not_ask_for_the_lost_one(
    repository: cafcat.Repository, databases: Databases, lost: Path, tmp_path: Path, *, loses_files: bool
) -> None:
    second = (tmp_path / "second").as_uri()
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "file").write_bytes(b"")
    repository.ingest([str(tmp_path / "a")])
    repository.copy(to=second)
    if loses_files:
        repository.ingest([str(tmp_path / "b")])
    shutil.rmtree(lost)
    repository.lose_store(str(lost))
    with (
        databases.fresh(databases.template()) as url,
        cafcat.open(database_url=url, home=tmp_path / "other", store=second) as other,
    ):
        other.rebuild()
        assert live(other) == live(repository)


def test_a_rebuild_misses_a_store_that_came_into_use_last(
    repository: cafcat.Repository, databases: Databases, lost: Path, tmp_path: Path
) -> None:
    """The other store has no later change of its own, so that its journal would not list the new one."""
    for folder, store in (("a", str(lost)), ("b", str(tmp_path / "new"))):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "file").write_bytes(b"")
        url = repository.settings.database_url
        with cafcat.open(database_url=url, home=tmp_path / "home", store=store) as writer:
            for _ in range(2):
                writer.ingest([str(tmp_path / folder)], comparison="nothing")
    assert sql(repository, "SELECT kind FROM journal ORDER BY id") == [("commit",)] * 3 + [("remove",), ("commit",)]
    assert sql(repository, "SELECT count(*) FROM journal WHERE unwritten <> '{}'") == [(0,)]
    with (
        databases.fresh(databases.template()) as url,
        cafcat.open(database_url=url, home=tmp_path / "other", store=str(lost)) as other,
    ):
        report = other.rebuild()
        assert not report.written
        assert [(damage.kind, damage.name) for damage in report.damages] == [("store", (tmp_path / "new").as_uri())]


def test_a_store_that_still_has_objects_is_not_lost(repository: cafcat.Repository, lost: Path) -> None:
    uuid = commit(repository, FIRST)
    with pytest.raises(Conflict, match=f"it still has {lost / uuid}.caf"):
        repository.lose_store(str(lost))
    assert dict(repository.read_many(FIRST)) == FIRST


def test_an_unknown_store(repository: cafcat.Repository, tmp_path: Path) -> None:
    commit(repository, FIRST)
    with pytest.raises(NotFound, match="the catalog has no store"):
        repository.lose_store(str(tmp_path / "other"))


def test_remains_of_dead_writers_are_forgotten_and_living_ones_are_not(
    repository: cafcat.Repository, lost: Path
) -> None:
    commit(repository, FIRST)
    begin(repository, SECOND)
    shutil.rmtree(lost)
    sql(repository, "UPDATE chunks SET lease_owner = 'elsewhere:1:run 1' WHERE state = 'writing'")
    with pytest.raises(Locked, match="other commands write 1 object"):
        repository.lose_store(str(lost))
    sql(repository, "UPDATE chunks SET lease_expires_at = now() - interval '1s' WHERE state = 'writing'")
    repository.lose_store(str(lost))
    assert sql(repository, "SELECT DISTINCT state FROM chunks ORDER BY 1") == [("abandoned",), ("deleted",)]
    assert repository.recover().failed == ()


def test_a_file_that_was_replaced_elsewhere_stays(
    repository: cafcat.Repository, database_url: str, tmp_path: Path, lost: Path
) -> None:
    commit(repository, FIRST)
    with cafcat.open(database_url=database_url, home=tmp_path / "home", store=str(tmp_path / "new")) as other:
        commit(other, {"a/1": b"newer"})
    shutil.rmtree(lost)
    assert repository.lose_store(str(lost)).files_lost == 1
    assert dict(repository.read_many(live(repository))) == {"a/1": b"newer"}
