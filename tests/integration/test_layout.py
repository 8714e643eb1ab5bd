"""The layout of file_locations: a plain table, or partitions."""

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

import cafcat
from cafcat.catalog import schema
from cafcat.catalog.tables import STORAGE
from cafcat.errors import CatalogLocked, InvalidInput
from cafcat.operations.partition.run import run
from cafcat.settings.database import Database
from cafcat.settings.settings import Settings
from tests.worlds.layout_world import PARTITIONS, execute, fill, partitions
from tests.worlds.servers.services import Databases


@pytest.fixture(params=[0, PARTITIONS])
def layout_url(databases: Databases, request: pytest.FixtureRequest) -> Iterator[str]:
    with databases.fresh(databases.template(), request.param) as url:
        yield url


@pytest.fixture
def repository(database_url: str, tmp_path: Path) -> Iterator[cafcat.Repository]:
    with cafcat.open(database_url=database_url, home=tmp_path / "home", store=str(tmp_path / "store")) as found:
        yield found


def test_init_makes_the_layout_that_is_asked_for(empty_database_url: str) -> None:
    database = Database(Settings.load(database_url=empty_database_url))
    assert database.init(PARTITIONS) == schema.HEAD_REVISION
    assert (database.partitions(), partitions(empty_database_url)) == (PARTITIONS, PARTITIONS)
    assert database.init() == schema.HEAD_REVISION
    assert database.init(2) == schema.HEAD_REVISION
    assert database.partitions() == 2
    fill(empty_database_url)
    assert database.init(2) == schema.HEAD_REVISION
    with pytest.raises(InvalidInput, match="the catalog has files, in 2 partitions") as error:
        database.init(PARTITIONS)
    assert f"cafcat db partition {PARTITIONS}" in str(error.value.hint)


@pytest.mark.parametrize("number", [-1, 1, 1025])
def test_impossible_numbers_of_partitions_are_refused(
    database_url: str, repository: cafcat.Repository, number: int
) -> None:
    with pytest.raises(InvalidInput, match="from 2 to 1024"):
        Database(Settings.load(database_url=database_url)).init(number)
    with pytest.raises(InvalidInput, match="from 2 to 1024"):
        run(repository.session, number)


def test_both_layouts_have_the_storage_parameters_of_the_tables(layout_url: str) -> None:
    rows = execute(
        layout_url,
        "SELECT relname, coalesce(reloptions, '{}') FROM pg_class "
        "WHERE relnamespace = 'public'::regnamespace AND relkind = 'r'",
    )
    found = {name: dict(option.split("=") for option in options) for name, options in rows}
    tables = [name for name in found if name.startswith("file_locations")]
    assert len(tables) in (1, PARTITIONS)
    for name, options in found.items():
        assert options == STORAGE.get("file_locations" if name in tables else name, {}), name


def test_rm_deletes_no_row_at_the_same_place_of_another_partition(layout_url: str, tmp_path: Path) -> None:
    """A ctid is unique only within a partition."""
    with cafcat.open(database_url=layout_url, home=tmp_path, store=str(tmp_path / "store")) as repository:
        with repository.writer() as writer:
            for number in range(100):
                writer.add(f"folder/{number:03}", b"x")
        removed = [f"folder/{number:03}" for number in range(0, 100, 9)]
        assert repository.rm(removed).files == len(removed)
        left = {location.path for location in repository.list()}
    assert left == {f"folder/{number:03}" for number in range(100)} - set(removed)


def test_holder_of_a_lock_on_one_partition_is_named(databases: Databases, tmp_path: Path) -> None:
    with (
        databases.fresh(databases.template(), PARTITIONS) as url,
        psycopg.connect(url, application_name="busy program") as holder,
        cafcat.open(database_url=url, home=tmp_path, store=str(tmp_path / "store"), lock_timeout=0) as repository,
    ):
        holder.execute(f"LOCK TABLE file_locations_p{PARTITIONS}_1 IN ACCESS EXCLUSIVE MODE")
        with pytest.raises(CatalogLocked, match="busy program"):
            repository.rm(["x"])


def test_many_paths_are_located_in_both_layouts(layout_url: str, tmp_path: Path) -> None:
    with cafcat.open(database_url=layout_url, home=tmp_path, store=str(tmp_path / "store")) as repository:
        with repository.writer() as writer:
            for number in range(50):
                writer.add(f"folder/{number:03}", b"x")
        asked = [f"folder/{number:03}" for number in range(40, 60)]
        for _ in range(3):  # the first look-up, the look at the layout, the prepared statement
            assert sorted(repository.session.catalog.files.locate_many(asked)) == asked[:10]


@pytest.mark.parametrize("layouts", [(0, PARTITIONS), (PARTITIONS, 0)])
def test_restore_and_rebuild_fill_the_other_layout(
    databases: Databases, tmp_path: Path, layouts: tuple[int, int]
) -> None:
    store = str(tmp_path / "store")
    columns = "SELECT file_path, start_byte, end_byte, crc32c, modified_at FROM file_locations ORDER BY 1"
    with databases.fresh(databases.template(), layouts[0]) as url:
        with cafcat.open(database_url=url, home=tmp_path / "home", store=store) as repository:
            for text in (b"first", b"second"):
                with repository.writer() as writer:
                    for number in range(40):
                        writer.add(f"folder/{number % 7}/{number}", text)
            repository.rm(folders=["folder/3"])
            repository.backup()
        rows = execute(url, columns)
        for verb in ("restore", "rebuild"):
            with (
                databases.fresh(databases.template(), layouts[1]) as other,
                cafcat.open(database_url=other, home=tmp_path / verb, store=store) as repository,
            ):
                getattr(repository, verb)()
                assert execute(other, columns) == rows
                assert partitions(other) == layouts[1]
                assert not any(repository.compare(url).differences.values())
