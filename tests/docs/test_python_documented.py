"""The examples of docs/python.md run, one after the other."""

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import cafcat

PAGE = Path(__file__).parents[2] / "docs" / "python.md"


def test_the_examples_run(tmp_path: Path, database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "photos" / "2024").mkdir(parents=True)
    (tmp_path / "photos" / "2024" / "cat.txt").write_bytes(b"meow")
    with zipfile.ZipFile(tmp_path / "photos" / "albums.zip", "w") as archive:
        archive.writestr("2024", "cats")
    monkeypatch.setenv("CAFCAT_DATABASE_URL", database_url)
    monkeypatch.setenv("CAFCAT_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PYTHONPATH", str(PAGE.parents[1]))
    examples = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (tmp_path / "examples.py").write_text("\n".join(examples))
    run = subprocess.run([sys.executable, "examples.py"], cwd=tmp_path, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert run.stderr == ""
    for line in ("2 files", "['2024']", "photos ['2024'] ['albums.zip']", "[b'bytes', b'meow']"):
        assert line in run.stdout
    assert "photos/2024/nothing.txt cannot be read" in run.stdout
    assert "this is a folder: use rm -r to remove all files below it" in run.stdout
    assert (tmp_path / "copy-of-cat.txt").read_bytes() == b"meow"
    assert (tmp_path / "restored" / "photos" / "2024" / "cat.txt").read_bytes() == b"meow"


def test_the_reference_has_every_method() -> None:
    reference = PAGE.read_text().partition("## Reference")[2]
    names = {name for name in dir(cafcat.Repository) if not name.startswith("_")} - {"session", "settings"}
    assert {name for name in names if not re.search(rf"`{name}\b", reference)} == set()
