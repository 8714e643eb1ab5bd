"""compare finds every relevant difference, and no other."""

import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from cafcat.catalog.transfer.comparing import ComparedTable
from cafcat.errors import CatalogOutdated, CatalogUnavailable, InvalidInput
from cafcat.events import CatalogsDiffer
from tests.worlds.catalog_world import commit, sql
from tests.worlds.listeners import Following
from tests.worlds.rebuild_world import World, worlds
from tests.worlds.servers.services import Databases

FILES = {"a/first": b"first", "a/second": b"second", "b": b"", "ü/\t\n\\N\\": b"odd", "z": b"last"}


@pytest.fixture
def world(databases: Databases, tmp_path: Path) -> Iterator[World]:
    """A catalog with live and earlier files."""
    with worlds(databases, tmp_path, str(tmp_path / "store")) as world:
        commit(world.repository, FILES)
        commit(world.repository, {"a/first": b"newer"})
        world.repository.rm(["z"])
        yield world


CHANGES = {
    "path": "UPDATE file_locations SET file_path = 'b2' WHERE file_path = 'b'",
    "span": "UPDATE file_locations SET start_byte = start_byte - 1 WHERE file_path = 'a/second'",
    "crc32c": "UPDATE file_locations SET crc32c = crc32c # 1 WHERE file_path = 'a/second'",
    "modified_at": "UPDATE file_locations SET modified_at = modified_at + interval '1us' WHERE file_path = 'b'",
    "no time": "UPDATE file_locations SET modified_at = NULL WHERE file_path = 'b'",
    "odd": "UPDATE file_locations SET crc32c = 5 WHERE file_path LIKE 'ü%'",
    "chunk": "UPDATE file_locations SET caf_file_id = 2 WHERE file_path = 'b'",
    "gone": "DELETE FROM file_locations WHERE file_path = 'b'",
    "state": "UPDATE chunks SET state = 'retired' WHERE id = 2",
    "size": "UPDATE chunks SET size_bytes = size_bytes + 1 WHERE id = 2",
    "counters": "UPDATE chunks SET live_bytes = live_bytes + 1 WHERE id = 2",
    "crc64nvme": "UPDATE chunks SET crc64nvme = 'AAAAAAAAAAA=' WHERE id = 2",
    "reason": "UPDATE retired_locations SET reason = 'replaced' WHERE file_path = 'z'",
    "size of what is decoded": "UPDATE file_locations SET content_bytes = 1 WHERE file_path = 'a/first'",
    "decoding": "UPDATE file_locations SET decoding = 'pieces' WHERE file_path = 'a/first'",
    "retired decoding": "UPDATE retired_locations SET decoding = 'pieces' WHERE file_path = 'z'",
    "retired span": "UPDATE retired_locations SET end_byte = end_byte + 1 WHERE file_path = 'z'",
    "retired gone": "DELETE FROM retired_locations WHERE file_path = 'z'",
    "last gone": "DELETE FROM file_locations WHERE file_path >= 'b'",
}
COUNTS = {"path": 2, "last gone": 2}


def test_every_difference_is_found(world: World) -> None:
    other, _ = world.rebuilt()
    tables = ("chunks", "file_locations", "retired_locations")
    for table in tables:
        sql(other, f"CREATE TABLE kept_{table} AS SELECT * FROM {table}")
    for name, change in CHANGES.items():
        sql(other, change)
        assert len(world.differences(other)) == COUNTS.get(name, 1), name
        sql(other, "SET session_replication_role = replica; TRUNCATE file_locations, retired_locations")
        sql(
            other,
            "UPDATE chunks AS c SET (state, size_bytes, live_bytes, crc64nvme) = "
            "(k.state, k.size_bytes, k.live_bytes, k.crc64nvme) FROM kept_chunks AS k WHERE k.id = c.id",
        )
        sql(other, "INSERT INTO file_locations SELECT * FROM kept_file_locations")
        sql(other, "INSERT INTO retired_locations OVERRIDING SYSTEM VALUE SELECT * FROM kept_retired_locations")
        assert world.differences(other) == [], name


def test_difference_has_both_rows(world: World) -> None:
    other, _ = world.rebuilt()
    sql(other, CHANGES["odd"])
    [(table, name, ours, theirs)] = world.differences(other)
    assert (table, name) == (ComparedTable.FILE_LOCATIONS, "ü/\t\n\\N\\")
    assert ours is not None
    assert theirs == ours | {"crc32c": "5"}
    assert ours["modified_at"] == "2026-11-21T10:00:00.123456Z"
    sql(other, CHANGES["gone"])
    first = world.differences(other)[0]
    assert (first.name, first.theirs) == ("b", None)
    found: list[CatalogsDiffer] = []
    other.with_progress(Following(on=found.append)).compare(str(world.repository.settings.database_url))
    assert (found[0].name, found[0].ours) == ("b", None)


def test_irrelevant_differences_are_ignored(world: World) -> None:
    other, _ = world.rebuilt()
    sql(other, "UPDATE file_locations SET source_etag = 'x'")
    sql(
        other,
        "UPDATE chunks SET crc64nvme = NULL, index_crc32c = NULL, etag = 'x', run_id = NULL",
    )
    sql(other, "UPDATE retired_locations SET retired_at = now(), source_etag = 'x'")
    sql(other, "INSERT INTO stores (url) VALUES ('s')")
    sql(other, "INSERT INTO chunks (uuid, format, store, object_key) VALUES (gen_random_uuid(), 'caf', 's', 'k')")
    assert world.differences(other) == []


def test_pruned_chunks_do_not_count(world: World) -> None:
    chunk = commit(world.repository, {"alone": b"x"})
    world.repository.rm(["alone"])
    world.repository.prune(grace_seconds=0)
    assert sql(world.repository, "SELECT state FROM chunks WHERE uuid = %s", chunk) == [("deleted",)]
    other, _ = world.rebuilt()
    assert world.differences(other) == []


@pytest.mark.slow
def test_memory_does_not_depend_on_the_number_of_rows(world: World) -> None:
    other = world.empty()
    fill = (
        "INSERT INTO file_locations (caf_file_id, start_byte, end_byte, crc32c, file_path) "
        "SELECT 1, n, n, %s, 'm/' || n FROM generate_series(1, 30000) AS n"
    )
    sql(world.repository, fill, 0)
    sql(other, fill, 1)
    count = 0

    def counted(_: CatalogsDiffer) -> None:
        nonlocal count
        count += 1

    tracemalloc.start()
    try:
        report = world.repository.with_progress(Following(on=counted)).compare(str(other.settings.database_url))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert count == sum(report.differences.values()) > 30_000
    assert peak < 4 << 20


def test_invalid_databases_are_refused(world: World, databases: Databases) -> None:
    with databases.fresh() as url, pytest.raises(CatalogOutdated, match="no cafcat schema"):
        world.repository.compare(url)
    with pytest.raises(CatalogUnavailable):
        world.repository.compare(f"postgresql://127.0.0.1:1/{uuid4()}?connect_timeout=2")
    with pytest.raises(InvalidInput):
        world.repository.compare("nonsense")
    with pytest.raises(InvalidInput, match="the URL of the other catalog must be a text, not list"):
        world.repository.compare(["nonsense"])  # type: ignore[arg-type]
