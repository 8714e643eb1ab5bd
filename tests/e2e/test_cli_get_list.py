"""get --files-from: many files into one tar or zip."""

import json
import re
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.e2e.conftest import TREE, Cafcat

NAMES = [name for name in reversed(TREE) if "\n" not in name]


def read(path: Path) -> dict[str, bytes]:
    if path.suffix == ".zip":
        with zipfile.ZipFile(path) as archive:
            return {info.filename: archive.read(info) for info in archive.infolist()}
    with tarfile.open(path) as tar:
        return {info.name: (tar.extractfile(info) or pytest.fail("no file")).read() for info in tar}


@pytest.mark.parametrize("name", ["x.tar", "x.zip", "X.TAR"])
def test_listed_files_in_their_order(filled: Cafcat, tmp_path: Path, name: str) -> None:
    listing = "\n".join(NAMES).encode()
    result = filled("get", "--files-from", "-", "-o", tmp_path / name, stdin=listing)
    found = read((tmp_path / name).rename(tmp_path / name.lower()))
    assert list(found) == NAMES
    assert found == {path: TREE[path] for path in NAMES}
    assert result.text.startswith(f"wrote {len(NAMES)} files to ")


def test_names_with_newlines(filled: Cafcat, tmp_path: Path) -> None:
    (tmp_path / "list").write_bytes(b"\0".join(name.encode() for name in TREE))
    summary = filled("get", "--files-from", tmp_path / "list", "-0", "-o", tmp_path / "x.tar", "--json").document
    assert read(tmp_path / "x.tar") == TREE
    expected = {"format": "tar", "files": len(TREE), "failed": 0, "size_bytes": (tmp_path / "x.tar").stat().st_size}
    assert summary["summary"] == expected | {"output": str(tmp_path / "x.tar")}


def test_a_missing_file_ends_the_command_or_is_left_out(filled: Cafcat, tmp_path: Path) -> None:
    given = ["get", "--files-from", "-", "-o", tmp_path / "x.tar"]
    listing = b"tree/a.txt\nnone\ntree/b.bin\n"
    assert "none" in filled(*given, stdin=listing, code=4).err
    assert list(tmp_path.iterdir()) == []
    result = filled(*given, "--on-error", "skip", stdin=listing, code=3)
    assert "'none'" in result.err
    assert re.fullmatch(r"wrote 2 files to \S+x.tar, \d.*B; failed 1\n", result.text)
    found = read(tmp_path / "x.tar")
    assert list(found) == ["tree/a.txt", "tree/b.bin", ".cafcat-errors.json"]
    assert [row["path"] for row in json.loads(found[".cafcat-errors.json"])] == ["none"]
    assert filled(*given, stdin=listing, code=1).err.count("\n") == 1
    filled(*given, "-f", stdin=b"tree/a.txt")
    assert list(read(tmp_path / "x.tar")) == ["tree/a.txt"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-o", "x.txt"], "-o FILE.tar"),
        (["--on-error", "skip"], "-o FILE.tar"),
        (["tree/a.txt", "-o", "x.tar"], "PATH cannot be used with an archive"),
        (["--range", "0-1", "-o", "x.tar"], "--range cannot be used with an archive"),
        (["--parents", "-o", "x.tar"], "--parents cannot be used with an archive"),
        (["--on-error", "ignore", "-o", "x.tar"], "fail or skip"),
    ],
)
def test_arguments_that_do_not_fit(filled: Cafcat, tmp_path: Path, arguments: list[str], message: str) -> None:
    assert message in filled("get", "--files-from", "-", *arguments, code=2, cwd=tmp_path).err


def test_a_list_is_needed(filled: Cafcat, tmp_path: Path) -> None:
    assert "no file is named" in filled("get", code=2).err
    assert "--files-from" in filled("get", "tree/a.txt", "-0", code=2).err
    assert "no such list" in filled("get", "--files-from", "none", "-o", "x.tar", code=4, cwd=tmp_path).err
