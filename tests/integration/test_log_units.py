"""Log files in archives of logs are in the catalog as long as their archive is."""

import math
from pathlib import Path

import pytest

import cafcat
from cafcat.formats.clp.reader import ClpReader
from cafcat.model import LogUnit, TimeRange
from cafcat.testing.formats import BytesArchive
from tests.worlds.archives.log_archives import container, write_container
from tests.worlds.catalog_world import sql
from tests.worlds.listeners import follow
from tests.worlds.rebuild_world import worlds
from tests.worlds.servers.services import Databases

DAY = 86_400_000
RANGES = [("app/a.log", 0, 10), ("app/b/c.log", 10, 10), ("/var/log/x", 10, 30)]


@pytest.fixture
def repository(local: cafcat.Repository) -> cafcat.Repository:
    return local


def adopt(repository: cafcat.Repository, path: Path, **options: object) -> None:
    report = follow(repository, options).adopt([path], **options)
    assert report.failed == []


def names(repository: cafcat.Repository, prefix: str = "") -> list[str]:
    return [unit.log_file for unit in repository.units(prefix)]


def test_an_adopted_archive_brings_its_log_files_and_times(repository: cafcat.Repository, tmp_path: Path) -> None:
    path = write_container(tmp_path / "there" / "x.clp", RANGES, [("timestamp", DAY, 2 * DAY), ("t2", 5, 7)])
    adopt(repository, path, prefix="old")
    first, *_ = found = list(repository.units())
    [chunk] = repository.chunks()
    assert [(unit.log_file, unit.first_record, unit.end_record) for unit in found] == sorted(RANGES)
    assert first.fields == {"_file_split_number": 0}
    assert (first.chunk, first.state, first.object_key) == (chunk.uuid, "committed", "x.clp")
    assert (first.begin_ms, first.end_ms, first.source_bytes, first.modified_at) == (5, 2 * DAY, None, None)
    assert sql(repository, "SELECT log_file, records, end_at::date::text FROM units ORDER BY 1 DESC LIMIT 1") == [
        ("app/b/c.log", 0, "1970-01-03")
    ]


def test_log_files_below_a_folder_or_of_a_name(repository: cafcat.Repository, tmp_path: Path) -> None:
    ranges = [*RANGES, ("app", 30, 31), ("app-2/a", 31, 32), (None, 32, 33)]
    adopt(repository, write_container(tmp_path / "x.clp", ranges))
    assert names(repository, "app") == ["app", "app/a.log", "app/b/c.log"]
    assert names(repository, "app/b/") == ["app/b/c.log"]
    assert names(repository, "/var") == ["/var/log/x"]
    assert names(repository, "var") == []
    assert names(repository, ".") == ["", "/var/log/x", "app", "app-2/a", "app/a.log", "app/b/c.log"]


def test_many_log_files_are_listed_in_pages(repository: cafcat.Repository, tmp_path: Path) -> None:
    ranges = [(f"log{n // 2}", n, n + 1) for n in range(2500)]
    adopt(repository, write_container(tmp_path / "x.clp", ranges))
    assert names(repository) == sorted(name for name, *_ in ranges)


def test_log_files_are_removed_with_their_archive(repository: cafcat.Repository, tmp_path: Path) -> None:
    path = write_container(tmp_path / "x.clp", RANGES, [("t", 1, 2)])
    adopt(repository, path)
    repository.rm(folders=["."])
    assert {unit.state for unit in repository.units()} == {"retired"}
    assert repository.prune(grace_seconds=0).let_go == 1
    assert names(repository) == []
    assert sql(repository, "SELECT count(*) FROM ingestion_units NATURAL FULL JOIN chunk_times") == [(0,)]
    adopt(repository, path)
    assert len(names(repository)) == len(RANGES)


def test_refused_archive_leaves_no_log_files(repository: cafcat.Repository, tmp_path: Path) -> None:
    adopt(repository, write_container(tmp_path / "x.clp", RANGES))
    other = write_container(tmp_path / "other" / "x.clp", [("new", 0, 1)], [("t", 1, 2)])
    assert len(repository.adopt([other]).failed) == 1
    assert "new" not in names(repository)
    assert sql(repository, "SELECT count(*) FROM chunk_times") == [(0,)]


@pytest.mark.parametrize(
    "ranges", [[("a\0b", 0, 1)], [("n" * 2049, 0, 1)], [("a", 0, 1 << 63)]], ids=["NUL", "long", "many"]
)
def test_log_files_that_the_catalog_cannot_store_are_refused(
    repository: cafcat.Repository, tmp_path: Path, ranges: list[tuple[str, int, int]]
) -> None:
    report = repository.adopt([write_container(tmp_path / "x.clp", ranges)])
    assert "the catalog cannot store" in report.failed[0]
    assert sql(repository, "SELECT count(*) FROM chunks") == [(0,)]


def test_invalid_times_are_unknown_and_no_query_fails(repository: cafcat.Repository, tmp_path: Path) -> None:
    times = [("nan", math.nan, math.inf), ("far", -(1 << 63), (1 << 63) - 1), ("float", 1.5e300, 1.6e300)]
    adopt(repository, write_container(tmp_path / "x.clp", RANGES, times))
    assert sql(repository, "SELECT DISTINCT begin_at, end_at FROM units") == [(None, None)]
    assert [unit.log_file for unit in repository.units("app/a.log")] == ["app/a.log"]
    assert sql(repository, "SELECT begin_ms, end_ms FROM chunk_times WHERE timestamp_key = 'nan'") == [(None, None)]
    assert len(list(repository.session.catalog.logs.archives("clp-s", "", 5, 6))) == 1


def test_times_of_one_key_are_the_widest() -> None:
    archive = container([("a", 0, 1)], [("t", 5, 6), ("t", 1, 2), ("u", 3.5, 4.5)])
    units = ClpReader(BytesArchive(archive, "x")).units()
    assert units.units == [LogUnit("a", 0, 1, '{"_file_split_number": 0}')]
    assert units.times == [TimeRange("t", 1, 6), TimeRange("u", 3500, 4500)]


@pytest.mark.parametrize(
    ("times", "found"),
    [
        ((None, None), {"early", "late", "unknown", "none"}),
        ((0, 100), {"early", "unknown", "none"}),
        ((100, 100), {"early", "unknown", "none"}),
        ((101, 199), {"unknown", "none"}),
        ((200, None), {"late", "unknown", "none"}),
        ((None, 49), {"unknown", "none"}),
    ],
)
def test_archives_are_chosen_by_time(
    repository: cafcat.Repository, tmp_path: Path, times: tuple[int | None, int | None], found: set[str]
) -> None:
    made = {
        "early": [("t", 50, 100)],
        "late": [("t", 200, 300)],
        "unknown": [("t", math.nan, math.nan)],
        "none": [],
    }
    for name, spans in made.items():
        adopt(repository, write_container(tmp_path / name, [(f"{name}.log", 0, 1)], spans))
    archives = repository.session.catalog.logs.archives("clp-s", "", *times)
    assert {archive.object_key for archive in archives} == found
    assert [a.object_key for a in repository.session.catalog.logs.archives("clp-s", "late.log", None, None)] == [
        "late"
    ]


def test_backup_has_log_files(databases: Databases, tmp_path: Path) -> None:
    with worlds(databases, tmp_path, str(tmp_path / "store")) as world:
        adopt(world.repository, write_container(tmp_path / "x.clp", RANGES, [("t", 1.5, 2.5)]))
        world.repository.backup()
        other = world.empty()
        other.restore()
        assert len(list(other.units())) == len(RANGES)
        assert list(other.units()) == list(world.repository.units())
        assert world.differences(other) == []
