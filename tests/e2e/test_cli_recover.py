"""recover: output and exit codes."""

import re
import uuid
from dataclasses import fields

import psycopg
import pytest

from cafcat.catalog.files.folder_changes import COUNT_FOLDERS
from cafcat.events import ChunkRecovered, ObjectLeftAlone
from cafcat.operations.recover.report import RecoverReport
from tests.e2e.conftest import Cafcat, documented_keys, interrupted


def sql(cafcat: Cafcat, statement: str, *values: object) -> None:
    assert cafcat.database_url
    with psycopg.connect(cafcat.database_url) as connection:
        connection.execute(statement.encode(), values or None)


def leave_whole(cafcat: Cafcat, name: str = "whole", lease: str = "-1s") -> str:
    """Leave a whole chunk whose writer died before the commit, on another machine, and return its uuid.

    An ingest recovers it when its lease has ended.
    """
    (cafcat.folder / name).write_bytes(b"content")
    cafcat("ingest", name, "-q")
    chunk = str(cafcat("chunks", "ls", "--state", "committed", "--json").documents[-1]["uuid"])
    sql(cafcat, "DELETE FROM file_locations WHERE file_path = %s", name)
    sql(cafcat, "DELETE FROM folder_deltas")
    sql(cafcat, "DELETE FROM folder_totals")
    sql(cafcat, COUNT_FOLDERS)
    sql(
        cafcat,
        "UPDATE chunks SET state = 'writing', committed_at = NULL, lease_owner = 'elsewhere:1:run 1', "
        "lease_expires_at = now() + %s::interval, live_file_count = 0, live_bytes = 0 WHERE uuid = %s",
        lease,
        chunk,
    )
    return chunk


def end_leases(cafcat: Cafcat) -> None:
    sql(cafcat, "UPDATE chunks SET lease_expires_at = now() - interval '1s' WHERE state = 'writing'")


def leave_half(cafcat: Cafcat, store: str | None = None, lease: str = "-1s") -> str:
    """Leave a chunk whose writer died half-way, and return its uuid. With a lease the writer counts as alive."""
    folder = cafcat.folder / "store"
    chunk = str(uuid.uuid4())
    if store is None:
        folder.mkdir(exist_ok=True)
        (folder / f"{chunk}.caf.partial").write_bytes(b"half")
    sql(cafcat, "INSERT INTO stores (url) VALUES (%s) ON CONFLICT DO NOTHING", store or folder.as_uri())
    sql(
        cafcat,
        "INSERT INTO chunks (uuid, format, store, object_key, lease_expires_at) "
        "VALUES (%s, 'caf', %s, %s, now() + %s::interval)",
        chunk,
        store or folder.as_uri(),
        f"{chunk}.caf",
        lease,
    )
    return chunk


def test_nothing_to_recover(cafcat: Cafcat) -> None:
    assert cafcat("recover").text == "nothing to recover\n"
    (cafcat.folder / "f").write_bytes(b"f")
    cafcat("ingest", "f")
    assert cafcat("recover", "--dry-run").text == "nothing to recover\n"
    assert cafcat("recover", "-q").out == b""
    summary = cafcat("recover", "--json").document["summary"]
    assert set(summary) == {field.name for field in fields(RecoverReport)}
    assert summary["failed"] == []
    assert not any(summary.values())


def test_all_keys_are_documented() -> None:
    documented = documented_keys("recover")
    events = {*ChunkRecovered._fields, *ObjectLeftAlone._fields}
    assert {field.name for field in fields(RecoverReport)} | events <= documented


def test_leftovers_are_recovered_and_reported(cafcat: Cafcat) -> None:
    whole, half = leave_whole(cafcat), leave_half(cafcat)
    assert "recover" in cafcat("db", "check", code=5).text
    dry = cafcat("recover", "--dry-run", "-v")
    assert dry.text == "would adopt 1 chunk (1 file, 7 B), abandon 1 chunk\n"
    assert f"chunk {whole} would be adopted: 1 file, " in dry.err
    assert f"chunk {half} would be abandoned: no object" in dry.err
    done = cafcat("recover", "-v")
    assert done.text == "adopted 1 chunk (1 file, 7 B), abandoned 1 chunk\n"
    assert f"chunk {whole} adopted: 1 file, " in done.err
    assert f"chunk {half} abandoned: no object {half}.caf in {cafcat.folder / 'store'}" in done.err
    assert cafcat("cat", "whole").out == b"content"
    assert [path.name for path in (cafcat.folder / "store").glob("*.*")] == [f"{whole}.caf"]
    assert cafcat("db", "check").text == "nothing is wrong\n"
    assert cafcat("recover").text == "nothing to recover\n"


def test_json_output(cafcat: Cafcat) -> None:
    whole, half = leave_whole(cafcat), leave_half(cafcat)
    (cafcat.folder / "store" / "strange").write_bytes(b"")
    first, second, unknown, last = cafcat("recover", "--json", "-v").documents
    assert (first["uuid"], first["outcome"], first["files"], first["reason"]) == (whole, "adopted", 1, None)
    assert (second["uuid"], second["outcome"], second["files"]) == (half, "abandoned", 0)
    assert second["reason"].startswith("no object")
    strange = (cafcat.folder / "store" / "strange").as_uri()
    assert unknown == {"object": strange, "is_upload": False, "copy_of": None, "is_needed": False}
    assert f"left alone: {strange}" in cafcat("recover", "-v").err
    summary = last["summary"]
    assert (summary["adopted"], summary["abandoned"], summary["unknown_objects"]) == (1, 1, 1)
    assert (summary["files_adopted"], summary["bytes_adopted"], summary["dry_run"]) == (1, 7, False)


@pytest.mark.parametrize(
    "words",
    [
        "ingest whole",
        "copy --all --to store",
        "repack --yes",
        "repair --from-copy --yes",
        "store migrate store ./new",
    ],
)
@pytest.mark.parametrize("as_json", [False, True])
def test_verbs_that_write_recover_leftovers_first(cafcat: Cafcat, words: str, as_json: bool) -> None:
    """The progress of each verb also gets the events of the recovery."""
    leave_whole(cafcat)
    leave_half(cafcat)
    recovered = "recovered the leftovers of an earlier run: 1 chunk adopted (1 file), 1 chunk abandoned"
    assert recovered in cafcat(*words.split(), "-v", *(["--json"] if as_json else [])).err
    assert cafcat("cat", "whole").out == b"content"


def test_untouched_leftovers_are_reported(cafcat: Cafcat) -> None:
    leave_half(cafcat, lease="1 hour")
    store = cafcat.folder / "store"
    (store / "theirs.partial").write_bytes(b"")
    first, second, third = cafcat("recover").lines
    assert first == "nothing to recover"
    assert re.fullmatch(r"1 chunk is being written: its lease ends at \d{4}-\d\d-\d\dT[\d:.]+Z", second)
    assert third == "left alone, as no chunk of this catalog names them: 1 upload (-v lists them)"
    leave_half(cafcat, lease="2 hours")
    assert "2 chunks are being written: the last lease ends at" in cafcat("recover").text
    assert len([path for path in store.iterdir() if path.is_file()]) == 3


def test_superseded_files_are_counted(cafcat: Cafcat) -> None:
    leave_whole(cafcat, lease="1 hour")
    cafcat("ingest", "whole")
    end_leases(cafcat)
    assert cafcat("recover").text == "adopted 1 chunk (0 files, 0 B; 1 superseded)\n"
    assert cafcat("db", "check").text == "nothing is wrong\n"


def test_unreachable_store_is_reported_with_exit_code_3(cafcat: Cafcat) -> None:
    leave_half(cafcat, store="unheard-of://store")
    leave_half(cafcat)
    result = cafcat("recover", code=3)
    assert result.text == "abandoned 1 chunk\n"
    assert "unheard-of://store" in result.err
    again = cafcat("recover", "-q", code=3)
    assert again.out == b""
    assert "unheard-of://store" in again.err
    assert cafcat("recover", code=3).text == "nothing was recovered\n"
    assert len(cafcat("recover", "--json", code=3).document["summary"]["failed"]) == 1
    assert cafcat("recover", "--store", str(cafcat.folder / "store")).text == "nothing to recover\n"
    assert cafcat("recover", "--store", "store").text == "nothing to recover\n"


def test_on_s3(cafcat: Cafcat, s3_bucket: str, s3_environment: None) -> None:
    remote = Cafcat(cafcat.folder, cafcat.database_url, {"CAFCAT_STORE": f"s3://{s3_bucket}/chunks"})
    whole = leave_whole(remote)
    leave_half(remote, store=f"s3://{s3_bucket}/chunks")
    result = remote("recover", "-v")
    assert result.text == "adopted 1 chunk (1 file, 7 B), abandoned 1 chunk\n"
    assert f"chunk {whole} adopted" in result.err
    assert remote("cat", "whole").out == b"content"


@pytest.mark.parametrize("as_json", [False, True])
def test_ctrl_c_finishes_the_current_chunk(cafcat: Cafcat, as_json: bool) -> None:
    """The commit waits for a lock that the test holds until the signal has arrived."""
    leave_whole(cafcat, lease="1 hour")
    leave_whole(cafcat, "second", lease="1 hour")
    end_leases(cafcat)
    result, [said] = interrupted(cafcat, "recover", *(["--json"] if as_json else []))
    assert "finishing any open check; press Ctrl-C again" in said
    assert result.code == 130
    if as_json:
        assert b'"interrupted": true' in result.out
    else:
        assert result.text == "interrupted; adopted 1 chunk (1 file, 7 B)\n"
    assert cafcat("recover").text == "adopted 1 chunk (1 file, 7 B), wrote 1 journal record into the store\n"
