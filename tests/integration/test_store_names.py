"""Stores with two names, and stores that change while chunks are migrated or pruned: no chunk is lost."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import cafcat
from cafcat.catalog.chunks.pruning import RetiredCopy
from cafcat.errors import AccessDenied, InvalidInput
from cafcat.operations.prune.report import PruneReport
from cafcat.stores.base import ObjectInfo, Upload
from cafcat.stores.local.store import LocalStore
from tests.worlds.catalog_world import Opener, commit, sql
from tests.worlds.listeners import Following
from tests.worlds.places import Folder

FILES = {"a/one": b"one" * 100, "b/two": bytes(range(256)) * 5000}
SERVED = "s3://served/chunks"


class Served:
    """A folder that a server exports, without being recognizable as a folder. is_read_only: for this user."""

    url = SERVED
    reads_in_flight = 1

    def __init__(self, folder: Path) -> None:
        self.folder_behind = folder
        self.is_read_only = False

    @property
    def _store(self) -> LocalStore:
        return LocalStore(self.folder_behind)

    def create(self, key: str, *, rewrites_head: bool = False) -> Upload:
        if self.is_read_only:
            raise AccessDenied("this user may only read")
        return self._store.create(key, rewrites_head=rewrites_head)

    def read(self, key: str, start_byte: int, end_byte: int) -> bytes:
        return self._store.read(key, start_byte, end_byte)

    def stream(self, key: str, start_byte: int, end_byte: int) -> Iterator[bytes]:
        return self._store.stream(key, start_byte, end_byte)

    def stat(self, key: str) -> ObjectInfo:
        return self._store.stat(key)

    def delete(self, key: str) -> None:
        self._store.delete(key)

    def discard(self, key: str, upload_id: str | None = None) -> None:
        self._store.discard(key, upload_id)

    def uploads(self) -> Iterator[str]:
        return self._store.uploads()

    def list(self, below: str = "") -> Iterator[ObjectInfo]:
        return self._store.list(below)

    def locate(self, key: str) -> str:
        return f"{self.url}/{key}"


@pytest.fixture
def old(tmp_path: Path) -> Folder:
    return Folder(tmp_path / "old")


@pytest.fixture
def new(tmp_path: Path) -> Folder:
    return Folder(tmp_path / "new")


@pytest.fixture
def link(tmp_path: Path) -> Folder:
    return Folder(tmp_path / "link")


@pytest.fixture
def repository(open_at: Opener, old: Folder) -> cafcat.Repository:
    repository = open_at(old)
    for path, data in FILES.items():
        commit(repository, {path: data})
    return repository


@pytest.fixture
def served(repository: cafcat.Repository, new: Folder) -> Served:
    new.folder.mkdir()
    store = Served(new.folder)
    repository.session.stores[SERVED] = store
    return store


def prune(repository: cafcat.Repository, should_stop: Callable[[], bool] | None = None) -> PruneReport:
    return repository.with_progress(Following(should_stop=should_stop)).prune(grace_seconds=0, dry_run=False)


def check_nothing_is_lost(repository: cafcat.Repository) -> None:
    assert {path: repository.read(path) for path in FILES} == FILES
    assert repository.verify(level="data").missing == 0
    assert repository.session.catalog.reports.findings() == []


def link_to(place: Folder, target: Folder) -> None:
    """Replace the folder of a place by a link. An existing folder is renamed."""
    if place.folder.exists():
        place.folder.rename(f"{place.folder}.away")
    place.folder.symlink_to(target.folder)


def once(act: Callable[[], object], call: int = 1) -> Callable[[], bool]:
    """Return a `should_stop` that calls a function at one of its calls, and never stops."""
    calls = iter(range(1, 1_000_000))

    def should_stop() -> bool:
        if next(calls) == call:
            act()
        return False

    return should_stop


def probes(*places: Folder) -> list[str]:
    return [key for place in places for key in place.everything() if "probe" in key]


# Two names of one store


@pytest.mark.parametrize("dry_run", [True, False])
def test_prune_keeps_objects_whose_old_store_is_now_a_link_to_the_new_one(
    repository: cafcat.Repository, old: Folder, new: Folder, dry_run: bool
) -> None:
    assert repository.migrate_store(old.url, new.url).chunks == 2
    link_to(old, new)
    report = repository.prune(grace_seconds=0, dry_run=dry_run)
    assert (report.objects, len(report.failed)) == (0, 2)
    assert "under two names" in report.failed[0]
    check_nothing_is_lost(repository)


def test_prune_keeps_a_file_that_the_old_name_links_to(
    repository: cafcat.Repository, old: Folder, new: Folder
) -> None:
    repository.migrate_store(old.url, new.url)
    key = repository.locate("a/one").object_key
    (new.folder / key).rename(new.folder.parent / "elsewhere")
    for folder in (old.folder, new.folder):
        (folder / key).unlink(missing_ok=True)
        (folder / key).symlink_to(new.folder.parent / "elsewhere")
    report = prune(repository)
    assert (report.objects, len(report.failed)) == (1, 1)
    assert "the same file" in report.failed[0]
    assert (old.folder / key).exists()
    check_nothing_is_lost(repository)


def test_a_store_with_the_left_copies_is_not_migrated_to_by_another_name(
    repository: cafcat.Repository, old: Folder, new: Folder, link: Folder
) -> None:
    repository.migrate_store(old.url, new.url)
    link_to(link, old)
    report = repository.migrate_store(new.url, link.url)
    assert (report.chunks, len(report.failed)) == (0, 2)
    assert f"{old.url} are the same store under two names" in report.failed[0]
    assert len(repository.copy(to=link.url).failed) == 2
    assert prune(repository).objects == 2
    check_nothing_is_lost(repository)


def test_prune_keeps_a_copy_with_another_name_of_the_old_store(
    repository: cafcat.Repository, old: Folder, new: Folder, link: Folder
) -> None:
    repository.migrate_store(old.url, new.url)
    repository.copy(to=link.url)
    link_to(old, link)
    report = prune(repository)
    assert (report.objects, len(report.failed)) == (0, 2)
    assert repository.verify(level="data").ok == 4
    check_nothing_is_lost(repository)


def test_prune_needs_no_other_copy(repository: cafcat.Repository, old: Folder, new: Folder, link: Folder) -> None:
    """The disk with the copies may be mounted elsewhere."""
    repository.migrate_store(old.url, new.url)
    repository.copy(to=link.url)
    link.folder.rename(new.folder.parent / "away")
    report = prune(repository)
    assert (report.objects, report.failed) == (2, ())
    check_nothing_is_lost(repository)


def test_a_folder_is_not_migrated_to_a_server_that_serves_it(
    repository: cafcat.Repository, old: Folder, served: Served
) -> None:
    served.folder_behind = old.folder
    with pytest.raises(InvalidInput, match="under two names"):
        repository.migrate_store(old.url, SERVED)
    assert all("under two names" in failed for failed in repository.copy(to=SERVED).failed)
    assert sql(repository, "SELECT count(*) FROM chunk_copies") == [(0,)]
    assert probes(old) == []
    check_nothing_is_lost(repository)


@pytest.mark.parametrize("back", [False, True])
def test_prune_keeps_objects_that_a_server_exports_from_the_old_folder(
    repository: cafcat.Repository, old: Folder, new: Folder, served: Served, back: bool
) -> None:
    """Check both directions. back: the chunks are in the folder, and the remaining copies are on the server."""
    repository.migrate_store(old.url, SERVED)
    if back:
        prune(repository)
        repository.migrate_store(SERVED, old.url)
    served.folder_behind = old.folder
    report = prune(repository)
    assert (report.objects, len(report.failed)) == (0, 2)
    assert probes(old, new) == []
    check_nothing_is_lost(repository)
    served.folder_behind = new.folder
    assert prune(repository).objects == 2
    assert probes(old, new) == []
    check_nothing_is_lost(repository)


def test_prune_does_nothing_without_the_proof(
    repository: cafcat.Repository, old: Folder, new: Folder, served: Served
) -> None:
    repository.migrate_store(old.url, SERVED)
    served.is_read_only = True
    before = old.objects()
    report = prune(repository)
    assert (report.objects, len(report.failed)) == (0, 2)
    assert "cannot find out whether" in report.failed[0]
    assert "may only read" in report.failed[0]
    assert old.objects() == before
    assert probes(old, new) == []
    check_nothing_is_lost(repository)


def test_backup_is_not_migrated_without_a_proof(
    repository: cafcat.Repository, old: Folder, new: Folder, served: Served
) -> None:
    repository.backup(to=SERVED)
    served.is_read_only = True
    report = repository.migrate_store(SERVED, old.url)
    assert (report.backups, report.left) == (0, 1)
    assert "may only read" in report.failed[0]
    assert len(repository.backups(SERVED)) == 1


def test_an_object_of_another_writer_with_the_key_of_a_backup_stays(
    repository: cafcat.Repository, old: Folder, new: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another writer creates the object after the migration has looked for it."""
    repository.backup(to=old.url)
    [backup] = repository.backups(old.url)

    def create_after_the_look(_store: object, key: str) -> bool:
        new.write(key, b"another")
        return False

    monkeypatch.setattr("cafcat.operations.stores.migrate.has", create_after_the_look)
    report = repository.migrate_store(old.url, new.url)
    assert (report.backups, report.left) == (0, 1)
    assert new.everything()[backup.object_key] == b"another"
    assert len(repository.backups(old.url)) == 1


def test_recover_keeps_the_object_of_a_pruned_copy_behind_a_link(
    repository: cafcat.Repository, old: Folder, new: Folder
) -> None:
    """A prune was killed after its decision, and then the old store became a link."""
    repository.migrate_store(old.url, new.url)
    sql(repository, "UPDATE chunk_copies SET state = 'deleted'")
    link_to(old, new)
    report = repository.recover()
    assert report.copies_removed == 0
    assert len(report.failed) == 2
    check_nothing_is_lost(repository)


def test_recover_removes_the_object_of_a_killed_look(repository: cafcat.Repository, old: Folder) -> None:
    probe = "cafcat-probe-00000000-0000-4000-8000-000000000000"
    old.write(probe, b"look")
    old.begin_upload(probe)
    assert repository.recover(dry_run=True).unknown_objects == 0
    assert probes(old) != []
    report = repository.recover()
    assert (report.unknown_objects, report.unknown_uploads) == (0, 0)
    assert probes(old) == []


# Stores that change during a verb


def test_prune_keeps_chunks_that_are_migrated_back_meanwhile(
    repository: cafcat.Repository, old: Folder, new: Folder
) -> None:
    repository.migrate_store(old.url, new.url)

    def migrate_back() -> None:
        assert repository.migrate_store(new.url, old.url).chunks == 2

    report = prune(repository, once(migrate_back))
    assert report.objects == 0
    assert {repository.locate(path).store for path in FILES} == {old.url}
    check_nothing_is_lost(repository)
    assert prune(repository).objects == 2
    check_nothing_is_lost(repository)


def test_copy_is_pruned_only_at_the_checked_places(
    repository: cafcat.Repository, old: Folder, new: Folder, link: Folder, tmp_path: Path
) -> None:
    """A migration back changes the place in the row of a copy."""
    pruning, migrate = repository.session.catalog.pruning, repository.migrate_store
    migrate(old.url, new.url)
    first = next(pruning.retired_copies(0, None))
    migrate(new.url, old.url)
    assert not pruning.mark_copy_deleted(first, 0)
    migrate(old.url, link.url)
    migrate(link.url, new.url)
    again = _left(repository, first.id)
    assert (again.store, again.chunk_store) == (link.url, first.chunk_store)
    assert not pruning.mark_copy_deleted(first, 0)
    migrate(new.url, (tmp_path / "fourth").as_uri())
    assert not pruning.mark_copy_deleted(again, 0)
    assert pruning.mark_copy_deleted(_left(repository, first.id), 0)


def _left(repository: cafcat.Repository, copy: int) -> RetiredCopy:
    return {left.id: left for left in repository.session.catalog.pruning.retired_copies(0, None)}[copy]


def test_a_copy_that_prune_removes_meanwhile_does_not_count(
    repository: cafcat.Repository, old: Folder, new: Folder
) -> None:
    repository.migrate_store(old.url, new.url)
    pruning = repository.session.catalog.pruning
    first = next(pruning.retired_copies(0, None))

    def decide() -> None:
        assert pruning.mark_copy_deleted(first, 0)

    report = repository.with_progress(Following(should_stop=once(decide, call=2))).copy(to=old.url)
    assert (report.found, len(report.failed)) == (1, 1)
    assert str(first.uuid) in report.failed[0]


def test_the_new_store_moves_during_a_migration(
    repository: cafcat.Repository, old: Folder, new: Folder, link: Folder
) -> None:
    repository.copy(to=new.url)

    def move() -> None:
        shutil.move(new.folder, link.folder)
        repository.move_store(new.url, link.url)

    report = repository.with_progress(Following(should_stop=once(move))).migrate_store(old.url, new.url)
    assert report.chunks == 0
    assert "cafcat store ls" in report.failed[0]
    assert {repository.locate(path).store for path in FILES} == {old.url}
    assert repository.migrate_store(old.url, link.url).chunks == 2
    check_nothing_is_lost(repository)


def test_the_old_store_moves_during_a_migration(
    repository: cafcat.Repository, old: Folder, new: Folder, link: Folder
) -> None:
    repository.copy(to=new.url)

    def move() -> None:
        shutil.move(old.folder, link.folder)
        repository.move_store(old.url, link.url)

    report = repository.with_progress(Following(should_stop=once(move))).migrate_store(old.url, new.url)
    assert report.chunks == 0
    assert len(report.failed) == 2
    assert {repository.locate(path).store for path in FILES} == {link.url}
    check_nothing_is_lost(repository)
