"""prune: output and exit codes."""

import re
from dataclasses import fields

import pytest

from cafcat.events import ChunkPruned
from cafcat.operations.prune.report import PruneReport
from tests.e2e.conftest import Cafcat, documented_keys


def ingest(cafcat: Cafcat, name: str) -> str:
    """Ingest a chunk with a file of that name, and return its uuid."""
    (cafcat.folder / name).write_bytes(name.encode())
    cafcat("ingest", name, "-q")
    return str(cafcat("chunks", "ls", "--json").documents[-1]["uuid"])


@pytest.fixture
def chunks(cafcat: Cafcat) -> dict[str, str]:
    """A chunk with a live file, and two chunks without."""
    chunks = {name: ingest(cafcat, name) for name in ("kept", "gone", "gone too")}
    cafcat("rm", "gone", "gone too")
    return chunks


def in_store(cafcat: Cafcat) -> set[str]:
    return {path.stem for path in (cafcat.folder / "store").glob("*.caf")}


def test_all_keys_are_documented() -> None:
    documented = documented_keys("prune")
    assert {field.name for field in fields(PruneReport)} | set(ChunkPruned._fields) <= documented


def test_nothing_to_prune(cafcat: Cafcat) -> None:
    assert cafcat("prune").text == "nothing to prune\n"
    ingest(cafcat, "f")
    assert cafcat("prune", "--grace", "0", "--yes").text == "nothing to prune\n"
    assert cafcat("prune", "-q").out == b""


def test_prune_shows_its_plan_and_needs_yes(cafcat: Cafcat, chunks: dict[str, str]) -> None:
    first, second = cafcat("prune", "--yes").lines
    assert first == "nothing to prune"
    assert re.fullmatch(r"2 chunks \(\d+ B\) without files for less than 7d: kept for now \(--grace\)", second)
    assert "nobody can be asked" in cafcat("prune", "--grace", "0", "-q", code=9).err
    dry = cafcat("prune", "--grace", "0", "-v", "--dry-run")
    assert re.fullmatch(r"would remove 2 chunks: frees \d+ B", dry.lines[0])
    assert dry.lines[1] == "2 removed or replaced files could not be brought back any more"
    assert f"chunk {chunks['gone']} would be removed: 1 object, " in dry.err
    assert in_store(cafcat) == set(chunks.values())
    done = cafcat("prune", "--grace", "0", "--yes", "-v")
    assert re.fullmatch(r"removed 2 chunks: freed \d+ B", done.lines[0])
    assert done.lines[1:] == ["2 removed or replaced files cannot be brought back any more"]
    assert f"chunk {chunks['gone too']} removed: 1 object, " in done.err
    assert in_store(cafcat) == {chunks["kept"]}
    assert cafcat("cat", "kept").out == b"kept"
    assert cafcat("db", "check").text == "nothing is wrong\n"
    assert [chunk["uuid"] for chunk in cafcat("chunks", "ls", "--state", "deleted", "--json").documents] == [
        chunks["gone"],
        chunks["gone too"],
    ]


def test_the_plan_leaves_out_the_bytes_of_missing_objects(cafcat: Cafcat, chunks: dict[str, str]) -> None:
    for name in ("gone", "gone too"):
        (cafcat.folder / "store" / f"{chunks[name]}.caf").unlink()
    assert cafcat("prune", "--grace", "0", "--dry-run").lines[0] == "would remove 2 chunks: frees 0 B"
    assert cafcat("prune", "--grace", "0", "--yes").lines[0] == "removed 2 chunks: freed 0 B"


def test_json_output(cafcat: Cafcat, chunks: dict[str, str]) -> None:
    first, second, last = cafcat("prune", "--grace", "0", "--yes", "--json", "-v").documents
    assert [first["uuid"], second["uuid"]] == [chunks["gone"], chunks["gone too"]]
    assert set(first) == set(ChunkPruned._fields)
    summary = last["summary"]
    assert set(summary) == {field.name for field in fields(PruneReport)}
    assert (summary["chunks"], summary["objects"], summary["failed"], summary["dry_run"]) == (2, 2, [], False)
    assert summary["files_lost"] == 2
    assert summary["bytes_freed"] == first["bytes_freed"] + second["bytes_freed"] > 0


def test_a_grace_period_of_zero_has_any_unit(cafcat: Cafcat, chunks: dict[str, str]) -> None:
    assert cafcat("prune", "--grace", "0d", "--dry-run").text == cafcat("prune", "--grace", "0", "--dry-run").text
    assert cafcat("find", "--older", "0d").lines


def test_wrong_arguments_are_refused(cafcat: Cafcat) -> None:
    assert "not a duration" in cafcat("prune", "--grace", "soon", code=2).err
    assert "not a duration" in cafcat("prune", "--grace", "-1d", code=2).err


def test_missing_store_keeps_its_chunks(cafcat: Cafcat, chunks: dict[str, str]) -> None:
    (cafcat.folder / "store").rename(cafcat.folder / "unmounted")
    result = cafcat("prune", "--grace", "0", "--yes", code=3)
    assert result.lines[0] == "nothing was pruned"
    assert "kept 2 of the chunks in " in result.err
    assert result.err.count("mounted") == 1
    (cafcat.folder / "unmounted").rename(cafcat.folder / "store")
    assert cafcat("undelete", "gone", "gone too").text.startswith("brought back 2 files")
    assert cafcat("cat", "gone").out == b"gone"


def test_on_s3(cafcat: Cafcat, s3_bucket: str, s3_environment: None) -> None:
    remote = Cafcat(cafcat.folder, cafcat.database_url, {"CAFCAT_STORE": f"s3://{s3_bucket}/chunks"})
    ingest(remote, "gone")
    ingest(remote, "kept")
    remote("rm", "gone")
    assert remote("prune", "--grace", "0", "--yes").text.startswith("removed 1 chunk: freed ")
    assert "no longer exist" in remote("undelete", "gone", code=4).err
    assert remote("cat", "kept").out == b"kept"
