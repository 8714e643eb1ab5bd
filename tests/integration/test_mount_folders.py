"""Folders of a mount: few queries, and the same entries from the catalog, from a snapshot, and by definition."""

import itertools
import random
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import pytest

import cafcat
from cafcat.model import Folder, Location
from cafcat.mount import folders as mount_folders
from cafcat.mount.folders import FolderCatalog, Folders, Item
from cafcat.mount.open_files import OpenFolder
from cafcat.mount.reading_ahead import KnownEnds
from cafcat.snapshots.database import PooledRows, SnapshotFile
from cafcat.snapshots.lookup import SnapshotFiles
from tests.worlds.catalog_world import commit
from tests.worlds.waiting import wait_until

PARTS = ("a", "a!", "a.txt", "a0", "b", "é", "日", "\x01", "", ".", "c" * 300, "a b")


class Counted:
    """Counts the queries that reach a catalog, whose state is `changes`.

    The state of the database changes with each commit of other tests, which use the same server.
    """

    def __init__(self, catalog: FolderCatalog) -> None:
        self.catalog = catalog
        self.pages = self.others = self.states = 0
        self.changes = 0

    def state(self) -> Any:
        self.states += 1
        return self.changes

    def entry(self, path: str) -> Item | None:
        self.others += 1
        return self.catalog.entry(path)

    def folders_among(self, names: Collection[str]) -> set[str]:
        self.others += bool(names)
        return self.catalog.folders_among(names)

    def range_page(self, low: str, high: str | None, limit: int = 1000) -> Sequence[Location]:
        self.pages += 1
        return self.catalog.range_page(low, high, limit)

    def folder_page(self, folder: str, *, after: Item | None = None, limit: int = 1000) -> Sequence[Item]:
        self.pages += 1
        return self.catalog.folder_page(folder, after=after, limit=limit)


def snapshot_files(repository: cafcat.Repository, path: Path) -> SnapshotFiles:
    repository.snapshot(path)
    return SnapshotFiles(PooledRows(SnapshotFile(str(path))))


def listed(folders: Folders, folder: str) -> dict[str, Item]:
    page = folders.page(folder, None)
    found = dict(page.items or {})
    while page.last is not None:
        page = folders.page(folder, page.last)
        found |= page.items or {}
    return found


def silent(checked_seconds: float, catalog: FolderCatalog) -> Folders:
    return Folders(catalog, checked_seconds, lambda _: None, KnownEnds())


@pytest.fixture(params=["catalog", "snapshot"])
def counted(request: pytest.FixtureRequest, local: cafcat.Repository, tmp_path: Path) -> Counted:
    commit(local, {f"big/n{n:04}": b"%d" % n for n in range(2500)} | {"other/a": b"a"})
    if request.param == "catalog":
        return Counted(local.session.catalog.files)
    return Counted(snapshot_files(local, tmp_path / "taken"))


def test_a_listing_with_attributes_takes_one_query_per_page(counted: Counted) -> None:
    folders = silent(1e9, counted)
    names = listed(folders, "big/")
    assert list(names) == [f"n{n:04}" for n in range(2500)]
    for n in range(2500):
        item = folders.find(f"big/n{n:04}")
        assert isinstance(item, Location)
        assert item.size_bytes == len(str(n))
    assert folders.find("big/nothing") is folders.find("big/n2500") is None
    assert (counted.pages, counted.others) == (3, 2)  # two more for the folders "n0999/" and "n1999/"


def test_a_listing_is_cached_until_the_catalog_changes(counted: Counted) -> None:
    folders = silent(0, counted)
    listed(folders, "big/")
    counted.pages = counted.others = 0
    assert all(folders.find(f"big/n{n:04}") for n in range(2500))
    assert (counted.pages, counted.others) == (0, 0)
    assert counted.states >= 2500


def test_the_catalog_is_not_asked_more_often_than_necessary(
    counted: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = iter((0.0, 0.0, 0.9, 1.0, 1.0, 1.9))  # a check asks twice
    monkeypatch.setattr(mount_folders.time, "monotonic", lambda: next(times))
    folders = silent(1.0, counted)
    for _ in range(4):
        assert folders.find("big/n0001") is not None
    assert counted.states == 2


def test_after_a_change_a_slow_listing_takes_few_queries(counted: Counted) -> None:
    """`find` reads all names first, and requests the attributes when the listing is too old."""
    folders = silent(0, counted)
    listed(folders, "big/")
    counted.changes += 1
    counted.pages = counted.others = 0
    assert all(folders.find(f"big/n{n:04}") for n in range(2500))
    assert counted.pages == 3
    assert counted.others <= 3 * 2 + 2


def test_changes_of_the_catalog_are_seen(local: cafcat.Repository) -> None:
    files = local.session.catalog.files
    folders = silent(0, files)
    commit(local, {"a/b": b"1", "a/c/d": b"2"})
    assert list(listed(folders, "a/")) == ["b", "c"]
    wait_until(lambda: files.state() == files.state())  # between the commits of other tests
    state = files.state()
    commit(local, {"a/b": b"three", "a/c/e": b"4"})
    assert files.state() != state
    found = folders.find("a/b")
    assert isinstance(found, Location)
    assert found.size_bytes == 5
    assert list(listed(folders, "a/c/")) == ["d", "e"]


def test_one_query_lists_many_small_folders(local: cafcat.Repository, tmp_path: Path) -> None:
    paths = [f"tree/{n:02}/{m}/{k}" for n in range(30) for m in range(3) for k in range(5)]
    commit(local, {path: path.encode() for path in paths})
    for catalog in (local.session.catalog.files, snapshot_files(local, tmp_path / "taken")):
        counted = Counted(catalog)
        folders = silent(1e9, counted)
        assert len(listed(folders, "tree/")) == 30
        assert all(list(listed(folders, f"tree/{n:02}/{m}/")) == list("01234") for n in range(30) for m in range(3))
        assert (counted.pages, counted.others) == (1, 0)


def test_a_folder_with_large_subfolders_is_listed_by_its_names(
    local: cafcat.Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mount_folders, "_PAGE_ROWS", 100)
    commit(local, {f"top/{n:02}/{m:03}": b"x" for n in range(20) for m in range(110)})
    counted = Counted(local.session.catalog.files)
    folders = silent(1e9, counted)
    assert len(listed(folders, "top/")) == 20
    assert counted.pages == 2


def test_single_look_ups_list_nothing(counted: Counted) -> None:
    folders = silent(1e9, counted)
    assert isinstance(folders.find("big"), Folder)
    assert isinstance(folders.find("other/a"), Location)
    assert folders.find("other/b") is None
    assert (counted.pages, counted.others) == (0, 3)
    assert folders.find("other/a") is not None
    assert counted.others == 3


def test_many_look_ups_in_a_folder_list_its_page(counted: Counted) -> None:
    folders = silent(1e9, counted)
    assert all(folders.find(f"big/n{n:04}") for n in range(999))
    assert counted.pages == 1
    assert counted.others <= 3 + 2


def test_many_entries_are_not_all_cached(counted: Counted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mount_folders, "_CACHED_ITEMS", 1500)
    folders = silent(1e9, counted)
    listed(folders, "big/")
    assert folders._item_count <= 1501
    assert all(folders.find(f"big/n{n:04}") for n in range(2500))


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2, 3))])
def test_entries_equal_their_definition(
    local: cafcat.Repository, tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Random paths, among them such that are file and folder, or have names that no folder can have."""
    drawn = random.Random(seed)
    paths = {"/".join(drawn.choices(PARTS, k=drawn.randint(1, 4))) for _ in range(300)} - {"", "."}
    commit(local, dict.fromkeys(paths, b"x"))
    monkeypatch.setattr(mount_folders, "_PAGE_ROWS", drawn.randint(1, 9))
    catalogs = local.session.catalog.files, snapshot_files(local, tmp_path / "taken")
    folder_names = {""} | {path[: n + 1] for path in paths for n, c in enumerate(path) if c == "/"}
    for catalog in catalogs:
        for folder in sorted(folder_names):
            for fresh in (silent(1e9, catalog), silent(0, catalog)):
                found = listed(fresh, folder)
                assert {name: item.path for name, item in found.items()} == expected(paths, folder)
                for part in PARTS[:8]:
                    item = fresh.find(folder + part)
                    assert (item and item.path) == expected(paths, folder).get(part), (folder, part)


def expected(paths: set[str], folder: str) -> dict[str, str]:
    below = [path[len(folder) :] for path in paths if path.startswith(folder)]
    folders = {name.split("/")[0] for name in below if "/" in name}
    names = folders | {name for name in below if "/" not in name}
    shown = (name for name in names if name not in ("", ".", "..") and len(name.encode()) <= 255)
    return {name: f"{folder}{name}/" if name in folders else f"{folder}{name}" for name in shown}


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2, 3))])
def test_a_listing_yields_each_entry_once_while_the_catalog_changes(
    local: cafcat.Repository, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    drawn = random.Random(seed)
    monkeypatch.setattr(mount_folders, "_PAGE_ROWS", 6)
    lasting = {f"top/{n:03}" + "/x" * (n % 3 == 0) for n in range(0, 60, 2)}
    commit(local, dict.fromkeys(lasting, b"x"))
    opened = OpenFolder(silent(0, local.session.catalog.files), "top/")
    names, offset, is_end = [], 0, False
    while not is_end:
        entries = list(itertools.islice(opened.entries(offset), drawn.randint(1, 4)))
        names += [name for name, _, _ in entries]
        is_end = not entries
        offset = entries[-1][2] if entries else offset
        number = drawn.randrange(1, 60, 2)
        more = f"top/{drawn.randrange(0, 60, 6):03}/{number}"
        commit(local, {f"top/{number:03}" + "/y" * drawn.randint(0, 1): b"y", more: b"z"})
    found = [name for name in names if int(name) % 2 == 0]
    assert found == [f"{n:03}" for n in range(0, 60, 2)]
