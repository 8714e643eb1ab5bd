"""Which findings and commands the console shows: those of damage that is true now, and that concerns live files."""

import html
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import cafcat
from cafcat.catalog.console.findings import findings_page
from cafcat.serve.s3.options import S3Options
from tests.console.client import console
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


def commands(repository: cafcat.Repository) -> list[str]:
    """Return the commands of the page of findings."""
    pytest.importorskip("jinja2")
    with console(repository, s3=S3Options(public=(".",))) as client:
        page = client.get("/-/findings").text
    return [html.unescape(text) for text in re.findall('aria-label="Command">([^<]*)</code>', page)]


def test_commands_are_offered_only_for_damage_that_live_files_need(
    repository: cafcat.Repository, tmp_path: Path
) -> None:
    commit(repository, {"a": b"first", "b": b"second"})
    second = str(tmp_path / "second")
    repository.copy(to=second)
    [chunk] = repository.chunks()
    location = repository.locate("a")
    copy, own = tmp_path / "second" / chunk.object_key, Path(repository.object_of(location))
    check, replace = "cafcat verify --level data", f"cafcat copy --all --to {(tmp_path / 'second').as_uri()}"
    flip(copy, location.start_byte)
    repository.verify(level="data")
    assert commands(repository) == [replace, check]
    repository.copy(to=second)
    assert commands(repository) == [check]
    flip(own, location.start_byte)
    repository.verify(level="data")
    assert commands(repository) == ["cafcat repair", check]
    repository.rm(["a", "b"])
    assert commands(repository) == [check]


def test_findings_about_the_catalog(repository: cafcat.Repository) -> None:
    commit(repository, {"a": b"first"})
    sql(repository, "UPDATE chunks SET live_file_count = 7")
    repository.verify(level="catalog")
    assert shown(repository)
    sql(repository, "UPDATE chunks SET live_file_count = 1")
    repository.verify(level="catalog")
    assert shown(repository) == []
