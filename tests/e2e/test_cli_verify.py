"""verify: output and exit codes; files that it reports as damaged cannot be read."""

import os
import re
import signal
from dataclasses import fields
from pathlib import Path

import psycopg
import pytest

from cafcat.events import ObjectChecked
from cafcat.model import Finding, FindingKind, VerifyLevel
from cafcat.operations.verify.report import VerifyReport
from tests.e2e.conftest import CLI_PAGE, WAITING_LOCKS, Cafcat, documented_keys
from tests.worlds.archives.damage import flip
from tests.worlds.waiting import PATIENCE_SECONDS, wait_until

TEXT = CLI_PAGE.read_text()


def pack(cafcat: Cafcat, files: dict[str, bytes]) -> Path:
    """Ingest files into a chunk of its own, and return the path of its object."""
    (cafcat.folder / "store").mkdir(exist_ok=True)
    before = set((cafcat.folder / "store").glob("*.caf"))
    for path, content in files.items():
        (cafcat.folder / path).parent.mkdir(parents=True, exist_ok=True)
        (cafcat.folder / path).write_bytes(content)
    cafcat("ingest", "-q", *files)
    [chunk] = set((cafcat.folder / "store").glob("*.caf")) - before
    return chunk


def test_all_keys_are_documented() -> None:
    documented = documented_keys("verify")
    keys = {field.name for field in fields(VerifyReport)} | set(ObjectChecked._fields)
    assert keys | set(Finding._fields) | set(FindingKind) <= documented
    section = TEXT.split("### cafcat verify")[1].split("\n#")[0]
    assert all(f"| `{level}`" in section for level in VerifyLevel)


def test_verify_of_undamaged_chunks(cafcat: Cafcat) -> None:
    assert cafcat("verify").text == "nothing to verify: no chunk was chosen, or the catalog has none\n"
    pack(cafcat, {"t/a": b"first", "t/b": b"second"})
    assert re.fullmatch(r"verified 1 object \(index\): 1 ok; 2 files, \d+ B read\n", cafcat("verify").text)
    assert re.fullmatch(
        r"verified 1 object \(data\): 1 ok; 2 files, \d+ B read\n", cafcat("verify", "--level", "data").text
    )
    assert cafcat("verify", "--level", "catalog").text == "verified 1 catalog (catalog): 1 ok\n"
    assert (
        cafcat("verify", "--level", "source", "t").text == "verified 1 source (source): 1 ok; 2 files, 11 B read\n"
    )
    assert cafcat("verify", "-q").out == b""
    assert "ok (2 files" in cafcat("verify", "-v").err
    summary = cafcat("verify", "--json").document["summary"]
    assert set(summary) == {field.name for field in fields(VerifyReport)}


def test_damage_is_printed_and_the_code_is_5(cafcat: Cafcat) -> None:
    chunk = pack(cafcat, {"t/a": b"first", "t/new\nline": b"second"})
    flip(chunk, 7)
    assert cafcat("verify").code == 0
    first, last, remedy = cafcat("verify", "--level", "data", code=5).lines
    assert remedy.startswith("to repair chunks: cafcat repair, or cafcat repair --from-source SRC")
    assert first.startswith(f"chunk {chunk.stem}: file t/new\\nline [5, 11): the bytes of this file have CRC-32C ")
    assert last.startswith("verified 1 object (data): 1 damaged; 2 files, ")
    finding, summary = cafcat("verify", "--level", "data", "--json", code=5).documents
    assert (finding["finding"]["path"], finding["finding"]["kind"]) == ("t/new\nline", "file")
    assert (finding["finding"]["chunk"], finding["finding"]["object"]) == (chunk.stem, str(chunk))
    assert (summary["summary"]["damaged"], summary["summary"]["findings"]) == (1, 1)
    checked = cafcat("verify", "--level", "data", "--json", "-v", code=5).documents[1]["checked"]
    assert set(checked) == set(ObjectChecked._fields)
    assert cafcat("verify", "--level", "data", "-q", code=5).lines == [first]
    chunk.chmod(0o600)
    with chunk.open("r+b") as cut:
        cut.truncate(3)
    first = cafcat("verify", "--level", "data", code=5).lines[0]
    assert re.match(rf"chunk {chunk.stem}: size \[3, \d+\): the object has 3 bytes of ", first)
    assert first.endswith("; its index is cut off; 2 files cut off, 2 of them live: t/a, t/new\\nline")
    chunk.unlink()
    first = cafcat("verify", code=5).lines[0]
    assert first == f"chunk {chunk.stem}: missing: no object {chunk.name} in {chunk.parent}"
    cafcat("rm", "-r", "t", "--yes")
    first = cafcat("verify").lines[0]
    assert (
        first
        == f"chunk {chunk.stem}: missing: no object {chunk.name} in {chunk.parent}; the chunk has no live file"
    )


def test_files_with_flipped_bytes_are_reported_and_unreadable(cafcat: Cafcat) -> None:
    """A byte of each file and one of the index is flipped. Other files stay readable."""
    files = {"t/a": b"first file", "t/b": b"", "t/c": bytes(range(200)), "t/d": b"x"}
    chunk = pack(cafcat, files)
    for byte, path in ((0, "t/a"), (9, "t/a"), (110, "t/c"), (210, "t/d"), (230, None)):
        flip(chunk, byte)
        [finding, _] = cafcat("verify", "--level", "data", "--json", code=5).documents
        assert finding["finding"]["path"] == path
        assert finding["finding"]["kind"] == ("file" if path else "index")
        if path:
            assert cafcat("get", path, "-o", "out", "--json", code=5).error["kind"] == "corrupt"
            assert not (cafcat.folder / "out").exists()
        for other in set(files) - {path}:
            assert cafcat("cat", other).out == files[other]
        flip(chunk, byte)
    assert cafcat("verify", "--level", "data").code == 0


def test_options_that_select_chunks(cafcat: Cafcat) -> None:
    first, second = pack(cafcat, {"a/f": b"1"}), pack(cafcat, {"b/f": b"2"})

    def checked(*arguments: str) -> list[str]:
        documents = cafcat("verify", "--json", "-v", *arguments).documents
        return [document["checked"]["chunk"] for document in documents[:-1]]

    assert checked() == [first.stem, second.stem]
    assert checked("--chunk", second.stem[:8]) == [second.stem]
    assert checked("--prefix", "a") == [first.stem]
    assert checked("--older-than", "1h") == []
    assert checked("--older-than", "1h", "--level", "data", "-j", "2") != []
    assert len(checked("--sample", "5%")) == 1
    assert checked("--store", "store") == [first.stem, second.stem]
    for nothing in (["--chunk", "00000000"], ["--store", "elsewhere"], ["--prefix", "none"]):
        cafcat("verify", *nothing, code=4)
    assert cafcat("verify", "--store", "elsewhere", "--json", code=4).error["hint"] == (
        "`cafcat store ls` lists the stores"
    )
    for wrong in (["--sample", "5"], ["a"], ["--level", "source"], ["--level", "none"], ["--older-than", "soon"]):
        cafcat("verify", *wrong, code=2)


def test_options_of_a_source_need_a_source(cafcat: Cafcat) -> None:
    for option in (["--include", "x"], ["--exclude", "x"], ["--follow-symlinks"], ["--no-unpack"]):
        message = "--include, --exclude, --follow-symlinks and --no-unpack are for --level source only; "
        assert message in cafcat("verify", *option, code=2).err


def test_share_password_needs_a_cluster(cafcat: Cafcat) -> None:
    message = "--share-password is for --cluster only; leave --share-password out, or add --cluster"
    for verb in (["verify"], ["ingest", "x"], ["extract", "-C", "x"], ["store", "migrate", "x", "y"]):
        assert message in cafcat(*verb, "--share-password", code=2).err
    cafcat("verify", "--share-password", "--cluster", "local")


def test_a_store_that_cannot_be_reached_makes_the_code_3(cafcat: Cafcat) -> None:
    pack(cafcat, {"f": b"1"})
    pack(cafcat, {"g": b"2"})
    store = cafcat.folder / "store"
    assert cafcat("verify").code == 0
    command = (
        "INSERT INTO stores (url) VALUES ('unheard-of://x');\n"
        "UPDATE chunks SET store = 'unheard-of://x' WHERE id = 1;\n"
    )
    cafcat("sql", stdin=command.encode())
    result = cafcat("verify", code=3)
    reason = "unreadable: the object cannot be read: there is no kind of store for the scheme 'unheard-of'"
    assert reason in result.lines[0]
    assert "1 ok, 1 unreadable" in result.lines[-1]
    for chunk in store.glob("*.caf"):
        chunk.unlink()
    assert cafcat("verify", code=5).code == 5


def test_the_summary_counts_no_object_of_a_store_that_is_away(cafcat: Cafcat) -> None:
    for name in ("f", "g"):
        pack(cafcat, {name: b"1"})
    cafcat("copy", "--all", "--to", "./second", "-q")
    second = cafcat.folder / "second"
    second.rename(cafcat.folder / "away")
    result = cafcat("verify", code=3)
    assert result.lines[-1].startswith("verified 2 objects (index): 2 ok; 1 store out of reach; 2 files, ")
    summary = cafcat("verify", "--json", code=3).documents[-1]["summary"]
    assert (summary["ok"], summary["unreadable"]) == (2, 1)
    assert summary["stores_out_of_reach"] == [second.as_uri()]
    away = cafcat("verify", "--store", second.as_uri(), code=3).lines[-1]
    assert away == "nothing was verified; 1 store out of reach"


def test_source(cafcat: Cafcat) -> None:
    pack(cafcat, {"t/a": b"first", "t/b": b"second"})
    (cafcat.folder / "t" / "a").write_bytes(b"FIRST")
    (cafcat.folder / "t" / "b").unlink()
    first, second, last, remedy = cafcat("verify", "--level", "source", "t", code=5).lines
    assert re.fullmatch(
        r"t: source t/a: the file has CRC-32C [0-9a-f]{8} in its source, but [0-9a-f]{8} in the catalog", first
    )
    assert second == "t: absent t/b: the file does not exist in its source any more"
    assert last == "verified 1 source (source): 1 differs; 1 file not in the source any more; 1 file, 5 B read"
    assert "cafcat ingest --checksum SRC" in remedy
    cafcat("verify", "--level", "source", "nowhere", code=4)
    (cafcat.folder / "t" / "a").write_bytes(b"first")
    _, last = cafcat("verify", "--level", "source", "t").lines
    assert last == "verified 1 source (source): 1 ok; 1 file not in the source any more; 1 file, 5 B read"


def test_a_file_of_a_source_that_cannot_be_read_is_one_line(cafcat: Cafcat) -> None:
    pack(cafcat, {"t/a": b"first"})
    (cafcat.folder / "t" / os.fsdecode(b"\xff")).write_bytes(b"bad name")
    (cafcat.folder / "t" / "link").symlink_to("a")
    result = cafcat("verify", "--level", "source", "t", code=3)
    assert result.lines[0].startswith(r"t: unreadable t/\xff: the name is not valid UTF-8")
    assert (len(result.lines), result.err) == (2, "")
    (cafcat.folder / "t" / os.fsdecode(b"\xfe")).write_bytes(b"bad name")
    counts = "2 files or folders could not be read, 1 file equal; 1 file, 5 B read"
    summary = f"verified 1 source (source): 1 unreadable; {counts}"
    assert cafcat("verify", "--level", "source", "t", code=3).lines[-1] == summary
    documents = cafcat("verify", "--level", "source", "t", "--json", code=3).documents
    kinds = [next(iter(document)) for document in documents]
    assert kinds == ["problem", "finding", "finding", "summary"]
    assert documents[0]["problem"]["kind"] == "symlink"
    counts = documents[-1]["summary"]
    assert (counts["unreadable"], counts["unreadable_files"], counts["equal"]) == (1, 2, 1)


def test_sources_and_levels_that_do_not_belong_together(cafcat: Cafcat) -> None:
    assert "verify --level source SRC" in cafcat("verify", "--level", "source", "--json", code=2).error["hint"]
    assert "--prefix FOLDER checks the chunks" in cafcat("verify", "t", "--json", code=2).error["hint"]


def test_a_source_without_any_packed_file(cafcat: Cafcat) -> None:
    pack(cafcat, {"t/a": b"first"})
    last = cafcat("verify", "--level", "source", "t", "--prefix", "other", code=3).lines[-2]
    assert last == "verified 1 source (source): 1 without packed files; 1 file not in the catalog"


def test_files_of_a_source_that_are_not_packed(cafcat: Cafcat) -> None:
    """Whoever removes the originals after this command must not lose a file."""
    pack(cafcat, {"t/a": b"first"})
    (cafcat.folder / "t" / "new").write_bytes(b"new")
    (cafcat.folder / "t" / "x.tmp").write_bytes(b"tmp")
    first, second, last, remedy = cafcat("verify", "--level", "source", "t", code=3).lines
    assert first == "t: unpacked t/new: the file of the source is not in the catalog"
    assert second.startswith("t: unpacked t/x.tmp: ")
    equal = "1 equal in all packed files; 2 files not in the catalog; 1 file, 5 B read"
    assert last == f"verified 1 source (source): {equal}"
    assert remedy.startswith("unpacked files: cafcat ingest SRC packs them")
    summary = cafcat("verify", "--level", "source", "t", "--exclude", "*.tmp", "--json", code=3).documents[-1][
        "summary"
    ]
    assert (summary["ok"], summary["unpacked"]) == (1, 1)
    cafcat("ingest", "t", "--exclude", "*.tmp", "-q")
    assert cafcat("verify", "--level", "source", "t", "--exclude", "*.tmp").lines == [
        "verified 1 source (source): 1 ok; 2 files, 8 B read"
    ]


def test_files_behind_a_link_are_not_called_gone(cafcat: Cafcat) -> None:
    pack(cafcat, {"away/f": b"1", "t/g": b"2"})
    (cafcat.folder / "t" / "link").symlink_to("../away")
    cafcat("ingest", "t/link", "-q")
    lines = cafcat("verify", "--level", "source", "t").lines
    assert lines[0] == ("t: absent t/link/f: t/link is not a folder in its source: symbolic links are not followed")


def test_a_file_that_is_not_packed_is_named_after_a_thousand_absent_files(cafcat: Cafcat) -> None:
    pack(cafcat, {f"t/f{n:04}": b"" for n in range(1002)} | {"t/z": b"kept"})
    for file in (cafcat.folder / "t").glob("f*"):
        file.unlink()
    (cafcat.folder / "t" / "new").write_bytes(b"new")
    lines = cafcat("verify", "--level", "source", "t", code=3).lines
    assert "t: unpacked t/new: the file of the source is not in the catalog" in lines
    assert lines.count("t: absent: and 2 more of this kind") == 1
    assert sum(line.startswith("t: absent t/f") for line in lines) == 1000
    assert not any(line.startswith("t: unpacked: and") for line in lines)


@pytest.mark.parametrize("jobs", [1, 2])
def test_ctrl_c_finishes_the_current_chunk_and_the_next_verify_continues(cafcat: Cafcat, jobs: int) -> None:
    """The first result waits for a lock that the test holds until the signal has arrived.

    As in a terminal, the signal goes to the whole process group.
    """
    for n in range(3):
        pack(cafcat, {f"f{n}": b"content"})
    assert cafcat.database_url
    waiting = f"{WAITING_LOCKS} AND relation = 'verifications'::regclass"
    with psycopg.connect(cafcat.database_url) as holder, psycopg.connect(cafcat.database_url) as other:
        other.autocommit = True
        holder.execute("LOCK TABLE verifications IN SHARE MODE")
        process = cafcat.popen("verify", "--level", "data", "-j", str(jobs), start_new_session=True)
        wait_until(lambda: other.execute(waiting).fetchone())
        os.killpg(process.pid, signal.SIGINT)
        assert process.stderr
        assert b"finishing any open check; press Ctrl-C again" in process.stderr.readline()
        holder.rollback()
        out, errors = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 130
    assert b"Traceback" not in errors
    assert out.startswith(f"interrupted; verified {jobs} object".encode())
    assert cafcat("verify", "--level", "data").text.startswith("resumed; verified 3 objects (data): 3 ok; ")
    assert cafcat("verify", "--level", "data").text.startswith("verified 3 objects (data): 3 ok; ")
