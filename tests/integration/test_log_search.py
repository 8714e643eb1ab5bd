"""search: cafcat finds the records that clp-s itself finds, in the archives that the catalog selects."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

import cafcat
from cafcat.errors import InvalidInput, NotInstalled
from cafcat.formats.clp import program
from cafcat.formats.clp.reader import ClpReader
from cafcat.logs.searching import SearchReport
from cafcat.model import VerifyLevel
from cafcat.progress import Progress
from cafcat.stores.local.files import LocalFile
from tests.worlds.archives.damage import flip
from tests.worlds.archives.log_archives import (
    clp_program,
    compressed_logs,
    log_lines,
    searched_by_hand,
    write_container,
)
from tests.worlds.catalog_world import Opener, sql
from tests.worlds.places import Bucket, Folder

__all__ = ["clp_program"]

DAY = 86_400_000
ZSTD_MAGIC = bytes.fromhex("28b52ffd")
START = 1_767_225_600_000
FLOAT_SECONDS = Path(__file__).parents[1] / "searched_logs" / "v0.4.1_float_seconds.clp"
LAST_MS = 9_223_372_036_854  # the largest signed 64-bit number of nanoseconds


def records(day: int, host: str, count: int = 60) -> list[dict[str, Any]]:
    """Return records of one day and host. Every third record is an error, and has other fields."""
    found = []
    for n in range(count):
        record = {"timestamp": START + day * DAY + n * 1000, "level": "INFO", "host": host, "n": n}
        found.append(record if n % 3 else record | {"level": "ERROR", "cause": {"code": n}})
    return found


@pytest.fixture
def archives(clp_program: Path, tmp_path: Path) -> list[Path]:
    """Archives of three days with logs of two hosts each, and an archive without times."""
    found = []
    for day in range(3):
        logs = {f"{host}/day{day}.log": records(day, host) for host in ("a", "b")}
        found.append(compressed_logs(clp_program, tmp_path / f"day{day}", logs))
    return [*found, compressed_logs(clp_program, tmp_path / "none", {"a/x.log": [{"level": "ERROR", "n": 1}]})]


@pytest.fixture
def repository(local: cafcat.Repository, archives: list[Path]) -> cafcat.Repository:
    assert local.adopt(archives).failed == []
    return local


def test_clp_s_gets_no_secret_of_the_environment(
    clp_program: Path, tmp_path: Path, archives: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The environment is empty of secrets for searches and for compression."""
    recorded = tmp_path / "environment"
    script = tmp_path / "clp-s"
    script.write_text(f'#!/bin/sh\nenv >> {recorded}\nexec {clp_program} "$@"\n')
    script.chmod(0o755)
    monkeypatch.setattr(program, "program_path", lambda: script)
    secrets = (
        "CAFCAT_DATABASE_URL",
        "PGPASSWORD",
        "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN",
    )
    for name in secrets:
        monkeypatch.setenv(name, "correct-horse")
    monkeypatch.setenv("TZ", "Europe/Berlin")
    assert list(program.search(str(archives[0]), "level: ERROR"))
    (tmp_path / "a.log").write_text('{"n": 1}\n')
    (tmp_path / "names").write_text("a.log\n")
    output = tmp_path / "out"
    output.mkdir()
    finished = program.compress(output, tmp_path / "names", tmp_path, timestamp_key=None, progress=Progress())
    assert finished.error is None
    lines = recorded.read_text().splitlines()
    assert lines.count("TZ=Europe/Berlin") == 2
    assert not [line for line in lines if "correct-horse" in line or line.split("=")[0] in secrets]


def search(repository: cafcat.Repository, *arguments: Any, **options: Any) -> tuple[list[bytes], SearchReport]:
    found = repository.search(*arguments, **options)
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
def test_search_finds_the_records_that_clp_s_finds(
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
    without_times = searched_by_hand(clp_program, archives[3:], "level: *")
    assert found == sorted(searched_by_hand(clp_program, archives[:3], "level: *", *arguments) + without_times)
    assert (report.archives, report.searched) == (4, searched + 1)


def float_seconds_searches() -> list[Any]:
    answers = json.loads(FLOAT_SECONDS.with_suffix(".clp.json").read_text())["searches"]
    return [pytest.param(*answer.values(), id=f"{answer['tge']}-{answer['tle']}") for answer in answers]


@pytest.mark.parametrize(("from_ms", "to_ms", "found"), float_seconds_searches())
def test_times_that_are_float_seconds_are_compared_as_the_program_does(
    local: cafcat.Repository, clp_program: Path, from_ms: int | None, to_ms: int | None, found: list[str]
) -> None:
    assert local.adopt([FLOAT_SECONDS]).failed == []
    records, report = search(local, "level: *", from_ms=from_ms, to_ms=to_ms)
    arguments = [] if from_ms is None else ["--tge", str(from_ms)]
    arguments += [] if to_ms is None else ["--tle", str(to_ms)]
    assert records == searched_by_hand(clp_program, [FLOAT_SECONDS], "level: *", *arguments)
    assert [json.loads(record)["msg"] for record in records] == found
    assert (report.searched, report.failed) == (len(found), [])


@pytest.mark.parametrize(
    ("from_ms", "to_ms", "found"),
    [
        (None, LAST_MS, 3),
        (None, LAST_MS + 1, 3),
        (None, 253_402_300_799_000, 3),
        (None, 1 << 70, 3),
        (-LAST_MS, None, 3),
        (-LAST_MS - 1, None, 3),
        (-11_676_096_000_000, 1 << 70, 3),
        (-(1 << 70), START, 2),
        (LAST_MS, None, 1),
        (LAST_MS + 1, None, 0),
        (1 << 70, None, 0),
        (None, -LAST_MS, 1),
        (None, -LAST_MS - 1, 0),
        (None, -(1 << 70), 0),
    ],
)
def test_times_beyond_the_range_of_clp_s_are_limited(
    local: cafcat.Repository,
    clp_program: Path,
    tmp_path: Path,
    from_ms: int | None,
    to_ms: int | None,
    found: int,
) -> None:
    """clp-s stores nanoseconds in 64 bits, and overflows: a search up to the year 9999 would find nothing."""
    times = [{"timestamp": time, "n": n} for n, time in enumerate((-LAST_MS, START, LAST_MS))]
    local.adopt([compressed_logs(clp_program, tmp_path, {"x": [*times, {"n": 3}]})])
    sql(local, "UPDATE chunk_times SET begin_ms = NULL, end_ms = NULL")  # so that the catalog selects all archives
    assert len(search(local, "n: *", from_ms=from_ms, to_ms=to_ms)[0]) == found
    assert len(search(local, "n: *")[0]) == 4


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


def test_names_of_log_files_are_no_patterns(local: cafcat.Repository, clp_program: Path, tmp_path: Path) -> None:
    names = ['q"d/a*b?c\\.log', 'q"d/axbyc.log', "(ü) $x: [1]/l", "(ü) $x: [2]/l"]
    logs = {name: [{"n": n}] for n, name in enumerate(names)}
    local.adopt([compressed_logs(clp_program, tmp_path, logs)])
    for n, name in enumerate(names):
        assert search(local, "n: *", name)[0] == [b'{"n":%d}' % n]
    assert len(search(local, "n: *", 'q"d')[0]) == 2


@pytest.mark.parametrize("query", ["level: (", "a: b) OR (c: d", " ", "", "a\0: b", 'a > timestamp("x")'])
def test_invalid_queries_are_refused_even_without_archives(
    local: cafcat.Repository, clp_program: Path, query: str
) -> None:
    with pytest.raises(InvalidInput, match=r"invalid query|the query is empty"):
        local.search(query, "folder")


@pytest.mark.parametrize("query", ["a: \ud800", "a: " + "x" * 131_072])
def test_a_query_that_no_program_can_get_is_invalid(repository: cafcat.Repository, query: str) -> None:
    with pytest.raises(InvalidInput, match=r"not valid UTF-8|longer than 100,000 bytes"):
        repository.search(query)


def test_query_may_begin_with_a_dash(repository: cafcat.Repository) -> None:
    assert search(repository, "--help")[0] == []


def test_archive_that_cannot_be_searched_fails_alone(
    repository: cafcat.Repository, clp_program: Path, archives: list[Path], tmp_path: Path
) -> None:
    broken = write_container(tmp_path / "broken.clp", [("x", 0, 1)])
    repository.adopt([broken])
    archives[0].unlink()
    archives[1].write_bytes(archives[1].read_bytes() + b"more")
    found, report = search(repository, "level: ERROR")
    assert found == searched_by_hand(clp_program, archives[2:], "level: ERROR")
    assert (report.archives, report.searched, len(report.failed)) == (5, 2, 3)
    missing, larger, damaged = report.failed
    assert archives[0].name in missing
    assert "bytes instead of" in larger
    assert "clp-s: " in damaged


@pytest.mark.parametrize("query", ["n > abc", 'timestamp > "2026-11-22"', " AND ".join(["n > abc"] * 100)])
def test_query_that_no_record_can_match_finds_nothing(repository: cafcat.Repository, query: str) -> None:
    """clp-s reports an error for such a query."""
    warnings: list[str] = []
    found, report = search(repository, query, "a", warn=warnings.append)
    assert (found, report.searched, report.failed) == ([], 4, [])
    assert len(warnings) == 1
    assert "cannot match any record" in warnings[0]
    assert "_filename" not in warnings[0]


def test_a_query_that_nothing_can_match_in_some_archives(
    repository: cafcat.Repository, clp_program: Path, tmp_path: Path
) -> None:
    logs = {"x.log": [{"timestamp": START, "level": 7}]}
    repository.adopt([compressed_logs(clp_program, tmp_path / "numbers", logs)])
    warnings: list[str] = []
    found, report = search(repository, "level > 6", warn=warnings.append)
    assert [json.loads(record)["level"] for record in found] == [7]
    assert (report.searched, report.failed, warnings) == (5, [], [])


def test_repeated_column_is_projected_once(repository: cafcat.Repository) -> None:
    found, report = search(repository, "n: 1", "a/day1.log", projection=["n", "level", "n"])
    assert (found, report.failed) == ([b'{"level":"INFO","n":1}'], [])


def test_unsupported_version_of_an_archive_is_reported(
    local: cafcat.Repository, clp_program: Path, tmp_path: Path
) -> None:
    """clp-s aborts at dictionaries of version 0.3.1, real ones and this false one."""
    made = compressed_logs(clp_program, tmp_path / "made", {"x.log": records(0, "a")})
    made.write_bytes(made.read_bytes()[:4] + bytes([1, 0, 3, 0]) + made.read_bytes()[8:])
    local.adopt([made])
    [message] = search(local, "n: 1")[1].failed
    assert re.search(r"installed clp-s cannot search archives of version 0\.3\.1 \(signal \d+ ended it\)", message)


def test_archives_without_live_files_are_not_searched(repository: cafcat.Repository) -> None:
    repository.rm(folders=["."])
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
    assert repository.adopt([f"s3://{bucket.bucket}/there/x.clp"]).failed == []
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    found, report = search(repository, "level: ERROR")
    assert found == searched_by_hand(clp_program, [made], "level: ERROR")
    assert report.searched == 1
    assert list(temporary.iterdir()) == []
    sql(repository, "UPDATE chunks SET crc64nvme = 'AAAAAAAAAAA='")
    assert "CRC-64/NVME" in search(repository, "level: ERROR")[1].failed[0]


def test_stopped_search_leaves_no_program(repository: cafcat.Repository) -> None:
    found = repository.search("level: *")
    reading = found.records()
    next(reading)
    reading.close()
    assert found.report.records == 1
    children = Path("/proc/self/task").glob("*/children")
    names = [Path(f"/proc/{pid}/comm").read_text() for file in children for pid in file.read_text().split()]
    assert "clp-s\n" not in names


def test_without_the_program_the_extra_is_named(local: cafcat.Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "find_spec", lambda _: None)
    with pytest.raises(NotInstalled, match=r"pip install '\.\[clp\]'"):
        local.search("a: b")


def test_copies_are_searched_if_the_object_is_missing(
    repository: cafcat.Repository, archives: list[Path], tmp_path: Path
) -> None:
    """cafcat does not copy adopted archives: the test inserts the row of a copy."""
    other = tmp_path / "copies"
    other.mkdir()
    shutil.copy(archives[3], other)
    archives[3].unlink()
    sql(repository, "INSERT INTO stores (url) VALUES (%s) ON CONFLICT DO NOTHING", other.as_uri())
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
    assert f"; searching it in {other.as_uri()} instead" in warnings[0]


def with_copy(repository: cafcat.Repository, tmp_path: Path, *logs: list[dict[str, Any]]) -> tuple[Path, Path]:
    """Ingest these log files, and return the paths of their archive and of its copy."""
    source = tmp_path / "logs"
    source.mkdir()
    for n, found in enumerate(logs):
        (source / f"{n}.jsonl").write_bytes(log_lines(found))
    repository.ingest([source], format="clp-s", timestamp_key="timestamp")
    repository.copy(to=str(tmp_path / "copies"))
    [copy] = (tmp_path / "copies").glob("*.clp")
    [archive] = (path for path in tmp_path.glob(f"*/{copy.name}") if path != copy)
    return archive, copy


def damage(archive: Path, section: str, frame: int = 0) -> None:
    """Damage the beginning of a zstd frame of a section. frame: number of the frame."""
    [entry] = (entry for entry in ClpReader(LocalFile(str(archive))).entries() if entry.path == section)
    content = archive.read_bytes()[entry.start_byte : entry.end_byte]
    starts = [match.start() for match in re.finditer(re.escape(ZSTD_MAGIC), content)]
    flip(archive, *range(entry.start_byte + starts[frame], entry.start_byte + starts[frame] + 4))


@pytest.mark.parametrize("section", ["/schema_tree", "/table_metadata", "/0"])
def test_copy_of_a_damaged_archive_is_searched(
    local: cafcat.Repository, clp_program: Path, tmp_path: Path, section: str
) -> None:
    archive, copy = with_copy(local, tmp_path, records(0, "a"))
    expected = searched_by_hand(clp_program, [copy], "level: ERROR")
    damage(archive, section)
    warnings: list[str] = []
    found, report = search(local, "level: ERROR", warn=warnings.append)
    assert (found, report.records, report.failed) == (expected, 20, [])
    [warning] = warnings
    assert "the archive is damaged: its CRC-64/NVME" in warning
    assert warning.endswith(f"; searching it in {copy.parent.as_uri()} instead")
    damage(copy, section)
    [message] = search(local, "level: ERROR")[1].failed
    assert "the archive is damaged" in message
    assert str(copy) in message


def test_damage_after_the_first_records_is_an_error(
    local: cafcat.Repository, clp_program: Path, tmp_path: Path
) -> None:
    """The records have two shapes, each with its own table. The second table is damaged."""
    one = [{"timestamp": START} | {f"one{column}": n * 1_000_003 for column in range(8)} for n in range(20_000)]
    two = [{"timestamp": START} | {f"two{column}": n * 1_000_003 for column in range(8)} for n in range(20_000)]
    archive, copy = with_copy(local, tmp_path, one, two)
    expected = searched_by_hand(clp_program, [copy], "timestamp: *")
    few = "one0 < 4000000000 OR two0 < 4000000000"
    expected_few = searched_by_hand(clp_program, [copy], few)
    damage(archive, "/0", -1)
    assert len(expected_few) == 8000
    assert search(local, few)[0] == expected_few, "records before the damage were returned"
    found, report = search(local, "timestamp: *")
    assert set(found) < set(expected), "or clp-s aborted in the middle of a record"
    assert (report.records, report.searched) == (len(found), 0)
    [message] = report.failed
    assert "the archive is damaged" in message
    assert message.endswith(f"; {len(found):,} records of it were found before the failure")


def test_a_query_that_clp_s_fails_at_is_not_tried_in_copies(
    local: cafcat.Repository, clp_program: Path, tmp_path: Path
) -> None:
    with_copy(local, tmp_path, records(0, "a"))
    warnings: list[str] = []
    report = search(local, "n: 1", projection=["*"], warn=warnings.append)[1]
    assert (len(report.failed), warnings) == (1, [])


def test_copy_of_an_archive_with_a_damaged_verdict_is_searched(
    local: cafcat.Repository, clp_program: Path, tmp_path: Path
) -> None:
    """clp-s does not detect changed bytes of records, and finds wrong records."""
    archive, copy = with_copy(local, tmp_path, records(0, "a"))
    right = searched_by_hand(clp_program, [copy], "level: ERROR")
    [entry] = (entry for entry in ClpReader(LocalFile(str(archive))).entries() if entry.path == "/0")
    middle = (entry.start_byte + entry.end_byte) // 2
    flip(archive, *range(middle, middle + 20), bits=0xFF)
    wrong = searched_by_hand(clp_program, [archive], "level: ERROR")
    assert wrong != right
    warnings: list[str] = []
    assert search(local, "level: ERROR", warn=warnings.append)[0] == wrong
    local.verify(level=VerifyLevel.DATA)
    assert search(local, "level: ERROR", warn=warnings.append)[0] == right
    copy.unlink()
    assert search(local, "level: ERROR", warn=warnings.append)[0] == wrong
    sql(local, "UPDATE chunk_copies SET state = 'abandoned'")
    found, report = search(local, "level: ERROR", warn=warnings.append)
    assert (found, report.failed) == (wrong, [])
    known, again, gone, alone = (warning.partition(": ")[2] for warning in warnings)
    assert known == again == f"verify found it damaged; searching it in {copy.parent.as_uri()}"
    assert gone.endswith(f"; searching it in {archive.parent.as_uri()} instead")
    assert alone == "verify found it damaged; its records may be wrong"
