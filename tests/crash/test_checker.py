"""The checker finds each kind of damage. The tests plant the damage in the data that the checker has read."""

import copy
from collections.abc import Callable
from typing import Any

import pytest

from tests.crash.checker import Seen, problems
from tests.crash.verbs import SMALL, copied, packed, put_outside, removed_names, write_archive, write_files
from tests.crash.world import World
from tests.worlds.archives.log_archives import container

pytestmark = pytest.mark.parametrize("crash_world", ["folder"], indirect=True)
_seen: dict[str, Seen] = {}


@pytest.fixture
def seen(crash_world: World) -> Seen:
    """A catalog with every kind of row, without problems."""
    if not _seen:
        crash_world.begin()
        packed(crash_world)
        for archive_format in ("car", "chunkio", "databundle"):
            write_files(crash_world, archive_format, "abcdefghijkl", 1)
            crash_world.cafcat("ingest", *SMALL, "--format", archive_format, archive_format)
        copied(crash_world)
        crash_world.cafcat("rm", "-q", *removed_names(crash_world))
        crash_world.cafcat("backup", "-q")
        write_files(crash_world, "gone", "ab", 1)
        crash_world.killed("ingest", "-q", "gone", before="file write")
        crash_world.cafcat("recover", "-q")
        logs = put_outside(crash_world, "logs.clp", container([("app.log", 0, 7)]))
        crash_world.cafcat("adopt", "-q", "--prefix", "old", write_archive(crash_world, "car", "ab"), logs)
        _seen["all"] = crash_world.look()
        crash_world.close()
        assert problems(_seen["all"]) == []
    return copy.deepcopy(_seen["all"])


def change(table: str, number: int = 0, **values: Any) -> Callable[[Seen], None]:
    def plant(seen: Seen) -> None:
        seen.tables[table][number] = seen.tables[table][number]._replace(**values)

    return plant


def drop(table: str) -> Callable[[Seen], None]:
    return lambda seen: seen.tables[table].pop(0) and None


def double(table: str) -> Callable[[Seen], None]:
    return lambda seen: seen.tables[table].append(seen.tables[table][0])


def chunk_of(seen: Seen, state: str) -> int:
    return next(n for n, row in enumerate(seen.tables["chunks"]) if row.state == state)


def store_of(seen: Seen) -> dict[str, bytes]:
    return seen.objects[seen.tables["chunks"][0].store]


def copies_of(seen: Seen) -> dict[str, bytes]:
    return seen.objects[seen.tables["chunk_copies"][0].store]


def spoil(objects: dict[str, bytes], key: str, at: int = 0) -> None:
    data = bytearray(objects[key])
    data[at] ^= 1
    objects[key] = bytes(data)


def spoil_a_file(seen: Seen, archive_format: str) -> None:
    """Damage the last byte of a file in a chunk of that format."""
    chunk = next(row for row in seen.tables["chunks"] if row.format == archive_format and row.live_file_count)
    last = max(row.end_byte for row in seen.tables["file_locations"] if row.caf_file_id == chunk.id)
    spoil(store_of(seen), chunk.object_key, last - 1)


def spoil_outside(seen: Seen) -> None:
    """Damage the last byte of the first file in the third-party CAR."""
    chunk = next(row for row in seen.tables["chunks"] if row.adopted_prefix is not None and row.format == "car")
    [row, *_] = [row for row in seen.tables["file_locations"] if row.caf_file_id == chunk.id]
    spoil(seen.objects[seen.outside], chunk.object_key, row.end_byte - 1)


def key_of(seen: Seen, state: str) -> str:
    return str(seen.tables["chunks"][chunk_of(seen, state)].object_key)


def marker_of(seen: Seen) -> str:
    return next(key for key in store_of(seen) if key.startswith("catalogs/"))


def record_of(seen: Seen, kind: str) -> str:
    row = next(row for row in seen.tables["journal"] if row.kind == kind)
    return f"journal/{row.id:020d}-{row.uuid}.jsonl"


def forget_a_record(seen: Seen) -> None:
    del copies_of(seen)[record_of(seen, "remove")]


def swap_order(seen: Seen) -> None:
    """Exchange the contents of two journal records, so that the order of changes is wrong."""
    first, second = (record_of(seen, "remove"), record_of(seen, "commit"))
    store = store_of(seen)
    store[first], store[second] = store[second], store[first]


PLANTED: dict[str, tuple[Callable[[Seen], object], str]] = {
    "still writing": (lambda seen: change("chunks", chunk_of(seen, "abandoned"), state="writing")(seen), "writing"),
    "not removed": (
        lambda seen: change("chunks", chunk_of(seen, "abandoned"), deleted_at=None)(seen),
        "has no deleted_at",
    ),
    "retired with live files": (
        lambda seen: change("chunks", chunk_of(seen, "committed"), state="retired")(seen),
        "live files",
    ),
    "points to nothing": (change("file_locations", caf_file_id=0), "points to chunk 0"),
    "wrong checksum": (change("file_locations", crc32c=1), "another checksum"),
    "wrong span": (change("file_locations", end_byte=1 << 40), "another checksum"),
    "no object": (lambda seen: store_of(seen).pop(key_of(seen, "committed")), "is missing"),
    "no retired object": (lambda seen: store_of(seen).pop(key_of(seen, "retired")), "is missing"),
    "no copy": (lambda seen: copies_of(seen).pop(key_of(seen, "committed")), "is missing"),
    "spoilt bytes": (lambda seen: spoil(store_of(seen), key_of(seen, "committed")), "checksum"),
    "spoilt car": (lambda seen: spoil_a_file(seen, "car"), "have another checksum"),
    "spoilt chunkio": (lambda seen: spoil_a_file(seen, "chunkio"), "have another checksum"),
    "spoilt databundle": (lambda seen: spoil_a_file(seen, "databundle"), "have another checksum"),
    "spoilt copy": (lambda seen: spoil(copies_of(seen), key_of(seen, "committed")), "checksum"),
    "spoilt third-party archive": (spoil_outside, "have another checksum"),
    "a missing log file": (drop("ingestion_units"), "has the log files []"),
    "a superfluous log file": (double("ingestion_units"), "has the log files"),
    "lost row": (drop("file_locations"), "neither live nor retired"),
    "lost history": (drop("retired_locations"), "neither live nor retired"),
    "retired twice": (double("retired_locations"), "more often"),
    "wrong counter": (
        lambda seen: change("chunks", chunk_of(seen, "committed"), live_bytes=1)(seen),
        "counts",
    ),
    "a superfluous object": (lambda seen: store_of(seen).update({"0.caf": b""}), "which no row names"),
    "a superfluous backup": (drop("backups"), "which no row names"),
    "an upload": (lambda seen: seen.uploads[seen.tables["chunks"][0].store].append("x.caf"), "upload"),
    "no marker": (lambda seen: store_of(seen).pop(marker_of(seen)), "has no marker"),
    "half a marker": (
        lambda seen: store_of(seen).update({marker_of(seen): store_of(seen)[marker_of(seen)].strip()}),
        "is not the marker",
    ),
    "a marker of another catalog": (
        lambda seen: store_of(seen).update({"catalogs/0.json": b""}),
        "the marker of another catalog",
    ),
    "no record": (lambda seen: store_of(seen).pop(record_of(seen, "commit")), "is not in"),
    "a superfluous record": (lambda seen: seen.tables["journal"].pop(), "which no row names"),
    "a record not written": (change("journal", unwritten=["s3://x"]), "is not written"),
    "a store without a removal": (forget_a_record, "does not have journal"),
    "exchanged records": (swap_order, "its head is not that of its row"),
}


@pytest.mark.parametrize("damage", PLANTED)
def test_checker_finds_planted_damage(seen: Seen, damage: str) -> None:
    plant, words = PLANTED[damage]
    plant(seen)
    found = problems(seen)
    assert any(words in problem for problem in found), found


def test_checker_refuses_a_truncated_journal_record(seen: Seen) -> None:
    key = record_of(seen, "commit")
    store_of(seen)[key] = store_of(seen)[key][:-20]
    with pytest.raises(ValueError, match=r"Expecting|foot|Unterminated|Extra"):
        problems(seen)


def test_checker_finds_files_that_only_the_journal_has(seen: Seen) -> None:
    """Without the record of a removal, the replay of the journal still has the removed files."""
    store, copies = store_of(seen), copies_of(seen)
    for objects in (store, copies):
        del objects[record_of(seen, "remove")]
    seen.tables["journal"] = [row for row in seen.tables["journal"] if row.kind != "remove"]
    assert any("that the catalog does not have" in problem for problem in problems(seen))
