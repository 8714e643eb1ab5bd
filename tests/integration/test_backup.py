"""Backups: the whole catalog, readable without cafcat, and restored completely or not at all."""

import gzip
import io
import json
import shutil
import subprocess
import sys
import tarfile
import tracemalloc
from pathlib import Path
from threading import Thread
from typing import Any
from uuid import UUID

import pytest

import cafcat
from cafcat.catalog.chunks.copies import Copies
from cafcat.catalog.tables import metadata
from cafcat.catalog.transfer.dump import TABLES
from cafcat.errors import CatalogOutdated, Conflict, Corrupt, InvalidInput, NotFound, StoreFailed, Unsupported
from cafcat.model import OnConflict
from cafcat.operations.backup import tar as backup_tar
from cafcat.operations.backup.report import BackupReport
from cafcat.operations.chosen_stores import store_to_write
from cafcat.operations.joining import join_store
from cafcat.progress import Progress
from cafcat.settings.database import Database
from cafcat.stores.local.store import LocalStore
from cafcat.support.checksums import crc32c
from tests.worlds.archives.damage import flip
from tests.worlds.catalog_world import begin, commit, sql
from tests.worlds.listeners import Listener, follow
from tests.worlds.rebuild_world import World, leave_whole, local, world
from tests.worlds.servers.services import Databases

__all__ = ["local", "world"]

FILES = {"a/first": b"first", "a/second": b"second", "b": b"", "ü/\t\n\\N\\": b"odd", "z": b"last"}


def fill(world: World) -> None:
    """Write rows into as many tables as possible."""
    join_store(world.repository.session, store_to_write(world.repository.session))
    commit(world.repository, FILES)
    commit(world.repository, {"a/first": b"newer"}, OnConflict.REPLACE, None)
    world.repository.rm(["z"])
    leave_whole(world.repository, {"half": b"done"})
    world.repository.copy(to=str(world.folder / "copies"))
    world.repository.verify()


def contents(repository: cafcat.Repository, without: str = "backups") -> dict[str, list[tuple[Any, ...]]]:
    """Return all rows of all tables except one."""
    return {
        table: sql(repository, f"SELECT * FROM {table} ORDER BY 1, 2, 3") for table in TABLES if table != without
    }


def put_back(world: World, **options: Any) -> cafcat.Repository:
    empty = world.empty()
    follow(empty, options).restore(**options)
    return empty


def test_backup_has_all_tables() -> None:
    """Tables come after the tables to which they refer."""
    assert set(TABLES) == set(metadata.tables) - {"limit_shares"}  # running processes fill it
    ordered = list(TABLES)
    for table in metadata.tables.values():
        for key in table.foreign_keys if table.name in ordered else ():
            assert ordered.index(key.column.table.name) <= ordered.index(table.name)


def test_restore_brings_all_rows_back(world: World) -> None:
    fill(world)
    before = contents(world.repository)
    report = world.repository.backup()
    assert (report.store, report.journal_id, report.removed) == (world.objects.url, 3, ())
    assert report.rows["file_locations"] == 4
    assert report.size_bytes == world.objects.stat(report.object_key).size_bytes
    [row] = sql(world.repository, "SELECT state, object_key, size_bytes, journal_id FROM backups")
    assert row == ("committed", report.object_key, report.size_bytes, 3)

    empty = world.empty()
    restored = empty.restore()
    assert (restored.object_key, restored.rows, restored.journal_id) == (report.object_key, report.rows, 3)
    assert (restored.newer_records, restored.newer_unknown) == (0, ())
    after = contents(empty)
    assert [after["events"].pop()[4] for _ in range(2)] == ["command", "catalog_restored"]
    assert after == before
    assert empty.session.catalog.reports.findings() == world.repository.session.catalog.reports.findings()
    assert sql(empty, "SELECT state, object_key, size_bytes, journal_id FROM backups") == [row]
    assert world.differences(empty) == []


def test_a_restore_that_failed_does_not_refuse_the_next_one(world: World) -> None:
    fill(world)
    world.repository.backup()
    empty = world.empty()
    with pytest.raises(NotFound, match="there is no backup 1999"):
        empty.restore("1999")
    assert empty.restore().rows["file_locations"] == 4


@pytest.mark.parametrize("level", ["index", "data", "catalog"])
def test_a_verify_of_an_empty_catalog_does_not_refuse_a_restore(world: World, level: str) -> None:
    """As a nightly job runs it after the loss of the catalog."""
    fill(world)
    world.repository.verify()
    world.repository.backup()
    empty = world.empty()
    empty.verify(level=level)
    restored = empty.restore().rows
    assert (restored["file_locations"], restored["verify_runs"]) == (4, 2)


class _Failing(Progress):
    def advance(self, files: int, size_bytes: int) -> None:
        raise RuntimeError(f"{files} rows, {size_bytes} bytes")


def test_an_exception_in_the_middle_of_a_table_ends_the_backup(
    local: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Ctrl-C does. The COPY that was not read to its end holds the lock of the connection."""
    fill(local)
    monkeypatch.setattr(backup_tar, "PART_BYTES", 1)
    raised: list[type[BaseException]] = []

    def back_up() -> None:
        try:
            local.repository.with_progress(_Failing()).backup()
        except RuntimeError as error:
            raised.append(type(error))

    thread = Thread(target=back_up, daemon=True)
    thread.start()
    thread.join(30)
    assert raised == [RuntimeError]
    assert local.repository.backup().rows["file_locations"] == 4


def test_restored_catalog_accepts_new_rows(local: World) -> None:
    fill(local)
    local.repository.backup()
    empty = put_back(local)
    assert empty.recover().adopted == 1
    commit(empty, {"new": b"new"})
    empty.verify()
    empty.backup()
    assert empty.read("half") == b"done"
    assert sql(empty, "SELECT count(*) FROM journal WHERE unwritten <> '{}'") == [(0,)]


def test_chunks_that_were_pruned_after_the_backup_are_pruned(world: World) -> None:
    """Else undelete would bring back a file without bytes. A chunk is kept if it has a copy, or is only missing."""
    repository, copies = world.repository, str(world.folder / "copies")
    copied = commit(repository, {"copied": b"1"})
    repository.copy(to=copies)
    commit(repository, {"kept": b"2"})
    commit(repository, {"pruned": b"3", "p": b""})
    missing = commit(repository, {"missing": b"4"})
    repository.rm(["copied", "kept", "pruned", "p", "missing"])
    repository.backup()
    sql(repository, "UPDATE chunks SET retired_at = now() - interval '1 day' WHERE id = 3")
    repository.prune(grace_seconds=3600, dry_run=False)
    world.objects.delete(f"{copied}.caf")
    world.objects.delete(f"{missing}.caf")
    empty = world.empty()
    assert empty.restore().chunks_pruned == 1
    states = "SELECT state FROM chunks ORDER BY id"
    assert sql(empty, states) == [("retired",), ("retired",), ("deleted",), ("retired",)]
    undeleted = empty.undelete(["copied", "kept", "pruned", "p"])
    assert (undeleted.files, undeleted.files_pruned) == (2, 2)
    assert dict(empty.read_many(["copied", "kept"])) == {"copied": b"1", "kept": b"2"}
    assert empty.session.catalog.reports.findings() == []
    assert empty.prune(grace_seconds=0, dry_run=False).failed == ()


def test_changes_that_an_earlier_restore_lost_are_not_later_ones(world: World) -> None:
    commit(world.repository, {"a": b"1"})
    world.repository.backup()
    commit(world.repository, {"b": b"2"})
    first = world.empty()
    report = first.restore()
    assert (report.newer_records, report.earlier_records) == (1, 0)
    commit(first, {"c": b"3"})
    first.backup()
    second = world.empty()
    report = second.restore()
    assert (report.newer_records, report.earlier_records) == (0, 1)
    assert second.session.catalog.backups.lacking_changes() == 1


def test_later_changes_are_counted_and_their_numbers_not_reused(world: World) -> None:
    commit(world.repository, {"a": b"1"})
    world.repository.backup()
    commit(world.repository, {"b": b"2"})
    world.repository.rm(["a"])
    empty = world.empty()
    assert empty.restore().newer_records == 2
    commit(empty, {"c": b"3"})
    assert sql(empty, "SELECT id FROM journal ORDER BY id") == [(1,), (4,)]
    rebuilt, report = world.rebuilt()
    assert report.damages == ()
    assert {location.path for location in rebuilt.list()} == {"b", "c"}


@pytest.mark.parametrize("change", ["replaced", "moved"])
def test_a_removal_after_a_restore_can_be_undone_after_a_rebuild(local: World, change: str) -> None:
    """The restored catalog lacks a later version, or move, of the file that the user removes in it."""
    commit(local.repository, {"a": b"old", "b": b"other"})
    local.repository.backup()
    if change == "replaced":
        commit(local.repository, {"a": b"new"})
    else:
        local.repository.rm(["b"])
        local.repository.repack()
    restored = put_back(local)
    restored.rm(["a"])
    rebuilt, _ = local.rebuilt()
    assert {file.location.path for file in rebuilt.removed()} >= {"a"}
    assert rebuilt.undelete(["a"]).files == 1
    assert rebuilt.read("a") == (b"new" if change == "replaced" else b"old")


def test_a_read_of_a_chunk_that_was_pruned_after_the_backup_names_rebuild(
    local: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The catalog is asked once for each chunk, not for each file."""
    commit(local.repository, {"a": b"1", "b": b"2"})
    commit(local.repository, {"c": b"3", "d": b"4"})
    local.repository.backup()
    local.repository.rm(["a", "c"])
    local.repository.repack()
    local.repository.prune(grace_seconds=0)
    answers: list[int] = []
    lacking_changes = Copies.lacking_changes

    def recorded(copies: Copies, chunk: UUID) -> int:
        answers.append(lacking_changes(copies, chunk))
        return answers[-1]

    monkeypatch.setattr(Copies, "lacking_changes", recorded)
    restored = put_back(local)
    for path, error in restored.read_many(list("abcd")):
        assert isinstance(error, Corrupt)
        chunk = restored.locate(path).chunk
        repair = f"else run cafcat repair --chunk {chunk}, with --from-source SRC if you have the original"
        assert f"{error.hint}".endswith(f"in a newer chunk: run cafcat rebuild with an empty catalog; {repair}")
    assert answers == [2, 2]


def test_the_loss_of_a_chunk_that_is_newer_than_the_restore_does_not_name_rebuild(local: World) -> None:
    """No change that the backup lacked can have moved the file."""
    commit(local.repository, {"a": b"1"})
    local.repository.backup()
    commit(local.repository, {"b": b"2"})
    restored = put_back(local)
    for path in ("new", "a"):
        chunk = commit(restored, {"new": b"3"}) if path == "new" else restored.locate("a").chunk
        Path(local.store, f"{chunk}.caf").unlink()
        with pytest.raises(Corrupt) as raised:
            restored.read(path)
        assert ("rebuild" in str(raised.value.hint)) == (path == "a")
        assert (restored.repair(chunks=[chunk]).lacking_changes > 0) == (path == "a")


def test_a_read_of_a_damaged_chunk_does_not_name_rebuild(local: World) -> None:
    chunk = commit(local.repository, {"a": b"1"})
    local.repository.backup()
    local.repository.rm(["a"])
    restored = put_back(local)
    flip(Path(local.store) / f"{chunk}.caf", 0)
    with pytest.raises(Corrupt) as raised:
        restored.read("a")
    assert (
        raised.value.hint == f"run cafcat repair --chunk {chunk}, with --from-source SRC if you have the original"
    )


def test_unreachable_stores_are_named(local: World) -> None:
    commit(local.repository, {"a": b"1"})
    sql(local.repository, "UPDATE stores SET url = 'unheard-of://store'")
    local.repository.backup()
    assert local.empty().restore().newer_unknown == ("unheard-of://store",)


def test_backup_is_consistent(local: World) -> None:
    """Rows that are committed during the backup are left out."""
    commit(local.repository, {"a": b"1"})

    class Meanwhile(Listener):
        def begin(self, _verb: str, **_totals: int | None) -> None:
            commit(local.at(local.store), {"b": b"2"})

    report = local.repository.with_progress(Meanwhile()).backup()
    assert (report.journal_id, report.rows["file_locations"], report.rows["chunks"]) == (1, 1, 1)
    assert report.rows["backups"] == 0


def test_only_the_newest_backups_are_kept(world: World) -> None:
    commit(world.repository, {"a": b"1"})
    keys = [world.repository.backup().object_key for _ in range(3)]
    assert keys == sorted(keys)
    report = world.repository.backup(keep=2)
    assert report.removed == (keys[1], keys[0])
    left = [found.object_key for found in world.repository.backups()]
    assert left == [keys[2], report.object_key]
    states = dict(sql(world.repository, "SELECT object_key, state FROM backups WHERE deleted_at IS NOT NULL"))
    assert states == {keys[0]: "deleted", keys[1]: "deleted"}
    with pytest.raises(InvalidInput):
        world.repository.backup(keep=0)


def test_choice_of_the_restored_backup(local: World) -> None:
    commit(local.repository, {"a": b"1"})
    first = local.repository.backup().object_key
    commit(local.repository, {"b": b"2"})
    second = local.repository.backup().object_key
    assert put_back(local).backups()[-1].object_key == second
    assert len(list(put_back(local, name=first).list())) == 1
    assert len(list(put_back(local, name=first.removeprefix("backups/")[:27]).list())) == 1
    empty = local.empty()
    for name in ("x", "2"):
        with pytest.raises(NotFound):
            empty.restore(name)
    with pytest.raises(NotFound, match=r"no folder is called .*/nothing$"):
        empty.restore(source=str(local.folder / "nothing"))
    (local.folder / "nothing").mkdir()
    with pytest.raises(NotFound, match="no backup"):
        empty.restore(source=str(local.folder / "nothing"))


def test_a_later_change_that_several_stores_have_counts_once(local: World, tmp_path: Path) -> None:
    commit(local.repository, {"a": b"1", "b": b"2"})
    local.repository.copy(to=str(tmp_path / "second"))
    local.repository.backup()
    local.repository.rm(["a"])
    report = local.empty().restore(source=local.store)
    assert (report.newer_records, len(report.compared)) == (1, 2)


def test_changes_in_a_store_that_came_later_are_counted(local: World, tmp_path: Path) -> None:
    """The settings name the store; the backup does not have it. The first chunk there has two records."""
    commit(local.repository, {"a": b"1"})
    local.repository.backup()
    url, later = str(local.repository.settings.database_url), tmp_path / "later"
    (tmp_path / "b").write_bytes(b"2")
    local.open(url, str(later)).ingest([str(tmp_path / "b")])
    empty = local.open(str(local.empty().settings.database_url), str(later))
    report = empty.restore(source=local.store)
    assert (report.newer_records, report.compared) == (
        2,
        tuple(sorted([later.as_uri(), Path(local.store).as_uri()])),
    )


def test_backup_into_another_store(local: World) -> None:
    commit(local.repository, {"a": b"1"})
    elsewhere = str(local.folder / "elsewhere")
    report = local.repository.backup(elsewhere)
    assert [found.object_key for found in local.repository.backups(elsewhere)] == [report.object_key]
    assert local.repository.backups() == []
    assert local.differences(put_back(local, source=elsewhere)) == []


@pytest.mark.parametrize("how", ["moved", "copied", "without a marker"])
def test_a_store_that_moved_before_the_restore_is_found(local: World, tmp_path: Path, how: str) -> None:
    """A lost home is an example: its chunks and backups were saved into another one."""
    repository = local.repository
    commit(repository, {"a": b"1"})
    join_store(repository.session, repository.session.stores[local.store])
    repository.backup()
    old, new = Path(local.store), tmp_path / "moved"
    shutil.copytree(old, new)
    if how != "copied":
        shutil.rmtree(old)
    if how == "without a marker":
        shutil.rmtree(new / "catalogs")
    restored = local.open(str(local.empty().settings.database_url), str(new))
    assert restored.restore().moved_from == (old.as_uri() if how == "moved" else None)
    if how == "without a marker":
        sql(restored, "UPDATE stores SET uuid = NULL")
        restored.move_store(old.as_uri(), new.as_uri())
    assert restored.read("a") == b"1"
    urls = [old.as_uri(), new.as_uri()] if how == "copied" else [new.as_uri()]
    assert sorted(store.url for store in restored.stores()) == sorted(urls)
    assert restored.verify().ok == 1


def test_a_catalog_with_rows_is_left_alone(local: World) -> None:
    commit(local.repository, {"a": b"1"})
    local.repository.backup()
    with pytest.raises(Conflict, match="not empty"):
        local.repository.restore()
    empty = local.empty()
    sql(empty, "INSERT INTO events (kind) VALUES ('x')")
    with pytest.raises(Conflict, match="events has rows"):
        empty.restore()


def backed_up(world: World) -> tuple[BackupReport, bytes]:
    report = world.repository.backup()
    return report, world.read(report.object_key)


def test_every_damage_is_noticed_before_anything_is_committed(local: World) -> None:
    commit(local.repository, FILES)
    report, data = backed_up(local)
    empty = local.empty()
    end = data.rindex(b"manifest.json\0")
    for position in [*range(0, end, 97), *range(0, end, 512), end + 600]:
        damaged = bytearray(data)
        damaged[position] ^= 0x10
        if _is_padding(data, position):
            continue
        local.write(report.object_key, bytes(damaged))
        with pytest.raises((Corrupt, CatalogOutdated, Unsupported)):
            empty.restore()
        assert sql(empty, "SELECT count(*) FROM chunks") == [(0,)]
    for size in (0, 100, 512, 1024, len(data) // 2, end, end + 520):
        local.write(report.object_key, data[:size])
        with pytest.raises(Corrupt):
            empty.restore()
    local.write(report.object_key, data)
    empty.restore()


def _is_padding(data: bytes, position: int) -> bool:
    """Return True for a byte of a tar that has no meaning: behind a member, or in an unused field of a header.

    The checksum of a header covers all of its fields, so that no such field exists.
    """
    at = 0
    while at < len(data):
        size = int(data[at + 124 : at + 135].strip(b"\0 ") or b"0", 8)
        if at <= position < at + 512:
            return data[at : at + 512] == bytes(512)
        end = at + 512 + size
        at = end + -size % 512
        if position < at:
            return position >= end
    return True


def member(data: bytes, name: str) -> bytes:
    with tarfile.open(fileobj=io.BytesIO(data)) as found:
        file = found.extractfile(name)
        assert file is not None
        return file.read()


def changed(data: bytes, change: dict[str, Any], members: dict[str, bytes] | None = None) -> bytes:
    """Return a backup with another head, other contents of members, and a correct manifest."""
    written = io.BytesIO()
    manifest: dict[str, Any] = {}
    with tarfile.open(fileobj=io.BytesIO(data)) as found, tarfile.open(fileobj=written, mode="w") as target:
        for info in found:
            file = found.extractfile(info)
            assert file is not None
            content = (members or {}).get(info.name, file.read())
            if info.name.endswith(".json"):
                document = json.loads(content) | change
                if info.name == "manifest.json":
                    document["members"] = [
                        member | manifest.get(member["name"], {}) for member in document["members"]
                    ]
                content = json.dumps(document).encode()
            else:
                manifest[info.name] = {"size_bytes": len(content), "crc32c": crc32c(content)}
            info.size = len(content)
            target.addfile(info, io.BytesIO(content))
    return written.getvalue()


def test_invalid_backups_are_refused(local: World) -> None:
    commit(local.repository, FILES)
    report, data = backed_up(local)
    tables = json.loads(member(data, "backup.json"))["tables"]
    rows = "file_locations/000001.copy.gz"
    lies: list[tuple[dict[str, Any], dict[str, bytes], type[Exception], str]] = [
        ({"schema_revision": "0002"}, {}, CatalogOutdated, "then run `cafcat db upgrade`"),
        ({"schema_revision": "9999"}, {}, CatalogOutdated, r"restore it with cafcat [0-9a-z.+]+$"),
        ({"cafcat_backup": 2}, {}, Unsupported, "version 2"),
        ({"journal_id": "1"}, {}, Corrupt, "lacks a field"),
        ({"tables": tables | {"chunks": ["id) FROM STDIN; DROP TABLE chunks; --"]}}, {}, Corrupt, "no column"),
        ({"tables": tables | {"pg_class": ["oid"]}}, {}, Corrupt, "no column"),
        ({"tables": {}}, {}, Corrupt, "not one of its tables"),
        ({}, {rows: b"no gzip"}, Corrupt, "cannot be decompressed"),
        ({}, {rows: gzip.compress(b"1\t2\n")}, Corrupt, "cannot load"),
        ({}, {rows: gzip.compress(bytes(50_000_000))}, Corrupt, "cannot load"),
        ({}, {rows: gzip.compress(b"") + b"x"}, Corrupt, "do not end"),
        ({}, {rows: gzip.compress(b"")}, Corrupt, "differs from its manifest"),
    ]
    empty = local.empty()
    for change, members, error, words in lies:
        local.write(report.object_key, changed(data, change, members))
        with pytest.raises(error, match=words):
            empty.restore()
    # Output of tar itself is read, too.
    local.write(report.object_key, changed(data, {}))
    empty.restore()
    assert local.differences(empty) == []


def test_backup_is_restored_with_tar_and_psql(local: World) -> None:
    """The test runs the script in docs/formats/backup.md."""
    commit(local.repository, FILES)
    report, _ = backed_up(local)
    page = (Path(__file__).parents[2] / "docs" / "formats" / "backup.md").read_text()
    [script] = [block for block in page.split("```sh\n")[1:] if "copy" in block]
    empty = local.empty()
    folder = local.folder / "unpacked"
    folder.mkdir()
    command, environment = Database(empty.settings).psql()
    (local.folder / "psql").write_text(f'#!/bin/sh\nexec "{command[0]}" "{command[1]}" "$@"\n')
    (local.folder / "psql").chmod(0o755)
    environment |= {
        "PATH": f"{local.folder}:{environment['PATH']}",
        "BACKUP": local.objects.locate(report.object_key),
        "PYTHON": sys.executable,
    }
    subprocess.run(["sh", "-euc", script.split("```")[0]], cwd=folder, env=environment, check=True)
    assert local.differences(empty) == []


class Breaking(LocalStore):
    """A full disk."""

    def create(self, key: str) -> Any:
        upload = super().create(key)
        if key.startswith("backups/"):

            def refuse(_: object) -> None:
                raise StoreFailed("no space left")

            upload.write = refuse  # type: ignore[method-assign]
        return upload


def test_a_backup_that_fails_leaves_nothing(local: World) -> None:
    commit(local.repository, {"a": b"1"})
    join_store(local.repository.session, local.objects)
    before = {found.key for found in local.objects.list()}
    for store in list(local.repository.session.stores.values()):
        local.repository.session.stores[store.url] = Breaking(Path(local.store))
    with pytest.raises(StoreFailed, match="no space left"):
        local.repository.backup()
    assert {found.key for found in local.objects.list()} == before
    assert list(local.objects.uploads()) == []
    [(state, is_gone)] = sql(local.repository, "SELECT state, deleted_at IS NOT NULL FROM backups")
    assert (state, is_gone) == ("abandoned", True)


def test_leftovers_of_a_dead_backup_are_removed_by_the_next(world: World) -> None:
    commit(world.repository, {"a": b"1"})
    backups = world.repository.session.catalog.backups
    whole, half = "backups/20260101T000000.000000Z-x.tar", "backups/20260101T000000.000001Z-x.tar"
    world.repository.session.catalog.stores.register(world.objects.url)
    for key in (whole, half):
        backups.begin(world.objects.url, key, 1, "here:1:test", 0)
    world.write(whole, b"whole")
    upload = world.objects.create(half)
    upload.write(b"half")
    sql(world.repository, "UPDATE backups SET lease_expires_at = now() - interval '1s'")
    report = world.repository.backup()
    assert [found.key for found in world.objects.list() if found.key.startswith("backups/")] == [report.object_key]
    assert list(world.objects.uploads()) == []
    assert sql(world.repository, "SELECT state FROM backups ORDER BY id") == [
        ("abandoned",),
        ("abandoned",),
        ("committed",),
    ]
    upload.abort()


def test_many_rows_give_many_parts_and_need_little_memory(local: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backup_tar, "PART_BYTES", 1 << 20)
    commit(local.repository, {"a": b"1"})
    sql(
        local.repository,
        "INSERT INTO file_locations (caf_file_id, start_byte, end_byte, crc32c, file_path) "
        "SELECT 1, n, n, 7, 'many/' || md5(n::text) FROM generate_series(1, 60000) AS n",
    )
    tracemalloc.start()
    try:
        report, data = backed_up(local)
        empty = local.empty()
        empty.restore()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    with tarfile.open(fileobj=io.BytesIO(data)) as found:
        names = found.getnames()
    parts = [name for name in names if name.startswith("file_locations/")]
    assert parts == [f"file_locations/{number:06d}.copy.gz" for number in range(1, len(parts) + 1)]
    assert len(parts) > 3
    assert report.rows["file_locations"] == 60_001
    assert peak < 16 << 20
    assert local.differences(empty) == []


def test_a_chunk_that_is_being_written_can_be_committed_after_a_restore(local: World) -> None:
    commit(local.repository, {"a": b"1"})
    chunk = begin(local.repository, {"b": b"2"}, all_new=False)
    local.repository.backup()
    chunk.finish(OnConflict.REPLACE, Progress())
    empty = put_back(local)
    sql(empty, "UPDATE chunks SET lease_expires_at = now() - interval '1s' WHERE state = 'writing'")
    assert empty.recover().adopted == 1
    assert empty.read("b") == b"2"
    rebuilt, report = local.rebuilt()
    assert (report.damages, report.files) == ((), 2)
    assert rebuilt.read("b") == b"2"


def test_database_without_a_schema_is_refused(databases: Databases, tmp_path: Path) -> None:
    with databases.fresh() as url:
        empty = cafcat.open(database_url=url, home=tmp_path, store=str(tmp_path / "store"))
        store = LocalStore(tmp_path / "store")
        with empty, pytest.raises(CatalogOutdated):
            empty.restore()
        with empty, pytest.raises(CatalogOutdated):
            empty.backup()
        assert list(store.list()) == []
