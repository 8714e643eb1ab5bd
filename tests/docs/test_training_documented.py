"""The examples of docs/training.md run."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import cafcat
from tests.worlds.waiting import PATIENCE_SECONDS

PROJECT = Path(__file__).parents[2]
PAGE = (PROJECT / "docs" / "training.md").read_text()
EXAMPLES = re.findall(r"(<!-- needs torch -->\n)?```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
NAMES = ("torch", "processes", "continuing")


@pytest.mark.parametrize(
    ("needs_torch", "example"),
    [
        pytest.param(
            *example, id=name, marks=[pytest.mark.slow] if example[0] else []
        )  # importing it takes seconds
        for name, example in zip(NAMES, EXAMPLES, strict=True)
    ],
)
def test_examples_run(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, needs_torch: str, example: str
) -> None:
    if needs_torch:
        pytest.importorskip("torch", exc_type=ImportError)  # a build for CUDA needs more libraries
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CAFCAT_HOME", str(tmp_path / "home"))
    (tmp_path / "photos").mkdir()
    for n in range(100):
        (tmp_path / "photos" / f"{n}.jpg").write_bytes(b"%d" % n * n)
    with cafcat.open(database_url=database_url) as repository:
        repository.ingest(["photos"])
        repository.snapshot(tmp_path / "photos.cafs")
    (tmp_path / "example.py").write_text(example)
    environment = os.environ | {"PYTHONPATH": str(PROJECT), "CAFCAT_DATABASE_URL": "postgresql:///nowhere"}
    subprocess.run([sys.executable, "example.py"], env=environment, check=True, timeout=PATIENCE_SECONDS)
