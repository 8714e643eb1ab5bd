"""search: what clp-s finds in all archives by hand, cafcat finds in those that the catalog chooses."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import cafcat
from cafcat.errors import InvalidInput, NotInstalled
from cafcat.formats.clp import program
from cafcat.resolve.searching import SearchReport
from tests.catalog_world import Opener, sql
from tests.log_archives import clp_program, compressed_logs, searched_by_hand, write_container
from tests.places import Bucket, Folder

__all__ = ["clp_program"]

DAY = 86_400_000
START = 1_767_225_600_000


def records(day: int, host: str, count: int = 60) -> list[dict[str, Any]]:
    """Of one day and host; every third is an error, and of another shape."""
    found = []
    for n in range(count):
        record = {"timestamp": START + day * DAY + n * 1000, "level": "INFO", "host": host, "n": n}
        found.append(record if n % 3 else record | {"level": "ERROR", "cause": {"code": n}})
    return found


@pytest.fixture
def archives(clp_program: Path, tmp_path: Path) -> list[Path]:
    """Three days, each with logs of two hosts, and one without times."""
    found = []
    for day in range(3):
        logs = {f"{host}/day{day}.log": records(day, host) for host in ("a", "b")}
        found.append(compressed_logs(clp_program, tmp_path / f"day{day}", logs))
    return [*found, compressed_logs(clp_program, tmp_path / "none", {"a/x.log": [{"level": "ERROR", "n": 1}]})]


@pytest.fixture
def repository(local: cafcat.Repository, archives: list[Path]) -> cafcat.Repository:
    assert local.custody.adopt(archives).failed == []
    return local


def search(repository: cafcat.Repository, *arguments: Any, **options: Any) -> tuple[list[bytes], SearchReport]:
    found = repository.custody.search(*arguments, **options)
    return sorted(record for record, _ in found.records()), found.report


@pytest.mark.parametrize(
    ("query", "options"),
    [
        ("level: ERROR", {}),
        ("level: error", {"ignore_case": True}),
        ("cause.code >= 30 AND NOT host: a", {}),
        ('host: "a" OR n: 1', {"projection": ["n", "level"]}),
        ("level: nothing", {}),
    ],
)
def test_it_finds_what_the_program_finds_by_hand(
    repository: cafcat.Repository,
    clp_program: Path,
    archives: list[Path],
    query: str,
    options: dict[str, Any],
) -> None:
    found, report = search(repository, query, **options)
    arguments = ["-i"] if "ignore_case" in options else []
    arguments += ["--projection", *options["projection"]] if "projection" in options else []
    assert found == searched_by_hand(clp_program, archives, query, *arguments)
    assert (report.archives, report.searched, report.records, report.failed) == (4, 4, len(found), [])


@pytest.mark.parametrize(
    ("from_ms", "to_ms", "searched"),
    [
        (START + DAY, START + 2 * DAY - 1, 1),
        (START + DAY + 59_000, START + DAY + 59_000, 1),
        (START + DAY + 59_001, START + 2 * DAY - 1, 0),
        (START + DAY + 30_000, None, 2),
        (None, START, 1),
    ],
)
def test_the_catalog_leaves_out_archives_of_other_times(
    repository: cafcat.Repository,
    clp_program: Path,
    archives: list[Path],
    from_ms: int | None,
    to_ms: int | None,
    searched: int,
) -> None:
    found, report = search(repository, "level: *", from_ms=from_ms, to_ms=to_ms)
    arguments = [] if from_ms is None else ["--tge", str(from_ms)]
    arguments += [] if to_ms is None else ["--tle", str(to_ms)]
    assert found == searched_by_hand(clp_program, archives[:3], "level: *", *arguments)
    assert (report.archives, report.searched) == (4, searched)


def test_only_log_files_below_a_folder(repository: cafcat.Repository) -> None:
    found, report = search(repository, "level: ERROR OR n: 4", "b")
    expected = [r for day in range(3) for r in records(day, "b") if r["level"] == "ERROR" or r["n"] == 4]
    key = json.dumps
    assert sorted(map(json.loads, found), key=key) == sorted(expected, key=key)
    assert report.searched == 3
    found, report = search(repository, "level: *", "a/day1.log", to_ms=START + DAY + 9_000)
    assert [json.loads(record)["n"] for record in found] == list(range(10))
    assert report.searched == 1
    assert search(repository, "level: *", "a/day")[1].searched == 0


def test_names_of_log_files_are_taken_as_they_are(
    local: cafcat.Repository, clp_program: Path, tmp_path: Path
) -> None:
    names = ['q"d/a*b?c\\.log', 'q"d/axbyc.log', "(ü) $x: [1]/l", "(ü) $x: [2]/l"]
    logs = {name: [{"n": n}] for n, name in enumerate(names)}
    local.custody.adopt([compressed_logs(clp_program, tmp_path, logs)])
    for n, name in enumerate(names):
        assert search(local, "n: *", name)[0] == [b'{"n":%d}' % n]
    assert len(search(local, "n: *", 'q"d')[0]) == 2


@pytest.mark.parametrize("query", ["level: (", "a: b) OR (c: d", " ", "", "a\0: b"])
def test_what_is_no_query_is_refused_whatever_there_is_to_search(
    local: cafcat.Repository, clp_program: Path, query: str
) -> None:
    with pytest.raises(InvalidInput, match=r"not a query|nothing to search for"):
        local.custody.search(query, "folder")


def test_what_begins_with_a_dash_is_a_query(repository: cafcat.Repository) -> None:
    assert search(repository, "--help")[0] == []


def test_an_archive_that_cannot_be_searched_costs_only_itself(
    repository: cafcat.Repository, clp_program: Path, archives: list[Path], tmp_path: Path
) -> None:
    broken = write_container(tmp_path / "broken.clp", [("x", 0, 1)])
    repository.custody.adopt([broken])
    archives[0].unlink()
    archives[1].write_bytes(archives[1].read_bytes() + b"more")
    found, report = search(repository, "level: ERROR")
    assert found == searched_by_hand(clp_program, archives[2:], "level: ERROR")
    assert (report.archives, report.searched, len(report.failed)) == (5, 2, 3)
    missing, larger, damaged = report.failed
    assert str(archives[0]) in missing
    assert "bytes, the catalog says" in larger
    assert "clp-s: " in damaged


def test_archives_that_nobody_points_to_are_not_searched(repository: cafcat.Repository) -> None:
    repository.custody.remove(folders=["."])
    found, report = search(repository, "level: *")
    assert (found, report.archives, report.searched) == ([], 0, 0)


def test_an_archive_in_a_bucket_is_fetched_and_leaves_nothing(
    open_at: Opener,
    bucket: Bucket,
    clp_program: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = compressed_logs(clp_program, tmp_path / "made", {"x.log": records(0, "a")})
    bucket.client.put_object(Bucket=bucket.bucket, Key="there/x.clp", Body=made.read_bytes())
    repository = open_at(Folder(tmp_path / "own"))
    assert repository.custody.adopt([f"s3://{bucket.bucket}/there/x.clp"]).failed == []
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    found, report = search(repository, "level: ERROR")
    assert found == searched_by_hand(clp_program, [made], "level: ERROR")
    assert report.searched == 1
    assert list(temporary.iterdir()) == []
    sql(repository, "UPDATE chunks SET crc64nvme = 'AAAAAAAAAAA='")
    assert "CRC-64/NVME" in search(repository, "level: ERROR")[1].failed[0]


def test_who_stops_half_way_leaves_no_program_behind(repository: cafcat.Repository) -> None:
    found = repository.custody.search("level: *")
    reading = found.records()
    next(reading)
    reading.close()
    assert found.report.records == 1
    children = Path("/proc/self/task").glob("*/children")
    names = [Path(f"/proc/{pid}/comm").read_text() for file in children for pid in file.read_text().split()]
    assert "clp-s\n" not in names


def test_without_the_program_the_extra_is_named(local: cafcat.Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "find_spec", lambda _: None)
    with pytest.raises(NotInstalled, match=r"pip install 'cafcat\[clp\]'"):
        local.custody.search("a: b")


def test_copies_are_searched_where_the_first_object_is_gone(
    repository: cafcat.Repository, archives: list[Path], tmp_path: Path
) -> None:
    """Archives of others have no copies; a row makes one."""
    other = tmp_path / "copies"
    other.mkdir()
    shutil.copy(archives[3], other)
    archives[3].unlink()
    sql(
        repository,
        "INSERT INTO chunk_copies (chunk_id, state, store, object_key, committed_at) "
        "SELECT id, 'committed', %s, object_key, now() FROM chunks WHERE object_key = %s",
        other.as_uri(),
        archives[3].name,
    )
    warnings: list[str] = []
    found, report = search(repository, "n: 1", "a/x.log", warn=warnings.append)
    assert (found, report.failed) == ([b'{"level":"ERROR","n":1}'], [])
    assert len(warnings) == 1
    assert "a copy is searched" in warnings[0]
