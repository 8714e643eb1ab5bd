"""A catalog and two stores for the tests of copies. The checks use SQL and raw bytes."""

import base64
import contextlib
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

import cafcat
from cafcat.operations.copy.report import CopyReport
from cafcat.operations.recover.report import RecoverReport
from cafcat.progress import Progress
from cafcat.support.checksums import crc64nvme
from tests.worlds.catalog_world import sql
from tests.worlds.listeners import follow
from tests.worlds.places import Bucket, Folder, Place
from tests.worlds.removal_world import rebuilt
from tests.worlds.servers.s3_server import S3Server

__all__ = ["FILES", "LARGE", "PAIRS", "World", "check", "end_leases", "folder_of", "rebuilt_from_copies", "world"]

CONTENT = random.Random(1)
LARGE = CONTENT.randbytes(9_000_000)
"""Larger than the part of an upload that is held back until it is checked, and than one read of a folder."""
FILES = {
    "tree/empty": b"",
    "tree/first": b"first" * 100,
    "tree/large": LARGE,
    "tree/last": bytes(range(256)),
    "tree/medium": CONTENT.randbytes(3_000_000),
}
"""A file for each range of sizes that is read in a different way."""
PAIRS = [
    "folder-folder",
    pytest.param("folder-bucket", marks=pytest.mark.slow),
    pytest.param("bucket-folder", marks=pytest.mark.slow),
]


@dataclass
class World:
    """A repository whose chunks are in the first place; the second one is for their copies."""

    repository: cafcat.Repository
    first: Place
    second: Place
    warnings: list[str]

    def sql(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        return sql(self.repository, statement, *values)

    def with_progress(self, progress: Progress) -> "World":
        return replace(self, repository=self.repository.with_progress(progress))

    def copy(self, *chunks: str, **options: Any) -> CopyReport:
        return follow(self.repository, options).copy(chunks, to=self.second.url, **options)

    def recover(self, **options: Any) -> RecoverReport:
        """End all leases, then recover."""
        end_leases(self)
        return follow(self.repository, options).recover(**options)


@pytest.fixture
def world(
    request: pytest.FixtureRequest, database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[World]:
    """Yield a world.

    Its parameter names the kinds of both places: "folder-bucket" copies from a folder to a bucket.
    """
    pair = getattr(request, "param", "folder-folder")
    warnings: list[str] = []
    with contextlib.ExitStack() as opened:
        places = [_place(request, kind, tmp_path / f"store-{n}", opened) for n, kind in enumerate(pair.split("-"))]
        options = {"database_url": database_url, "home": tmp_path / "home", "store": places[0].url}
        repository = opened.enter_context(cafcat.open(warn=warnings.append, **options))
        yield World(repository, places[0], places[1], warnings)


def _place(request: pytest.FixtureRequest, kind: str, folder: Path, opened: contextlib.ExitStack) -> Place:
    if kind == "folder":
        return Folder(folder)
    request.getfixturevalue("s3_environment")
    server: S3Server = request.getfixturevalue("s3_server")
    bucket = Bucket(server, request.getfixturevalue("s3_bucket"))
    opened.callback(bucket.client.close)
    return bucket


def folder_of(place: Place) -> Path:
    assert isinstance(place, Folder)
    return place.folder


def end_leases(world: World) -> None:
    for table in ("chunks", "chunk_copies", "backups"):
        world.sql(f"UPDATE {table} SET lease_expires_at = now() - interval '1s' WHERE state = 'writing'")


def check(world: World) -> set[str]:
    """Check the second store against the catalog, and return the keys of its copies.

    The second store must have the committed copies, their journal records, the journal records of later removals
    and restores, and nothing else.
    """
    assert world.repository.session.catalog.reports.findings() == []
    objects = world.second.everything()
    copies = world.sql(
        "SELECT k.object_key, k.state, c.crc64nvme, c.size_bytes, k.deleted_at IS NULL, k.lease_expires_at IS NULL "
        "FROM chunk_copies AS k JOIN chunks AS c ON c.id = k.chunk_id WHERE k.store = %s",
        world.second.url,
    )
    assert {row[1] for row in copies} <= {"committed", "abandoned", "deleted"}
    assert all(is_present == (state == "committed") for _, state, _, _, is_present, _ in copies)
    assert all(without_lease for *_, without_lease in copies)
    kept = {key: (checksum, size) for key, state, checksum, size, *_ in copies if state == "committed"}
    assert {key for key in objects if not key.startswith(("journal/", "catalogs/"))} == set(kept)
    for key, (checksum, size) in kept.items():
        assert len(objects[key]) == size
        assert base64.b64encode(crc64nvme(objects[key]).to_bytes(8)).decode() == checksum
    _check_journal(world, objects)
    return set(kept)


def _check_journal(world: World, objects: dict[str, bytes]) -> None:
    assert world.sql("SELECT count(*) FROM journal WHERE unwritten <> '{}'") == [(0,)]
    assert world.sql("SELECT count(*) FROM journal_files") == [(0,)]
    records = {key for key in objects if key.startswith("journal/")}
    needed = world.sql(
        "SELECT 'journal/' || to_char(j.id, 'FM00000000000000000000') || '-' || j.uuid || '.jsonl' "
        "FROM journal AS j WHERE j.chunk_id IN (SELECT chunk_id FROM chunk_copies "
        "WHERE state = 'committed' AND store = %s) "
        "OR (j.kind IN ('remove', 'restore') AND j.id > (SELECT min(i.id) FROM journal AS i "
        "JOIN chunk_copies AS k ON k.chunk_id = i.chunk_id AND k.state = 'committed' AND k.store = %s))",
        world.second.url,
        world.second.url,
    )
    assert {key for (key,) in needed} <= records
    before = world.first.everything()
    assert all(_change_in(objects[key]) == _change_in(before[key]) for key in records)


def _change_in(record: bytes) -> list[dict[str, Any]]:
    """Return the lines of a journal record, without the list of stores at the time when its object was written."""
    head, *lines, _ = map(json.loads, record.splitlines())
    head.pop("stores", None)
    return [head, *lines]


def rebuilt_from_copies(world: World) -> tuple[dict[str, tuple[str, int]], dict[str, tuple[str, int]]]:
    """Return chunk and first byte of every path: by a rebuild of the second store alone, and by the catalog."""
    located = world.sql(
        "SELECT file_path, uuid::text, start_byte FROM file_locations JOIN chunks ON id = caf_file_id"
    )
    return rebuilt(world.second), {path: (chunk, start) for path, chunk, start in located}
