"""Chunks as dead writers leave them, and checks of catalog and store after recover."""

import base64
import os
from collections.abc import Mapping
from typing import Any

import pytest

import cafcat
from cafcat.operations.recover.report import RecoverReport
from cafcat.progress import Progress
from cafcat.stores.keys import is_chunk_key
from cafcat.support.checksums import crc32c, crc64nvme
from cafcat.writing.chunk import OpenChunk
from tests.worlds.catalog_world import begin, sql
from tests.worlds.listeners import follow
from tests.worlds.places import Place

__all__ = [
    "FILES",
    "check",
    "chunk_objects",
    "counted",
    "die_before_commit",
    "die_half_way",
    "end_leases",
    "key_of",
    "leave_half",
    "leave_whole",
    "place",
    "recover",
    "states",
]


FILES = {"a/first": b"first", "a/second": bytes(range(256)) * 20, "b/empty": b"", "ü/日本": b"unicode"}


@pytest.fixture(params=["folder", "bucket"])
def place(request: pytest.FixtureRequest) -> Place:
    found: Place = request.getfixturevalue(request.param)
    return found


def key_of(chunk: OpenChunk) -> str:
    return f"{chunk.uuid}.caf"


def die_half_way(chunk: OpenChunk) -> OpenChunk:
    """Stop a writer without any clean-up. The bytes that it wrote stay."""
    chunk._sink.abort()
    chunk._mapping.close()
    descriptor = getattr(chunk._upload, "_descriptor", None)
    if descriptor is not None:
        os.close(descriptor)
    return chunk


def die_before_commit(chunk: OpenChunk) -> OpenChunk:
    """Stop a writer after its object is durable, before its files are in the catalog."""
    chunk._make_durable(Progress())
    chunk._mapping.close()
    return chunk


def leave_whole(
    repository: cafcat.Repository, files: Mapping[str, bytes], on_conflict: str = "replace"
) -> OpenChunk:
    return die_before_commit(begin(repository, files, on_conflict))


def leave_half(repository: cafcat.Repository, files: Mapping[str, bytes]) -> OpenChunk:
    return die_half_way(begin(repository, files))


def end_leases(repository: cafcat.Repository) -> None:
    sql(repository, "UPDATE chunks SET lease_expires_at = now() - interval '1s' WHERE state = 'writing'")


def recover(repository: cafcat.Repository, **options: Any) -> RecoverReport:
    """End all leases, then recover."""
    end_leases(repository)
    return follow(repository, options).recover(**options)


def states(repository: cafcat.Repository) -> list[str]:
    return [row[0] for row in sql(repository, "SELECT state FROM chunks ORDER BY id")]


def counted(report: RecoverReport) -> dict[str, Any]:
    """Return the counts of a report that are not zero."""
    names = ("files_adopted", "files_skipped", "bytes_adopted")
    return {name: getattr(report, name) for name in report.__slots__ if getattr(report, name) and name not in names}


def chunk_objects(place: Place) -> dict[str, bytes]:
    """Return the objects of chunks, without journal records, markers and backups."""
    return {key: data for key, data in place.objects().items() if is_chunk_key(key)}


def check(repository: cafcat.Repository, place: Place) -> dict[str, bytes]:
    """Check the catalog and the store by SQL and raw bytes, and return the contents of the catalog's files.

    Every row must be true. The store must have the objects of committed chunks, and no other chunk or upload.
    """
    assert repository.session.catalog.reports.findings() == []
    objects = chunk_objects(place)
    chunks = sql(repository, "SELECT object_key, state, size_bytes, crc64nvme, deleted_at IS NULL FROM chunks")
    assert {row[1] for row in chunks} <= {"committed", "abandoned"}
    assert set(objects) == {key for key, state, *_ in chunks if state == "committed"}
    for key, state, size_bytes, checksum, is_present in chunks:
        assert is_present == (state == "committed"), key
        if is_present:
            assert len(objects[key]) == size_bytes
            assert base64.b64encode(crc64nvme(objects[key]).to_bytes(8)).decode() == checksum
    assert place.uploads() == []
    found = {}
    rows = sql(
        repository,
        "SELECT file_path, start_byte, end_byte, crc32c, object_key "
        "FROM file_locations JOIN chunks ON id = caf_file_id",
    )
    for path, start, end, checksum, key in rows:
        found[path] = objects[key][start:end]
        assert crc32c(found[path]) == checksum, path
    return found
