"""copy: output and exit codes; and the messages of a read that falls over to a copy."""

import json
import re
import shutil
from dataclasses import fields
from pathlib import Path

import psycopg
import pytest

from cafcat.events import ChunkCopied, CopyRecovered
from cafcat.operations.copy.report import CopyReport
from cafcat.operations.recover.report import RecoverReport
from tests.e2e.conftest import BIG, Cafcat, documented_keys, interrupted
from tests.worlds.archives.damage import flip


def fill(cafcat: Cafcat, *names: str) -> list[str]:
    """Ingest a chunk for each name, and return their uuids."""
    for name in names:
        (cafcat.folder / name).write_bytes(name.encode() * 1000)
        cafcat("ingest", name, "-q")
    return [document["uuid"] for document in cafcat("chunks", "ls", "--json").documents]


def chunk_file(cafcat: Cafcat, chunk: str, folder: str = "store") -> Path:
    return cafcat.folder / folder / f"{chunk}.caf"


@pytest.mark.parametrize(
    ("verb", "kinds"), [("copy", (CopyReport, ChunkCopied)), ("recover", (RecoverReport, CopyRecovered))]
)
def test_all_keys_are_documented(verb: str, kinds: tuple[type, ...]) -> None:
    documented = documented_keys(verb)
    for kind in kinds:
        names = getattr(kind, "_fields", None) or [field.name for field in fields(kind)]
        assert set(names) <= documented


def test_copying_and_copying_again(cafcat: Cafcat) -> None:
    first, second = fill(cafcat, "a", "b")
    result = cafcat("copy", first[:8], "--to", "./second", "-v")
    assert re.fullmatch(r"copied 1 chunk \(1\.\d kB\)\n", result.text)
    assert f"chunk {first} copied, 1." in result.err
    assert re.fullmatch(
        r"copied 1 chunk \(1\.\d kB\), 1 had been there before\n", cafcat("copy", "--all", "--to", "./second").text
    )
    assert cafcat("copy", "--prefix", "b", "--to", "./second").text == "1 chunk had been there before\n"
    assert cafcat("copy", "--all", "--to", "./second", "-q").out == b""
    for chunk in (first, second):
        assert chunk_file(cafcat, chunk, "second").read_bytes() == chunk_file(cafcat, chunk).read_bytes()
    assert cafcat("db", "check").text == "nothing is wrong\n"


def test_json_output(cafcat: Cafcat) -> None:
    first, second = fill(cafcat, "a", "b")
    chunk_file(cafcat, second).unlink()
    document, summary = cafcat("copy", "--all", "--to", "./second", "--json", "-v", code=5).documents
    url = (cafcat.folder / "second").as_uri()
    size = chunk_file(cafcat, first).stat().st_size
    assert document == {"uuid": first, "store": url, "outcome": "copied", "size_bytes": size}
    [failed] = summary["summary"].pop("failed")
    assert second in failed
    assert summary["summary"] == {
        "store": url,
        "copied": 1,
        "replaced": 0,
        "found": 0,
        "there": 0,
        "own": 0,
        "adopted": 0,
        "damaged": 1,
        "chunks_failed": 1,
        "bytes_copied": size,
        "interrupted": False,
        "dry_run": False,
    }


def test_damage_is_reported_with_exit_code_5(cafcat: Cafcat) -> None:
    first, _ = fill(cafcat, "a", "b")
    flip(chunk_file(cafcat, first), 3)
    result = cafcat("copy", "--all", "--to", "./second", code=5)
    assert re.fullmatch(r"copied 1 chunk \(1\.\d kB\), 1 failed\n", result.text)
    assert f"chunk {first}: its bytes are damaged" in result.err
    assert f"run cafcat repair --chunk {first}" in result.err
    assert not chunk_file(cafcat, first, "second").exists()


def test_other_failures_have_exit_code_3(cafcat: Cafcat) -> None:
    first, _ = fill(cafcat, "a", "b")
    (cafcat.folder / "second").mkdir()
    chunk_file(cafcat, first, "second").write_bytes(b"somebody else's")
    result = cafcat("copy", "--all", "--to", "./second", code=3)
    assert "another object has the same key" in result.err
    assert chunk_file(cafcat, first, "second").read_bytes() == b"somebody else's"


def test_missing_store_has_exit_code_3(cafcat: Cafcat) -> None:
    fill(cafcat, "a", "b")
    (cafcat.folder / "store").rename(cafcat.folder / "unmounted")
    result = cafcat("copy", "--all", "--to", "./second", code=3)
    assert result.text == "2 failed\n"
    assert result.err.count("is its disk mounted?") == 1
    assert "repair" not in result.err


def test_wrong_arguments(cafcat: Cafcat) -> None:
    [chunk] = fill(cafcat, "a")
    assert "--to" in cafcat("copy", "--all", code=2).err
    assert "no chunk is chosen" in cafcat("copy", "--to", "./second", code=2).err
    assert "chosen in several ways" in cafcat("copy", chunk, "--all", "--to", "./second", code=2).err
    assert "itself" in cafcat("copy", chunk, "--to", "store", code=2).err
    cafcat("copy", "--all", "--to", "unheard-of://store", code=1)
    cafcat("copy", "00000000", "--to", "./second", code=4)
    cafcat("copy", "--prefix", "nothing", "--to", "./second", code=4)
    (cafcat.folder / "file").write_bytes(b"")
    assert "there is no folder" in cafcat("copy", "--all", "--to", "file/below", code=2).err
    assert cafcat("copy", "--all", "--to", "./second").text.startswith("copied 1 chunk")


def test_damaged_copies_are_replaced(cafcat: Cafcat) -> None:
    first, _ = fill(cafcat, "a", "b")
    cafcat("copy", "--all", "--to", "./second", "-q")
    flip(cafcat.folder / "second" / f"{first}.caf", 3)
    remedy = cafcat("verify", "--level", "data", code=5).lines[-1]
    assert remedy == f"to replace copies: cafcat copy --all --to {(cafcat.folder / 'second').as_uri()}"
    [known] = cafcat("query", "damaged", "--json").documents
    assert (known["chunk"], known["is_copy"]) == (first, True)
    assert "copies that were found damaged" in cafcat.unchecked("doctor").text
    done = cafcat(*remedy.split(": cafcat ")[1].split()).text
    assert re.fullmatch(r"replaced 1 damaged or missing copy \([^)]*\), 1 had been there before\n", done)
    assert cafcat("query", "damaged", "--json").documents == []
    assert "no known damage" in cafcat.unchecked("doctor").text
    assert cafcat("verify", "--level", "data").text.startswith("verified 4 objects (data): 4 ok")


def test_a_dry_run_counts_and_changes_nothing(cafcat: Cafcat) -> None:
    chunks = fill(cafcat, "a", "b", "c", "d")
    second = cafcat.folder / "second"
    assert cafcat("copy", "--all", "--to", "./second", "--dry-run").text.startswith("would copy 4 chunks (")
    assert not second.exists()
    assert len(cafcat("store", "ls").lines) == 1
    cafcat("copy", *chunks[:2], "--to", "./second", "-q")
    flip(second / f"{chunks[0]}.caf", 3)
    cafcat("verify", "--level", "data", code=5)
    shutil.copy(cafcat.folder / "store" / f"{chunks[2]}.caf", second)
    before = sorted(second.rglob("*"))
    result = cafcat("copy", "--all", "--to", "./second", "--dry-run", "-v")
    expected = (
        r"would copy 1 chunk \([0-9.]+ kB\), replace 1 damaged or missing copy, find 1 chunk there, "
        r"1 had been there before\n"
    )
    assert re.fullmatch(expected, result.text)
    assert f"chunk {chunks[3]} would be copied, " in result.err
    assert sorted(second.rglob("*")) == before
    assert cafcat("copy", "--all", "--to", "./second").text.startswith("copied 1 chunk")
    assert cafcat("copy", "--all", "--to", "./second", "--dry-run").text == "4 chunks had been there before\n"
    assert "no chunk is chosen" in cafcat("copy", "--to", "./second", "--dry-run", code=2).err


def test_chunks_show_has_the_last_check_of_the_chunk_itself(cafcat: Cafcat) -> None:
    [chunk] = fill(cafcat, "a")
    assert "check            none" in cafcat("chunks", "show", chunk).lines
    flip(cafcat.folder / "store" / f"{chunk}.caf", 3)
    cafcat("verify", "--level", "data", code=5)
    cafcat("verify", "--level", "index")
    [line] = [line for line in cafcat("chunks", "show", chunk).lines if line.startswith("check")]
    assert re.fullmatch(r"check            20[^ ]+Z \(data\): damaged", line)
    assert cafcat("chunks", "show", chunk, "--json").document["check"]["verdict"] == "damaged"


def test_chunks_show_lists_the_copies_with_their_last_check(cafcat: Cafcat) -> None:
    [chunk] = fill(cafcat, "a")
    cafcat("copy", "--all", "--to", "./second", "-q")
    second = (cafcat.folder / "second").as_uri()
    assert cafcat("chunks", "show", chunk).lines[-1] == f"copy             {second}  committed  not checked"
    flip(cafcat.folder / "second" / f"{chunk}.caf", 3)
    cafcat("verify", "--level", "data", code=5)
    cafcat("verify", "--level", "index")
    line = re.compile(f"copy             {second}  committed  checked 20[^ ]+Z \\(data\\): damaged")
    assert line.fullmatch(cafcat("chunks", "show", chunk).lines[-1])
    [copy] = cafcat("chunks", "show", chunk, "--json").document["copies"]
    assert (copy["store"], copy["level"], copy["verdict"]) == (second, "data", "damaged")
    cafcat("copy", "--all", "--to", "./second", "-q")
    cafcat("store", "migrate", "./second", "./third", "-q")
    copies = cafcat("chunks", "show", chunk, "--json").document["copies"]
    states = {copy["store"].rpartition("/")[2]: (copy["state"], copy["verdict"]) for copy in copies}
    assert states == {"second": ("retired", None), "third": ("committed", None)}


def test_doctor_leaves_out_damaged_copies_of_chunks_without_files(cafcat: Cafcat) -> None:
    """`copy --all` would not replace such a copy, and nothing needs it: `prune` removes it."""
    [first] = fill(cafcat, "a")
    cafcat("copy", "--all", "--to", "./second", "-q")
    flip(cafcat.folder / "second" / f"{first}.caf", 3)
    cafcat("verify", "--level", "data", code=5)
    cafcat("rm", "a", "--yes")
    assert "copies that were found damaged" not in cafcat.unchecked("doctor").text


def test_a_store_by_its_name(cafcat: Cafcat) -> None:
    (cafcat.folder / "home").mkdir(exist_ok=True)
    (cafcat.folder / "home" / "cafcat.toml").write_text(f'[stores.archive]\nurl = "{cafcat.folder}/second"\n')
    [chunk] = fill(cafcat, "a")
    cafcat("copy", "--all", "--to", "archive")
    assert chunk_file(cafcat, chunk, "second").exists()


def test_read_from_a_copy_is_reported(cafcat: Cafcat) -> None:
    (cafcat.folder / "big").write_bytes(BIG * 3)
    chunks = fill(cafcat, "a", "big2")
    cafcat("ingest", "big", "-q")
    chunks = [document["uuid"] for document in cafcat("chunks", "ls", "--json").documents]
    cafcat("copy", "--all", "--to", "./second")
    chunk_file(cafcat, chunks[0]).unlink()
    flip(chunk_file(cafcat, chunks[2]), 1000)
    said = f"cafcat: warning: chunk {chunks[0]} is missing (no object"
    result = cafcat("cat", "a")
    assert result.out == b"a" * 1000
    assert result.err.startswith(said)
    assert result.err.endswith(f"second; run cafcat repair --chunk {chunks[0]}\n")
    assert cafcat("cat", "-q", "a").err == ""
    warning = json.loads(cafcat("cat", "--json", "a").err)["warning"]
    assert f"cafcat: warning: {warning}".startswith(said)
    assert (
        f"chunk {chunks[2]} is damaged in big: read from its copy in file://"
        in cafcat("get", "big", "-o", "out").err
    )
    assert (cafcat.folder / "out").read_bytes() == BIG * 3
    failed = cafcat("cat", "big", code=5)
    assert "get -o FILE" in failed.err
    assert len(failed.out) < len(BIG) * 3
    result = cafcat("extract", "-C", "tree")
    assert (cafcat.folder / "tree" / "big").read_bytes() == BIG * 3
    assert (cafcat.folder / "tree" / "a").read_bytes() == b"a" * 1000
    assert result.err.count("read from its copy") == 2
    many = cafcat("get", "a", "big", "big2", "-f", "-o", "tree")
    assert many.err.count("read from its copy") == 2
    chunk_file(cafcat, chunks[0], "second").unlink()
    assert "its copies fail, too" in cafcat("cat", "a", code=5).err


def test_recover_reports_copies(cafcat: Cafcat) -> None:
    first, second = fill(cafcat, "a", "b")
    cafcat("copy", "--all", "--to", "./second")
    assert cafcat.database_url
    with psycopg.connect(cafcat.database_url) as connection:
        connection.execute(
            "UPDATE chunk_copies "
            "SET state = 'writing', committed_at = NULL, lease_expires_at = now() - interval '1s'"
        )
    flip(chunk_file(cafcat, second, "second"), 0)
    dry = cafcat("recover", "--dry-run", "-v")
    assert dry.text == "would adopt 1 copy, remove the remains of 1 copy\n"
    assert f"copy of chunk {second} in " in dry.err
    assert "would be abandoned: the checksum of the copy is not that of the chunk" in dry.err
    *settled, summary = cafcat("recover", "--json", "-v").documents
    assert [(document["copy_of"], document["outcome"]) for document in settled] == [
        (first, "adopted"),
        (second, "abandoned"),
    ]
    assert (summary["summary"]["copies_adopted"], summary["summary"]["copies_removed"]) == (1, 1)
    assert cafcat("recover").text == "nothing to recover\n"
    assert not chunk_file(cafcat, second, "second").exists()


def test_on_s3(cafcat: Cafcat, s3_bucket: str, s3_environment: None) -> None:
    [chunk] = fill(cafcat, "a")
    cafcat("copy", chunk, "--to", f"s3://{s3_bucket}/copies")
    chunk_file(cafcat, chunk).unlink()
    result = cafcat("cat", "a")
    assert result.out == b"a" * 1000
    assert f"read from its copy in s3://{s3_bucket}/copies" in result.err


@pytest.mark.parametrize("as_json", [False, True])
def test_ctrl_c_finishes_the_current_copy(cafcat: Cafcat, as_json: bool) -> None:
    """The row of the copy waits for a lock that the test holds until the signal has arrived."""
    fill(cafcat, "a", "b")
    flags = ["--json"] if as_json else []
    result, [said] = interrupted(cafcat, "copy", "--all", "--to", "./second", *flags)
    assert "finishing any open copy; press Ctrl-C again" in said
    assert result.code == 130
    if as_json:
        assert b'"interrupted": true' in result.out
    else:
        assert re.fullmatch(r"interrupted; copied 1 chunk \(1\.\d kB\)\n", result.text)
    assert cafcat("copy", "--all", "--to", "./second").text.endswith("1 had been there before\n")


def test_queries_about_a_store_take_its_name_or_folder(cafcat: Cafcat) -> None:
    """A name that is no store must not look like a store from which nothing would be lost."""
    first, second = fill(cafcat, "a", "b")
    cafcat("copy", first, "--to", "./second", "-q")
    cafcat("store", "rename", str(cafcat.folder / "store"), "main")
    for name in ("main", "./store", (cafcat.folder / "store").as_uri()):
        rows = cafcat("query", "lost-with-store", name, "--json").documents
        assert [(row["file_path"], row["chunk"]) for row in rows] == [("b", second)]
    [copy] = cafcat("query", "copies-in", "./second", "--json").documents
    assert (copy["chunk"], copy["is_broken"], copy["is_left_behind"]) == (first, False, False)
    for name in ("lost-with-store", "copies-in"):
        assert "the catalog has no chunk in the store" in cafcat("query", name, "./nothing", code=4).err


def test_a_lost_store_costs_only_the_files_without_a_copy(cafcat: Cafcat) -> None:
    """The file without a copy is the first one, the last one, and alone."""
    lost, *kept = "bcda"
    chunks = fill(cafcat, lost, *kept)
    cafcat("copy", *chunks[1:], "--to", "./second", "-q")
    (cafcat.folder / "store").rename(cafcat.folder / "gone")
    store = (cafcat.folder / "store").as_uri()
    failure = f"its chunk has no copy, and its store is out of reach: cannot find the store {store}"
    for paths in ([lost, *kept], [*kept, lost]):
        extracted = cafcat("extract", *paths, "-C", "out", "--force", code=3)
        assert "reading the copies of its chunks" in extracted.err
        assert f"cafcat: {lost}: {failure}" in extracted.err
        assert extracted.lines[-1].startswith("extracted 3 files, failed 1")
    (cafcat.folder / "got").mkdir()
    got = cafcat("get", lost, *kept, "-o", "got/", code=3)
    assert sorted(path.name for path in (cafcat.folder / "got").iterdir()) == sorted(kept)
    assert failure in got.err
    assert failure in cafcat("get", lost, "-o", "alone", code=1).err
    assert failure in cafcat("cat", lost, *kept, code=3).err
    (cafcat.folder / "second").rename(cafcat.folder / "gone too")
    assert "cannot find the store" in cafcat("extract", *kept, "-C", "none", code=1).err
