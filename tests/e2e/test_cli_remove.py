"""rm and undelete: output and exit codes."""

import re
import subprocess
from dataclasses import fields

import pytest

from cafcat.operations.rm.report import RemoveReport
from cafcat.operations.undelete.report import UndeleteReport
from tests.e2e.conftest import TREE, Cafcat, documented_keys, interrupted, write_tree


@pytest.fixture
def tree(cafcat: Cafcat) -> Cafcat:
    write_tree(cafcat.folder)
    cafcat("ingest", "tree", "-q")
    return cafcat


NOBODY = "cafcat: nothing was done, because nobody can be asked; run it again with --yes\n"


def paths(cafcat: Cafcat) -> set[str]:
    return {document["path"] for document in cafcat("find", "--json").documents}


@pytest.mark.parametrize(("verb", "report"), [("rm", RemoveReport), ("undelete", UndeleteReport)])
def test_all_keys_are_documented(verb: str, report: type) -> None:
    assert {field.name for field in fields(report)} <= documented_keys(verb)


def test_a_file_is_removed_and_brought_back(tree: Cafcat) -> None:
    assert tree("rm", "tree/a.txt").text == "removed 1 file (11 B)\n"
    assert "no such file" in tree("cat", "tree/a.txt", code=4).err
    assert paths(tree) == set(TREE) - {"tree/a.txt"}
    [line] = tree("undelete", "--list").lines
    assert re.fullmatch(r" +11  2026-11-21T10:00:00Z  removed \d{4}-\d\d-\d\dT[\d:]{8}Z  tree/a.txt", line)
    assert tree("undelete", "tree/a.txt").text == "brought back 1 file (11 B)\n"
    assert tree("cat", "tree/a.txt").out == TREE["tree/a.txt"]
    nothing = tree("undelete", "--list")
    assert (nothing.text, nothing.err) == ("", "cafcat: there are no removed files to bring back\n")
    assert tree("db", "check").text == "nothing is wrong\n"


def test_a_folder_needs_yes(tree: Cafcat) -> None:
    odd = sum(len(TREE[path]) for path in TREE if "/odd/" in path)
    dry = tree("rm", "-q", "-r", "tree/odd", code=9)
    assert (dry.text, dry.err) == ("", NOBODY)
    assert tree("rm", "-r", "tree/odd", code=9).lines == [f"would remove 7 files ({odd} B)"]
    assert paths(tree) == set(TREE)
    assert tree("rm", "-r", "tree/odd", "--dry-run", "--yes").text.startswith("would remove 7 files")
    assert tree("rm", "-r", "tree/odd", "--yes").text.startswith("removed 7 files (")
    assert paths(tree) == {path for path in TREE if "/odd/" not in path}
    last = tree("rm", "-r", ".", "--yes").text
    assert last.endswith("; 1 chunk has no file left\n")
    assert paths(tree) == set()
    assert len(tree("undelete", "-l", "tree/folder").lines) == 2
    assert tree("undelete", "-r", "tree/odd", "tree/folder").text.startswith("brought back 9 files (")
    assert tree("undelete", "-r", ".").text.startswith(f"brought back {len(TREE) - 9} files (")
    assert paths(tree) == set(TREE)


def test_missing_names_are_errors(tree: Cafcat) -> None:
    assert "the catalog has no such file" in tree("rm", "nothing", code=4).err
    assert tree("rm", "nothing", "--json", code=4).error["kind"] == "not_found"
    assert tree("rm", "tree/folder", code=4).err.endswith("below it (path 'tree/folder')\n")
    assert "no such file or folder" in tree("rm", "-r", "nowhere", code=4).err
    several = tree("rm", "nothing", "tree/a.txt", "tree/a.txt", code=3)
    assert several.text == "removed 1 file (11 B)\n"
    assert several.err == "cafcat: nothing: the catalog has no such file\n"
    assert "no removed file has this name" in tree("undelete", "tree/b.bin", code=4).err
    problem, summary = tree("undelete", "nothing", "tree/a.txt", "--json", code=3).documents
    assert problem["problem"] == {
        "path": "nothing",
        "kind": "missing",
        "message": "no removed file has this name",
    }
    assert summary["summary"] == {
        "files": 1,
        "bytes": 11,
        "files_failed": 1,
        "files_live": 0,
        "files_pruned": 0,
        "files_let_go": 0,
        "files_damaged": 0,
        "files_taken": 0,
        "stores_behind": [],
    }
    assert "the catalog has no removed files with this name" in tree("undelete", "--list", "tree/a.txt", code=4).err
    assert paths(tree) == set(TREE)


def test_undelete_takes_patterns(tree: Cafcat) -> None:
    tree("rm", "-r", "tree", "--yes")
    assert tree("undelete", "tree/*.txt").text == "brought back 1 file (11 B)\n"
    assert "tree/a.txt" in tree("ls", "-R").lines
    hint = "`cafcat undelete --list` lists the removed files"
    assert hint in tree("undelete", "tree/*.none", code=4).err


def test_a_removed_folder_without_r_is_explained(tree: Cafcat) -> None:
    folder = sorted({path.rpartition("/")[0] for path in paths(tree) if "/" in path})[-1]
    tree("rm", "-r", folder, "--yes", "-q")
    message = "this is a folder: use undelete -r to bring back all files below it"
    assert message in tree("undelete", folder, code=4).err
    assert "no removed file has this name (" in tree("undelete", f"{folder}x", code=4).err
    below = "no removed file has this name, or is below a folder of this name"
    assert below in tree("undelete", "-r", f"{folder}x", code=4).err


def test_wrong_arguments_are_refused(tree: Cafcat) -> None:
    for arguments in (
        ["rm"],
        ["undelete"],
        ["rm", "a", "-0"],
        ["rm", "-r", "a", "--files-from", "-"],
        ["rm", "-r", "", "--yes"],
        ["undelete", "--list", "a", "b"],
        ["undelete", "--list", "-r", "a"],
    ):
        tree(*arguments, code=2)
    assert "no such list" in tree("rm", "--files-from", "nowhere", code=4).err
    assert "longer than" in tree("rm", "--files-from", "-", stdin=b"x" * 200_000, code=2).err
    assert paths(tree) == set(TREE)


def test_names_from_a_list(tree: Cafcat) -> None:
    """Names are separated by NUL as by `find -0`. They may have newlines and bytes that are not UTF-8."""
    names = tree("find", "tree/odd", "-0").out
    done = tree("rm", "--files-from", "-", "-0", "tree/a.txt", stdin=names + b"\xff\0", code=3)
    assert done.text.startswith("removed 8 files (")
    assert done.err == "cafcat: \\udcff: the catalog has no such file\n"
    (tree.folder / "list").write_bytes(b"tree/a.txt\n\ntree/odd/-dash")
    assert tree("undelete", "--files-from", "list").text.startswith("brought back 2 files (")
    assert tree("undelete", "--files-from", "-", "-0", stdin=names, code=3).text.startswith(
        "brought back 6 files ("
    )
    assert paths(tree) == set(TREE)


def test_undelete_refuses_newer_and_pruned_files(tree: Cafcat) -> None:
    tree("rm", "-r", "tree", "--yes")
    (tree.folder / "other").write_bytes(b"other")
    tree("ingest", "other", "tree/a.txt", "-q")
    assert "a newer file has this path" in tree("undelete", "tree/a.txt", code=1).err
    assert tree("undelete", "tree/a.txt", "--json", code=1).error["kind"] == "conflict"
    several = tree("undelete", "tree/a.txt", "tree/empty", code=3)
    assert several.text == "brought back 1 file (0 B); left alone 1 that have a file again\n"
    tree("rm", "tree/empty")
    tree("prune", "--grace", "0", "--yes")
    pattern = tree("undelete", "tree/b.*", code=4).err
    assert "no removed file that can come back matches this pattern (path 'tree/b.*')" in pattern
    gone = tree("undelete", "tree/b.bin", code=4)
    assert "no longer exist" in gone.err
    assert tree("undelete", "-r", "tree", code=3).text == (
        "brought back 0 files (0 B); left alone 1 that have a file again; gone for good with their chunks: 12\n"
    )
    assert tree("undelete", "--list").text == ""


def test_undelete_of_a_folder_only_counts_the_files_that_it_leaves_alone(tree: Cafcat) -> None:
    tree("rm", "-r", "tree", "--yes")
    tree("ingest", "tree", "-q")
    count = f"left alone {len(TREE)} that have a file again"
    assert count in tree("undelete", "-r", "tree", code=3).text
    [document] = tree("undelete", "-r", "tree", "--json", code=3).documents
    assert document["summary"]["files_live"] == len(TREE)
    assert len(tree("undelete", "-r", "tree", "--json", "-v", code=3).documents) == len(TREE) + 1
    tree("rm", "tree/a.txt")
    some = f"brought back 1 file (11 B); left alone {len(TREE) - 1} that have a file again\n"
    assert tree("undelete", "-r", "tree").text == some


def test_only_a_dot_means_the_whole_catalog(tree: Cafcat) -> None:
    """A path of an adopted archive may begin with a slash, so that its folder looks like the root."""
    assert "write . for the whole catalog" in tree("rm", "-r", "/", "--yes", code=2).err
    assert paths(tree) == set(TREE)


def test_reading_a_removed_file_names_undelete(tree: Cafcat) -> None:
    tree("rm", "tree/a.txt")
    hint = "it was removed; `cafcat undelete tree/a.txt` brings it back"
    for verb in ("rm", "ls", "find", "du"):
        assert hint in tree(verb, "tree/a.txt", code=4).err
    assert "`cafcat find --name no` looks for a file of this name" in tree("rm", "tree/no", code=4).err
    assert r"`cafcat find --name 'b\\c'` looks for" in tree("get", r"tree/b\c", code=4).err
    for verb in ("get", "cat", "stat", "url"):
        assert hint in tree(verb, "tree/a.txt", code=4).err
    tree("prune", "--grace", "0", "--yes")
    assert tree("rm", "-r", "tree", "--yes", "-q").code == 0
    tree("prune", "--grace", "0", "--yes")
    for verb in ("get", "cat", "stat", "url"):
        assert "it was removed; its chunk was pruned or lost" in tree(verb, "tree/a.txt", code=4).err


def test_a_file_that_was_removed_twice_is_one_removed_file(tree: Cafcat) -> None:
    (tree.folder / "tree" / "a.txt").write_bytes(b"other")
    tree("rm", "tree/a.txt", "-q")
    tree("ingest", "tree", "-q")
    tree("rm", "tree/a.txt", "-q")
    [row] = tree("query", "removed", "--json").documents
    assert (row["file_path"], row["size_bytes"]) == ("tree/a.txt", 5)
    assert tree("query", "removed-total", "--json").document["files"] == 1


def test_the_name_of_a_removed_folder_names_undelete(tree: Cafcat) -> None:
    tree("rm", "-r", "tree", "--yes", "-q")
    hint = "files below it were removed; `cafcat undelete -r tree` brings them back"
    for words in (["ls"], ["find"], ["du"], ["get"], ["rm", "-r", "--yes"], ["extract", "-C", "out"]):
        assert hint in tree(*words, "tree", code=4).err, words
        assert hint in tree(*words, "tree/", code=4).err, words
    (tree.folder / "tree" / "new").write_bytes(b"new")
    tree("ingest", "tree/new", "--prefix", "tree/sub", "-q")
    assert tree("ls", "tree").out
    for words in (["rm"], ["get"], ["extract", "-C", "out"]):  # the folder is there again
        assert hint not in tree.unchecked(*words, "tree").err, words
    tree("rm", "-r", "tree", "--yes", "-q")
    for verb in ("ls", "find"):
        assert "no files any more: `cafcat undelete --list` lists the removed files" in tree(verb).err
    tree("prune", "--grace", "0", "--yes")
    assert "were removed" not in tree("ls", "tree", code=4).err
    assert "`cafcat ingest FOLDER` packs a folder" in tree("ls").err


def test_proposed_commands_have_names_that_a_shell_reads(cafcat: Cafcat) -> None:
    """A name can begin with a dash, or have a newline. Names may have "./" before them, as in other commands."""
    names = ["-dash", "new\nline's"]
    for name in names:
        (cafcat.folder / name).write_bytes(name.encode())
    cafcat("ingest", "-q", "--", *names)
    cafcat("rm", "./-dash", "./new\nline's")
    for name, word in zip(names, ["./-dash", r"$'new\012line\'s'"], strict=True):
        assert f"`cafcat undelete {word}` brings it back" in cafcat("cat", "--", name, code=4).err
        undeleted = ["bash", "-c", f"printf %s {word}"]
        given = subprocess.run(undeleted, check=True, capture_output=True).stdout.decode()
        assert cafcat("undelete", given).lines == [f"brought back 1 file ({len(name)} B)"]
        assert cafcat("query", "history", given).lines
        assert cafcat("cat", given).text == name
    assert "no removed file has this name" in cafcat("undelete", "./no", code=4).err


def test_history_shows_the_reason(tree: Cafcat) -> None:
    tree("rm", "tree/a.txt")
    tree("ingest", "tree/a.txt", "-q")
    [line] = [line for line in tree("stat", "tree/a.txt").lines if line.startswith("before")]
    assert line.endswith(" (removed)")
    [before] = tree("stat", "tree/a.txt", "--json").document["history"]
    assert (before["reason"], before["run"]) == ("removed", None)


def test_missing_store_is_a_warning(tree: Cafcat) -> None:
    (tree.folder / "store").rename(tree.folder / "unmounted")
    result = tree("rm", "tree/a.txt")
    assert result.text == "removed 1 file (11 B)\n"
    assert re.match(
        r"cafcat: warning: the journal record could not be written to file:.*store: .*mounted.*recover", result.err
    )
    summary = tree("rm", "tree/b.bin", "--json").document["summary"]
    assert summary["stores_behind"] == [(tree.folder / "store").as_uri()]
    (tree.folder / "unmounted").rename(tree.folder / "store")
    before = len(list((tree.folder / "store" / "journal").iterdir()))
    assert tree("recover").text == "wrote 2 journal records into the store\n"
    assert tree("recover").text == "nothing to recover\n"
    assert len(list((tree.folder / "store" / "journal").iterdir())) == before + 2


def test_on_s3(cafcat: Cafcat, s3_bucket: str, s3_environment: None) -> None:
    remote = Cafcat(cafcat.folder, cafcat.database_url, {"CAFCAT_STORE": f"s3://{s3_bucket}/chunks"})
    (remote.folder / "f").write_bytes(b"content")
    remote("ingest", "f", "-q")
    assert remote("rm", "f").text == "removed 1 file (7 B); 1 chunk has no file left\n"
    assert remote("undelete", "--list", "--json").document["object"].startswith(f"s3://{s3_bucket}/chunks/")
    assert remote("undelete", "f").text == "brought back 1 file (7 B)\n"
    assert remote("cat", "f").out == b"content"


@pytest.mark.parametrize("presses", [1, 2])
def test_ctrl_c_finishes_or_drops_the_removal(tree: Cafcat, presses: int) -> None:
    """The removal waits for a lock that the test holds until the signals have arrived."""
    result, said = interrupted(tree, "rm", "tree/a.txt", presses=presses)
    assert all("cafcat: " in line for line in said)
    if presses == 1:
        assert (result.code, result.text) == (0, "removed 1 file (11 B)\n")
    else:
        assert (result.code, result.text) == (130, "")
        assert "interrupted; nothing was removed" in result.err
    assert paths(tree) == set(TREE) - ({"tree/a.txt"} if presses == 1 else set())


@pytest.mark.parametrize("arguments", [("-r", "tree"), ("tree/*.txt",)])
def test_ctrl_c_during_the_count_asks_nothing(tree: Cafcat, arguments: tuple[str, ...]) -> None:
    result, [said] = interrupted(tree, "rm", *arguments, mode="ACCESS EXCLUSIVE")
    assert said.startswith("cafcat: finishing the count; press Ctrl-C again to drop it")
    assert (result.code, result.text) == (130, "")
    assert "interrupted; nothing was removed" in result.err
    assert paths(tree) == set(TREE)
