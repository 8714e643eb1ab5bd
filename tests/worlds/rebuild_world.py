"""A catalog, its stores, and empty databases for the tests of rebuild, compare and backup."""

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import cafcat
from cafcat.events import CatalogsDiffer
from cafcat.formats.base import Format
from cafcat.formats.caf.format import CAF
from cafcat.model import OnConflict
from cafcat.operations.rebuild.report import RebuildReport
from cafcat.progress import Progress
from cafcat.stores.base import Store
from tests.worlds.catalog_world import begin, sql
from tests.worlds.listeners import Following, follow
from tests.worlds.places import FOLDER_OR_SLOW_BUCKET
from tests.worlds.servers.services import Databases

__all__ = ["World", "leave_whole", "local", "world", "worlds"]


def leave_whole(
    repository: cafcat.Repository,
    files: Mapping[str, bytes],
    on_conflict: OnConflict = OnConflict.REPLACE,
    archive_format: Format = CAF,
) -> str:
    """Leave a chunk whose writer died after its object was durable, and whose lease has ended; return its uuid."""
    chunk = begin(repository, files, on_conflict, archive_format=archive_format)
    chunk._lease.end()
    chunk._make_durable(Progress())
    chunk._mapping.close()
    sql(repository, "UPDATE chunks SET lease_expires_at = now() - interval '1s' WHERE state = 'writing'")
    return str(chunk.uuid)


@dataclass
class World:
    """A repository, and empty catalogs beside it. store: URL or folder of the first store."""

    databases: Databases
    opened: contextlib.ExitStack
    folder: Path
    store: str
    repository: cafcat.Repository = field(init=False)

    def __post_init__(self) -> None:
        self.repository = self.empty()

    def empty(self) -> cafcat.Repository:
        """Open another catalog of the same store, without any row."""
        url = self.opened.enter_context(self.databases.fresh(self.databases.template()))
        return self.open(url, self.store)

    def open(self, database_url: str, store: str) -> cafcat.Repository:
        """Open a repository of a catalog."""
        found = cafcat.open(database_url=database_url, home=self.folder / "home", store=store)
        return self.opened.enter_context(found)

    def at(self, store: str) -> cafcat.Repository:
        """Open a repository of the same catalog that writes to another store."""
        return self.open(str(self.repository.settings.database_url), store)

    @property
    def objects(self) -> Store:
        return self.repository.session.stores[self.store]

    def journal(self) -> list[str]:
        """Return the keys of the journal records, in order."""
        return [found.key for found in self.objects.list() if found.key.startswith("journal/")]

    def read(self, key: str) -> bytes:
        return self.objects.read(key, 0, self.objects.stat(key).size_bytes)

    def write(self, key: str, data: bytes) -> None:
        """Write an object, in place of an existing one."""
        self.objects.delete(key)
        upload = self.objects.create(key)
        upload.write(data)
        upload.commit()

    def rebuilt(self, *stores: str, **options: Any) -> tuple[cafcat.Repository, RebuildReport]:
        """Rebuild a new catalog from the stores alone."""
        repository = self.empty()
        report = follow(repository, options).rebuild(stores, **options)
        assert repository.session.catalog.reports.findings() == []
        return repository, report

    def differences(self, other: cafcat.Repository) -> list[CatalogsDiffer]:
        """Return the differences between the catalog and another one."""
        found: list[CatalogsDiffer] = []
        url = str(other.settings.database_url)
        report = self.repository.with_progress(Following(on=found.append)).compare(url)
        assert report.equal == (not found)
        return found

    def assert_rebuilds(self, *stores: str) -> RebuildReport:
        """Check that a catalog rebuilt from the stores equals the catalog."""
        rebuilt, report = self.rebuilt(*stores)
        assert report.written
        assert report.damages == ()
        assert self.differences(rebuilt) == []
        journal = "SELECT id, uuid, kind, happened_at FROM journal ORDER BY id"
        has_chunk = "SELECT chunk_id IS NULL OR EXISTS (SELECT FROM chunks AS c WHERE c.id = chunk_id) FROM journal"
        assert set(sql(rebuilt, journal)) <= set(sql(self.repository, journal))
        assert set(sql(rebuilt, has_chunk)) <= {(True,)}
        return report


@contextlib.contextmanager
def worlds(databases: Databases, folder: Path, store: str) -> Iterator[World]:
    with contextlib.ExitStack() as opened:
        yield World(databases, opened, folder, store)


@pytest.fixture(params=FOLDER_OR_SLOW_BUCKET)
def world(request: pytest.FixtureRequest, databases: Databases, tmp_path: Path) -> Iterator[World]:
    if request.param == "folder":
        store = str(tmp_path / "store")
    else:
        request.getfixturevalue("s3_environment")
        store = f"s3://{request.getfixturevalue('s3_bucket')}/pre/fix"
    with worlds(databases, tmp_path, store) as world:
        yield world


@pytest.fixture
def local(databases: Databases, tmp_path: Path) -> Iterator[World]:
    with worlds(databases, tmp_path, str(tmp_path / "store")) as world:
        yield world
