"""Which findings the overview of the console shows: those that are true now, and concern live files."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import cafcat
from cafcat.catalog.console.findings import findings_page
from tests.worlds.archives.damage import flip
from tests.worlds.catalog_world import commit, sql


@pytest.fixture
def repository(database_url: str, tmp_path: Path) -> Iterator[cafcat.Repository]:
    with cafcat.open(database_url=database_url, home=tmp_path, store=str(tmp_path / "store")) as repository:
        yield repository


@pytest.fixture
def damaged(repository: cafcat.Repository) -> cafcat.Repository:
    """A catalog with one chunk of two files, of which one is damaged."""
    commit(repository, {"a": b"first", "b": b"second"})
    location = repository.locate("a")
    flip(Path(repository.object_of(location)), location.start_byte)
    repository.verify(level="data")
    return repository


def shown(repository: cafcat.Repository) -> list[str]:
    rows = findings_page(repository.session.catalog.pages, 1 << 62, 10, only_live=True)
    return [row["file_path"] for row in rows]


def test_damage_of_a_live_file(damaged: cafcat.Repository) -> None:
    assert shown(damaged) == ["a"]
    damaged.verify(level="index")  # sees no bytes of files, and refutes nothing
    assert shown(damaged) == ["a"]


def test_a_later_check_that_found_no_damage(damaged: cafcat.Repository) -> None:
    location = damaged.locate("a")
    flip(Path(damaged.object_of(location)), location.start_byte)
    damaged.verify(level="data")
    assert shown(damaged) == []


def test_a_chunk_without_live_files(damaged: cafcat.Repository) -> None:
    damaged.rm(["a", "b"])
    assert shown(damaged) == []


def test_a_copy_is_shown_until_it_is_replaced(repository: cafcat.Repository, tmp_path: Path) -> None:
    commit(repository, {"a": b"first", "b": b"second"})
    second = str(tmp_path / "second")
    repository.copy(to=second)
    [chunk] = repository.chunks()
    flip(tmp_path / "second" / chunk.object_key, repository.locate("a").start_byte)
    repository.verify(level="data")
    [row] = findings_page(repository.session.catalog.pages, 1 << 62, 10, only_live=True)
    assert (row["file_path"], row["copy_store"], row["copy_is_kept"]) == ("a", (tmp_path / "second").as_uri(), True)
    repository.copy(to=second)
    assert shown(repository) == []
    [row] = findings_page(repository.session.catalog.pages, 1 << 62, 10)
    assert not row["copy_is_kept"]


def test_findings_about_the_catalog(repository: cafcat.Repository) -> None:
    commit(repository, {"a": b"first"})
    sql(repository, "UPDATE chunks SET live_file_count = 7")
    repository.verify(level="catalog")
    assert shown(repository)
    sql(repository, "UPDATE chunks SET live_file_count = 1")
    repository.verify(level="catalog")
    assert shown(repository) == []
