"""A very small run of `make bench`, from its data to its table. The measured numbers are not checked."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.bench", *arguments]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "CAFCAT_STORE": "/nowhere", "PGHOST": "nowhere"}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="dd, GNU tar")
def test_a_table_comes_out_and_nothing_is_left(tmp_path: Path) -> None:
    only = ("packing.small", "commit", "verifying.extract")
    done = bench("--folder", str(tmp_path), "--files", "50", "--rows", "100", "--rounds", "1", "--only", *only)
    assert done.returncode == 0, done.stderr
    table = [line.split(" | ") for line in done.stdout.splitlines() if line.startswith("| ")]
    works = [cells[0] for cells in table[2:]]
    assert [work.split()[1] for work in works] == ["ingest", "ingest", "commit", "extract"]
    ratios = [cells[3] for cells in table[2:]]
    measured = re.compile(r"[\d.,]+ \[[\d.,]+-[\d.,]+\]|not built: .*")
    assert all(measured.fullmatch(ratio) for ratio in ratios), ratios
    assert str(tmp_path) not in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_too_little_space_is_reported_before_files_are_made(tmp_path: Path) -> None:
    done = bench("--folder", str(tmp_path), "--scale", "1e6")
    assert done.returncode == 1
    assert re.search(r"GB free, up to [\d.]+ GB are needed: name another --folder", done.stderr)
    assert list(tmp_path.iterdir()) == []
