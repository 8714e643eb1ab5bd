"""extract: several prefixes, patterns, filters, and names with fewer parts."""

import os
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import Cafcat

FILES = {
    "photos/2023/a.jpg": b"a of 2023",
    "photos/2023/raw/b.raw": b"b",
    "photos/2024/a.jpg": b"a of 2024",
    "photos/2024/c.jpg": b"c",
    "photos/odd[1]/d.jpg": b"d",
    "notes/2023/e.txt": b"e",
    "top": b"top",
}


@pytest.fixture
def tree(cafcat: Cafcat) -> Cafcat:
    source = cafcat.folder / "source"
    for path, content in FILES.items():
        (source / path).parent.mkdir(parents=True, exist_ok=True)
        (source / path).write_bytes(content)
    cafcat("ingest", "photos", "notes", "top", cwd=source)
    return cafcat


def extracted(tree: Cafcat, *arguments: str, code: int = 0) -> tuple[dict[str, bytes], dict[str, Any]]:
    """Return the files that an extract wrote, and its summary."""
    number = len(list(tree.folder.glob("out*")))
    out = tree.folder / f"out{number}"
    summary = tree("extract", *arguments, "-C", out, "--json", code=code).documents[-1]["summary"]
    found = [Path(parent, name) for parent, _, names in os.walk(out) for name in names]
    return {path.relative_to(out).as_posix(): path.read_bytes() for path in found}, summary


def some(*paths: str) -> dict[str, bytes]:
    return {path: FILES[path] for path in paths}


def test_several_prefixes_and_patterns_give_each_file_once(tree: Cafcat) -> None:
    found, summary = extracted(tree, "photos/2024", "photos/*/a.jpg", "photos/202?", "photos/odd[1]", "./top")
    assert found == {path: content for path, content in FILES.items() if path != "notes/2023/e.txt"}
    assert (summary["files"], summary["files_failed"]) == (6, 0)
    assert extracted(tree, "**/2023/")[0] == some("photos/2023/a.jpg", "photos/2023/raw/b.raw", "notes/2023/e.txt")


def test_missing_prefixes_are_listed_and_the_others_extracted(tree: Cafcat) -> None:
    found, summary = extracted(tree, "none", "top", "photos/*.none", code=3)
    assert found == some("top")
    assert [problem["path"] for problem in summary["failed"]] == ["none", "photos/*.none"]
    assert tree("extract", "none/*", "-C", "out", "--json", code=4).error["path"] == "none/*"
    assert tree("extract", "none", "photos/*.none", "-C", "out", "--json", code=4).error["path"] == "none"
    assert not (tree.folder / "out").exists()


def test_filters_are_those_of_gitignore(tree: Cafcat) -> None:
    assert extracted(tree, "--include", "*.jpg", "--exclude", "2024")[0] == some(
        "photos/2023/a.jpg", "photos/odd[1]/d.jpg"
    )
    assert extracted(tree, "photos", "--include", "/photos/2023/**", "--exclude", "*.raw")[0] == some(
        "photos/2023/a.jpg"
    )
    assert "no file matches --include '*.none'" in tree("extract", "--include", "*.none", "-C", "out").err
    result = tree("extract", "--include", "*.raw", "--exclude", "photos", "-C", "out")
    assert "no file is left by --include '*.raw' and --exclude photos; patterns are" in result.err
    for _ in range(2):  # the second time, the file is there already
        assert tree("extract", "--include", "*.raw", "-C", "out").err == ""
    plan = tree("extract", "photos", "--include", "*.raw", "-C", "out", "--explain", "--json").document
    assert (plan["files"], plan["bytes_wanted"]) == (1, 1)


def test_strip_removes_leading_parts(tree: Cafcat) -> None:
    found, summary = extracted(tree, "photos/2023", "top", "--strip", "2")
    assert found == {"a.jpg": b"a of 2023", "raw/b.raw": b"b"}
    assert (summary["files"], summary["files_skipped"], summary["files_failed"]) == (2, 1, 0)
    text = tree("extract", "top", "--strip", "1", "-C", "none").text
    assert text.startswith("extracted 0 files, skipped 1 with too short paths")
    found, _ = extracted(tree, "photos/2023", "notes", "--strip", "1")
    assert found == {"2023/a.jpg": b"a of 2023", "2023/raw/b.raw": b"b", "2023/e.txt": b"e"}


@pytest.mark.parametrize(
    "arguments", [["--strip", "2"], ["photos", "--strip", "2", "-f"], ["photos/20*", "--strip", "2"]], ids=str
)
def test_two_files_of_one_name_are_refused_before_one_is_written(tree: Cafcat, arguments: list[str]) -> None:
    error = tree("extract", *arguments, "-C", "out", "--json", code=2).error
    assert "'photos/2023/a.jpg' and 'photos/2024/a.jpg'" in error["message"]
    assert not (tree.folder / "out").exists()
    found, _ = extracted(tree, *arguments, "--exclude", "/photos/2023")
    assert found["a.jpg"] == b"a of 2024"


def test_files_of_a_list(tree: Cafcat) -> None:
    (tree.folder / "list").write_bytes(b"photos/odd[1]/d.jpg\0top\0photos/*\0top\0photos/2024/c.jpg\0\xff\0")
    listed = ["--files-from", "list", "-0"]
    found, summary = extracted(tree, *listed, code=3)
    assert found == some("photos/odd[1]/d.jpg", "top", "photos/2024/c.jpg")
    assert {problem["path"] for problem in summary["failed"]} == {"photos/*", "\udcff"}
    assert extracted(tree, *listed, "--include", "*.jpg", "--strip", "2")[0] == {"d.jpg": b"d", "c.jpg": b"c"}
    assert "cannot be combined" in tree("extract", "photos", *listed, "-C", "out", code=2).err
    (tree.folder / "list").write_text("photos/2023/a.jpg\nphotos/2024/a.jpg\n")
    assert "have the same name" in tree("extract", *listed[:2], "--strip", "2", "-C", "out", code=2).err
    tree("extract", "photos", "-C", "out", "--strip", "-1", code=2)


def test_the_same_command_continues_an_extract(tree: Cafcat) -> None:
    tree("extract", "photos", "-C", "out", "-q")
    (tree.folder / "out/photos/2023/a.jpg").unlink()
    inode = (tree.folder / "out/photos/2024/a.jpg").stat().st_ino
    result = tree("extract", "photos", "-C", "out")
    assert result.text.startswith("extracted 1 file, 4 there already, ")
    assert (tree.folder / "out/photos/2024/a.jpg").stat().st_ino == inode
    (tree.folder / "out/photos/2024/a.jpg").write_bytes(b"A of 2024")
    result = tree("extract", "photos", "-C", "out", code=3)
    assert result.err == "cafcat: photos/2024/a.jpg: there is a file of that name already\n"
    assert result.text.startswith(
        "extracted 0 files, 4 there already, failed 1 (--force overwrites existing files), "
    )
    assert tree("extract", "photos", "-C", "out", "-f").text.startswith("extracted 5 files, ")


def test_a_file_and_a_folder_of_one_name(tree: Cafcat) -> None:
    (tree.folder / "n").mkdir()
    (tree.folder / "n/a").write_bytes(b"file")
    tree("ingest", "n", "-q")
    (tree.folder / "n/a").unlink()
    (tree.folder / "n/a").mkdir()
    (tree.folder / "n/a/b").write_bytes(b"below")
    tree("ingest", "n", "-q")
    message = "the catalog has a file and a folder named n/a: write them to two folders"
    for number, force in enumerate([[], ["--force"]]):
        for _ in range(2):  # into a new folder, and once more
            result = tree("extract", "n", "-C", f"out{number}", *force, code=3)
            assert result.err == f"cafcat: n/a: {message}\n"
            assert "--force" not in result.text
        result = tree("get", "n/a", "n/a/b", "--parents", "-o", f"got{number}", *force, code=3)
        assert result.err == f"cafcat: {message} (path 'got{number}/n/a')\n"
    tree("get", "n/a", "--parents", "-o", "single")
    assert "--force" in tree("get", "n/a", "--parents", "-o", "single", code=1).err
    assert message in tree("get", "n/a/b", "--parents", "-o", "single", code=1).err


def test_an_error_that_ends_an_extract_has_the_number_of_complete_files(tree: Cafcat) -> None:
    second = Cafcat(tree.folder, tree.database_url, {**tree.extra, "CAFCAT_STORE": str(tree.folder / "third")})
    (tree.folder / "zz").write_bytes(b"read last, by the URL of the store")
    second("ingest", "zz", "-q")
    (tree.folder / "third").rename(tree.folder / "away")
    result = tree("extract", "-C", "out", code=1)
    assert "is its disk mounted?" in result.err
    files = len([path for path in (tree.folder / "out").rglob("*") if path.is_file()])
    assert files
    assert f"number of files that were extracted before this error, and are complete: {files}\n" in result.err


def test_an_extract_on_a_cluster(tree: Cafcat) -> None:
    found, summary = extracted(
        tree, "photos/2023", "none", "--strip", "1", "--exclude", "*.raw", "--cluster", "local://1", code=3
    )
    assert found == {"2023/a.jpg": b"a of 2023"}
    assert [problem["path"] for problem in summary["failed"]] == ["none"]
    assert "same name" in tree("extract", "--strip", "2", "-C", "out", "--cluster", "local://1", code=2).err
