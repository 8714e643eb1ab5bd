"""Moves of stores in rare states: killed writers, places that were used before, concurrent verbs."""

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

import cafcat
from cafcat.errors import Conflict, Locked, StoreFailed
from cafcat.progress import Progress
from tests.worlds.catalog_world import Opener, begin, commit, sql
from tests.worlds.kills.meanwhile import in_background, wait_for_a_waiting_statement
from tests.worlds.places import Folder
from tests.worlds.recover_world import end_leases, leave_whole

FILES = {"a/one": b"one" * 100, "a/two": b"two" * 100}
DEAD_OWNER = "from cafcat.catalog.chunks.owners import owner_name; print(owner_name('run 1'), end='')"


@pytest.fixture
def old(tmp_path: Path) -> Folder:
    return Folder(tmp_path / "old place")


@pytest.fixture
def new(tmp_path: Path) -> Folder:
    return Folder(tmp_path / "new place")


@pytest.fixture
def repository(open_at: Opener, old: Folder) -> cafcat.Repository:
    repository = open_at(old)
    commit(repository, FILES)
    return repository


def content(repository: cafcat.Repository) -> dict[str, bytes]:
    return {path: repository.read(path) for path in FILES}


# Writers that were killed


def owner_is_dead(repository: cafcat.Repository) -> None:
    """Give the lease to a process of this host that has ended."""
    owner = subprocess.run([sys.executable, "-c", DEAD_OWNER], capture_output=True, check=True, text=True).stdout
    sql(repository, "UPDATE chunks SET lease_owner = %s WHERE state = 'writing'", owner)


@pytest.mark.parametrize("die", [end_leases, owner_is_dead])
def test_leftovers_of_a_killed_writer_are_recovered_at_the_new_place(
    repository: cafcat.Repository, old: Folder, new: Folder, die: Callable[[cafcat.Repository], None]
) -> None:
    leave_whole(repository, {"b": b"whole"})
    die(repository)
    shutil.move(old.folder, new.folder)
    repository.move_store(old.url, new.url)
    assert repository.recover(store=new.url).adopted == 1
    assert repository.read("b") == b"whole"
    assert content(repository) == FILES
    assert not old.folder.exists()


def test_error_for_a_store_with_a_writer_has_the_end_of_the_lease(
    repository: cafcat.Repository, old: Folder, new: Folder
) -> None:
    chunk = leave_whole(repository, {"b": b"whole"})
    chunk._lease.end()
    shutil.move(old.folder, new.folder)
    [(end,)] = sql(
        repository,
        "SELECT to_char(lease_expires_at AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI') FROM chunks "
        "WHERE state = 'writing'",
    )
    for dry_run in (True, False):
        with pytest.raises(Locked, match=f"its lease ends at {end}"):
            repository.move_store(old.url, new.url, dry_run=dry_run)


def test_a_writer_that_was_suspended_does_not_commit_after_a_move(
    repository: cafcat.Repository, old: Folder, new: Folder
) -> None:
    """The object of the writer is at the old place."""
    chunk = begin(repository, {"b": b"late"})
    chunk._lease.end()
    end_leases(repository)
    shutil.copytree(old.folder, new.folder)
    repository.move_store(old.url, new.url)
    with pytest.raises(Conflict, match="its store was moved"):
        chunk.finish(cafcat.model.OnConflict.REPLACE, Progress())
    assert content(repository) == FILES
    assert "b" not in {row[0] for row in sql(repository, "SELECT file_path FROM file_locations")}


def test_a_copy_that_was_suspended_is_not_committed_after_a_move(
    repository: cafcat.Repository, old: Folder, new: Folder, tmp_path: Path
) -> None:
    copies = repository.session.catalog.copies
    [(chunk_id, key)] = sql(repository, "SELECT id, object_key FROM chunks")
    target = (tmp_path / "copies").as_uri()
    repository.session.catalog.stores.register(target)
    copy = copies.begin(chunk_id, target, key, "somebody", 0)
    repository.move_store(target, (tmp_path / "moved").as_uri())
    with pytest.raises(Conflict, match="its store has moved"):
        copies.commit(copy, None)


# Places that were used before


def test_store_moves_to_a_place_that_had_only_deleted_chunks(
    repository: cafcat.Repository, old: Folder, new: Folder, open_at: Opener
) -> None:
    other = open_at(new)
    commit(other, {"gone": b"gone"})
    other.rm(["gone"])
    assert other.prune(grace_seconds=0, dry_run=False).objects == 1
    with pytest.raises(Conflict, match="history of deleted objects"):
        repository.remove_store(new.url)
    shutil.rmtree(new.folder)
    shutil.move(old.folder, new.folder)
    assert repository.move_store(old.url, new.url, dry_run=True).dry_run
    repository.move_store(old.url, new.url)
    assert content(repository) == FILES
    assert [store.url for store in repository.stores()] == [new.url]
    assert repository.verify().ok == 1
    assert repository.session.catalog.reports.findings() == []


@pytest.mark.parametrize("is_cleaned", [True, False])
def test_a_store_that_was_migrated_moves_back(
    repository: cafcat.Repository, old: Folder, new: Folder, is_cleaned: bool
) -> None:
    """Prune may have been killed before it recorded the removal of the old objects."""
    repository.backup()
    repository.verify()
    repository.migrate_store(old.url, new.url)
    repository.verify()
    repository.prune(grace_seconds=0, dry_run=False)
    if not is_cleaned:
        sql(repository, "UPDATE chunk_copies SET deleted_at = NULL WHERE state = 'deleted'")
    shutil.rmtree(old.folder)
    shutil.move(new.folder, old.folder)
    repository.move_store(new.url, old.url)
    repository.recover(store=old.url)
    assert content(repository) == FILES
    assert len(list((old.folder / "backups").iterdir())) == 1
    assert repository.verify().ok == 1


@pytest.mark.parametrize("dry_run", [True, False])
def test_store_does_not_move_to_a_place_with_chunks(
    repository: cafcat.Repository, old: Folder, new: Folder, open_at: Opener, dry_run: bool
) -> None:
    commit(open_at(new), {"b": b"b"})
    shutil.copytree(old.folder, new.folder, dirs_exist_ok=True)
    with pytest.raises(Conflict, match="store migrate"):
        repository.move_store(old.url, new.url, dry_run=dry_run)


def test_name_and_checks_of_the_new_place_stay(repository: cafcat.Repository, old: Folder, new: Folder) -> None:
    new.folder.mkdir()
    repository.add_store("disk-2", str(new.folder))
    sql(repository, """UPDATE stores SET checks = '{"failed": ["entity_tag"]}' WHERE name = 'disk-2'""")
    shutil.copytree(old.folder, new.folder, dirs_exist_ok=True)
    assert repository.move_store(old.url, "disk-2").dropped_name is None
    assert sql(repository, "SELECT name, url, checks FROM stores") == [
        ("disk-2", new.url, {"failed": ["entity_tag"]})
    ]


def test_a_name_that_is_dropped_is_reported(repository: cafcat.Repository, old: Folder, new: Folder) -> None:
    repository.add_store("disk-1", str(old.folder))
    repository.add_store("disk-2", str(new.folder))
    shutil.copytree(old.folder, new.folder, dirs_exist_ok=True)
    assert repository.move_store("disk-1", "disk-2").dropped_name == "disk-2"
    assert [(store.name, store.url) for store in repository.stores()] == [("disk-1", new.url)]


# Journal records


@pytest.mark.parametrize("look_at_all", [False, True])
@pytest.mark.parametrize("missing", ["all", "of a removal", "none"])
def test_a_new_place_without_the_journal_is_refused(
    repository: cafcat.Repository, old: Folder, new: Folder, tmp_path: Path, look_at_all: bool, missing: str
) -> None:
    """The store may have moved before."""
    commit(repository, {"b": b"b"})
    repository.rm(["b"])
    first = tmp_path / "first move"
    shutil.move(old.folder, first)
    repository.move_store(old.url, str(first))
    shutil.copytree(first, new.folder)
    records = sorted((new.folder / "journal").iterdir())
    assert len(records) == 3
    for record in {"all": records, "of a removal": records[2:], "none": []}[missing]:
        record.unlink()
    if missing == "none":
        assert repository.move_store(str(first), new.url, look_at_all=look_at_all).looked_at == 2
    else:
        with pytest.raises(StoreFailed, match=r"journal/0+3-.* is missing"):
            repository.move_store(str(first), new.url, look_at_all=look_at_all)


@pytest.mark.parametrize("missing", ["all", "of a removal", "none"])
def test_a_new_place_of_copies_without_the_journal_is_refused(
    repository: cafcat.Repository, new: Folder, tmp_path: Path, missing: str
) -> None:
    copies = Folder(tmp_path / "copies")
    commit(repository, {"b": b"b"})
    repository.rm(["b"])
    repository.copy(to=copies.url)
    commit(repository, {"c": b"c"})
    repository.copy(to=copies.url)
    repository.rm(["c"])
    shutil.copytree(copies.folder, new.folder)
    records = sorted((new.folder / "journal").iterdir())
    assert len(records) == 4
    for record in {"all": records, "of a removal": records[1:2], "none": []}[missing]:
        record.unlink()
    if missing == "none":
        assert repository.move_store(copies.url, new.url, look_at_all=True).looked_at == 2
    else:
        with pytest.raises(StoreFailed, match=r"journal/0+3-.* is missing"):
            repository.move_store(copies.url, new.url, look_at_all=True)


# Concurrent verbs


@pytest.mark.parametrize("is_known", [True, False])
def test_a_lost_chunk_without_live_files_does_not_stay_in_the_way(
    repository: cafcat.Repository, old: Folder, new: Folder, is_known: bool
) -> None:
    """A check that found the loss lets the move go on. Without one, the message names what does."""
    [chunk] = repository.chunks()
    commit(repository, {path: data[::-1] for path, data in FILES.items()})
    (old.folder / chunk.object_key).unlink()
    if is_known:
        repository.verify()
    shutil.copytree(old.folder, new.folder)
    if not is_known:
        with pytest.raises(StoreFailed, match="have no live file; cafcat prune --grace 0 forgets them"):
            repository.move_store(old.url, new.url, look_at_all=True)
        repository.prune(grace_seconds=0)
    repository.move_store(old.url, new.url, look_at_all=True)
    assert content(repository) == {path: data[::-1] for path, data in FILES.items()}


@pytest.mark.parametrize("verb", ["rm", "undelete"])
def test_a_journal_record_that_is_made_during_a_move_goes_to_the_new_place(
    repository: cafcat.Repository, old: Folder, new: Folder, open_at: Opener, tmp_path: Path, verb: str
) -> None:
    """Files of another store are removed, and every store must get the record."""
    third = open_at(Folder(tmp_path / "third place"))
    commit(third, {"c": b"c"})
    if verb == "undelete":
        third.rm(["c"])
    shutil.move(old.folder, new.folder)
    with psycopg.connect(str(repository.settings.database_url)) as holder:
        # A removal waits here when it has read the URLs of all stores.
        holder.execute("LOCK TABLE journal_files IN EXCLUSIVE MODE")
        removal = in_background(lambda: getattr(third, verb)(["c"]))
        wait_for_a_waiting_statement(repository)
        move = in_background(lambda: repository.move_store(old.url, new.url))
        move.join(2.0)
        holder.rollback()
        removal.done()
        move.done()
    repository.recover(store=new.url)
    assert sql(repository, "SELECT unwritten FROM journal WHERE unwritten <> '{}'") == []
    assert not old.folder.exists()
    [(last,)] = sql(repository, "SELECT max(id) FROM journal")
    assert list((new.folder / "journal").glob(f"*{last}-*"))


# The second name of an object


def test_ingest_removes_the_temporary_name_of_a_killed_writer(
    repository: cafcat.Repository, old: Folder, tmp_path: Path
) -> None:
    """The writer died between the link to the final name and the removal of the temporary name."""
    leave_whole(repository, {"b": b"whole"})
    end_leases(repository)
    [(key,)] = sql(repository, "SELECT object_key FROM chunks WHERE state = 'writing'")
    (old.folder / f"{key}.partial").hardlink_to(old.folder / key)
    (tmp_path / "src").mkdir()
    repository.ingest([tmp_path / "src"])
    assert repository.read("b") == b"whole"
    assert not (old.folder / f"{key}.partial").exists()
