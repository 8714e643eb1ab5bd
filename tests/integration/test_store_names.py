"""Stores that have two names, and stores that change while chunks are migrated or pruned: no chunk is lost."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import cafcat
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
