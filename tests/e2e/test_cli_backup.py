"""backup and restore: output and exit codes."""

import re
from collections.abc import Iterator
from dataclasses import fields

import psycopg
import pytest

from cafcat.operations.backup.report import BackupReport
from cafcat.operations.backup.run import FoundBackup
from cafcat.operations.restore.report import RestoreReport
from tests.e2e.conftest import Cafcat, documented_keys, write_tree
from tests.worlds.servers.services import Databases


@pytest.fixture
def lost(cafcat: Cafcat, databases: Databases) -> Iterator[Cafcat]:
    """A command with an empty catalog, and the store of a lost catalog with files."""
    write_tree(cafcat.folder)
    cafcat("ingest", "tree", "-q")
    with databases.fresh(databases.template()) as url:
        yield Cafcat(cafcat.folder, url)


def test_all_keys_are_documented() -> None:
    for verb, names in {
        "backup": {field.name for field in fields(BackupReport)} | set(FoundBackup._fields),
        "restore": {field.name for field in fields(RestoreReport)},
    }.items():
        assert names <= documented_keys(verb), verb


def test_backup_and_restore(cafcat: Cafcat, lost: Cafcat) -> None:
    store = (cafcat.folder / "store").as_uri()
    done = cafcat("backup").text
    assert re.fullmatch(
        rf"backed up \d+ rows, [\d.]+ kB, as backups/\d+T[\d.]+Z-[0-9a-f-]+\.tar in {store}\n", done
    )
    [listed] = cafcat("backup", "--list").lines
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:.]+Z +[\d.]+ kB  backups/\S+\.tar", listed)
    restored = lost("restore")
    assert re.fullmatch(
        rf"restored \d+ rows as of \S+Z, from backups/\S+ in {store}\n"
        rf"no later change in the journal of {store}; .*\n",
        restored.text,
    )
    assert restored.err == ""
    assert lost("cat", "tree/a.txt").out == b"first file\n"
    assert cafcat.database_url
    assert lost("compare", cafcat.database_url).text.startswith("no difference")
    assert lost("runs", "--json").documents == cafcat("runs", "--json").documents
    again = lost("restore", code=1)
    assert "a restore of the catalog needs an empty one, but ingest_runs has rows" in again.err


def test_restore_lists_the_stores_whose_journals_were_searched(cafcat: Cafcat, lost: Cafcat) -> None:
    for name in ("b", "c"):
        cafcat("copy", "--all", "--to", f"./{name}", "-q")
    cafcat("backup", "-q")
    stores = ", ".join((cafcat.folder / name).as_uri() for name in ("b", "c", "store"))
    assert f"no later change in the journal of {stores}; " in lost("restore").text


def test_restore_warns_of_later_changes(cafcat: Cafcat, lost: Cafcat) -> None:
    cafcat("backup", "-q")
    cafcat("rm", "tree/a.txt", "--yes", "-q")
    result = lost("restore")
    assert "the backup lacks 1 later change: to have every change, run" in result.err


def test_all_commands_name_rebuild_if_a_chunk_was_pruned_after_the_backup(cafcat: Cafcat, lost: Cafcat) -> None:
    cafcat("backup", "-q")
    cafcat("rm", "tree/a.txt", "--yes", "-q")
    cafcat("repack", "--max-unused", "0%", "--yes", "-q")
    cafcat("prune", "--grace", "0", "--yes", "-q")
    assert "files that were repacked after the backup may be unreadable" in lost("restore").err
    rebuild = "cafcat rebuild with an empty catalog"
    for arguments in (["get", "tree/a.txt", "-o", "out"], ["extract", "-C", "out"]):
        assert f"run {rebuild}; else run cafcat repair --chunk " in lost(*arguments, code=5).err
    *_, last, repair = lost("verify", code=5).lines
    assert last == f"the restored backup lacks 2 later changes; to find missing files in newer chunks: {rebuild}"
    assert repair.startswith("to repair chunks: cafcat repair, or ")
    *_, source, last = lost("repair", "--dry-run", code=5).lines
    assert source.startswith("lost files may be at their source: cafcat repair --from-source SRC")
    assert last == (
        "the catalog was restored from a backup that lacks 2 later changes: "
        f"lost files may be in newer chunks, and {rebuild} finds them"
    )
    assert f"run {rebuild}; else run: cafcat repair, or " in lost.unchecked("doctor").text


def test_later_changes_are_counted_after_a_rebuild(cafcat: Cafcat, lost: Cafcat) -> None:
    """A rebuilt catalog does not have the last change in the backup: it finds the later ones by time."""
    cafcat("backup", "-q")
    cafcat("rm", "tree/a.txt", "--yes", "-q")
    [backup] = cafcat("query", "backups", "--json").documents
    lost("rebuild", "-q")
    [rebuilt] = lost("query", "backups", "--json").documents
    assert backup["later_changes"] == rebuilt["later_changes"] == 1
    assert "1 change since" in lost.unchecked("doctor").text


def test_json_output(cafcat: Cafcat, lost: Cafcat) -> None:
    first = cafcat("backup", "--json").document
    assert set(first) == {field.name for field in fields(BackupReport)}
    second = cafcat("backup", "--keep", "1", "--json").document
    assert second["removed"] == [first["object_key"]]
    [listed] = cafcat("backup", "--list", "--json").documents
    assert listed == {
        "store": second["store"],
        "object_key": second["object_key"],
        "size_bytes": second["size_bytes"],
        "begun_at": listed["begun_at"],
    }
    assert re.fullmatch(r"....-..-..T..:..:..\.\d{6}Z", str(listed["begun_at"]))
    restored = lost("restore", second["object_key"], "--json").document
    assert set(restored) == {field.name for field in fields(RestoreReport)}
    assert (restored["rows"], restored["newer_records"]) == (second["rows"], 0)


def test_backup_in_another_store(cafcat: Cafcat, lost: Cafcat) -> None:
    cafcat("backup", "--to", "./safe", "-q")
    nothing = cafcat("backup", "--list")
    assert nothing.out == b""
    store = (cafcat.folder / "store").as_uri()
    assert nothing.err.startswith(f"cafcat: there are no backups in {store}; ")
    (cafcat.folder / "empty").mkdir()
    empty = (cafcat.folder / "empty").as_uri()
    assert f"no backups in {empty}; " in cafcat("backup", "--list", "--to", "empty").err
    assert cafcat("backup", "--list", "--json").err == cafcat("backup", "--list", "-q").err == ""
    assert len(cafcat("backup", "--list", "--to", "./safe").lines) == 1
    assert "there is no backup in" in lost("restore", code=4).err
    assert "there is no backup x in" in lost("restore", "x", "--from", "safe", code=4).err
    assert lost("restore", "--from", "safe", "-q").out == b""
    assert lost("stat", "tree/a.txt").out


def test_restore_names_a_newer_backup_in_another_store(cafcat: Cafcat, lost: Cafcat, databases: Databases) -> None:
    cafcat("backup", "--to", "./safe", "-q")
    cafcat("backup", "-q")
    old = cafcat("backup", "--list", "--json").document["object_key"]
    cafcat("backup", "--to", "./safe", "-q")
    safe = (cafcat.folder / "safe").as_uri()
    command = f"cafcat restore --from {safe}"
    message = (
        f"cafcat: warning: {safe} has a newer backup: to have it, run `{command}` with an empty catalog instead"
    )
    assert lost("restore").err.splitlines() == [message]
    for arguments in ((old,), ("--from", "./safe")):
        with databases.fresh(databases.template()) as url:
            assert Cafcat(cafcat.folder, url)("restore", *arguments).err == ""


def test_a_restored_catalog_has_later_backups_of_all_stores(cafcat: Cafcat, lost: Cafcat) -> None:
    cafcat("backup", "--to", "./safe", "-q")
    oldest = cafcat("backup", "--list", "--to", "safe", "--json").document["object_key"]
    for store in ("./safe", "store"):
        cafcat("backup", "--to", store, "-q")
    before = cafcat("query", "backups", "--json").documents
    lost("restore", oldest, "--from", "safe", "-q")
    after = lost("query", "backups", "--json").documents
    keys = ("store", "object_key", "size_bytes")
    assert len(after) == 3
    assert [[row[key] for key in keys] for row in after] == [[row[key] for key in keys] for row in before]
    lost("backup", "--to", "safe", "--keep", "2", "-q")
    assert oldest not in str(lost("backup", "--list", "--to", "safe").out)


def test_restore_leaves_out_a_backup_that_keep_removed(cafcat: Cafcat, lost: Cafcat) -> None:
    """The removed backup is in the tables of the newest one, which was made before the removal."""
    for _ in range(3):
        cafcat("backup", "--keep", "2", "-q")
    lost("restore", "-q")
    assert len(lost("backup", "--list").lines) == len(lost("query", "backups", "--json").documents) == 2
    assert lost("recover", "-q").out == b""


def test_wrong_arguments_are_refused(cafcat: Cafcat) -> None:
    cafcat("backup", "--keep", "0", code=2)
    assert "no store and no folder is called saef" in cafcat("backup", "--list", "--to", "saef", code=4).err
    assert "no store and no folder is called saef" in cafcat("restore", "--from", "saef", code=4).err
    assert "--list changes nothing" in cafcat("backup", "--list", "--keep", "3", code=2).err


def test_damage_is_5_and_nothing_is_restored(cafcat: Cafcat, lost: Cafcat) -> None:
    cafcat("backup", "-q")
    [file] = (cafcat.folder / "store" / "backups").iterdir()
    data = bytearray(file.read_bytes())
    data[data.index(b"file_locations/000001") + 530] ^= 1
    file.write_bytes(bytes(data))
    result = lost("restore", code=5)
    assert "the backup is damaged" in result.err
    assert f"`cafcat backup --list --to {(cafcat.folder / 'store').as_uri()}` lists the backups" in result.err
    assert lost("ls", "-R").out == b""


def test_on_s3(cafcat: Cafcat, lost: Cafcat, s3_bucket: str, s3_environment: None) -> None:
    cafcat("backup", "--to", f"s3://{s3_bucket}/safe", "-q")
    assert lost("restore", "--from", f"s3://{s3_bucket}/safe").text.startswith("restored ")
    assert lost("cat", "tree/a.txt").out == b"first file\n"


def test_restore_tells_of_a_store_that_is_not_mounted(cafcat: Cafcat, lost: Cafcat) -> None:
    """Its journal may have changes after the backup."""
    cafcat("copy", "--all", "--to", "./second", "-q")
    cafcat("backup", "--to", "./second", "-q")
    (cafcat.folder / "store").rename(cafcat.folder / "unmounted")
    for is_mount_point in (False, True):
        if is_mount_point:
            (cafcat.folder / "store").mkdir()
            assert lost.database_url
            with psycopg.connect(lost.database_url) as connection:
                connection.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
            lost("db", "init", "-q")
        result = lost("restore", "--from", "./second")
        lacking = "the store lacks the marker of the catalog: its disk may not be mounted"
        assert f"/store could not be read: {lacking}; if the store is lost for good: " in result.err
        assert result.lines[-1].startswith("there may be later changes: make the stores reachable")
    command = result.err.partition("lost for good: cafcat ")[2].split()
    assert lost(*command, "--yes").text.startswith("gave up ")
    assert lost("recover").text == "nothing to recover\n"


def test_restore_leaves_out_a_store_that_was_given_up(cafcat: Cafcat, lost: Cafcat) -> None:
    cafcat("copy", "--all", "--to", "./second", "-q")
    (cafcat.folder / "store").rename(cafcat.folder / "gone")
    cafcat("store", "rm", "./store", "--lost", "--yes", "-q")
    cafcat("backup", "--to", "./second", "-q")
    result = lost("restore", "--from", "./second")
    assert "could not be read" not in result.err
    assert "later changes" not in result.text
    assert lost("cat", "tree/a.txt").out == b"first file\n"
