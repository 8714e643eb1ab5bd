"""ls, find, stat, locate."""

import json
import subprocess
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

from tests.e2e.conftest import TREE, Cafcat

FILE_KEYS = {
    "path",
    "size_bytes",
    "start_byte",
    "end_byte",
    "crc32c",
    "modified_at",
    "chunk",
    "object",
}


def test_ls_shows_one_level(filled: Cafcat) -> None:
    assert filled("ls").lines == ["tree/"]
    level = ["tree/a.txt", "tree/b.bin", "tree/big.dat", "tree/empty", "tree/folder/", "tree/odd/"]
    assert filled("ls", "tree").lines == level
    assert filled("ls", "tree/a.txt").lines == ["tree/a.txt"]
    documents = filled("ls", "tree", "--json").documents
    assert [document["path"] for document in documents] == level
    assert documents[-1] == {"path": "tree/odd/", "folder": True}
    assert all(set(document) == FILE_KEYS for document in documents[:4])


def test_ls_long_and_human(filled: Cafcat) -> None:
    lines = filled("ls", "-l", "tree").lines
    assert lines[0].split() == ["11", "2026-11-21T10:00:00Z", "tree/a.txt"]
    below = sum(len(content) for path, content in TREE.items() if path.startswith("tree/folder/"))
    assert lines[4].split() == [str(below), "-", "tree/folder/"]
    assert filled("ls", "-lh", "tree/big.dat").lines[0].split()[:2] == ["3.0", "MB"]


def test_ls_recursive_has_every_name_whatever_is_in_it(filled: Cafcat) -> None:
    documents = filled("--json", "ls", "-R").documents
    assert [document["path"] for document in documents] == sorted(TREE, key=str.encode)
    sizes = {document["path"]: document["size_bytes"] for document in documents}
    assert sizes == {path: len(content) for path, content in TREE.items()}
    raw = filled("ls", "-R").out
    assert raw == b"".join(path.encode() + b"\n" for path in sorted(TREE, key=str.encode))


def test_ls_of_nothing(filled: Cafcat, cafcat: Cafcat) -> None:
    for verb in (["ls"], ["ls", "-R"], ["find"]):
        nothing = cafcat(*verb)
        assert nothing.out == b""
        assert nothing.err == "cafcat: the catalog has no files: `cafcat ingest FOLDER` packs a folder\n"
        assert cafcat(*verb, "--json").out == b""
    assert filled("find", "--name", "nothing").err == ""
    assert "'tree/non'" in filled("ls", "tree/non", code=4).err
    assert filled("ls", "-R", "nothing\nhere", "--json", code=4).error["path"] == "nothing\nhere"


@pytest.mark.parametrize(
    ("conditions", "names"),
    [
        (["--name", "*.txt"], ["tree/a.txt", "tree/folder/c.txt"]),
        (["tree/folder", "--name", "?.*"], ["tree/folder/c.txt", "tree/folder/deep/d.TXT"]),
        (["--name", "100%_x[*]?[[]a]"], ["tree/odd/100%_x*?[a]"]),
        (["--min-size", "2kB", "--max-size", "3MB"], ["tree/folder/c.txt"]),
        (["--older", "2026-11-21T10:00:01Z"], ["tree/a.txt"]),
        (["--newer", "2026-11-21T12:00:12+02:00"], ["tree/odd/\x1b[31mred"]),
    ],
)
def test_find(filled: Cafcat, conditions: list[str], names: list[str]) -> None:
    assert filled("find", *conditions, "-0").out == b"".join(name.encode() + b"\0" for name in names)


def test_find_in_json_and_lines(filled: Cafcat) -> None:
    (document,) = filled("find", "--name", "new*", "--json").documents
    assert set(document) == FILE_KEYS
    assert document["path"] == "tree/odd/new\nline"
    assert filled("find", "--name", "new*").out == b"tree/odd/new\nline\n"


def test_stat(filled: Cafcat) -> None:
    document = filled("stat", "tree/a.txt", "--json").document
    assert set(document) == FILE_KEYS | {"history"}
    assert document["path"] == "tree/a.txt"
    assert document["size_bytes"] == 11 == document["end_byte"] - document["start_byte"]
    assert document["modified_at"] == "2026-11-21T10:00:00.123456Z"
    assert document["history"] == []
    assert str(UUID(document["chunk"])) in document["object"]
    text = filled("stat", "tree/a.txt").text
    assert all(str(value) in text for key, value in document.items() if key not in ("history", "crc32c"))
    assert f"crc32c       {document['crc32c']:08x}" in text


def test_stat_shows_earlier_versions(cafcat: Cafcat) -> None:
    file = cafcat.folder / "f"
    file.write_bytes(b"one")
    cafcat("ingest", "f")
    first = cafcat("stat", "f", "--json").document
    file.write_bytes(b"second")
    cafcat("ingest", "f")
    (before,) = cafcat("stat", "f", "--json").document["history"]
    assert set(before) == FILE_KEYS | {"retired_at", "run", "reason", "is_kept"}
    assert before["crc32c"] == first["crc32c"]
    assert before["chunk"] == first["chunk"]
    assert before["is_kept"]
    assert "before       3 bytes" in cafcat("stat", "f").text
    cafcat("prune", "--grace", "0", "--yes")
    (before,) = cafcat("stat", "f", "--json").document["history"]
    assert not before["is_kept"]
    assert cafcat("stat", "f").lines[-1].endswith("(replaced, run 2; its chunk was pruned or lost)")


def test_stat_marks_versions_in_a_store_that_was_given_up(cafcat: Cafcat) -> None:
    (cafcat.folder / "f").write_bytes(b"one")
    cafcat("ingest", "f")
    (cafcat.folder / "store").rename(cafcat.folder / "gone")
    cafcat("store", "rm", "store", "--lost", "--yes", "-q")
    (cafcat.folder / "f").write_bytes(b"second")
    cafcat("ingest", "f", "--store", "./new", "--force")
    (before,) = cafcat("stat", "f", "--json").document["history"]
    assert not before["is_kept"]
    assert cafcat("stat", "f").lines[-1].endswith("(removed; its chunk was pruned or lost)")
    assert [row["is_kept"] for row in cafcat("query", "history", "f", "--json").documents] == [True, False]


def test_a_folder_with_a_slash_is_named_as_a_folder(filled: Cafcat) -> None:
    for verb in ("get", "cat", "stat", "locate"):
        assert "this is a folder of the catalog, not a file" in filled(verb, "tree/", code=4).err
    assert "this is a folder" in filled("stat", "./tree/", "tree/a.txt", code=3).err


def test_one_missing_path_of_several(filled: Cafcat) -> None:
    result = filled("stat", "--json", "tree/a.txt", "none", "tree/empty", code=3)
    assert [document["path"] for document in result.documents] == ["tree/a.txt", "tree/empty"]
    assert result.error["kind"] == "not_found"
    assert result.error["path"] == "none"


def test_the_line_of_locate_gives_the_bytes_without_cafcat(filled: Cafcat) -> None:
    paths = list(TREE)
    documents = filled("locate", "--json", "--", *paths).documents
    assert [document["path"] for document in documents] == paths
    for document in documents:
        assert set(document) == FILE_KEYS | {"command"}
        shell = subprocess.run(["/bin/sh", "-c", document["command"]], capture_output=True, check=True)
        assert (shell.stdout, shell.stderr) == (TREE[document["path"]], b"")
    lines = filled("locate", "tree/a.txt").lines
    assert lines[-1] == documents[0]["command"]
    assert any(documents[0]["chunk"] in line for line in lines[:-1])


def test_find_yields_the_same_paths_with_and_without_locations(filled: Cafcat) -> None:
    for arguments in ([], ["tree/a.txt"], ["tree/folder/"], ["tree", "--min-size", "2"], ["--name", "*.txt"]):
        names = [document["path"] for document in filled("find", *arguments, "--json").documents]
        assert names
        assert filled("find", *arguments, "-0").out == b"".join(name.encode() + b"\0" for name in names)


def test_du_for_ncdu_has_one_form(filled: Cafcat) -> None:
    for option in (["--depth", "1"], ["--sort"], ["--human"]):
        assert "leave --depth, --sort and --human out" in filled("du", "--ncdu", *option, code=2).err
    assert filled("du").lines == filled("du", "--depth", "1").lines


@pytest.mark.parametrize("folder", ["", "tree", "tree/folder/", "tree/a.txt"])
def test_du_for_ncdu_has_every_file_in_its_folder(filled: Cafcat, folder: str) -> None:
    def below(name: str, entry: Any) -> Iterator[tuple[str, int]]:
        if isinstance(entry, dict):
            yield name + entry["name"], entry["asize"]
        else:
            head, *entries = entry
            assert len({one[0]["name"] for one in entries if isinstance(one, list)}) == sum(
                isinstance(one, list) for one in entries
            )
            for one in entries:
                yield from below(f"{name}{head['name'].strip('/')}/", one)

    _, _, _, top = json.loads(filled("du", "--ncdu", folder or ".").out)
    inside = {path for path in TREE if path.startswith(folder) or not folder}
    if folder == "tree/a.txt":
        assert dict(below("", top)) == {"tree/a.txt/a.txt": len(TREE["tree/a.txt"])}
        return
    found = {path.lstrip("./"): size for path, size in below("", top)}
    assert found == {path: len(TREE[path]) for path in inside}


def test_find_refuses_a_pattern_for_base_names_with_a_slash(filled: Cafcat) -> None:
    for arguments in (["--name", "tree/a.txt"], ["tree", "--name", "folder/*", "--json"]):
        refused = filled("find", *arguments, code=2)
        assert refused.out == b""
        assert "the pattern has a slash" in refused.err


def test_find_below_a_missing_folder_is_an_error(filled: Cafcat) -> None:
    assert filled("find", "none", "--json", code=4).error["path"] == "none"
    assert filled("find", "tree", "--name", "none").out == b""
    assert filled("find", ".", "--name", "none").out == b""
