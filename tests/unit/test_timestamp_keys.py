"""The timestamp key of a log file is found in its first records, and named as clp-s names it."""

import json
from pathlib import Path
from typing import Any

import pytest

from cafcat.logs.timestamp_keys import LogHead, head_of

ISO = "2026-11-21T10:00:00"


def key_of(folder: Path, *records: Any) -> str | None:
    (folder / "log").write_text("".join(json.dumps(record) + "\n" for record in records))
    return head_of(str(folder / "log")).timestamp_key


@pytest.mark.parametrize(
    ("record", "key"),
    [
        ({"timestamp": 1_700_000_000_000}, "timestamp"),
        ({"level": "INFO", "ts": 1_700_000_000.5}, "ts"),
        ({"Time": ISO}, "Time"),
        ({"@timestamp": ISO + ".123Z"}, r"\@timestamp"),
        ({"t": {"$date": ISO + "+02:00"}}, "t.$date"),
        ({"a": {"b.c": {"time": ISO}}}, r"a.b\.c.time"),
        ({"a": {"b": {"c": {"time": ISO}}}}, None),
        ({"time": "soon", "ts": ISO}, "ts"),
        ({"time": ISO, "timestamp": ISO}, "timestamp"),
        ({"event": {"timestamp": ISO}, "time": ISO}, "time"),
        ({"time": 12}, None),
        ({"time": True, "ts": None, "date": "2026-11-21"}, None),
        ({"n": 1_700_000_000_000, "message": ISO}, None),
        ([{"time": ISO}], None),
    ],
)
def test_usual_keys(tmp_path: Path, record: Any, key: str | None) -> None:
    assert key_of(tmp_path, record) == key


def test_the_key_of_most_records_that_clp_s_can_read(tmp_path: Path) -> None:
    assert key_of(tmp_path, {"time": ISO}, {"ts": ISO}, {"ts": ISO}) == "ts"
    assert key_of(tmp_path, {"time": ISO}, {"ts": ISO}, {"ts": ISO}, {"ts": "soon"}) == "time"


def test_only_the_beginning_is_read(tmp_path: Path) -> None:
    assert key_of(tmp_path, {"x": "x" * (64 << 10)}, {"time": ISO}) is None
    assert key_of(tmp_path, {"time": ISO, "x": "x" * (32 << 10)}, {"time": ISO, "x": "x" * (64 << 10)}) == "time"


@pytest.mark.parametrize("content", [b"", b" \n\r\n"])
def test_a_file_without_records(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "log").write_bytes(content)
    assert head_of(str(tmp_path / "log")) == LogHead(None, is_blank=True)


@pytest.mark.parametrize("content", [b"no JSON", b"\xff\x00", b"[" * 50_000, b'{"time": "2026-11-21T10:0'])
def test_a_file_that_is_no_log(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "log").write_bytes(content)
    assert head_of(str(tmp_path / "log")) == LogHead(None, is_blank=False)


def test_a_missing_file_has_no_key(tmp_path: Path) -> None:
    assert head_of(str(tmp_path / "log")) == LogHead(None, is_blank=False)
