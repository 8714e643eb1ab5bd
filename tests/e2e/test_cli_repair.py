"""repair: output and exit codes."""

import re
from dataclasses import fields
from pathlib import Path

from cafcat.operations.repair.report import RepairReport
from tests.e2e.conftest import TREE, Cafcat, documented_keys, write_tree


def damage(cafcat: Cafcat) -> str:
    """Damage the bytes of tree/b.bin in its chunk, and return the chunk's uuid."""
    document = cafcat("locate", "tree/b.bin", "--json").document
    path = Path(document["object"])
    data = bytearray(path.read_bytes())
    data[document["start_byte"]] ^= 1
    path.write_bytes(data)
    return str(document["chunk"])


def damaged(cafcat: Cafcat) -> str:
    """Damage a file of a chunk, let verify find the damage, and return the chunk's uuid."""
    write_tree(cafcat.folder)
    cafcat("ingest", "tree", "-q")
    chunk = damage(cafcat)
    cafcat("verify", "--level", "data", "-q", code=5)
    return chunk


def test_nothing_to_repair(cafcat: Cafcat) -> None:
    nothing = "nothing to repair: no live file is known to be damaged (cafcat verify looks for damage)\n"
    assert cafcat("repair", "--from-copy").text == nothing
    assert cafcat("repair", "--from-copy", "-q").out == b""
    summary = cafcat("repair", "--from-copy", "--yes", "--json").document["summary"]
    assert set(summary) == {field.name for field in fields(RepairReport)}
    assert not any(summary.values())


def test_all_keys_are_documented() -> None:
    assert {field.name for field in fields(RepairReport)} <= documented_keys("repair")


def test_repair_shows_its_plan_and_needs_yes(cafcat: Cafcat) -> None:
    chunk = damaged(cafcat)
    files = f"files: {len(TREE) - 1} empty or right in their chunk, 0 from copies, 1 from sources, 0 lost"
    dry = cafcat("repair", "--from-source", "tree", "--dry-run")
    assert dry.lines == [f"would repair 1 of 1 chunk, and pack {len(TREE)} files into new chunks", files]
    unasked = cafcat("repair", "--from-source", "tree", "-q", code=9)
    assert "nothing was done, because nobody can be asked; run it again with --yes" in unasked.err
    cafcat("cat", "tree/b.bin", code=5)
    done = cafcat("repair", "--from-source", "tree", "--yes", "-v")
    assert re.fullmatch(r"repaired 1 of 1 chunk, by 1 new chunk \(3\.\d MB\)", done.lines[0])
    assert done.lines[1:] == [files]
    assert "committed chunk" in done.err
    assert {path: cafcat("cat", "--", path).out for path in ("tree/b.bin", "tree/big.dat")} == {
        path: TREE[path] for path in ("tree/b.bin", "tree/big.dat")
    }
    assert cafcat("chunks", "show", chunk, "--json").document["state"] == "retired"
    assert cafcat("db", "check").text == "nothing is wrong\n"
    assert cafcat("repair", "--from-source", "tree").text.startswith("nothing to repair")
    assert cafcat("ingest", "tree", "--json").document["summary"]["files_unchanged"] == len(TREE)


def test_repair_from_a_copy(cafcat: Cafcat) -> None:
    write_tree(cafcat.folder)
    cafcat("ingest", "tree", "-q")
    cafcat("copy", "--all", "--to", cafcat.folder / "copies", "-q")
    location = cafcat("locate", "tree/b.bin", "--json").document
    Path(location["object"]).unlink()
    (cafcat.folder / "store" / "keep").write_bytes(b"")
    result = cafcat("repair", "--from-copy", "--yes", "--chunk", location["chunk"][:8], "--json")
    summary = result.documents[-1]["summary"]
    assert (summary["files_kept"], summary["files_from_copy"]) == (1, len(TREE) - 1)  # one file is empty
    assert summary["chunks_mended"] == 1
    assert f"chunk {location['chunk']} cannot be read" in result.err
    (cafcat.folder / "copies").rename(cafcat.folder / "gone")
    assert cafcat("cat", "tree/b.bin").out == TREE["tree/b.bin"]


def test_the_query_for_damage_shows_whether_a_live_file_needs_the_bytes_now(cafcat: Cafcat) -> None:
    def is_live() -> bool:
        [known] = cafcat("query", "damaged", "--json").documents
        return bool(known["is_live"])

    damaged(cafcat)
    assert is_live()
    cafcat("rm", "tree/b.bin", "-q")
    assert not is_live(), "the other files of the chunk are not damaged"
    cafcat("undelete", "tree/b.bin", "-q", code=5)
    assert is_live()
    cafcat("repair", "--from-source", "tree", "--yes", "-q")
    assert not is_live()


def test_a_store_out_of_reach_is_named_with_exit_code_3(cafcat: Cafcat) -> None:
    write_tree(cafcat.folder)
    cafcat("ingest", "tree", "-q")
    (cafcat.folder / "store").rename(cafcat.folder / "moved")
    (cafcat.folder / "second").mkdir()
    cafcat("verify", code=3)
    result = cafcat("repair", "--store", "second", code=3)
    store = (cafcat.folder / "store").as_uri()
    assert f"cannot find the store {store}: its folder does not exist" in result.err
    assert f"cafcat store rm {store} --lost" in result.err
    assert result.text.startswith(
        "nothing to repair: no live file is known to be damaged in the stores within reach"
    )
    assert cafcat("repair", "--store", "second", "--json", code=3).document["summary"]["stores_out_of_reach"] == 1


def test_no_copy_into_a_store_out_of_reach_is_proposed(cafcat: Cafcat) -> None:
    write_tree(cafcat.folder)
    cafcat("ingest", "tree", "-q")
    for name in ("second", "third"):
        cafcat("copy", "--all", "--to", f"./{name}", "-q")
    chunk = damage(cafcat)
    cafcat("verify", "--level", "data", "-q", code=5)
    (cafcat.folder / "second").rename(cafcat.folder / "moved")
    result = cafcat("repair", "--from-copy", "--yes", code=3)
    assert "cannot find the store" in result.err
    third = (cafcat.folder / "third").as_uri()
    assert result.lines[-1] == (
        f"the new chunks have no second copy yet, unlike the old chunks: cafcat copy --all --to {third}"
    )
    assert cafcat("chunks", "show", chunk, "--json").document["state"] == "retired"


def test_a_store_that_lost_all_its_chunks_is_within_reach(cafcat: Cafcat) -> None:
    write_tree(cafcat.folder)
    cafcat("ingest", "tree", "-q")
    Path(cafcat("locate", "tree/b.bin", "--json").document["object"]).unlink()
    cafcat("verify", code=5)
    result = cafcat("repair", "--from-source", "tree", "--yes")
    assert result.text.startswith("repaired 1 of 1 chunk")
    assert "none of its newest objects" not in result.err


def test_lost_files_are_named_with_exit_code_5(cafcat: Cafcat) -> None:
    chunk = damaged(cafcat)
    (cafcat.folder / "tree" / "b.bin").write_bytes(bytes(256))
    for arguments in (["--from-source", "tree", "--dry-run"], ["--from-source", "tree", "--yes"]):
        result = cafcat("repair", *arguments, code=5)
        assert "cafcat: tree/b.bin: its source does not have the right bytes: its bytes are damaged" in result.err
        assert result.lines[1].endswith("1 lost")
    moved = f"{len(TREE) - 1} files moved into 1 new chunk"
    assert result.lines[0].startswith(f"repaired 0 of 1 chunk completely; {moved} (")
    assert cafcat("chunks", "show", chunk, "--json").document["state"] == "committed"
    problem, last = cafcat("repair", "--from-copy", "--json", code=5).documents
    assert (problem["problem"]["path"], problem["problem"]["kind"]) == ("tree/b.bin", "corrupt")
    assert (last["summary"]["files_lost"], last["summary"]["files"]) == (1, 1)


def test_without_options_copies_are_read(cafcat: Cafcat) -> None:
    write_tree(cafcat.folder)
    cafcat("ingest", "tree", "-q")
    cafcat("copy", "--all", "--to", cafcat.folder / "copies", "-q")
    damage(cafcat)
    cafcat("verify", "--level", "data", code=5)
    assert cafcat("repair", "--yes").lines[0].startswith("repaired 1 of 1 chunk")
    assert cafcat("cat", "tree/b.bin").out == TREE["tree/b.bin"]


def test_the_command_that_a_read_of_a_damaged_file_recommends_repairs_it(cafcat: Cafcat) -> None:
    """No verify has found the damage, so that `repair` without --chunk would not look at the chunk."""
    write_tree(cafcat.folder)
    cafcat("ingest", "tree", "-q")
    cafcat("copy", "--all", "--to", cafcat.folder / "copies", "-q")
    chunk = damage(cafcat)
    recommended = f"run cafcat repair --chunk {chunk}"
    assert recommended in cafcat("extract", "-C", "out").err
    assert recommended in cafcat("copy", "--all", "--to", "./third", code=5).err
    assert cafcat(*recommended.split()[2:], "--yes").lines[0].startswith("repaired 1 of 1 chunk")
    assert cafcat("extract", "-C", "again").err == ""


def test_without_copies_the_sources_are_recommended(cafcat: Cafcat) -> None:
    damaged(cafcat)
    result = cafcat("repair", "--dry-run", code=5)
    assert result.lines[0] == f"would repair 0 of 1 chunk, and pack {len(TREE) - 1} files into new chunks"
    reads = "cafcat repair --from-source SRC reads them there; give the --prefix of the ingest, if it had one"
    assert result.lines[-2] == f"lost files may be at their source: {reads}"
    assert result.lines[-1].startswith("to give up lost files: cafcat query damaged-files lists them")
    chunk = cafcat("locate", "tree/a.txt", "--json").document["chunk"]
    source, last = cafcat("repair", "--chunk", chunk, "--dry-run", code=5).lines[-2:]
    assert f"cafcat repair --chunk {chunk} --from-source SRC" in source
    assert f"cafcat verify --level data --chunk {chunk}, then cafcat query damaged-files" in last
    (cafcat.folder / "empty").mkdir()
    elsewhere = cafcat("repair", "--from-source", "empty", "--dry-run", code=5).lines
    assert f"lost files may be at another source: {reads}" in elsewhere
    assert "copies" not in " ".join(elsewhere[1:]).replace("0 from copies", "")
    (cafcat.folder / "other").write_bytes(b"other")
    cafcat("ingest", "other", "-q")
    cafcat("copy", "--all", "--to", "./second", "-q", code=5)
    elsewhere = cafcat("repair", "--from-source", "empty", "--dry-run", code=5).lines
    assert "lost files may be in copies of the chunks: --from-copy reads them, too" in elsewhere
    assert cafcat("repair", "--from-source", "tree", "--yes").lines[0].startswith("repaired 1 of 1 chunk")


def test_a_source_without_any_lost_file_is_named(cafcat: Cafcat) -> None:
    damaged(cafcat)
    (cafcat.folder / "wrong").mkdir()
    (cafcat.folder / "wrong" / "f").write_bytes(b"f")
    (cafcat.folder / "empty").mkdir()
    sources = ("--from-source", "wrong", "--from-source", "empty", "--from-source", "tree")
    repair = cafcat("repair", *sources, "--dry-run")
    example = "has none of the lost files, for example tree/b.bin"
    assert repair.err.splitlines() == [
        f"cafcat: warning: wrong {example}; its first file is wrong/f",
        f"cafcat: warning: empty {example}; it has no files",
    ]


def test_removed_files_stay_damaged_until_they_are_back(cafcat: Cafcat) -> None:
    write_tree(cafcat.folder)
    cafcat("ingest", "tree", "-q")
    damage(cafcat)
    cafcat("rm", "tree/b.bin", "--yes")
    cafcat("verify", "--level", "data")
    text = cafcat("repair", "--from-source", "tree", "--yes").text
    assert "1 removed file stays damaged: repair works on live files only; after undelete, run it again" in text
    back = cafcat("undelete", "tree/b.bin", code=5)
    assert (
        "tree/b.bin: this file is back, but verify found its bytes damaged or missing: run cafcat repair"
        in back.err
    )
    assert back.text == "brought back 1 file (256 B); 1 of them damaged\n"
    cafcat("repair", "--from-source", "tree", "--yes", "-q")
    assert cafcat("cat", "tree/b.bin").out == TREE["tree/b.bin"]


def test_wrong_arguments(cafcat: Cafcat) -> None:
    cafcat("repair", "--from-source", "nowhere", code=4)
    cafcat("repair", "--from-copy", "--chunk", "0123456789", code=4)
    cafcat("repair", "--from-copy", "--target-size", "33GB", code=2)
    for option in (["--prefix", "x"], ["--follow-symlinks"], ["--no-unpack"]):
        message = "--prefix, --follow-symlinks and --no-unpack are for --from-source only"
        assert message in cafcat("repair", *option, code=2).err


def test_names_and_standard_input_as_for_ingest(cafcat: Cafcat) -> None:
    import io
    import tarfile

    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w") as archive:
        member = tarfile.TarInfo("f")
        member.size = 7
        archive.addfile(member, io.BytesIO(b"content"))
    cafcat("ingest", "-", "--prefix", "a/b", stdin=sink.getvalue())
    location = cafcat("locate", "a/b/f", "--json").document
    Path(location["object"]).write_bytes(b"")
    arguments = ["repair", "--from-source", "-", "--prefix", "a/b", "--chunk", location["chunk"], "--yes"]
    assert cafcat(*arguments, stdin=sink.getvalue()).lines[0].startswith("repaired 1 of 1 chunk")
    assert cafcat("cat", "a/b/f").out == b"content"


def test_on_s3(cafcat: Cafcat, s3_bucket: str, s3_environment: None) -> None:
    remote = Cafcat(cafcat.folder, cafcat.database_url, {"CAFCAT_STORE": f"s3://{s3_bucket}/chunks"})
    write_tree(cafcat.folder)
    remote("ingest", "tree", "-q")
    chunk = remote("locate", "tree/b.bin", "--json").document["chunk"]
    assert "1 of 1 chunk" in remote("repair", "--from-copy", "--chunk", chunk, "--yes").text
    assert remote("cat", "tree/b.bin").out == TREE["tree/b.bin"]


def test_lost_rows_of_the_catalog_are_not_repaired(cafcat: Cafcat) -> None:
    """The object is right, so a new chunk would only hide that the catalog lacks its files."""
    (cafcat.folder / "tree").mkdir()
    for name in "abc":
        (cafcat.folder / "tree" / name).write_bytes(b"abc")
    cafcat("ingest", "tree", "-q")
    cafcat("sql", stdin=b"DELETE FROM file_locations WHERE file_path < 'tree/c'")
    *found, summary, remedy = cafcat("verify", code=5).lines
    assert [line.partition(": ")[2] for line in found] == [
        "mapping: the index of the object has 2 files that the catalog does not have, the first of them tree/a"
    ]
    assert "1 damaged" in summary
    assert remedy.startswith("to bring the rows back: cafcat restore")
    for arguments in (["--dry-run"], ["--yes"]):
        assert cafcat("repair", *arguments, code=5).lines == [
            "nothing that can be repaired",
            "left 1 chunk whose rows in the catalog are missing or wrong",
            remedy,
        ]
    assert cafcat("cat", "tree/c").out == b"abc"
