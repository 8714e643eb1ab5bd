"""rebuild and compare: output and exit codes."""

import re
import shutil
from collections.abc import Iterator
from dataclasses import fields

import pytest

from cafcat.events import CatalogsDiffer
from cafcat.operations.rebuild.damage import Damage
from cafcat.operations.rebuild.report import RebuildReport
from tests.e2e.conftest import Cafcat, documented_keys, write_tree
from tests.worlds.servers.services import Databases


@pytest.fixture
def lost(cafcat: Cafcat, empty_catalog: str) -> Cafcat:
    """A command with an empty catalog, and the store of a lost one."""
    write_tree(cafcat.folder)
    cafcat("ingest", "tree", "-q")
    return Cafcat(cafcat.folder, empty_catalog)


@pytest.fixture
def empty_catalog(databases: Databases) -> Iterator[str]:
    with databases.fresh(databases.template()) as url:
        yield url


def test_all_keys_are_documented() -> None:
    assert {field.name for field in fields(RebuildReport)} | set(Damage._fields) <= documented_keys("rebuild")
    assert {"rows", "differences", "equal"} | set(CatalogsDiffer._fields) <= documented_keys("compare")


def test_rebuild_restores_the_catalog(cafcat: Cafcat, lost: Cafcat) -> None:
    assert lost("rebuild").text == "rebuilt 1 chunk: 13 files, 3.0 MB; 0 earlier locations, 1 journal record\n"
    assert lost("cat", "tree/a.txt").out == b"first file\n"
    assert lost("ls", "-R", "--json").documents == cafcat("ls", "-R", "--json").documents
    assert lost("db", "check").text == "nothing is wrong\n"
    assert "rebuilt      counts and sources are lost; `cafcat query files-of-run 1`" in lost("runs").text
    for words in (["runs"], ["runs", "show", "1"], ["query", "runs"]):
        run = lost(*words, "--json").document
        assert [run[key] for key in ("state", "sources", "files_added", "bytes_added")] == [
            "rebuilt",
            None,
            None,
            None,
        ]
    for verb in (("runs", "diff", "1", "1"), ("query", "ended-by-run", "1"), ("query", "failed-files", "1")):
        assert "run 1 was rebuilt: its end, its changes and its failed files are lost" in lost(*verb, code=2).err
    assert len(lost("query", "files-of-run", "1", "--json").documents) == 13
    [run] = lost("sql", "-c", "SELECT state, seconds FROM cafcat_ops.runs", "--json").documents
    assert run == {"state": "rebuilt", "seconds": None}
    assert cafcat.database_url
    same = lost("compare", cafcat.database_url)
    assert same.text == "no difference: 1 of chunks, 13 of file_locations, 0 of retired_locations\n"
    again = lost("rebuild", code=1)
    assert "the catalog is not empty: a rebuild needs an empty one; point --database-url to an empty" in again.err


def test_queries_of_events_tell_that_a_rebuild_lost_some(cafcat: Cafcat, lost: Cafcat) -> None:
    assert "rebuilt" not in cafcat("query", "removals").err
    lost("rebuild", "-q")
    for name, rest in (
        ("removals", "`cafcat undelete --list`"),
        ("commands", "a backup"),
        ("verify-runs", "a backup"),
    ):
        lines = lost("query", name).err
        assert "the catalog was rebuilt, and the rows before that are lost" in lines
        assert rest in lines
    assert "rebuilt" not in lost("query", "runs").err


def test_differences_are_shown_and_counted(cafcat: Cafcat, lost: Cafcat) -> None:
    lost("rebuild", "-q")
    assert cafcat.database_url
    cafcat("rm", "tree/a.txt", "tree/b.bin", "--yes", "-q")
    result = lost("compare", cafcat.database_url, "--limit", "3", code=5)
    *shown, last = result.lines
    assert len(shown) == 3
    assert re.match(r"chunks  [0-9a-f-]+: live_file_count 13 here, 11 there, live_bytes", shown[0])
    assert shown[1] == "file_locations  tree/a.txt: only here"
    assert last.startswith(
        "5 differences: 1 of chunks, 2 of file_locations, 2 of retired_locations; the same: 0 of"
    )
    *found, summary = lost("compare", cafcat.database_url, "--json", code=5).documents
    assert [document["difference"]["name"] for document in found][1:] == ["tree/a.txt", "tree/b.bin"] * 2
    assert found[1]["difference"]["theirs"] is None
    assert found[1]["difference"]["ours"]["path"] == "tree/a.txt"
    differences = {table: count for table, count in summary["summary"]["differences"].items() if count}
    assert differences == {"chunks": 1, "file_locations": 2, "retired_locations": 2}
    assert summary["summary"]["equal"] is False
    assert lost("compare", cafcat.database_url, "-q", code=5).out == b""


def test_losses_are_reported_and_must_be_accepted(cafcat: Cafcat, lost: Cafcat) -> None:
    (cafcat.folder / "more").write_bytes(b"more")
    cafcat("ingest", "more", "-q")
    store = cafcat.folder / "store"
    gone = next(path for path in store.glob("*.caf") if path.stat().st_size < 1000)
    gone.unlink()
    (store / "strange").write_bytes(b"")
    refused = lost("rebuild", code=5)
    missing = f"missing {gone.stem} (1 file): the chunk is in journal record 2, but no store has its object"
    assert missing in refused.err
    assert refused.text.startswith(
        "nothing was written: files may be lost by 1 problem; name all stores that the catalog had, or "
    )
    assert lost("ls", "-R").out == b""
    summary = lost("rebuild", "--accept-loss", "--json", code=5).document["summary"]
    assert set(summary) == {field.name for field in fields(RebuildReport)}
    assert (summary["written"], summary["files"], summary["lost_count"], summary["foreign_objects"]) == (
        True,
        13,
        1,
        1,
    )
    [damage] = summary["damages"]
    assert (damage["kind"], damage["name"], damage["files"], damage["lost"]) == ("missing", gone.stem, 1, True)


def test_a_single_file_of_a_lost_chunk_is_counted(cafcat: Cafcat, empty_catalog: str) -> None:
    for content in (b"first", b"second"):
        (cafcat.folder / "a").write_bytes(content)
        cafcat("ingest", "a", "-q")
    cafcat("rm", "a")
    cafcat("undelete", "a")
    (cafcat.folder / "store" / f"{cafcat('stat', 'a', '--json').document['chunk']}.caf").unlink()
    result = Cafcat(cafcat.folder, empty_catalog)("rebuild", "--accept-loss", code=5)
    assert result.lines[-1] == "1 file lost that undelete had restored"


def test_stores_by_folder_url_and_name(cafcat: Cafcat, lost: Cafcat, databases: Databases) -> None:
    copies = cafcat.folder / "copies"
    cafcat("copy", "--all", "--to", str(copies), "-q")
    (cafcat.folder / "home").mkdir(exist_ok=True)
    (cafcat.folder / "home" / "cafcat.toml").write_text(f'[stores.spare]\nurl = "{copies}"\n')
    result = lost("rebuild", "store", "spare")
    assert "1 chunk has a copy" in result.text
    with databases.fresh(databases.template()) as url:
        alone = Cafcat(cafcat.folder, url)
        refused = alone("rebuild", copies.as_uri(), code=5)
        assert (
            f"store {(cafcat.folder / 'store').as_uri()}: the catalog had chunks in this store at " in refused.err
        )
        assert refused.text.startswith("nothing was written: files may be lost by 1 problem; name all stores that")
        accepted = alone("rebuild", copies.as_uri(), "--accept-loss", code=5)
        assert accepted.text.startswith("rebuilt 1 chunk: 13 files")
    with databases.fresh(databases.template()) as url:
        empty = Cafcat(cafcat.folder, url)
        assert "names of stores are lost with their catalog" in empty("rebuild", "nowhere", code=4).err
        (cafcat.folder / "nowhere").mkdir()
        nothing = empty("rebuild", "nowhere", code=4)
        assert "neither a chunk nor a journal record in" in nothing.err
        assert "if the store is lost for good, name only the other stores: cafcat rebuild STORE..." in nothing.err
        mistyped = Cafcat(cafcat.folder, url)("rebuild", "store", "nowhere", code=4)
        nowhere = (cafcat.folder / "nowhere").as_uri()
        assert mistyped.err.startswith(f"cafcat: there is neither a chunk nor a journal record in {nowhere}; ")


def test_a_store_that_is_not_named_is_missed(cafcat: Cafcat, lost: Cafcat) -> None:
    """The first store was given up, and a new store is at its place. The new store has one file of the catalog."""
    copies = cafcat.folder / "copies"
    cafcat("copy", "--all", "--to", str(copies), "-q")
    shutil.rmtree(cafcat.folder / "store")
    cafcat("store", "rm", "store", "--lost", "--yes", "-q")
    (cafcat.folder / "new").write_bytes(b"new")
    cafcat("ingest", "new", "-q")
    refused = lost("rebuild", code=5)
    assert re.search(
        f"store {re.escape(copies.as_uri())}: the catalog had chunks in this store at [0-9T:.-]+Z", refused.err
    )
    assert lost("ls", "-R").out == b""
    copies = copies.rename(cafcat.folder / "moved")
    assert lost("rebuild", "store", "moved").text.startswith("rebuilt 2 chunks: 14 files")
    assert lost("ls", "-R").out == cafcat("ls", "-R").out


def test_a_store_that_was_migrated_away_is_not_missed(cafcat: Cafcat, lost: Cafcat) -> None:
    cafcat("store", "migrate", "store", "./second", "-q")
    done = lost("rebuild", "second")
    assert done.text.startswith("rebuilt 1 chunk: 13 files")
    assert done.err == ""
    assert lost("ls", "-R").out == cafcat("ls", "-R").out


def test_copies_that_are_not_named_are_missed(cafcat: Cafcat, lost: Cafcat) -> None:
    copies = cafcat.folder / "copies"
    cafcat("copy", "--all", "--to", str(copies), "-q")
    (cafcat.folder / "new").write_bytes(b"new")
    cafcat("ingest", "new", "-q")
    done = lost("rebuild")
    assert done.text.startswith("rebuilt 2 chunks: 14 files")
    assert f"the lost catalog had copies in {copies.as_uri()}: this catalog does not have them" in done.err
    assert "`cafcat copy --all --to STORE` enters those of the chunks" in done.err


def test_a_chunk_without_a_record_is_named(cafcat: Cafcat, lost: Cafcat) -> None:
    [line] = (cafcat.folder / "store" / "journal").iterdir()
    line.unlink()
    [chunk] = (cafcat.folder / "store").glob("*.caf")
    result = lost("rebuild")
    assert f"without a journal record, entered as the newest: {chunk.stem}" in result.err
    assert result.text.startswith("rebuilt 1 chunk: 13 files")


def test_on_s3(cafcat: Cafcat, empty_catalog: str, s3_bucket: str, s3_environment: None) -> None:
    store = {"CAFCAT_STORE": f"s3://{s3_bucket}/chunks"}
    write_tree(cafcat.folder)
    Cafcat(cafcat.folder, cafcat.database_url, store)("ingest", "tree", "-q")
    lost = Cafcat(cafcat.folder, empty_catalog, store)
    assert lost("rebuild").text.startswith("rebuilt 1 chunk: 13 files")
    assert lost("cat", "tree/a.txt").out == b"first file\n"
