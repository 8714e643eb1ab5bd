"""Logs in archives, with the real command."""

import shutil
import signal
from dataclasses import fields
from pathlib import Path

from cafcat.logs.searching import SearchReport
from tests.e2e.conftest import Cafcat, Result, documented_keys
from tests.worlds.archives.damage import flip
from tests.worlds.archives.log_archives import clp_program, compressed_logs, log_lines
from tests.worlds.waiting import PATIENCE_SECONDS, wait_until

__all__ = ["clp_program"]

LOGS = {
    f"day{day}/app.log": [
        {"timestamp": f"2026-01-0{day}T00:00:0{n}.000Z", "level": "ERROR" if n % 2 else "INFO", "n": n}
        for n in range(4)
    ]
    for day in (1, 2)
}


def adopt(cafcat: Cafcat, clp_program: Path) -> None:
    for name, records in LOGS.items():
        cafcat("adopt", compressed_logs(clp_program, cafcat.folder / name[:4], {name: records}))


def test_search_prints_unchanged_records(cafcat: Cafcat, clp_program: Path) -> None:
    adopt(cafcat, clp_program)
    errors = [record for records in LOGS.values() for record in records if record["level"] == "ERROR"]
    found = cafcat("search", "level: ERROR", "-v")
    assert found.documents == errors
    assert found.err == "cafcat: searched 2 of 2 archives: 4 records\n"
    assert cafcat("search", "level: error", "-i", "--count").text == "4\n"
    assert cafcat("search", "level: ERROR", "--projection", "n").lines == ['{"n":1}', '{"n":3}'] * 2
    found = cafcat("search", "level: *", "--from", "2026-01-02", "--to", "2026-01-02T00:00:01", "-v")
    assert found.documents == LOGS["day2/app.log"][:2]
    assert "searched 1 of 2 archives" in found.err
    assert cafcat("search", "level: *", "day1").documents == LOGS["day1/app.log"]


def test_a_query_with_an_equals_sign_is_explained(cafcat: Cafcat, clp_program: Path) -> None:
    adopt(cafcat, clp_program)
    found = cafcat("search", "level=ERROR")
    assert (found.text, found.code) == ("", 0)
    assert "a field is searched with a colon: level: ERROR" in found.err
    assert "colon" not in cafcat("search", "level: NONE").err


def test_search_in_json(cafcat: Cafcat, clp_program: Path) -> None:
    adopt(cafcat, clp_program)
    *found, summary = cafcat("search", "n: 1", "--json").documents
    chunks = [document["uuid"] for document in cafcat("chunks", "ls", "--json").documents]
    assert [(one["record"]["n"], one["chunk"]) for one in found] == [(1, chunk) for chunk in chunks]
    assert summary == {"summary": {"archives": 2, "searched": 2, "records": 2, "failed": []}}
    assert {field.name for field in fields(SearchReport)} <= documented_keys("search")


def test_errors_of_search_are_one_line(cafcat: Cafcat, clp_program: Path) -> None:
    adopt(cafcat, clp_program)
    result = cafcat("search", "level: (", code=2)
    assert result.err.startswith("cafcat: invalid query: ")
    assert len(result.err.splitlines()) == 1
    assert cafcat("search", "a: b", "--from", "2026-02-01", "--to", "2026-01-01", code=2).out == b""
    [archive] = (cafcat.folder / "day1" / "out").iterdir()
    archive.unlink()
    result = cafcat("search", "n: 1", code=3)
    assert len(result.lines) == 1
    assert archive.name in result.err


def test_ctrl_c_ends_the_program_too(cafcat: Cafcat, clp_program: Path) -> None:
    many = [{"n": n, "text": "x" * 200} for n in range(20_000)]
    cafcat("adopt", compressed_logs(clp_program, cafcat.folder / "many", {"many.log": many}))
    process = cafcat.popen("search", "n: *")
    try:
        assert process.stdout is not None
        process.stdout.readline()  # from now on it waits for a reader
        [child] = children(process.pid)
        process.send_signal(signal.SIGINT)
        process.stdout.read()
        assert process.wait(PATIENCE_SECONDS) == 130
        wait_until(lambda: not Path(f"/proc/{child}").exists())
    finally:
        process.kill()
        process.communicate()


def children(pid: int) -> list[int]:
    files = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for file in files for child in file.read_text().split()]


def write_logs(cafcat: Cafcat) -> None:
    for name, records in LOGS.items():
        path = cafcat.folder / "logs" / name
        path.parent.mkdir(parents=True)
        path.write_bytes(log_lines(records))


def ingest(cafcat: Cafcat, *options: str, code: int = 0) -> Result:
    return cafcat(
        "ingest",
        "--format",
        "clp-s",
        "--timestamp-key",
        "timestamp",
        "--prefix",
        "app",
        "logs",
        *options,
        code=code,
    )


def test_ingest_makes_archives_that_search_finds(cafcat: Cafcat, clp_program: Path) -> None:
    write_logs(cafcat)
    dry = ingest(cafcat, "--dry-run").lines
    assert [line[0] for line in dry[:2]] == ["+", "+"]
    assert dry[2].startswith("would add 2 files")
    assert ingest(cafcat).lines[0].startswith("added 2 files, replaced 0, unchanged 0")
    assert ingest(cafcat).lines[0].startswith("added 0 files, replaced 0, unchanged 2")
    found = cafcat("search", "level: *", "app/logs/day1", "--to", "2026-01-01T00:00:01", "-v")
    assert found.documents == LOGS["day1/app.log"][:2]
    assert cafcat("search", "level: *", "--from", "2026-02-01", "--count").text == "0\n"
    assert [unit["log_file"] for unit in cafcat("units", "--json").documents] == [
        f"app/logs/{name}" for name in LOGS
    ]
    assert "ok" in cafcat("verify", "--level", "data").text


def test_usual_timestamp_keys_are_found(cafcat: Cafcat, clp_program: Path) -> None:
    """A later record of one log file has a time that clp-s cannot read. One has no time at all, one no record."""
    day = "2026-11-21T10:00:00Z"
    logs = {
        "a/es": [{"@timestamp": day, "n": 1}],
        "a/mongo": [{"t": {"$date": day}, "n": 2}],
        "a/es2": [{"@timestamp": "2026-11-20T00:00:00Z", "n": 3}],
        "late": [*[{"ts": day, "n": 4}] * 101, {"ts": "soon", "n": 5}],
        "none": [{"n": 6}],
        "empty": [],
    }
    for name, records in logs.items():
        path = cafcat.folder / "logs" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(log_lines(records))
    result = cafcat("ingest", "--format", "clp-s", "logs")
    assert result.lines[0].startswith("added 6 files")
    assert "is in 2 log files (logs/late, logs/none)" in result.err
    assert "--timestamp-key" in result.err
    units = cafcat("units", "--json").documents
    timed = {unit["log_file"] for unit in units if unit["begin_at"]}
    assert timed - {"logs/empty"} == {"logs/a/es", "logs/a/es2", "logs/a/mongo"}
    found = cafcat("search", "n: *", "logs/a", "--from", "2026-11-21")
    assert sorted(record["n"] for record in found.documents) == [1, 2]
    assert found.err == ""
    found = cafcat("search", "n > 4", "--from", "2026-11-21")
    assert sorted(record["n"] for record in found.documents) == [5, 6]
    assert "2 archives without times: all records were searched" in found.err
    listed = cafcat("query", "logs", "logs", "2026-11-23", "2026-11-24", "--json").documents
    assert {row["log_file"] for row in listed} - {"logs/empty"} == {"logs/late", "logs/none"}
    assert "added 0 files" in cafcat("ingest", "--format", "clp-s", "logs").text


def test_a_mistyped_timestamp_key_is_reported(cafcat: Cafcat, clp_program: Path) -> None:
    """The warnings name the way to archives with times, and the way works."""
    write_logs(cafcat)
    ingest_logs = ("ingest", "--format", "clp-s", "logs", "--timestamp-key")
    warning = cafcat(*ingest_logs, "typo").err
    assert "the timestamp key typo is not in 2 log files (logs/day1/app.log, logs/day2/app.log)" in warning
    searched = ("search", "n: 1", "--from", "2026-01-02", "--count")
    found = cafcat(*searched)
    assert found.text == "2\n"
    for message in (warning, found.err):
        assert "`cafcat rm -r UUID.clp` for their archive (`cafcat units` shows the UUID)" in message
    [archive] = {unit["chunk"] for unit in cafcat("units", "--json").documents}
    cafcat("rm", "-r", f"{archive}.clp", "--yes")
    assert cafcat(*ingest_logs, "timestamp").err == ""
    assert cafcat(*searched).text == "1\n"


def test_names_of_log_files_lead_to_units_and_search(cafcat: Cafcat, clp_program: Path) -> None:
    assert "no archive of logs" in cafcat("search", "n: 1").err
    write_logs(cafcat)
    ingest(cafcat)
    name = "app/logs/day1/app.log"
    for verb in (["ls"], ["find"], ["get"], ["cat"], ["stat"], ["locate"], ["ls", "-R"]):
        for typed in (name, "app/logs"):
            error = cafcat(*verb, typed, code=4).err
            assert f"`cafcat units {typed}`, or `cafcat search QUERY {typed}`" in error
    for verb in (["get", "-o", "."], ["cat"], ["stat"]):
        error = cafcat(*verb, name, "nowhere", code=3).err
        assert error.count("cafcat search QUERY") == 1
        assert "the catalog has no such file (path 'nowhere')" in error
    for verb in (["units"], ["search", "n: 1"]):
        assert "no archive of logs has a log file of this name" in cafcat(*verb, "nowhere", code=4).err
    assert f"`cafcat units {name}`" in cafcat("rm", name, code=4).err


def test_the_query_of_logs_takes_a_folder_of_logs(cafcat: Cafcat, clp_program: Path) -> None:
    adopt(cafcat, clp_program)
    in_time, before = ("2026-01-01", "2026-01-03"), ("2025-01-01", "2025-01-02")
    assert len(cafcat("query", "logs", "day1", *in_time, "--json").documents) == 1
    assert cafcat("query", "logs", "day1", *before, "--json").documents == []
    refused = cafcat("query", "logs", "day1/app.log", *in_time, code=4).err
    assert "this is a file, not a folder (path 'day1/app.log'); `cafcat units day1/app.log` shows" in refused
    assert "no archive of logs has a log file of this name" in cafcat("query", "logs", "x", *in_time, code=4).err


def test_undelete_names_the_other_archive(cafcat: Cafcat, clp_program: Path) -> None:
    write_logs(cafcat)
    ingest(cafcat)
    [old] = (document["uuid"] for document in cafcat("chunks", "ls", "--json").documents)
    cafcat("rm", "-r", f"{old}.clp", "--yes")
    ingest(cafcat)
    result = cafcat("undelete", "-r", f"{old}.clp", code=3)
    assert result.text == ("brought back 0 files (0 B); left alone 7 whose log files are in another archive now\n")
    [new] = {document["uuid"] for document in cafcat("chunks", "ls", "--json").documents} - {old}
    assert f"cafcat: {old}.clp/0: archive {new} has the records of the log file 'app/logs/day1/app.log' now" in (
        result.err
    )
    assert cafcat("search", "level: *", "--count").text == "8\n"
    listed = cafcat("units").lines
    assert [line.endswith("  removed") for line in listed] == [old in line for line in listed]


def test_repair_reports_remaining_damage(cafcat: Cafcat, clp_program: Path) -> None:
    write_logs(cafcat)
    ingest(cafcat)
    cafcat("copy", "--all", "--to", "./copies")
    [chunk] = (document["uuid"] for document in cafcat("chunks", "ls", "--json").documents)
    [copy] = (cafcat.folder / "copies").glob("*.clp")
    [archive] = (path for path in cafcat.folder.glob(f"**/{copy.name}") if path != copy)
    flip(archive, archive.stat().st_size - 1)
    cafcat("verify", "--level", "data", code=5)
    for options in ([], ["--yes"]):
        result = cafcat("repair", "--from-copy", *options, code=5)
        assert result.lines == ["nothing that can be repaired", "1 archive of logs stays damaged"]
        remedy = "which cannot be repaired: replace its file by a copy of the chunk,"
        assert f"warning: chunk {chunk} is an archive of logs, {remedy}" in result.err
    assert cafcat("repair", "--from-copy", "--json", code=5).document["summary"]["logs_damaged"] == 1
    archive.unlink()
    shutil.copy(copy, archive)
    cafcat("verify", "--level", "data")
    assert cafcat("repair", "--from-copy").text.startswith("nothing to repair: no live file is known")


def test_repair_of_an_adopted_archive_does_not_ask_for_its_log_files(cafcat: Cafcat, clp_program: Path) -> None:
    adopt(cafcat, clp_program)
    [archive] = (cafcat.folder / "day1" / "out").iterdir()
    flip(archive, archive.stat().st_size - 1)
    cafcat("verify", "--level", "data", code=5)
    result = cafcat("repair", "--from-copy", code=5)
    assert "replace its file by an undamaged one" in result.err
    assert "and ingest its log files, if you have them" in result.err


def test_ingest_names_refused_log_files(cafcat: Cafcat, clp_program: Path) -> None:
    write_logs(cafcat)
    (cafcat.folder / "logs" / "note.txt").write_text("no JSON\n")
    (cafcat.folder / "logs" / "cut.jsonl").write_text('{"a": 1}\n{"b"')
    result = ingest(cafcat, code=3)
    assert "app/logs/note.txt" in result.err
    assert "clp-s: Truncated JSON" in result.err
    assert result.lines[0].startswith("added 3 files")
    assert "a timestamp key is for clp-s" in cafcat("ingest", "--timestamp-key", "x", "logs", code=2).err


def test_ctrl_c_twice_ends_clp_s_and_leaves_nothing(cafcat: Cafcat, clp_program: Path) -> None:
    (cafcat.folder / "logs").mkdir()
    (cafcat.folder / "logs" / "large.jsonl").write_bytes(
        b"".join(b'{"n": %d, "text": "%032x and more"}\n' % (n, n * n) for n in range(600_000))
    )
    process = cafcat.popen("ingest", "--format", "clp-s", "logs")
    try:
        wait_until(lambda: children(process.pid))
        [child] = children(process.pid)
        for _ in range(2):
            process.send_signal(signal.SIGINT)
            assert process.stderr is not None
            process.stderr.readline()
        assert process.wait(PATIENCE_SECONDS) == 130
        assert not Path(f"/proc/{child}").exists()
    finally:
        process.kill()
        process.communicate()
    assert cafcat("chunks", "ls").text == ""
    assert not list((cafcat.folder / "store").glob("*.clp*"))
