"""The Python of docs/fsspec.md runs."""

import re
from pathlib import Path

import fsspec
import pytest

from cafcat.filesystem import CafcatFileSystem

PAGE = Path(__file__).parents[2] / "docs/fsspec.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
PRINTED = ["['days/1.csv', 'days/2.csv']\nb'1,2\\n'\n", "", "3\n", "[(5,)]\n", "8\n"]


@pytest.mark.filterwarnings("default")  # the libraries have warnings of their own
def test_the_examples_run(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CAFCAT_DATABASE_URL", database_url)
    monkeypatch.setenv("CAFCAT_HOME", str(tmp_path / "home"))
    for name in ("pandas", "pyarrow", "duckdb", "dask.dataframe"):
        pytest.importorskip(name)
    fsspec.register_implementation("cafcat", CafcatFileSystem, clobber=True)
    found: dict[str, object] = {}
    printed = []
    for block in BLOCKS:
        exec(block, found)  # noqa: S102 - our own page
        printed.append(capsys.readouterr().out)
    assert printed == PRINTED
    assert found["contents"] == {"days/1.csv": b"x,y\n1,2\n", "days/2.csv": b"x,y\n3,4\n"}
    CafcatFileSystem.current()._packed.close()
    CafcatFileSystem.clear_instance_cache()
