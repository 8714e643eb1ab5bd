"""ingest: output, exit codes and signals."""

import os
import re
import signal
import subprocess
from pathlib import Path

import psycopg
import pytest

from tests.e2e.conftest import WAITING_LOCKS, Cafcat
from tests.worlds.waiting import PATIENCE_SECONDS, wait_until

SUMMARY_KEYS = {
    "run",
    "files_seen",
    "files_added",
    "files_replaced",
    "files_gone",
    "files_removed",
    "files_unchanged",
    "files_compared",
    "files_skipped",
    "files_failed",
    "bytes_added",
    "chunks_committed",
    "files_of_earlier_run",
    "interrupted",
    "dry_run",
}


def paths(cafcat: Cafcat) -> list[str]:
    return [document["path"] for document in cafcat("ls", "-R", "--json").documents]


def test_ingest_and_again(cafcat: Cafcat) -> None:
    tree = cafcat.folder / "tree"
    tree.mkdir()
    (tree / "a").write_bytes(b"aa")
    (tree / "b").write_bytes(b"bbb")
    (tree / "link").symlink_to("a")
    lines = cafcat("ingest", "tree").lines
    assert lines[0] == "added 2 files, replaced 0, unchanged 0, skipped 1 (1 symlink), failed 0"
    assert lines[1].startswith("5 B in 1 chunk, ")
    (tree / "a").write_bytes(b"changed")
    documents = cafcat("ingest", "tree", "--json").documents
    assert documents[0]["problem"]["path"] == "tree/link"
    assert documents[0]["problem"]["kind"] == "symlink"
    summary = documents[-1]["summary"]
    assert set(summary) == SUMMARY_KEYS
    expected = {"files_added": 0, "files_replaced": 1, "files_unchanged": 1, "files_skipped": 1}
    assert expected.items() <= summary.items()
    assert not summary["interrupted"]
    result = cafcat("ingest", "tree", "-q")
    assert (result.out, result.err) == (b"", "")
    assert "committed chunk" in cafcat("ingest", "tree/a", "--prefix", "again", "-v").err
    assert paths(cafcat) == ["again/tree/a", "tree/a", "tree/b"]


def test_the_store_is_refused_as_a_source(cafcat: Cafcat) -> None:
    (cafcat.folder / "pics").mkdir()
    (cafcat.folder / "pics" / "a").write_bytes(b"a")
    error = cafcat("--store", "pics", "ingest", "pics", code=2).err
    assert error == "cafcat: pics is the store itself; name another folder to pack, or another store: --store\n"
    assert os.listdir(cafcat.folder / "pics") == ["a"]


def test_a_format_is_chosen_and_changed(cafcat: Cafcat) -> None:
    """`locate` prints the decoding of a file whose bytes are not stored as they are."""
    (cafcat.folder / "tree").mkdir()
    for name, content in FORMATTED.items():
        (cafcat.folder / "tree" / name).write_bytes(content)
    cafcat("ingest", "-q", "--format", "chunkio", "tree")
    [chunk] = cafcat("chunks", "ls", "--json").documents
    assert chunk["format"] == "chunkio"
    located = cafcat("locate", "--json", "tree/small").document
    assert (located["decoding"], located["size_bytes"]) == ("pieces", 5)
    assert located["end_byte"] - located["start_byte"] > 5
    lines = cafcat("locate", "tree/small").lines
    assert any(line.split() == ["decoding", "pieces"] for line in lines)
    assert lines[-1] == "cafcat cat -- tree/small"
    cafcat("repack", "-q", "--format", "car", "--yes")
    assert cafcat("chunks", "ls", "--state", "committed", "--json").document["format"] == "car"
    assert "decoding" not in cafcat("locate", "--json", "tree/small").document
    assert cafcat("locate", "--json", "tree/large").document["decoding"] == "sections"
    for name, content in FORMATTED.items():
        assert cafcat("cat", f"tree/{name}").out == content
    assert cafcat("db", "check").text == "nothing is wrong\n"
    for verb in (["ingest", "tree"], ["repack"]):
        assert "no format 'zip'" in cafcat(*verb, "--format", "zip", code=2).err
    assert cafcat("repack", "--format", "clp-s", "--json", code=1).error["kind"] == "unsupported"


FORMATTED = {"small": b"small", "empty": b"", "large": bytes(range(256)) * 9000}


def test_a_failed_file_is_listed_and_makes_3(cafcat: Cafcat) -> None:
    (cafcat.folder / "good").write_bytes(b"1")
    Path(os.fsdecode(os.fsencode(cafcat.folder) + b"/bad\xff")).write_bytes(b"2")
    result = cafcat("ingest", ".", "--exclude", "home", "--exclude", "store", code=3)
    assert len(result.err.splitlines()) == 1
    assert result.err.endswith("not valid UTF-8: rename the file (convmv renames whole folders)\n")
    assert "bad" in result.err
    assert "failed 1 (1 name)" in result.text
    result = cafcat("ingest", ".", "--json", "--include", "bad*", code=3)
    assert result.documents[0]["problem"]["kind"] == "name"
    assert result.documents[-1]["summary"]["files_failed"] == 1
    assert paths(cafcat) == ["good"]


def test_options_that_select_files(cafcat: Cafcat) -> None:
    for name in ("a.txt", "b.tmp", "c.txt", "new\nline"):
        (cafcat.folder / name).write_text(name)
    dry = cafcat("ingest", "a.txt", "b.tmp", "--dry-run", "--exclude", "*.tmp")
    assert dry.lines[0] == "+ a.txt"
    assert dry.lines[1].startswith("would add 1 file, ")
    assert re.fullmatch(r"5 B to pack, \d+\.\d s", dry.lines[2])
    assert paths(cafcat) == []
    cafcat("ingest", "--files-from", "-", "-0", stdin=b"a.txt\0new\nline\0")
    (cafcat.folder / "list").write_text("c.txt\n")
    cafcat("ingest", "--files-from", "list", "--prefix", "p")
    assert paths(cafcat) == ["a.txt", "new\nline", "p/c.txt"]
    (cafcat.folder / "d").symlink_to("a.txt")
    cafcat("ingest", "d", "--follow-symlinks", "--target-size", "1MB")
    assert cafcat("cat", "d").out == b"a.txt"


def test_a_source_that_does_not_exist(cafcat: Cafcat) -> None:
    for typed in ("s4://bucket/x", "remote:x"):
        assert "a bucket is written s3://BUCKET/PREFIX" in cafcat("ingest", typed, "--json", code=4).error["hint"]
    assert cafcat("ingest", "nosuch", "--json", code=4).error["hint"] == f"the present folder is {cafcat.folder}"


def test_on_conflict(cafcat: Cafcat) -> None:
    file = cafcat.folder / "f"
    file.write_bytes(b"one")
    cafcat("ingest", "f")
    file.write_bytes(b"other")
    assert "skipped 1 (1 conflict)" in cafcat("ingest", "f", "--on-conflict", "skip").text
    error = cafcat("ingest", "f", "--on-conflict", "fail", "--json", code=1).error
    assert (error["kind"], error["path"]) == ("conflict", "f")
    assert cafcat("cat", "f").out == b"one"
    cafcat("ingest", "f")
    assert cafcat("cat", "f").out == b"other"


def test_an_error_comes_after_the_summary_of_the_committed_files(cafcat: Cafcat) -> None:
    (cafcat.folder / "c").write_bytes(b"one")
    cafcat("ingest", "c")
    for name in ("a", "b", "c"):
        (cafcat.folder / name).write_bytes(bytes(20_000))
    ingest = ("ingest", "a", "b", "c", "--on-conflict", "fail", "--target-size", "10kB")
    result = cafcat(*ingest, code=1)
    assert result.lines[0] == "ended early; added 1 file, replaced 0, unchanged 0, skipped 0, failed 0"
    assert result.lines[1].startswith("20.0 kB in 1 chunk, ")
    assert cafcat("ls").lines == ["a", "c"]
    again = cafcat(*ingest, "--json", code=1)
    assert again.documents[-1]["summary"]["files_unchanged"] == 1
    assert again.error["kind"] == "conflict"


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ([], 2),
        (["--files-from", "none"], 4),
        ([".", "--target-size", "much"], 2),
        ([".", "--target-size", "33GB"], 2),
    ],
)
def test_sources_that_cannot_be_ingested(cafcat: Cafcat, arguments: list[str], code: int) -> None:
    assert cafcat("ingest", *arguments, code=code).err.count("\n") == 1


BATCH = 5000
"""Number of names in a batch; the ingest of a batch begins when all of its names are read."""
READ_BYTES = 1 << 16
"""Bytes of a list that are read at once. Empty lines fill the rest."""


@pytest.fixture
def many(cafcat: Cafcat) -> Cafcat:
    (cafcat.folder / "many").mkdir()
    for number in range(BATCH):
        (cafcat.folder / f"many/{number:04}").write_bytes(b"%d" % number)
    return cafcat


def start_and_wait_for_a_chunk(cafcat: Cafcat, *options: str) -> "subprocess.Popen[bytes]":
    """Start an ingest whose list of names stays open, so that it cannot end, and wait for its chunk."""
    process = cafcat.popen("ingest", "--files-from", "-", *options)
    assert process.stdin
    names = b"".join(b"many/%04d\n" % number for number in range(BATCH))
    process.stdin.write(names.ljust(READ_BYTES, b"\n"))
    process.stdin.flush()
    assert cafcat.database_url
    with psycopg.connect(cafcat.database_url, autocommit=True) as connection:
        wait_until(lambda: connection.execute("SELECT 1 FROM chunks WHERE state = 'writing'").fetchone())
    return process


@pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGTERM])
def test_first_signal_commits_the_open_chunk(many: Cafcat, signal_number: signal.Signals) -> None:
    process = start_and_wait_for_a_chunk(many)
    process.send_signal(signal_number)
    assert process.stderr
    said = process.stderr.readline()
    assert said == b"cafcat: finishing any open chunk; press Ctrl-C again to drop it\n"
    out, err = process.communicate(b"many/0000\n", timeout=PATIENCE_SECONDS)
    assert process.returncode == 130
    assert err == b""
    assert out.startswith(b"interrupted; added ")
    committed = len(paths(many))
    assert 1 <= committed <= BATCH
    assert out.startswith(b"interrupted; added %d file" % committed)
    summary = many("ingest", "many", "--json").documents[-1]["summary"]
    assert summary["files_unchanged"] == committed
    assert len(paths(many)) == BATCH


def test_second_signal_drops_the_open_chunk(many: Cafcat) -> None:
    process = start_and_wait_for_a_chunk(many, "--json")
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGTERM)  # at once: the chunk must not be finished in between
    out, err = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 130
    assert out == b""
    finishing, dropping, err = err.split(b"\n", 2)
    assert b'"warning": "finishing' in finishing
    assert b'"warning": "dropping any open chunk' in dropping
    assert err == b'{"notice": "interrupted; committed before: 0 files, 0 B in 0 chunks"}\n'
    assert paths(many) == []
    store = many.folder / "store"
    assert {path.parent for path in store.rglob("*") if path.is_file()} == {store / "catalogs"}
    assert [chunk["state"] for chunk in many("chunks", "ls", "--json").documents] == ["abandoned"]


def test_checksum_and_force_on_the_command_line(cafcat: Cafcat) -> None:
    file = cafcat.folder / "tree" / "a.txt"
    file.parent.mkdir()
    file.write_bytes(b"first")
    before = file.stat()
    cafcat("ingest", "tree")
    file.write_bytes(file.read_bytes()[::-1])
    os.utime(file, ns=(before.st_mtime_ns, before.st_mtime_ns))
    assert cafcat("ingest", "tree", "--json").documents[-1]["summary"]["files_replaced"] == 0
    found = cafcat("verify", "--level", "source", "tree", code=5)
    assert "cafcat ingest --checksum SRC" in found.lines[-1]
    result = cafcat("ingest", "tree", "--checksum")
    assert "replaced 1" in result.text
    assert ", compared " in result.text
    assert cafcat("verify", "--level", "source", "tree").code == 0
    assert "unchanged 0" in cafcat("ingest", "tree", "--force").text
    assert "leave one of them out" in cafcat("ingest", "tree", "--force", "--checksum", code=2).err


@pytest.mark.parametrize("also", [(), ("--estimate",)])
def test_names_that_end_with_nul_need_a_list(cafcat: Cafcat, also: tuple[str, ...]) -> None:
    (cafcat.folder / "f").write_bytes(b"one")
    message = "-0 is for the names in the list of --files-from: give --files-from, too"
    assert message in cafcat("ingest", "f", "-0", *also, code=2).err


def test_changes_are_listed(cafcat: Cafcat) -> None:
    tree = cafcat.folder / "tree"
    tree.mkdir()
    for name in "abc":
        (tree / name).write_bytes(name.encode())
    assert cafcat("ingest", "tree", "-v").lines[:3] == ["+ tree/a", "+ tree/b", "+ tree/c"]
    (tree / "a").unlink()
    (tree / "b").write_bytes(b"changed")
    (tree / "d").write_bytes(b"new")
    changes = ["! tree/a", "~ tree/b", "+ tree/d"]
    result = cafcat("ingest", "tree", "--dry-run")
    assert result.lines[:3] == changes
    counts = "would add 1 file, replace 1, {}, unchanged 1, skipped 0, failed 0"
    assert result.lines[3] == counts.format("gone 1 (kept without --delete)")
    result = cafcat("ingest", "tree", "--dry-run", "--delete")
    assert result.lines[:4] == ["- tree/a", *changes[1:], counts.format("remove 1")]
    documents = cafcat("ingest", "tree", "--dry-run", "--json").documents
    assert documents[:3] == [
        {"change": "gone", "path": "tree/a"},
        {"change": "replaced", "path": "tree/b"},
        {"change": "added", "path": "tree/d"},
    ]
    quiet = cafcat("ingest", "tree", "--dry-run", "-q").lines
    assert len(quiet) == 2
    assert quiet[0] == counts.format("gone 1 (kept without --delete)")
    assert cafcat("ingest", "tree", "-v").lines[:3] == changes
    assert paths(cafcat) == ["tree/a", "tree/b", "tree/c", "tree/d"]
    other = cafcat.folder / "other" / "tree"
    other.parent.mkdir()
    tree.rename(other)
    assert cafcat("ingest", "tree", "--dry-run", cwd=other.parent).lines[:3] == [f"? tree/{name}" for name in "bcd"]


def test_delete_removes_files_that_are_gone(cafcat: Cafcat) -> None:
    tree = cafcat.folder / "tree"
    tree.mkdir()
    for name in "abcd":
        (tree / name).write_bytes(name.encode())
    cafcat("ingest", "tree", "-q")
    for name in "abc":
        (tree / name).unlink()
    result = cafcat("ingest", "tree", "--delete", "-q", code=9)
    assert result.err == (
        "cafcat: no file was removed, because 3 of 4 files from tree are gone, more than 50 %; "
        "check the source; if the files are to be removed, run it again with a larger --max-delete PERCENT\n"
    )
    (tree / "e").write_bytes(b"new")
    result = cafcat("ingest", "tree", "--delete", "--json", code=9)
    summary = result.documents[-1]["summary"]
    assert (summary["files_added"], summary["files_gone"], summary["files_removed"]) == (1, 3, 0)
    assert result.error["kind"] == "not_confirmed"
    text = cafcat("ingest", "tree", "--delete", code=9).lines[0]
    assert text == "added 0 files, replaced 0, removed 0, unchanged 2, skipped 0, failed 0"
    (tree / "e").unlink()
    assert cafcat("rm", "tree/e", "-q").code == 0
    refused = cafcat("ingest", "tree", "--delete", "--dry-run")
    assert "no file would be removed" in refused.err
    assert refused.lines[-2] == "would add 0 files, replace 0, remove 0, unchanged 1, skipped 0, failed 0"
    dry = cafcat("ingest", "tree", "--delete", "--dry-run", "--max-delete", "75", "--json").documents[-1]["summary"]
    assert (dry["files_gone"], dry["files_removed"]) == (3, 3)
    assert paths(cafcat) == ["tree/a", "tree/b", "tree/c", "tree/d"]
    lines = cafcat("ingest", "tree", "--delete", "--max-delete", "75").lines
    assert lines[0] == "added 0 files, replaced 0, removed 3, unchanged 1, skipped 0, failed 0"
    assert paths(cafcat) == ["tree/d"]
    assert cafcat("undelete", "-r", "tree").lines == ["brought back 4 files (6 B)"]


def test_compared_files_of_unknown_source_count_as_files_of_the_source(cafcat: Cafcat) -> None:
    (cafcat.folder / "tree").mkdir()
    for name in "abcd":
        (cafcat.folder / "tree" / name).write_bytes(b"a")
    cafcat("ingest", "tree", "-q")
    cafcat("sql", stdin=b"UPDATE file_locations SET source_id = NULL WHERE file_path <> 'tree/d'")
    (cafcat.folder / "tree" / "d").unlink()
    assert "removed 1, unchanged 3, compared 3" in cafcat("ingest", "tree", "--delete", "--checksum").text


def test_delete_names_files_of_unknown_source(cafcat: Cafcat) -> None:
    """After a rebuild, sources of files are unknown. An empty folder, as of an unmounted disk, is an error."""
    (cafcat.folder / "tree").mkdir()
    for name in "abc":
        (cafcat.folder / "tree" / name).write_bytes(b"a")
    cafcat("ingest", "tree", "-q")
    cafcat("sql", stdin=b"UPDATE file_locations SET source_id = NULL")
    (cafcat.folder / "tree" / "a").unlink()
    unknown = "of the catalog whose source is unknown, as after a rebuild"
    listed = "it stays; `cafcat verify --level source` lists it, and `cafcat rm` removes it"
    for option in ("--dry-run", "-v", "--delete"):
        result = cafcat("ingest", "tree", option)
        assert f"tree lacks 1 file {unknown}: {listed}\n" in result.err
        if option != "--delete":
            cafcat("sql", stdin=b"UPDATE file_locations SET source_id = NULL")
    assert "removed 0" in result.text
    assert "absent tree/a: " in cafcat("verify", "--level", "source", "tree").text
    (cafcat.folder / "tree" / "b").unlink()
    listed = "they stay; `cafcat verify --level source` lists them, and `cafcat rm` removes them"
    cafcat("sql", stdin=b"UPDATE file_locations SET source_id = NULL")
    assert f"tree lacks 2 files {unknown}: {listed}\n" in cafcat("ingest", "tree", "--delete").err
    cafcat("sql", stdin=b"UPDATE file_locations SET source_id = NULL")
    (cafcat.folder / "tree" / "c").unlink()
    refused = cafcat("ingest", "tree", "--delete", code=9)
    reason = (
        "tree is empty, and the source of 3 files of the catalog is unknown, as after a rebuild; check the source"
    )
    assert f"no file was removed, because {reason}" in refused.err
    assert "max-delete" not in refused.err
    assert "no file would be removed" in cafcat("ingest", "tree", "--delete", "--dry-run").err
    assert "removed 0" in cafcat("ingest", "tree", "--delete", "--max-delete", "100").text
    assert paths(cafcat) == ["tree/a", "tree/b", "tree/c"]


def test_delete_of_the_current_folder_does_not_name_verify(cafcat: Cafcat) -> None:
    """`verify --level source .` does not look for files that the source lacks."""
    (cafcat.folder / "tree").mkdir()
    for name in "ab":
        (cafcat.folder / "tree" / name).write_bytes(b"a")
    cafcat("ingest", ".", "-q", cwd=cafcat.folder / "tree")
    cafcat("sql", stdin=b"UPDATE file_locations SET source_id = NULL")
    (cafcat.folder / "tree" / "a").unlink()
    result = cafcat("ingest", ".", "--delete", cwd=cafcat.folder / "tree")
    assert "as after a rebuild: it stays, and `cafcat rm` removes it\n" in result.err
    assert "absent" not in cafcat("verify", "--level", "source", ".", cwd=cafcat.folder / "tree").text


def test_restart_listing_needs_a_bucket(cafcat: Cafcat) -> None:
    (cafcat.folder / "f").write_bytes(b"f")
    message = "--restart-listing is for the listing of a bucket only; leave --restart-listing out"
    assert message in cafcat("ingest", "f", "--restart-listing", code=2).err
    assert paths(cafcat) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["tree/a"], "tree/a is no folder or bucket that is listed as a whole"),
        (["--files-from", "list"], "--files-from list is no folder or bucket that is listed as a whole"),
        (["tree", "--max-delete", "101"], "--max-delete must be from 0 to 100 percent, not 101"),
        (["tree", "--format", "clp-s"], "an archive of logs cannot lose one of its log files"),
    ],
)
def test_delete_needs_whole_folders(cafcat: Cafcat, arguments: list[str], message: str) -> None:
    (cafcat.folder / "tree").mkdir()
    (cafcat.folder / "tree" / "a").write_bytes(b"a")
    (cafcat.folder / "list").write_text("tree/a\n")
    assert message in cafcat("ingest", "--delete", *arguments, code=2).err
    alone = cafcat("ingest", "tree", "--max-delete", "100", code=2).err
    assert "--max-delete is for --delete only; leave --max-delete out, or add --delete" in alone
    assert paths(cafcat) == []


def test_files_that_workers_of_a_killed_command_pack_are_counted(cafcat: Cafcat) -> None:
    """The worker waits for a lock of the test, is orphaned, and commits while the second command is at work."""
    (cafcat.folder / "tree").mkdir()
    for name in "abc":
        (cafcat.folder / "tree" / name).write_bytes(b"a")
    command = ["ingest", "tree", "--cluster", "local://1"]
    with (
        psycopg.connect(str(cafcat.database_url)) as holder,
        psycopg.connect(str(cafcat.database_url), autocommit=True) as other,
    ):
        holder.execute("LOCK TABLE file_locations IN SHARE MODE")
        with cafcat.popen(*command) as killed:
            wait_until(lambda: other.execute(WAITING_LOCKS).fetchone())
            killed.kill()
        process = cafcat.popen(*command)
        wait_until(lambda: other.execute("SELECT 1 FROM shards WHERE run_id = 2").fetchone())
        holder.rollback()
        out, errors = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 0, errors
    lines = out.decode().splitlines()
    assert lines[0] == "added 0 files, replaced 0, unchanged 0, skipped 0, failed 0"
    assert lines[1:] == ["workers of the earlier run packed 3 files meanwhile"]
    assert paths(cafcat) == ["tree/a", "tree/b", "tree/c"]
    assert "meanwhile" not in cafcat(*command).text


def test_a_pattern_that_matches_nothing_is_named(cafcat: Cafcat) -> None:
    (cafcat.folder / "a.txt").write_bytes(b"a")
    result = cafcat("ingest", ".", "--include", "*.{txt,bin}")
    assert "no file matches --include '*.{txt,bin}'; patterns are written as in .gitignore" in result.err
    assert "{a,b} has no meaning: repeat --include" in result.err
    assert cafcat("ingest", ".", "--include", "*.txt").err == ""
    result = cafcat("ingest", ".", "--include", "a*", "--exclude", "*.txt", "--exclude", "b")
    assert "no file is left by --include 'a*' and --exclude '*.txt' --exclude b; patterns are" in result.err


def test_a_remote_of_rclone_is_answered_with_the_url_of_a_bucket(cafcat: Cafcat) -> None:
    for name in ("s3:bucket/x", "remote:"):
        assert "a bucket is written s3://BUCKET/PREFIX" in cafcat("ingest", name, code=4).err
    assert "bucket" not in cafcat("ingest", "nothere", code=4).err


def test_an_ingest_of_no_file_asks_for_the_disk(cafcat: Cafcat) -> None:
    (cafcat.folder / "empty").mkdir()
    note = (
        "cafcat: no file was found in the sources: if they should have files, check that their disks are mounted\n"
    )
    for words in ([], ["--dry-run"]):
        assert cafcat("ingest", "empty", *words).err == note
    for words in (["-q"], ["--json"], ["--exclude", "x"]):
        assert cafcat("ingest", "empty", *words).err == ""
