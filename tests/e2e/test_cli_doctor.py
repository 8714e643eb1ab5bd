"""`cafcat doctor`: what it prints, and its exit codes."""

import re
from pathlib import Path

import pytest

from tests.e2e.conftest import SECRET, Cafcat

NOBODY = f"postgresql://user:{SECRET}@127.0.0.1:1/x"


def test_warnings_alone_are_no_failure(tmp_path: Path) -> None:
    """There is no database yet, which is only a warning."""
    result = Cafcat(tmp_path, None)("doctor")
    lines = result.lines
    assert any(line.startswith("ok") and " python " in line for line in lines)
    position = next(n for n, line in enumerate(lines) if line.startswith("warning") and " database " in line)
    assert lines[position + 1].strip().startswith("-> ")
    assert lines[-2].startswith("not checked, because they need a database: schema, ")
    assert lines[-1].startswith("0 errors, ")


def test_an_error_is_exit_code_1(tmp_path: Path) -> None:
    result = Cafcat(tmp_path, NOBODY)("doctor", "-q", code=1)
    assert not any(line.startswith(("ok", "not checked")) for line in result.lines)
    assert any(line.startswith("error    database") for line in result.lines)
    assert SECRET not in result.text + result.err
    assert re.match(r"1 error, \d+ warnings?$", Cafcat(tmp_path, NOBODY)("doctor", code=1).lines[-1])


def test_the_json_document(tmp_path: Path) -> None:
    document = Cafcat(tmp_path, NOBODY)("doctor", "--json", code=1).document
    assert document["healthy"] is False
    [error] = [check for check in document["checks"] if check["level"] == "error"]
    assert (error["check"], bool(error["found"]), bool(error["remedy"])) == ("database", True, True)
    assert "backup" in document["skipped"]


def test_a_limit_of_no_time_is_refused(tmp_path: Path) -> None:
    assert "--timeout" in Cafcat(tmp_path, None)("doctor", "--timeout", "0", code=2).err


@pytest.mark.slow
def test_an_embedded_database_in_order(tmp_path: Path) -> None:
    """It takes seconds to make one."""
    cafcat = Cafcat(tmp_path, None)
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree/a").write_bytes(b"first")
    cafcat("ingest", "tree")
    try:
        cafcat("db", "stop")
        cafcat("backup")
        cafcat("db", "stop")
        document = cafcat("doctor", "--json").document
    finally:
        cafcat("db", "stop")
    complaints = {check["check"] for check in document["checks"] if check["level"] != "ok"}
    assert complaints <= {"settings", "store space", "home space"}
    assert document["skipped"] == []
