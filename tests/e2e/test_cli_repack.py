"""repack: output and exit codes."""

import re
from dataclasses import fields

from cafcat.operations.repack.report import RepackReport
from tests.e2e.conftest import Cafcat, documented_keys, interrupted


def waste(cafcat: Cafcat, folder: str = "tree") -> str:
    """Ingest a chunk of three files of 1 kB, remove two of them, and return the chunk's uuid."""
    (cafcat.folder / folder).mkdir()
    for name in "abc":
        (cafcat.folder / folder / name).write_bytes(name.encode() * 1000)
    cafcat("ingest", folder, "-q")
    chunk = str(cafcat("chunks", "ls", "--state", "committed", "--json").documents[-1]["uuid"])
    assert cafcat.database_url
    cafcat("rm", f"{folder}/a", f"{folder}/b", "-q")
    return chunk


def test_nothing_to_repack(cafcat: Cafcat) -> None:
    assert cafcat("repack").text.startswith("nothing to repack: no chunk has more than ")
    (cafcat.folder / "f").write_bytes(b"f")
    cafcat("ingest", "f")
    assert cafcat("repack", "--max-unused", "0%", "--yes").text.startswith(
        "nothing to repack: no chunk has more than "
    )
    assert cafcat("repack", "-q").out == b""
    summary = cafcat("repack", "--json", "--yes").document["summary"]
    assert set(summary) == {field.name for field in fields(RepackReport)}
    assert not any(summary.values())


def test_a_small_chunk_alone_in_its_format_is_no_work(cafcat: Cafcat) -> None:
    for name, format in (("a", "caf"), ("b", "car")):
        (cafcat.folder / name).write_bytes(b"f")
        cafcat("ingest", name, "--format", format, "-q")
    assert cafcat("repack", "--small", "10MB").lines == [
        "nothing to repack: no chunk has more than 20% dead space (--max-unused), "
        "and no store has several chunks of one format below 10.0 MB (--small)"
    ]


def test_repack_shows_its_plan_and_needs_yes(cafcat: Cafcat) -> None:
    chunk = waste(cafcat)
    dry = cafcat("repack", "--dry-run")
    assert dry.lines == [
        f"chunk {chunk}: 2.0 kB dead (67%); 1 live file, 1.0 kB",
        "would copy 1 live file (1.0 kB) out of 1 chunk, with 2.0 kB dead",
    ]
    asked = cafcat("repack", code=9)
    assert asked.text == dry.text
    assert "nobody can be asked" in asked.err
    done = cafcat("repack", "--yes", "-v")
    assert re.fullmatch(
        r"copied 1 live file \(1.0 kB\) into 1 new chunk \(1.2 kB\); 1 of 1 chunk retired: prune removes it\n",
        done.text,
    )
    assert f"chunk {chunk}: 2.0 kB dead" in done.err
    assert re.search("committed chunk .*: 1 file, ", done.err)
    assert cafcat("cat", "tree/c").out == b"c" * 1000
    assert cafcat("chunks", "show", chunk, "--json").document["state"] == "retired"
    assert cafcat("db", "check").text == "nothing is wrong\n"
    assert cafcat("repack", "--max-unused=0%").text.startswith("nothing to repack: no chunk has more than ")


def test_the_missing_copy_of_the_new_chunk_is_named(cafcat: Cafcat) -> None:
    waste(cafcat)
    cafcat("copy", "--all", "--to", "./second", "-q")
    done = cafcat("repack", "--yes")
    second = (cafcat.folder / "second").as_uri()
    command = f"cafcat copy --all --to {second}"
    assert done.lines[-1] == (f"the new chunks have no second copy yet, unlike the old chunks: {command}")
    assert cafcat(*command.split()[1:]).text.startswith("copied 1 chunk")
    assert cafcat("query", "single-copy", "--json").documents == []


def test_json_output(cafcat: Cafcat) -> None:
    chunk = waste(cafcat)
    first, second = cafcat("repack", "--json", "--dry-run").documents
    assert cafcat("repack", "--json", code=9).error["kind"] == "not_confirmed"
    expected = {"chunk": chunk, "data_bytes": 3000, "dead_bytes": 2000, "live_bytes": 1000, "live_files": 1}
    assert {key: first["chosen"][key] for key in expected} == expected
    assert (second["summary"]["chunks"], second["summary"]["dry_run"]) == (1, True)
    only = cafcat("repack", "--json", "--yes").document["summary"]
    assert (only["files_moved"], only["chunks_retired"], only["dry_run"]) == (1, 1, False)


def test_all_keys_are_documented() -> None:
    documented = documented_keys("repack")
    chosen = {"chunk", "store", "size_bytes", "data_bytes", "dead_bytes", "live_bytes", "live_files"}
    assert {field.name for field in fields(RepackReport)} | chosen <= documented


def test_options_that_select_chunks(cafcat: Cafcat) -> None:
    first, second = waste(cafcat), waste(cafcat, "other")
    assert cafcat("repack", "--max-unused", "70%").text.startswith("nothing to repack: no chunk has more than ")
    assert (
        cafcat("repack", "--max-unused", "70%", "--small", "1MB", "--json", "--dry-run").documents[-1]["summary"][
            "chunks"
        ]
        == 2
    )
    assert (
        cafcat("repack", "--max-unused", "70%", "--chunk", second[:8], "--dry-run")
        .lines[0]
        .startswith(f"chunk {second}")
    )
    limited = cafcat("repack", "--max-repack-size", "1500", "--dry-run").lines
    assert limited[0].startswith(f"chunk {first}")
    assert limited[2] == "1 chunk left for another time: --max-repack-size"
    assert "no chunk in the store" in cafcat("repack", "--store", cafcat.folder / "elsewhere", code=4).err
    done = cafcat("repack", "--yes", "--target-size", "1200").text
    assert done.startswith("copied 2 live files (2.0 kB) into 2 new chunks")
    assert "2 of 2 chunks retired" in done


def test_wrong_arguments(cafcat: Cafcat) -> None:
    assert "write 20%" in cafcat("repack", "--max-unused", "20", code=2).err
    cafcat("repack", "--chunk", "0123456789", code=4)
    cafcat("repack", "--chunk", "0", code=2)
    cafcat("repack", "--target-size", "0", code=2)
    chunk = waste(cafcat)
    cafcat("rm", "tree/c")
    assert "no path points to it" in cafcat("repack", "--chunk", chunk, code=2).err


def test_prune_is_named_only_for_retired_chunks(cafcat: Cafcat) -> None:
    chunk = waste(cafcat)
    cafcat("undelete", "tree/a", "-q")
    path = cafcat.folder / "store" / f"{chunk}.caf"
    data = bytearray(path.read_bytes())
    data[2500] ^= 1
    path.write_bytes(data)
    assert cafcat("repack", "--yes", code=5).lines[0].endswith("; 0 of 1 chunk retired")


def test_damage_is_named_and_the_code_is_5(cafcat: Cafcat) -> None:
    chunk = waste(cafcat)
    path = cafcat.folder / "store" / f"{chunk}.caf"
    data = bytearray(path.read_bytes())
    data[2500] ^= 1
    path.write_bytes(data)
    done = cafcat("repack", "--yes", code=5)
    assert "cafcat: tree/c: its bytes are damaged: CRC-32C" in done.err
    assert (
        "1 damaged file left in place: run cafcat repair --chunk with the chunk that the problem names" in done.text
    )
    assert f"chunk {chunk}" in done.err
    problem, last = cafcat("repack", "--yes", "--json", code=5).documents
    assert (problem["problem"]["path"], problem["problem"]["kind"]) == ("tree/c", "corrupt")
    assert last["summary"]["files_damaged"] == 1
    path.unlink()
    (cafcat.folder / "store" / "journal").rename(cafcat.folder / "journal")
    assert "store" in cafcat("repack", "--yes", code=3).err


def test_ctrl_c_finishes_the_open_chunk(cafcat: Cafcat) -> None:
    """The commit waits for a lock that the test holds until the signal has arrived."""
    waste(cafcat)
    result, [said] = interrupted(cafcat, "repack", "--yes")
    assert "finishing any open chunk; press Ctrl-C again" in said
    assert result.code in (0, 130)
    assert "copied 1 live file" in result.text
    assert cafcat("repack").text.startswith("nothing to repack: no chunk has more than ")


def test_on_s3(cafcat: Cafcat, s3_bucket: str, s3_environment: None) -> None:
    remote = Cafcat(cafcat.folder, cafcat.database_url, {"CAFCAT_STORE": f"s3://{s3_bucket}/chunks"})
    waste(remote)
    assert "1 of 1 chunk retired" in remote("repack", "--yes").text
    assert remote("cat", "tree/c").out == b"c" * 1000
