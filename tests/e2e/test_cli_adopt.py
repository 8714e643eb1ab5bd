"""cafcat adopt, as its users see it."""

import json
import os
from dataclasses import fields

from cafcat.events import ArchiveAdopted
from cafcat.formats.caf.format import CAF
from cafcat.operations.adopt.report import AdoptReport
from cafcat.testing.formats import pack
from tests.e2e.conftest import Cafcat, documented_keys, interrupted
from tests.worlds.archives.damage import flip
from tests.worlds.archives.log_archives import write_container
from tests.worlds.servers.services import Databases

FILES = {"a/1": b"one", "b": b"two" * 1000}


def archive(cafcat: Cafcat, name: str = "old.caf") -> None:
    data, _, _ = pack(CAF, [(path, content, 0) for path, content in FILES.items()])
    (cafcat.folder / name).write_bytes(data)


def test_all_keys_are_documented() -> None:
    documented = documented_keys("adopt")
    assert {field.name for field in fields(AdoptReport)} | set(ArchiveAdopted._fields) <= documented


def test_adopt_reports_its_effects(cafcat: Cafcat) -> None:
    archive(cafcat)
    result = cafcat("adopt", "--prefix", "old", "old.caf", "-v")
    assert (result.code, result.text) == (0, "adopted 1 archive: 2 files, 3.0 kB\n")
    assert "old.caf: caf, 2 files, 3.0 kB, chunk " in result.err
    assert cafcat("get", "old/a/1", "-o", "-").out == b"one"
    assert cafcat("chunks", "ls", "--json").documents[0]["adopted_prefix"] == "old/"


def test_adopt_in_json(cafcat: Cafcat) -> None:
    archive(cafcat)
    result = cafcat("adopt", "old.caf", "missing.caf", "--json", "-v", code=3)
    adopted, summary = result.documents
    assert adopted["archive"] == str(cafcat.folder / "old.caf")
    assert "missing.caf" in json.dumps(summary["summary"]["failed"])


def test_failed_files_and_archives_are_named(cafcat: Cafcat) -> None:
    archive(cafcat)
    flip(cafcat.folder / "old.caf", 1)
    result = cafcat("adopt", "old.caf", "old.caf", code=3)
    assert "a/1" in result.err
    assert "the archive was adopted before" in result.err
    assert result.text == "adopted 1 archive: 1 file, 3.0 kB; 1 file failed; 1 archive refused\n"


def test_a_pipe_is_not_called_missing(cafcat: Cafcat) -> None:
    os.mkfifo(cafcat.folder / "pipe")
    assert cafcat("adopt", "pipe", code=3).err == "cafcat: pipe: this is not a regular file\n"
    assert cafcat("adopt", "none", code=3).err == "cafcat: none: there is no such file or object\n"


def test_ctrl_c_stops_adopt_after_the_current_archive(cafcat: Cafcat) -> None:
    """The commit of the first archive waits for a lock that the test holds until the signal has arrived."""
    archive(cafcat)
    archive(cafcat, "other.caf")
    cafcat("db", "init")
    result, [said] = interrupted(cafcat, "adopt", "old.caf", "other.caf")
    assert "dropping any open archive, unless all of it was read" in said
    assert (result.code, result.text) == (130, "interrupted; adopted 1 archive: 2 files, 3.0 kB\n")


def test_conflict_message_names_the_options(cafcat: Cafcat) -> None:
    archive(cafcat)
    archive(cafcat, "other.caf")
    cafcat("adopt", "old.caf")
    result = cafcat("adopt", "other.caf", code=3)
    assert "--on-conflict skip or replace, or another --prefix" in result.err
    assert (
        cafcat("adopt", "other.caf", "--on-conflict", "skip").text
        == "adopted 1 archive: 0 files, 0 B; 2 files skipped\n"
    )


def test_an_older_version_is_read_by_adopting_its_chunk_elsewhere(cafcat: Cafcat, databases: Databases) -> None:
    for content in (b"first", b"second version"):
        (cafcat.folder / "f").write_bytes(content)
        cafcat("ingest", "f", "-q")
    [older] = cafcat("stat", "f", "--json").document["history"]
    assert [row["is_kept"] for row in cafcat("query", "history", "f", "--json").documents] == [True, True]
    with databases.fresh(databases.template()) as url:
        elsewhere = Cafcat(cafcat.folder, url, {"CAFCAT_STORE": str(cafcat.folder / "none")})
        elsewhere("adopt", older["object"])
        assert elsewhere("cat", "f").out == b"first"
    assert cafcat("cat", "f").out == b"second version"


def test_prune_lets_adopted_archives_go(cafcat: Cafcat) -> None:
    archive(cafcat)
    cafcat("adopt", "old.caf")
    cafcat("rm", "-r", ".", "--yes")
    assert (
        "would remove 1 adopted archive from the catalog; its object stays"
        in cafcat("prune", "--grace", "0", "--dry-run").text
    )
    assert (
        "removed 1 adopted archive from the catalog; its object stays"
        in cafcat("prune", "--grace", "0", "--yes").text
    )
    assert (cafcat.folder / "old.caf").exists()
    result = cafcat("undelete", "-r", ".", code=3)
    assert result.text == "brought back 0 files (0 B); left alone 2 whose adopted archive has to be adopted again\n"
    assert "adopt the archive again" in cafcat("undelete", "b", code=4).err
    cafcat("adopt", "old.caf")
    assert cafcat("cat", "b").out == FILES["b"]


def test_units_lists_log_files(cafcat: Cafcat) -> None:
    write_container(cafcat.folder / "x.clp", [("app/a.log", 0, 1), ("b.log", 1, 3)], [("t", 1500, 2500)])
    cafcat("adopt", "x.clp")
    [chunk] = [found["uuid"] for found in cafcat("chunks", "ls", "--json").documents]
    times = "1970-01-01T00:00:01.500Z to 1970-01-01T00:00:02.500Z"
    assert cafcat("units").lines == [
        f"app/a.log  1 record  {chunk}  {times}",
        f"b.log  2 records  {chunk}  {times}",
    ]
    found = cafcat("units", "b.log", "--json").document
    assert set(found) <= documented_keys("units")
    assert (found["log_file"], found["records"], found["begin_at"]) == ("b.log", 2, "1970-01-01T00:00:01.500Z")


def test_adopted_archives_are_left_out_of_copies_and_counted(cafcat: Cafcat) -> None:
    archive(cafcat)
    cafcat("adopt", "--prefix", "old", "old.caf", "-q")
    refused = cafcat("copy", "--prefix", "old", "--to", "./second", code=2)
    assert "all its files are in adopted archives, which cannot be copied" in refused.err
    assert (
        "left out 1 adopted archive: `cafcat repack --chunk UUID` moves"
        in cafcat("copy", "--all", "--to", "./second").text
    )
    doctor = cafcat.unchecked("doctor").text
    assert "0 chunks without a second copy" in doctor
    assert "1 adopted archive without a copy: cafcat copies none" in doctor
    [row] = cafcat("sql", "-c", "SELECT is_adopted FROM cafcat_ops.single_copy", "--json").documents
    assert row == {"is_adopted": True}
    (cafcat.folder / "new").write_bytes(b"new")
    cafcat("ingest", "new", "-q")
    assert "1 chunk without a second copy (cafcat copy)" in cafcat.unchecked("doctor").text
