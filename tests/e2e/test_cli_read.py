"""get, cat, extract, inspect."""

import json
import os
from pathlib import Path

import pytest

from tests.e2e.conftest import BIG, MODIFIED, TREE, Cafcat, write_tree
from tests.worlds.archives.damage import flip


def test_get_copies_to_the_current_folder(filled: Cafcat, tmp_path: Path) -> None:
    result = filled("get", "tree/a.txt", "tree/odd/-dash", "tree/odd/new\nline", "tree/empty", cwd=tmp_path)
    assert (result.out, result.err) == (b"", "")
    names = {"a.txt", "-dash", "new\nline", "empty"}
    assert {path.name for path in tmp_path.iterdir()} == names
    for path, content in TREE.items():
        name = path.rsplit("/", 1)[-1]
        assert name not in names or (tmp_path / name).read_bytes() == content
    assert (tmp_path / "a.txt").stat().st_mtime_ns == MODIFIED * 10**9 + 123_456_000


def test_get_never_overwrites_without_force(filled: Cafcat, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"mine")
    for byte_range in ([], ["--range", "0-2"]):
        error = filled("get", "tree/a.txt", *byte_range, "--json", code=1, cwd=tmp_path).error
        assert error["kind"] == "conflict"
    assert "a.txt" in filled("get", "tree/a.txt", code=1, cwd=tmp_path).err
    assert filled("get", "tree/a.txt", "tree/b.bin", code=3, cwd=tmp_path).err.count("\n") == 1
    assert (tmp_path / "a.txt").read_bytes() == b"mine"
    assert (tmp_path / "b.bin").read_bytes() == TREE["tree/b.bin"]
    filled("get", "-f", "tree/a.txt", cwd=tmp_path)
    assert (tmp_path / "a.txt").read_bytes() == TREE["tree/a.txt"]
    assert {path.name for path in tmp_path.iterdir()} == {"a.txt", "b.bin"}


def test_get_to_a_name_a_folder_or_stdout(filled: Cafcat, tmp_path: Path) -> None:
    document = filled("get", "tree/b.bin", "-o", tmp_path / "other", "--json").document
    assert document["path"] == "tree/b.bin"
    assert Path(document["output"]) == tmp_path / "other"
    assert (tmp_path / "other").read_bytes() == TREE["tree/b.bin"]
    filled("get", "tree/a.txt", "tree/b.bin", "-o", tmp_path)
    assert (tmp_path / "b.bin").read_bytes() == TREE["tree/b.bin"]
    assert filled("get", "tree/a.txt", "-o", "-").out == TREE["tree/a.txt"]
    filled("get", "tree/b.bin", "--range", "10-19", "-o", tmp_path / "part")
    assert (tmp_path / "part").read_bytes() == TREE["tree/b.bin"][10:20]
    filled("get", "tree/a.txt", "tree/b.bin", "-o", tmp_path / "part", code=2)
    filled("get", "tree/a.txt", "-o", tmp_path / "no" / "such" / "folder", code=1)
    for folder in (".", "../"):
        assert f"PATH... -o {folder}`" in filled("get", "tree/a.txt", folder, code=2, cwd=tmp_path).err
    assert {path.name for path in tmp_path.iterdir()} == {"other", "a.txt", "b.bin", "part"}


def test_two_files_of_one_base_name_are_not_written_over_each_other(cafcat: Cafcat) -> None:
    for folder in ("x", "y"):
        (cafcat.folder / folder).mkdir()
        (cafcat.folder / folder / "same").write_text(folder)
    cafcat("ingest", "x", "y")
    assert "same base name" in cafcat("get", "-f", "x/same", "y/same", code=2).err
    assert not (cafcat.folder / "same").exists()


def test_cat(filled: Cafcat) -> None:
    assert filled("cat", "tree/a.txt", "tree/empty", "./tree/big.dat").out == TREE["tree/a.txt"] + BIG
    result = filled("cat", "tree/a.txt", "none", "tree/b.bin", code=3)
    assert result.out == TREE["tree/a.txt"] + TREE["tree/b.bin"]
    assert "'none'" in result.err
    assert filled("cat", "none", "--json", code=4).error["kind"] == "not_found"
    assert filled("cat", "tree/a.txt", "--json").out == TREE["tree/a.txt"]


@pytest.mark.parametrize(
    ("byte_range", "start", "end"),
    [
        ("0-99", 0, 100),
        ("1048570-1048590", 1_048_570, 1_048_591),
        ("-100", -100, None),
        ("3000000-99999999", 3_000_000, None),
    ],
)
def test_ranges_are_inclusive(filled: Cafcat, byte_range: str, start: int, end: int | None) -> None:
    assert filled("cat", "tree/big.dat", "--range", byte_range).out == BIG[start:end]


def test_ranges_that_make_no_sense(filled: Cafcat) -> None:
    assert "byte range" in filled("cat", "tree/a.txt", "--range", "9-1", code=2).err
    assert "11 bytes" in filled("cat", "tree/a.txt", "--range", "11-", code=2).err


def test_several_files_of_which_some_cannot_be_had(filled: Cafcat, tmp_path: Path) -> None:
    (tmp_path / "b.bin").write_bytes(b"mine")
    paths = ["tree/none", "tree/folder", "tree/b.bin", "tree/a.txt", "./tree/big.dat"]
    result = filled("get", *paths, "-o", tmp_path, "--json", code=3)
    errors = [json.loads(line)["error"] for line in result.err.splitlines()]
    assert [(error["kind"], error["path"]) for error in errors] == [
        ("not_found", "tree/folder"),
        ("not_found", "tree/none"),
        ("conflict", str(tmp_path / "b.bin")),
    ]
    assert {document["path"] for document in result.documents} == {"tree/a.txt", "tree/big.dat"}
    assert all(Path(document["output"]).parent == tmp_path for document in result.documents)
    assert (tmp_path / "b.bin").read_bytes() == b"mine"
    assert (tmp_path / "big.dat").read_bytes() == BIG
    short = filled("get", "tree/a.txt", "tree/b.bin", "--range", "100-", "-f", "-o", tmp_path, code=3)
    assert "11 bytes" in short.err
    assert (tmp_path / "b.bin").read_bytes() == TREE["tree/b.bin"][100:]


def test_cat_keeps_the_order_of_its_arguments(filled: Cafcat) -> None:
    paths = ["tree/odd/-dash", "tree/big.dat", "tree/a.txt", "tree/empty", "tree/odd/-dash", "tree/b.bin"]
    assert filled("cat", *paths).out == b"".join(TREE[path] for path in paths)
    assert filled("get", *paths, "-o", "-").out == b"".join(TREE[path] for path in paths)
    assert filled("cat", *paths[:3], "--range", "2-4").out == b"".join(TREE[path][2:5] for path in paths[:3])
    result = filled("cat", "tree/b.bin", "tree/a.txt", "tree/big.dat", "--range", "100-199", code=3)
    assert result.out == TREE["tree/b.bin"][100:200] + BIG[100:200]


def test_explain_shows_the_plan_and_reads_nothing(cafcat: Cafcat) -> None:
    write_tree(cafcat.folder)
    cafcat("ingest", "tree")
    place = cafcat("locate", "tree/a.txt", "--json").document
    Path(place["object"]).unlink()
    size = sum(map(len, TREE.values()))
    plan = cafcat("extract", "-C", "out", "--explain", "--json").document
    counts = {"files": len(TREE), "requests": 1, "bytes_wanted": size, "bytes_read": size}
    chunk = {"chunk": place["chunk"], "object": place["object"]}
    assert plan == counts | {"chunks": [chunk | counts]}
    assert cafcat("extract", "tree", "-C", "out", "--explain", "--json").document == plan
    for verb in (["cat"], ["get"], ["get", "-o", "-"], ["get", "-o", "out"]):
        plan = cafcat(*verb, "tree/a.txt", "--range", "2-4", "--explain", "--json").document
        assert (plan["files"], plan["requests"], plan["bytes_wanted"], plan["bytes_read"]) == (1, 1, 3, 3)
    assert not (cafcat.folder / "out").exists()
    lines = cafcat("get", "tree/a.txt", "tree/big.dat", "tree/empty", "--explain").lines
    assert [line.split()[:2] for line in lines[:5]] == [
        ["files", "3"],
        ["requests", "1"],
        ["bytes_wanted", str(len(BIG) + 11)],
        ["bytes_read", str(len(BIG) + 11 + len(TREE["tree/b.bin"]))],
        ["chunks", "1"],
    ]
    [line] = lines[5:]
    assert line.startswith(f"{place['chunk']}  1 request for 3 files, 3.0 MB of 3.0 MB wanted, ")
    assert line.endswith(place["object"])


def test_explain_of_missing_files(filled: Cafcat) -> None:
    assert filled("get", "none", "--explain", "--json", code=4).error["path"] == "none"
    assert filled("cat", "none", "--explain", code=4).out == b""
    filled("extract", "none", "-C", "out", "--explain", code=4)
    result = filled("cat", "none", "tree/a.txt", "--explain", "--json", code=3)
    assert result.document["files"] == 1
    assert result.error["path"] == "none"
    assert filled("get", "tree/a.txt", "tree/folder/../a.txt", "--explain", code=3).err.count("\n") == 1


def test_extract_restores_the_tree(filled: Cafcat, tmp_path: Path) -> None:
    out = filled("extract", "-C", tmp_path / "all").text
    assert out.startswith(f"extracted {len(TREE)} files, 3.0 MB")
    for number, (path, content) in enumerate(TREE.items()):
        assert (tmp_path / "all" / path).read_bytes() == content
        assert (tmp_path / "all" / path).stat().st_mtime_ns == (MODIFIED + number) * 10**9 + 123_456_000
    summary = filled("extract", "tree/folder", "-C", tmp_path / "part", "--json").documents[-1]["summary"]
    assert summary == {
        "files": 2,
        "bytes": 2001,
        "files_failed": 0,
        "failed": [],
        "interrupted": False,
        "files_skipped": 0,
        "files_there": 0,
    }
    assert [name for _, _, names in os.walk(tmp_path / "part") for name in names] == ["c.txt", "d.TXT"]
    assert filled("extract", ".", "-C", tmp_path / "dot", "-q").out == b""
    assert (tmp_path / "dot" / "tree" / "a.txt").exists()


def test_outputs_that_cannot_be_written_name_the_next_step(filled: Cafcat, tmp_path: Path) -> None:
    """An unset variable in -C "$FOLDER" must not fill the present folder."""
    error = filled("extract", "-C", "", "--json", code=2).error
    assert (error["message"], error["hint"]) == ("-C has no folder", "for the present folder, write -C .")
    error = filled("get", "tree/a.txt", "-o", str(tmp_path / "none/x"), "--json", code=1).error
    assert error["hint"] == f"make the folder {tmp_path / 'none'} first"


def test_extract_lists_existing_files_as_problems(filled: Cafcat, tmp_path: Path) -> None:
    (tmp_path / "tree/folder").mkdir(parents=True)
    (tmp_path / "tree/folder/c.txt").write_bytes(b"mine")
    result = filled("extract", "tree/folder", "-C", tmp_path, code=3)
    assert "tree/folder/c.txt: " in result.err
    assert "failed 1 (--force overwrites existing files)" in result.text
    problem, summary = filled("extract", "tree/folder/c.txt", "-C", tmp_path, "--json", code=3).documents
    assert problem["problem"]["path"] == "tree/folder/c.txt"
    assert summary["summary"]["failed"] == [problem["problem"]]
    assert (tmp_path / "tree/folder/c.txt").read_bytes() == b"mine"
    filled("extract", "tree/folder", "-C", tmp_path, "-f")
    assert (tmp_path / "tree/folder/c.txt").read_bytes() == TREE["tree/folder/c.txt"]
    filled("extract", "none", "-C", tmp_path, code=4)
    filled("extract", "tree", code=2)


def test_damage_is_found_and_named(cafcat: Cafcat) -> None:
    (cafcat.folder / "f").write_bytes(b"content of f")
    (cafcat.folder / "g").write_bytes(b"content of g")
    cafcat("ingest", "f", "g")
    place = cafcat("locate", "f", "--json").document
    with Path(place["object"]).open("r+b") as archive:
        archive.seek(place["start_byte"])
        archive.write(b"C")
    error = cafcat("get", "f", "-o", "out", "--json", code=5).error
    assert (error["kind"], error["path"], error["chunk"]) == ("corrupt", "f", place["chunk"])
    assert error["byte"] == place["start_byte"]
    assert not (cafcat.folder / "out").exists()
    result = cafcat("cat", "f", "g", code=3)
    assert result.out == b"content of g"
    assert place["chunk"] in result.err
    assert cafcat("extract", "-C", "tree", code=5).err.startswith("cafcat: f: ")
    assert (cafcat.folder / "tree/g").read_bytes() == b"content of g"


def test_inspect_needs_no_catalog(filled: Cafcat, tmp_path: Path) -> None:
    place = filled("locate", "tree/a.txt", "--json").document
    alone = Cafcat(tmp_path, "postgresql://nobody@127.0.0.1:1/none")
    documents = alone("inspect", place["object"], "--json").documents
    assert {document["path"]: document["size_bytes"] for document in documents} == {
        path: len(content) for path, content in TREE.items()
    }
    expected = {key: value for key, value in place.items() if key not in ("chunk", "command")}
    assert expected in documents
    assert len(alone("inspect", place["object"]).out) == sum(len(path.encode()) + 1 for path in TREE)
    assert f"{place['crc32c']:08x}" in alone("inspect", "-l", place["object"]).text
    assert "format caf" in alone("inspect", "-v", place["object"]).err


def test_inspect_refuses_other_files_and_damaged_archives(filled: Cafcat, tmp_path: Path) -> None:
    alone = Cafcat(tmp_path, None)
    alone("inspect", "none", code=4)
    (tmp_path / "text").write_text("hello")
    assert alone("inspect", "text", "--json", code=1).error["kind"] == "unsupported"
    archive = Path(filled("locate", "tree/a.txt", "--json").document["object"])
    (tmp_path / "damaged.caf").write_bytes(archive.read_bytes().replace(b'"start_byte"', b'"start_bite"', 1))
    assert alone("inspect", "damaged.caf", "--json", code=5).error["kind"] == "corrupt"


def test_damage_without_a_copy_names_the_repair(cafcat: Cafcat) -> None:
    (cafcat.folder / "tree").mkdir()
    (cafcat.folder / "tree" / "a").write_bytes(b"content")
    cafcat("ingest", "tree", "-q")
    [chunk] = (cafcat.folder / "store").glob("*.caf")
    flip(chunk, 0)
    for arguments in (["get", "tree/a", "-o", "out"], ["cat", "tree/a"], ["extract", "-C", "out"]):
        assert f"run cafcat repair --chunk {chunk.stem}" in cafcat(*arguments, code=5).err
    chunk.unlink()
    assert f"run cafcat repair --chunk {chunk.stem}" in cafcat("cat", "tree/a", code=5).err


def test_parents_make_the_folder_of_the_output(cafcat: Cafcat) -> None:
    (cafcat.folder / "tree").mkdir()
    (cafcat.folder / "tree" / "a").write_bytes(b"content")
    cafcat("ingest", "tree", "-q")
    cafcat("get", "tree/a", "--parents", "-o", "new/folder")
    assert (cafcat.folder / "new/folder/tree/a").read_bytes() == b"content"
    assert "must be an existing folder" in cafcat("get", "tree/*", "tree/a", "-o", "other", code=2).err
