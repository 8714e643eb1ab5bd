"""Files whose times are far from the present: an index can record the years 1678 to 2261, the catalog 1 to 9999."""

import os
from pathlib import Path

import pytest

import cafcat
from cafcat.native.library import turned_off

SECOND = 10**9
YEAR = 31_556_952 * SECOND
TIMES = {
    "1": -1968 * YEAR,
    "1600": -370 * YEAR,
    "first": -(1 << 63),
    "before": -(1 << 63) - 1,
    "1969": -1,
    "last": (1 << 63) - 1,
    "after": 1 << 63,
    "2300": 330 * YEAR,
    "9999": 8029 * YEAR,
}


@pytest.fixture
def tree(memory: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder `tree` of files with these times, in memory: other file systems do not have all of them."""
    tree = memory / "tree"
    tree.mkdir()
    for name, time in TIMES.items():
        (tree / name).write_text(name)
        os.utime(tree / name, ns=(time, time))
        if (tree / name).stat().st_mtime_ns != time:
            pytest.skip("the file system does not have such times")
    monkeypatch.chdir(memory)
    return tree


@pytest.mark.parametrize("format", ["caf", "car", "chunkio", "databundle"])
def test_files_of_all_times(local: cafcat.Repository, tree: Path, format: str) -> None:
    local.ingest(["tree"], format=format)
    report = local.verify(level="data")
    assert (report.ok, report.findings) == (1, 0)
    expected = {f"tree/{name}": name.encode() for name in TIMES}
    assert dict(local.read_many(expected)) == expected
    found = local.locate_many(expected)
    assert {path: location.modified_ns for path, location in found.items()} == {
        f"tree/{name}": time // 1000 * 1000 for name, time in TIMES.items()
    }
    assert local.ingest(["tree"], format=format).files_unchanged == len(TIMES)
    assert extracted(local, tree.parent / "native") == {name: time // 1000 * 1000 for name, time in TIMES.items()}
    with turned_off():
        assert extracted(local, tree.parent / "python") == extracted(local, tree.parent / "native")


def extracted(repository: cafcat.Repository, out: Path) -> dict[str, int]:
    """Extract all files, and return their times in nanoseconds."""
    if not out.exists():
        assert repository.extract("", out).files == len(TIMES)
    return {path.name: path.stat().st_mtime_ns for path in (out / "tree").iterdir()}
