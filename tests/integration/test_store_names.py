"""Stores that have two names, and stores that change while chunks are migrated or pruned: no chunk is lost."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import cafcat
from cafcat.catalog.pruning import LeftCopy
from cafcat.maintenance.prune import PruneReport
from tests.catalog_world import Opener, commit
from tests.places import Folder

FILES = {"a/one": b"one" * 100, "b/two": bytes(range(256)) * 5000}


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


def prune(repository: cafcat.Repository, should_stop: Callable[[], bool] | None = None) -> PruneReport:
    return repository.custody.prune(grace_seconds=0, dry_run=False, should_stop=should_stop)


def check_nothing_is_lost(repository: cafcat.Repository) -> None:
    assert {path: repository.read(path) for path in FILES} == FILES
    assert repository.custody.verify(level="data").missing == 0
    assert repository._catalog.reports.findings() == []


def once(act: Callable[[], object], call: int = 1) -> Callable[[], bool]:
    """A `should_stop` that does something at one of its calls, and never stops."""
    calls = iter(range(1, 1_000_000))

    def should_stop() -> bool:
        if next(calls) == call:
            act()
        return False

    return should_stop


# Stores that change meanwhile


def test_prune_keeps_chunks_that_are_migrated_back_meanwhile(
    repository: cafcat.Repository, old: Folder, new: Folder
) -> None:
    repository.custody.migrate_store(old.url, new.url)

    def migrate_back() -> None:
        assert repository.custody.migrate_store(new.url, old.url).chunks == 2

    report = prune(repository, once(migrate_back))
    assert report.objects == 0
    assert {repository.locate(path).store for path in FILES} == {old.url}
    check_nothing_is_lost(repository)
    assert prune(repository).objects == 2
    check_nothing_is_lost(repository)


def test_a_copy_is_decided_on_only_at_the_places_that_were_looked_at(
    repository: cafcat.Repository, old: Folder, new: Folder, link: Folder, tmp_path: Path
) -> None:
    """Migrations back make a row that of another place."""
    pruning, migrate = repository._catalog.pruning, repository.custody.migrate_store
    migrate(old.url, new.url)
    first = next(pruning.left_copies(0, None))
    migrate(new.url, old.url)
    assert not pruning.decide_copy(first, 0)
    migrate(old.url, link.url)
    migrate(link.url, new.url)
    again = _left(repository, first.id)
    assert (again.store, again.chunk_store) == (link.url, first.chunk_store)
    assert not pruning.decide_copy(first, 0)
    migrate(new.url, (tmp_path / "fourth").as_uri())
    assert not pruning.decide_copy(again, 0)
    assert pruning.decide_copy(_left(repository, first.id), 0)


def _left(repository: cafcat.Repository, copy: int) -> LeftCopy:
    return {left.id: left for left in repository._catalog.pruning.left_copies(0, None)}[copy]


def test_a_copy_that_prune_removes_meanwhile_does_not_count(
    repository: cafcat.Repository, old: Folder, new: Folder
) -> None:
    repository.custody.migrate_store(old.url, new.url)
    pruning = repository._catalog.pruning
    first = next(pruning.left_copies(0, None))

    def decide() -> None:
        assert pruning.decide_copy(first, 0)

    report = repository.custody.copy(to=old.url, should_stop=once(decide, call=2))
    assert (report.found, len(report.failed)) == (1, 1)
    assert str(first.uuid) in report.failed[0]


def test_the_new_store_moves_during_a_migration(
    repository: cafcat.Repository, old: Folder, new: Folder, link: Folder
) -> None:
    repository.custody.copy(to=new.url)

    def move() -> None:
        shutil.move(new.folder, link.folder)
        repository.custody.move_store(new.url, link.url)

    report = repository.custody.migrate_store(old.url, new.url, should_stop=once(move))
    assert report.chunks == 0
    assert "cafcat store ls" in report.failed[0]
    assert {repository.locate(path).store for path in FILES} == {old.url}
    assert repository.custody.migrate_store(old.url, link.url).chunks == 2
    check_nothing_is_lost(repository)


def test_the_old_store_moves_during_a_migration(
    repository: cafcat.Repository, old: Folder, new: Folder, link: Folder
) -> None:
    repository.custody.copy(to=new.url)

    def move() -> None:
        shutil.move(old.folder, link.folder)
        repository.custody.move_store(old.url, link.url)

    report = repository.custody.migrate_store(old.url, new.url, should_stop=once(move))
    assert report.chunks == 0
    assert len(report.failed) == 2
    assert {repository.locate(path).store for path in FILES} == {link.url}
    check_nothing_is_lost(repository)
