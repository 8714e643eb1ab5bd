"""Output of the command, by the functions that format it, without a catalog."""

import io
import json
import re
import sys
import time
from uuid import UUID

import pytest

from cafcat.cli.call import Call
from cafcat.cli.errors import describe
from cafcat.cli.output import location_document, one_line, printable, timestamp
from cafcat.cli.progress import LISTED_PROBLEMS, ShownProgress
from cafcat.errors import Conflict, Corrupt, InvalidInput, Locked, NotFound
from cafcat.model import FileProblem, Location, ProblemKind
from tests.worlds.waiting import PATIENCE_SECONDS


def call(**options: bool) -> Call:
    made = Call()
    made.accept(options)
    return made


@pytest.mark.parametrize(
    ("nanoseconds", "text"),
    [
        (0, "1970-01-01T00:00:00.000000Z"),
        (1_795_255_200_123_456_999, "2026-11-21T10:00:00.123456Z"),
        (-1, "1969-12-31T23:59:59.999999Z"),
        (None, None),
        (10**30, None),
    ],
)
def test_times_are_rfc_3339_in_utc(nanoseconds: int | None, text: str | None) -> None:
    assert timestamp(nanoseconds) == text


def test_names_cannot_move_the_cursor() -> None:
    assert printable("a\nb\x1b[31m\u202ec é 日本") == r"a\nb\x1b[31m\u202ec é 日本"
    assert one_line("ERROR:  syntax\nLINE 1: x\n        ^\n") == "ERROR:  syntax LINE 1: x ^"


def test_the_keys_of_a_file() -> None:
    uuid = UUID("12345678-1234-5678-1234-567812345678")
    location = Location("a/b", 10, 30, 7, 0, uuid, "file:///s", "k.caf")
    assert location_document(location, "/s/k.caf") == {
        "path": "a/b",
        "size_bytes": 20,
        "start_byte": 10,
        "end_byte": 30,
        "crc32c": 7,
        "modified_at": "1970-01-01T00:00:00.000000Z",
        "chunk": "12345678-1234-5678-1234-567812345678",
        "object": "/s/k.caf",
    }


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (NotFound("x"), 4),
        (Corrupt("x"), 5),
        (InvalidInput("x"), 2),
        (Locked("x"), 11),
        (Conflict("x"), 1),
        (OSError(28, "No space left on device"), 1),
        (ValueError("x"), 1),
    ],
)
def test_exit_codes(error: Exception, code: int) -> None:
    assert describe(error).code == code


def test_an_error_in_json_has_all_its_keys(capsys: pytest.CaptureFixture[str]) -> None:
    error = Corrupt("bad checksum", path="a\nb", chunk="c", byte=7, hint="restore it")
    assert call(json=True).report(error) == 5
    assert json.loads(capsys.readouterr().err) == {
        "error": {
            "kind": "corrupt",
            "message": "bad checksum",
            "path": "a\nb",
            "chunk": "c",
            "byte": 7,
            "hint": "restore it",
        }
    }
    assert call().report(error) == 5
    assert capsys.readouterr().err == "cafcat: bad checksum (path 'a\\nb', chunk c, from byte 7); restore it\n"


def test_a_message_names_a_place_once() -> None:
    assert str(NotFound("no object x.caf in /store", chunk="/store/x.caf")) == "no object x.caf in /store"
    assert str(NotFound("/a/b: Not a directory", path="/a/b")) == "/a/b: Not a directory"
    assert str(NotFound("a file is missing", path="a")) == "a file is missing (path 'a')"
    assert str(Corrupt("x is damaged", chunk="/store/x", byte=3)) == "x is damaged (object /store/x, byte 3)"


def test_message_of_a_bug_names_the_debug_option(capsys: pytest.CaptureFixture[str]) -> None:
    call().report(ValueError("x\ny"))
    line = capsys.readouterr().err
    assert (
        line == "cafcat: unexpected ValueError: x y; this is a bug of cafcat; run again with --debug to see where\n"
    )
    call(debug=True).report(ValueError("x"))
    assert "ValueError: x\n" in capsys.readouterr().err


def test_a_value_is_one_line_whatever_is_in_it(capsys: pytest.CaptureFixture[str]) -> None:
    call().output.fields({"path": "a\nobject  /etc/passwd", "size": 7, "other": "é\u202e"})
    assert capsys.readouterr().out == "path   a\\nobject  /etc/passwd\nsize   7\nother  é\u202e\n"


def test_a_status_line_comes_by_itself(capsys: pytest.CaptureFixture[str]) -> None:
    with ShownProgress(call(), status_seconds=0.01) as progress:
        progress.begin("ingest", files=10, size_bytes=4000)
        progress.advance(5, 2000)
        lines = _wait_for(capsys, "5 of 10 files")
    assert "cafcat: ingest: " in lines
    assert "2.0 kB of 4.0 kB" in lines
    assert " s left" in lines


def test_rate_is_that_of_the_current_stage(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: seconds[0])
    progress = ShownProgress(call(quiet=True))
    progress.begin("read")
    seconds[0] = 100.0
    progress.begin("verify", files=30)
    seconds[0] = 110.0
    progress.advance(20, 2000)
    progress.show_status()
    assert capsys.readouterr().err == "cafcat: verify: 20 of 30 files, 2.0 kB, 2 files/s, 200 B/s, 5 s left\n"


def test_a_stage_without_bytes_shows_none(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: seconds[0])
    progress = ShownProgress(call(quiet=True))
    progress.begin("copy rows", files=30)
    seconds[0] = 10.0
    progress.advance(20, 0)
    progress.show_status()
    assert capsys.readouterr().err == "cafcat: copy rows: 20 of 30 files, 2 files/s, 5 s left\n"


class Terminal(io.TextIOWrapper):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("width", "shown"), [(100, ", 2000 files/s, 2.0 MB/s"), (40, "")])
@pytest.mark.parametrize("total", [None, 30_000_000])
def test_the_bar_fits_into_a_narrow_terminal(
    monkeypatch: pytest.MonkeyPatch, width: int, shown: str, total: int | None
) -> None:
    seconds = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: seconds[0])
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", Terminal(screen := io.BytesIO()))
    with ShownProgress(call()) as progress:
        progress.begin("ingest", size_bytes=total)
        seconds[0] = 10.0
        progress.advance(20_000, 20_000_000)
    sys.stderr.flush()
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", screen.getvalue().decode())
    lines = [line.strip() for line in re.split("[\r\n]", text)]
    line = next(line for line in lines if "files" in line)
    assert f"ingest: 20000 files, 20.0 MB{shown} " in line
    assert ("━" in line) == (width == 100 and total is not None)
    assert re.search(r"[-\d]:[-\d]{2}:[-\d]{2}$", line)
    assert max(map(len, lines)) <= width


def test_a_status_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    with ShownProgress(call(json=True), status_seconds=0.01) as progress:
        progress.begin("extract", files=10)
        progress.advance(5, 2000)
        line = next(x for x in _wait_for(capsys, '"files": 5').splitlines() if '"files": 5' in x)
    status = json.loads(line)["progress"]
    assert status.pop("seconds") >= 0
    assert status == {
        "verb": "extract",
        "files": 5,
        "bytes": 2000,
        "files_expected": 10,
        "bytes_expected": None,
    }


def _wait_for(capsys: pytest.CaptureFixture[str], text: str) -> str:
    seen, deadline = "", time.monotonic() + PATIENCE_SECONDS
    while text not in seen:
        assert time.monotonic() < deadline, seen
        time.sleep(0.01)
        seen += capsys.readouterr().err
    return seen


def test_quiet_shows_no_status(capsys: pytest.CaptureFixture[str]) -> None:
    with ShownProgress(call(quiet=True), status_seconds=0.001) as progress:
        progress.begin("ingest")
        time.sleep(0.05)
        progress.warn("leading / removed")
    assert capsys.readouterr().err == ""


def _report_failures(progress: ShownProgress, count: int) -> None:
    with progress:
        for number in range(count):
            progress.problem(FileProblem(f"f{number}", ProblemKind.UNREADABLE, "permission denied"))
            progress.problem(FileProblem(f"l{number}", ProblemKind.SYMLINK, "a symbolic link"))


def test_a_flood_of_failures_is_cut(capsys: pytest.CaptureFixture[str]) -> None:
    _report_failures(ShownProgress(call()), LISTED_PROBLEMS + 5)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "cafcat: f0: permission denied"
    assert lines[-1] == "cafcat: 5 more failures are not listed; -v lists all"
    assert len(lines) == LISTED_PROBLEMS + 1


@pytest.mark.parametrize("option", ["verbose", "json"])
def test_all_problems_are_listed_on_request(capsys: pytest.CaptureFixture[str], option: str) -> None:
    _report_failures(ShownProgress(call(**{option: True})), LISTED_PROBLEMS + 5)
    printed = capsys.readouterr()
    lines = (printed.out if option == "json" else printed.err).splitlines()
    assert len(lines) == 2 * (LISTED_PROBLEMS + 5)
    if option == "json":
        assert json.loads(lines[1]) == {"problem": {"path": "l0", "kind": "symlink", "message": "a symbolic link"}}
