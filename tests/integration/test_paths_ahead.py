"""Lists of very many paths, which two connections get in turn."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest

import cafcat
from cafcat.catalog.catalog import Catalog
from cafcat.catalog.database_url import DatabaseUrl
from cafcat.catalog.files import lookup
from cafcat.catalog.files.lookup import Lookup
from cafcat.catalog.files.scope import FindFilter
from cafcat.reading import paths_ahead as module
from cafcat.reading.paths_ahead import paths_ahead
from tests.worlds import catalog_world
from tests.worlds.layout_world import PARTITIONS
from tests.worlds.servers.services import Databases

PATHS = [*(f"d/{number:05}" for number in range(2000)), *(f"e/{number:04}" for number in range(1000)), "z"]
FIRST = 20


@pytest.fixture
def short_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    for place in (lookup, module):
        monkeypatch.setattr(place, "PATHS", FIRST)
    monkeypatch.setattr(lookup, "_MOST_PATHS", 100)


@pytest.fixture
def partitioned_url(databases: Databases) -> Iterator[str]:
    with databases.fresh(databases.template(), PARTITIONS) as url:
        yield url


@pytest.fixture(params=["database_url", "database_url_15", "partitioned_url"])
def repository(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[cafcat.Repository]:
    url = str(request.getfixturevalue(request.param))
    with cafcat.open(database_url=url, home=tmp_path / "home", store=str(tmp_path / "store")) as repository:
        commit(repository, PATHS)
        yield repository


@pytest.fixture
def filled(repository: cafcat.Repository, short_lists: None) -> Catalog:
    catalog_world.sql(repository, "ANALYZE file_locations")
    return repository.session.catalog


def commit(repository: cafcat.Repository, paths: list[str]) -> None:
    catalog_world.commit(repository, dict.fromkeys(paths, b"content"))


def flat(pages: Iterator[object]) -> list[str]:
    return [path for page in pages for path in page]  # type: ignore[attr-defined]


@pytest.mark.parametrize("prefix", ["", "d", "e", "z", "d/00007", "nothing"])
@pytest.mark.parametrize("where", [None, FindFilter(name_regex="7"), FindFilter(min_size=10**6)])
def test_every_path_comes_once_and_in_order(filled: Catalog, prefix: str, where: FindFilter | None) -> None:
    pages = list(paths_ahead(filled, prefix, where))
    assert flat(iter(pages)) == flat(filled.files.path_pages(prefix, where))
    assert all(0 < len(page) <= 100 for page in pages)


def test_both_connections_get_lists(filled: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Lookup] = []
    page_between = Lookup.path_page_between

    def noted(self: Lookup, *arguments: object) -> object:
        asked.append(self)
        return page_between(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(Lookup, "path_page_between", noted)
    assert flat(paths_ahead(filled, "")) == sorted(PATHS)
    counts = sorted(asked.count(files) for files in set(asked))
    assert len(counts) == 2
    assert counts[0] > 20


def test_a_part_may_have_more_paths_than_the_statistics_tell(
    repository: cafcat.Repository, filled: Catalog
) -> None:
    more = [f"d/01000-{number:04}" for number in range(1000)]
    commit(repository, more)
    assert flat(paths_ahead(filled, "")) == sorted([*PATHS, *more])


@pytest.mark.usefixtures("short_lists")
def test_without_statistics(repository: cafcat.Repository) -> None:
    catalog = repository.session.catalog
    assert catalog.files.parts("", None, 10) == [("", None)]
    assert flat(paths_ahead(catalog, "")) == sorted(PATHS)


def test_a_role_that_may_not_read_statistics(databases: Databases, tmp_path: Path, short_lists: None) -> None:
    """Some administrators take this right from everybody."""
    with databases.fresh(databases.template()) as url:
        name = urlsplit(url).path.removeprefix("/")
        with psycopg.connect(databases.conninfo, dbname=name, autocommit=True) as superuser:
            superuser.execute("REVOKE SELECT ON pg_catalog.pg_stats FROM PUBLIC")
        with cafcat.open(database_url=url, home=tmp_path / "home", store=str(tmp_path / "store")) as repository:
            commit(repository, PATHS)
            catalog_world.sql(repository, "ANALYZE file_locations")
            catalog = repository.session.catalog
            assert catalog.files.parts("", None, 10) == [("", None)]
            assert flat(paths_ahead(catalog, "")) == sorted(PATHS)


def test_without_another_connection(filled: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    nowhere = Catalog(DatabaseUrl("postgresql://127.0.0.1:1/none"))
    monkeypatch.setattr(Catalog, "_copy", lambda _: nowhere)
    assert flat(paths_ahead(filled, "")) == sorted(PATHS)


def test_parts_cover_a_range(filled: Catalog) -> None:
    parts = filled.files.parts("d/00500", "e/0500", 100)
    assert parts[0][0] == "d/00500"
    assert parts[-1][1] == "e/0500"
    assert [low for low, _ in parts[1:]] == [high for _, high in parts[:-1]]
    assert 10 < len(parts) < 30


def test_newlines_in_paths(repository: cafcat.Repository, filled: Catalog) -> None:
    commit(repository, ["d/00300\n", "d/00300\nd/00300a", "e/\n"])
    assert flat(paths_ahead(filled, "")) == sorted([*PATHS, "d/00300\n", "d/00300\nd/00300a", "e/\n"])


def test_an_early_end(filled: Catalog) -> None:
    with closing(paths_ahead(filled, "")) as pages:
        assert next(pages)[0] == PATHS[0]
        assert next(pages)[0] == PATHS[FIRST]
    assert flat(filled.files.path_pages("z")) == ["z"]
