"""Paths, patterns and lists of names, for all verbs that take files."""

import os
from pathlib import Path

import pytest

from tests.e2e.conftest import TREE, Cafcat, write_tree

LITERAL = "tree/odd/100%_x*?[a]"
PHOTOS = {
    "photos/2023/a.jpg": b"a of 2023",
    "photos/2023/b.png": b"b",
    "photos/2024/a.jpg": b"a of 2024",
    "photos/2024/deep/c.jpg": b"c",
    "photos/x[1]/d.jpg": b"d",
}


@pytest.fixture
def photos(cafcat: Cafcat) -> Cafcat:
    for path, content in PHOTOS.items():
        (cafcat.folder / path).parent.mkdir(parents=True, exist_ok=True)
        (cafcat.folder / path).write_bytes(content)
    cafcat("ingest", "photos")
    return cafcat


def files_below(folder: Path) -> dict[str, bytes]:
    found = [Path(parent, name) for parent, _, names in os.walk(folder) for name in names]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in found}


def test_patterns_of_cat_and_stat(filled: Cafcat) -> None:
    assert filled("cat", "tree/folder/**").out == TREE["tree/folder/c.txt"] + TREE["tree/folder/deep/d.TXT"]
    assert filled("cat", "./tree/[ab].*").out == TREE["tree/a.txt"] + TREE["tree/b.bin"]
    assert filled("cat", "tree/b.*", "tree/a.txt", "tree/b.*").out.startswith(TREE["tree/b.bin"] + b"first file")
    paths = [document["path"] for document in filled("stat", "**/*.txt", "--json").documents]
    assert paths == ["tree/a.txt", "tree/folder/c.txt"]
    assert [line.split()[-1] for line in filled("locate", "tree/*.txt").lines if line.startswith("path")] == [
        "tree/a.txt"
    ]
    assert len(filled("url", "tree/*.*").lines) == 3


def test_a_path_with_characters_of_a_pattern_is_a_path(filled: Cafcat, tmp_path: Path) -> None:
    assert filled("cat", LITERAL).out == TREE[LITERAL]
    filled("get", LITERAL, "-o", tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == TREE[LITERAL]
    assert filled("rm", LITERAL, "--dry-run").text.startswith("would remove 1 file ")


@pytest.mark.parametrize("verb", [["cat"], ["stat"], ["url"], ["get"], ["get", "--parents"], ["rm"], ["rm", "-r"]])
def test_a_pattern_without_a_file(filled: Cafcat, tmp_path: Path, verb: list[str]) -> None:
    error = filled(*verb, "tree/*.none", "--json", code=4, cwd=tmp_path).error
    assert (error["kind"], error["path"]) == ("not_found", "tree/*.none")
    dry = ["--dry-run"] if verb[0] == "rm" else []
    some = filled(*verb, "tree/*.none", "tree/a.txt", *dry, code=3, cwd=tmp_path)
    assert "tree/*.none" in some.err
    assert list(tmp_path.iterdir()) == [tmp_path / "a.txt"] or verb != ["get"]


def test_get_keeps_folders_with_parents(photos: Cafcat, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    documents = photos("get", "photos/**/*.jpg", "photos/2023/*", "--parents", "-o", out, "--json").documents
    assert files_below(out) == PHOTOS
    assert {Path(document["output"]) for document in documents} == {out / path for path in PHOTOS}
    assert photos("get", "photos/2023/b.png", "none", "--parents", "-o", out, code=3).err.count("\n") == 2
    photos("get", "photos/2023/b.png", "--parents", "-f", "--range", "0-0", "-o", out)
    photos("get", "none", "--parents", code=4)


def test_get_refuses_two_files_of_one_name_before_it_writes(photos: Cafcat, tmp_path: Path) -> None:
    error = photos("get", "photos/**", "-o", tmp_path, "-f", "--json", code=2).error
    assert "'photos/2023/a.jpg' and 'photos/2024/a.jpg' have the same base name" in error["message"]
    assert list(tmp_path.glob("*.jpg")) == []
    photos("get", "photos/2024/**", "photos/2024/a.jpg", "-o", tmp_path)
    assert {path.name for path in tmp_path.glob("*.jpg")} == {"a.jpg", "c.jpg"}


def test_lists_of_names(photos: Cafcat, tmp_path: Path) -> None:
    (tmp_path / "list").write_text("photos/2023/b.png\nphotos/2024/*\nphotos/x[1]/d.jpg\n")
    result = photos("cat", "--files-from", tmp_path / "list", code=3)
    assert (result.out, "'photos/2024/*'" in result.err) == (b"bd", True)  # names in a list are no patterns
    names = "\0".join(PHOTOS).encode()
    (tmp_path / "out").mkdir()
    photos("get", "--files-from", "-", "-0", "--parents", stdin=names, cwd=tmp_path / "out")
    assert files_below(tmp_path / "out") == PHOTOS
    stats = photos("stat", "--files-from", "-", "-0", "photos/2024/a.*", "--json", stdin=names).documents
    assert [document["path"] for document in stats] == ["photos/2024/a.jpg", *PHOTOS]
    assert len(photos("url", "--files-from", "-", "-0", stdin=names).lines) == len(PHOTOS)
    assert "not valid UTF-8" in photos("get", "--files-from", "-", stdin=b"\xff\n", code=3, cwd=tmp_path).err
    for verb in ("get", "cat", "stat", "url", "locate", "rm"):
        assert "no file is named" in photos(verb, code=2).err
        assert "--files-from" in photos(verb, "a", "-0", code=2).err
        assert "no such list" in photos(verb, "--files-from", "none", code=4).err


def test_rm_shows_what_a_pattern_matches_and_needs_yes(photos: Cafcat) -> None:
    result = photos("rm", "photos/2023/*", code=9)
    assert result.text.startswith("would remove 2 files ")
    assert "run it again with --yes" in result.err
    assert photos("rm", "-r", "photos/202?", "photos/x[1]", "--dry-run").text.startswith("would remove 5 files ")
    assert photos("rm", "photos/2023/*", "--yes").text.startswith("removed 2 files ")
    assert photos("rm", "-r", "photos/20*", "photos/2024/deep", "--yes").text.startswith("removed 2 files ")
    assert photos("ls", "-R").lines == ["photos/x[1]/d.jpg"]
    assert photos("undelete", "-r", "photos").text.startswith("brought back 4 files ")


def test_explain_of_patterns(filled: Cafcat) -> None:
    plan = filled("get", "tree/folder/**", "--explain", "--json").document
    assert (plan["files"], plan["requests"]) == (2, 1)
    assert filled("cat", "tree/*.none", "--explain", code=4).out == b""


def test_get_all_files_with_their_folders(cafcat: Cafcat) -> None:
    write_tree(cafcat.folder)
    cafcat("ingest", "tree")
    (cafcat.folder / "out").mkdir()
    cafcat("get", "**", "--parents", "-o", "out")
    assert files_below(cafcat.folder / "out") == TREE


def test_a_pattern_that_matches_only_folders(filled: Cafcat) -> None:
    (filled.folder / "many" / "00").mkdir(parents=True)
    (filled.folder / "many" / "00" / "a").write_bytes(b"a")
    filled("ingest", "many", "-q")
    for verb in ("get", "stat", "rm"):
        hint = "the pattern matches folders: 'many/0*/**' means the files below them"
        assert filled(verb, "many/0*", "--json", code=4).error["hint"] == hint
    assert filled("stat", "many/0*/**", "--json").document["path"] == "many/00/a"
    for verb in ("ls", "find", "du"):
        assert filled(verb, "many/0*", "--json", code=4).error["hint"] == "`cafcat ls many` lists this folder"


def test_a_missing_name_with_brackets_is_looked_for_as_a_name(filled: Cafcat) -> None:
    hint = r"`cafcat find --name 'star\[1].txt'` looks for a file of this name in all folders"
    assert filled("get", "no/star[1].txt", "--json", code=4).error["hint"] == hint
    (filled.folder / "star[1].txt").write_bytes(b"")
    filled("ingest", "star[1].txt", "-q")
    assert filled("find", "--name", r"star\[1].txt").lines == ["star[1].txt"]
    assert "finds files by a pattern" in filled("get", "no/star[1-3].txt", code=4).err


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["find", "*.x"], "--name '*.x'"),
        (["ls", "tree/*.x"], "tree --name '*.x'"),
        (["ls", "-R", "tree/a b/**/q?"], "--name 'q?'"),
        (["ls", "-R", "./tree/**/q?"], "tree --name 'q?'"),
        (["get", "*.x"], "--name '*.x'"),
        (["stat", "tree/*.x"], "tree --name '*.x'"),
        (["rm", "tree/*.x"], "tree --name '*.x'"),
        (["rm", "no/*.x"], "--name '*.x'"),
        (["get", "no/*.x"], "--name '*.x'"),
    ],
)
def test_a_pattern_without_files_points_to_find(filled: Cafcat, arguments: list[str], hint: str) -> None:
    error = filled(*arguments, "--json", code=4).error
    assert error["hint"] == f"`cafcat find {hint}` finds files by a pattern"
    takes_patterns = arguments[0] in ("get", "stat", "rm")
    pattern, name = "no file has this name or matches this pattern", "the catalog has no such file or folder"
    assert error["message"] == (pattern if takes_patterns else name)


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["get", "none/**"], "`cafcat ls` lists the catalog"),
        (["ls", "tree/*"], "`cafcat ls tree` lists this folder"),
        (["find", "**/"], "`cafcat ls` lists the catalog"),
    ],
)
def test_a_pattern_of_asterisks_points_to_ls(filled: Cafcat, arguments: list[str], hint: str) -> None:
    assert filled(*arguments, "--json", code=4).error["hint"] == hint


@pytest.mark.parametrize("verb", [["cat"], ["get", "-o", "."], ["stat"], ["rm"]])
def test_names_in_a_list_are_no_patterns(filled: Cafcat, verb: list[str]) -> None:
    (filled.folder / "list").write_text("tree/*.none\n")
    listed = filled(*verb, "--files-from", "list", code=3).err
    assert "the catalog has no such file" in listed
    assert "pattern" not in listed
    if verb != ["rm"]:
        typed = filled(*verb, "./tree/*.x", "tree/*.y", "--files-from", "list", code=3).err
        assert typed.count("no file has this name or matches this pattern") == 2
