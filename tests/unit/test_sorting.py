"""Sorting of more records than fit into memory."""

import tempfile
from contextlib import closing
from pathlib import Path
from random import Random

import pytest

from cafcat.errors import TemporaryFileFailed
from cafcat.support.sorting import ExternalSort
from cafcat.support.spool import Spool


def test_records_beyond_the_memory_limit_are_sorted_repeatedly() -> None:
    records = [Random(n).randbytes(n % 60) for n in range(5000)]
    with closing(ExternalSort("records", 10_000)) as ordered:
        for record in records:
            ordered.add(record)
        assert list(ordered) == list(ordered) == sorted(records)
        assert ordered.count == len(records)
        assert ordered.size_bytes == sum(map(len, records))


def test_records_beyond_the_memory_limit_are_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    ordered = ExternalSort("records", 10_000)
    for _ in range(100):
        ordered.add(bytes(30))
    with pytest.raises(TemporaryFileFailed, match="temporary file for records"):
        ordered.add(bytes(10_000))


@pytest.mark.parametrize("memory_bytes", [0, 10])
def test_a_spool_keeps_its_contents_when_they_move_to_disk(memory_bytes: int) -> None:
    with Spool("contents", memory_bytes) as spool:
        for block in (b"0", b"123456789", b"abcdef"):
            spool.write(block)
        assert b"".join(spool.blocks_from(0)) == b"0123456789abcdef"
