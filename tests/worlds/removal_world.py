"""Checks for the tests of rm, repack, repair and prune: catalog and stores must agree, by SQL and raw bytes."""

import base64
import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import cafcat
from cafcat.support.checksums import crc32c, crc64nvme
from tests.worlds.catalog_world import sql
from tests.worlds.places import Place

__all__ = ["check", "rebuilt"]


def check(repository: cafcat.Repository, *places: Place) -> dict[str, bytes]:
    """Check the catalog and its stores, and return the contents of the catalog's files.

    Every row must be true, every counter exact. The stores must have the objects of the catalog and no others, and
    their journal must describe the same files as the catalog.
    """
    assert repository.session.catalog.reports.findings() == []
    found: dict[str, bytes] = {}
    objects: dict[tuple[str, str], bytes] = {}
    for place in places:
        objects |= {(place.url, key): data for key, data in place.everything().items()}
    rows = sql(
        repository,
        "SELECT file_path, start_byte, end_byte, crc32c, store, object_key, state "
        "FROM file_locations JOIN chunks ON id = caf_file_id",
    )
    for path, start, end, checksum, store, key, state in rows:
        assert state == "committed", path
        found[path] = objects[store, key][start:end]
        assert crc32c(found[path]) == checksum, path
    _check_chunks(repository, objects)
    located = sql(
        repository, "SELECT file_path, uuid::text, start_byte FROM file_locations JOIN chunks ON id = caf_file_id"
    )
    assert rebuilt(*places) == {path: (chunk, start) for path, chunk, start in located}
    return found


def _check_chunks(repository: cafcat.Repository, objects: Mapping[tuple[str, str], bytes]) -> None:
    statement = (
        "SELECT store, object_key, state, crc64nvme, deleted_at IS NULL, file_count, live_file_count, "
        "(SELECT count(*) FROM file_locations WHERE caf_file_id = c.id), "
        "(SELECT count(*) FROM retired_locations WHERE caf_file_id = c.id), retired_at IS NULL FROM chunks AS c"
    )
    expected = set()
    for store, key, state, checksum, is_present, files, counted, live, retired, never in sql(repository, statement):
        assert state in ("committed", "retired", "deleted")
        assert is_present == (state != "deleted"), key
        assert (counted, live + retired) == (live, files), key
        assert (live > 0) == (state == "committed") == never, key
        if is_present:
            assert base64.b64encode(crc64nvme(objects[store, key]).to_bytes(8)).decode() == checksum
            expected.add((store, key))
    copies = sql(repository, "SELECT store, object_key FROM chunk_copies WHERE deleted_at IS NULL")
    assert {key for key in objects if not key[1].startswith(("journal/", "catalogs/"))} == expected | set(copies)
    assert sql(repository, "SELECT count(*) FROM journal WHERE unwritten <> '{}'") == [(0,)]
    assert sql(repository, "SELECT count(*) FROM journal_files") == [(0,)]


class Event(NamedTuple):
    """A change of a path in the journal. where: its new chunk and first byte; None if the path was removed."""

    sequence: int
    where: tuple[str, int] | None


def rebuilt(*places: Place) -> dict[str, tuple[str, int]]:
    """Return chunk and first byte of each path by the journal records alone. The last change of a path counts."""
    events: dict[str, Event] = {}
    for place in places:
        objects = place.everything()
        for key, data in objects.items():
            if key.startswith("journal/"):
                for path, event in _changes_in(objects, data):
                    events[path] = max(event, events.get(path, event), key=lambda event: event.sequence)
    return {path: event.where for path, event in events.items() if event.where is not None}


def _changes_in(objects: Mapping[str, bytes], record: bytes) -> Iterator[tuple[str, Event]]:
    """Yield the changes of paths in a journal record."""
    head, *lines, foot = map(json.loads, record.splitlines())
    # Lines about origins come first. They have no path.
    files = [line for line in lines if "path" in line]
    assert foot == {"files": len(files), "crc32c": crc32c(record[: record.rindex(b"\n", 0, -1) + 1])}
    sequence = head["sequence"]
    if head["kind"] == "remove":
        yield from ((file["path"], Event(sequence, None)) for file in files)
    elif head["kind"] == "restore":
        yield from ((file["path"], Event(sequence, (file["chunk"], file["start_byte"]))) for file in files)
    elif head["chunk"]["object_key"] in objects:
        skipped = {file["path"] for file in files}
        for path, entry in _index(objects[head["chunk"]["object_key"]]).items():
            if path not in skipped:
                yield path, Event(sequence, (head["chunk"]["uuid"], entry["start_byte"]))


def _index(archive: bytes) -> dict[str, Any]:
    size = int.from_bytes(archive[-4:], "little")
    found: dict[str, Any] = json.loads(archive[-4 - size : -4])["files"]
    return found
